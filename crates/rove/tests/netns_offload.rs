//! Hosts that lose segmented UDP sends, by the real program and a real kernel.
//!
//! The packet filter of the sending host sees a segmented send as one packet, which is longer than
//! the link allows. Rules turn such packets away, to a port where nobody listens.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use serde_json::Value;
use support::netns::{
    Lab, download, in_namespace, need_program, pattern, serve_pattern, sh, wait_until,
};

const FILE: &str = "198.51.100.80:80";
const BYTES: usize = 8_000_000;
/// Longer than the link allows.
const SEGMENTED: usize = 1_501;

/// A gateway whose kernel mangles each segmented send: the client's download comes whole, and the
/// gateway says what is wrong and sends nothing more that could be mangled.
#[test]
fn a_gateway_whose_kernel_loses_segmented_sends_finds_another_way() {
    in_namespace("a_gateway_whose_kernel_loses_segmented_sends_finds_another_way", || {
        need_program("a kernel that mangles", "nft");
        let lab = Lab::new("mangled sends");
        let gateway = lab.gateway();
        let invite = lab.invite("laptop");
        serve_pattern("server", FILE, BYTES);
        lab.rove("client", &format!("up {invite}")).ok();
        fetch();
        assert_eq!((fallback(&lab), offload(&lab)), (None, None));
        let checked = lab.rove("gateway", "gateway check");
        assert!(checked.out.contains("ok      offload"), "{}", checked.out);

        mangle();
        wait_until("it sends one by one", || {
            fetch();
            fallback(&lab).as_deref() == Some("single")
        });
        assert!(lost() > 0);
        let says = offload(&lab).unwrap();
        for words in [
            "segmented UDP sends (GSO)",
            "192.0.2.1",
            "on 1 of 1 paths",
            "or a full queue of this host",
            "sends each packet by itself",
        ] {
            assert!(says.contains(words), "{says}");
        }
        wait_until("nothing is mangled any more", || {
            let before = lost();
            fetch();
            lost() == before
        });
        let checked = lab.rove("gateway", "gateway check");
        assert!(checked.out.contains("failed  offload"), "{}", checked.out);
        lab.rove("client", "down").ok();
        drop(gateway);
    });
}

fn fetch() {
    let came = download("client", FILE).unwrap();
    assert!(came == pattern(BYTES), "{} bytes of {BYTES}, or not those", came.len());
}

/// The gateway's host turns away each packet of the tunnel that is longer than the link allows.
fn mangle() {
    sh(&format!(
        "nsenter --net=/run/netns/gateway nft -f - <<'RULES'
table inet mangled {{
    counter lost {{ }}
    chain out {{
        type filter hook output priority 0
        udp sport 4500 meta length >= {SEGMENTED} counter name lost udp dport set 9
    }}
}}
RULES"
    ));
}

fn lost() -> u64 {
    let counter = sh("nsenter --net=/run/netns/gateway nft list counter inet mangled lost");
    let after = counter.split("packets ").nth(1).unwrap();
    after.split_whitespace().next().unwrap().parse().unwrap()
}

/// How the gateway sends to the client, if not with plain segmentation.
fn fallback(lab: &Lab) -> Option<String> {
    let peers = lab.rove("gateway", "gateway peers --json").ok();
    let peers: Value = serde_json::from_str(&peers).unwrap();
    peers["peers"][0]["fallback"]["sends"].as_str().map(str::to_owned)
}

/// What the gateway's status says of it.
fn offload(lab: &Lab) -> Option<String> {
    let status = lab.rove("gateway", "gateway status --json").ok();
    let status: Value = serde_json::from_str(&status).unwrap();
    let problems = status["problems"].as_array().unwrap();
    let problem = problems.iter().find(|problem| problem["part"] == "offload")?;
    Some(format!("{}: {}", problem["what"].as_str().unwrap(), problem["cause"].as_str().unwrap()))
}
