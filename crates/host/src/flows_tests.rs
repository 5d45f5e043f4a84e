//! What somebody would look for comes first, and what it is called.

use rove_proto::crypto::{Profile, Suite};
use rove_proto::flow::classify::Class;
use rove_proto::flow::overrides::{By, Goal};
use rove_proto::flow::tuple::Tuple;
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::node::{PathStatus, PeerState};
use rove_proto::path::{Health, PathId, Saved};
use serde_json::{Value, json};

use super::*;
use crate::samples::{self, report, report_of};

const PEER: PeerKey = PeerKey([3; 32]);

#[test]
fn those_are_meant_that_all_words_fit() {
    let flow = report(40_022);
    let is_meant = |words: &[&str]| {
        super::is_meant(&flow, &words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    };
    for words in [
        [].as_slice(),
        &["tcp"],
        &["interactive", "22"],
        &["tcp 10.77.0.2:40022 [fd00::1]:22"],
        &["10.77.0.2", "fd00::1", "40022"],
    ] {
        assert!(is_meant(words), "{words:?}");
    }
    for words in [["udp"].as_slice(), &["tcp", "23"], &["10.77.0"], &["::1"], &["tcp", "2"]] {
        assert!(!is_meant(words), "{words:?}");
    }
}

#[test]
fn what_is_held_comes_first_and_then_what_was_used_last() {
    let all = [
        report_of(1, FlowState::Normal, 9_000, 5),
        report_of(2, FlowState::Normal, 0, 1),
        report_of(3, FlowState::Suspended, 0, 0),
        report_of(4, FlowState::Resuming, 70, 0),
        report_of(5, FlowState::Suspended, 80, 900),
        report_of(6, FlowState::Broken, 0, 9),
        report_of(7, FlowState::Normal, 0, 5),
    ];
    let mut found = Found { first: all.map(|flow| (PEER, flow)).to_vec(), ..Found::default() };
    found.keep_the_first();
    let order: Vec<u16> = found.first.iter().map(|(_, flow)| flow.tuple.local.1).collect();
    assert_eq!(order, [5, 4, 3, 6, 2, 1, 7]);
}

#[test]
fn of_very_many_the_first_are_kept() {
    let flows = (0..3_000).map(|idle| (PEER, report_of(1, FlowState::Normal, 0, 3_000 - idle)));
    let mut found = Found { first: flows.collect(), ..Found::default() };
    found.keep_the_first();
    assert_eq!(found.first.len(), TOLD_MAX);
    assert_eq!(found.first[0].1.idle, Duration::from_secs(1));
    assert_eq!(found.first[TOLD_MAX - 1].1.idle, Duration::from_secs(TOLD_MAX as u64));
}

fn told(report: &FlowReport, whose: &Whose, session: &PeerStatus) -> Value {
    let way = Way::of(report, session, whose.mode, &BTreeMap::new());
    serde_json::to_value(flow(report, Some(whose), Some(session), Some(&way))).unwrap()
}

fn session() -> PeerStatus {
    PeerStatus {
        scheduler: Scheduler::default(),
        peer: PEER,
        state: PeerState::Suspended,
        established: None,
        lost_at: None,
        epoch_since: None,
        handshaking: false,
        policed: Vec::new(),
        refused: None,
        lease: None,
        shared_key: None,
        paths: Vec::new(),
        profile: Some(Profile::whole(Suite::ChaCha20Poly1305)),
        waiting: 0,
        queued_bytes: 0,
        early_bytes: 0,
        saved: Saved::default(),
        compressions: 0,
        spared: 0,
        dictionaries: None,
    }
}

#[test]
fn keys_are_as_documented() {
    let session = session();
    let whose = Whose { peer: "laptop".to_owned(), links: BTreeMap::new(), mode: None };
    let told = told(&report_of(9, FlowState::Suspended, 80, 2), &whose, &session);
    assert_eq!(
        told,
        json!({
            "tuple": "tcp 10.77.0.2:9 [fd00::1]:22",
            "protocol": "tcp",
            "local": "10.77.0.2:9",
            "remote": "[fd00::1]:22",
            "peer": "laptop",
            "class": "interactive",
            "profile": "chacha20-poly1305",
            "path": null,
            "link": null,
            "links": [],
            "remotes": [],
            "chosen": "no path carries",
            "answered": true,
            "held_bytes": 80,
            "owed_bytes": 7,
            "level": 3,
            "narrowed_to_bytes": 6_144,
            "queued_bytes": 1_420,
            "queue_target_ms": 5,
            "queue_interval_ms": 100,
            "state": "suspended",
            "stage": "established",
            "idle_ms": 2_000,
            "why": "kept: no path carries",
        })
    );
}

#[test]
fn a_flow_names_the_links_by_which_it_leaves() {
    let path = |id, in_use, is_shared| {
        let path = samples::path(Health::Good, None, None);
        PathStatus { id, in_use, is_shared, ..path }
    };
    let paths = vec![path(4, true, true), path(5, false, true), path(6, false, false)];
    let session = PeerStatus { paths, ..session() };
    let links = [(4, "wlan0"), (5, "wwan0"), (6, "eth0")];
    let links = links.map(|(path, link)| (path, link.to_owned())).into();
    let mode = Some(LinkMode::Full);
    let whose = Whose { peer: "laptop".to_owned(), links, mode };
    let bulk = report_of(9, FlowState::Normal, 0, 2);
    let told = self::told(&bulk, &whose, &session);
    assert_eq!((&told["path"], &told["link"]), (&json!(4), &json!("wlan0")));
    assert_eq!(told["links"], json!(["wlan0", "wwan0"]), "whichever is earliest");
    let chosen = "scheduler earliest: each packet goes where it arrives first";
    assert_eq!(told["chosen"], chosen);
    assert_eq!(told["remotes"], json!(["192.0.2.1:4500"]), "each once");
    let tuple = Tuple { protocol: UDP, ..bulk.tuple };
    let call = FlowReport { tuple, path: Some(PathId(5)), class: Class::RealTime, ..bulk };
    let told = self::told(&call, &whose, &session);
    assert_eq!((&told["path"], &told["link"]), (&json!(5), &json!("wwan0")));
    assert_eq!((&told["links"], &told["protocol"]), (&json!(["wwan0"]), &json!("udp")));
}

#[test]
fn a_flow_names_its_device_and_the_rules_that_decided() {
    let text = "[[rule]]\nport = 22\nstrength = 256\n\
                [[device]]\nname = \"laptop\"\naddress = \"10.77.0.2\"\ngoal = \"latency\"\n";
    let rules = FlowRules::of_text(text).unwrap();
    let decided = Decided {
        strength: Some(By { value: Strength::Bits256, rule: 1 }),
        goal: Some(By { value: Goal::Latency, rule: 2 }),
        ..Decided::default()
    };
    let report = FlowReport { decided, ..report(40_022) };
    let profile = Some(Profile::whole(Suite::Aes128Gcm));
    let session = PeerStatus { profile, ..session() };
    let of = |node| with_rules(flow(&report, None, Some(&session), None), &report, node, &rules);
    let told = serde_json::to_value(of(Node::Client)).unwrap();
    assert_eq!(told["profile"], "aes-256-gcm", "stronger than the session's");
    assert_eq!(told["device"], "laptop");
    assert_eq!(
        told["rules"],
        json!([
            { "property": "strength", "value": "256", "rule": "rule 1" },
            { "property": "goal", "value": "latency", "rule": "device laptop" },
        ])
    );
    assert_eq!(of(Node::Gateway).device, None, "there the other end is the device");
    let [status] = &rules.devices().iter().map(device).collect::<Vec<_>>()[..] else { panic!() };
    let expected = json!({ "name": "laptop", "address": "10.77.0.2", "goal": "latency" });
    assert_eq!(serde_json::to_value(status).unwrap(), expected);
}
