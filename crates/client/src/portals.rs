//! Which links a captive portal holds, and when each is asked about.
//!
//! Only a link by which nothing of the gateway's comes is asked: a second after that began, then
//! ever more rarely, and no more after a few times until something changes. While a portal is seen
//! it is asked often, so that the session is up a moment after somebody has signed in. All of it is
//! told from outside; what an answer means is decided in [`rove_os::portal`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rove_os::portal::Answer;

/// How long a link may be silent after a change before it is asked: longer than a handshake over
/// the slowest of usual paths, by UDP and then by streams.
const LOOK_AFTER: Duration = Duration::from_secs(1);
/// How often a link is asked while a portal is seen there: a person waits.
const SEEN_EVERY: Duration = Duration::from_secs(2);
/// For so long; then whoever is there does not sign in soon.
const SEEN_FOR: Duration = Duration::from_secs(300);
/// How often from then on.
const SEEN_LATER: Duration = Duration::from_secs(15);
/// After the first answer that was no portal's; twice as long after each further one.
const UNSEEN_FIRST: Duration = Duration::from_secs(5);
/// Questions without a portal; with the last one five minutes have passed.
const UNSEEN_MAX: u32 = 7;
/// Links that are looked at; more with a way out has no client.
const LINKS_MAX: usize = 8;

/// What is known of portals.
#[derive(Debug, Default)]
pub(crate) struct Portals {
    /// The links by which nothing comes, by index.
    silent: BTreeMap<u32, Silent>,
    /// When to look for more of them.
    look_at: Option<Instant>,
}

#[derive(Debug)]
struct Silent {
    /// When it is to be asked; none while it is, or when it was often enough.
    due: Option<Instant>,
    asked_at: Option<Instant>,
    seen: Seen,
}

#[derive(Debug)]
enum Seen {
    /// No portal, in so many answers.
    Nothing { times: u32 },
    /// One whose page is this.
    Portal { page: String, since: Instant },
}

/// What an answer changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Change {
    /// There is a portal, or its page is another one.
    Found,
    /// There is none any more.
    Gone,
    /// Nothing that matters.
    None,
}

impl Portals {
    /// Something about links or session changed: soon it is time to look.
    pub(crate) fn changed(&mut self, now: Instant) {
        let soon = now + LOOK_AFTER;
        self.look_at = Some(self.look_at.map_or(soon, |at| at.min(soon)));
        for silent in self.silent.values_mut() {
            if let Seen::Nothing { times } = &mut silent.seen {
                *times = 0;
                if silent.due.is_none() && !silent.is_asked() {
                    silent.due = Some(soon);
                }
            }
        }
    }

    /// When [`Portals::look`] is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.silent.values().filter_map(|silent| silent.due).chain(self.look_at).min()
    }

    /// By these links nothing comes now; returns those that are to be asked.
    pub(crate) fn look(&mut self, silent: &[u32], now: Instant) -> Vec<u32> {
        self.look_at = None;
        self.silent.retain(|link, _| silent.contains(link));
        for &link in silent.iter().take(LINKS_MAX) {
            self.silent.entry(link).or_insert_with(|| Silent::new(now));
        }
        let mut asked = Vec::new();
        for (&link, silent) in &mut self.silent {
            if silent.due.is_some_and(|due| due <= now) {
                silent.due = None;
                silent.asked_at = Some(now);
                asked.push(link);
            }
        }
        asked
    }

    /// A question was answered, or it could not be asked.
    pub(crate) fn answered(&mut self, link: u32, answer: Answer, now: Instant) -> Change {
        // It carries by now, or is gone.
        let Some(silent) = self.silent.get_mut(&link) else { return Change::None };
        silent.asked_at = None;
        let before = std::mem::replace(&mut silent.seen, Seen::Nothing { times: 0 });
        let (seen, change) = match (before, answer) {
            (Seen::Portal { page: known, since }, Answer::Portal { page }) => {
                let change = if known == page { Change::None } else { Change::Found };
                (Seen::Portal { page, since }, change)
            }
            (Seen::Nothing { .. }, Answer::Portal { page }) => {
                (Seen::Portal { page, since: now }, Change::Found)
            }
            (Seen::Portal { .. }, Answer::Other | Answer::Nothing) => {
                (Seen::Nothing { times: 1 }, Change::Gone)
            }
            (Seen::Nothing { times }, Answer::Other | Answer::Nothing) => {
                (Seen::Nothing { times: times + 1 }, Change::None)
            }
        };
        silent.due = seen.pause(now).map(|pause| now + pause);
        silent.seen = seen;
        change
    }

    /// Where to sign in for the links that need it, by index.
    pub(crate) fn pages(&self) -> impl Iterator<Item = (u32, &str)> {
        self.silent.iter().filter_map(|(&link, silent)| match &silent.seen {
            Seen::Portal { page, .. } => Some((link, page.as_str())),
            Seen::Nothing { .. } => None,
        })
    }
}

impl Silent {
    const fn new(now: Instant) -> Self {
        Self { due: Some(now), asked_at: None, seen: Seen::Nothing { times: 0 } }
    }

    const fn is_asked(&self) -> bool {
        self.asked_at.is_some()
    }
}

impl Seen {
    /// How long until the next question.
    fn pause(&self, now: Instant) -> Option<Duration> {
        match self {
            Self::Portal { since, .. } if now.saturating_duration_since(*since) < SEEN_FOR => {
                Some(SEEN_EVERY)
            }
            Self::Portal { .. } => Some(SEEN_LATER),
            Self::Nothing { times } if *times >= UNSEEN_MAX => None,
            Self::Nothing { times } => Some(UNSEEN_FIRST * (1 << times.saturating_sub(1))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIFI: u32 = 3;

    fn portal(page: &str) -> Answer {
        Answer::Portal { page: page.to_owned() }
    }

    /// The times, in seconds, at which a link is asked that always gives `answer`.
    fn course(portals: &mut Portals, start: Instant, answer: &Answer, until: u64) -> Vec<u64> {
        let mut times = Vec::new();
        while let Some(due) = portals.due() {
            let at = due.duration_since(start).as_secs();
            if at > until {
                break;
            }
            for link in portals.look(&[WIFI], due) {
                times.push(at);
                portals.answered(link, answer.clone(), due);
            }
        }
        times
    }

    #[test]
    fn a_link_that_is_merely_dead_is_asked_seldom_and_in_the_end_not_at_all() {
        let (mut portals, start) = (Portals::default(), Instant::now());
        assert_eq!(portals.due(), None);
        portals.changed(start);
        let asked = course(&mut portals, start, &Answer::Nothing, 10_000);
        assert_eq!(asked, [1, 6, 16, 36, 76, 156, 316]);
        assert_eq!(portals.due(), None, "until something changes");
        let later = start + Duration::from_secs(20_000);
        portals.changed(later);
        assert_eq!(course(&mut portals, later, &Answer::Other, 10), [1, 6]);
    }

    #[test]
    fn while_a_portal_is_seen_it_is_asked_often_and_never_given_up() {
        let (mut portals, start) = (Portals::default(), Instant::now());
        portals.changed(start);
        let asked = course(&mut portals, start, &portal("http://a/"), 400);
        assert_eq!(asked[..4], [1, 3, 5, 7]);
        assert_eq!(asked[asked.len() - 2..], [376, 391]);
        assert_eq!(portals.pages().collect::<Vec<_>>(), [(WIFI, "http://a/")]);
    }

    #[test]
    fn what_changes_is_told_once() {
        let (mut portals, now) = (Portals::default(), Instant::now());
        portals.changed(now);
        assert_eq!(portals.look(&[WIFI], now), [WIFI]);
        assert_eq!(portals.look(&[WIFI], now), [0; 0], "it is under way");
        assert_eq!(portals.answered(WIFI, portal("http://a/"), now), Change::Found);
        assert_eq!(portals.answered(WIFI, portal("http://a/"), now), Change::None);
        assert_eq!(portals.answered(WIFI, portal("http://b/"), now), Change::Found);
        assert_eq!(portals.answered(WIFI, Answer::Nothing, now), Change::Gone);
        assert_eq!(portals.answered(WIFI, Answer::Other, now), Change::None);
        assert_eq!(portals.pages().count(), 0);
        // It carries meanwhile.
        portals.look(&[], now);
        assert_eq!(portals.answered(WIFI, portal("http://a/"), now), Change::None);
        assert_eq!(portals.due(), None);
        let many: Vec<u32> = (0..100).collect();
        assert_eq!(portals.look(&many, now).len(), LINKS_MAX);
    }

    #[test]
    fn a_storm_of_changes_asks_no_more_often() {
        let (mut portals, start) = (Portals::default(), Instant::now());
        let mut asked = 0;
        for tick in 0..1_000 {
            let now = start + Duration::from_millis(tick * 10);
            portals.changed(now);
            if portals.due().is_some_and(|due| due <= now) {
                for link in portals.look(&[WIFI], now) {
                    asked += 1;
                    portals.answered(link, Answer::Nothing, now);
                }
            }
        }
        assert!(asked <= 3, "{asked} in ten seconds");
    }
}
