//! Calls to every client at the same time, while something is done to the gateway.

use super::{Hosts, finish, request};
use crate::arrivals::Gap;
use crate::emu::MS;
use crate::ground::{Called, Calling, Cue, Flow, FlowRun, Ground as _, Moment, Trouble};
use crate::netns::{Process, monotonic_ns};
use crate::programs::FlowRequest;
use anyhow::anyhow;
use std::iter;

/// Silence before the server calls.
const CALM_NS: u64 = 1_200 * MS;
/// The time to start one more program on a busy machine.
const START_NS: u64 = 25 * MS;

impl Hosts {
    /// Calls the first client, whose side times the act, and the others beside it.
    pub(super) fn call_all(&mut self, calling: Calling) -> Result<Vec<Called>, Trouble> {
        let others = self.testbed.crowd().len() as u64;
        if others > 0 && calling.word_ns.is_some() {
            let why = "says=word with several clients is told in virtual time only";
            return Err(Trouble::Lab(anyhow!(why)));
        }
        let begin_ns = monotonic_ns() + CALM_NS + others * START_NS;
        let calls = Flow::after(CALM_NS, calling.length_ns).every(calling.every_ns);
        let crowd = FlowRequest { begin_ns: Some(begin_ns), ..request(&calls) };
        let crowd = self.testbed.subscribe_crowd(&crowd)?;
        // The first one subscribes last, and is called when the others are.
        let silence_ns = if others > 0 {
            begin_ns.saturating_sub(monotonic_ns()).max(CALM_NS / 2)
        } else {
            CALM_NS
        };
        let calls = Flow { silence_ns, ..calls };
        let word = |after_ns| Flow { count: 1, ..Flow::after(silence_ns + after_ns, 0).upwards() };
        let flows: Vec<_> = iter::once(calls).chain(calling.word_ns.map(word)).collect();
        let mut runs = self.flows(&flows, &[Cue::at(silence_ns, calling.act)])?;
        let first = runs.swap_remove(0);
        let moments = first.moments.clone();
        let end_ns = begin_ns + calls.length_ns() - silence_ns;
        let mut called = vec![called(&first, &calling, calls.count)];
        for subscriber in crowd {
            called.push(match subscriber {
                Some(subscriber) => {
                    let run = run_of(subscriber, (begin_ns, end_ns), &moments)?;
                    self::called(&run, &calling, calls.count)
                }
                None => Called { reached_ns: None, lost: calls.count.into() },
            });
        }
        Ok(called)
    }
}

/// The result of a call to a further client during this act.
fn run_of(
    subscriber: Process,
    (begin_ns, end_ns): (u64, u64),
    moments: &[Moment],
) -> Result<FlowRun, Trouble> {
    let run = finish(subscriber, begin_ns, end_ns)?;
    Ok(FlowRun { moments: moments.to_vec(), ..run })
}

fn called(run: &FlowRun, calling: &Calling, count: u32) -> Called {
    let back_ns = match calling.word_ns {
        // Times count from the first call, as that of the client's own packet does: the act took
        // some of it.
        Some(after_ns) => {
            let called_ns = run.end_ns - calling.length_ns;
            let said_ns = called_ns + after_ns;
            let open = |gap: &&Gap| gap.from_ns <= said_ns && said_ns < gap.to_ns;
            Some(run.gaps.iter().find(open).map_or(0, |gap| gap.to_ns - called_ns))
        }
        None => run.back_ms().first().map(|ms| (ms * MS as f64) as u64),
    };
    // A flow that never arrives is a gap to its end.
    let reached_ns = back_ns.filter(|_| run.lost < u64::from(count));
    Called { reached_ns, lost: run.lost }
}
