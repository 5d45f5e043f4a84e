//! What is told of all connections of all peers, page by page.
//!
//! A gateway may know tens of thousands. Whoever asks names where to go on, so nothing is kept for
//! him here, and one page keeps packets waiting no longer than others of them would. A
//! connection that is known from the first page to the last is told of once; others come and go in
//! between.

use super::Node;
use crate::flow::report::FlowReport;
use crate::id::PeerKey;
use crate::time::Instant;

/// Places that are looked at for one page: no more than packets that one turn may take.
pub const FLOWS_PER_PAGE: usize = 256;

/// Where the next page begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct FlowsFrom {
    peer: PeerKey,
    place: usize,
}

/// Some connections.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FlowsPage {
    /// Each with its peer; at most [`FLOWS_PER_PAGE`], and there may be none.
    pub flows: Vec<(PeerKey, FlowReport)>,
    /// Where to go on; `None` after the last page.
    pub next: Option<FlowsFrom>,
    /// Connections that are known of all peers.
    pub known: usize,
    /// What is kept of them together, in bytes.
    pub held_bytes: usize,
    /// How much may be.
    pub memory_bytes: usize,
}

impl Node {
    /// A page of connections, the first unless `from` says where to go on.
    pub fn flows(&self, now: Instant, from: Option<FlowsFrom>) -> FlowsPage {
        let mut page = FlowsPage {
            flows: Vec::new(),
            next: None,
            known: self.memory.flows(),
            held_bytes: self.memory.used(),
            memory_bytes: self.memory.max(),
        };
        let first = from.map_or(PeerKey([0; 32]), |from| from.peer);
        let mut left = FLOWS_PER_PAGE;
        let mut reports = Vec::new();
        for (&peer, &slot) in self.by_key.range(first..) {
            let place = from.filter(|from| from.peer == peer).map_or(0, |from| from.place);
            if left == 0 {
                page.next = Some(FlowsFrom { peer, place });
                break;
            }
            let Some(one) = self.peer(slot) else { continue };
            let looked_at = one.report_flows(now, place, left, &mut reports);
            page.flows.extend(reports.drain(..).map(|report| (peer, report)));
            if looked_at == left {
                page.next = Some(FlowsFrom { peer, place: place + looked_at });
                break;
            }
            // One without connections costs something, too.
            left -= looked_at.max(1);
        }
        page
    }
}
