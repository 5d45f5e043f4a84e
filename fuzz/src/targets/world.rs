//! The whole simulated world: bytes are a seed and operations, and every law must hold.

use rove_lab::world::{decode, replay, shrink};

use crate::Target;

/// The target. Each input is some seconds to hours of virtual time, and tens of milliseconds here.
pub const TARGET: Target = Target { name: "world", run, seeds, mutations: 30 };

fn run(data: &[u8]) {
    let (seed, ops) = decode(data);
    if let Err(failure) = replay(seed, &ops) {
        panic!("{}", shrink(failure));
    }
}

/// Operations of every kind: traffic (0), waits (16), then trouble by its number; from 64 on the
/// newer kinds have theirs. An odd seed ends with an idle hour.
fn seeds() -> Vec<Vec<u8>> {
    let list = |seed: u8, kinds: &[u8]| {
        let mut input = vec![seed];
        for (place, &kind) in (0..).zip(kinds) {
            input.extend_from_slice(&[kind, seed, place]);
        }
        input
    };
    let moves: Vec<u8> = [0, 16, 49, 16, 0, 50, 17, 0, 51, 16, 0].to_vec();
    let restarts = [0, 16, 56, 16, 0, 57, 16, 0, 58, 16, 43].to_vec();
    let attacks = [0, 16, 60, 0, 16, 62, 16, 63, 0, 16, 28, 43].to_vec();
    let newer = [0, 16, 86, 0, 87, 16, 86, 0, 87, 16, 62, 0].to_vec();
    let modes = [92, 70, 92, 16, 93, 71, 16, 93, 65, 92, 93, 16].to_vec();
    vec![
        Vec::new(),
        vec![7],
        list(1, &moves),
        list(2, &restarts),
        list(3, &attacks),
        list(4, &newer),
        list(5, &newer),
        list(6, &modes),
        list(7, &modes),
    ]
}
