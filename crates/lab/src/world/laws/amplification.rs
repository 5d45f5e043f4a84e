//! An address that nobody has answered from gets at most three times what came from it
//! (RFC 9000, 8.1): counted on the wire, in UDP payload, over everything that a node sends.
//!
//! Only what is authentic and new counts as having come: who forges a source may send as much
//! noise from it as he likes. What is not sealed (answers to handshakes, which may be anybody's) is
//! judged apart: no more of it leaves than came in, whatever came in.
//!
//! An address is proven when a host sends from it after something that was sent to it reached
//! that host: there is no other way to know that the host is there. A process that ends takes its
//! proofs along; a gateway that begins anew sends a few notices, one at a time, to the addresses
//! that its predecessor wrote down as proven.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use super::{Breach, Law};
use crate::world::host_id::HostId;

/// What was exchanged with every address, per node.
#[derive(Debug, Default)]
pub(in crate::world) struct Amplification {
    tallies: BTreeMap<(HostId, SocketAddr), Tally>,
}

#[derive(Debug, Default)]
struct Tally {
    standing: Standing,
    reached_ns: Option<u64>,
    /// Bytes that came, of any kind.
    received: u64,
    /// Of these, what was authentic and new.
    authentic: u64,
    /// Bytes that left as they are.
    clear: u64,
    /// Bytes that left sealed.
    sealed: u64,
}

/// How a node may know that somebody is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Standing {
    #[default]
    Unproven,
    /// An answer came from there.
    Proven,
    /// The user said so.
    Chosen,
}

impl Amplification {
    /// `node` was told by its user to use `remote`.
    pub(in crate::world) fn chosen(&mut self, node: HostId, remote: SocketAddr) {
        self.tallies.entry((node, remote)).or_default().standing = Standing::Chosen;
    }

    /// A new process of `node` begins, which has received nothing.
    pub(in crate::world) fn restarted(&mut self, node: HostId) {
        let chosen = |tally: &Tally| tally.standing == Standing::Chosen;
        self.tallies.retain(|(host, _), tally| *host != node || chosen(tally));
    }

    /// `node` calls back who was at `remote` when an earlier process of it proved that address, by
    /// a notice of `len` bytes.
    pub(in crate::world) fn recalls(&mut self, node: HostId, remote: SocketAddr, len: usize) {
        self.tallies.entry((node, remote)).or_default().received += len as u64;
    }

    /// Something that `node` sent to `remote` reached a host there.
    pub(in crate::world) fn reached(&mut self, now_ns: u64, node: HostId, remote: SocketAddr) {
        self.tallies.entry((node, remote)).or_default().reached_ns.get_or_insert(now_ns);
    }

    /// `node` receives `len` bytes from `remote`; `authentic` is when a host sent these very
    /// bytes, if one did and they are new to `node`.
    pub(in crate::world) fn received(
        &mut self,
        node: HostId,
        remote: SocketAddr,
        len: usize,
        authentic: Option<u64>,
    ) {
        let tally = self.tallies.entry((node, remote)).or_default();
        tally.received += len as u64;
        let Some(sent_ns) = authentic else { return };
        tally.authentic += len as u64;
        let answers = tally.reached_ns.is_some_and(|reached_ns| sent_ns >= reached_ns);
        if answers && tally.standing == Standing::Unproven {
            tally.standing = Standing::Proven;
        }
    }

    /// `node` sends `len` bytes to `remote`, sealed or as they are.
    pub(in crate::world) fn sent(
        &mut self,
        node: HostId,
        remote: SocketAddr,
        len: usize,
        sealed: bool,
    ) -> Result<(), Breach> {
        let tally = self.tallies.entry((node, remote)).or_default();
        *(if sealed { &mut tally.sealed } else { &mut tally.clear }) += len as u64;
        let too_much = tally.sealed > 3 * tally.authentic || tally.clear > tally.received;
        if tally.standing == Standing::Unproven && too_much {
            let what = format!("{node} sends {len} bytes to {remote}: {tally:?}");
            return Err(Breach::new(Law::Amplification, what));
        }
        Ok(())
    }
}
