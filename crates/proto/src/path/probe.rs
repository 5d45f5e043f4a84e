//! Challenges of one path: what is open, what an answer proves, when to ask again.
//!
//! An answer proves that the peer receives at the address that was challenged (RFC 9000, 8.2),
//! gives a round-trip time, and confirms the size that the challenge was padded to.

use std::net::SocketAddr;

use crate::recovery::rtt::Rtt;
use crate::time::{Duration, Instant};

/// Challenges that may be open at once on one path: what is asked urgently in one second.
pub(crate) const OPEN_MAX: usize = 68;
/// The shortest pause between repeats.
const INTERVAL_MIN: Duration = Duration::from_millis(50);
/// The longest pause between repeats during the first minute of trying.
const INTERVAL_MAX: Duration = Duration::from_secs(1);
/// After the first minute the pause is this part of the time tried so far (2 %).
const INTERVAL_PART: u32 = 50;
/// The pause while somebody waits for the path's return: found within a round trip and this.
const INTERVAL_URGENT: Duration = Duration::from_millis(15);
/// How long anybody waits so eagerly.
pub(crate) const URGENT: Duration = Duration::from_secs(60);
/// How long the return of a path is waited for as eagerly that carried a share until now, while
/// others carry on: a burst of losses that is counted in packets, as on radio, is over after so
/// many of them, and whoever asks rarely stretches it.
const EAGER: Duration = Duration::from_secs(1);
/// The longest pause of all.
const INTERVAL_LAST: Duration = Duration::from_secs(60);

/// One challenge that was sent and not yet answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Open {
    token: u64,
    at: Instant,
    size: usize,
    remote: SocketAddr,
    /// Whether something else was to be said since: an answer does not end the asking.
    outdated: bool,
}

/// What an answered challenge proves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answer {
    /// Time from challenge to answer.
    pub elapsed: Duration,
    /// Bytes of the datagram that carried the challenge.
    pub size: usize,
    /// When the challenge left.
    pub asked_at: Instant,
}

/// The challenges of one path.
#[derive(Clone, Debug, Default)]
pub struct Probes {
    open: Vec<Open>,
    campaign: Option<Campaign>,
    urgent: bool,
}

/// Repeated asking until there is an answer.
#[derive(Clone, Copy, Debug)]
struct Campaign {
    since: Instant,
    next: Instant,
    interval: Duration,
    /// Whether it is asked as if it were waited for at first.
    eager: bool,
}

impl Campaign {
    /// Sets when the next leaves, after one that leaves at `now`. `urgent`: somebody waits.
    fn go_on(&mut self, now: Instant, urgent: bool) {
        let tried = now.saturating_since(self.since);
        let eager = self.eager && tried < EAGER;
        let waited_for = eager || (urgent && tried < URGENT);
        self.next = now + if waited_for { INTERVAL_URGENT } else { self.interval };
        if !eager {
            self.interval = if tried < Duration::from_secs(60) {
                (self.interval * 3 / 2).min(INTERVAL_MAX)
            } else {
                (tried / INTERVAL_PART).clamp(INTERVAL_MAX, INTERVAL_LAST)
            };
        }
    }
}

impl Probes {
    /// Starts asking, now and again until answered. No effect while already asking.
    pub fn start(&mut self, now: Instant, rtt: &Rtt) {
        if self.campaign.is_none() {
            let interval = rtt.timeout().clamp(INTERVAL_MIN, INTERVAL_MAX);
            self.campaign = Some(Campaign { since: now, next: now, interval, eager: false });
        }
    }

    /// Starts asking a path that carried a share until now: often at first.
    pub(crate) fn start_eagerly(&mut self, now: Instant, rtt: &Rtt) {
        self.start(now, rtt);
        self.campaign.iter_mut().for_each(|campaign| campaign.eager = true);
    }

    /// Whether somebody waits for the path's return: in the first minute it is asked more often
    /// then.
    pub(crate) fn set_urgent(&mut self, now: Instant, urgent: bool) {
        if urgent
            && !self.urgent
            && let Some(campaign) = &mut self.campaign
            && now.saturating_since(campaign.since) < URGENT
        {
            campaign.next = campaign.next.min(now + INTERVAL_URGENT);
        }
        self.urgent = urgent;
    }

    /// Challenges say something else from now on: whoever is asking asks again, at once.
    pub(crate) fn say_anew(&mut self, now: Instant) {
        if let Some(campaign) = &mut self.campaign {
            campaign.next = now;
            self.open.iter_mut().for_each(|open| open.outdated = true);
        }
    }

    /// Stops asking; open challenges may still be answered.
    pub const fn stop(&mut self) {
        self.campaign = None;
    }

    /// Since when the path has been asked without an answer; `None` while nothing is asked.
    pub(crate) fn asking_since(&self) -> Option<Instant> {
        self.campaign.map(|campaign| campaign.since)
    }

    /// When the next challenge is due; `None` while nothing is asked.
    pub fn due(&self) -> Option<Instant> {
        self.campaign.map(|campaign| campaign.next)
    }

    /// Whether the next challenge may be padded to what the path should carry: of those that are
    /// asked urgently one now and then is, since all of them would fill a slow link.
    pub(crate) fn may_be_large(&self, now: Instant) -> bool {
        let pause = self.campaign.map_or(Duration::ZERO, |campaign| campaign.interval);
        let last = self.open.iter().rev().find(|open| open.size > 0);
        last.is_none_or(|open| now.saturating_since(open.at) >= pause)
    }

    /// Asks as if anew, and at once unless it was asked a moment ago: something changed that may
    /// have revived the path.
    pub fn hurry(&mut self, now: Instant) {
        let last = self.open.last().map(|open| open.at + INTERVAL_MIN);
        if let Some(campaign) = &mut self.campaign {
            campaign.next = last.map_or(now, |soonest| soonest.max(now));
            campaign.interval = INTERVAL_MIN;
        }
    }

    /// Records a challenge that leaves now and sets when the next is due.
    pub fn sent(&mut self, now: Instant, token: u64, size: usize, remote: SocketAddr) {
        if self.open.len() >= OPEN_MAX {
            self.open.remove(0);
        }
        self.open.push(Open { token, at: now, size, remote, outdated: false });
        if let Some(campaign) = &mut self.campaign
            && campaign.next <= now
        {
            campaign.go_on(now, self.urgent);
        }
    }

    /// Takes a response that came from `remote`. `None` when it answers nothing that was asked
    /// there: late, repeated or forged.
    pub fn answered(&mut self, now: Instant, token: u64, remote: SocketAddr) -> Option<Answer> {
        let place = self.open.iter().position(|o| o.token == token && o.remote == remote)?;
        let open = self.open.remove(place);
        if !open.outdated {
            self.campaign = None;
        }
        Some(Answer { elapsed: now.saturating_since(open.at), size: open.size, asked_at: open.at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn remote(port: u16) -> SocketAddr {
        SocketAddr::from(([192, 0, 2, 1], port))
    }

    #[test]
    fn only_the_challenged_address_answers_and_once() {
        let mut probes = Probes::default();
        probes.sent(Instant::ZERO, 7, 1_200, remote(1));
        let now = Instant::ZERO + Duration::from_millis(40);
        assert_eq!(probes.answered(now, 7, remote(2)), None);
        assert_eq!(probes.answered(now, 8, remote(1)), None);
        let answer = probes.answered(now, 7, remote(1)).unwrap();
        assert_eq!((answer.elapsed, answer.size), (Duration::from_millis(40), 1_200));
        assert_eq!(probes.answered(now, 7, remote(1)), None);
    }

    #[test]
    fn an_answer_to_what_was_said_before_does_not_end_the_asking() {
        let mut probes = Probes::default();
        let now = Instant::ZERO + Duration::from_millis(40);
        probes.start(now, &Rtt::default());
        probes.sent(now, 7, 1_200, remote(1));
        probes.say_anew(now);
        assert_eq!(probes.due(), Some(now));
        probes.sent(now, 8, 1_200, remote(1));
        assert!(probes.answered(now, 7, remote(1)).is_some());
        assert!(probes.due() > Some(now));
        assert!(probes.answered(now, 8, remote(1)).is_some());
        assert_eq!(probes.due(), None);
    }

    #[test]
    fn what_is_asked_urgently_does_not_fill_a_slow_link() {
        let mut probes = Probes::default();
        let (mut now, mut bytes) = (Instant::ZERO, 0);
        probes.start(now, &Rtt::default());
        probes.set_urgent(now, true);
        let mut asked = 0;
        while now < Instant::ZERO + Duration::from_secs(10) {
            let size = if probes.may_be_large(now) { 1_200 } else { 0 };
            probes.sent(now, asked, size, remote(1));
            (asked, bytes) = (asked + 1, bytes + size.max(72));
            now = probes.due().unwrap();
        }
        assert!(asked > 600, "{asked}: who waits does so for a moment");
        assert!(bytes * 8 < 10 * 64_000, "{bytes} bytes in ten seconds");
    }

    #[test]
    fn a_path_that_carried_until_now_is_asked_often_for_a_second() {
        let mut probes = Probes::default();
        let mut now = Instant::ZERO;
        let mut rtt = Rtt::default();
        rtt.sample(Duration::from_millis(20), Duration::ZERO);
        probes.start_eagerly(now, &rtt);
        let mut asked_at = Vec::new();
        while now < Instant::ZERO + Duration::from_secs(3) {
            probes.sent(now, asked_at.len() as u64, 0, remote(1));
            asked_at.push(now);
            now = probes.due().unwrap();
        }
        let early = asked_at.iter().filter(|&&at| at < Instant::ZERO + EAGER).count();
        assert!((60..=OPEN_MAX).contains(&early), "{early} in the first second");
        assert!(asked_at.len() - early < 12, "{} after it", asked_at.len() - early);
    }

    #[test]
    fn asks_ever_more_rarely_and_never_more_than_two_per_cent_late() {
        let mut probes = Probes::default();
        let mut now = Instant::ZERO;
        probes.start(now, &Rtt::default());
        let mut asked = 0;
        while now < Instant::ZERO + Duration::from_secs(3_600) {
            probes.sent(now, asked, 100, remote(1));
            asked += 1;
            let next = probes.due().unwrap();
            let tried = now.saturating_since(Instant::ZERO);
            let pause = next.saturating_since(now);
            assert!(pause <= INTERVAL_MAX.max(tried / INTERVAL_PART), "{pause:?} at {tried:?}");
            now = next;
        }
        assert!(asked < 300, "{asked} challenges in an hour");
        assert!(probes.open.len() <= OPEN_MAX);
    }
}
