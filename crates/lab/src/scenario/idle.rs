//! `idle`: the cost of a session without traffic (Figure 3.11 of Alshalan's thesis): behind a NAT
//! that forgets after 120 s, behind one that forgets after 30 s, and with a public address.
//!
//! Silence alone is no merit: after it the server sends, and must reach the client at once. In
//! virtual time the whole day passes. In real time the day is extrapolated from a part: the first
//! minute, as in the thesis; then the client learns how long the NAT keeps a mapping; then the
//! steady cost, over a period many times as long. All together take an hour and a half.

use super::drawn::Draw;
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::{About, Baseline, FAMILY, Key, Outcome, Scenario, Stage, USUAL};
use crate::emu::{Filtering, MS, SECOND};
use crate::ground::{Act, Clock, Edge, Flow, Ground, Terrain, Trouble};

/// A day in seconds.
const DAY_S: u64 = 86_400;
/// The least time after its start in which the session comes to rest.
const SETTLING_NS: u64 = 4 * SECOND;
/// How long the server then sends.
const SAID_NS: u64 = 500 * MS;
/// The most bytes of a day behind a box that forgets after 120 s, after 30 s, and without one.
const BYTES_MAX: [u64; 3] = [60_000, 250_000, 0];

/// The networks, each with its key.
const CASES: [(&str, Edge); 3] = [
    ("bytes_per_day_nat", behind_nat(120 * SECOND)),
    ("bytes_per_day_nat_30", behind_nat(30 * SECOND)),
    ("bytes_per_day_open", Edge::Open),
];

/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::number("seconds", 60, (1, 3_600), "how long to listen at first, as the thesis did"),
    Setting::number(
        "learning",
        18,
        (0, 100),
        "how long the client learns in real time, in multiples of what the box remembers",
    ),
    Setting::number("listening", 19, (0, 1_000), "how long to listen after that, in the same"),
    Setting::number("hours", 24, (1, 720), "how long to listen in virtual time"),
    FAMILY,
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::lower_is_better("bytes_per_day_nat"),
    Key::lower_is_better("bytes_per_day_nat_30"),
    Key::lower_is_better("bytes_per_day_open"),
    Key::lower_is_better("packets_60s"),
    Key::lower_is_better("bytes_60s"),
    Key::lower_is_better("lost_afterwards"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Idle;

impl Scenario for Idle {
    fn about(&self) -> About {
        About {
            name: "idle",
            summary: "what a silent session costs a day, behind NAT boxes and without one",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    /// The thesis shows the packets of a minute as a picture without numbers.
    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("Alshalan 2017, section 3.7.4: 60 s in which the user sends nothing")
            .cite("packets", "a picture only", "", "Figure 3.11")
            .beside("packets_60s")
            .note(
                "OpenVPN with a time-out of 3 s never rests; it does not run beside, because a \
                 silent session has no baseline here",
            )
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        let cases = CASES.iter().zip(BYTES_MAX);
        let limits = cases.map(|((key, _), bytes)| Limit::at_most(key, bytes));
        limits.chain([Limit::equal("lost_afterwards", 0)]).collect()
    }

    /// No limit here is a matter of milliseconds.
    fn bound_ms(&self, _settings: &Settings) -> f64 {
        (SAID_NS / MS) as f64
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut all = Outcome::default();
        let mut lost = 0;
        let mut draw = Draw::new(stage.seed);
        for (key, edge) in CASES {
            (stage.tell)(&format!("silence for {key}"));
            let terrain = Terrain { edge, ..draw.link(&USUAL).terrain() };
            let one = stage.on_ground(&terrain, &mut |ground, outcome| {
                lost += tell(ground, stage, (key, edge, &mut draw), outcome)?;
                Ok(())
            })?;
            all.absorb(one);
        }
        all.count("lost_afterwards", lost);
        draw.report(&mut all);
        all.baseline = Baseline::None("a link without a tunnel is silent".to_owned());
        Ok(all)
    }
}

const fn behind_nat(expiry_ns: u64) -> Edge {
    Edge::Nat { filtering: Filtering::Port, expiry_ns }
}

/// The run in one network; returns the datagrams lost at its end.
fn tell(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    (key, edge, draw): (&str, Edge, &mut Draw),
    outcome: &mut Outcome,
) -> Result<u64, Trouble> {
    ground.pause(draw.longer(SETTLING_NS))?;
    if stage.control() {
        ground.act(Act::Swallow(0))?;
    }
    let minute_ns = stage.settings.number("seconds") * SECOND;
    let minute = ground.listen(minute_ns)?;
    if key == CASES[0].0 {
        outcome.count("packets_60s", minute.packets);
        outcome.count("bytes_60s", minute.bytes);
    }
    let lifetimes = |name| match edge {
        Edge::Nat { expiry_ns, .. } => stage.settings.number(name) * expiry_ns,
        Edge::Open | Edge::Any => 0,
    };
    let (length_ns, bytes) = match ground.clock() {
        Clock::Real => {
            ground.pause(lifetimes("learning"))?;
            let length_ns = lifetimes("listening").max(minute_ns);
            (length_ns, ground.listen(length_ns)?.bytes)
        }
        Clock::Virtual => {
            let length_ns = stage.settings.number("hours") * 3_600 * SECOND;
            (length_ns, minute.bytes + ground.listen(length_ns - minute_ns)?.bytes)
        }
    };
    let per_day = bytes as f64 * (DAY_S * SECOND) as f64 / length_ns as f64;
    outcome.measure(key, Some(per_day));
    let run = ground.flow(Flow::lasting(SAID_NS), &[])?;
    Ok(run.lost)
}
