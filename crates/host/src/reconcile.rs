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
use rove_os::plan::{Applier, Deviation, Obstacle, Outcome, Part, Plan, Scope};
use rove_os::tun::Tun;
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
/// The pause between two plans while links change all the time, as when a neighbour sends router
/// advertisements with ever other contents. The first change after a second is handled at once.
/// Half as long would start `nft` twice as often. Twice as long would delay a client that moves
/// between such networks by a second.
const REPLAN_REST_MAX: Duration = Duration::from_millis(500);
const REPLAN_QUIET: Duration = Duration::from_secs(1);
/// How soon a failed repair of a packet filter is tried again.
const FAILED_AGAIN: Duration = Duration::from_secs(1);
/// Log lines about repairs within a minute. Later repairs are counted in the next line.
const LINES_MAX: u32 = 10;
const LINES_WITHIN: Duration = Duration::from_secs(60);
/// A reported program counts as the cause of a difference found within this time.
const BLAME: Duration = Duration::from_secs(5);
/// Seconds by which the moment of one problem differs between two looks.
const SETTLED: u64 = 2;
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
        let (mut rest, mut look_due) = (REST_MIN, Instant::now() + LOOK_EVERY);
        loop {
            let heard = match &mut watch {
                Some(watch) => watch.wait(look_due.saturating_duration_since(Instant::now())),
                None => Watch::open(&resolv_conf).map(|opened| {
                    watch = Some(opened);
                    // Changes since the failure were not reported.
                    look_due = Instant::now();
                    BTreeSet::new()
                }),
            };
            let changes = heard.unwrap_or_else(|error| {
                tracing::warn!(%error, "the host is looked at without news of changes");
                watch = None;
                thread::sleep(RETRY);
                look_due = Instant::now();
                BTreeSet::new()
            });
            let is_due = look_due <= Instant::now();
            if is_due {
                (rest, look_due) = (REST_MIN, Instant::now() + LOOK_EVERY);
            } else {
                rest = (rest * 2).min(REST_MAX);
            }
            // News that concerns no plan, as of routes in other tables, leaves no changes.
            let changes = (!changes.is_empty()).then_some(changes);
            let news = changes.into_iter().chain(is_due.then(BTreeSet::new));
            if news.map(Message::Host).any(|message| to.send(message).is_err()) {
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
    /// The same of problems that are noticed elsewhere.
    settled: BTreeMap<String, u64>,
    /// Logged lines of problems that still exist.
    said: BTreeSet<String>,
    owed: Option<Owed>,
    /// When an item that waits, or whose repair failed, is to be restored.
    again: Option<Instant>,
    /// The last new plan, and the pause after it.
    replanned: Option<(Instant, Duration)>,
    lines: Lines,
}

/// Work on the host that is due soon.
pub struct Owed {
    due: Instant,
    /// What is to be checked.
    pub scope: Scope,
    /// Whether the plan may have changed.
    pub replan: bool,
}

/// How many lines about repairs the log may get.
#[derive(Default)]
struct Lines {
    since: Option<Instant>,
    said: u32,
    unsaid: u32,
}

impl Lines {
    /// Whether a line may be written, and how many repairs had none since the last line.
    fn take(&mut self, now: Instant) -> Option<u32> {
        if self.since.is_none_or(|since| now.saturating_duration_since(since) >= LINES_WITHIN) {
            (self.since, self.said) = (Some(now), 0);
        }
        if self.said == LINES_MAX {
            self.unsaid = self.unsaid.saturating_add(1);
            return None;
        }
        self.said += 1;
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// The interface of the tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Device {
    /// It is there.
    Kept,
    /// It was deleted and must be opened again.
    Lost,
}

impl Host {
    /// Asks for a check of the host soon, after these changes. Without any, all is checked.
    pub fn owe(&mut self, changes: BTreeSet<Change>) {
        let now = Instant::now();
        let is_filter = |change: &Change| change.area == Area::Filter;
        let is_all = changes.is_empty() || changes.iter().any(is_filter);
        let owed = self.owe_at(now + LINKS_FIRST);
        if is_all {
            owed.scope = Scope::All;
        }
        for Change { area, by } in changes {
            if let Some(by) = by {
                self.authors.insert(area, (by, now));
            }
        }
    }

    /// Asks for a new plan soon, because links changed, and for a check.
    pub fn owe_plan(&mut self) {
        let now = Instant::now();
        let rested = self.replanned.map_or(now, |(last, pause)| last + pause);
        self.owe_at(rested.max(now + LINKS_FIRST)).replan = true;
    }

    /// Asks for a check at this time, or earlier if one is due earlier.
    fn owe_at(&mut self, due: Instant) -> &mut Owed {
        let scope = Scope::AllButFilters;
        let owed = self.owed.get_or_insert(Owed { due, scope, replan: false });
        owed.due = owed.due.min(due);
        owed
    }

    /// When the next check is due.
    pub fn due(&self) -> Option<Instant> {
        self.owed.as_ref().map(|owed| owed.due).into_iter().chain(self.again).min()
    }

    /// The work that is due by now.
    pub fn take_due(&mut self, now: Instant) -> Option<Owed> {
        let again = self.again.take_if(|due| *due <= now).is_some();
        let owed = self.owed.take_if(|owed| owed.due <= now);
        let mut owed = match owed {
            None if again => Owed { due: now, scope: Scope::All, replan: false },
            owed => owed?,
        };
        if again {
            owed.scope = Scope::All;
        }
        if owed.replan {
            owed.replan = self.may_replan(now);
        }
        Some(owed)
    }

    /// Whether a new plan may be made now. If not, it is owed again.
    fn may_replan(&mut self, now: Instant) -> bool {
        let pause = match self.replanned {
            Some((last, pause)) if now.saturating_duration_since(last) < pause => {
                self.owe_at(last + pause).replan = true;
                return false;
            }
            Some((last, pause)) if now.saturating_duration_since(last) < REPLAN_QUIET => {
                (pause * 2).max(LINKS_FIRST).min(REPLAN_REST_MAX)
            }
            Some(_) | None => Duration::ZERO,
        };
        self.replanned = Some((now, pause));
        true
    }

    /// Restores items that other programs removed. If the tunnel's interface was deleted, opens it
    /// again as `plan` says, and returns it for the data thread.
    pub fn keep(&mut self, applier: &mut Applier, scope: Scope, plan: &Plan) -> Option<Tun> {
        if self.restore(applier, scope) == Device::Kept {
            return None;
        }
        match applier.open_device(plan) {
            Ok(tun) => {
                tracing::warn!("the tunnel's interface was deleted; it is made again");
                applier.device_is_new(&plan.device);
                self.restore(applier, Scope::All);
                Some(tun)
            }
            Err(error) => {
                tracing::error!("the tunnel's interface is gone: {error}");
                None
            }
        }
    }

    fn restore(&mut self, applier: &mut Applier, scope: Scope) -> Device {
        let now = Instant::now();
        let found = match applier.reconcile(now, scope) {
            Ok(found) => found,
            Err(error) => {
                self.again = Some(now + FAILED_AGAIN);
                self.say_once(format!("the host's network settings cannot be checked: {error}"));
                return Device::Kept;
            }
        };
        let again = found.iter().filter_map(|one| match (&one.outcome, one.part) {
            (Outcome::Waits(due), _) => Some(*due),
            (Outcome::Failed(_), Part::KillSwitch | Part::Filter) => Some(now + FAILED_AGAIN),
            (Outcome::Failed(_) | Outcome::Found | Outcome::PutBack, _) => None,
        });
        // What was not looked at may wait still.
        self.again = again.chain(self.again.filter(|_| scope != Scope::All)).min();
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
        if let Some(first) = put_back.first()
            && let Some(unsaid) = self.lines.take(now)
        {
            let named: Vec<String> =
                put_back.iter().take(NAMED_MAX).map(|d| d.to_string()).collect();
            let more = put_back.len().saturating_sub(NAMED_MAX);
            let more = if more > 0 { format!(", and {more} more") } else { String::new() };
            let by = self.author(first.part, now).unwrap_or("another program");
            let unsaid = match unsaid {
                0 => String::new(),
                _ => format!(" ({unsaid} earlier repairs are not in this log)"),
            };
            tracing::warn!("{by} changed the host: {}{more}; put back{unsaid}", named.join(", "));
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
        self.look_beside(applier, device, also, |_| true)
    }

    /// The same. `counts` tells whether an obstacle is a problem.
    pub fn look_beside(
        &mut self,
        applier: &mut Applier,
        device: &str,
        also: Vec<Finding>,
        counts: impl Fn(&Obstacle) -> bool,
    ) -> Look {
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
        // Addresses and routes go with their interface.
        let is_named = |one: &&Deviation| {
            let lacks_device = deviations.iter().any(|one| one.part == Part::Device);
            !(lacks_device && one.part == Part::Routing)
        };
        let found = deviations.iter().filter(is_named).map(|one| self.finding(one, now));
        let found: Vec<Finding> = found.collect();
        let obstacles = obstacles.unwrap_or_default();
        let obstacles = obstacles.iter().filter(|one| counts(one));
        let in_the_way = obstacles.map(|one| Finding::of_obstacle(one, device));
        let all = unseen.into_iter().chain(found).chain(in_the_way).chain(also).collect();
        Look { problems: self.date(all), deviations }
    }

    /// Keeps the moments of problems that tell themselves since when they exist. Two looks at two
    /// clocks may differ by a second, and people take a moment that moves for another problem.
    pub fn settle(&mut self, problems: &mut [Problem]) {
        let told = |what: &String| problems.iter().any(|problem| problem.what == *what);
        self.settled.retain(|what, _| told(what));
        for problem in problems {
            let known = self.settled.entry(problem.what.clone()).or_insert(problem.since);
            if known.abs_diff(problem.since) > SETTLED {
                *known = problem.since;
            }
            problem.since = *known;
        }
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

#[cfg(test)]
#[path = "reconcile_tests.rs"]
mod tests;
