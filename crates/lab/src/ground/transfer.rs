//! The result of a transfer, and the figures that follow from it.
//!
//! This module computes rates, pauses and restarts after an outage from what a receiver saw. It
//! does not know the scenario.

use super::{Moment, ms};
use crate::arrivals::Gap;
use crate::emu::SECOND;

/// A transfer, as its receiver saw it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Transfer {
    /// When the request was sent, or the connection open.
    pub start_ns: u64,
    /// When the last byte arrived, or when it was given up.
    pub end_ns: u64,
    /// Whether it ended.
    pub complete: bool,
    /// Whether every byte is what the server sent.
    pub intact: bool,
    /// The SHA-256 of what arrived, in lowercase hexadecimal, where there are bytes to hash.
    pub sha256: Option<String>,
    /// Its progress: time, bytes.
    pub progress: Vec<(u64, u64)>,
    /// Periods without arrivals, up to the end.
    pub gaps: Vec<Gap>,
    /// Acts in it.
    pub moments: Vec<Moment>,
    /// The error that broke it, as reported by the end that noticed it, if any.
    pub broke: Option<String>,
    /// The counters of its senders; `None` if the backend cannot tell.
    pub segments: Option<Segments>,
}

/// Segments of a TCP connection with payload or FIN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Segments {
    /// All sent segments, with retransmissions.
    pub sent: u64,
    /// Retransmissions.
    pub again: u64,
}

impl Segments {
    /// The sum of two connections.
    const fn plus(self, other: Self) -> Self {
        Self { sent: self.sent + other.sent, again: self.again + other.again }
    }

    /// Retransmissions in per cent of all; `None` if none was sent.
    pub fn percent_again(self) -> Option<f64> {
        (self.sent > 0).then(|| self.again as f64 * 100.0 / self.sent as f64)
    }
}

impl Transfer {
    /// Connections that were open at the same time, as one. It begins with the first, ends with the
    /// first that ends, and is complete if each is. Gaps, moments and the hash are left out,
    /// because they belong to one connection.
    pub fn together(mut side_by_side: Vec<Self>) -> Self {
        if side_by_side.len() < 2 {
            return side_by_side.pop().unwrap_or_default();
        }
        let mut arrivals: Vec<(u64, u64)> = Vec::new();
        for one in &side_by_side {
            let before = [0].into_iter().chain(one.progress.iter().map(|(_, bytes)| *bytes));
            let news = one.progress.iter().zip(before);
            arrivals.extend(news.map(|(&(at_ns, bytes), before)| (at_ns, bytes - before)));
        }
        arrivals.sort_unstable_by_key(|(at_ns, _)| *at_ns);
        let progress = arrivals.iter().scan(0, |bytes, (at_ns, more)| {
            *bytes += more;
            Some((*at_ns, *bytes))
        });
        let segments = side_by_side.iter().map(|one| one.segments);
        Self {
            start_ns: side_by_side.iter().map(|one| one.start_ns).min().unwrap_or_default(),
            end_ns: side_by_side.iter().map(|one| one.end_ns).min().unwrap_or_default(),
            complete: side_by_side.iter().all(|one| one.complete),
            intact: side_by_side.iter().all(|one| one.intact),
            progress: progress.collect(),
            broke: side_by_side.iter().find_map(|one| one.broke.clone()),
            segments: segments.reduce(|sum, one| Some(sum?.plus(one?))).flatten(),
            ..Self::default()
        }
    }

    /// Mean rate in Mbit/s from `skip_ns` after the request to the end; `None` if the transfer did
    /// not last that long or did not end.
    pub fn goodput_mbps(&self, skip_ns: u64) -> Option<f64> {
        let begun = |(at_ns, _): &&(u64, u64)| *at_ns >= self.start_ns + skip_ns;
        let (from_ns, from) = *self.progress.iter().find(begun).filter(|_| self.complete)?;
        let (to_ns, to) = *self.progress.last()?;
        let seconds = to_ns.checked_sub(from_ns).filter(|ns| *ns > 0)? as f64 / SECOND as f64;
        Some((to - from) as f64 * 8.0 / 1e6 / seconds)
    }

    /// Mean rate in Mbit/s between two moments after the start; `None` if it was over before the
    /// second. It may break afterwards.
    pub fn mbps_within(&self, from_ns: u64, to_ns: u64) -> Option<f64> {
        let by = |at_ns: u64| {
            let after = self.progress.partition_point(|(when_ns, _)| *when_ns <= at_ns);
            after.checked_sub(1).map_or(0, |last| self.progress[last].1)
        };
        let (first_ns, last_ns) = (self.start_ns + from_ns, self.start_ns + to_ns);
        let seconds = to_ns.checked_sub(from_ns).filter(|ns| *ns > 0)? as f64 / SECOND as f64;
        let bytes = by(last_ns) - by(first_ns);
        (self.end_ns >= last_ns).then(|| bytes as f64 * 8.0 / 1e6 / seconds)
    }

    /// The pause after its first act, in milliseconds, or the time to its end if nothing arrived
    /// any more. `None` if it has no act.
    pub fn still_ms(&self) -> Option<f64> {
        let from_ns = self.moments.first()?.done_ns;
        Some(ms(Gap::longest_within(&self.gaps, from_ns, self.end_ns)))
    }

    /// Its duration in seconds; `None` if it did not end.
    pub fn seconds(&self) -> Option<f64> {
        let length_ns = self.end_ns - self.start_ns;
        self.complete.then(|| length_ns as f64 / SECOND as f64)
    }

    /// Seconds until this number of bytes had arrived; `None` if they never had.
    pub fn seconds_until(&self, bytes: u64) -> Option<f64> {
        let (at_ns, _) = self.progress.iter().find(|(_, so_far)| *so_far >= bytes)?;
        Some(at_ns.saturating_sub(self.start_ns) as f64 / SECOND as f64)
    }

    /// Time from the end of each outage to the next byte, in milliseconds. If none arrived, up to
    /// the next outage or the end.
    pub fn restart_ms(&self) -> Vec<f64> {
        let ends = self.moments.iter().enumerate().filter(|(_, one)| !one.act.begins_outage());
        let restart = |(at, end): (usize, &Moment)| {
            let next = self.moments.get(at + 1);
            let until_ns = next.map_or(self.end_ns, |next| next.began_ns);
            let open = |gap: &&Gap| gap.from_ns <= end.done_ns && end.done_ns < gap.to_ns;
            let gap = self.gaps.iter().find(open);
            ms(gap.map_or(0, |gap| gap.to_ns.min(until_ns).saturating_sub(end.done_ns)))
        };
        ends.map(restart).collect()
    }

    /// The traffic while the link was up, from `skip_ns` after the start to the end; `None` if it
    /// did not last that long or did not end.
    ///
    /// It begins then and not with the next arrival, because an outage may begin at the same
    /// moment.
    pub fn while_up(&self, skip_ns: u64) -> Option<WhileUp> {
        let from_ns = self.start_ns + skip_ns;
        let (to_ns, to) = *self.progress.last().filter(|(at_ns, _)| *at_ns > from_ns)?;
        let before = self.progress.iter().take_while(|(at_ns, _)| *at_ns <= from_ns).last();
        let from = before.filter(|_| self.complete).map(|(_, bytes)| *bytes)?;
        let mut windows = Vec::new();
        let mut since_ns = from_ns;
        for (down_ns, up_ns) in self.outages() {
            windows.push((since_ns, down_ns.clamp(since_ns, to_ns)));
            since_ns = up_ns.clamp(since_ns, to_ns);
        }
        windows.push((since_ns, to_ns));
        windows.retain(|(from_ns, to_ns)| from_ns < to_ns);
        Some(WhileUp { bytes: to - from, windows })
    }

    /// The rate in Mbit/s in each interval of this length from its start to its end.
    pub fn rates_mbps(&self, interval_ns: u64) -> Vec<f64> {
        let count = (self.end_ns - self.start_ns) / interval_ns + 1;
        let mut bytes = vec![0; count as usize];
        let mut before = 0;
        for &(at_ns, so_far) in &self.progress {
            let at = (at_ns.saturating_sub(self.start_ns) / interval_ns) as usize;
            if let Some(bin) = bytes.get_mut(at) {
                *bin += so_far - before;
            }
            before = so_far;
        }
        let seconds = interval_ns as f64 / SECOND as f64;
        bytes.iter().map(|bytes| *bytes as f64 * 8.0 / 1e6 / seconds).collect()
    }

    /// Seconds from the beginning of the latest outage until the connection broke, if it did.
    pub fn broke_after_s(&self) -> Option<f64> {
        let (down_ns, _) = self.broke.as_ref().and_then(|_| self.outages().last())?;
        Some(self.end_ns.saturating_sub(down_ns) as f64 / SECOND as f64)
    }

    /// When the link went down and came up again, for each outage; the end is the maximum if it did
    /// not come up.
    pub fn outages(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let begins = self.moments.iter().enumerate().filter(|(_, one)| one.act.begins_outage());
        begins.map(|(at, begin)| {
            let up_ns = self.moments.get(at + 1).map_or(u64::MAX, |end| end.done_ns);
            (begin.began_ns, up_ns)
        })
    }
}

/// Traffic while a link was up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WhileUp {
    /// Bytes.
    pub bytes: u64,
    /// Times when it was up: from, to, in nanoseconds, in order.
    pub windows: Vec<(u64, u64)>,
}

impl WhileUp {
    /// Mean rate in Mbit/s over that time.
    pub fn mbps(&self) -> f64 {
        let up_ns: u64 = self.windows.iter().map(|(from_ns, to_ns)| to_ns - from_ns).sum();
        self.bytes as f64 * 8.0 / 1e6 / (up_ns as f64 / SECOND as f64)
    }

    /// The share of the link's capacity in that time. `capacity` returns the bytes that the link
    /// can carry between two moments.
    pub fn share_of(&self, capacity: &dyn Fn(u64, u64) -> f64) -> f64 {
        let could: f64 = self.windows.iter().map(|(from, to)| capacity(*from, *to)).sum();
        self.bytes as f64 / could
    }
}

#[cfg(test)]
#[path = "transfer_tests.rs"]
mod tests;
