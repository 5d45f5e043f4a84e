//! A rehearsal: one link is not used for a while, as if it had been unplugged, and what every open
//! connection makes of it is watched.
//!
//! The link itself is not touched, so nothing outlives the process. Connections are looked at every
//! few milliseconds, from a little before to a little after; how far their ends have got is all
//! that is asked for, so this costs nothing while nobody rehearses.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rove_proto::flow::report::FlowReport;
use rove_proto::flow::tuple::Tuple;
use rove_proto::wire::inner::TCP;
use serde_json::{Value, json};

use super::Client;
use crate::daemon::data::Handle;
use crate::daemon::flows;
use crate::values::Lifetime;

/// How often connections are looked at: a pause is known to within twice this.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// How long they are watched before the link goes, and after it is back.
const BESIDE: Duration = Duration::from_secs(3);
/// The longest time for which a link is not used.
const LASTS_MAX: Lifetime = Lifetime::from_seconds(600);
/// Connections that are watched; of more, those that were found first.
const WATCHED_MAX: usize = 1_000;
/// Pages of connections that are looked at each time.
const PAGES_MAX: usize = 16;

/// A rehearsal, and what it found.
#[derive(Debug)]
pub(super) struct Rehearsal {
    /// The name of the link that is away.
    link: String,
    lasts: Duration,
    stage: Stage,
    /// When the stage is over.
    until: Instant,
    look_at: Instant,
    watch: Watch,
}

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Stage {
    /// The link still carries.
    Before,
    /// It does not.
    Without,
    /// It does again.
    After,
    /// Nothing is watched any more.
    Over,
}

/// What was seen of all connections.
#[derive(Debug)]
struct Watch {
    flows: BTreeMap<Tuple, Watched>,
    stage: Stage,
    looked_at: Instant,
    /// The longest time in which nobody looked.
    blind: Duration,
}

/// What was seen of one.
#[derive(Debug)]
struct Watched {
    class: &'static str,
    /// Its other end says how far it has got; of datagrams only those that come are a sign.
    is_acknowledged: bool,
    /// How far its ends had got: what was sent and acknowledged, and what was received.
    at: (u32, u32),
    /// Since when they have not got further.
    still_since: Instant,
    felt: [Felt; 3],
    is_open: bool,
}

/// What a connection felt in one stage.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Felt {
    sent: u64,
    received: u64,
    pause: Duration,
}

impl Client<'_> {
    /// Begins a rehearsal.
    pub(super) fn rehearse(&mut self, unplug: &str, lasts: Lifetime) -> Result<Value> {
        if let Some(doing) = self.rehearsal.as_ref().and_then(Rehearsal::doing) {
            bail!("{doing}: wait until that is over");
        }
        if lasts > LASTS_MAX {
            bail!("a rehearsal lasts {LASTS_MAX} at most");
        }
        let names: Vec<&str> = self.ranked.iter().map(|ranked| ranked.link.name.as_str()).collect();
        if !names.contains(&unplug) {
            bail!("no link {unplug} is in use: there are {}", names.join(", "));
        }
        let rehearsal = Rehearsal::new(Instant::now(), unplug, lasts.duration());
        let lasts = rehearsal.lasts + 2 * BESIDE;
        self.rehearsal = Some(rehearsal);
        tracing::info!(link = unplug, "a rehearsal begins");
        Ok(json!({ "lasts_ms": milliseconds(lasts) }))
    }

    /// How far the rehearsal is, and what it found when it is over.
    pub(super) fn rehearsed(&self) -> Result<Value> {
        let rehearsal = self.rehearsal.as_ref().context("nothing was rehearsed")?;
        Ok(rehearsal.report())
    }

    /// Looks at the connections when that is due; takes the link away, and gives it back.
    pub(super) fn go_on_rehearsing(&mut self) {
        let now = Instant::now();
        let Some(rehearsal) = &mut self.rehearsal else { return };
        if rehearsal.due().is_none_or(|due| due > now) {
            return;
        }
        rehearsal.look(now, &self.data);
        if rehearsal.turn(now) {
            let (link, stage) = (&rehearsal.link, rehearsal.stage);
            tracing::info!(link, ?stage, "the rehearsal goes on");
            // The kernel's subflows go by the link until it is told otherwise.
            self.apply_subflows();
            self.tell_links();
        }
    }
}

impl Rehearsal {
    fn new(now: Instant, link: &str, lasts: Duration) -> Self {
        let watch = Watch::new(now);
        let (stage, until) = (Stage::Before, now + BESIDE);
        Self { link: link.to_owned(), lasts, stage, until, look_at: now, watch }
    }

    /// When something is to be done.
    pub(super) fn due(&self) -> Option<Instant> {
        (self.stage != Stage::Over).then(|| self.look_at.min(self.until))
    }

    /// The link that is away.
    pub(super) fn unplugged(&self) -> Option<&str> {
        (self.stage == Stage::Without).then_some(self.link.as_str())
    }

    /// What is going on, for people.
    pub(super) fn doing(&self) -> Option<String> {
        let link = &self.link;
        match self.stage {
            Stage::Before => Some(format!("about to do without {link}, to see what comes of it")),
            Stage::Without => Some(format!("doing without {link}, to see what comes of it")),
            Stage::After => Some(format!("looking what came of doing without {link}")),
            Stage::Over => None,
        }
    }

    /// Looks at every connection.
    fn look(&mut self, now: Instant, data: &Handle) {
        self.look_at = now + LOOK_EVERY;
        let mut seen = Vec::new();
        let mut from = None;
        for _ in 0..PAGES_MAX {
            let Some(page) = data.flows(from) else { return };
            seen.extend(page.flows.into_iter().map(|(_, flow)| flow));
            from = page.next;
            if from.is_none() {
                break;
            }
        }
        self.watch.see(Instant::now(), &seen, from.is_none());
    }

    /// Goes on to the next stage when it is due. Returns whether it did.
    fn turn(&mut self, now: Instant) -> bool {
        if self.stage == Stage::Over || now < self.until {
            return false;
        }
        let (stage, lasts) = match self.stage {
            Stage::Before => (Stage::Without, self.lasts),
            Stage::Without => (Stage::After, BESIDE),
            Stage::After | Stage::Over => (Stage::Over, Duration::ZERO),
        };
        (self.stage, self.until) = (stage, now + lasts);
        self.watch.turn(now, stage);
        true
    }

    fn report(&self) -> Value {
        let felt = |watched: &Watched, stage: Stage, lasts: Duration| {
            let Felt { sent, received, pause } = watched.felt[stage as usize];
            let rate = |bytes: u64| bytes as f64 * 8.0 / lasts.as_secs_f64() / 1e6;
            json!({
                "tx_bytes": sent,
                "rx_bytes": received,
                "tx_mbps": rate(sent),
                "rx_mbps": rate(received),
                "pause_ms": milliseconds(pause),
            })
        };
        let flows = self.watch.flows.iter().map(|(tuple, watched)| {
            let mut told = json!({
                "tuple": flows::tuple(tuple),
                "class": watched.class,
                "open": watched.is_open,
            });
            told["before"] = felt(watched, Stage::Before, BESIDE);
            told["without"] = felt(watched, Stage::Without, self.lasts);
            told["after"] = felt(watched, Stage::After, BESIDE);
            told
        });
        json!({
            "link": self.link,
            "over": self.stage == Stage::Over,
            "doing": self.doing(),
            "without_ms": milliseconds(self.lasts),
            "blind_ms": milliseconds(self.watch.blind),
            "flows": flows.collect::<Vec<_>>(),
        })
    }
}

impl Watch {
    fn new(now: Instant) -> Self {
        let (flows, stage, blind) = (BTreeMap::new(), Stage::Before, Duration::ZERO);
        Self { flows, stage, looked_at: now, blind }
    }

    /// The connections are here now; `is_all` of them.
    fn see(&mut self, now: Instant, flows: &[FlowReport], is_all: bool) {
        self.blind = self.blind.max(now.saturating_duration_since(self.looked_at));
        self.looked_at = now;
        if is_all {
            self.flows.values_mut().for_each(|watched| watched.is_open = false);
        }
        for flow in flows {
            let (at, class) = ((flow.sent, flow.received), flow.class.label());
            if let Some(watched) = self.flows.get_mut(&flow.tuple) {
                watched.is_open = true;
                watched.see(now, self.stage, at);
            } else if self.flows.len() < WATCHED_MAX {
                let is_acknowledged = flow.tuple.protocol == TCP;
                let felt = [Felt::default(); 3];
                let watched =
                    Watched { class, is_acknowledged, at, still_since: now, felt, is_open: true };
                self.flows.insert(flow.tuple, watched);
            }
        }
    }

    /// Another stage begins.
    fn turn(&mut self, now: Instant, stage: Stage) {
        for watched in self.flows.values_mut() {
            watched.pause(now, self.stage);
            watched.still_since = now;
        }
        self.stage = stage;
    }
}

impl Watched {
    /// Its ends have got as far as `at`.
    fn see(&mut self, now: Instant, stage: Stage, at: (u32, u32)) {
        // A word that was said late is no step back.
        let forth = |from: u32, to: u32| {
            let moved = to.wrapping_sub(from);
            if moved.cast_signed() > 0 { u64::from(moved) } else { 0 }
        };
        let (sent, received) = (forth(self.at.0, at.0), forth(self.at.1, at.1));
        if sent + received == 0 {
            return;
        }
        if self.is_acknowledged || received > 0 {
            self.pause(now, stage);
            self.still_since = now;
        }
        self.at = at;
        if let Some(felt) = self.felt.get_mut(stage as usize) {
            felt.sent += sent;
            felt.received += received;
        }
    }

    /// It stood still until now.
    fn pause(&mut self, now: Instant, stage: Stage) {
        if let Some(felt) = self.felt.get_mut(stage as usize) {
            felt.pause = felt.pause.max(now.saturating_duration_since(self.still_since));
        }
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_pause_belongs_to_the_stage_in_which_it_was_felt() {
        let begun = Instant::now();
        let mut watched = Watched {
            class: "bulk",
            is_acknowledged: true,
            at: (u32::MAX, 7),
            still_since: begun,
            felt: [Felt::default(); 3],
            is_open: true,
        };
        watched.see(begun + 10 * MS, Stage::Before, (99, 7));
        watched.see(begun + 20 * MS, Stage::Before, (99, 7));
        watched.see(begun + 30 * MS, Stage::Before, (98, 8));
        watched.pause(begun + 35 * MS, Stage::Before);
        watched.still_since = begun + 35 * MS;
        watched.see(begun + 95 * MS, Stage::Without, (98, 1_008));
        let [before, without, after] = watched.felt;
        assert_eq!(before, Felt { sent: 100, received: 1, pause: 20 * MS });
        assert_eq!(without, Felt { sent: 0, received: 1_000, pause: 60 * MS });
        assert_eq!(after, Felt::default());
    }

    #[test]
    fn of_datagrams_only_those_that_come_are_a_sign() {
        let begun = Instant::now();
        let mut watched = Watched {
            class: "real-time",
            is_acknowledged: false,
            at: (0, 0),
            still_since: begun,
            felt: [Felt::default(); 3],
            is_open: true,
        };
        for step in 1..=10 {
            watched.see(begun + step * 10 * MS, Stage::Before, (step * 200, 200));
        }
        watched.see(begun + 110 * MS, Stage::Before, (2_200, 400));
        assert_eq!(watched.felt[0], Felt { sent: 2_200, received: 400, pause: 100 * MS });
    }

    #[test]
    fn it_goes_through_its_stages_and_ends() {
        let begun = Instant::now();
        let mut rehearsal = Rehearsal::new(begun, "eth1", Duration::from_secs(10));
        assert_eq!((rehearsal.unplugged(), rehearsal.due()), (None, Some(begun)));
        assert!(!rehearsal.turn(begun + MS));
        let cut = begun + BESIDE;
        assert!(rehearsal.turn(cut));
        assert_eq!(rehearsal.unplugged(), Some("eth1"));
        let back = cut + Duration::from_secs(10);
        assert!(!rehearsal.turn(back - MS) && rehearsal.turn(back));
        assert_eq!(rehearsal.unplugged(), None);
        assert!(rehearsal.doing().is_some() && rehearsal.turn(back + BESIDE));
        assert_eq!((rehearsal.doing(), rehearsal.due()), (None, None));
        assert_eq!(rehearsal.report()["over"], true);
    }
}
