//! What the remote side answers while something is sent in the local side's place: what that means
//! for what is owed, and what of it the local side hears.

use super::{TRIES_SHUT, Told};
use crate::flow::pep::tcp::{Connection, Phase};
use crate::time::Instant;
use crate::wire::inner::InnerPacket;
use crate::wire::tcp::{Flags, Segment};

impl Connection {
    /// The remote side has answered: what that means for what is owed.
    pub(in crate::flow) fn hear(
        &mut self,
        now: Instant,
        segment: &Segment,
        packet: &InnerPacket<'_>,
    ) {
        let acked = self.local.acked;
        let mss = self.mss();
        let rate = self.trip.rate();
        let is_shut = !acked.is_before(self.remote.edge);
        let says_no_more = segment.len == 0 && segment.flags == Flags::ACK && segment.ack == acked;
        let is_blind = says_no_more && !self.has_sack();
        let is_owed = self.promised.is_some_and(|promised| acked.is_before(promised));
        if let Phase::Resumed(resumed) = &mut self.phase {
            resumed.is_owed = is_owed;
            resumed.heard(now, acked, mss);
            if segment.len > 0 {
                let end = segment.end();
                resumed.said_to = Some(resumed.said_to.map_or(end, |before| before.max(end)));
            }
            resumed.heed_marks(segment, acked, mss);
            let rate = rate.filter(|_| resumed.assisted.is_some());
            resumed.rate = rate.map_or(resumed.rate, |rate| rate.max(resumed.rate));
            let sent_to = resumed.sent_to();
            for (from, to) in segment.sacked(packet) {
                if acked.is_before(to) && !sent_to.is_before(to) && from.is_before(to) {
                    resumed.note_arrived(from, to);
                }
            }
            resumed.find_losses(acked, mss);
            if is_shut {
                resumed.tries = resumed.tries.min(TRIES_SHUT);
                resumed.doubled = resumed.doubled.min(TRIES_SHUT);
            }
            let window = resumed.window.replace(segment.window).unwrap_or(segment.window);
            if is_blind && window == segment.window {
                resumed.heard_blindly(acked, mss);
            }
        }
        if self.promised.is_some_and(|promised| !acked.is_before(promised)) {
            self.promised = None;
            self.is_settled |= !self.is_assisted();
            if let Phase::Held(held) = &mut self.phase {
                held.settled();
            }
        }
        self.end_if_done();
    }

    /// What the local side is to hear in an acknowledgement's place; `None` when it hears that.
    pub(in crate::flow) fn tell(&mut self, now: Instant, is_bare: bool) -> Option<Told> {
        if self.is_assisted() {
            return self.tell_ahead(now, is_bare);
        }
        let (acked, room) = (self.local.acked, self.remote.edge);
        let is_sent = match &self.phase {
            Phase::Resumed(resumed) => !self.heads.is_empty() || acked.is_before(resumed.to),
            Phase::Held(_) => true,
            Phase::Normal | Phase::Broken(_) => false,
        };
        if is_sent && self.gives_up() {
            // It was shown a closed window so as not to, and has to see it until there is news.
            return Some(Told {
                ack: self.answered_to(),
                window: 0,
                is_news: false,
                is_own: false,
            });
        }
        let promised = self.promised?;
        let taken_in = match &mut self.phase {
            Phase::Resumed(resumed) => acked.beyond(*resumed.first_heard.get_or_insert(acked)),
            Phase::Normal | Phase::Held(_) | Phase::Broken(_) => 0,
        };
        let given = self.whole(taken_in);
        let (edge, before) = match &mut self.phase {
            Phase::Resumed(resumed) => {
                let edge = promised.plus(resumed.ahead + given).min(room.max(promised));
                let before = resumed.edge;
                let edge = before.map_or(edge, |before| before.max(edge));
                resumed.edge = Some(edge);
                (edge, before)
            }
            Phase::Held(held) => {
                let edge = held.edge().unwrap_or(promised);
                (edge, Some(edge))
            }
            Phase::Normal | Phase::Broken(_) => return None, // nothing is promised then
        };
        let window = self.window(edge.beyond(promised));
        let window_before = before.map(|before| self.window(before.beyond(promised)));
        let is_news = window_before != Some(window);
        Some(Told { ack: promised, window, is_news, is_own: false })
    }
}
