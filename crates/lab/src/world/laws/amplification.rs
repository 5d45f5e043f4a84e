//! An address that nobody has answered from gets at most three times what came from it
//! (RFC 9000, 8.1): counted on the wire, in UDP payload, over everything that a node sends.
//!
//! An address is proven when a host sends from it after something that was sent to it reached
//! that host: there is no other way to know that the host is there.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::{Breach, Law};
use crate::world::parcel::HostId;

/// What was exchanged with every address, per node.
#[derive(Debug, Default)]
pub(in crate::world) struct Amplification {
    tallies: BTreeMap<(HostId, SocketAddr), Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    received: u64,
    sent: u64,
    reached_ns: Option<u64>,
    proven: bool,
}

impl Amplification {
    /// `node` was told by its user to use `remote`.
    pub(in crate::world) fn chosen(&mut self, node: HostId, remote: SocketAddr) {
        self.tallies.entry((node, remote)).or_default().proven = true;
    }

    /// Something that `node` sent to `remote` reached a host there.
    pub(in crate::world) fn reached(&mut self, now_ns: u64, node: HostId, remote: SocketAddr) {
        self.tallies.entry((node, remote)).or_default().reached_ns.get_or_insert(now_ns);
    }

    /// `node` receives `len` bytes from `remote`; `sent_ns` is when a host first
    /// sent these very bytes, if one did.
    pub(in crate::world) fn received(
        &mut self,
        node: HostId,
        remote: SocketAddr,
        len: usize,
        sent_ns: Option<u64>,
    ) {
        let tally = self.tallies.entry((node, remote)).or_default();
        tally.received += len as u64;
        if let (Some(reached), Some(sent)) = (tally.reached_ns, sent_ns) {
            tally.proven |= sent >= reached;
        }
    }

    /// `node` sends `len` bytes to `remote`.
    pub(in crate::world) fn sent(
        &mut self,
        node: HostId,
        remote: SocketAddr,
        len: usize,
    ) -> Result<(), Breach> {
        let tally = self.tallies.entry((node, remote)).or_default();
        tally.sent += len as u64;
        if !tally.proven && tally.sent > 3 * tally.received {
            let Tally { sent, received, .. } = tally;
            let what = format!("host {node} sent {sent} bytes to {remote}, received {received}");
            return Err(Breach::new(Law::Amplification, what));
        }
        Ok(())
    }
}
