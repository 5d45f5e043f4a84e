//! `nat-rebind`: the NAT before the client gives its mappings other ports, or restarts with another
//! address, with and without traffic.
//!
//! No event of the kernel informs the client, and its next packet informs the gateway. So data
//! pauses for the round trip in which the first datagram arrives there and the first one returns.

use super::drawn::Draw;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::{max, median};
use super::steady::{self, Steady, again_and_again};
use super::{About, CleanLink, Key, Outcome, Scenario, Stage, USUAL};
use crate::emu::{Filtering, LinkConfig, MS, Rng, SECOND};
use crate::ground::{
    Act, Clock, Cue, Edge, Flow, Ground, Pings, RoundTrips, Route, Terrain, Trouble,
};

/// Round trip of the client's own link in nanoseconds, before each seed's draw: the NAT is near.
const LINK_NS: u64 = 2 * MS;
/// One-way delay from the NAT to the gateway, in nanoseconds, before the same.
const BEYOND_NS: u64 = 19 * MS;
/// Lifetime of an unused NAT mapping: the lower end of RFC 4787.
const EXPIRY_NS: u64 = 120 * SECOND;
/// Mean time between two changes; each is up to a quarter shorter or longer.
const PAUSE_NS: u64 = 800 * MS;
/// Time between two packets for a client that only receives: a radio, or notifications.
const LISTENED_EVERY_NS: u64 = 100 * MS;
/// Time until its NAT loses the mapping again. The packets in between are too few for a stream.
const LISTENED_AGAIN_NS: u64 = 2_000 * MS;
/// The longest silence for such a client after its NAT lost the mapping, in milliseconds. The
/// client has nothing to send that would make a new one, so it has to notice the silence.
const LISTENER_MS: u64 = 5_000;
/// The least silence of the tunnel around an idle change, in real time.
const IDLE_REAL_NS: u64 = 1_200 * MS;
/// The same in virtual time.
const IDLE_VIRTUAL_NS: u64 = 600 * SECOND;
/// The pings that the client then sends.
const ASKED: Pings = Pings { count: 20, interval_ns: 50 * MS };

/// The settings.
const SETTINGS: &[Setting] = &[
    Setting::number(
        "changes",
        20,
        (1, 200),
        "changes of ports while data flows; half as many restarts of the box",
    ),
    Setting::number(
        "idle",
        4,
        (1, 50),
        "changes while nothing flows; every other one is a restart",
    ),
    Setting::number(
        "listening",
        20,
        (0, 600),
        "seconds in which the client only listens, with two restarts of the box amid them; or 0",
    ),
];

/// The keys at least.
const KEYS: &[Key] = &{
    let [a, b, c, d, e] = steady::KEYS;
    let still = Key::lower_is_better("idle_still_ms");
    let listener = Key::lower_is_better("listener_still_ms");
    [a, b, c, d, e, still, Key::lower_is_better("idle_lost"), listener]
};

/// The scenario.
#[derive(Debug)]
pub(super) struct NatRebind;

impl Scenario for NatRebind {
    fn about(&self) -> About {
        About {
            name: "nat-rebind",
            summary: "the NAT box before the client changes its ports or starts anew, busy and \
                      idle",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    /// The thesis compares the address inside its message with the outer one, which any NAT breaks.
    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        let mut limits = vec![Limit::equal("lost_beyond_flight", 0)];
        if !settings.flag("control") {
            limits.push(Limit::equal("idle_lost", 0));
            if settings.number("listening") > 0 {
                limits.push(Limit::at_most("listener_still_ms", LISTENER_MS));
            }
        }
        limits
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        USUAL.nearest().move_ms()
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut draw = Draw::new(stage.seed);
        let terrain = terrain(&mut draw);
        // The whole round trip.
        let link = CleanLink { round_trip_ns: terrain.round_trip_ns(), ..USUAL };
        let mut outcome = stage.on_ground(&terrain, &mut |ground, outcome| {
            tell(ground, stage, (&link, &mut draw), outcome)
        })?;
        outcome.ask(Limit::at_most("still_ms_median", link.move_ms()));
        if !stage.control() {
            outcome.ask(Limit::at_most("idle_still_ms", link.move_ms()));
        }
        draw.report(&mut outcome);
        Ok(outcome)
    }
}

fn terrain(draw: &mut Draw) -> Terrain {
    let link = LinkConfig::lossless(USUAL.rate, draw.about(LINK_NS));
    let edge = Edge::Nat { filtering: Filtering::Port, expiry_ns: EXPIRY_NS };
    Terrain { edge, beyond_ns: draw.about(BEYOND_NS), ..Terrain::of(link) }
}

/// The run.
fn tell(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    (link, draw): (&CleanLink, &mut Draw),
    outcome: &mut Outcome,
) -> Result<(), Trouble> {
    let changes = stage.settings.number("changes");
    let mut rng = Rng::new(stage.seed);
    let mut steady = Steady::new(link.round_trip_ns);
    if stage.control() {
        (stage.tell)("a network that lets nothing more through");
        let down = Flow::lasting(2 * PAUSE_NS);
        let script = [Cue::at(PAUSE_NS, Act::Swallow(0))];
        steady.add(&ground.flows(&[down, down.upwards()], &script)?);
        steady.report(outcome);
        return Ok(());
    }
    for (act, changes) in [(Act::RebindNat, changes), (Act::RebootNat, changes.div_ceil(2))] {
        (stage.tell)(&format!("{changes} times {act:?} under steady flows both ways"));
        let (script, end_ns) = again_and_again(&mut rng, PAUSE_NS, changes, act);
        let down = Flow::lasting(end_ns);
        steady.add(&ground.flows(&[down, down.upwards()], &script)?);
    }
    steady.report(outcome);
    listen(ground, stage, outcome)?;
    idle(ground, stage, draw, outcome)
}

/// A restart of the NAT while the client only receives. The client notices the end of a stream only
/// if the stream has lasted for some time.
fn listen(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    outcome: &mut Outcome,
) -> Result<(), Trouble> {
    let length_ns = stage.settings.number("listening") * SECOND;
    if length_ns == 0 {
        return Ok(());
    }
    (stage.tell)("two restarts in a row while the client only listens");
    let flow = Flow::lasting(length_ns).every(LISTENED_EVERY_NS);
    let again_ns = length_ns / 2 + LISTENED_AGAIN_NS;
    let script = [length_ns / 2, again_ns].map(|at_ns| Cue::at(at_ns, Act::RebootNat));
    let run = ground.flow(flow, &script)?;
    outcome.measure("listener_still_ms", max(&run.still_ms()));
    Ok(())
}

/// Changes without traffic; then the client sends pings.
fn idle(
    ground: &mut dyn Ground,
    stage: &Stage<'_>,
    draw: &mut Draw,
    outcome: &mut Outcome,
) -> Result<(), Trouble> {
    (stage.tell)("the same while the tunnel is idle");
    let silence_ns = match ground.clock() {
        Clock::Real => IDLE_REAL_NS,
        Clock::Virtual => IDLE_VIRTUAL_NS,
    };
    let (mut still, mut lost) = (Vec::new(), 0);
    for number in 0..stage.settings.number("idle") {
        ground.pause(draw.longer(silence_ns))?;
        let even = number.is_multiple_of(2);
        ground.act(if even { Act::RebindNat } else { Act::RebootNat })?;
        ground.pause(silence_ns / 100)?;
        for trips in ground.ping(&[Route::Tunnelled], ASKED)? {
            lost += trips.0.iter().filter(|trip| trip.is_none()).count();
            still.push(first_answer_ms(&trips));
        }
    }
    outcome.measure("idle_still_ms", median(&still));
    outcome.count("idle_lost", lost as u64);
    outcome.sample("idle_still_ms", still);
    Ok(())
}

/// Time from the first ping to the first reply, in milliseconds; to the end if there is none.
fn first_answer_ms(trips: &RoundTrips) -> f64 {
    let answers = trips.0.iter().zip(0u64..);
    let answers = answers.filter_map(|(trip, number)| Some(number * ASKED.interval_ns + (*trip)?));
    let whole_ns = u64::from(ASKED.count) * ASKED.interval_ns;
    answers.min().unwrap_or(whole_ns) as f64 / MS as f64
}
