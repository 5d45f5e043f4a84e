//! The traffic of a draw, the hosts beside the tunnel, and the events of its links.
//!
//! This module decides the probability of each kind of traffic and of each event. All of them stand
//! here, and no draw is selected by its result.

use super::link::{QUEUE_BYTES_MIN, QUEUE_MS, bits, log_uniform};
use crate::emu::{LinkConfig, MS, PipeConfig, Rng, SECOND};
use crate::ground::{Act, Congestion, Cue, FIRST_LINK, Pace, What};

/// Out of this number of draws, three carry TCP alone, one TCP beside QUIC, one QUIC alone, and one
/// TCP beside datagrams at a constant rate.
const KINDS: u64 = 6;
/// The rate of datagrams at a constant rate, as a part of all links' capacity.
const CLOCK_PART: (f64, f64) = (0.05, 1.2);
/// One draw in this number has a connection in the other direction as well.
const BACK_IN: u64 = 4;
/// In one draw in this number, TCP is limited by its programs:
const PIECES_IN: u64 = 6;
/// all together they send this part of all links' capacity,
const PIECES_PART: (f64, f64) = (0.1, 1.0);
/// in pieces, one after each time of these milliseconds.
const PIECES_MS: (f64, f64) = (20.0, 2_000.0);
/// In one draw in this number, all links share one bottleneck,
const BOTTLENECK_IN: u64 = 3;
/// which has this part of all links' capacity.
const BOTTLENECK_PART: (f64, f64) = (0.3, 1.0);
/// One bottleneck in this number has a connection of another host beside the tunnel.
const OTHERS_IN: u64 = 2;
/// Out of this number of draws, one has a link that is silent for a while, one a link that is down
/// for a while, and one a client that moves.
const EVENTS: u64 = 6;
/// How long a link is silent or down, in milliseconds.
const AWAY_MS: (f64, f64) = (200.0, 3_000.0);

/// The traffic.
#[derive(Clone, Debug)]
pub(super) struct Traffic {
    /// TCP connections in the direction of the draw,
    pub(super) flows: u32,
    /// their congestion control,
    pub(super) congestion: Congestion,
    /// and the part of all links' capacity that their programs send, with the time between pieces;
    /// `None` if programs send as fast as TCP takes it.
    pieces: Option<(f64, u64)>,
    /// Whether there is a connection in the other direction as well.
    pub(super) is_both_ways: bool,
    /// The datagrams beside.
    datagrams: Option<Kind>,
    /// The bottleneck behind all links.
    pub(super) bottleneck: Option<Bottleneck>,
    event: Option<Event>,
}

/// Datagrams of a draw.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Quic(Congestion),
    /// At a constant rate: this part of all links' capacity.
    Clock(f64),
}

/// A bottleneck behind all links.
#[derive(Clone, Debug)]
pub(super) struct Bottleneck {
    /// Its rate as a part of all links' capacity.
    part: f64,
    queue_ms: u64,
    /// The congestion control of another host's connection beside the tunnel, if there is one.
    pub(super) other: Option<Congestion>,
}

/// An event of the links.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    /// A link is silent for a while.
    Silent { link: usize, at_ns: u64, until_ns: u64 },
    /// A link is down for a while.
    Down { link: usize, at_ns: u64, until_ns: u64 },
    /// The client has only its first link, whose address changes.
    Readdressed { at_ns: u64 },
    /// The client has only its first link, and then only its second.
    Moved { at_ns: u64 },
}

impl Traffic {
    /// TCP connections alone.
    pub(super) const fn usual(flows: u32) -> Self {
        Self {
            flows,
            congestion: Congestion::Cubic,
            pieces: None,
            is_both_ways: false,
            datagrams: None,
            bottleneck: None,
            event: None,
        }
    }

    /// For this number of TCP connections, if there are any, over this number of links. The part
    /// that counts lasts from one moment to another.
    pub(super) fn draw(rng: &mut Rng, flows: u32, links: usize, counts_ns: (u64, u64)) -> Self {
        let congestion = if rng.below(3) == 0 { Congestion::Bbr } else { Congestion::Cubic };
        let quic = if rng.below(2) == 0 { Congestion::Bbr } else { Congestion::Cubic };
        let clock = log_uniform(rng, CLOCK_PART);
        let (flows, datagrams) = match rng.below(KINDS) {
            0 => (flows, Some(Kind::Quic(quic))),
            1 => (0, Some(Kind::Quic(quic))),
            2 => (flows, Some(Kind::Clock(clock))),
            _ => (flows, None),
        };
        let is_both_ways = rng.below(BACK_IN) == 0;
        let pieces = (log_uniform(rng, PIECES_PART), log_uniform(rng, PIECES_MS) as u64 * MS);
        let pieces = (rng.below(PIECES_IN) == 0 && flows > 0).then_some(pieces);
        let bottleneck = Bottleneck::draw(rng);
        let event = Event::draw(rng, links, counts_ns);
        Self { flows, congestion, pieces, is_both_ways, datagrams, bottleneck, event }
    }

    /// The pace of a program of one of its connections over links with this sum of rates.
    pub(super) fn pace(&self, sum_mbps: f64) -> Pace {
        self.pieces.map_or(Pace::Full, |(part, every_ns)| {
            let bytes = bits(sum_mbps * part) as f64 / 8.0 * every_ns as f64 / SECOND as f64;
            let bytes = (bytes / f64::from(self.flows)).ceil().max(1.0);
            Pace::Pieces { bytes: bytes as u32, every_ns }
        })
    }

    /// Its datagrams, over links with this sum of rates.
    pub(super) fn datagrams(&self, sum_mbps: f64) -> Option<What> {
        self.datagrams.map(|kind| match kind {
            Kind::Quic(congestion) => What::Quic { congestion },
            Kind::Clock(part) => What::Clock { kbps: (sum_mbps * part * 1e3) as u64 },
        })
    }

    /// Whether one of its senders takes all the capacity.
    const fn is_greedy(&self) -> bool {
        (self.flows > 0 && self.pieces.is_none()) || matches!(self.datagrams, Some(Kind::Quic(_)))
    }

    /// The demand of its senders in the direction of the draw over links with this sum of rates;
    /// `None` if one of them wants all.
    pub(super) fn wants_mbps(&self, sum_mbps: f64) -> Option<f64> {
        let pieces = self.pieces.map_or(0.0, |(part, _)| part);
        let clock = if let Some(Kind::Clock(part)) = self.datagrams { part } else { 0.0 };
        (!self.is_greedy()).then_some(sum_mbps * (pieces + clock))
    }

    /// The acts before any traffic,
    pub(super) fn before(&self, links: usize) -> Vec<Act> {
        match self.event {
            Some(Event::Readdressed { .. } | Event::Moved { .. }) => {
                (FIRST_LINK + 1..links).map(Act::Unplug).collect()
            }
            Some(Event::Silent { .. } | Event::Down { .. }) | None => Vec::new(),
        }
    }

    /// and those during it.
    pub(super) fn script(&self) -> Vec<Cue> {
        match self.event {
            Some(Event::Silent { link, at_ns, until_ns }) => {
                vec![Cue::at(at_ns, Act::Swallow(link)), Cue::at(until_ns, Act::Return(link))]
            }
            Some(Event::Down { link, at_ns, until_ns }) => {
                vec![Cue::at(at_ns, Act::Unplug(link)), Cue::at(until_ns, Act::Replug(link))]
            }
            Some(Event::Readdressed { at_ns }) => vec![Cue::at(at_ns, Act::Relocate)],
            Some(Event::Moved { at_ns }) => vec![
                Cue::at(at_ns, Act::Unplug(FIRST_LINK)),
                Cue::at(at_ns, Act::Replug(FIRST_LINK + 1)),
            ],
            None => Vec::new(),
        }
    }

    /// The times between two moments in which a link of this number carries.
    pub(super) fn carries(&self, link: usize, (from_ns, to_ns): (u64, u64)) -> Vec<(u64, u64)> {
        let all = vec![(from_ns, to_ns)];
        let within = |at_ns: u64| at_ns.clamp(from_ns, to_ns);
        match self.event {
            Some(
                Event::Silent { link: away, at_ns, until_ns }
                | Event::Down { link: away, at_ns, until_ns },
            ) if away == link => {
                vec![(from_ns, within(at_ns)), (within(until_ns), to_ns)]
            }
            Some(Event::Silent { .. } | Event::Down { .. }) | None => all,
            Some(Event::Readdressed { .. }) if link == FIRST_LINK => all,
            Some(Event::Moved { at_ns }) if link == FIRST_LINK => vec![(from_ns, within(at_ns))],
            Some(Event::Moved { at_ns }) if link == FIRST_LINK + 1 => {
                vec![(within(at_ns), to_ns)]
            }
            Some(Event::Readdressed { .. } | Event::Moved { .. }) => Vec::new(),
        }
    }

    /// As text.
    pub(super) fn name(&self) -> String {
        let mut words = Vec::new();
        if self.flows > 0 {
            let pieces = self.pieces.map_or_else(String::new, |(part, every_ns)| {
                format!(" of programs that send {part:.2} of the sum every {} ms", every_ns / MS)
            });
            words.push(format!("{} x TCP {}{pieces}", self.flows, self.congestion.name()));
        }
        match self.datagrams {
            Some(Kind::Quic(congestion)) => words.push(format!("QUIC {}", congestion.name())),
            Some(Kind::Clock(part)) => words.push(format!("UDP at {part:.2} of the sum")),
            None => {}
        }
        if self.is_both_ways {
            words.push("TCP the other way".to_owned());
        }
        if let Some(Bottleneck { part, queue_ms, other }) = &self.bottleneck {
            words.push(format!("a bottleneck of {part:.2} of the sum with {queue_ms} ms of queue"));
            words.extend(other.map(|other| format!("{} beside the tunnel", other.name())));
        }
        match self.event {
            Some(Event::Silent { link, at_ns, until_ns }) => {
                words.push(format!("link {} silent for {} ms", link + 1, (until_ns - at_ns) / MS));
            }
            Some(Event::Down { link, at_ns, until_ns }) => {
                words.push(format!("link {} down for {} ms", link + 1, (until_ns - at_ns) / MS));
            }
            Some(Event::Readdressed { .. }) => words.push("only link 1, readdressed".to_owned()),
            Some(Event::Moved { .. }) => words.push("only link 1, then only link 2".to_owned()),
            None => {}
        }
        words.join(", ")
    }
}

impl Bottleneck {
    fn draw(rng: &mut Rng) -> Option<Self> {
        let part = log_uniform(rng, BOTTLENECK_PART);
        let queue_ms = log_uniform(rng, QUEUE_MS).round() as u64;
        let other = if rng.below(2) == 0 { Congestion::Bbr } else { Congestion::Cubic };
        let other = (rng.below(OTHERS_IN) == 0).then_some(other);
        (rng.below(BOTTLENECK_IN) == 0).then_some(Self { part, queue_ms, other })
    }

    /// Its rate behind links with this sum of rates.
    pub(super) const fn mbps(&self, sum_mbps: f64) -> f64 {
        self.part * sum_mbps
    }

    /// The emulator's form of it.
    pub(super) fn config(&self, sum_mbps: f64) -> LinkConfig {
        let clean = PipeConfig::clean(bits(self.mbps(sum_mbps)), 0).with_queue_ms(self.queue_ms);
        let queue_bytes = clean.queue_bytes.max(QUEUE_BYTES_MIN);
        let pipe = PipeConfig { queue_bytes, ..clean };
        LinkConfig { up: pipe.clone(), down: pipe }
    }
}

impl Event {
    /// It begins in the first half of the part that counts.
    fn draw(rng: &mut Rng, links: usize, (from_ns, to_ns): (u64, u64)) -> Option<Self> {
        let at_ns = from_ns + rng.below((to_ns - from_ns) / 2);
        let until_ns = at_ns + (log_uniform(rng, AWAY_MS) * MS as f64) as u64;
        let link = rng.below(links as u64) as usize;
        let is_readdressed = rng.below(2) == 0;
        Some(match rng.below(EVENTS) {
            0 => Self::Silent { link, at_ns, until_ns },
            1 => Self::Down { link, at_ns, until_ns },
            2 if is_readdressed => Self::Readdressed { at_ns },
            2 => Self::Moved { at_ns },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: (u64, u64) = (5 * SECOND, 10 * SECOND);

    fn all() -> Vec<Traffic> {
        let draw = |number| Traffic::draw(&mut Rng::new(number), 4, 3, COUNTS);
        (0..3_000).map(draw).collect()
    }

    #[test]
    fn every_kind_of_traffic_and_event_comes_up_as_often_as_its_chance_says() {
        let all = all();
        let part = |is: &dyn Fn(&Traffic) -> bool| {
            all.iter().filter(|one| is(one)).count() as f64 / all.len() as f64
        };
        let near = |is: &dyn Fn(&Traffic) -> bool, expected: f64| {
            assert!((part(is) - expected).abs() < 0.03, "{} is not {expected}", part(is));
        };
        near(&|one| matches!(one.datagrams, Some(Kind::Quic(_))), 1.0 / 3.0);
        near(&|one| matches!(one.datagrams, Some(Kind::Clock(_))), 1.0 / 6.0);
        near(&|one| one.flows == 0, 1.0 / 6.0);
        near(&|one| one.is_both_ways, 0.25);
        near(&|one| one.bottleneck.is_some(), 1.0 / 3.0);
        let is_beside = |one: &Traffic| one.bottleneck.as_ref().is_some_and(|b| b.other.is_some());
        near(&is_beside, 1.0 / 6.0);
        near(&|one| matches!(one.event, Some(Event::Silent { .. })), 1.0 / 6.0);
        near(&|one| matches!(one.event, Some(Event::Down { .. })), 1.0 / 6.0);
        near(&|one| matches!(one.event, Some(Event::Readdressed { .. })), 1.0 / 12.0);
        near(&|one| matches!(one.event, Some(Event::Moved { .. })), 1.0 / 12.0);
    }

    #[test]
    fn something_is_carried_always_and_every_event_is_in_time() {
        for traffic in all() {
            let what = traffic.name();
            assert!(traffic.flows > 0 || traffic.datagrams.is_some(), "{what}");
            assert!(traffic.wants_mbps(10.0).is_none_or(|mbps| mbps > 0.0), "{what}");
            let script = traffic.script();
            assert!(script.is_sorted_by_key(|cue| cue.at_ns), "{what}");
            let in_time = |cue: &Cue| (COUNTS.0..COUNTS.1 + 3 * SECOND).contains(&cue.at_ns);
            assert!(script.iter().all(in_time), "{what}");
        }
    }

    #[test]
    fn a_link_carries_when_it_is_there() {
        let usual = Traffic::draw(&mut Rng::new(1), 4, 3, COUNTS);
        let carries = |event, link| {
            Traffic { event, ..usual.clone() }
                .carries(link, (10, 20))
                .into_iter()
                .collect::<Vec<_>>()
        };
        let away = Some(Event::Silent { link: 1, at_ns: 12, until_ns: 15 });
        assert_eq!(carries(away, 0), [(10, 20)]);
        assert_eq!(carries(away, 1), [(10, 12), (15, 20)]);
        let longer = Some(Event::Down { link: 0, at_ns: 12, until_ns: 25 });
        assert_eq!(carries(longer, 0), [(10, 12), (20, 20)]);
        let moved = Some(Event::Moved { at_ns: 14 });
        assert_eq!([0, 1, 2].map(|link| carries(moved, link).len()), [1, 1, 0]);
        assert_eq!(carries(moved, 1), [(14, 20)]);
        assert_eq!(carries(Some(Event::Readdressed { at_ns: 14 }), 0), [(10, 20)]);
    }
}
