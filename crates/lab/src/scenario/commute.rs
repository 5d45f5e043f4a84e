//! `commute`: a transfer on the way to work: the link is there for five seconds and gone for seven,
//! again and again (Figure 4.15 of Alshalan's thesis), and each time the client returns with
//! another address.
//!
//! The thesis kept the address, so that OpenVPN's late resumption would not count. The transfer is
//! compared with one without outages over the same tunnel. Recorded links are never the same twice:
//! there each is compared with the recording's capacity in the time that counts.

use super::drawn::Draw;
use super::outage::{
    self, BASELINE, CONGESTION, FIRST_NS, MODE, Outages, SHARE_MIN, Shares, TRANSFER, congestion,
    over_outages, receiver,
};
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::{About, CleanLink, FAMILY, Key, Outcome, Scenario, Stage, USUAL};
use crate::emu::{LinkConfig, PipeConfig, Rate, SECOND, Trace};
use crate::ground::{Act, Connections, Cue, Ground, Receiver, Terrain, Transfer, Trouble};
use anyhow::Context as _;

/// How long the link is there, and gone, as in the thesis.
const ON_NS: u64 = 5 * SECOND;
/// See [`ON_NS`].
const OFF_NS: u64 = 7 * SECOND;
/// The cost of a restart beyond a round trip, in milliseconds: 5.1 over ten seeds in virtual time,
/// and a quarter of the whole.
const RESTART_MARGIN_MS: f64 = 16.0;
/// The longest rest of a transfer after the outages, in multiples of its least time.
const SLOWNESS: u64 = 3;
/// How long a control continues after the first outage.
const CONTROL_NS: u64 = OFF_NS + 3 * SECOND;
/// The longest recording that is read, in bytes.
const TRACE_BYTES: u64 = 100_000_000;
/// The client's first interface leaves its network, and is in another one later.
const ACTS: [Act; 2] = [Act::Unplug(0), Act::Relocate];

/// The settings.
const SETTINGS: &[Setting] = &[
    MODE,
    TRANSFER,
    CONGESTION,
    Setting::number("megabytes", 90, (14, 2_000), "size of each transfer"),
    Setting::number("outages", 20, (1, 100), "the most outages, if it takes so long"),
    Setting::text("down", "a file with a recorded downlink, as mahimahi has them"),
    Setting::text("up", "the same for the uplink; where one is missing it is like the other"),
    BASELINE,
    FAMILY,
];

/// The keys at least.
const KEYS: &[Key] = &[
    outage::KEYS[0],
    outage::KEYS[1],
    outage::KEYS[2],
    outage::KEYS[3],
    outage::KEYS[4],
    outage::KEYS[5],
    Key::lower_is_better("outages"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Commute;

impl Scenario for Commute {
    fn about(&self) -> About {
        About {
            name: "commute",
            summary: "a transfer over a link that is there for 5 s and gone for 7 s, each time a \
                      new one",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    /// The values of the figure's third case.
    fn paper(&self, _settings: &Settings) -> Paper {
        const FIGURE: &str = "Figure 4.15, third case";
        Paper::of("Alshalan 2017, section 4.8.3: outages until 100 MB had arrived")
            .cite("buffered_outages", 10, "outages", FIGURE)
            .beside("outages")
            .cite("unbuffered_outages", 16, "outages", FIGURE)
            .cite("openvpn_outages", 20, "outages", FIGURE)
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![Limit::at_least("goodput_share", SHARE_MIN), Limit::equal("checksum_ok", true)]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        restart_ms(&USUAL.nearest())
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut draw = Draw::new(stage.seed);
        let usual = draw.link(&USUAL);
        let terrain = Terrain::of(link(stage.settings, &usual)?);
        let mut story = |ground: &mut dyn Ground, outcome: &mut Outcome| {
            tell(ground, stage, &terrain.link, outcome)
        };
        let mut outcome = over_outages(stage, &terrain, &mut story)?;
        // A recorded link may carry nothing for a while by itself, also just after it returned.
        if !is_recorded(stage.settings) {
            outcome.ask(Limit::at_most("restart_ms_max", restart_ms(&usual)));
        }
        draw.report(&mut outcome);
        Ok(outcome)
    }
}

fn restart_ms(link: &CleanLink) -> f64 {
    link.round_trips_ms(1.0) + RESTART_MARGIN_MS
}

fn is_recorded(settings: &Settings) -> bool {
    ["down", "up"].iter().any(|key| !settings.text(key).is_empty())
}

/// The usual link, or a recorded one with the usual round trip.
fn link(settings: &Settings, usual: &CleanLink) -> anyhow::Result<LinkConfig> {
    let [down, up] = ["down", "up"].map(|key| settings.text(key));
    if !is_recorded(settings) {
        return Ok(usual.link());
    }
    let [down, up] = [[down, up], [up, down]].map(|[first, other]| {
        let path = if first.is_empty() { other } else { first };
        read_trace(path)
    });
    Ok(LinkConfig::recorded(up?, down?, usual.round_trip_ns))
}

fn read_trace(path: &str) -> anyhow::Result<Trace> {
    let size = std::fs::metadata(path).with_context(|| format!("cannot read {path}"))?.len();
    anyhow::ensure!(size <= TRACE_BYTES, "{path} is longer than {TRACE_BYTES} bytes");
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
    Trace::parse(&text).with_context(|| format!("{path} is no recording"))
}

/// The run.
fn tell(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    link: &LinkConfig,
    outcome: &mut Outcome,
) -> Result<(), Trouble> {
    let settings = stage.settings;
    let outages = Outages {
        first_ns: FIRST_NS,
        count: settings.number("outages"),
        length_ns: OFF_NS,
        between_ns: ON_NS,
    };
    (stage.tell)("a transfer without outages");
    let undisturbed = transfer(ground, stage, link, &[], outages.total_ns())?;
    (stage.tell)("the same, and the link comes and goes");
    let script = outages.script(ACTS, stage);
    let disturbed = transfer(ground, stage, link, &script, outages.total_ns())?;
    let pipe = match receiver(settings) {
        Receiver::Client => &link.down,
        Receiver::Server => &link.up,
    };
    let mut shares = Shares::default();
    shares.add(&undisturbed, &disturbed, &|from_ns, to_ns| capacity(pipe, from_ns, to_ns));
    outcome.count("outages", disturbed.outages().count() as u64);
    shares.report(outcome);
    Ok(())
}

fn transfer(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    link: &LinkConfig,
    script: &[Cue],
    outages_ns: u64,
) -> Result<Transfer, Trouble> {
    let settings = stage.settings;
    let length = settings.number("megabytes") * 1_000_000;
    let bulk = Connections {
        congestion: congestion(settings),
        ..Connections::bulk(receiver(settings), length)
    };
    let slower = [&link.up, &link.down].map(mean_rate).into_iter().min().unwrap_or(1).max(1);
    let alone_ns = length * 8 * SECOND / slower;
    let gone_for_good = stage.control() && !script.is_empty();
    let limit_ns = match gone_for_good {
        true => FIRST_NS + CONTROL_NS,
        false => SLOWNESS * alone_ns + outages_ns,
    };
    let mut transfers = ground.connect(&[bulk], limit_ns, script)?.concat();
    Ok(transfers.pop().unwrap_or_default())
}

/// Bits per second.
fn mean_rate(pipe: &PipeConfig) -> u64 {
    match &pipe.rate {
        Rate::Unlimited => u64::MAX,
        Rate::BitsPerSecond(rate) => *rate,
        Rate::Trace(trace) => trace.mean_bits_per_second(),
        Rate::Changing(changes) => changes.at(0),
    }
}

/// The capacity of a pipe between two moments, in bytes.
fn capacity(pipe: &PipeConfig, from_ns: u64, to_ns: u64) -> f64 {
    match &pipe.rate {
        Rate::Trace(trace) => trace.capacity_bytes(from_ns, to_ns) as f64,
        Rate::Unlimited | Rate::BitsPerSecond(_) | Rate::Changing(_) => {
            mean_rate(pipe) as f64 / 8.0 * (to_ns - from_ns) as f64 / SECOND as f64
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SETTINGS, USUAL, capacity, link, read_trace};
    use crate::emu::{PipeConfig, Rate, SECOND};
    use crate::scenario::settings::Settings;

    #[test]
    fn a_recording_that_is_none_is_named() {
        let error = read_trace("no such file").unwrap_err();
        assert_eq!(error.to_string(), "cannot read no such file");
        let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let error = format!("{:#}", read_trace(manifest).unwrap_err());
        assert!(error.ends_with("is no recording: line 1: not a number of milliseconds"));
        let settings = Settings::parse(SETTINGS, &["up=no such file".to_owned()]).unwrap();
        assert!(link(&settings, &USUAL).is_err());
        assert!(link(&Settings::parse(SETTINGS, &[]).unwrap(), &USUAL).is_ok());
    }

    #[test]
    fn a_link_of_one_rate_can_carry_it_all_the_time() {
        let pipe = PipeConfig { rate: Rate::BitsPerSecond(8_000_000), ..PipeConfig::default() };
        assert_eq!(capacity(&pipe, SECOND, 3 * SECOND), 2e6);
    }
}
