//! Downloads by a real program: its reports, and the acts meanwhile.

use super::Hosts;
use crate::arrivals::Gap;
use crate::emu::SECOND;
use crate::ground::{Cue, Download, Heard, Transfer, Trouble, enclosed};
use crate::netns::{Process, monotonic_ns};
use crate::programs::{self, Report, report, sha256_of};
use std::time::Duration;

/// How long a transfer may be silent before it counts as dead, in nanoseconds.
const SILENCE_NS: u64 = 20 * SECOND;

impl Hosts {
    /// Follows a download to its end, or until it is given up.
    pub(super) fn follow(
        &mut self,
        fetch: &Process,
        download: Download,
        script: &[Cue],
        listen: &mut dyn FnMut(Heard<'_>),
    ) -> Result<Transfer, Trouble> {
        let start_ns = monotonic_ns();
        let give_up_ns = start_ns + download.limit_ns;
        let mut followed = Followed::new(start_ns, script);
        loop {
            let silent_ns = followed.heard_ns + SILENCE_NS;
            let wake_ns = followed.next_cue_ns().min(silent_ns).min(give_up_ns);
            let wait = Duration::from_nanos(wake_ns.saturating_sub(monotonic_ns()));
            match fetch.line(wait) {
                Ok(Some(line)) => {
                    let Some(report) = report(&line) else { continue };
                    if let Some(done) = followed.take(report, listen) {
                        let expected = sha256_of(self.seed, download.length);
                        return Ok(followed.ended(done, &expected));
                    }
                }
                Ok(None) if monotonic_ns() >= silent_ns.min(give_up_ns) => break,
                Ok(None) => {}
                // It has ended early, with an error of its own.
                Err(_) => break,
            }
            if let Some(cue) = followed.take_due() {
                let moment = self.perform(cue.act)?;
                listen(Heard::Done(&moment));
                followed.transfer.moments.push(moment);
            }
        }
        Ok(followed.given_up())
    }
}

/// A download in progress.
struct Followed<'a> {
    transfer: Transfer,
    script: std::iter::Peekable<std::slice::Iter<'a, Cue>>,
    /// The time of its latest report, and its progress then.
    heard_ns: u64,
    bytes: u64,
    arrived: Option<(u64, u64)>,
}

impl<'a> Followed<'a> {
    fn new(start_ns: u64, script: &'a [Cue]) -> Self {
        let transfer = Transfer { start_ns, ..Transfer::default() };
        let script = script.iter().peekable();
        Self { transfer, script, heard_ns: start_ns, bytes: 0, arrived: None }
    }

    fn next_cue_ns(&mut self) -> u64 {
        let start_ns = self.transfer.start_ns;
        self.script.peek().map_or(u64::MAX, |cue| start_ns.saturating_add(cue.at_ns))
    }

    /// The next act, if its time or its bytes have come.
    fn take_due(&mut self) -> Option<Cue> {
        let due_ns = self.next_cue_ns();
        let bytes = self.bytes;
        let now_ns = monotonic_ns();
        self.script.next_if(|cue| now_ns >= due_ns || bytes >= cue.at_bytes).copied()
    }

    /// Takes a report; returns the last one.
    fn take(
        &mut self,
        report: Report,
        listen: &mut dyn FnMut(Heard<'_>),
    ) -> Option<programs::Download> {
        match report {
            Report::Connected { at_ns } => {
                (self.transfer.start_ns, self.heard_ns) = (at_ns, at_ns);
            }
            Report::Progress { at_ns, bytes, latest_ns, gaps } => {
                listen(Heard::Progress { at_ns, bytes });
                self.heard_ns = at_ns;
                self.progress(latest_ns, bytes, gaps);
            }
            Report::Downloaded(done) => return Some(done),
            Report::Ready
            | Report::Unanswered
            | Report::Opened { .. }
            | Report::Carried(_)
            | Report::Broken { .. }
            | Report::Echoed { .. }
            | Report::Reached { .. }
            | Report::Pinged(_)
            | Report::Flowed(_)
            | Report::Heard(_)
            | Report::Poured(_) => {}
        }
        None
    }

    fn progress(&mut self, latest_ns: u64, bytes: u64, mut gaps: Vec<Gap>) {
        let first_ns = self.arrived.map_or(latest_ns, |(first_ns, _)| first_ns);
        (self.arrived, self.bytes) = (Some((first_ns, latest_ns)), bytes);
        self.transfer.progress.push((latest_ns, bytes));
        self.transfer.gaps.append(&mut gaps);
    }

    fn ended(mut self, done: programs::Download, expected: &str) -> Transfer {
        let programs::Download { end_ns, bytes, sha256, gaps } = done;
        self.progress(end_ns, bytes, gaps);
        self.transfer.complete = true;
        self.transfer.intact = sha256 == expected;
        self.transfer.sha256 = Some(sha256);
        self.close(end_ns)
    }

    /// It failed, or took too long.
    fn given_up(self) -> Transfer {
        self.close(monotonic_ns())
    }

    fn close(self, end_ns: u64) -> Transfer {
        let Self { transfer, arrived, .. } = self;
        let gaps = enclosed(transfer.start_ns, end_ns, arrived, transfer.gaps);
        Transfer { end_ns, gaps, ..transfer }
    }
}
