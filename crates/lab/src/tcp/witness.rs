//! What no end may do with a window, as somebody sees it who hears both (RFC 9293, 3.8.6):
//! send beyond what was offered to it, or take back what it offered.

use super::segment::Segment;
use super::side::Side;

/// Listens to both ends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Witness {
    client: Offered,
    server: Offered,
}

/// The windows that one end offers.
#[derive(Clone, Copy, Debug, Default)]
struct Offered {
    /// By how many bits they are shifted, if both said so.
    shift: Option<u8>,
    /// The furthest right edge that it said, and that the other has heard.
    said: Option<u32>,
    heard: Option<u32>,
}

impl Witness {
    /// A segment leaves an end.
    pub(super) fn leaves(&mut self, from: Side, segment: &Segment) -> Result<(), String> {
        if segment.flags.rst {
            return Ok(());
        }
        if segment.flags.syn {
            self.of(from).shift = segment.options.window_scale;
        }
        let shifts = (self.client.shift, self.server.shift);
        let end = segment.sequence.wrapping_add(segment.sequence_length() as u32);
        let heard = self.of(from.other()).heard;
        if !segment.payload.is_empty() && heard.is_none_or(|edge| is_after(end, edge)) {
            return Err(format!("{from:?} sends up to {end}, the window ends at {heard:?}"));
        }
        let offered = self.of(from);
        let Some(edge) = edge(segment, offered.shift, shifts) else { return Ok(()) };
        if let Some(said) = offered.said.filter(|said| is_after(*said, edge)) {
            return Err(format!("{from:?} takes its window back from {said} to {edge}"));
        }
        offered.said = Some(edge);
        Ok(())
    }

    /// A segment arrives at an end.
    pub(super) fn arrives(&mut self, at: Side, segment: &Segment) {
        let shifts = (self.client.shift, self.server.shift);
        let offered = self.of(at.other());
        if let Some(edge) = edge(segment, offered.shift, shifts)
            && offered.heard.is_none_or(|heard| is_after(edge, heard))
        {
            offered.heard = Some(edge);
        }
    }

    const fn of(&mut self, side: Side) -> &mut Offered {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }
}

/// The first sequence number for which a segment offers no room.
fn edge(segment: &Segment, shift: Option<u8>, both: (Option<u8>, Option<u8>)) -> Option<u32> {
    let scaled = both.0.is_some() && both.1.is_some() && !segment.flags.syn;
    let shift = shift.filter(|_| scaled).unwrap_or(0);
    let acknowledgment = segment.acknowledgment?;
    Some(acknowledgment.wrapping_add(u32::from(segment.window) << shift))
}

const fn is_after(a: u32, b: u32) -> bool {
    a.wrapping_sub(b).cast_signed() > 0
}
