//! Inner packets of the peer on their way to the TUN: delivers what the peer may send, and refuses
//! the rest. `inbound` puts packets back into their sequence before.

use super::Peer;
use crate::error::DropReason;
use crate::flow::Verdict;
use crate::flow::live::Came;
use crate::session::index::EpochId;
use crate::tunnel::{Context, Side, saving};
use crate::wire::inner::{InnerPacket, Pieces};

impl Peer {
    /// Delivers what is in sequence now or has waited for long enough: under the keys of `epoch`,
    /// and what came under the keys that followed and waited for that.
    pub(super) fn release(&mut self, cx: &mut Context<'_>, mut epoch: EpochId) {
        while let Some(next) = self.inbound.next(cx, &mut self.tunnel.epochs, &mut epoch) {
            let (packet, checksum) = next;
            let pieces = Pieces::whole(&packet).with_checksum(checksum);
            if let Err(reason) = self.deliver(cx, Came::InTurn, pieces) {
                cx.drops.count(reason);
            }
            self.inbound.give_back(packet);
        }
    }

    /// An inner packet on its way to the TUN, if the peer may send it.
    pub(super) fn deliver(
        &mut self,
        cx: &mut Context<'_>,
        came: Came,
        packet: Pieces<'_>,
    ) -> Result<(), DropReason> {
        let inner = InnerPacket::parse(packet)?;
        if let Err(reason) = self.admission.admit(cx.now, &inner) {
            if self.tunnel.epochs.current.is_some()
                && let Some(answer) = self.admission.refusal(cx.now, &inner)
                && let Ok(answer) = InnerPacket::whole(&answer)
                && let Err(reason) = self.send_inner(cx, &answer)
            {
                cx.drops.count(reason);
            }
            self.end_run(cx);
            return Err(reason);
        }
        if let Side::Client(connector) = &self.tunnel.paths.side {
            self.flows.hear_icmp(&inner, connector.granted.gateway());
        }
        saving::of_mut(&mut self.tunnel).note(cx.now, &inner);
        // A gateway would need a table for each of its sessions, and decides nothing by it.
        if !(came == Came::Alone && self.tunnel.paths.at_gateway()) {
            self.flows.hear(cx.now, came, &inner);
        }
        let verdict = self.flows.incoming(cx.now, cx.memory, &inner);
        if verdict == Verdict::Keep {
            return Ok(());
        }
        if !cx.out.push_inner(packet) {
            return Err(DropReason::QueueFull);
        }
        if let Verdict::Change(change) = verdict {
            change.apply(cx.out.last_inner());
        }
        Ok(())
    }
}
