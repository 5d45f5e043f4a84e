//! Session indices that this node issued: random, so that an observer learns nothing from them,
//! each leading to one lane of one epoch of one peer (docs/spec/wire.md#indices).

use std::collections::BTreeMap;

use crate::crypto::{Rng, draw};
pub(crate) use crate::id::EpochId;
use crate::id::{PathSerial, SessionIndex};
use crate::wire::handshake::INDEX_COUNT;

/// A place in the node's table of peers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Slot(pub u32);

/// What an index leads to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Lead {
    /// The peer.
    pub slot: Slot,
    /// Its epoch.
    pub epoch: EpochId,
    /// The path serial.
    pub serial: PathSerial,
}

/// Every index that leads somewhere.
#[derive(Debug, Default)]
pub(crate) struct IndexTable {
    leads: BTreeMap<SessionIndex, Lead>,
}

impl IndexTable {
    /// Where `index` leads.
    pub(crate) fn find(&self, index: SessionIndex) -> Option<Lead> {
        self.leads.get(&index).copied()
    }

    /// Issues an index that leads to `lead`.
    pub(crate) fn issue(&mut self, rng: &mut dyn Rng, lead: Lead) -> SessionIndex {
        loop {
            let index = SessionIndex(u32::from_be_bytes(draw(rng)));
            if index.0 != 0 && !self.leads.contains_key(&index) {
                self.leads.insert(index, lead);
                return index;
            }
        }
    }

    /// Issues the first indices of an epoch, for serials from 0.
    pub(crate) fn issue_first(
        &mut self,
        rng: &mut dyn Rng,
        slot: Slot,
        epoch: EpochId,
    ) -> [SessionIndex; INDEX_COUNT] {
        let mut serial = 0;
        [(); INDEX_COUNT].map(|()| {
            let lead = Lead { slot, epoch, serial: PathSerial(serial) };
            serial += 1;
            self.issue(rng, lead)
        })
    }

    /// Takes indices back: datagrams that carry them are unknown from now on.
    pub(crate) fn revoke(&mut self, indices: impl IntoIterator<Item = SessionIndex>) {
        for index in indices {
            self.leads.remove(&index);
        }
    }

    /// Indices that lead somewhere.
    pub(crate) fn len(&self) -> usize {
        self.leads.len()
    }
}
