//! What the core wants done, without doing it: datagrams to seal and send, inner packets for the
//! TUN.
//!
//! Datagrams are laid end to end, and consecutive ones of one length to one place form a
//! [`Run`]: one system call with segmentation offload, nine times cheaper than one call a
//! datagram. Sealing is left to [`seal`], a pure function, so that the shell may run it inline or
//! on a second core; the order is that of the runs. An outbox is reused from batch to batch and
//! does not allocate once it has grown to its bounds.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::sync::Arc;

use crate::crypto::{Nonce, Profile, SealKey, padding};
use crate::id::{PacketNumber, PathSerial, SessionIndex, SocketId};
use crate::packet::Checksum;
use crate::time::Duration;
use crate::wire::data::{HEADER_LEN, MAX_DATAGRAM, TAG_LEN};
use crate::wire::inner::Pieces;

/// Datagrams in one run: what the kernel takes in one call (`UDP_MAX_SEGMENTS` is 128 in new
/// kernels, 64 in older ones).
pub(crate) const RUN_DATAGRAMS_MAX: usize = 64;
/// Bytes of one run: what one UDP send with segmentation offload takes.
pub(crate) const RUN_BYTES_MAX: usize = 65_000;
/// Bytes of datagrams held before the shell must send; the next one is refused.
pub const DATAGRAM_BYTES_MAX: usize = 1 << 20;
/// When it was full, what there was no room for is tried again after this.
pub(crate) const REST: Duration = Duration::from_millis(1);
/// Bytes that one piece of input may lead to: a super-packet of 64 KB, sealed segment by segment,
/// with a copy for a path that is being proven.
const INPUT_BYTES_MAX: usize = 160 * 1_024;
/// Bytes of inner packets held before the shell must write them.
pub const INNER_BYTES_MAX: usize = 1 << 20;

const _: () = assert!(RUN_BYTES_MAX <= 65_507 && RUN_BYTES_MAX >= MAX_DATAGRAM);

/// Where a datagram goes: which local socket, from which of its addresses, to whom.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Route {
    /// The socket that sends.
    pub socket: SocketId,
    /// The source address, where the socket has several; `None` lets the kernel choose.
    pub local: Option<IpAddr>,
    /// The destination.
    pub remote: SocketAddr,
}

/// How the shell sends a run of several datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sending {
    /// In one call with segmentation offload.
    #[default]
    Segmented,
    /// In one call whose last segment is shorter than the others: the shell adds a segment of one
    /// byte if it has to. The receiver drops that byte as no datagram of Rove's.
    ShortLast,
    /// In one call for each datagram.
    Single,
    /// In a call of its own, and no part of a run.
    Alone,
}

/// What seals a run's datagrams.
#[derive(Clone, Debug)]
pub struct RunSeal {
    /// The epoch's keys for sending.
    pub key: Arc<SealKey>,
    /// The index by which the receiver finds path and epoch.
    pub index: SessionIndex,
    /// The path part of the nonces.
    pub serial: PathSerial,
}

/// Consecutive datagrams of one length to one place; only the last may be shorter.
#[derive(Clone, Debug)]
pub struct Run {
    /// Where it goes.
    pub route: Route,
    /// Bytes of each datagram but the last.
    pub segment: usize,
    /// How it is sent.
    pub sending: Sending,
    /// Place of the bytes within the outbox.
    pub span: Range<usize>,
    /// Place of the jobs in the outbox; empty when the datagrams travel as they are.
    jobs: Range<usize>,
    /// What seals the datagrams; `None` for handshake messages.
    seal: Option<RunSeal>,
}

/// One datagram to seal: a header to be written, a plaintext, room for a tag.
#[derive(Clone, Copy, Debug)]
pub struct SealJob {
    profile: Profile,
    number: PacketNumber,
    start: usize,
    end: usize,
}

/// Datagrams and inner packets that a batch of input led to.
#[derive(Debug, Default)]
pub struct Outbox {
    bytes: Vec<u8>,
    runs: Vec<Run>,
    jobs: Vec<SealJob>,
    inner: Vec<u8>,
    /// Where each inner packet ends, and what is known of its checksum.
    inner_ends: Vec<(usize, Checksum)>,
}

impl Outbox {
    /// An empty outbox.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether there is nothing to send and nothing to write.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.inner_ends.is_empty()
    }

    /// Whether the shell should send and write before it hands over more input.
    pub fn is_full(&self) -> bool {
        self.bytes.len() + INPUT_BYTES_MAX > DATAGRAM_BYTES_MAX
            || self.inner.len() + INPUT_BYTES_MAX > INNER_BYTES_MAX
    }

    /// Inner packets that wait to be written.
    pub(crate) fn inner_packets(&self) -> usize {
        self.inner_ends.len()
    }

    /// Forgets everything, keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
        self.jobs.clear();
        self.inner.clear();
        self.inner_ends.clear();
    }

    /// Seals every datagram in place, on this thread.
    pub fn seal(&mut self) {
        for run in &self.runs {
            seal(run, &self.jobs[run.jobs.clone()], &mut self.bytes);
        }
    }

    /// The runs, in the order in which they must leave. Their bytes are sealed once
    /// [`Outbox::seal`] was called.
    pub fn runs(&self) -> impl Iterator<Item = (&Run, &[u8])> {
        self.runs.iter().map(|run| (run, &self.bytes[run.span.clone()]))
    }

    /// What each sealed datagram is sealed with, its number and its profile: for tests that no
    /// nonce is used twice, and that no suite is too weak.
    pub fn sealed(&self) -> impl Iterator<Item = (&RunSeal, PacketNumber, Profile)> {
        self.runs.iter().flat_map(|run| {
            let jobs = &self.jobs[run.jobs.clone()];
            run.seal
                .iter()
                .flat_map(move |seal| jobs.iter().map(move |job| (seal, job.number, job.profile)))
        })
    }

    /// The inner packets for the TUN, in order, each in one piece. Whoever writes them makes the
    /// checksums that were left out.
    pub fn inner(&self) -> impl Iterator<Item = Pieces<'_>> {
        let starts = std::iter::once(0).chain(self.inner_ends.iter().map(|&(end, _)| end));
        starts.zip(&self.inner_ends).map(|(start, &(end, checksum))| {
            Pieces::whole(&self.inner[start..end]).with_checksum(checksum)
        })
    }

    /// Adds an inner packet for the TUN. Returns whether there was room.
    pub(crate) fn push_inner(&mut self, packet: Pieces<'_>) -> bool {
        if self.inner.len() + packet.len() > INNER_BYTES_MAX {
            return false;
        }
        packet.copy_to(&mut self.inner);
        self.inner_ends.push((self.inner.len(), packet.checksum));
        true
    }

    /// The inner packet that was added last, to be changed. A checksum that was left out need not
    /// be mended.
    pub(crate) fn last_inner(&mut self) -> &mut [u8] {
        let end = self.inner.len();
        let start =
            self.inner_ends.len().checked_sub(2).map_or(0, |before| self.inner_ends[before].0);
        &mut self.inner[start.min(end)..]
    }

    /// Adds a datagram that travels as it is (a handshake message). Returns whether there was
    /// room.
    pub fn push_clear(&mut self, route: Route, datagram: &[u8]) -> bool {
        let start = self.bytes.len();
        if start + datagram.len() > DATAGRAM_BYTES_MAX {
            return false;
        }
        self.bytes.extend_from_slice(datagram);
        let (segment, jobs) = (datagram.len(), self.jobs.len());
        let span = start..start + segment;
        let sending = Sending::Segmented;
        self.runs.push(Run { route, segment, sending, span, jobs: jobs..jobs, seal: None });
        true
    }

    /// Starts a sealed datagram; its frames are appended to `Draft::frames`. `None` when there
    /// is no room for one of the largest size.
    pub fn begin(&mut self) -> Option<Draft<'_>> {
        let start = self.bytes.len();
        if start + MAX_DATAGRAM > DATAGRAM_BYTES_MAX {
            return None;
        }
        self.bytes.resize(start + HEADER_LEN, 0);
        Some(Draft { outbox: self, start })
    }

    /// Returns whether the datagram begins a run, which is sent like `sending`.
    fn finish(
        &mut self,
        start: usize,
        (route, sending): (Route, Sending),
        seal: &RunSeal,
        job: SealJob,
    ) -> bool {
        let len = job.end - start;
        self.jobs.push(job);
        if sending != Sending::Alone
            && let Some(run) = self.runs.last_mut()
            && run.accepts(route, seal, start, len)
        {
            run.span.end = job.end;
            run.jobs.end = self.jobs.len();
            return false;
        }
        self.runs.push(Run {
            route,
            segment: len,
            sending,
            span: start..job.end,
            jobs: self.jobs.len() - 1..self.jobs.len(),
            seal: Some(seal.clone()),
        });
        true
    }
}

impl Run {
    /// Datagrams in the run.
    pub fn datagrams(&self) -> usize {
        self.span.len().div_ceil(self.segment.max(1))
    }

    const fn datagrams_max(&self) -> usize {
        match self.sending {
            Sending::Segmented | Sending::Single => RUN_DATAGRAMS_MAX,
            Sending::ShortLast => RUN_DATAGRAMS_MAX - 1, // and the segment that the shell adds
            Sending::Alone => 1,
        }
    }

    fn accepts(&self, route: Route, seal: &RunSeal, start: usize, len: usize) -> bool {
        let same_seal = self.seal.as_ref().is_some_and(|own| {
            own.index == seal.index && own.serial == seal.serial && Arc::ptr_eq(&own.key, &seal.key)
        });
        same_seal
            && self.route == route
            && self.span.end == start
            && self.span.len().is_multiple_of(self.segment)
            && len <= self.segment
            && self.span.len() + len <= RUN_BYTES_MAX
            && self.datagrams() < self.datagrams_max()
    }
}

/// A datagram under construction. Dropped without `Draft::finish`, it leaves nothing behind.
#[derive(Debug)]
pub struct Draft<'a> {
    outbox: &'a mut Outbox,
    start: usize,
}

impl Draft<'_> {
    /// Where frames are appended.
    pub(crate) const fn frames(&mut self) -> &mut Vec<u8> {
        &mut self.outbox.bytes
    }

    /// The frames so far.
    pub(crate) fn written(&mut self) -> &mut [u8] {
        &mut self.outbox.bytes[self.start + HEADER_LEN..]
    }

    /// Bytes that the datagram has so far, header and tag included.
    pub(crate) fn len(&self) -> usize {
        self.outbox.bytes.len() - self.start + TAG_LEN
    }

    /// Whether no frame was appended yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.outbox.bytes.len() == self.start + HEADER_LEN
    }

    /// Appends padding of `len` bytes after the last frame: the profile must be a padded one.
    pub(crate) fn pad(&mut self, len: usize) {
        padding::append(&mut self.outbox.bytes, len);
    }

    /// Ends the datagram and gives it its number. Returns whether it begins a run; only then does
    /// `sending` say how it is sent.
    pub(crate) fn finish(
        self,
        (route, sending): (Route, Sending),
        seal: &RunSeal,
        profile: Profile,
        number: PacketNumber,
    ) -> bool {
        let start = self.start;
        let end = self.outbox.bytes.len() + TAG_LEN;
        debug_assert!(end - start <= MAX_DATAGRAM && !self.is_empty());
        self.outbox.bytes.resize(end, 0);
        let job = SealJob { profile, number, start, end };
        let begins = self.outbox.finish(start, (route, sending), seal, job);
        std::mem::forget(self);
        begins
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        self.outbox.bytes.truncate(self.start);
    }
}

/// Seals the datagrams of one run within `bytes`, where the run was laid out.
pub fn seal(run: &Run, jobs: &[SealJob], bytes: &mut [u8]) {
    let Some(with) = &run.seal else { return };
    for job in jobs {
        let nonce = Nonce { serial: with.serial, number: job.number };
        with.key.seal(with.index, job.profile, nonce, &mut bytes[job.start..job.end]);
    }
}
