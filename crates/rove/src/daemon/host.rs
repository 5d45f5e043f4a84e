//! Keeps the host as the plan says: hears of changes, has the applier put back what others took,
//! and remembers since when something is wrong.
//!
//! It decides when to look and what is logged; refuses to know what a plan is made of. The words
//! for people are in [`super::problems`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rove_os::plan::{Applier, Deviation, Outcome, Part};
use rove_os::watch::{Area, Change, Watch};

use super::message::Message;
use super::problems::{Finding, Problem};
use crate::ledger::wall_clock;

/// Without news the host is looked at this often, for what the kernel does not tell of. Twice as
/// long saves nothing that a battery would feel; half as long would start `nft` more often than
/// people's own tools do.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The rest after news, which grows while news goes on: a restart of a network manager makes a
/// hundred changes. The longest is well below the second in which all is to be put back.
const REST_MIN: Duration = Duration::from_millis(5);
const REST_MAX: Duration = Duration::from_millis(200);
/// After a failure to listen.
const RETRY: Duration = Duration::from_secs(1);
/// Who changed something counts as the cause of what is found within this time.
const BLAME: Duration = Duration::from_secs(5);
/// Things that one line of the log names.
const NAMED_MAX: usize = 3;

/// Sends every change that may concern a plan, and an empty set now and then. The thread lives as
/// long as the process.
pub(super) fn watch(to: SyncSender<Message>, resolv_conf: PathBuf) -> Result<()> {
    let mut watch = Some(Watch::open(&resolv_conf)?);
    let spawned = thread::Builder::new().name("rove-host".to_owned()).spawn(move || {
        let mut rest = REST_MIN;
        loop {
            let heard = match &mut watch {
                Some(watch) => watch.wait(LOOK_EVERY),
                None => Watch::open(&resolv_conf).map(|opened| {
                    watch = Some(opened);
                    // Of what happened meanwhile nothing was heard.
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

/// What is known of the host's state.
#[derive(Default)]
pub(super) struct Host {
    /// Who changed something last, by area, and when that was heard.
    authors: BTreeMap<Area, (String, Instant)>,
    /// Since when each problem is there, in seconds since 1970.
    since: BTreeMap<String, u64>,
    /// What was said in the log of things that are still wrong.
    said: BTreeSet<String>,
}

/// What the owner of the interface has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Device {
    Kept,
    /// It was deleted, and is to be opened anew.
    Lost,
}

impl Host {
    /// Puts back what others took away, after `changes` were heard of.
    pub(super) fn keep(&mut self, applier: &mut Applier, changes: &BTreeSet<Change>) -> Device {
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

    /// Who is to blame for a change of this part, as far as it was heard lately.
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

    /// What is wrong now: the host is looked at, nothing is remembered but since when. `also` is
    /// what others found.
    pub(super) fn look(&mut self, applier: &mut Applier, device: &str, also: Vec<Finding>) -> Look {
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

    /// Adds since when, and forgets what is no more.
    fn date(&mut self, found: Vec<Finding>) -> Vec<Problem> {
        let present = wall_clock().0;
        let current: BTreeSet<String> = found.iter().map(|finding| finding.what.clone()).collect();
        self.since.retain(|what, _| current.contains(what));
        let dated = found.into_iter().map(|Finding { part, what, cause, cure }| {
            let since = *self.since.entry(what.clone()).or_insert(present);
            Problem { part, what, since, cause, cure }
        });
        dated.collect()
    }
}

/// The host at one moment.
pub(super) struct Look {
    pub(super) problems: Vec<Problem>,
    deviations: Vec<Deviation>,
}

impl Look {
    /// Whether a part is as planned.
    pub(super) fn is_whole(&self, part: Part) -> bool {
        !self.deviations.iter().any(|deviation| deviation.part == part)
    }
}
