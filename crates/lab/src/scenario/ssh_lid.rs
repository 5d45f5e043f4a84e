//! `ssh-lid`: an interactive session, a lid that is closed for a while, and the same session after
//! it is opened.
//!
//! While the lid is open somebody types and sees every line come back. The server sends a line each
//! second, also while nobody receives it, and would give up after six retransmissions, or after
//! unanswered keepalives. When the lid is closed the client's Rove is suspended and its carrier is
//! gone. Only its clock tells how long that was. Not modelled: the client's kernel stays awake, and
//! so do its own TCP timers.

use super::outage::{BASELINE, MODE, Outages, obituary, over_outages, restart_ms};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::statistics::{max, median};
use super::{About, FAMILY, Key, Outcome, Scenario, Stage, USUAL};
use crate::emu::{MS, SECOND};
use crate::ground::{Act, Ground, Patience, Session, SessionRun, Trouble};

/// Lines typed before the lid is closed, and after it was opened.
const LINES: u32 = 10;
/// Time between two lines typed.
const TYPED_NS: u64 = 200 * MS;
/// Time between two lines of the server.
const SAID_NS: u64 = SECOND;
/// When the lid is closed.
const CLOSED_NS: u64 = 3 * SECOND;
/// When typing continues, after it was opened.
const AFTERWARDS_NS: u64 = SECOND;
/// How long the server continues after it was opened, in its own lines.
const SAID_AFTER: u64 = 5;
/// The longest session beyond twice the time with a closed lid.
const PATIENCE_NS: u64 = 20 * SECOND;
/// How long a control continues after the lid was closed for good.
const CONTROL_NS: u64 = 8 * SECOND;
/// The server's `tcp_retries2`.
const RETRIES: u32 = 6;

/// The settings.
const SETTINGS: &[Setting] = &[
    MODE,
    Setting::number("seconds", 60, (1, 86_400), "how long the lid is closed"),
    BASELINE,
    FAMILY,
];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::must_hold("survived"),
    Key::lower_is_better("restart_ms_max"),
    Key::lower_is_better("echo_ms_median"),
    Key::lower_is_better("first_echo_ms"),
    Key::must_hold("lines_ok"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct SshLid;

impl Scenario for SshLid {
    fn about(&self) -> About {
        About {
            name: "ssh-lid",
            summary: "an interactive session while the lid of its laptop is closed",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        vec![
            Limit::equal("survived", true),
            Limit::equal("lines_ok", true),
            Limit::at_most("restart_ms_max", restart_ms(&USUAL)),
        ]
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        restart_ms(&USUAL)
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let terrain = USUAL.terrain();
        let mut story =
            |ground: &mut dyn Ground, outcome: &mut Outcome| tell(ground, stage, outcome);
        over_outages(stage, &terrain, &mut story)
    }
}

/// The run.
fn tell(ground: &mut dyn Ground, stage: &Stage<'_>, outcome: &mut Outcome) -> Result<(), Trouble> {
    let seconds = stage.settings.number("seconds");
    (stage.tell)(&format!("a session, and a lid that is closed for {seconds} s"));
    let closed_ns = seconds * SECOND;
    let lid = Outages::one(CLOSED_NS, closed_ns);
    let session = session(closed_ns);
    let limit_ns = match stage.control() {
        true => CLOSED_NS + CONTROL_NS,
        false => session.length_ns() + closed_ns + PATIENCE_NS,
    };
    let script = lid.script([Act::CloseLid, Act::OpenLid], stage);
    let run = ground.session(session, limit_ns, &script)?;
    obituary(&run.transfer).iter().for_each(|text| (stage.tell)(text));
    report(&run, outcome);
    Ok(())
}

/// A session without typing while the lid is closed, and just after.
fn session(closed_ns: u64) -> Session {
    let typed_ns = u64::from(LINES) * TYPED_NS;
    Session {
        before: LINES,
        pause_ns: CLOSED_NS - typed_ns + closed_ns + AFTERWARDS_NS,
        after: LINES,
        typed_every_ns: TYPED_NS,
        said: ((CLOSED_NS + closed_ns) / SAID_NS + SAID_AFTER) as u32,
        said_every_ns: SAID_NS,
        patience: Patience { retries: Some(RETRIES), keeps_alive: true },
    }
}

fn report(run: &SessionRun, outcome: &mut Outcome) {
    let SessionRun { transfer, echoes } = run;
    let restart = transfer.restart_ms();
    let opened_ns = transfer.moments.last().map_or(u64::MAX, |opened| opened.done_ns);
    let ms = |(_, echo_ns): &(u64, u64)| *echo_ns as f64 / MS as f64;
    let of =
        |late: bool| echoes.iter().filter(move |(typed_ns, _)| (*typed_ns > opened_ns) == late);
    let before: Vec<f64> = of(false).map(ms).collect();
    outcome.hold("survived", transfer.complete);
    outcome.hold("lines_ok", transfer.intact);
    outcome.measure("restart_ms_max", max(&restart));
    outcome.measure("echo_ms_median", median(&before));
    outcome.measure("first_echo_ms", of(true).map(ms).next());
    outcome.sample("restart_ms", restart);
    outcome.sample("echo_ms", echoes.iter().map(ms).collect());
}

#[cfg(test)]
mod tests {
    use super::{AFTERWARDS_NS, CLOSED_NS, LINES, session};
    use crate::emu::SECOND;

    #[test]
    fn nobody_types_while_the_lid_is_closed() {
        let session = session(60 * SECOND);
        let last_ns = u64::from(LINES - 1) * session.typed_every_ns;
        let next_ns = u64::from(LINES) * session.typed_every_ns + session.pause_ns;
        assert!(last_ns < CLOSED_NS);
        assert_eq!(next_ns, CLOSED_NS + 60 * SECOND + AFTERWARDS_NS);
        assert!(u64::from(session.said) * session.said_every_ns > CLOSED_NS + 60 * SECOND);
    }
}
