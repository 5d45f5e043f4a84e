//! Connections among the operations of some seeds.

use super::{CLIENTS_MAX, Network, Op};
use crate::emu::{Carrier, Rng};

/// Puts connections among the operations of some seeds, most with a gap in their way, and leaves
/// the others what they are.
pub(super) fn strew(seed: u64, ops: &mut Vec<Op>) {
    let mut rng = Rng::new(seed).fork(0x7463_706f);
    if rng.chance(0.6) {
        return;
    }
    for _ in 0..=rng.below(3) {
        let at = rng.below(ops.len() as u64) as usize;
        let gap = if rng.chance(0.8) { gap(&mut rng) } else { Vec::new() };
        ops.splice(at..at, [Op::connect(&mut rng)].into_iter().chain(gap));
    }
}

/// Everybody's first access carries nothing for a while, or until trouble ends.
fn gap(rng: &mut Rng) -> Vec<Op> {
    let all = |carrier| {
        let of = move |client| Op::Network(Network::Carrier { client, access: client, carrier });
        (0..CLIENTS_MAX).map(of)
    };
    let [soon, later] = [[20, 200, 1_000], [3_000, 30_000, 300_000]]
        .map(|ms| Op::Wait { ms: ms[rng.below(3) as usize] });
    let carriers = [Carrier::Down, Carrier::BlackHole, Carrier::BlackHole];
    let mut ops = vec![soon];
    ops.extend(all(carriers[rng.below(3) as usize]));
    ops.push(later);
    if rng.chance(0.7) {
        ops.extend(all(Carrier::Up));
    }
    ops
}
