//! `gso-mangled`: hosts whose segmentation offload loses datagrams, as some kernels, network cards
//! and virtual hosts do.
//!
//! Each cell is one connection, to the client or from it, over hosts that mangle one kind of
//! segmented sends from its beginning on. Its goodput is compared with that over the same link
//! without the fault, from the second on in which the hosts should have fallen back. Both ends
//! report when they fell back.
//!
//! Other cells have hosts with sound offload, over links with random losses, with bursts of losses,
//! and with a policer that drops the ends of bursts. Nobody may fall back there.
//!
//! In a control nobody looks for mangled sends. In namespaces the real binary always does; there
//! the goodput is compared with that of a link with twice the rate.

use super::drawn::Draw;
use super::links::GRID;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::max;
use super::table::{self, Row, TABLE, figure, least};
use super::{About, CALM_NS, CleanLink, Key, Outcome, Scenario, Stage};
use crate::emu::{LinkConfig, Loss, MS, PipeConfig, SECOND};
use crate::ground::{Connections, Ground, Harm, Mangled, Receiver, Reported, Terrain, Trouble};
use serde_json::Value;

/// Time within which goodput must be back,
const BACK_NS: u64 = 2 * SECOND;
/// and its least value then, relative to the goodput without the fault.
const GOODPUT_SHARE_MIN: f64 = 0.9;
/// The least goodput of sound hosts that look for mangled sends, relative to those that do not.
const HEALTHY_SHARE_MIN: f64 = 0.99;

/// The round trip of the link.
const ROUND_TRIP_NS: u64 = 20 * MS;
/// Loss of the lossy link in each direction.
const LOSS: f64 = 0.05;
/// Mean length of a burst of losses, in datagrams.
const BURST: f64 = 8.0;
/// Bytes that may wait before the policed link: it drops the rest of a burst.
const POLICED_BYTES: u64 = 20_000;
/// Length of connections over these links.
const SOUND_NS: u64 = 20 * SECOND;

const EVERY_NTH: &str = "every-nth";
/// Sound hosts alone.
const NOTHING: &str = "nothing";
const MBPS: Setting = Setting::number("mbps", 50, (5, 500), "rate of the link, in Mbit/s");
const TO: Setting = Setting::choice("to", &[GRID, "client", "server"], "which end receives");
const MANGLED: Setting = Setting::choice(
    "mangled",
    &[GRID, NOTHING, "every", EVERY_NTH, "equal-runs", "full-last"],
    "which segmented sends are mangled",
);
const EVERY: Setting =
    Setting::number("every", 5, (2, 16), "of so many segmented sends one is lost");
const SECONDS: Setting = Setting::number("seconds", 10, (4, 120), "how long each connection lasts");

/// The keys at least.
const KEYS: &[Key] = &[
    Key::higher_is_better("goodput_share"),
    Key::lower_is_better("noticed_s"),
    Key::lower_is_better("false_alarms"),
    Key::higher_is_better("healthy_share"),
    Key::higher_is_better(TABLE),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct GsoMangled;

impl Scenario for GsoMangled {
    fn about(&self) -> About {
        About {
            name: "gso-mangled",
            summary: "hosts whose segmentation offload loses datagrams: who notices, and how soon",
            settings: &[TO, MANGLED, EVERY, MBPS, SECONDS],
            keys: KEYS,
        }
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        let mut limits = vec![Limit::at_most("false_alarms", 0)];
        if settings.text(MANGLED.key) != NOTHING {
            limits.push(Limit::at_least("goodput_share", GOODPUT_SHARE_MIN));
        }
        limits
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        BACK_NS as f64 / MS as f64
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut draw = Draw::new(stage.seed);
        let rate = stage.settings.number(MBPS.key) * 1_000_000;
        let link = draw.link(&CleanLink { rate, round_trip_ns: ROUND_TRIP_NS });
        let mut outcome = Outcome::default();
        let mut cells = Cells { stage, link, outcome: &mut outcome };
        let rows = cells.tell()?;
        if stage.settings.text(MANGLED.key) == NOTHING {
            outcome.skip("goodput_share", "nothing is mangled");
            outcome.skip("noticed_s", "nothing is mangled");
        } else {
            outcome.measure("goodput_share", least(&rows, "goodput_share"));
            outcome.measure("noticed_s", noticed(&rows));
        }
        match stage.entered {
            None => outcome.measure("healthy_share", least(&rows, "healthy_share")),
            Some(_) => outcome.skip("healthy_share", "the real binary always looks"),
        }
        let alarms = rows.iter().filter_map(|row| row["false_alarms"].as_u64());
        outcome.count("false_alarms", alarms.sum());
        if stage.entered.is_none() {
            outcome.ask(Limit::at_least("healthy_share", HEALTHY_SHARE_MIN));
        }
        outcome.measured.insert(TABLE.to_owned(), Value::Array(rows));
        draw.report(&mut outcome);
        Ok(outcome)
    }
}

/// The latest notice of all cells; `None` if nothing was noticed. If mangled sends cost nothing,
/// nobody has to notice them.
fn noticed(rows: &[Value]) -> Option<f64> {
    let noticed = rows.iter().filter_map(|row| row.get("noticed_s"));
    max(&noticed.filter_map(Value::as_f64).collect::<Vec<_>>())
}

/// The result of one connection.
struct Had {
    mbps: Option<f64>,
    /// Time from its beginning until the sender fell back.
    noticed_s: Option<f64>,
    /// Ends that have fallen back.
    fallbacks: u64,
}

struct Cells<'a> {
    stage: &'a Stage<'a>,
    link: CleanLink,
    outcome: &'a mut Outcome,
}

impl Cells<'_> {
    fn tell(&mut self) -> anyhow::Result<Vec<Value>> {
        let mut rows = Vec::new();
        let set = self.stage.settings.text(TO.key);
        for (to, receiver) in [("client", Receiver::Client), ("server", Receiver::Server)] {
            if [GRID, to].contains(&set) {
                self.mangled(&mut rows, to, receiver)?;
                self.sound(&mut rows, to, receiver)?;
            }
        }
        Ok(rows)
    }

    /// The selected kinds of mangled sends that this backend can make.
    fn kinds(&self) -> Vec<(&'static str, Mangled)> {
        let every = self.stage.settings.number(EVERY.key) as u32;
        let mut kinds =
            vec![("every", Mangled::EveryNth(1)), (EVERY_NTH, Mangled::EveryNth(every))];
        if self.stage.entered.is_none() {
            // A kernel's packet filter cannot see how long a last segment is.
            kinds.extend([("equal-runs", Mangled::EqualRuns), ("full-last", Mangled::FullLast)]);
        }
        let set = self.stage.settings.text(MANGLED.key);
        kinds.retain(|(name, _)| [GRID, *name].contains(&set));
        kinds
    }

    /// Hosts with the fault, compared with hosts without.
    fn mangled(
        &mut self,
        rows: &mut Vec<Value>,
        to: &'static str,
        receiver: Receiver,
    ) -> anyhow::Result<()> {
        let length_ns = self.stage.settings.number(SECONDS.key) * SECOND;
        let (is_real, is_control) = (self.stage.entered.is_some(), self.stage.control());
        let terrain = Terrain::of(self.link.link());
        let blind = Terrain { judges_offload: false, ..terrain.clone() };
        let twice = CleanLink { rate: self.link.rate * 2, ..self.link };
        let reference = Terrain::of(if is_real && is_control { twice } else { self.link }.link());
        let sound = self.carry(&reference, receiver, length_ns, None)?;
        let blind_mbps = match is_real {
            true => None,
            false => self.carry(&blind, receiver, length_ns, None)?.mbps,
        };
        self.push(
            rows,
            [
                ("to", to.into()),
                ("mangled", NOTHING.into()),
                ("mbps", figure(sound.mbps)),
                ("healthy_share", figure(share(sound.mbps, blind_mbps))),
                ("false_alarms", sound.fallbacks.into()),
            ],
        );
        for (name, mangled) in self.kinds() {
            let terrain = if is_control && !is_real { &blind } else { &terrain };
            let had = self.carry(terrain, receiver, length_ns, Some(mangled))?;
            self.push(
                rows,
                [
                    ("to", to.into()),
                    ("mangled", name.into()),
                    ("mbps", figure(had.mbps)),
                    ("goodput_share", figure(share(had.mbps, sound.mbps))),
                    ("noticed_s", figure(had.noticed_s)),
                ],
            );
        }
        Ok(())
    }

    /// Sound hosts, over lossy links.
    fn sound(
        &mut self,
        rows: &mut Vec<Value>,
        to: &'static str,
        receiver: Receiver,
    ) -> anyhow::Result<()> {
        let links = [
            ("loss", lossy(&self.link, Loss::Bernoulli(LOSS))),
            ("bursts", lossy(&self.link, Loss::bursts(LOSS, BURST))),
            ("policer", policed(&self.link)),
        ];
        for (name, link) in links {
            let had = self.carry(&Terrain::of(link), receiver, SOUND_NS, None)?;
            self.push(
                rows,
                [
                    ("to", to.into()),
                    ("mangled", NOTHING.into()),
                    ("link", name.into()),
                    ("mbps", figure(had.mbps)),
                    ("false_alarms", had.fallbacks.into()),
                ],
            );
        }
        Ok(())
    }

    fn push<const N: usize>(&self, rows: &mut Vec<Value>, cells: [(&str, Value); N]) {
        let row: Row = table::row(cells);
        (self.stage.tell)(&table::line(&row));
        rows.push(Value::Object(row));
    }

    /// One connection of this length, over hosts with this fault from its beginning on.
    fn carry(
        &mut self,
        terrain: &Terrain,
        to: Receiver,
        length_ns: u64,
        mangled: Option<Mangled>,
    ) -> anyhow::Result<Had> {
        let mbps = self.link.rate / 1_000_000;
        let connection = Connections::outlasting(to, mbps, length_ns);
        let mut had = Had { mbps: None, noticed_s: None, fallbacks: 0 };
        let told = self.stage.on_ground(terrain, &mut |ground, _| {
            ground.pause(CALM_NS)?;
            if let Some(mangled) = mangled {
                ground.harm(Harm::Segments(mangled))?;
            }
            let took_ns = length_ns + Connections::OPENING_NS;
            let transfers = ground.connect(&[connection], took_ns, &[])?;
            let transfer = transfers.first().and_then(|all| all.first());
            had.mbps = transfer.and_then(|one| one.mbps_within(BACK_NS, length_ns));
            let fell_back = fallbacks(ground)?;
            had.fallbacks = fell_back.iter().flatten().count() as u64;
            // The receiver of a connection sends little but acknowledgements.
            let [client, gateway] = fell_back;
            let sender_ns = if to == Receiver::Client { gateway } else { client };
            let lasted_ns = transfer.map_or(0, |one| one.end_ns - one.start_ns);
            had.noticed_s =
                sender_ns.map(|ago_ns| lasted_ns.saturating_sub(ago_ns) as f64 / SECOND as f64);
            Ok(())
        })?;
        self.outcome.absorb(told);
        Ok(had)
    }
}

/// For how long the client and the gateway have fallen back, the longest of all paths.
fn fallbacks(ground: &mut dyn Ground) -> Result<[Option<u64>; 2], Trouble> {
    let longest = |paths: &[Reported]| paths.iter().filter_map(|path| path.fallback_ns).max();
    let client = longest(&ground.reported(Receiver::Client)?);
    Ok([client, longest(&ground.reported(Receiver::Server)?)])
}

fn share(part: Option<f64>, of: Option<f64>) -> Option<f64> {
    Some(part? / of?)
}

fn lossy(link: &CleanLink, loss: Loss) -> LinkConfig {
    let with = |pipe: PipeConfig| PipeConfig { loss, ..pipe };
    let LinkConfig { up, down } = link.link();
    LinkConfig { up: with(up), down: with(down) }
}

fn policed(link: &CleanLink) -> LinkConfig {
    let with = |pipe: PipeConfig| PipeConfig { queue_bytes: POLICED_BYTES, ..pipe };
    let LinkConfig { up, down } = link.link();
    LinkConfig { up: with(up), down: with(down) }
}
