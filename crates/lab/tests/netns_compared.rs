//! What is measured beside Rove: that it is there, or says why it is not.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and shows what it prints"
)]

mod support;

use support::{run_quick, turn};

/// Whatever the figures are on a busy machine: each way to carry has one, of which the ratio to
/// both links follows, or the row names the reason; and what another program was is said.
#[test]
fn each_way_to_carry_has_a_figure_or_a_reason() {
    let Some(_turn) = turn() else { return };
    let (object, _) = run_quick("symmetric", &["compare=openvpn"]);
    let row = &object["measured"]["table"][0];
    let reasons = row["not_compared"].as_str().unwrap_or_default();
    let openvpn = &object["baseline"]["openvpn"];
    assert!(openvpn["version"].is_string() != openvpn["absent"].is_string(), "{openvpn}");
    let transports = ["udp_one_link", "tcp_one_link", "mptcp"];
    let others = ["openvpn_udp_one_link", "openvpn_tcp_one_link", "openvpn_mptcp"];
    for way in transports.iter().chain(&others) {
        let [mbps, times] = [format!("{way}_mbps"), format!("times_{way}")].map(|key| &row[key]);
        let Some(mbps) = mbps.as_f64() else {
            assert!(times.is_null() && reasons.contains(way), "{way}: {object}");
            continue;
        };
        assert!((1.0..20.0).contains(&mbps), "{way}: no more than the links carry: {row}");
        let is = row["goodput_mbps"].as_f64().unwrap() / mbps;
        assert!((times.as_f64().unwrap() - is).abs() < 0.01, "{way}: {row}");
    }
    assert!(row["udp_one_link_mbps"].is_number() && row["tcp_one_link_mbps"].is_number(), "{row}");
    assert!(row["outside_cc"].is_string(), "TCP outside is controlled: {row}");
    let is_absent = openvpn["absent"].as_str().is_some_and(|why| reasons.contains(why));
    assert!(is_absent || row["openvpn_udp_one_link_mbps"].is_number(), "{object}");
}
