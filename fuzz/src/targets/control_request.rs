//! Lines on the control socket: from any process that may connect to a node, and from a node to a
//! command.

use rove::fuzz::{control_reply, control_request};

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
