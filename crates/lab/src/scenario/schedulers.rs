//! `schedulers`: tests each scheduler by a property that no other has (Lukaszewski 2017, section
//! 2.2.4; Multilink VPN, "Link Quality").
//!
//! On full links most schedulers look alike, because congestion control decides the share of each
//! link. So there are four loads. Few datagrams, bursts, and more than both links carry use a near
//! slow link and a far fast one. Few datagrams use two equal links, of which the first loses
//! packets. The share of the first link tells the schedulers apart.

use super::drawn::Draw;
use super::links::Carried;
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::table::{self, Row, TABLE, figure};
use super::values::Values;
use super::{About, CALM_NS, CleanLink, Key, Outcome, Scenario, Stage};
use crate::emu::{LinkConfig, Loss, MS, SECOND};
use crate::ground::{
    Connections, Datagrams, DatagramsRun, Ground, Pace, Receiver, Reported, SCHEDULERS, Terrain,
    Trouble, What,
};
use serde_json::Value;

/// The near link and the far one.
const NEAR: CleanLink = CleanLink { rate: 10_000_000, round_trip_ns: 20 * MS };
const FAR: CleanLink = CleanLink { rate: 30_000_000, round_trip_ns: 60 * MS };
/// Two equal links with room to spare, for the last load.
const EQUAL: CleanLink = CleanLink { rate: 50_000_000, round_trip_ns: 20 * MS };
/// Few datagrams: less than either link carries, in kbit/s with their headers.
const FEW_KBPS: u64 = 4_000;
/// More than both links carry.
const MUCH_KBPS: u64 = 44_000;
/// A burst of ten segments: the near link has carried it before the far one delivers its first.
const BURST_BYTES: u32 = 13_680;
/// Time between two bursts: each has arrived before the next leaves.
const BURST_EVERY_NS: u64 = 150 * MS;
/// UDP payload of a datagram through the tunnel, about: 28 bytes of inner headers, and 31 of the
/// tunnel's own.
const OUTER_BYTES: u64 = Datagrams::BYTES as u64 + 28 + 31;
/// Time in which the loss of a link is learned before anything counts.
const LEARNING_NS: u64 = 3 * SECOND;
/// The last load lasts this many times as long as the others, because it depends on chance.
const LOSSY_TIMES: u64 = 2;

/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::choice(
        "scheduler",
        &["all", "earliest", "rtt", "round-robin", "redundant", "loss", "rate", "latency"],
        "one of them alone",
    ),
    Setting::choice(
        "uses",
        &["itself", "earliest", "rtt", "round-robin", "redundant", "loss", "rate", "latency"],
        "what carries in place of each: the property of another is missing then",
    ),
    Setting::number(
        "lost",
        30,
        (1, 50),
        "per cent that the first of the equal links loses each way",
    ),
    Setting::number("seconds", 4, (2, 60), "how long each load lasts"),
];

/// The columns of the table. The near link's share of few datagrams, and received bytes for each
/// byte of payload;
const FEW_NEAR: &str = "few_near";
const FEW_BYTES: &str = "few_bytes";
/// the near link's share of bursts;
const BURST_NEAR: &str = "burst_near";
/// of more than there is room for, the near link's share, and the received part of both links'
/// capacity;
const MUCH_NEAR: &str = "much_near";
const MUCH_SHARE: &str = "much_share";
/// the near link's share of few datagrams after both links were filled;
const KNOWN_NEAR: &str = "known_near";
/// and of first transmissions the share of the lossy link beside an equal one.
const LOSSY: &str = "lossy";

/// The condition on a figure.
#[derive(Clone, Copy, Debug)]
enum Asked {
    AtLeast(f64),
    AtMost(f64),
}

use Asked::{AtLeast, AtMost};

/// A figure of a scheduler: its key, its column, and the condition.
type Figure = (&'static str, &'static str, Asked);

/// The property that only this scheduler has.
const PROPERTIES: [(&str, &[Figure]); 7] = [
    // The near link carries every packet that arrives first on it, also after a wait; the rest
    // fills both links.
    (
        "earliest",
        &[
            ("earliest_burst_near", BURST_NEAR, AtLeast(0.9)),
            ("earliest_much_share", MUCH_SHARE, AtLeast(0.9)),
        ],
    ),
    // The near link carries first, and the far one when a packet would wait.
    (
        "rtt",
        &[
            ("rtt_known_near", KNOWN_NEAR, AtLeast(0.9)),
            ("rtt_burst_near", BURST_NEAR, AtMost(0.6)),
        ],
    ),
    // Both links carry the same number, whatever their rate and loss.
    (
        "round-robin",
        &[
            ("round_robin_few_near", FEW_NEAR, AtLeast(0.45)),
            ("round_robin_few_near_max", FEW_NEAR, AtMost(0.55)),
            ("round_robin_few_bytes", FEW_BYTES, AtMost(1.5)),
            ("round_robin_lossy", LOSSY, AtLeast(0.41)),
        ],
    ),
    // Each packet uses both links.
    ("redundant", &[("redundant_few_bytes", FEW_BYTES, AtLeast(1.9))]),
    // Both links carry the same number without loss; a lossy link carries fewer.
    (
        "loss",
        &[
            ("loss_few_near", FEW_NEAR, AtLeast(0.45)),
            ("loss_few_near_max", FEW_NEAR, AtMost(0.55)),
            ("loss_lossy", LOSSY, AtMost(0.41)),
        ],
    ),
    // The faster link carries first, whatever its round trip.
    ("rate", &[("rate_known_near", KNOWN_NEAR, AtMost(0.1))]),
    // The near link carries alone, also beyond its capacity.
    ("latency", &[("latency_much_near", MUCH_NEAR, AtLeast(0.9))]),
];

/// How often a scheduler has another's property.
const MISTAKEN: &str = "mistaken";

/// The keys at least.
const KEYS: &[Key] = &[
    Key::higher_is_better("earliest_burst_near"),
    Key::higher_is_better("earliest_much_share"),
    Key::higher_is_better("rtt_known_near"),
    Key::lower_is_better("rtt_burst_near"),
    Key::higher_is_better("round_robin_few_near"),
    Key::lower_is_better("round_robin_few_near_max"),
    Key::lower_is_better("round_robin_few_bytes"),
    Key::higher_is_better("round_robin_lossy"),
    Key::higher_is_better("redundant_few_bytes"),
    Key::higher_is_better("loss_few_near"),
    Key::lower_is_better("loss_few_near_max"),
    Key::lower_is_better("loss_lossy"),
    Key::lower_is_better("rate_known_near"),
    Key::higher_is_better("latency_much_near"),
    Key::lower_is_better(MISTAKEN),
    Key::must_hold("checksum_ok"),
    Key::higher_is_better(TABLE),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Schedulers;

impl Scenario for Schedulers {
    fn about(&self) -> About {
        About {
            name: "schedulers",
            summary: "what each scheduler does with two links that no other does",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("Multilink VPN and Lukaszewski 2017, section 2.2.4: what the schedulers are")
            .cite("properties", "described, none measured", "", "Link Quality")
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        let figures = told(settings).flat_map(|(_, figures)| figures.iter());
        let own = figures.map(|(key, _, asked)| asked.limit(key));
        own.chain([Limit::equal(MISTAKEN, 0), Limit::equal("checksum_ok", true)]).collect()
    }

    /// The difference between the near link and the far one.
    fn bound_ms(&self, _settings: &Settings) -> f64 {
        ((FAR.round_trip_ns - NEAR.round_trip_ns) / 2 / MS) as f64
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        let mut draw = Draw::new(stage.seed);
        let [near, far, equal] = [NEAR, FAR, EQUAL].map(|usual| draw.link(&usual).link());
        draw.report(&mut outcome);
        let unequal = [near, far];
        let lost = Loss::Bernoulli(stage.settings.number("lost") as f64 / 100.0);
        let equal = [equal.clone().loss(lost), equal];
        let (mut rows, mut intact) = (Vec::new(), true);
        for (name, _) in told(stage.settings) {
            (stage.tell)(name);
            let mut telling = Telling { stage, row: Row::new(), intact: true };
            telling.row.insert("scheduler".to_owned(), (*name).into());
            let scheduler = carrier(stage, name);
            // On either link, until there is a path on each.
            let told = stage.on_ground(&terrain(&unequal, scheduler), &mut |ground, _| {
                ground.pause(CALM_NS)?;
                telling.over_unequal(ground)
            })?;
            outcome.absorb(told);
            let told = stage.on_ground(&terrain(&equal, scheduler), &mut |ground, _| {
                ground.pause(CALM_NS)?;
                telling.over_equal(ground)
            })?;
            outcome.absorb(told);
            (stage.tell)(&table::line(&telling.row));
            intact &= telling.intact;
            rows.push(telling.row);
        }
        report(&mut outcome, rows);
        outcome.hold("checksum_ok", intact);
        Ok(outcome)
    }
}

/// The schedulers to run, with their properties.
fn told(settings: &Settings) -> impl Iterator<Item = &'static (&'static str, &'static [Figure])> {
    let asked = settings.text("scheduler").to_owned();
    PROPERTIES.iter().filter(move |(name, _)| asked == "all" || asked == *name)
}

/// The scheduler that runs in place of this one: usually itself; in a control another, the same for
/// all.
fn carrier(stage: &Stage<'_>, name: &str) -> &'static str {
    let uses = match stage.settings.text("uses") {
        _ if stage.control() => SCHEDULERS[0],
        "itself" => name,
        other => other,
    };
    SCHEDULERS.iter().find(|known| **known == uses).unwrap_or(&SCHEDULERS[0])
}

fn terrain([first, second]: &[LinkConfig; 2], scheduler: &'static str) -> Terrain {
    Terrain { beside: vec![second.clone()], scheduler, ..Terrain::of(first.clone()) }
}

/// Writes the figures of each scheduler, and how often another has all of its properties.
fn report(outcome: &mut Outcome, rows: Vec<Row>) {
    let mut mistaken = 0;
    for (name, figures) in &PROPERTIES {
        let holds =
            |row: &Row| figures.iter().all(|(_, column, asked)| asked.holds(row.get(*column)));
        let (own, others): (Vec<&Row>, Vec<&Row>) =
            rows.iter().partition(|row| row.get("scheduler").is_some_and(|it| it == name));
        mistaken += others.into_iter().filter(|row| holds(row)).count();
        for row in own {
            let values: Values = figures
                .iter()
                .map(|(key, column, _)| ((*key).to_owned(), row.get(*column).cloned()))
                .map(|(key, value)| (key, value.unwrap_or_default()))
                .collect();
            outcome.measured.extend(values);
        }
    }
    outcome.count(MISTAKEN, mistaken as u64);
    outcome.measured.insert(TABLE.to_owned(), rows.into_iter().map(Value::Object).collect());
}

impl Asked {
    fn limit(self, key: &'static str) -> Limit {
        match self {
            AtLeast(bound) => Limit::at_least(key, bound),
            AtMost(bound) => Limit::at_most(key, bound),
        }
    }

    /// Whether a value meets the condition; a missing one does not.
    fn holds(self, value: Option<&Value>) -> bool {
        value.and_then(Value::as_f64).is_some_and(|value| match self {
            AtLeast(bound) => value >= bound,
            AtMost(bound) => value <= bound,
        })
    }
}

/// The run of one scheduler.
struct Telling<'a> {
    stage: &'a Stage<'a>,
    row: Row,
    /// Whether everything received is what was sent.
    intact: bool,
}

impl Telling<'_> {
    fn over_unequal(&mut self, ground: &mut dyn Ground) -> Result<(), Trouble> {
        let (few, came) = self.pour(ground, FEW_KBPS)?;
        let payload = few.transfer.progress.last().map(|(_, bytes)| *bytes as f64);
        self.note(FEW_NEAR, first_share(&came));
        self.note(FEW_BYTES, payload.map(|bytes| came.iter().sum::<u64>() as f64 / bytes));
        let (much, came) = self.pour(ground, MUCH_KBPS)?;
        self.note(MUCH_NEAR, first_share(&came));
        let payload_share = Carried::Udp.payload_share(ground)?;
        let mbps = much.transfer.mbps_within(self.length_ns() / 4, self.length_ns());
        let both = (NEAR.rate + FAR.rate) as f64 / 1e6;
        self.note(MUCH_SHARE, mbps.zip(payload_share).map(|(mbps, share)| mbps / both / share));
        // Both links are known now.
        let (_, came) = self.pour(ground, FEW_KBPS)?;
        self.note(KNOWN_NEAR, first_share(&came));
        let came = self.bursts(ground)?;
        self.note(BURST_NEAR, first_share(&came));
        Ok(())
    }

    fn over_equal(&mut self, ground: &mut dyn Ground) -> Result<(), Trouble> {
        // From the client, which counts for each path what left, and what of it again.
        self.carry(ground, Receiver::Server, FEW_KBPS, LEARNING_NS)?;
        let before = ground.reported(Receiver::Client)?;
        self.carry(ground, Receiver::Server, FEW_KBPS, LOSSY_TIMES * self.length_ns())?;
        let left = |one: &Reported| one.left_bytes.saturating_sub(one.left_again * OUTER_BYTES);
        let left = grown(&before, &ground.reported(Receiver::Client)?, left);
        // A path that loses so much may be given up and opened again, with another number.
        self.note(LOSSY, first_share(&left).map(|share| share.min(1.0 - share)));
        Ok(())
    }

    fn length_ns(&self) -> u64 {
        self.stage.settings.number("seconds") * SECOND
    }

    /// Datagrams at a constant rate, and the bytes received on each path meanwhile.
    fn pour(
        &mut self,
        ground: &mut dyn Ground,
        kbps: u64,
    ) -> Result<(DatagramsRun, Vec<u64>), Trouble> {
        let before = ground.reported(Receiver::Client)?;
        let run = self.carry(ground, Receiver::Client, kbps, self.length_ns())?;
        Ok((run, came(&before, &ground.reported(Receiver::Client)?)))
    }

    fn carry(
        &mut self,
        ground: &mut dyn Ground,
        to: Receiver,
        kbps: u64,
        length_ns: u64,
    ) -> Result<DatagramsRun, Trouble> {
        let what = What::Clock { kbps };
        let run = ground.pour(Datagrams { to, what, length_ns, skip_ns: 0 })?;
        self.intact &= run.transfer.intact;
        ground.pause(CALM_NS)?;
        Ok(run)
    }

    /// Bursts over a connection, and the bytes received on each path meanwhile.
    fn bursts(&mut self, ground: &mut dyn Ground) -> Result<Vec<u64>, Trouble> {
        let before = ground.reported(Receiver::Client)?;
        let bursts = self.length_ns() / BURST_EVERY_NS;
        let pace = Pace::Pieces { bytes: BURST_BYTES, every_ns: BURST_EVERY_NS };
        let bulk = Connections::bulk(Receiver::Client, bursts * u64::from(BURST_BYTES));
        let limit_ns = 2 * self.length_ns();
        let all = ground.connect(&[Connections { pace, ..bulk }], limit_ns, &[])?.concat();
        self.intact &= !all.is_empty() && all.iter().all(|one| one.complete && one.intact);
        Ok(came(&before, &ground.reported(Receiver::Client)?))
    }

    fn note(&mut self, column: &str, value: Option<f64>) {
        self.row.insert(column.to_owned(), figure(value));
    }
}

/// Bytes received on each path between two moments; that of the first link comes first.
fn came(before: &[Reported], after: &[Reported]) -> Vec<u64> {
    grown(before, after, |one| one.came_bytes)
}

/// The increase of this figure for each path between two moments.
fn grown(before: &[Reported], after: &[Reported], of: impl Fn(&Reported) -> u64) -> Vec<u64> {
    let mut after = after.to_vec();
    after.sort_unstable_by_key(|one| one.path);
    let had = |path: u64| before.iter().find(|one| one.path == path).map_or(0, &of);
    after.iter().map(|one| of(one).saturating_sub(had(one.path))).collect()
}

/// The share of the first of two paths; `None` if there are not two, or nothing arrived.
fn first_share(came: &[u64]) -> Option<f64> {
    let &[first, second] = came else { return None };
    (first + second > 0).then(|| first as f64 / (first + second) as f64)
}

#[cfg(test)]
mod tests {
    use super::{PROPERTIES, Schedulers, carrier, first_share};
    use crate::ground::SCHEDULERS;
    use crate::scenario::settings::Settings;
    use crate::scenario::{Grid, Scenario as _, Stage};

    fn settings(texts: &[&str]) -> Settings {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        Settings::parse(super::SETTINGS, &texts).unwrap()
    }

    #[test]
    fn each_scheduler_has_its_property_and_no_other_has_it() {
        let settings = settings(&[]);
        let outcome = Schedulers.run(&Stage::quiet(1, &settings, Grid::Default)).unwrap();
        let table = outcome.measured["table"].as_array().unwrap();
        assert_eq!(table.len(), SCHEDULERS.len());
        for (name, figures) in &PROPERTIES {
            for row in table {
                let has = figures.iter().all(|(_, column, asked)| asked.holds(row.get(*column)));
                assert_eq!(has, row["scheduler"] == *name, "{name}: {row}");
            }
        }
        assert_eq!(outcome.measured["mistaken"], 0);
    }

    #[test]
    fn a_scheduler_in_the_place_of_another_is_found_out() {
        let settings = settings(&["scheduler=latency", "uses=rtt", "seconds=2"]);
        let outcome = Schedulers.run(&Stage::quiet(1, &settings, Grid::Default)).unwrap();
        let limits = Schedulers.limits(&settings);
        let broken = limits.iter().filter(|limit| !limit.holds(&outcome.measured));
        assert_eq!(
            broken.map(|limit| limit.key()).collect::<Vec<_>>(),
            ["latency_much_near", "mistaken"]
        );
    }

    #[test]
    fn every_scheduler_is_told_of_under_its_own_name() {
        let names: Vec<&str> = PROPERTIES.iter().map(|(name, _)| *name).collect();
        assert_eq!(names, SCHEDULERS);
        let settings = settings(&[]);
        let stage = Stage::quiet(1, &settings, Grid::Default);
        assert!(names.iter().all(|name| carrier(&stage, name) == *name));
    }

    #[test]
    fn a_share_is_one_of_two_paths() {
        assert_eq!(first_share(&[3, 1]), Some(0.75));
        assert_eq!([first_share(&[0, 0]), first_share(&[1]), first_share(&[1, 2, 3])], [None; 3]);
    }
}
