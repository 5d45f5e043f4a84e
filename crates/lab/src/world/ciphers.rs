//! How the hosts of a world seal what they send. None of it changes the length of a datagram or the
//! time at which it leaves, so the rest of a world's story stays the same.

use rove_proto::crypto::{Features, Floor};
use rove_proto::policy::Sealing;

use super::host_id::HostId;

/// The settings of all hosts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ciphers {
    /// The gateways' floor. Clients ask for none, so this is the floor of all sessions.
    floor: Floor,
    sealing: Sealing,
}

impl Ciphers {
    /// As many as there are.
    pub(super) const COUNT: u64 = 4;
    /// What a node does unless it is told otherwise.
    pub(super) const USUAL: Self = Self {
        floor: Floor::BITS_128,
        sealing: Sealing { strength: Floor::BITS_256, changes: false, pads: false },
    };

    /// One of [`Self::COUNT`]: all hosts wish for the weakest suite. The gateways raise the floor,
    /// or not, and the suite changes with every datagram, or not.
    pub(super) const fn weak(number: u64) -> Self {
        let floor = if number & 1 == 0 { Floor::BITS_128 } else { Floor::BITS_256 };
        let changes = number & 2 != 0;
        Self { floor, sealing: Sealing { strength: Floor::BITS_128, changes, pads: false } }
    }

    /// The floor that a host asks for.
    pub(super) const fn asked_by(self, id: HostId) -> Floor {
        if id.is_gateway() { self.floor } else { Floor::BITS_128 }
    }

    /// The strength that every datagram must have.
    pub(super) const fn floor(self) -> Floor {
        self.floor
    }

    /// How every host seals.
    pub(super) const fn sealing(self) -> Sealing {
        self.sealing
    }

    /// What every host announces for that.
    pub(super) const fn features(self) -> Features {
        if self.sealing.changes { Features::PROFILES } else { Features::NONE }
    }
}
