//! Bodies of control frames: what is understood can be said again and means the same.

use std::net::{Ipv4Addr, Ipv6Addr};

use rove_proto::id::{PathSerial, SessionIndex};
use rove_proto::wire::control::{BODY_MAX, Control, End, Lease, Prefix};

use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "control", run, seeds, mutations: 100_000 };

fn run(data: &[u8]) {
    let Ok(control) = Control::parse(data) else { return };
    let mut bytes = Vec::new();
    control.emit(&mut bytes);
    assert!(bytes.len() <= BODY_MAX, "{} bytes do not fit the smallest path", bytes.len());
    assert_eq!(Control::parse(&bytes), Ok(control), "said again, it means something else");
}

fn seeds() -> Vec<Vec<u8>> {
    let v4 = Ipv4Addr::new(10, 77, 0, 2);
    let v6 = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
    let lease = Lease {
        addresses: vec![
            Prefix { address: v4.into(), bits: 24 },
            Prefix { address: v6.into(), bits: 64 },
        ],
        gateway: vec![Ipv4Addr::new(10, 77, 0, 1).into()],
        dns: vec![Ipv4Addr::new(10, 77, 0, 1).into(), v6.into()],
    };
    let indices = (1..=8).map(SessionIndex).collect();
    let controls = [
        Control::Lease(lease),
        Control::Routes(vec![Prefix::host(v4.into()), Prefix { address: v6.into(), bits: 0 }]),
        Control::Indices { first: PathSerial(8), indices },
        Control::Early(vec![
            End { network: Prefix { address: v4.into(), bits: 16 }, port: None },
            End { network: Prefix::host(v6.into()), port: Some(27_015) },
        ]),
        Control::Scheduler(6),
        Control::Recovery(1),
        Control::Taken { next: PathSerial(9) },
        Control::Networks(vec![Prefix { address: v4.into(), bits: 16 }]),
        Control::Policed { serial: PathSerial(9), kbps: 8_000 },
        Control::Context { id: 7, form: 4, header: vec![0x45; 28] },
        Control::Compress {
            pads: true,
            frugal: true,
            rules: vec![(End { network: Prefix::host(v4.into()), port: Some(1_883) }, 0x12)],
        },
        Control::Dictionaries(vec![(1, [7; 8]), (2, [8; 8])]),
        Control::Unknown(200),
    ];
    let bytes = |control: &Control| {
        let mut out = Vec::new();
        control.emit(&mut out);
        out
    };
    controls.iter().map(bytes).collect()
}
