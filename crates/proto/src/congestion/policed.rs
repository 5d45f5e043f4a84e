//! Whether something on the path drops what is beyond a rate and delays nothing, as a policer does
//! (a token bucket; T. Flach et al., "An Internet-Wide Analysis of Traffic Policing", 2016).
//!
//! `ceiling` finds by experiment that less is lost when less is sent. Random loss does not do that.
//! Bursts of losses seem to by chance, but they are in few of the feedbacks. A full queue does, but
//! what comes shortly after a lost datagram has waited there. So the path is policed if nothing
//! waited, losses are spread, and ceilings are found again at one rate, or once with much loss.
//! BBR's `lt_bw` also asks for one rate (Linux, `net/ipv4/tcp_bbr.c`).
//!
//! Does not know what is policed, and changes no rate. Limits: a queue shorter than a fortieth of
//! the round trip looks like a policer. A sender below the policer's rate notices nothing.

use super::ceiling::Found;
use crate::time::{Duration, Instant};

/// Evidence that makes a policer, and that of one experiment: clear, or where most was lost as the
/// path was sent on as before. One that is only clear may be chance.
const ENOUGH: u8 = 2;
/// Beyond its rate a policer drops some of whatever is sent, a burst of losses only a part of it.
/// Losses come by themselves where at least this part of the feedbacks tells of them that would by
/// chance.
const APART: f64 = 0.6;
/// With this lost part and so many such feedbacks one experiment is enough: where a link is away
/// for a moment, there are one or two.
const SURE: (f64, u32) = (0.25, 5);
/// Two ceilings are one if their rates differ by less than this part (`bbr_lt_bw_ratio`).
const SAME: f64 = 0.125;
/// Ceilings further apart are no row: `ceiling` holds for at most 16 s and feels for up to 20 s.
const ROW: Duration = Duration::from_secs(60);
/// What waits when datagrams are lost is no queue up to this, in seconds, up to this part of the
/// round trip, and up to this part of the jitter. Buffers are rarely below a tenth of a round trip,
/// or TCP could not fill the link.
const WAIT: (f64, f64, f64) = (0.000_3, 0.025, 0.5);
/// Weight of the past, at each round, in what waited when datagrams were lost.
const FADING: f64 = 0.9;

/// Evidence that the path is policed.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Policed {
    /// What waited when datagrams were lost: the sum in seconds, and how often.
    waits: (f64, f64),
    /// Evidence of ceilings in a row, the rate of the first, and when the last was found.
    evidence: u8,
    rate: f64,
    at: Instant,
}

impl Policed {
    /// A feedback told of losses, and its newest datagram waited for so many seconds.
    pub(super) fn lost(&mut self, wait: f64) {
        self.waits = (self.waits.0 + wait, self.waits.1 + 1.0);
    }

    /// A round is over.
    pub(super) fn end_round(&mut self) {
        self.waits = (self.waits.0 * FADING, self.waits.1 * FADING);
    }

    /// A ceiling was found below which less is lost, on a path with a round trip of `rtt` and a
    /// jitter of so many seconds. Returns whether the path is policed.
    pub(super) fn note(&mut self, now: Instant, found: &Found, rtt: Duration, jitter: f64) -> bool {
        let (least, of_trip, of_jitter) = WAIT;
        let most = least.max(of_trip * rtt.as_secs_f64()) + of_jitter * jitter;
        let (sum, count) = self.waits;
        let is_one = (found.arrived - self.rate).abs() < SAME * self.rate
            && now.saturating_since(self.at) < ROW;
        if !is_one {
            (self.evidence, self.rate) = (0, found.arrived);
        }
        self.at = now;
        let evidence = if sum > most * count { 0 } else { evidence(found) };
        self.evidence = if evidence > 0 { self.evidence.saturating_add(evidence) } else { 0 };
        self.evidence >= ENOUGH
    }
}

/// What an experiment says about a policer.
fn evidence(found: &Found) -> u8 {
    let (losses, all) = found.feedbacks;
    let none = (1.0 - found.loss).powf(found.datagrams / f64::from(all.max(1)));
    let by_chance = f64::from(all) * (1.0 - none);
    if f64::from(losses) < APART * by_chance {
        return 0;
    }
    let (loss, feedbacks) = SURE;
    if found.loss >= loss && losses >= feedbacks { ENOUGH } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::super::model::{Link, SIZE, World};

    /// Runs a world for so many seconds: when its first sender was told of a policer first, and of
    /// which rate, in seconds and megabits per second.
    fn told(world: &mut World, seconds: u32, each: impl Fn(&mut World, u32)) -> Option<(f64, f64)> {
        for tenth in 0..seconds * 10 {
            each(world, tenth);
            let end = f64::from(tenth + 1) / 10.0;
            world.run(end);
            if let Some(rate) = world.flows[0].policed.take() {
                return Some((end, rate / 125_000.0));
            }
        }
        None
    }

    #[test]
    fn policers_are_noticed_with_their_rate() {
        let rates =
            [(20.0, 2.0), (20.0, 8.0), (50.0, 2.0), (50.0, 8.0), (50.0, 30.0), (100.0, 30.0)];
        let mut times = Vec::new();
        for trip_ms in [10, 40, 150] {
            for (mbits, policed) in rates {
                for burst in [15e3, 100e3, 1e6] {
                    for (loss, seed) in [(0.0, 1), (0.005, 2)] {
                        let policer = Some((policed * 125_000.0, burst));
                        let link = Link { policer, loss, ..Link::new(mbits, trip_ms) };
                        let mut world = World::new(link, &[0]);
                        world.seed = seed;
                        let told = told(&mut world, 30, |_, _| {});
                        println!(
                            "{mbits}, {policed} policed, {burst}, {trip_ms}, {loss}: {told:?}"
                        );
                        let (time, rate) = told.expect("noticed within 30 s");
                        assert!((0.85..1.2).contains(&(rate / policed)), "its rate");
                        times.push(time);
                    }
                }
            }
        }
        times.sort_by(f64::total_cmp);
        let [half, most] = [50, 80].map(|percent| times[times.len() * percent / 100]);
        assert!(half < 4.0 && most < 12.0, "{half} s in half of them, {most} s in four of five");
    }

    /// What is done to a world in each tenth of a second.
    type Each = fn(&mut World, u32);

    /// What looks like a policer and is none.
    fn others() -> Vec<(&'static str, Link, Each)> {
        let none: Each = |_, _| {};
        let link = Link::new(6.0, 40);
        let product = link.rate * 0.04;
        let random = |loss, bursts| Link { loss, bursts, ..link };
        vec![
            ("a queue of a tenth of a round trip", Link { buffer: 6.0 * SIZE, ..link }, none),
            ("a queue of half a round trip", Link { buffer: product / 2.0, ..link }, none),
            ("a queue of two", Link { buffer: product * 2.0, loss: 0.01, ..link }, none),
            ("a queue that another fills", Link { buffer: product, ..link }, |world, tenth| {
                if tenth == 30 {
                    world.begin_elastic();
                }
            }),
            ("CoDel", Link { codel: true, ..link }, none),
            ("1 % of loss", random(0.01, 1.0), none),
            ("2 % of loss", random(0.02, 1.0), none),
            ("5 % of loss", random(0.05, 1.0), none),
            ("2 % in bursts of 8", random(0.02, 8.0), none),
            ("5 % in bursts of 8", random(0.05, 8.0), none),
            ("5 % in bursts of 20", random(0.05, 20.0), none),
            (
                "a rate that changes",
                Link { buffer: product, loss: 0.005, ..link },
                |world, tenth| {
                    let part = [0.5, 1.4, 1.0, 0.7, 1.2, 1.5, 0.8]
                        [(tenth * tenth / 3 + tenth) as usize % 7];
                    world.link.rate = part * 750_000.0;
                },
            ),
            (
                "less to send than a policer lets by",
                Link { policer: Some((500_000.0, 30e3)), ..link },
                |world, _| {
                    world.flows[0].load = 400_000.0;
                },
            ),
        ]
    }

    #[test]
    fn nothing_else_is_taken_for_a_policer() {
        for (name, link, each) in others() {
            for seed in 1..=100_u64 {
                let trip = [10, 40, 150][seed as usize % 3];
                let link = Link { trip: std::time::Duration::from_millis(trip), ..link };
                let mut world = World::new(link, &[0]);
                world.seed = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                let told = told(&mut world, 15, each);
                assert_eq!(told, None, "{name}, {trip} ms, seed {seed}");
            }
        }
    }
}
