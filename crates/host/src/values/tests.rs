//! Spellings in both directions, and that no text panics.

use proptest::prelude::*;

use super::name::NAME_BYTES_MAX;
use super::*;

fn endpoint(text: &str) -> Result<Endpoint, Misspelt> {
    text.parse()
}

#[test]
fn endpoints_are_read_as_written() {
    for text in ["vpn.example.org:4500", "192.0.2.1:1", "[2001:db8::1]:65535", "localhost:80"] {
        assert_eq!(endpoint(text).unwrap().to_string(), text);
    }
    assert_eq!(endpoint("VPN.Example.ORG.:9").unwrap().to_string(), "vpn.example.org:9");
}

#[test]
fn broken_endpoints_name_what_to_write() {
    let broken = [
        "",
        ":",
        "host",
        "host:",
        "host:0",
        "host:65536",
        "host:+5",
        "-a:1",
        "a..b:1",
        "1.2.3:4",
        "2001:db8::1:80",
        "[::1:80",
        "[1.2.3.4]:5",
        "a b:1",
        "host:5 ",
    ];
    for text in broken {
        let message = endpoint(text).unwrap_err().to_string();
        assert!(message.contains("write HOST:PORT"), "{text:?}: {message}");
    }
}

#[test]
fn a_url_is_named_as_one_with_the_endpoint_in_it() {
    for (text, meant) in [
        ("https://vpn.example.org:4500", "write vpn.example.org:4500"),
        ("https://vpn.example.org:443/rove?x#y", "write vpn.example.org:443"),
        ("HTTP://[2001:db8::1]:80/", "write [2001:db8::1]:80"),
        ("https://vpn.example.org", "is a URL: write HOST:PORT"),
        ("udp://", "is a URL: write HOST:PORT"),
        ("[fe80::1%eth0]:4433", "has a zone"),
    ] {
        let message = endpoint(text).unwrap_err().to_string();
        assert!(message.contains(meant), "{text:?}: {message}");
    }
}

#[test]
fn an_address_that_no_client_reaches_is_told_from_one_that_it_may() {
    for text in
        ["[fe80::1]:4433", "169.254.1.1:1", "0.0.0.0:1", "[::]:1", "224.0.0.1:1", "[ff02::1]:1"]
    {
        let message = endpoint(text).unwrap().check_reachable().unwrap_err().to_string();
        assert!(message.contains("no client can reach"), "{text:?}: {message}");
    }
    for text in ["192.168.1.1:1", "127.0.0.1:1", "[fd00::1]:1", "vpn.example.org:1"] {
        assert_eq!(endpoint(text).unwrap().check_reachable(), Ok(()), "{text:?}");
    }
}

#[test]
fn a_public_network_is_told_from_a_private_one_and_a_reserved_one_is_refused() {
    let networks = |text: &str| text.parse::<Networks>().unwrap();
    for (text, public) in [
        ("10.77.0.0/24,fd77::/64", 0),
        ("100.64.0.0/10", 0),
        ("8.8.8.0/24", 1),
        ("10.0.0.0/7", 1),
        ("8.8.8.0/24,2a00:1450::/64", 2),
    ] {
        assert_eq!(networks(text).public().count(), public, "{text}");
        assert!(networks(text).check_usable().is_ok(), "{text}");
    }
    for text in ["127.0.0.0/8", "224.0.0.0/24", "169.254.0.0/16", "fe80::/64", "0.0.0.0/0", "::/0"]
    {
        let message = networks(text).check_usable().unwrap_err().to_string();
        assert!(message.contains("reserved"), "{text}: {message}");
    }
}

#[test]
fn destinations_are_read_in_every_spelling() {
    let cases = [
        ("10.1.2.3/16", "10.1.0.0/16"),
        ("10.0.0.5", "10.0.0.5/32"),
        ("10.0.0.5:22", "10.0.0.5/32:22"),
        ("10.0.0.0/8:443", "10.0.0.0/8:443"),
        ("fd00::/8", "fd00::/8"),
        ("fd00::/8:443", "fd00::/8:443"),
        ("[fd00::]/8:443", "fd00::/8:443"),
        ("[fd00::1]:22", "fd00::1/128:22"),
        ("fd00::1", "fd00::1/128"),
    ];
    for (text, shown) in cases {
        let parsed: Destination = text.parse().unwrap();
        assert_eq!(parsed.to_string(), shown);
        assert_eq!(shown.parse::<Destination>().unwrap(), parsed);
    }
    for text in
        ["", "10.0.0.0/33", "10.0.0.1:0", "10.0.0.1:x", "name", "10.0.0.0/8:", "[fd00::1]22"]
    {
        assert!(text.parse::<Destination>().is_err(), "{text:?}");
    }
}

#[test]
fn lifetimes_are_whole_seconds() {
    for (text, seconds) in [("30s", 30), ("90m", 5_400), ("24h", 86_400), ("7d", 604_800)] {
        assert_eq!(text.parse::<Lifetime>().unwrap().seconds(), seconds);
    }
    assert_eq!("24h".parse::<Lifetime>().unwrap().to_string(), "1d");
    for text in ["", "s", "0s", "5", "-1s", "1.5h", "99999999999999999999s", "9999d", "1é"] {
        assert!(text.parse::<Lifetime>().is_err(), "{text:?}");
    }
}

#[test]
fn numbered_names_stay_names() {
    let name: PeerName = "phone".parse().unwrap();
    assert_eq!(name.numbered(1).to_string(), "phone");
    assert_eq!(name.numbered(2).to_string(), "phone-2");
    let long: PeerName = "x".repeat(NAME_BYTES_MAX).parse().unwrap();
    assert!(long.numbered(u32::MAX).to_string().parse::<PeerName>().is_ok());
    for text in ["", "-x", ".x", "A", "a b", "ä", "a/b", "a\n"] {
        assert!(text.parse::<PeerName>().is_err(), "{text:?}");
    }
}

#[test]
fn the_gateway_has_the_first_address_and_clients_the_next() {
    let networks: Networks = "10.77.0.0/24,fd77::/64".parse().unwrap();
    let gateway = networks.lease(HostIndex::GATEWAY).unwrap();
    assert_eq!(gateway.v4.unwrap().to_string(), "10.77.0.1/24");
    assert_eq!(gateway.v6.unwrap().to_string(), "fd77::1/64");
    let client = networks.lease(HostIndex::FIRST_CLIENT).unwrap();
    assert_eq!(client.v4.unwrap().to_string(), "10.77.0.2/24");
    assert_eq!(networks.last_host(), HostIndex(254));
    assert_eq!(networks.lease(HostIndex(255)), None);
}

#[test]
fn the_larger_network_does_not_outrun_the_smaller() {
    let small: Networks = "10.0.0.0/30".parse().unwrap();
    assert_eq!(small.last_host(), HostIndex(2));
    let huge: Networks = "fd00::/8".parse().unwrap();
    assert_eq!(huge.last_host(), HostIndex(u32::MAX));
    assert!(huge.lease(HostIndex(u32::MAX)).is_some());
    let whole: Networks = "0.0.0.0/0".parse().unwrap();
    assert!(whole.lease(whole.last_host()).is_some());
    for text in ["", "10.0.0.0/31", "10.0.0.1/24", "10.0.0.0/24,10.1.0.0/24", "fd00::/127", "x"] {
        assert!(text.parse::<Networks>().is_err(), "{text:?}");
    }
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,40}") {
        let _ = text.parse::<Endpoint>();
        let _ = text.parse::<Destination>();
        let _ = text.parse::<Lifetime>();
        let _ = text.parse::<PeerName>();
        let _ = text.parse::<Networks>();
    }

    #[test]
    fn what_is_shown_reads_back(host in "[a-z]{1,9}(\\.[a-z]{2,5}){0,2}", port in 1u16..) {
        let parsed = endpoint(&format!("{host}:{port}")).unwrap();
        prop_assert_eq!(endpoint(&parsed.to_string()).unwrap(), parsed);
    }

    #[test]
    fn lifetimes_read_back(seconds in 1u64..SECONDS) {
        let lifetime = Lifetime::from_seconds(seconds);
        prop_assert_eq!(lifetime.to_string().parse::<Lifetime>().unwrap(), lifetime);
    }
}

const SECONDS: u64 = 10 * 366 * 86_400;
