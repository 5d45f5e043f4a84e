//! What a person reads of open connections.

use super::*;
use rove_api::RuleSays;

fn flow(state: &str, held_bytes: u64, idle_ms: u64, ends: (&str, &str), why: &str) -> Flow {
    Flow {
        tuple: format!("tcp {} {}", ends.0, ends.1),
        protocol: "tcp".to_owned(),
        local: ends.0.to_owned(),
        remote: ends.1.to_owned(),
        peer: Some("laptop-of-somebody".to_owned()),
        class: "bulk".to_owned(),
        level: 2,
        device: None,
        rules: Vec::new(),
        narrowed_to_bytes: None,
        queued_bytes: None,
        queue_target_ms: None,
        queue_interval_ms: None,
        profile: None,
        path: None,
        link: None,
        links: ["eth0", "wlan0"].map(str::to_owned).into(),
        remotes: [].into(),
        chosen: None,
        held_bytes,
        owed_bytes: 0,
        state: state.to_owned(),
        stage: "established".to_owned(),
        answered: true,
        idle_ms,
        why: why.to_owned(),
    }
}

fn reply(node: Node, flows: &[Flow]) -> Flows {
    Flows {
        node: Some(node),
        flows: flows.to_vec(),
        known: flows.len() as u64,
        complete: true,
        held_bytes: 100_000,
        memory_bytes: Some(64 << 20),
        hold: Some(Hold::Full),
        rules: 0,
        blocked: None,
    }
}

const V4: (&str, &str) = ("10.77.0.2:40112", "198.51.100.80:80");
const V6: (&str, &str) = (
    "[2001:0db8:1111:2222:3333:4444:5555:6666]:40112",
    "[2001:0db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535",
);

#[test]
fn each_has_a_line_and_a_reason() {
    let flows = [
        flow("suspended", 100_000, 12_345, V4, "kept: no path carries"),
        flow("normal", 0, 999, V4, "carried; kept when its path is lost"),
    ];
    assert_eq!(
        text(&reply(Node::Client, &flows)),
        "2 open connections, 97.6 KB of at most 64 MB held\n\
         STATE        HELD     IDLE  CLASS  LINKS       LOCAL            REMOTE\n\
         suspended    97.6 KB  12 s  bulk   eth0+wlan0  10.77.0.2:40112  198.51.100.80:80\n  \
           kept: no path carries\n\
         established  -        0 s   bulk   eth0+wlan0  10.77.0.2:40112  198.51.100.80:80\n  \
           carried; kept when its path is lost\n"
    );
}

#[test]
fn a_level_is_said_where_it_is_not_the_usual_one() {
    let of = |level: u8, narrowed_to_bytes: Option<u32>| Flow {
        level,
        narrowed_to_bytes,
        ..flow("normal", 0, 0, V4, "carried")
    };
    let flows = [of(1, None), of(2, None), of(3, Some(6_144))];
    let text = text(&reply(Node::Client, &flows));
    let levels: Vec<&str> = text.lines().filter(|line| line.contains("level")).collect();
    let narrowed = "level 3; leaves room for others: its sender is shown 6 KB of window";
    assert_eq!(levels, ["  level 1", &format!("  {narrowed}")]);
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    assert!(explanation(&flows[0], &[], true).ends_with("  level      1\n"));
    assert!(!explanation(&flows[1], &[], true).contains("level"));
    assert!(explanation(&flows[2], &[], true).contains("  level      3; leaves room for others"));
}

#[test]
fn it_is_explained_which_rule_said_what() {
    let mut call = flow("normal", 0, 0, V4, "carried");
    assert!(!explanation(&call, &[], true).contains("device"));
    call.device = Some("phone".to_owned());
    let says = |property: &str, value: &str, rule: &str| RuleSays {
        property: property.to_owned(),
        value: value.to_owned(),
        rule: rule.to_owned(),
    };
    call.rules = vec![says("strength", "256", "rule 2"), says("goal", "data", "device phone")];
    let text = explanation(&call, &[], true);
    assert!(text.contains("\n  device     phone\n"), "{text}");
    let rules = "  strength   256, as rule 2 says\n  goal       data, as device phone says\n";
    assert!(text.ends_with(rules), "{text}");
}

#[test]
fn it_is_explained_how_long_its_packets_may_wait() {
    let mut bulk = flow("normal", 0, 0, V4, "carried");
    assert!(!explanation(&bulk, &[], true).contains("waits"));
    (bulk.queued_bytes, bulk.queue_target_ms) = (Some(64_000), Some(390));
    bulk.queue_interval_ms = Some(1_200);
    let waits = "  waits      62.5 KB at the tunnel's entry; told to slow down after 1200 ms above \
                 390 ms\n";
    assert!(explanation(&bulk, &[], true).ends_with(waits), "{}", explanation(&bulk, &[], true));
}

#[test]
fn it_is_explained_that_nobody_answers() {
    let mut opening = flow("normal", 0, 0, V4, "carried");
    assert!(!explanation(&opening, &[], true).contains("answered"));
    opening.answered = false;
    let text = explanation(&opening, &[], true);
    assert!(text.contains("  answered   no; if nothing else answers either, run"), "{text}");
    let silent = opening.clone();
    let mut heard = opening.clone();
    heard.answered = true;
    let text = explanation(&opening, &[&silent], true);
    assert!(text.contains("0 of 1 are answered: run `rove gateway check`"), "{text}");
    let text = explanation(&opening, &[&silent, &heard], true);
    assert!(text.contains("1 of 2 are answered: this destination does not"), "{text}");
    // A gateway's host may have a route for one family only.
    let mut other = flow("normal", 0, 0, V6, "carried");
    let text = explanation(&opening, &[&silent, &other], true);
    assert!(text.contains("of the other IPv4 connections 0 of 1 are answered"), "{text}");
    other.answered = false;
    let text = explanation(&other, &[&heard, &other], true);
    assert!(text.contains("of the other IPv6 connections 0 of 1 are answered"), "{text}");
    let text = explanation(&other, &[&heard], true);
    assert!(text.contains("if nothing else answers"), "{text}");
    // During an outage, no destination is to blame.
    let text = explanation(&opening, &[&silent, &heard], false);
    assert!(text.contains("  answered   no; the tunnel does not carry now"), "{text}");
}

#[test]
fn it_is_explained_by_what_it_goes() {
    let mut flow = flow("normal", 0, 0, V4, "carried");
    let goes_by = |flow: &Flow| {
        let text = explanation(flow, &[], true);
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("  goes by    "));
        lines.next().unwrap().to_owned()
    };
    flow.links.clear();
    assert_eq!(goes_by(&flow), "nothing yet");
    flow.remotes = ["203.0.113.5:40112", "203.0.115.2:40113"].map(|at| at.parse().unwrap()).into();
    let both = "what leads to 203.0.113.5:40112 and 203.0.115.2:40113";
    assert_eq!(goes_by(&flow), both, "at a gateway, which chooses no link");
    flow.links = ["wlan0", "wwan0"].map(str::to_owned).into();
    assert_eq!(goes_by(&flow), "wlan0 and wwan0");
    flow.chosen = Some("scheduler round-robin: by each path in its turn".to_owned());
    let text = explanation(&flow, &[], true);
    assert!(
        text.contains("  chosen     scheduler round-robin: by each path in its turn\n"),
        "{text}"
    );
}

#[test]
fn where_packets_to_an_address_end_is_said() {
    let eth0 = || "eth0".to_owned();
    let told = |leads| of_address("192.0.2.7".parse().unwrap(), &leads);
    assert_eq!(told(Leads::Here), "192.0.2.7 is an address of this host");
    assert!(told(Leads::Inside("rove0".to_owned())).contains("uses the tunnel (rove0)"));
    let blocked = told(Leads::Blocked(eth0()));
    assert!(blocked.contains("sends its packets to eth0, and Rove blocks them"), "{blocked}");
    assert!(told(Leads::Outside(eth0())).ends_with("its packets leave on eth0"));
    assert!(told(Leads::Nowhere).ends_with("no route leads there"));
}

#[test]
fn long_addresses_have_a_line_of_their_own() {
    let flows = [flow("suspended", 1, 7_200_000, V6, "kept: no path carries")];
    let text = text(&reply(Node::Gateway, &flows));
    assert!(text.lines().all(|line| line.chars().count() <= WIDTH), "{text}");
    let expected = "STATE      HELD  IDLE  CLASS  PEER\n\
                    suspended  1 B   2 h   bulk   laptop-of-somebody\n  \
                      [2001:0db8:1111:2222:3333:4444:5555:6666]:40112  \
                    [2001:0db8:aaaa:bbbb:cccc:dddd:eeee:ffff]:65535\n  \
                      kept: no path carries\n";
    assert!(text.ends_with(expected), "{text}");
}

#[test]
fn what_is_not_shown_is_said() {
    let mut some = reply(Node::Client, &[flow("normal", 0, 0, V4, "carried")]);
    some.known = 4_000;
    let says = "; the 1 that are held, or were used last:\n";
    assert!(
        text(&some)
            .contains(&format!("4000 open connections, 97.6 KB of at most 64 MB held{says}"))
    );
    some.complete = false;
    assert!(text(&some).starts_with("more than 4000 open connections"));
    let mut none = reply(Node::Client, &[]);
    assert_eq!(text(&none), "no open connection is known\n");
    none.hold = Some(Hold::Off);
    assert!(text(&none).contains("as persistence.hold = \"off\" says"));
    none.rules = 1;
    assert_eq!(text(&none), "no open connection is known\n");
}

#[test]
fn quantities_are_short() {
    let all = [0, 1_023, 1_024, 1_535, 1 << 20, (1 << 30) - 1, 5 << 30].map(bytes);
    assert_eq!(all, ["0 B", "1023 B", "1 KB", "1.4 KB", "1 MB", "1023.9 MB", "5 GB"]);
    assert_eq!([59, 60, 3_600, 200_000].map(time), ["59 s", "1 min", "1 h", "2 d"]);
}
