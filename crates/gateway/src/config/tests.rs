//! Valid files of gateways are read; errors name line and key.

use std::path::Path;

use proptest::prelude::*;
use rove_host::config::{ConfigError, Persistence, Source};
use rove_host::values::Lifetime;
use rove_proto::flow::Hold;
use rove_proto::flow::classify::Class;
use rove_proto::flow::rules::{Matches, Rule};
use rove_proto::wire::control::Prefix;

use super::*;

fn gateway(text: &str) -> Result<Config, ConfigError> {
    Config::parse(&Source::new(Path::new("test.toml"), text))
}

const SMALLEST: &str =
    "[gateway]\nendpoints = [\"a.example:4500\"]\nnetworks = [\"10.0.0.0/24\"]\n";

#[test]
fn the_smallest_gateway_has_sound_defaults() {
    let config = gateway(SMALLEST).unwrap();
    assert_eq!(config.listen, ["[::]:4500".parse().unwrap()]);
    assert!(config.nat);
    assert_eq!(config.store, StoreUrl::default());
    assert_eq!(config.interface.as_str(), "rove-gw");
}

#[test]
fn a_gateway_takes_streams_where_it_listens_unless_told_otherwise() {
    let config = gateway(SMALLEST).unwrap();
    assert_eq!((config.streams, config.web_server), (config.listen, None));
    let with = |lines: &str| gateway(&format!("{SMALLEST}{lines}\n"));
    let shared = with("streams = [\"0.0.0.0:443\"]\nweb-server = \"127.0.0.1:8443\"").unwrap();
    assert_eq!(shared.streams, ["0.0.0.0:443".parse().unwrap()]);
    assert_eq!(shared.web_server, Some("127.0.0.1:8443".parse().unwrap()));
    assert_eq!(with("streams = []").unwrap().streams, []);
    let error = with("streams = [\"443\"]").unwrap_err().to_string();
    assert!(error.starts_with("test.toml:4: gateway.streams: \"443\" is no ADDRESS"), "{error}");
    let error = with("web-server = \"www.example\"").unwrap_err().to_string();
    assert!(error.starts_with("test.toml:4: gateway.web-server: "), "{error}");
}

#[test]
fn a_new_file_reads_back_as_what_it_was_made_from() {
    let mut config = gateway(SMALLEST).unwrap();
    config.dns = vec!["9.9.9.9".parse().unwrap()];
    config.networks = "10.9.0.0/16,fd09::/64".parse().unwrap();
    config.endpoints.push("[2001:db8::1]:4500".parse().unwrap());
    assert_eq!(gateway(&config.to_text()).unwrap(), config);
}

#[test]
fn every_key_in_a_new_file_is_a_key() {
    let text = gateway(SMALLEST).unwrap().to_text();
    let uncommented = text.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if rest.contains(" = ") => rest,
        Some(_) | None => line,
    });
    let uncommented = uncommented.collect::<Vec<_>>().join("\n");
    assert_eq!(gateway(&uncommented).unwrap(), gateway(&text).unwrap());
}

#[test]
fn errors_name_line_key_and_cure() {
    let cases = [
        ("", "test.toml:1: file: missing field `gateway`"),
        ("[gateway]\nendpoints = 5\n", "test.toml:2: gateway.endpoints: invalid type: integer `5`"),
        ("[gateway]\nendpoint = []\n", "test.toml:2: gateway.endpoint: unknown field `endpoint`"),
        (
            "[gateway]\nnetworks = [\"10.0.0.0/24\"]\nendpoints = [\n  \"a:1\",\n  \"b\",\n]\n",
            "test.toml:5: gateway.endpoints: \"b\" has no port: write HOST:PORT",
        ),
        (
            "[gateway]\nendpoints = [\"a:1\"]\nnetworks = [\"10.0.0.7/24\"]\n",
            "test.toml:3: gateway.networks: \"10.0.0.7/24\" has bits beyond its prefix: write \
             10.0.0.0/24",
        ),
        (
            "[gateway]\nendpoints = []\nnetworks = [\"10.0.0.0/24\"]\n",
            "test.toml:2: gateway.endpoints: is empty: name at least one",
        ),
        ("[gateway\n", "test.toml:1: "),
        ("a = 1\na = 2\n", "test.toml:2: a: duplicate key"),
    ];
    for (text, expected) in cases {
        let message = gateway(text).unwrap_err().to_string();
        assert!(message.starts_with(expected), "{text:?}\n got {message}\nwant {expected}");
        assert_eq!(message.lines().count(), 1);
    }
    for (line, key) in [
        ("listen = [\"4500\"]", "gateway.listen"),
        ("listen = []", "gateway.listen"),
        ("dns = [\"localhost\"]", "gateway.dns"),
        ("interface = \"a/b\"", "gateway.interface"),
        ("store = \"etcd://x\"", "gateway.store"),
        ("nat = \"yes\"", "gateway.nat"),
        ("neighbours = \"some\"", "gateway.neighbours"),
        ("firewall = false", "gateway.firewall"),
        ("[log]\nlevel = \"loud\"", "log.level"),
        ("[log]\nformat = \"xml\"", "log.format"),
    ] {
        let message = gateway(&format!("{SMALLEST}{line}\n")).unwrap_err().to_string();
        assert!(message.contains(&format!(": {key}: ")), "{message}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,120}", noise in "[\\[\\]{}\"'=,.#a-z0-9\n ]{0,120}") {
        for text in [&text, &noise] {
            let _ = gateway(text);
            let _ = gateway(&format!("{SMALLEST}{text}"));
        }
    }
}

#[test]
fn a_gateway_hops_between_addresses_that_it_listens_at() {
    let with = |lines: &str| gateway(&format!("{SMALLEST}[gateway.hop]\n{lines}\n"));
    let list = with("addresses = [\"192.0.2.1\", \"2001:db8::1\"]").unwrap().hop.unwrap();
    assert_eq!((list.interval.seconds(), list.networks().len()), (5, 2));
    let prefix = with("prefix = \"2001:db8::/64\"\ninterval = \"1s\"\nlink = \"eth0.7\"");
    let prefix = prefix.unwrap().hop.unwrap();
    assert!(prefix.covers("2001:db8::7".parse().unwrap()), "{prefix:?}");
    assert_eq!((prefix.interval.seconds(), prefix.link.as_deref()), (1, Some("eth0.7")));
    for (wrong, says) in [
        ("", "gateway.hop: needs either addresses"),
        ("addresses = [\"192.0.2.1\"]", "5: gateway.hop.addresses: needs at least two"),
        ("addresses = [\"192.0.2.1\", \"x\"]", "gateway.hop.addresses: "),
        ("addresses = [\"192.0.2.1\", \"127.0.0.1\"]", "is nothing that clients could reach"),
        ("addresses = [\"192.0.2.1\", \"10.0.0.7\"]", "part of the tunnel's own networks"),
        ("prefix = \"192.0.2.0/30\"", "no network with at least eight addresses"),
        ("prefix = \"0.0.0.0/0\"", "no network with at least eight addresses"),
        ("prefix = \"192.0.2.0/24\"\naddresses = []", "needs either addresses"),
        ("prefix = \"192.0.2.0/24\"\ninterval = \"0s\"", "gateway.hop.interval: "),
        ("prefix = \"192.0.2.0/24\"\nlink = \"../x\"", "gateway.hop.link: "),
    ] {
        let error = with(wrong).unwrap_err().to_string();
        assert!(error.contains(says), "{wrong}: {error}");
    }
    let bound = SMALLEST.replace("networks", "listen = [\"192.0.2.1:4500\"]\nnetworks");
    let text = format!("{bound}[gateway.hop]\nprefix = \"192.0.2.0/24\"\n");
    let error = gateway(&text).unwrap_err().to_string();
    assert!(error.contains("192.0.2.0/24 would not be listened at"), "{error}");
}

#[test]
fn a_gateway_that_hops_takes_datagrams_and_streams_wherever_it_is() {
    let with = |lines: &str, hop: &str| {
        let text = SMALLEST.replace("networks", &format!("{lines}\nnetworks"));
        gateway(&format!("{text}[gateway.hop]\n{hop}\n"))
    };
    let (v4, both) = ("prefix = \"192.0.2.0/24\"", "addresses = [\"192.0.2.1\", \"2001:db8::1\"]");
    for fine in [
        "streams = []",
        "streams = [\"0.0.0.0:443\"]",
        "streams = [\"192.0.2.1:8443\", \"[::]:4500\"]",
        "listen = [\"192.0.2.1:4600\", \"0.0.0.0:4500\"]",
        "listen = [\"[::]:4600\"]",
    ] {
        with(fine, v4).unwrap_or_else(|error| panic!("{fine}: {error}"));
    }
    for (lines, hop, says) in [
        // Told with the first endpoint's port, at which only one address is listened at.
        ("listen = [\"192.0.2.1:4500\", \"[::]:4600\"]", v4, "name [::]:4500 there"),
        ("streams = [\"192.0.2.1:4500\"]", v4, "192.0.2.0/24 would take no streams"),
        ("streams = [\"[::]:8443\"]", v4, "name [::]:4500 or [::]:443 there, or set it to []"),
        ("streams = [\"0.0.0.0:4500\"]", both, "2001:db8::1/128 would take no streams"),
    ] {
        let error = with(lines, hop).unwrap_err().to_string();
        assert!(error.contains("gateway.hop: ") && error.contains(says), "{lines}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn a_gateway_has_no_table_for_what_clients_decide() {
    for (table, named) in [
        ("[paths]\nmode = \"full\"\n", "unknown field `paths`"),
        ("[qos]\nlow_latency = []\n", "unknown field `qos`"),
        ("[qos]\npriority = {}\n", "unknown field `qos`"),
    ] {
        let error = gateway(&format!("{SMALLEST}{table}")).unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn rules_for_single_connections_are_those_of_a_client() {
    let rules = "\
        [persistence]\nhold = \"full\"\n\
        [[persistence.rules]]\nto = \"192.0.2.7/32:443\"\nhold = \"off\"\n\
        [[persistence.rules]]\nclass = \"interactive\"\nhold = \"full\"\n";
    let end = Matches::End {
        network: Prefix { address: "192.0.2.7".parse().unwrap(), bits: 32 },
        port: Some(443),
    };
    let expected = [
        Rule { of: end, hold: Hold::Off },
        Rule { of: Matches::Class(Class::Interactive), hold: Hold::Full },
    ];
    assert_eq!(gateway(&format!("{SMALLEST}{rules}")).unwrap().persistence.rules, expected);
}

#[test]
fn sessions_are_kept_as_long_as_those_of_a_client() {
    assert_eq!(gateway(SMALLEST).unwrap().persistence, Persistence::default());
    let hour = gateway(&format!("{SMALLEST}[persistence]\ntimeout = \"1h\"\n")).unwrap();
    let timeout = Lifetime::from_seconds(3_600);
    assert_eq!(hour.persistence, Persistence { timeout, ..Persistence::default() });
}
