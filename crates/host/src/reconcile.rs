//! Keeps the host as the plan says. It receives reports of changes, lets the applier restore
//! removed items, and remembers since when each problem exists.
//!
//! It decides when to check the host and which lines go to the log. It does not know the contents
//! of a plan. [`crate::problems`] has the texts for people.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rove_api::Problem;
use rove_os::plan::{Applier, Deviation, Outcome, Part};
use rove_os::watch::{Area, Change, Watch};

use crate::message::Message;
use crate::problems::Finding;
use crate::time::wall_clock;

/// How often the host is checked without a report, for settings whose changes the kernel does not
/// report. Twice as long would save no noticeable battery power. Half as long would start `nft`
/// more often than people's own tools do.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The pause after a report. It grows while reports continue, because a restart of a network
/// manager makes a hundred changes. The longest pause is well below the second within which
/// everything must be restored.
const REST_MIN: Duration = Duration::from_millis(5);
const REST_MAX: Duration = Duration::from_millis(200);
/// How long host work waits after a report, so that changed links are handled first. A client that
/// moves waits for its new link, and a check of the host takes 5 to 10 ms. The kernel's messages
/// about one move arrive within 5 ms.
const LINKS_FIRST: Duration = Duration::from_millis(20);
/// The pause after a failure to listen.
const RETRY: Duration = Duration::from_secs(1);
/// A reported program counts as the cause of a difference found within this time.
const BLAME: Duration = Duration::from_secs(5);
/// Items that one log line names at most.
const NAMED_MAX: usize = 3;

/// Sends every change that may concern a plan, and an empty set from time to time. The thread lives
/// as long as the process.
pub(crate) fn watch<O: Send + 'static>(
    to: SyncSender<Message<O>>,
    resolv_conf: PathBuf,
) -> Result<()> {
    let mut watch = Some(Watch::open(&resolv_conf)?);
    let spawned = thread::Builder::new().name("rove-host".to_owned()).spawn(move || {
        let mut rest = REST_MIN;
        loop {
            let heard = match &mut watch {
                Some(watch) => watch.wait(LOOK_EVERY),
                None => Watch::open(&resolv_conf).map(|opened| {
                    watch = Some(opened);
                    // Changes since the failure were not reported.
                    BTreeSet::new()
                }),
            };
            let changes = heard.unwrap_or_else(|error| {
                tracing::warn!(%error, "the host is looked at without news of changes");
                watch = None;
                thread::sleep(RETRY);
                BTreeSet::new()
            });
            rest = if changes.is_empty() { REST_MIN } else { (rest * 2).min(REST_MAX) };
            if to.send(Message::Host(changes)).is_err() {
                return;
            }
            thread::sleep(rest);
        }
    });
    spawned.context("cannot start a thread for the host's settings")?;
    Ok(())
}

/// The known state of the host.
#[derive(Default)]
pub struct Host {
    /// The last program that changed something, by area, and when that was reported.
    authors: BTreeMap<Area, (String, Instant)>,
    /// Since when each problem exists, in seconds since 1970.
    since: BTreeMap<String, u64>,
    /// Logged lines of problems that still exist.
    said: BTreeSet<String>,
    owed: Option<Owed>,
}

/// Work on the host that is due soon.
pub struct Owed {
    due: Instant,
    /// The changes that were reported since the last check.
    pub changes: BTreeSet<Change>,
    /// Whether the plan may have changed.
    pub replan: bool,
}

/// The action that the owner of the interface must take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Device {
    /// None: it is there.
    Kept,
    /// It was deleted and must be opened again.
    Lost,
}

impl Host {
    /// Asks for a check of the host soon, after these changes, and for a new plan if `replan`.
    pub fn owe(&mut self, changes: BTreeSet<Change>, replan: bool) {
        let due = Instant::now() + LINKS_FIRST;
        let owed = self.owed.get_or_insert_with(|| Owed { due, changes: BTreeSet::new(), replan });
        owed.changes.extend(changes);
        owed.replan |= replan;
    }

    /// When the next check is due.
    pub fn due(&self) -> Option<Instant> {
        self.owed.as_ref().map(|owed| owed.due)
    }

    /// The work that is due by now.
    pub fn take_due(&mut self, now: Instant) -> Option<Owed> {
        self.owed.take_if(|owed| owed.due <= now)
    }

    /// Restores items that other programs removed, after a report of `changes`.
    pub fn keep(&mut self, applier: &mut Applier, changes: &BTreeSet<Change>) -> Device {
        let now = Instant::now();
        for change in changes {
            if let Some(by) = &change.by {
                self.authors.insert(change.area, (by.clone(), now));
            }
        }
        let found = match applier.reconcile(now) {
            Ok(found) => found,
            Err(error) => {
                self.say_once(format!("the host's network settings cannot be checked: {error}"));
                return Device::Kept;
            }
        };
        self.log(&found, now);
        let lost = |one: &Deviation| one.part == Part::Device && one.outcome == Outcome::Found;
        if found.iter().any(lost) { Device::Lost } else { Device::Kept }
    }

    fn log(&mut self, found: &[Deviation], now: Instant) {
        if found.is_empty() {
            self.said.clear();
        }
        let (put_back, resisting): (Vec<_>, Vec<_>) =
            found.iter().partition(|one| one.outcome == Outcome::PutBack);
        if let Some(first) = put_back.first() {
            let named: Vec<String> =
                put_back.iter().take(NAMED_MAX).map(|d| d.to_string()).collect();
            let more = put_back.len().saturating_sub(NAMED_MAX);
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            let by = self.author(first.part, now).unwrap_or("another program");
            tracing::warn!("{by} changed the host: {}{more}; put back", named.join(", "));
        }
        for deviation in resisting.into_iter().filter(|one| one.outcome != Outcome::Found) {
            let Finding { what, cause, cure, .. } = self.finding(deviation, now);
            self.say_once(format!("{what}: {cause}; {cure}"));
        }
    }

    fn say_once(&mut self, line: String) {
        if !self.said.contains(&line) {
            tracing::error!("{line}");
            self.said.insert(line);
        }
    }

    /// The program that changed this part, if it was reported lately.
    fn author(&self, part: Part, now: Instant) -> Option<&str> {
        let area = match part {
            Part::Device | Part::Routing | Part::Setting | Part::Subflow => Area::Routing,
            Part::KillSwitch | Part::Filter => Area::Filter,
            Part::Dns => Area::Resolver,
        };
        let (by, heard) = self.authors.get(&area)?;
        (now.saturating_duration_since(*heard) <= BLAME).then_some(by.as_str())
    }

    fn finding(&self, deviation: &Deviation, now: Instant) -> Finding {
        Finding::of_deviation(deviation, self.author(deviation.part, now))
    }

    /// Checks the host and returns the problems that exist now. Remembers only since when each
    /// exists. `also` are problems found elsewhere.
    pub fn look(&mut self, applier: &mut Applier, device: &str, also: Vec<Finding>) -> Look {
        let now = Instant::now();
        let (deviations, obstacles) = (applier.look(), applier.obstacles());
        let unseen = [deviations.as_ref().err(), obstacles.as_ref().err()];
        let unseen = unseen.into_iter().flatten().map(|error| Finding {
            part: "other",
            what: "the host's network settings cannot be checked".to_owned(),
            cause: error.to_string(),
            cure: "remove the cause; until then nothing that others take away is put back"
                .to_owned(),
        });
        let unseen: Vec<Finding> = unseen.collect();
        let deviations = deviations.unwrap_or_default();
        let found = deviations.iter().map(|one| self.finding(one, now));
        let found: Vec<Finding> = found.collect();
        let obstacles = obstacles.unwrap_or_default();
        let in_the_way = obstacles.iter().map(|one| Finding::of_obstacle(one, device));
        let all = unseen.into_iter().chain(found).chain(in_the_way).chain(also).collect();
        Look { problems: self.date(all), deviations }
    }

    /// Adds since when each problem exists, and forgets problems that are solved.
    fn date(&mut self, found: Vec<Finding>) -> Vec<Problem> {
        let present = wall_clock().0;
        let current: BTreeSet<String> = found.iter().map(|finding| finding.what.clone()).collect();
        self.since.retain(|what, _| current.contains(what));
        let dated = found.into_iter().map(|Finding { part, what, cause, cure }| {
            let since = *self.since.entry(what.clone()).or_insert(present);
            Problem { part: Some(part.to_owned()), what, since, cause, cure }
        });
        dated.collect()
    }
}

/// The host at one moment.
pub struct Look {
    /// The problems that exist.
    pub problems: Vec<Problem>,
    deviations: Vec<Deviation>,
}

impl Look {
    /// Whether a part is as planned.
    pub fn is_whole(&self, part: Part) -> bool {
        !self.deviations.iter().any(|deviation| deviation.part == part)
    }
}
