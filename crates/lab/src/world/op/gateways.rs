//! Operations in worlds of several gateways. Those of one gateway stay what they are.

use super::{Attack, Machine, Network, Op};
use crate::emu::Rng;

/// At whom an attack is aimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// At a gateway.
    Gateway(u8),
    /// At a client.
    Client(u8),
}

/// Aims everything that concerns one gateway at any of them, and lets the attacker cross their
/// sessions.
pub(super) fn strew(gateways: u8, seed: u64, ops: &mut Vec<Op>) {
    if gateways < 2 {
        return;
    }
    let mut rng = Rng::new(seed).fork(0x6761_7465);
    for gateway in ops.iter_mut().filter_map(aimed_at) {
        *gateway = rng.below(gateways.into()) as u8;
    }
    for _ in 0..=rng.below(6) {
        let at = rng.below(ops.len() as u64) as usize;
        let (client, count) = (super::client(&mut rng), 1 + rng.below(60) as u16);
        let cross = Attack::Cross { client, count, chance: rng.next_u64() };
        ops.insert(at, Op::Attack(cross));
    }
}

/// The gateway that an operation concerns, if it concerns one alone.
const fn aimed_at(op: &mut Op) -> Option<&mut u8> {
    if let Op::Network(Network::MoveGateway { gateway, .. })
    | Op::Machine(
        Machine::RestartGateway { gateway, .. } | Machine::StepClock { gateway, .. },
    )
    | Op::Attack(
        Attack::Flood { gateway, .. } | Attack::Garbage { to: Whom::Gateway(gateway), .. },
    ) = op
    {
        return Some(gateway);
    }
    None
}
