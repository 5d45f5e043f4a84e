//! Valid files of clients are read; errors name line and key.

use std::path::Path;

use proptest::prelude::*;
use rove_api::RecoveryFor;
use rove_host::config::{ConfigError, Source};
use rove_proto::flow::Hold;
use rove_proto::flow::classify::Class;
use rove_proto::flow::rules::{Assist, Matches, Rule, Rules};
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::multipath::{Manager, Spread};
use rove_proto::wire::control::Prefix;

use super::*;

/// A file with this text.
fn source(text: &str) -> Source {
    Source::new(Path::new("test.toml"), text)
}

fn client(text: &str) -> Result<Config, ConfigError> {
    Config::parse(&source(text))
}

#[test]
fn a_kill_switch_with_everything_excluded_is_refused() {
    let halves = ["0.0.0.0/1", "128.0.0.0/1"].map(String::from).to_vec();
    let without_private = (1..=223).filter(|first| ![10, 127, 172, 192].contains(first));
    let without_private: Vec<String> = without_private.map(|n| format!("{n}.0.0.0/8")).collect();
    for (exclude, family) in [
        (vec!["0.0.0.0/0".to_owned()], "IPv4"),
        (halves.clone(), "IPv4"),
        (vec!["0.0.0.0/0".to_owned(), "10.0.0.0/8".to_owned()], "IPv4"),
        (without_private, "IPv4"),
        (vec!["::/0".to_owned()], "IPv6"),
        (vec!["2000::/4".to_owned(), "3000::/4".to_owned()], "IPv6"),
    ] {
        let text = |on| format!("[client]\nkill-switch = {on}\nexclude = {exclude:?}\n");
        let error = client(&text(true)).unwrap_err().to_string();
        assert!(error.contains(&format!("exclude covers all {family} addresses")), "{error}");
        assert!(!error.contains('\n'), "{error}");
        assert!(client(&text(false)).is_ok());
    }
    for exclude in [vec![halves[0].as_str()], vec!["10.0.0.0/8", "2001:db8::/32", "fc00::/7"]] {
        let text = format!("[client]\nkill-switch = true\nexclude = {exclude:?}\n");
        assert!(client(&text).is_ok(), "{exclude:?}");
    }
}

#[test]
fn a_client_may_name_domains_and_they_are_checked() {
    let config = client("[client]\ndomains = [\"Corp.Example.org.\", \"_tcp.lan\"]\n").unwrap();
    let shown: Vec<String> = config.domains.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["corp.example.org", "_tcp.lan"]);
    for wrong in ["", ".", "a..b", "a b", "x\\nnameserver 192.0.2.1", "\u{fc}.example"] {
        let text =
            format!("[client]\nroute = []\ndomains = [\n  \"ok.example\",\n  \"{wrong}\",\n]\n");
        let error = client(&text).unwrap_err().to_string();
        assert!(error.starts_with("test.toml:5: client.domains: "), "{error}");
        assert!(error.contains("is no domain: write letters"), "{error}");
    }
    let many = format!("[client]\ndomains = [{}]\n", "\"a\",".repeat(65));
    assert!(client(&many).unwrap_err().to_string().contains("has more than 64 entries"));
}

#[test]
fn a_proxy_is_read_as_it_is_written_everywhere() {
    let choice = |text: &str| client(&format!("[client]\nproxy = \"{text}\"\n"));
    let at = |text: &str| match choice(text).unwrap().proxy {
        ProxyChoice::At(url) => (url.at.to_string(), url.credentials),
        other @ (ProxyChoice::Environment | ProxyChoice::Direct) => panic!("{text}: {other:?}"),
    };
    let ann = |password: &str| Some(("ann".to_owned(), password.to_owned()));
    assert_eq!(at("http://proxy.example:3128"), ("proxy.example:3128".to_owned(), None));
    assert_eq!(at("HTTP://[2001:db8::1]:8080/"), ("[2001:db8::1]:8080".to_owned(), None));
    assert_eq!(at("192.0.2.1:80"), ("192.0.2.1:80".to_owned(), None));
    assert_eq!(at("http://ann:a%3Ab%40@p:80"), ("p:80".to_owned(), ann("a:b@")));
    assert_eq!(at("http://ann@p:80"), ("p:80".to_owned(), ann("")));
    assert_eq!(choice("none").unwrap().proxy, ProxyChoice::Direct);
    assert_eq!(choice("environment").unwrap().proxy, Config::default().proxy);
    for wrong in ["", "proxy", "http://proxy", "socks5://p:1", "https://p:1", "http://a:%zz@p:1"] {
        let error = choice(wrong).unwrap_err().to_string();
        assert!(error.starts_with("test.toml:2: client.proxy: the proxy's address "), "{error}");
    }
    let hidden = choice("http://ann:secret@p:80").unwrap();
    assert!(!format!("{hidden:?}").contains("secret"), "{hidden:?}");
    let error = choice("http://ann:secret@nowhere").unwrap_err().to_string();
    assert!(!error.contains("secret"), "{error}");
}

#[test]
fn a_client_needs_no_file_and_its_keys_are_checked() {
    assert_eq!(client("").unwrap(), Config::default());
    let config = client(
        "[client]\nroute = [\"10.0.0.0/8\", \"fd00::/8\"]\nexclude = [\"10.9.0.0/16\"]\n\
         allow-lan = true\nadvertise = [\"192.168.7.0/24\"]\ntimeout = \"5s\"\n",
    );
    let config = config.unwrap();
    assert_eq!(config.route.len(), 2);
    assert_eq!(config.timeout.seconds(), 5);
    for (text, expected) in [
        ("[client]\nroute = [\"10.0.0.1/8\"]\n", "test.toml:2: client.route: "),
        ("[client]\ntimeout = \"never\"\n", "test.toml:2: client.timeout: "),
        ("[client]\nkill_switch = true\n", "test.toml:2: client.kill_switch: unknown field"),
        (
            "[client]\nkill-switch = true\nroute = [\"10.0.0.0/8\"]\n",
            "test.toml:1: client: a kill switch lets nothing out",
        ),
    ] {
        let message = client(text).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{message}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,120}", noise in "[\\[\\]{}\"'=,.#a-z0-9\n ]{0,120}") {
        for text in [&text, &noise] {
            if let Err(error) = client(text) {
                prop_assert_eq!(error.to_string().lines().count(), 1);
            }
        }
    }
}

#[test]
fn sessions_are_kept_for_a_day_unless_told_otherwise() {
    let day = 86_400;
    assert_eq!(client("").unwrap().persistence.timeout.seconds(), day);
    let hour = "[persistence]\ntimeout = \"1h\"\n";
    assert_eq!(client(hour).unwrap().persistence.timeout.seconds(), 3_600);
    for wrong in ["59s", "31d", "x"] {
        let error = client(&hour.replace("1h", wrong)).unwrap_err().to_string();
        assert!(error.starts_with("test.toml:2: persistence.timeout: "), "{error}");
    }
}

#[test]
fn what_is_made_of_the_links() {
    assert_eq!(client("").unwrap().paths.mode, LinkMode::Full);
    let paths = |mode: &str| client(&format!("[paths]\nmode = \"{mode}\"\n"));
    for mode in [LinkMode::Full, LinkMode::Backup, LinkMode::Single] {
        assert_eq!(paths(&mode.to_string()).unwrap().paths.mode, mode);
    }
    let error = paths("both").unwrap_err().to_string();
    let says = "test.toml:2: paths.mode: \"both\" is no mode: write full, backup or single";
    assert_eq!(error, says);
    assert_eq!(client("").unwrap().paths.scheduler.to_string(), "earliest");
    let paths = |name: &str| client(&format!("[paths]\nscheduler = \"{name}\"\n"));
    for scheduler in Scheduler::ALL {
        assert_eq!(paths(scheduler.name()).unwrap().paths.scheduler, LinkScheduler(scheduler));
    }
    let error = paths("fastest").unwrap_err().to_string();
    let says = "test.toml:2: paths.scheduler: \"fastest\" is no scheduler: write earliest, rtt, \
                round-robin, redundant, loss, rate or latency";
    assert_eq!(error, says);
    let paths = |name: &str| client(&format!("[paths]\nrecovery = \"{name}\"\n"));
    for recovery in [RecoveryFor::Throughput, RecoveryFor::Latency] {
        assert_eq!(paths(&recovery.to_string()).unwrap().paths.recovery, recovery);
    }
    let both = client("[paths]\nmanager = \"full-mesh\"\nsubflows = 4\n").unwrap().paths.spread();
    assert_eq!(both, Spread { manager: Manager::FullMesh, subflows: 4 });
    assert_eq!(client("").unwrap().paths.spread(), Spread::default());
    for (wrong, says) in [
        ("manager = \"mesh\"", "paths.manager: \"mesh\" is no path manager"),
        ("transport = \"quic\"", "paths.transport: \"quic\" is no transport: write auto, udp, tcp"),
        (
            "recovery = \"both\"",
            "paths.recovery: \"both\" is no recovery: write throughput or latency",
        ),
        ("subflows = 0", "paths.subflows: write a number from 1 to 4"),
        ("subflows = 5", "paths.subflows: write a number from 1 to 4"),
    ] {
        let error = client(&format!("[paths]\n{wrong}\n")).unwrap_err().to_string();
        assert!(error.starts_with(&format!("test.toml:2: {says}")), "{error}");
    }
}

#[test]
fn what_carries_datagrams() {
    let transport = |name: &str| client(&format!("[paths]\ntransport = \"{name}\"\n"));
    assert_eq!(client("").unwrap().paths.transport, TransportChoice::Auto);
    let has = |name| {
        let transport = transport(name).unwrap().paths.transport;
        (transport.has_udp(), transport.has_streams())
    };
    assert_eq!([has("auto"), has("udp")], [(true, true), (true, false)]);
    assert_eq!([has("tcp"), has("mptcp")], [(false, true); 2]);
    let neither = "[client]\nstreams = false\n[paths]\ntransport = \"tcp\"\n";
    let error = client(neither).unwrap_err().to_string();
    assert!(error.contains("a transport of tcp or mptcp needs streams"), "{error}");
}

#[test]
fn what_is_wanted_early_in_vain_is_told_of() {
    let idle = |mode: &str, list: &str| {
        let text = format!("[paths]\nmode = \"{mode}\"\n[qos]\nlow_latency = {list}\n");
        client(&text).unwrap().idle().pop()
    };
    for mode in ["backup", "single"] {
        let says = idle(mode, "[\"192.0.2.7:27015\"]").unwrap();
        let expected = format!(
            "[qos] low_latency does nothing with mode {mode}: `rove set mode full`, or leave it out"
        );
        assert_eq!(says, expected);
        assert_eq!(idle(mode, "[]"), None);
    }
    assert_eq!(idle("full", "[\"192.0.2.7:27015\"]"), None);
}

#[test]
fn a_network_that_is_advertised_needs_the_gateways_consent() {
    let idle =
        client("[client]\nadvertise = [\"192.168.7.0/24\", \"fd05::/64\"]\n").unwrap().idle();
    let [line] = &*idle else { panic!("{idle:?}") };
    let begin = "other peers reach 192.168.7.0/24, fd05::/64 only if the gateway allows it: ";
    assert!(line.starts_with(begin) && line.contains("`rove gateway peers`"), "{line}");
    assert_eq!(client("").unwrap().idle(), [""; 0]);
}

#[test]
fn how_links_carry_together_is_told_of_where_they_do_not() {
    let written =
        "scheduler = \"rtt\"\nrecovery = \"latency\"\nmanager = \"full-mesh\"\nsubflows = 2\n";
    let idle = |rest: &str| client(&format!("[paths]\n{written}{rest}\n")).unwrap().idle();
    assert_eq!(idle(""), Vec::<String>::new());
    let names = |idle: &[String]| -> Vec<String> {
        idle.iter().map(|said| said.split(' ').next().unwrap().to_owned()).collect()
    };
    let backup = idle("mode = \"backup\"");
    assert_eq!(names(&backup), ["scheduler", "recovery", "manager", "subflows"]);
    assert_eq!(backup[0], "scheduler does nothing with mode backup: `rove set mode full`");
    assert_eq!(names(&idle("transport = \"mptcp\"")), ["scheduler", "recovery", "subflows"]);
    assert_eq!(client("[paths]\nmode = \"backup\"\n").unwrap().idle(), Vec::<String>::new());
    // The usual one, too, if somebody chose it.
    let chosen = client("[paths]\nmode = \"backup\"\nscheduler = \"earliest\"\n").unwrap().idle();
    assert_eq!(names(&chosen), ["scheduler"]);
}

#[test]
fn what_is_wanted_early() {
    assert!(client("").unwrap().qos.early().is_empty());
    let qos = |list: &str| client(&format!("[qos]\nlow_latency = {list}\n"));
    let two = qos("[\"192.0.2.7/24:27015\", \"2001:db8::/32\"]").unwrap().qos.early();
    let end = |network: &str, bits, port| {
        let network = Prefix { address: network.parse().unwrap(), bits };
        rove_proto::wire::control::End { network, port }
    };
    assert_eq!(two.ends(), [end("192.0.2.0", 24, Some(27_015)), end("2001:db8::", 32, None)]);
    let says = |list: &str| qos(list).unwrap_err().to_string();
    assert!(says("[\"10.0.0.0/99\"]").contains("2: qos.low_latency: \"10.0.0.0/99\" is no"));
    let many = format!("[{}]", "\"192.0.2.7\",".repeat(33));
    assert!(says(&many).contains("qos.low_latency: has more than 32 entries: leave some out"));
    assert!(says("\"192.0.2.7\"").contains("qos.low_latency: invalid type"));
}

#[test]
fn what_is_preferred() {
    use rove_proto::flow::priority::Level;

    assert!(client("").unwrap().qos.priorities().is_empty());
    let qos = |table: &str| client(&format!("[qos]\npriority = {table}\n"));
    let table = "{ \"192.0.2.0/24\" = 3, \"192.0.2.7:443\" = 1, \"[2001:db8::]/32:22\" = 2 }";
    let priorities = qos(table).unwrap().qos.priorities();
    let level = |address: &str, port| priorities.level_of((address.parse().unwrap(), port));
    assert_eq!(level("192.0.2.7", 443), Level::First);
    assert_eq!(level("192.0.2.7", 80), Level::Third);
    assert_eq!(level("2001:db8::1", 22), Level::Second);
    let apart = client("[qos]\nlow_latency = []\n[qos.priority]\n\"10.0.0.0/8\" = 1\n").unwrap();
    assert_eq!(apart.qos.priority.len(), 1);
    let says = |table: &str| qos(table).unwrap_err().to_string();
    let level = "test.toml:2: qos.priority: 4 is no level: write 1, 2 or 3";
    assert_eq!(says("{ \"192.0.2.7\" = 4 }"), level);
    assert!(says("{ \"192.0.2.7\" = 0 }").contains("0 is no level"));
    assert!(says("{ \"192.0.2.7\" = \"high\" }").contains("qos.priority: invalid type"));
    assert!(says("{ \"x\" = 1 }").contains("2: qos.priority: \"x\" is no destination"));
    let twice = says("{ \"192.0.2.7\" = 1, \"192.0.2.7/32\" = 2 }");
    assert!(twice.contains("192.0.2.7/32 stands there twice: leave one out"), "{twice}");
    let many: String = (0..65).map(|last| format!("\"192.0.2.{last}\" = 1, ")).collect();
    assert!(says(&format!("{{ {many} }}")).contains("has more than 64 entries"));
}

#[test]
fn what_is_done_for_open_connections_and_how_much_of_them_is_kept() {
    assert_eq!(client("").unwrap().persistence.hold, Hold::Full);
    let lines = "[persistence]\nhold = \"full\"\nmemory_mb = 8\n";
    let persistence = client(lines).unwrap().persistence;
    assert_eq!((persistence.hold, persistence.memory), (Hold::Full, 8 << 20));
    let on = Rules::new(Hold::Full, &[]).assisting(Assist::On);
    assert_eq!(persistence.rules(), on);
    let unassisted = client(&lines.replacen("hold", "assist = \"off\"\nhold", 1)).unwrap();
    let off = Rules::new(Hold::Full, &[]).assisting(Assist::Off);
    assert_eq!(unassisted.persistence.rules(), off);
    for (from, to, says) in [
        ("hold = \"full\"", "assist = 1", "test.toml:2:"),
        (
            "hold = \"full\"",
            "assist = \"auto\"",
            "test.toml:2: persistence.assist: \"auto\" is not",
        ),
        ("\"full\"", "\"some\"", "test.toml:2: persistence.hold: \"some\" is not one of"),
        ("8", "0", "test.toml:3: persistence.memory_mb: 0 is not between 1 and 16384"),
    ] {
        let error = client(&lines.replacen(from, to, 1)).unwrap_err().to_string();
        assert!(error.starts_with(says), "{error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn rules_say_otherwise_for_some_connections_in_their_order() {
    let rules = "\
        [persistence]\nhold = \"full\"\n\
        [[persistence.rules]]\nto = \"192.0.2.7/32:443\"\nhold = \"off\"\n\
        [[persistence.rules]]\nto = \"[fd00::]/8\"\nhold = \"reinject\"\n\
        [[persistence.rules]]\nclass = \"interactive\"\nhold = \"full\"\n";
    let end = |address: &str, bits, port| {
        let network = Prefix { address: address.parse().unwrap(), bits };
        Matches::End { network, port }
    };
    let expected = [
        Rule { of: end("192.0.2.7", 32, Some(443)), hold: Hold::Off },
        Rule { of: end("fd00::", 8, None), hold: Hold::Reinject },
        Rule { of: Matches::Class(Class::Interactive), hold: Hold::Full },
    ];
    let persistence = client(rules).unwrap().persistence;
    assert_eq!(persistence.rules, expected);
    assert_eq!(persistence.rules(), Rules::new(Hold::Full, &expected));
}

#[test]
fn rules_that_mean_nothing_are_told_apart() {
    let rule = |lines: &str| {
        let text = format!("[client]\n\n[[persistence.rules]]\n{lines}\n");
        client(&text).unwrap_err().to_string()
    };
    for (lines, says) in [
        ("to = \"10.0.0.0/99\"\nhold = \"off\"", "4: persistence.rules.to: \"10.0.0.0/99\" is no"),
        (
            "to = \"10.0.0.0/8:0\"\nhold = \"off\"",
            "4: persistence.rules.to: \"10.0.0.0/8:0\" is no",
        ),
        (
            "to = \"\"\nhold = \"off\"",
            "4: persistence.rules.to: \"\" is no destination: write CIDR",
        ),
        (
            "class = \"video\"\nhold = \"off\"",
            "4: persistence.rules.class: \"video\" is not one of \"interactive\", \"names\",",
        ),
        ("class = \"bulk\"\nhold = \"on\"", "5: persistence.rules.hold: \"on\" is not one of"),
        ("hold = \"off\"", "3: persistence.rules: needs either to, for example"),
        ("to = \"::/0\"\nclass = \"bulk\"\nhold = \"off\"", "3: persistence.rules: needs either"),
        ("class = \"bulk\"", "3: persistence.rules: missing field `hold`"),
        ("class = \"bulk\"\nholds = \"off\"", "5: persistence.rules.holds: unknown field `holds`"),
        ("class = 5\nhold = \"off\"", "4: persistence.rules.class: invalid type"),
        ("class = \"b\\nx\\u0007\"\nhold = \"off\"", "4: persistence.rules.class: \"b\\nx\\u{7}\""),
    ] {
        let error = rule(lines);
        assert!(error.starts_with(&format!("test.toml:{says}")), "{lines}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
    let many = "[[persistence.rules]]\nclass = \"bulk\"\nhold = \"off\"\n".repeat(65);
    let error = client(&many).unwrap_err().to_string();
    assert!(
        error.contains("persistence.rules: has more than 64 entries: leave some out"),
        "{error}"
    );
    assert!(client("[persistence]\nrules = 5\n").is_err());
}
