//! Questions about a connection: how far it is, which bytes are kept and which were acknowledged in
//! place of the remote side. This module changes no state.

use super::resume::Resumed;
use super::resume::assist::Assisted;
use super::{Connection, Phase};
use crate::wire::tcp::{Flags, Seq, TIMESTAMPS_PADDED};

impl Connection {
    /// The end of the kept bytes, if everything that the local side sent is kept up to there.
    /// `None` if bytes before are missing.
    pub(in crate::flow) fn covered(&self) -> Option<Seq> {
        let sent = self.local.next.minus(u32::from(self.local.fin.is_some()));
        if !self.local.acked.is_before(sent) {
            return Some(sent);
        }
        let (first, end) = self.cache.span()?;
        let whole = !self.local.acked.is_before(first) && !end.is_before(sent);
        let promised = self.promised.is_some_and(|promised| !end.is_before(promised));
        (whole || promised).then_some(end)
    }

    /// The end of the bytes from the local side that are kept or have arrived.
    pub(in crate::flow) fn kept_to(&self) -> Seq {
        self.cache.span().map_or(self.local.acked, |(_, end)| end)
    }

    /// The last acknowledgement that the local side has received, from the remote side or from this
    /// node.
    pub(in crate::flow) fn answered_to(&self) -> Seq {
        self.promised.map_or(self.local.acked, |promised| promised.max(self.local.acked))
    }

    pub(in crate::flow) fn assisted(&self) -> Option<(&Resumed, &Assisted)> {
        match &self.phase {
            Phase::Resumed(resumed) => Some((resumed, resumed.assisted()?)),
            Phase::Normal | Phase::Held(_) | Phase::Broken(_) => None,
        }
    }

    /// Whether this node acknowledges ahead of the remote side.
    pub(in crate::flow) fn is_assisted(&self) -> bool {
        self.assisted().is_some()
    }

    /// Whether the record for this local acknowledgement is written; `None` without local
    /// acknowledgement.
    pub(in crate::flow) fn assist_record(&self) -> Option<bool> {
        self.assisted().map(|(_, assisted)| assisted.is_recorded())
    }

    /// Whether new segments of the local side are forwarded unchanged.
    pub(in crate::flow) fn passes(&self) -> bool {
        self.assisted().is_some_and(|(resumed, _)| resumed.has_caught_up())
    }

    /// The congestion flags of an acknowledgement by this node. It repeats the remote side's echo
    /// until the local side has answered that (RFC 3168, section 6.1.3).
    pub(in crate::flow) fn echoes(&self) -> Flags {
        let is_echoing = self.assisted().is_some_and(|(_, assisted)| assisted.is_echoing());
        if is_echoing { Flags::ECE } else { Flags::default() }
    }

    /// Rounds `bytes` down to whole segments, then up to the unit of the scaled window. With room
    /// for half a segment, the local side would send half segments from then on.
    pub(in crate::flow) fn whole(&self, bytes: u32) -> u32 {
        let mss = self.mss();
        (bytes / mss * mss).next_multiple_of(1 << self.remote.scale)
    }

    /// The window field for this many bytes, in the remote side's scale.
    pub(in crate::flow) fn window(&self, bytes: u32) -> u16 {
        u16::try_from(bytes >> self.remote.scale).unwrap_or(u16::MAX)
    }

    /// The largest payload of a segment to the remote side, in bytes. Timestamps count towards the
    /// announced size (RFC 6691).
    pub(in crate::flow) fn mss(&self) -> u32 {
        let has_clocks = self.terms.is_some_and(|terms| terms.timestamps);
        let clocks = if has_clocks { TIMESTAMPS_PADDED as u32 } else { 0 };
        u32::from(self.remote.mss).saturating_sub(clocks).max(1)
    }
}
