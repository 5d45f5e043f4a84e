//! Lines on the control socket: from any process that may connect to a node, and from a node to a
//! command.

use std::cell::Cell;
use std::str::FromStr;

use rove_api::{Done, Reply, Request};
use rove_client::{LinkScheduler, LinkSetting};
use rove_host::control::Asked;
use rove_host::testing::{control_answer, is_stable};
use rove_host::values::{Destination, Endpoint, Lifetime, PeerName};

use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "control_request", run, seeds, mutations: 50_000 };

fn run(data: &[u8]) {
    let (reply, taken) = control_request(data);
    assert!(!reply.contains('\n'), "one line is one reply: {reply:?}");
    assert!(control_reply(reply.as_bytes()), "a command cannot read {reply:?}");
    assert_eq!(taken, reply == r#"{"ok":{}}"#, "who is not understood is told so");
    let _ = control_reply(data);
}

fn seeds() -> Vec<Vec<u8>> {
    [
        r#"{"do":"status"}"#,
        r#"{"do":"flows","meant":["tcp","203.0.113.9:80"]}"#,
        r#"{"do":"set-mode","mode":"full"}"#,
        r#"{"do":"set-scheduler","scheduler":"earliest"}"#,
        r#"{"do":"set-link","name":"wlan0","setting":{"metered":true}}"#,
        r#"{"do":"rehearse","unplug":"eth0","lasts":"10s","force":true}"#,
        r#"{"do":"invite","name":"laptop","uses":1,"expires":"24h","subnets":["192.168.7.0/24"]}"#,
        r#"{"do":"allow","name":"laptop","destinations":["10.77.0.3:22"],"reset":false}"#,
        r#"{"do":"move","endpoint":"vpn.example.org:4433"}"#,
        r#"{"do":"peer-paths","name":null}"#,
        r#"{"do":"log","entries":50}"#,
        r#"{"do":"down"}"#,
        r#"{"ok":{"state":"up"}}"#,
        r#"{"error":"the node is ending: try again when it is back"}"#,
    ]
    .map(|line| line.as_bytes().to_vec())
    .to_vec()
}

/// A node's answer to one line of a control connection, and whether the line was a valid request.
fn control_request(line: &[u8]) -> (String, bool) {
    let taken = Cell::new(false);
    let reply = control_answer(line, &|asked: Asked| {
        taken.set(true);
        said_again(&asked.request);
        asked.reply.send(Reply::Ok(Done {}.into())).is_ok()
    });
    (serde_json::to_string(&reply).unwrap_or_default(), taken.get())
}

fn said_again(request: &Request) {
    let text = serde_json::to_string(request).expect("a request can be written");
    let again = serde_json::from_str::<Request>(&text).expect("and read again");
    assert_eq!(again, *request, "{text}");
    parse_values(again);
}

/// Parses the values in a request that have a spelling of their own, as a node does.
#[expect(clippy::wildcard_enum_match_arm, reason = "the other requests have no such value")]
fn parse_values(request: Request) {
    match request {
        Request::Rehearse { lasts, .. } => keeps_meaning::<Lifetime>(&lasts),
        Request::SetScheduler { scheduler } => keeps_meaning::<LinkScheduler>(&scheduler),
        Request::SetLink { setting, .. } => {
            if let Ok(parsed) = LinkSetting::of_request(setting) {
                assert_eq!(LinkSetting::of_request(parsed.in_request()), Ok(parsed));
            }
        }
        Request::PeerPaths { name: Some(name) } | Request::Revoke { name } => {
            keeps_meaning::<PeerName>(&name);
        }
        Request::Invite { name, expires, .. } => {
            keeps_meaning::<PeerName>(&name);
            keeps_meaning::<Lifetime>(&expires);
        }
        Request::Allow { destinations, .. } => {
            destinations.iter().for_each(|text| keeps_meaning::<Destination>(text));
        }
        Request::Move { endpoint, record: _ } => keeps_meaning::<Endpoint>(&endpoint),
        _ => {}
    }
}

/// If the text spells a value, checks that the value's own spelling means the same.
fn keeps_meaning<T: FromStr + ToString + PartialEq>(text: &str) {
    if let Ok(value) = text.parse::<T>() {
        let again = value.to_string().parse::<T>();
        assert!(again.is_ok_and(|again| again == value), "{text:?} means something else");
    }
}

/// Whether a command accepts a node's answer line as a reply.
fn control_reply(line: &[u8]) -> bool {
    is_stable::<Reply<serde_json::Value>>(line)
}
