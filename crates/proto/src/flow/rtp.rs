//! Whether datagrams are RTP (RFC 3550): by each one's header, and by whether one follows from the
//! other. SRTP (RFC 3711) leaves the header in the clear and looks the same.
//!
//! A header alone proves little: of random datagrams one in five has the version and a payload type
//! that could be. What is not random is that the next one of the same source carries the next
//! number and a time not far away; so a datagram counts only where it continues a stream. Of the
//! captures that this was tried on, no datagram of anything else ever did
//! (`testdata/rtp/README.md`).

/// The fixed part of the header (RFC 3550, 5.1).
const HEADER: usize = 12;
/// Payload types that are RTCP's where both share a port (RFC 5761, section 4).
const OF_RTCP: std::ops::RangeInclusive<u8> = 64..=95;
/// How far the next number of a stream may be ahead or behind: some get lost, or overtaken.
const STEP_MAX: u16 = 64;
/// How far its time may be: 23 s at the 90 kHz of video. Frames that are predicted from later ones
/// go back.
const LEAP_MAX: u32 = 1 << 21;
/// Streams of one direction of a flow that are followed: voice, picture, and what repairs them.
const STREAMS: usize = 3;
/// Datagrams that a verdict looks back on.
const WINDOW: u32 = 16;
/// So many of them at least have to continue a stream before anything is called RTP,
const PROOF: u32 = 5;
/// and fewer than one of so many for it to be taken back.
const REST: u32 = 4;

/// The header of one datagram, as far as it tells streams apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Of the datagram within its stream.
    pub sequence: u16,
    /// Of what is in it, in units of the payload's clock.
    pub timestamp: u32,
    /// Names the source.
    pub source: u32,
}

impl Header {
    /// Reads the header of a UDP payload of `len` bytes of which `head` is the beginning; `None`
    /// where it is not RTP's: another version, RTCP, or longer than the datagram.
    pub fn parse(head: &[u8], len: usize) -> Option<Self> {
        let &[first, second, s1, s0, t3, t2, t1, t0, a, b, c, d] = head.first_chunk::<HEADER>()?;
        if first >> 6 != 2 || OF_RTCP.contains(&(second & 0x7f)) {
            return None;
        }
        let mut before = HEADER + usize::from(first & 0xf) * 4;
        if first & 0x10 != 0 {
            let words = head.get(before + 2..before + 4)?;
            before += 4 + usize::from(u16::from_be_bytes([words[0], words[1]])) * 4;
        }
        let padding = match head.last() {
            Some(&padding) if first & 0x20 != 0 && head.len() == len => usize::from(padding.max(1)),
            Some(_) | None => 0,
        };
        (before + padding < len).then(|| Self {
            sequence: u16::from_be_bytes([s1, s0]),
            timestamp: u32::from_be_bytes([t3, t2, t1, t0]),
            source: u32::from_be_bytes([a, b, c, d]),
        })
    }

    /// Whether `next` may come soon after this one, or a little before it, in one stream.
    const fn goes_on_with(&self, next: &Self) -> bool {
        let step = next.sequence.wrapping_sub(self.sequence);
        let leap = next.timestamp.wrapping_sub(self.timestamp);
        let is_near = step != 0 && (step <= STEP_MAX || step >= STEP_MAX.wrapping_neg());
        is_near && (leap <= LEAP_MAX || leap >= LEAP_MAX.wrapping_neg())
    }
}

/// What the datagrams of one flow look like, both directions together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Likeness {
    /// Of each direction, the newest of each stream, the one heard of last first.
    streams: [[Option<Header>; STREAMS]; 2],
    /// Of the last datagrams, which continued a stream; the newest is the lowest bit.
    recent: u16,
    /// How many of those there were.
    seen: u32,
    is_rtp: bool,
}

impl Likeness {
    /// Takes notice of a datagram: its header, if it has one, and which of the two ends sent it.
    /// Returns whether the flow is RTP.
    ///
    /// It is once most of the last sixteen datagrams, five at least, continue a stream, and no
    /// longer when fewer than a quarter do: what opens the way for a call and what reports on it
    /// go between.
    pub(crate) fn note(&mut self, from_here: bool, header: Option<Header>) -> bool {
        let continues = header.is_some_and(|header| self.follow(from_here, header));
        self.recent = self.recent << 1 | u16::from(continues);
        self.seen = (self.seen + 1).min(WINDOW);
        let count = self.recent.count_ones();
        self.is_rtp = if self.is_rtp {
            count * REST >= self.seen
        } else {
            count >= PROOF && count * 2 > self.seen
        };
        self.is_rtp
    }

    /// Whether the flow is RTP.
    pub(crate) const fn is_rtp(&self) -> bool {
        self.is_rtp
    }

    /// Whether a datagram continues a stream. One that does not begins another, in the place of the
    /// one that was heard of least recently.
    fn follow(&mut self, from_here: bool, header: Header) -> bool {
        let streams = &mut self.streams[usize::from(from_here)];
        let of_source = |known: &Option<Header>| known.is_some_and(|k| k.source == header.source);
        let place = streams.iter().position(of_source);
        let known = place.and_then(|place| streams[place]);
        let continues = known.is_some_and(|known| known.goes_on_with(&header));
        let is_ahead =
            |known: &Header| known.sequence.wrapping_sub(header.sequence) <= u16::MAX / 2;
        let newest = known.filter(|known| continues && is_ahead(known)).unwrap_or(header);
        streams[..=place.unwrap_or(STREAMS - 1)].rotate_right(1);
        streams[0] = Some(newest);
        continues
    }
}

const _: () = assert!(WINDOW == u16::BITS);

#[cfg(test)]
#[path = "rtp_tests.rs"]
mod tests;
