//! Decides when to look up the gateway's name. It looks it up at once if the answer may have
//! changed, and slowly otherwise. It never sends a storm of queries, whatever the answers and
//! however often links change.
//!
//! A network's name servers often appear in resolv.conf shortly after its address. While no path
//! works, this module watches them. Servers that were not asked before are a reason to look the
//! name up again.
//!
//! It decides only the times and does not know the name. Limit: it ignores the time to live of DNS
//! records. A stale answer causes another lookup, a little later each time.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How often the name is asked for while nobody answers at the known addresses.
const EVERY: Duration = Duration::from_secs(5);
/// Between two questions at least: one plugged cable is several changes of links.
const APART: Duration = Duration::from_millis(250);
/// How soon the name is asked for again when the answer was that of before; twice as long after
/// each such answer, up to [`EVERY`].
const STALE: Duration = Duration::from_millis(500);
/// No more than so many questions ...
const BURST: usize = 6;
/// ... in this time.
const BURST_TIME: Duration = Duration::from_secs(10);
/// How often it is asked for while a stream carries: UDP may work elsewhere, and cost less.
const BY_STREAM: Duration = Duration::from_secs(60);
/// How often the list of name servers is checked after this host moved to another network, ...
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// ... and for how long: DHCP and router advertisements take a second or two.
const LOOK_FOR: Duration = Duration::from_secs(30);
/// While UDP carries nothing is asked; this is no more than a bound for the clock.
const AT_REST: Duration = Duration::from_secs(3_600);

/// The questions for a name: those that were asked, and when the next is due.
#[derive(Debug)]
pub(super) struct Lookups {
    due: Instant,
    /// The last [`BURST`], oldest first.
    asked: VecDeque<Instant>,
    /// How long after the last question a stale answer has the next one follow.
    pause: Duration,
    /// The name servers outside the tunnel that were last asked.
    servers: Vec<SocketAddr>,
    /// When to check the list of name servers next, and until when.
    look: Option<(Instant, Instant)>,
}

impl Lookups {
    /// The first one is due.
    pub(super) fn new(now: Instant) -> Self {
        let (asked, servers) = (VecDeque::with_capacity(BURST), Vec::new());
        Self { due: now, asked, pause: EVERY, servers, look: Some((now, now + LOOK_FOR)) }
    }

    /// This host moved to another network, whose name servers may become known only later.
    pub(super) fn moved(&mut self, now: Instant) {
        self.look = Some((now, now + LOOK_FOR));
        self.hurry(now);
    }

    /// When to check the list of name servers.
    pub(super) fn look_due(&self) -> Option<Instant> {
        self.look.map(|(due, _)| due)
    }

    /// Notes the servers that the present query goes to.
    pub(super) fn asks_at(&mut self, servers: &[SocketAddr]) {
        self.servers = servers.to_vec();
    }

    /// Notes the checked list. If it differs from the servers that were asked and
    /// `nothing_carries`, the new servers are asked soon.
    pub(super) fn looked(&mut self, now: Instant, servers: &[SocketAddr], nothing_carries: bool) {
        if nothing_carries && servers != self.servers {
            self.hurry(now);
        }
        let next = now + LOOK_EVERY;
        self.look = self.look.filter(|&(_, until)| next < until).map(|(_, until)| (next, until));
    }

    /// When the next one is due; whether it is wanted then is the caller's to say.
    pub(super) const fn due(&self) -> Instant {
        self.due
    }

    /// A question is asked.
    pub(super) fn ask(&mut self, now: Instant) {
        while self.asked.len() >= BURST {
            self.asked.pop_front();
        }
        self.asked.push_back(now);
        self.due = self.allowed(now, EVERY);
    }

    /// No question is wanted until something happens.
    pub(super) fn rest(&mut self, now: Instant) {
        self.due = now + AT_REST;
    }

    /// A stream carries, and UDP does not: the name may say why.
    pub(super) fn ask_by_stream(&mut self, now: Instant) {
        self.due = self.due.min(now + BY_STREAM);
    }

    /// A question was asked while a stream carries: there is time until the next.
    pub(super) fn ease(&mut self, now: Instant) {
        self.due = now + BY_STREAM;
    }

    /// Nothing carries, as before.
    pub(super) fn go_on(&mut self, now: Instant) {
        self.due = self.due.min(self.allowed(now, EVERY));
    }

    /// Another answer is likely: this host is on another network, or nothing carries any more.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.pause = STALE;
        self.due = self.due.min(self.allowed(now, APART));
    }

    /// The answer was another: whether somebody answers there needs its time.
    pub(super) fn fresh(&mut self) {
        self.pause = EVERY;
    }

    /// The answer was that of before, and nothing carries.
    pub(super) fn stale(&mut self, now: Instant) {
        self.due = self.due.min(self.allowed(now, self.pause));
        self.pause = (self.pause * 2).min(EVERY);
    }

    /// The first moment at which a question may follow the last one after `pause`.
    fn allowed(&self, now: Instant, pause: Duration) -> Instant {
        let after_last = self.asked.back().map(|&last| last + pause);
        let full = self.asked.len() == BURST;
        let after_burst = self.asked.front().filter(|_| full).map(|&first| first + BURST_TIME);
        [after_last, after_burst].into_iter().flatten().fold(now, Instant::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// Asks whenever it is due until `until`, each answer being `answer`ed; the moments.
    fn asked(
        lookups: &mut Lookups,
        mut now: Instant,
        until: Instant,
        answer: fn(&mut Lookups, Instant),
    ) -> Vec<u128> {
        let began = now;
        let mut moments = Vec::new();
        while lookups.due().max(now) < until {
            now = lookups.due().max(now);
            lookups.ask(now);
            moments.push((now - began).as_millis());
            answer(lookups, now + 20 * MS);
        }
        moments
    }

    #[test]
    fn who_moved_asks_at_once_however_short_ago_it_asked() {
        let began = Instant::now();
        let mut lookups = Lookups::new(began);
        lookups.ask(began);
        lookups.rest(began + 100 * MS);
        let moved = began + 1_300 * MS;
        lookups.hurry(moved);
        assert_eq!(lookups.due(), moved);
        // An answer that changes nothing is asked for again, ever later.
        let moments = asked(&mut lookups, moved, moved + 8_000 * MS, Lookups::stale);
        assert_eq!(moments, [0, 500, 1_500, 3_500, 7_500]);
        // With another answer there is somebody else to wait for.
        lookups.hurry(moved);
        lookups.fresh();
        let moments = asked(&mut lookups, moved + 20_000 * MS, moved + 32_000 * MS, Lookups::stale);
        assert_eq!(moments, [0, 5_000, 10_000]);
        // The several changes that a plugged cable is are one.
        let mut lookups = Lookups::new(began);
        lookups.ask(began);
        lookups.hurry(began + 10 * MS);
        lookups.hurry(began + 20 * MS);
        assert_eq!(lookups.due(), began + APART);
    }

    #[test]
    fn name_servers_are_looked_for_after_a_move_and_not_for_ever() {
        let mut now = Instant::now();
        let mut lookups = Lookups::new(now);
        for _ in 0..2 {
            let began = now;
            let mut looks = 0;
            while let Some(due) = lookups.look_due() {
                now = now.max(due);
                lookups.looked(now, &[], true);
                looks += 1;
            }
            assert_eq!(looks, LOOK_FOR.as_millis() / LOOK_EVERY.as_millis());
            assert!(now - began < LOOK_FOR);
            lookups.moved(now);
        }
        let server: SocketAddr = ([192, 0, 2, 53], 53).into();
        lookups.ask(now);
        lookups.rest(now);
        lookups.asks_at(&[server]);
        let later = now + 5_000 * MS;
        for (servers, nothing_carries) in [(vec![], false), (vec![server], true)] {
            lookups.looked(later, &servers, nothing_carries);
            assert!(lookups.due() > later);
        }
        lookups.looked(later, &[], true);
        assert_eq!(lookups.due(), later, "others are asked at once");
    }

    #[test]
    fn without_a_move_it_is_asked_every_five_seconds() {
        let began = Instant::now();
        let mut lookups = Lookups::new(began);
        let moments = asked(&mut lookups, began, began + 21_000 * MS, |lookups, now| {
            lookups.go_on(now);
            lookups.stale(now);
        });
        assert_eq!(moments, [0, 5_000, 10_000, 15_000, 20_000]);
    }

    #[test]
    fn while_a_stream_carries_it_is_asked_every_minute() {
        let began = Instant::now();
        let mut lookups = Lookups::new(began);
        lookups.rest(began);
        lookups.ask_by_stream(began);
        let until = began + 200_000 * MS;
        let moments = asked(&mut lookups, began, until, |lookups, now| lookups.ease(now - 20 * MS));
        assert_eq!(moments, [60_000, 120_000, 180_000]);
    }

    #[test]
    fn neither_links_that_flap_nor_a_resolver_that_lies_make_a_storm() {
        let began = Instant::now();
        for answer in [Lookups::hurry, Lookups::stale, |lookups: &mut Lookups, now| {
            lookups.rest(now);
            lookups.hurry(now);
            lookups.stale(now);
        }] {
            let mut lookups = Lookups::new(began);
            let moments = asked(&mut lookups, began, began + 60_000 * MS, answer);
            let within = |n: usize| moments.get(n + BURST).map(|later| later - moments[n]);
            let shortest = (0..moments.len()).filter_map(within).min();
            assert!(shortest.is_none_or(|time| time >= BURST_TIME.as_millis()), "{moments:?}");
            assert!(moments.len() >= 12, "and it does not fall silent: {moments:?}");
        }
    }
}
