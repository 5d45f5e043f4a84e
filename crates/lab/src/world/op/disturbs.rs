//! Whose sessions an operation may disturb: how long each may be away depends on it.

use super::{Attack, Machine, Network, Op, Whom};

/// Whose session an operation may disturb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::world) enum Disturbs {
    Nobody,
    Client(u8),
    /// The clients of a gateway.
    Gateway(u8),
    Everybody,
}

impl Op {
    /// Whose session it may disturb.
    pub(in crate::world) const fn disturbs(&self) -> Disturbs {
        match self {
            Self::Send { .. }
            | Self::Syn { .. }
            | Self::Connect { .. }
            | Self::SetMode { .. }
            | Self::SetScheduler { .. }
            | Self::SetRecovery { .. }
            | Self::SetSpread { .. }
            | Self::StandBy { .. }
            | Self::SetAssist { .. }
            | Self::SetPriority { .. }
            | Self::SetEarly { .. }
            | Self::Wait { .. }
            | Self::Overreach { .. }
            | Self::Enrol { .. }
            | Self::Settle { .. } => Disturbs::Nobody,
            Self::Revoke { client } | Self::Readmit { client } => Disturbs::Client(*client),
            Self::Network(change) => change.disturbs(),
            Self::Machine(change) => change.disturbs(),
            Self::Attack(Attack::Intercept { client, .. } | Attack::Cut { client }) => {
                Disturbs::Client(*client)
            }
            Self::Attack(
                Attack::Flood { gateway, .. } | Attack::Garbage { to: Whom::Gateway(gateway), .. },
            ) => Disturbs::Gateway(*gateway),
            Self::Attack(Attack::Cross { .. }) => Disturbs::Nobody,
            Self::Attack(_) => Disturbs::Everybody,
        }
    }
}

impl Network {
    const fn disturbs(&self) -> Disturbs {
        match self {
            Self::Quality { client, .. }
            | Self::Carrier { client, .. }
            | Self::OneWay { client, .. }
            | Self::Mtu { client, .. }
            | Self::Filter { client, .. }
            | Self::Readdress { client, .. }
            | Self::Plug { client, .. }
            | Self::Depart { client, .. }
            | Self::RebindNat { client, .. }
            | Self::RebootNat { client, .. } => Disturbs::Client(*client),
            Self::MoveGateway { gateway, .. } => Disturbs::Gateway(*gateway),
        }
    }
}

impl Machine {
    const fn disturbs(&self) -> Disturbs {
        match self {
            Self::Sleep { client, .. }
            | Self::RestartClient { client, .. }
            | Self::Backup { client } => Disturbs::Client(*client),
            Self::RestartGateway { gateway, .. } | Self::StepClock { gateway, .. } => {
                Disturbs::Gateway(*gateway)
            }
            Self::Late { .. } => Disturbs::Everybody,
        }
    }
}
