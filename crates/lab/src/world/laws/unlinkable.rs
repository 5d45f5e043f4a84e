//! A bystander of two networks finds no session index in both. Times, lengths and a NAT that
//! rebinds can link them all the same (SECURITY.md), and are not judged.

use std::collections::BTreeMap;
use std::net::IpAddr;

use rove_proto::id::SessionIndex;
use rove_proto::wire::Kind;

use super::{Breach, Law};
use crate::world::host_id::HostId;

/// Where each index was seen in clear: in which of its client's networks, at which address there.
#[derive(Debug, Default)]
pub(in crate::world) struct Unlinkable {
    seen: BTreeMap<(HostId, SessionIndex), (usize, IpAddr)>,
}

impl Unlinkable {
    /// A datagram from or for the client `host` passed through its network `access`, where it has
    /// the address `at`; the client did not have it repeated by anybody.
    pub(in crate::world) fn seen(
        &mut self,
        host: HostId,
        access: usize,
        at: IpAddr,
        datagram: &[u8],
    ) -> Result<(), Breach> {
        // Every kind has its index at the same place (docs/spec/wire.md#1-datagrams).
        let Some(index) = datagram.get(1..5).and_then(|bytes| bytes.try_into().ok()) else {
            return Ok(());
        };
        let index = SessionIndex(u32::from_be_bytes(index));
        let (before, address) = *self.seen.entry((host, index)).or_insert((access, at));
        // With the same address in both, as behind two NATs, a client cannot know that it moved.
        if before == access || address == at {
            return Ok(());
        }
        let (kind, len) = (Kind::of(datagram), datagram.len());
        let what = format!(
            "{index:?} of host {host} at {address} in network {before}, and at {at} in {access}: \
             {kind:?}, {len} B"
        );
        Err(Breach::new(Law::Unlinkable, what))
    }
}
