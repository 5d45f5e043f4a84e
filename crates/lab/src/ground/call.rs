//! Client and server talk by datagrams, at a steady pace, beside what else they carry; and what a
//! listener makes of what came.
//!
//! Decides what is said and how figures follow from how long each datagram took. What it refuses to
//! know: who carries it out. Delays are one way: both ends read one clock.

use super::ms;
use crate::emu::MS;

/// IPv4 and UDP header inside the tunnel, in bytes.
const INNER_HEADERS: usize = 28;
/// The least and the most bytes that a tunnel adds to a packet.
const ADDED: (usize, usize) = (20, 48);

/// What is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Talk {
    /// Two people: either end sends G.711 in RTP, 160 bytes of voice behind the 12 of RFC 3550,
    /// every 20 ms (RFC 3551, 4.5.14).
    Voice,
    /// The client asks, the server sends each question back. Nothing of RTP is in them, and only
    /// its port tells that anybody waits for it.
    Echo {
        /// Time between two questions, in nanoseconds.
        every_ns: u64,
        /// UDP payload of each, in bytes, at least 28.
        bytes: u16,
    },
}

/// A talk between client and server, through the tunnel.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// What is said.
    pub talk: Talk,
    /// How long nothing is said at first, in nanoseconds.
    pub silence_ns: u64,
    /// For how long, in nanoseconds.
    pub length_ns: u64,
}

/// How a talk went: how long each datagram took, in nanoseconds, in the order of sending; `None`
/// where it never came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallRun {
    /// From the client to the server.
    pub up: Vec<Option<u64>>,
    /// From the server to the client.
    pub down: Vec<Option<u64>>,
    /// Datagrams of the tunnel that left either end of it and carry, by their length, one of the
    /// talk's.
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

    /// Whether a datagram of the tunnel with so many bytes of UDP payload carries one of the
    /// talk's, and nothing else: what a tunnel adds to a packet is within some bounds.
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
    /// The server's port of a talk that is no voice.
    pub const ECHO_PORT: u16 = 7_007;
    /// How long after its regular end late datagrams are waited for.
    pub const PATIENCE_NS: u64 = 1_000 * MS;
    /// How long after the fastest a datagram is played: what is later is of no use.
    pub const PLAY_OUT_NS: u64 = 60 * MS;

    /// How many datagrams an end sends that speaks first.
    pub const fn count(&self) -> u32 {
        (self.length_ns / self.talk.interval_ns()) as u32
    }

    /// The time from its beginning to its regular end.
    pub const fn end_ns(&self) -> u64 {
        self.silence_ns + self.length_ns
    }
}

impl CallRun {
    /// Datagrams that never came, both ways.
    pub fn lost(&self) -> u64 {
        self.ways().flatten().filter(|delay| delay.is_none()).count() as u64
    }

    /// Datagrams that were not there when they had to be played: never, or more than
    /// [`Call::PLAY_OUT_NS`] later than the fastest of their direction.
    pub fn late(&self) -> u64 {
        self.ways().map(late).sum()
    }

    /// When those were sent that were not there when they had to be played by who heard `alone`
    /// before, the fastest of their direction: in nanoseconds from the beginning, with one every
    /// `interval_ns`.
    pub fn late_beside(&self, alone: &Self, interval_ns: u64) -> Vec<u64> {
        let ways = self.ways().zip(alone.ways());
        let late = ways.flat_map(|(delays, alone)| {
            let due_ns = alone.iter().flatten().min().map(|fastest| fastest + Call::PLAY_OUT_NS);
            let is_late = move |delay: Option<u64>| delay.is_none() || delay > due_ns;
            (0..).zip(delays).filter(move |(_, delay)| is_late(**delay)).map(|(number, _)| number)
        });
        late.map(|number: u64| number * interval_ns).collect()
    }

    /// What was sent beyond one datagram of the tunnel for each of the talk's, as a share of those;
    /// `None` where nobody looked.
    pub fn extra_share(&self) -> Option<f64> {
        let said = self.ways().map(<[_]>::len).sum::<usize>();
        (said > 0 && self.carriers > 0).then(|| self.carriers as f64 / said as f64 - 1.0)
    }

    /// How long those that came took, both ways, in milliseconds.
    pub fn delays_ms(&self) -> Vec<f64> {
        self.ways().flatten().flatten().map(|ns| ms(*ns)).collect()
    }

    /// From each question to its answer, in milliseconds, of those that were answered.
    pub fn round_trips_ms(&self) -> Vec<f64> {
        let pairs = self.up.iter().zip(&self.down);
        pairs.filter_map(|(up, down)| Some(ms((*up)? + (*down)?))).collect()
    }

    /// The interarrival jitter of RFC 3550, section 6.4.1, at the end of the worse direction, in
    /// milliseconds; `None` where too little came.
    pub fn jitter_ms(&self) -> Option<f64> {
        self.ways().map(jitter_ms).collect::<Option<Vec<_>>>()?.into_iter().reduce(f64::max)
    }

    /// How the worse direction sounds, as a mean opinion score from 1 to 4.5; `None` where nothing
    /// came.
    ///
    /// By the E-model (ITU-T G.107) in the form of Cole and Rosenbluth ("Voice over IP performance
    /// monitoring", 2001, sections 3 and 4) for G.711 with concealment: what is lost and what is
    /// late count alike, and the delay is that of the network, of the packet's 20 ms, and of the
    /// wait for its turn to be played.
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
