//! A talk between real programs, and connections that are carried beside it.

use super::Hosts;
use super::connections::Pair;
use crate::ground::{Call, CallRun, Connections, Cue, Transfer, Trouble};
use crate::netns::Process;
use crate::programs::{Report, report};
use std::time::Duration;

/// How long after its regular end the report on a talk is waited for.
const REPORT: Duration = Duration::from_secs(10);

impl Hosts {
    /// Lets client and server talk, and carries connections until they have done.
    pub(super) fn talk(
        &mut self,
        call: Call,
        beside: &[Connections],
        script: &[Cue],
    ) -> Result<(CallRun, Vec<Vec<Transfer>>), Trouble> {
        let mut pairs = self.open(beside)?;
        let [answering, calling] = self.testbed.call(&call)?;
        let length_ns = call.end_ns() + Call::PATIENCE_NS;
        self.watch(&mut pairs, (length_ns, length_ns), script)?;
        let transfers = pairs.into_iter().map(Pair::end).collect();
        let (up, down) = (heard(answering, &call), heard(calling, &call));
        Ok((CallRun { up, down }, transfers))
    }
}

/// What an end has heard: nothing where it does not tell, since nobody called it.
fn heard(mut end: Process, call: &Call) -> Vec<Option<u64>> {
    let said = end.line_where(REPORT, |line| {
        if let Report::Heard(heard) = report(line)? { Some(heard.delays_ns) } else { None }
    });
    said.unwrap_or_else(|_| vec![None; call.count() as usize])
}
