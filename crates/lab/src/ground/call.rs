//! A call: client and server exchange datagrams at a constant rate beside other traffic, and a
//! listener's quality follows from the delays.
//!
//! This module defines the content, and computes figures from the delay of each datagram. It does
//! not know the backend. Delays are one-way: both ends read one clock.

use super::ms;
use crate::emu::MS;

/// IPv4 and UDP header inside the tunnel, in bytes.
const INNER_HEADERS: usize = 28;
/// The least and the most bytes that a tunnel adds to a packet.
const ADDED: (usize, usize) = (20, 48);

/// The content of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// A phone call: each end sends G.711 in RTP, 160 bytes of voice after the 12 of RFC 3550,
    /// every 20 ms (RFC 3551, 4.5.14).
    Voice,
    /// The client sends requests, and the server returns each. They are not RTP; only their port
    /// shows that somebody waits for them.
    Echo {
        /// Time between two requests, in nanoseconds.
        every_ns: u64,
        /// UDP payload of each, in bytes, at least 28.
        bytes: u16,
    },
}

/// A call between client and server, through the tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Its content.
    pub talk: Talk,
    /// Silence before it, in nanoseconds.
    pub silence_ns: u64,
    /// Its length, in nanoseconds.
    pub length_ns: u64,
}

/// The result of a call: the delay of each datagram in nanoseconds, in the order of sending; `None`
/// if it never arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallRun {
    /// From the client to the server.
    pub up: Vec<Option<u64>>,
    /// From the server to the client.
    pub down: Vec<Option<u64>>,
    /// Datagrams of the tunnel, from either end, that carry one of the call's by their length.
    pub carriers: u64,
}

impl Talk {
    /// Time between two datagrams of one end, in nanoseconds.
    pub const fn interval_ns(self) -> u64 {
        match self {
            Self::Voice => 20 * MS,
            Self::Echo { every_ns, .. } => every_ns,
        }
    }

    /// Whether a tunnel datagram with this UDP payload carries one datagram of the call and nothing
    /// else: the bytes that a tunnel adds to a packet are bounded.
    pub fn is_carried_in(self, payload: usize) -> bool {
        let inner = usize::from(self.bytes()) + INNER_HEADERS;
        (inner + ADDED.0..=inner + ADDED.1).contains(&payload)
    }

    /// UDP payload of each, in bytes.
    pub const fn bytes(self) -> u16 {
        match self {
            Self::Voice => 172,
            Self::Echo { bytes, .. } => bytes,
        }
    }
}

impl Call {
    /// The server's port of a call that is not RTP.
    pub const ECHO_PORT: u16 = 7_007;
    /// How long after its regular end late datagrams are awaited.
    pub const PATIENCE_NS: u64 = 1_000 * MS;
    /// The player's wait after the fastest datagram. A later datagram is useless.
    pub const PLAY_OUT_NS: u64 = 60 * MS;

    /// Datagrams that the end sends that begins.
    pub const fn count(&self) -> u32 {
        (self.length_ns / self.talk.interval_ns()) as u32
    }

    /// The time from its beginning to its regular end.
    pub const fn end_ns(&self) -> u64 {
        self.silence_ns + self.length_ns
    }
}

impl CallRun {
    /// Datagrams that never arrived, in both directions.
    pub fn lost(&self) -> u64 {
        self.ways().flatten().filter(|delay| delay.is_none()).count() as u64
    }

    /// Datagrams that were missing when they had to be played: never received, or more than
    /// [`Call::PLAY_OUT_NS`] later than the fastest of their direction.
    pub fn late(&self) -> u64 {
        self.ways().map(late).sum()
    }

    /// When the datagrams were sent that were missing when they had to be played. The fastest delay
    /// of each direction is that of the run `alone`. In nanoseconds from the beginning, with one
    /// datagram every `interval_ns`.
    pub fn late_beside(&self, alone: &Self, interval_ns: u64) -> Vec<u64> {
        let ways = self.ways().zip(alone.ways());
        let late = ways.flat_map(|(delays, alone)| {
            let due_ns = alone.iter().flatten().min().map(|fastest| fastest + Call::PLAY_OUT_NS);
            let is_late = move |delay: Option<u64>| delay.is_none() || delay > due_ns;
            (0..).zip(delays).filter(move |(_, delay)| is_late(**delay)).map(|(number, _)| number)
        });
        late.map(|number: u64| number * interval_ns).collect()
    }

    /// Tunnel datagrams beyond one for each of the call's, as a share of these; `None` if nobody
    /// counted.
    pub fn extra_share(&self) -> Option<f64> {
        let said = self.ways().map(<[_]>::len).sum::<usize>();
        (said > 0 && self.carriers > 0).then(|| self.carriers as f64 / said as f64 - 1.0)
    }

    /// The delays of datagrams that arrived, in both directions, in milliseconds.
    pub fn delays_ms(&self) -> Vec<f64> {
        self.ways().flatten().flatten().map(|ns| ms(*ns)).collect()
    }

    /// Time from each request to its reply, in milliseconds, if it was answered.
    pub fn round_trips_ms(&self) -> Vec<f64> {
        let pairs = self.up.iter().zip(&self.down);
        pairs.filter_map(|(up, down)| Some(ms((*up)? + (*down)?))).collect()
    }

    /// The interarrival jitter of RFC 3550, section 6.4.1, at the end of the worse direction, in
    /// milliseconds; `None` if too few datagrams arrived.
    pub fn jitter_ms(&self) -> Option<f64> {
        self.ways().map(jitter_ms).collect::<Option<Vec<_>>>()?.into_iter().reduce(f64::max)
    }

    /// The mean opinion score of the worse direction, from 1 to 4.5; `None` if nothing arrived.
    ///
    /// By the E-model (ITU-T G.107) in the form of Cole and Rosenbluth ("Voice over IP performance
    /// monitoring", 2001, sections 3 and 4) for G.711 with concealment. Lost and late packets count
    /// alike. The delay is that of the network, of the packet's 20 ms, and of the player's wait.
    pub fn mos(&self) -> Option<f64> {
        self.ways().map(mos).collect::<Option<Vec<_>>>()?.into_iter().reduce(f64::min)
    }

    fn ways(&self) -> impl Iterator<Item = &[Option<u64>]> {
        [&self.up[..], &self.down[..]].into_iter()
    }
}

fn late(delays: &[Option<u64>]) -> u64 {
    let fastest = delays.iter().flatten().min().copied().unwrap_or_default();
    let in_time = |delay: &&u64| **delay <= fastest + Call::PLAY_OUT_NS;
    (delays.len() - delays.iter().flatten().filter(in_time).count()) as u64
}

fn jitter_ms(delays: &[Option<u64>]) -> Option<f64> {
    let mut came = delays.iter().flatten();
    let mut before = *came.next()?;
    let mut jitter = 0.0;
    for &delay in came {
        jitter += (ms(delay.abs_diff(before)) - jitter) / 16.0;
        before = delay;
    }
    Some(jitter)
}

fn mos(delays: &[Option<u64>]) -> Option<f64> {
    let fastest = delays.iter().flatten().min()?;
    let delay_ms = ms(fastest + Call::PLAY_OUT_NS + Talk::Voice.interval_ns());
    let lost = late(delays) as f64 / delays.len() as f64;
    let delayed = 0.024 * delay_ms + 0.11 * (delay_ms - 177.3).max(0.0);
    let concealed = 30.0 * (1.0 + 15.0 * lost).ln();
    let r = (94.2 - delayed - concealed).clamp(0.0, 100.0);
    Some((1.0 + 0.035 * r + 7e-6 * r * (r - 60.0) * (100.0 - r)).max(1.0))
}

#[cfg(test)]
mod tests {
    use super::{Call, CallRun, Talk};
    use crate::emu::MS;

    fn steady(delay_ms: u64) -> CallRun {
        let all = vec![Some(delay_ms * MS); 100];
        CallRun { up: all.clone(), down: all, carriers: 200 }
    }

    #[test]
    fn what_is_not_there_in_time_is_late_whether_it_comes_or_not() {
        let mut run = steady(20);
        run.down[3] = None;
        run.down[4] = Some(80 * MS);
        run.down[5] = Some(80 * MS + 1);
        assert_eq!((run.lost(), run.late()), (1, 2));
        assert_eq!(run.delays_ms().len(), 199);
        assert_eq!(run.round_trips_ms().len(), 99);
        assert_eq!(CallRun { up: vec![None; 3], ..CallRun::default() }.late(), 3);
    }

    #[test]
    fn a_quiet_line_sounds_well_and_a_lossy_one_does_not() {
        // R = 94.2 - 0.024 x 100 = 91.8.
        let clear = steady(20).mos().unwrap();
        assert!((clear - 4.38).abs() < 0.01, "{clear}");
        let mut lossy = steady(20);
        (0..100).step_by(20).for_each(|at| lossy.up[at] = None);
        // Five in a hundred: R is 30 ln 1.75 less.
        let lossy = lossy.mos().unwrap();
        assert!((lossy - 3.83).abs() < 0.01, "{lossy}");
        assert!(steady(400).mos().unwrap() < 3.4, "everybody talks at once");
        assert_eq!(CallRun::default().mos(), None);
    }

    #[test]
    fn jitter_is_that_of_rfc_3550() {
        assert_eq!(steady(20).jitter_ms(), Some(0.0));
        let mut uneven = steady(20);
        uneven.up.iter_mut().step_by(2).for_each(|delay| *delay = Some(36 * MS));
        // Each differs by 16 ms from the one before: it settles there.
        assert!(uneven.jitter_ms().unwrap() > 15.9);
        assert_eq!(CallRun { up: vec![None], down: vec![Some(1)], carriers: 1 }.jitter_ms(), None);
    }

    #[test]
    fn beside_others_it_is_held_against_what_it_was_alone() {
        let mut run = steady(70);
        assert!(run.late_beside(&steady(10), 20).is_empty());
        (run.up[2], run.down[7]) = (Some(70 * MS + 1), None);
        assert_eq!(run.late_beside(&steady(10), 20), [40, 140]);
        assert_eq!(run.late_beside(&CallRun::default(), 20).len(), 200, "it was never heard");
        assert_eq!(CallRun { carriers: 250, ..run }.extra_share(), Some(0.25));
        assert_eq!(CallRun::default().extra_share(), None);
        // With 26 bytes of a tunnel, or twice the length.
        assert!(Talk::Voice.is_carried_in(226) && !Talk::Voice.is_carried_in(426));
    }

    #[test]
    fn so_many_datagrams_are_said() {
        let call = Call { talk: Talk::Voice, silence_ns: MS, length_ns: 1_000 * MS };
        assert_eq!((call.count(), call.end_ns()), (50, 1_001 * MS));
    }
}
