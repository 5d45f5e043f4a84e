//! Connections between real programs: their reports, and the acts meanwhile.
//!
//! A connection has ended when its receiver has everything, or when either end reports that it
//! broke, because the other end may never learn of it.

use super::{Hosts, sleep_until};
use crate::emu::{MS, SECOND};
use crate::ground::{
    Act, Connections, Cue, Moment, Session, SessionRun, Transfer, Trouble, Version, enclosed,
};
use crate::netns::{Process, monotonic_ns};
use crate::programs::{Carried, Report, report};
use std::time::Duration;

/// How often the programs' output is read, in nanoseconds. Their reports carry times of their own.
const LISTEN_NS: u64 = 10 * MS;
/// How often the tunnel ends are asked for their kept bytes while the link is down, in nanoseconds.
const ASK_NS: u64 = SECOND;

impl Hosts {
    /// Opens connections and watches them to their end.
    pub(super) fn carry(
        &mut self,
        kinds: &[Connections],
        limit_ns: u64,
        script: &[Cue],
    ) -> Result<Vec<Vec<Transfer>>, Trouble> {
        let mut pairs = self.open(kinds)?;
        self.watch(&mut pairs, (0, limit_ns), script)?;
        Ok(pairs.into_iter().map(Pair::end).collect())
    }

    /// Opens connections of these kinds.
    pub(super) fn open(&mut self, kinds: &[Connections]) -> Result<Vec<Pair>, Trouble> {
        if kinds.iter().any(|kind| kind.version != Version::V4) {
            let what = "between namespaces there is no IPv6 inside the tunnel";
            return Err(Trouble::Lab(anyhow::Error::msg(what)));
        }
        let retries = kinds.iter().filter_map(|kind| kind.patience.retries).min();
        self.testbed.set_server_retries(retries)?;
        let mut pairs = Vec::new();
        for (seed, kind) in (self.seed..).zip(kinds) {
            pairs.push(Pair::new(self.testbed.connect(seed, kind)?, kind.count));
        }
        Ok(pairs)
    }

    /// Begins a session and watches it to its end.
    pub(super) fn hold_session(
        &mut self,
        session: &Session,
        limit_ns: u64,
        script: &[Cue],
    ) -> Result<SessionRun, Trouble> {
        self.testbed.set_server_retries(session.patience.retries)?;
        let mut pairs = [Pair::new(self.testbed.open_session(session)?, 1)];
        self.watch(&mut pairs, (0, limit_ns), script)?;
        let [mut pair] = pairs;
        let echoes = std::mem::take(&mut pair.echoes);
        Ok(SessionRun { transfer: pair.end().pop().unwrap_or_default(), echoes })
    }

    /// Reads reports and does acts until every connection has ended, within this least and greatest
    /// time in nanoseconds.
    pub(super) fn watch(
        &mut self,
        pairs: &mut [Pair],
        (least_ns, most_ns): (u64, u64),
        script: &[Cue],
    ) -> Result<(), Trouble> {
        let start_ns = monotonic_ns();
        let (least_ns, end_ns) = (start_ns + least_ns, start_ns.saturating_add(most_ns));
        let mut script = script.iter().peekable();
        let (mut down, mut sleeps, mut asked_ns) = (false, false, start_ns);
        let goes_on = |pairs: &[Pair]| monotonic_ns() < least_ns || pairs.iter().any(Pair::goes_on);
        while goes_on(pairs) && monotonic_ns() < end_ns {
            let cue_ns = script.peek().map_or(u64::MAX, |cue| start_ns + cue.at_ns);
            if let Some(cue) = script.next_if(|_| monotonic_ns() >= cue_ns) {
                let moment = self.perform(cue.act)?;
                down = cue.act.begins_outage();
                // A client on a suspended machine cannot be asked, either.
                sleeps = cue.act == Act::CloseLid;
                pairs.iter_mut().for_each(|pair| pair.note(moment));
                continue;
            }
            let now_ns = monotonic_ns();
            if down && !sleeps && now_ns >= asked_ns + ASK_NS && now_ns + ASK_NS < cue_ns {
                asked_ns = now_ns;
                self.ask_what_is_held()?;
            }
            pairs.iter_mut().for_each(Pair::listen);
            sleep_until(cue_ns.min(end_ns).min(monotonic_ns() + LISTEN_NS));
        }
        // The next run finds the link as it was.
        if let Some(cue) = script.next().filter(|_| down) {
            self.perform(cue.act)?;
        }
        Ok(())
    }

    fn ask_what_is_held(&mut self) -> Result<(), Trouble> {
        let held = self.deployment.held_bytes(&self.testbed)?;
        self.held_bytes_max = self.held_bytes_max.max(held);
        Ok(())
    }
}

/// Two programs and the connections between them.
pub(super) struct Pair {
    /// Those that have not ended.
    processes: Vec<Process>,
    connections: Vec<Watched>,
    echoes: Vec<(u64, u64)>,
}

/// A connection under watch.
struct Watched {
    transfer: Transfer,
    /// When the first and the latest byte arrived.
    arrived: Option<(u64, u64)>,
    ended_ns: Option<u64>,
}

impl Pair {
    fn new(processes: [Process; 2], count: u32) -> Self {
        let connections = (0..count).map(|_| Watched::new()).collect();
        Self { processes: processes.into(), connections, echoes: Vec::new() }
    }

    fn goes_on(&self) -> bool {
        !self.processes.is_empty() && self.connections.iter().any(|one| one.ended_ns.is_none())
    }

    fn note(&mut self, moment: Moment) {
        let going_on = self.connections.iter_mut().filter(|one| one.ended_ns.is_none());
        going_on.for_each(|one| one.transfer.moments.push(moment));
    }

    /// Reads all reports.
    fn listen(&mut self) {
        let (connections, echoes) = (&mut self.connections, &mut self.echoes);
        self.processes.retain(|process| {
            loop {
                match process.line(Duration::ZERO) {
                    Ok(Some(line)) => take(connections, echoes, report(&line)),
                    Ok(None) => return true,
                    Err(_) => return false,
                }
            }
        });
    }

    /// The results of its connections; those that continue are given up.
    pub(super) fn end(self) -> Vec<Transfer> {
        self.connections.into_iter().map(Watched::end).collect()
    }
}

/// Takes one report of a pair.
fn take(connections: &mut [Watched], echoes: &mut Vec<(u64, u64)>, said: Option<Report>) {
    match said {
        Some(Report::Opened { connection, at_ns }) => {
            if let Some(one) = connections.get_mut(connection as usize) {
                one.transfer.start_ns = at_ns;
            }
        }
        Some(Report::Carried(news)) => {
            if let Some(one) = connections.get_mut(news.connection as usize) {
                one.take(news);
            }
        }
        Some(Report::Broken { connection, at_ns, error }) => {
            if let Some(one) = connections.get_mut(connection as usize) {
                one.broke(at_ns, error);
            }
        }
        Some(Report::Echoed { typed_ns, at_ns }) => {
            echoes.push((typed_ns, at_ns.saturating_sub(typed_ns)));
        }
        Some(
            Report::Ready
            | Report::Connected { .. }
            | Report::Progress { .. }
            | Report::Downloaded(_)
            | Report::Pinged(_)
            | Report::Reached { .. }
            | Report::Unanswered
            | Report::Flowed(_)
            | Report::Heard(_)
            | Report::Poured(_),
        )
        | None => {}
    }
}

impl Watched {
    fn new() -> Self {
        let start_ns = monotonic_ns();
        let transfer = Transfer { start_ns, intact: true, ..Transfer::default() };
        Self { transfer, arrived: None, ended_ns: None }
    }

    fn take(&mut self, news: Carried) {
        let Carried { bytes, latest_ns, mut gaps, intact, complete, .. } = news;
        let first_ns = self.arrived.map_or(latest_ns, |(first_ns, _)| first_ns);
        self.arrived = Some((first_ns, latest_ns));
        self.transfer.progress.push((latest_ns, bytes));
        self.transfer.gaps.append(&mut gaps);
        self.transfer.intact &= intact;
        if complete {
            self.transfer.complete = true;
            self.ended_ns = Some(latest_ns);
        }
    }

    /// An end noticed that it broke. After all data has arrived that does no harm.
    fn broke(&mut self, at_ns: u64, error: String) {
        if self.ended_ns.is_none() {
            self.ended_ns = Some(at_ns);
            self.transfer.broke = Some(error);
        }
    }

    fn end(self) -> Transfer {
        let Self { mut transfer, arrived, ended_ns } = self;
        let end_ns = ended_ns.unwrap_or_else(monotonic_ns);
        // It may have ended before that was read.
        transfer.moments.retain(|moment| moment.began_ns <= end_ns);
        let gaps = enclosed(transfer.start_ns, end_ns, arrived, transfer.gaps);
        Transfer { end_ns, gaps, ..transfer }
    }
}

#[cfg(test)]
mod tests {
    use super::{Watched, take};
    use crate::arrivals::Gap;
    use crate::emu::SECOND;
    use crate::ground::{Act, Moment, Transfer};
    use crate::programs::{Carried, Report};

    fn carried(second: u64, megabytes: u64, intact: bool, complete: bool) -> Report {
        let (bytes, latest_ns) = (megabytes * 1_000_000, second * SECOND);
        let gaps = vec![Gap { from_ns: latest_ns - SECOND, to_ns: latest_ns }];
        Report::Carried(Carried { connection: 0, bytes, latest_ns, gaps, intact, complete })
    }

    fn broken(second: u64) -> Report {
        Report::Broken { connection: 0, at_ns: second * SECOND, error: "timed out".to_owned() }
    }

    /// The result of these reports, and of an act in second 5, in this order.
    fn watched(reports: Vec<Report>) -> Transfer {
        let mut connections = [Watched::new()];
        let opened = Report::Opened { connection: 0, at_ns: SECOND };
        for said in [opened].into_iter().chain(reports) {
            take(&mut connections, &mut Vec::new(), Some(said));
        }
        let [mut one] = connections;
        one.transfer.moments.push(Moment::new(Act::Swallow(0), 5 * SECOND, 5 * SECOND));
        one.end()
    }

    #[test]
    fn a_connection_ends_with_its_last_byte_and_what_breaks_then_is_no_harm() {
        let transfer =
            watched(vec![carried(2, 1, true, false), carried(4, 3, true, true), broken(6)]);
        assert!(transfer.complete && transfer.intact && transfer.broke.is_none());
        assert_eq!((transfer.start_ns, transfer.end_ns), (SECOND, 4 * SECOND));
        assert_eq!(transfer.progress, [(2 * SECOND, 1_000_000), (4 * SECOND, 3_000_000)]);
        assert!(transfer.moments.is_empty(), "it was over by then");
    }

    #[test]
    fn one_end_that_gives_up_is_the_end() {
        let transfer = watched(vec![carried(2, 1, true, false), broken(9)]);
        assert!(!transfer.complete && transfer.intact);
        assert_eq!((transfer.broke.as_deref(), transfer.end_ns), (Some("timed out"), 9 * SECOND));
        assert_eq!(transfer.gaps.last().map(Gap::length_ns), Some(7 * SECOND));
    }

    #[test]
    fn what_was_altered_once_stays_so_and_strangers_are_not_heard() {
        let transfer = watched(vec![carried(2, 1, false, false), carried(4, 3, true, true)]);
        assert!(transfer.complete && !transfer.intact);
        let stranger = Report::Opened { connection: 7, at_ns: 0 };
        assert_eq!(watched(vec![stranger]).start_ns, SECOND);
    }
}
