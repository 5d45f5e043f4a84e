//! The flow of datagrams behind the tunnel: its packets go in and come out.

use super::World;
use crate::world::host_id::{CLIENT_HOST, GATEWAY, HostId};
use crate::world::laws::Breach;

/// The client's end, and the server's.
const ENDS: [HostId; 2] = [CLIENT_HOST, GATEWAY];

impl World {
    /// The ends of the flow that are due have their turn.
    pub(in crate::world) fn keep_exchange(&mut self) -> Result<(), Breach> {
        for (side, host) in ENDS.into_iter().enumerate() {
            for packet in self.exchange.leaving(self.now_ns, side)? {
                self.put_inner(host, packet)?;
            }
        }
        Ok(())
    }

    /// A packet has come out of the tunnel: whether it belongs to the flow, whose end has it then.
    pub(in crate::world) fn takes_datagram(&mut self, host: HostId, packet: &[u8]) -> bool {
        let side = ENDS.into_iter().position(|end| end == host);
        let Some(side) = side else { return false };
        let taken = self.exchange.arrives(self.now_ns, side, packet);
        if taken == Some(true) {
            self.trace.add(&[self.now_ns, packet.len() as u64]);
        }
        taken.is_some()
    }
}
