//! What an end does with a packet that arrives, in the order of RFC 9293, 3.10.7, with PAWS
//! (RFC 7323) and the challenges of RFC 5961 (`tcp_input.c`: `tcp_rcv_established`,
//! `tcp_validate_incoming`, `tcp_rcv_state_process`).

use super::{End, Ending, Phase};
use crate::emu::MS;
use crate::tcp::numbering::ORIGIN;
use crate::tcp::opening::Opening;
use crate::tcp::segment::{Flags, Segment};
use crate::tcp::sender::{Acknowledgment, Validity};

/// The positions that a segment takes in the other end's direction.
#[derive(Clone, Copy, Debug)]
struct Span {
    from: u64,
    to: u64,
}

impl End {
    /// A packet arrives, IP header first.
    pub fn arrives(&mut self, now_ns: u64, packet: &[u8]) {
        let Ok(segment) = Segment::parse(packet) else {
            self.stats.malformed += 1;
            return;
        };
        let (from, to) = (segment.source, segment.destination);
        if (from, to) != (self.config.remote, self.config.local) {
            self.stats.foreign += 1;
            return;
        }
        match self.phase {
            Phase::Listen => self.listens(now_ns, &segment),
            Phase::SynSent(opening) => self.is_answered(now_ns, &segment, opening),
            Phase::SynReceived(_) | Phase::Open | Phase::TimeWait { .. } => {
                self.synchronised(now_ns, &segment);
            }
            Phase::Closed(_) => self.refuse(&segment),
        }
    }

    /// LISTEN.
    fn listens(&mut self, now_ns: u64, segment: &Segment) {
        if segment.flags.rst {
            return;
        }
        if segment.acknowledgment.is_some() {
            self.refuse(segment);
        } else if segment.flags.syn {
            self.agree(segment);
            self.take_timestamp(now_ns, segment, ORIGIN);
            self.phase = Phase::SynReceived(Opening::new(now_ns));
        }
    }

    /// SYN-SENT.
    fn is_answered(&mut self, now_ns: u64, segment: &Segment, opening: Opening) {
        let Flags { syn, rst, .. } = segment.flags;
        let right = self.sender.numbering.wire(ORIGIN + 1);
        match segment.acknowledgment {
            Some(acknowledgment) if acknowledgment != right => {
                if !rst {
                    self.refuse(segment);
                }
            }
            Some(_) if rst => self.phase = Phase::Closed(Ending::Refused),
            Some(_) if syn => {
                self.agree(segment);
                self.take_timestamp(now_ns, segment, ORIGIN);
                self.opened(now_ns, ORIGIN, u64::from(segment.window), opening);
                self.receiver.answer_now();
            }
            None if syn && !rst => {
                // Both open at the same time.
                self.agree(segment);
                self.take_timestamp(now_ns, segment, ORIGIN);
                self.phase = Phase::SynReceived(Opening::new(now_ns));
            }
            Some(_) | None => {}
        }
    }

    /// Every state in which both sequence spaces are known.
    fn synchronised(&mut self, now_ns: u64, segment: &Segment) {
        let numbering = self.receiver.numbering;
        let from = numbering.position(segment.sequence, self.receiver.next);
        let span = Span { from, to: from + segment.sequence_length() };
        let Flags { syn, rst, fin, .. } = segment.flags;
        if !rst && self.is_outdated(now_ns, segment, span) {
            self.stats.outdated += 1;
            self.answer_unacceptable(now_ns, segment, span);
            return;
        }
        if !self.receiver.is_acceptable(span.from, span.to) {
            self.stats.unacceptable += 1;
            if !rst {
                self.answer_unacceptable(now_ns, segment, span);
            }
            return;
        }
        if rst {
            self.is_reset(now_ns, span);
            return;
        }
        if syn && !self.is_crossed(segment) {
            self.repeats_syn(now_ns, span);
            return;
        }
        if !self.takes_acknowledgment(now_ns, segment, span) {
            return;
        }
        self.take_timestamp(now_ns, segment, span.from);
        if !segment.payload.is_empty() || fin {
            let was_finished = self.receiver.is_finished();
            self.receiver.arrives(now_ns, span.from, &segment.payload, fin);
            if self.receiver.is_finished() && !was_finished {
                self.passive_close = !self.sender.fin_sent;
            }
        }
        self.settle_closing(now_ns);
    }

    /// PAWS, but for mere acknowledgments that were overtaken (`tcp_disordered_ack`).
    fn is_outdated(&self, now_ns: u64, segment: &Segment, span: Span) -> bool {
        let Some(timestamps) = segment.options.timestamps.filter(|_| self.sender.terms.timestamps)
        else {
            return false;
        };
        if !self.receiver.is_from_before(now_ns, timestamps.value) {
            return false;
        }
        let una = self.sender.numbering.wire(self.sender.una);
        let overtaken = segment.sequence_length() == 0
            && span.from == self.receiver.next
            && segment.acknowledgment == Some(una)
            && self.scaled(segment) == self.sender.window
            && self.receiver.is_slightly_before(timestamps.value, self.sender.rtt.rto_ns() / MS);
        !overtaken
    }

    /// What lies outside of the window is answered by what is missing (RFC 9293, 3.10.7.4): data
    /// at once, all else not more often than a challenge.
    fn answer_unacceptable(&mut self, now_ns: u64, segment: &Segment, span: Span) {
        if segment.payload.is_empty() || segment.flags.syn {
            self.challenge(now_ns);
        } else {
            self.receiver.answer_duplicate(span.from, span.to);
        }
    }

    /// A reset counts only at the very position that is missing (RFC 5961, 3.2).
    fn is_reset(&mut self, now_ns: u64, span: Span) {
        if span.from != self.receiver.next {
            self.challenge(now_ns);
            return;
        }
        self.phase = match self.phase {
            Phase::TimeWait { .. } => Phase::Closed(Ending::Finished),
            Phase::Listen
            | Phase::SynSent(_)
            | Phase::SynReceived(_)
            | Phase::Open
            | Phase::Closed(_) => Phase::Closed(Ending::ResetByPeer),
        };
    }

    /// Both have opened at the same time, and this acknowledges our SYN with theirs once more.
    fn is_crossed(&self, segment: &Segment) -> bool {
        let right = self.sender.numbering.wire(ORIGIN + 1);
        let opening = matches!(self.phase, Phase::SynReceived(_));
        opening && segment.payload.is_empty() && segment.acknowledgment == Some(right)
    }

    /// Our answer to it was lost; or somebody guesses (RFC 5961, 4.2).
    fn repeats_syn(&mut self, now_ns: u64, span: Span) {
        match &mut self.phase {
            Phase::SynReceived(opening) if span.from == ORIGIN => opening.again_ns = now_ns,
            Phase::Listen
            | Phase::SynSent(_)
            | Phase::SynReceived(_)
            | Phase::Open
            | Phase::TimeWait { .. }
            | Phase::Closed(_) => self.challenge(now_ns),
        }
    }

    /// The acknowledgment; says whether the rest of the segment counts.
    fn takes_acknowledgment(&mut self, now_ns: u64, segment: &Segment, span: Span) -> bool {
        let Some(acknowledgment) = segment.acknowledgment else { return false };
        let sender = &self.sender;
        let position = |wire: u32| sender.numbering.position(wire, sender.una);
        let next = position(acknowledgment);
        if let Phase::SynReceived(opening) = self.phase {
            if next != ORIGIN + 1 {
                self.refuse(segment);
                return false;
            }
            self.opened(now_ns, span.from, self.scaled(segment), opening);
            return true;
        }
        let blocks = segment.options.sacks.iter().filter(|_| sender.terms.sack);
        let ack = Acknowledgment {
            next,
            window: self.scaled(segment),
            sacks: blocks.map(|(from, to)| (position(*from), position(*to))).collect(),
            echo_ns: segment
                .options
                .timestamps
                .filter(|timestamps| timestamps.echo != 0)
                .and_then(|timestamps| self.clock.when_ns(now_ns, timestamps.echo)),
            from: span.from,
            carries: span.to > span.from,
        };
        match self.sender.acknowledged(now_ns, &ack) {
            Validity::Good => true,
            Validity::Unsent => false,
            Validity::TooOld => {
                self.challenge(now_ns);
                false
            }
        }
    }

    /// The window of a segment in bytes; that of a SYN is not shifted.
    fn scaled(&self, segment: &Segment) -> u64 {
        let shift = if segment.flags.syn { 0 } else { self.shifts.1 };
        u64::from(segment.window) << shift
    }

    fn take_timestamp(&mut self, now_ns: u64, segment: &Segment, from: u64) {
        if let Some(timestamps) = segment.options.timestamps {
            self.receiver.take_timestamp(now_ns, from, timestamps.value);
        }
    }

    /// Both have closed and know: who closed first remembers for a while.
    fn settle_closing(&mut self, now_ns: u64) {
        let done = self.sender.is_finished() && self.receiver.is_finished();
        match self.phase {
            Phase::Open if done && self.passive_close => {
                self.phase = Phase::Closed(Ending::Finished);
            }
            Phase::Open | Phase::TimeWait { .. } if done => {
                let until_ns = now_ns + self.config.time_wait_ns;
                self.phase = Phase::TimeWait { until_ns };
            }
            Phase::Listen
            | Phase::SynSent(_)
            | Phase::SynReceived(_)
            | Phase::Open
            | Phase::TimeWait { .. }
            | Phase::Closed(_) => {}
        }
    }

    /// There is no such connection (RFC 9293, 3.5.2); a reset is not answered.
    fn refuse(&mut self, segment: &Segment) {
        if segment.flags.rst {
            return;
        }
        let (sequence, acknowledgment) = match segment.acknowledgment {
            Some(acknowledgment) => (acknowledgment, None),
            None => {
                let length = segment.sequence_length() as u32;
                (0, Some(segment.sequence.wrapping_add(length)))
            }
        };
        let flags = Flags { rst: true, ..Flags::default() };
        let reset = Segment { sequence, acknowledgment, flags, ..self.blank() };
        self.replies.push(reset.emit());
        self.stats.resets += 1;
    }
}

#[cfg(test)]
#[path = "arrival_tests.rs"]
mod tests;
