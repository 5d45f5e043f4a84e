//! One flow of datagrams between real programs.

use super::Hosts;
use crate::emu::SECOND;
use crate::ground::{Datagrams, DatagramsRun, Receiver, Trouble};
use crate::netns::Process;
use crate::programs::{Report, report};
use std::time::Duration;

/// How long after its regular end the report on a flow is awaited, in nanoseconds.
const REPORT_NS: u64 = 10 * SECOND;

impl Hosts {
    /// Runs a flow of datagrams for its time.
    pub(super) fn pour_datagrams(&mut self, datagrams: Datagrams) -> Result<DatagramsRun, Trouble> {
        self.begin_pouring(datagrams)?.end()
    }

    /// Begins a flow of datagrams.
    pub(super) fn begin_pouring(&mut self, datagrams: Datagrams) -> Result<Pouring, Trouble> {
        let [server, client] = self.testbed.pour(self.seed, &datagrams)?;
        let (receiver, sender) = match datagrams.to {
            Receiver::Client => (client, server),
            Receiver::Server => (server, client),
        };
        let wait_ns = Datagrams::OPENING_NS + datagrams.length_ns + REPORT_NS;
        Ok(Pouring { receiver, sender, wait_ns })
    }
}

/// A running flow of datagrams.
#[derive(Debug)]
pub(super) struct Pouring {
    receiver: Process,
    sender: Process,
    /// How long its report is awaited, in nanoseconds.
    wait_ns: u64,
}

impl Pouring {
    /// Its result, after its receiver has reported.
    pub(super) fn end(self) -> Result<DatagramsRun, Trouble> {
        let Self { mut receiver, sender, wait_ns } = self;
        let poured = receiver.line_where(Duration::from_nanos(wait_ns), |line| {
            if let Report::Poured(poured) = report(line)? { Some(poured) } else { None }
        });
        drop(sender);
        let poured = poured?;
        Ok(DatagramsRun::of(poured.heard, poured.end_ns, poured.broke))
    }
}
