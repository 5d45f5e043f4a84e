//! The flows that may be compressed, and the decision about each.
//!
//! A flow that a rule names gets an entry with its first packet. The entry has the flow's
//! [`Sampling`], and remembers whether the flow was seen to carry the web: such a flow is never
//! compressed. A TCP connection whose beginning was not seen gets no entry, because nobody knows
//! what it carries.
//!
//! Closed connections leave at once, idle flows after [`IDLE`]. If there is no place left, one
//! generic decision is about all further datagram flows; their packets are looked at one by one.
//! TCP connections without an entry are not compressed.
//!
//! A rule may also ask only that small packets wait for others and share a datagram: then nothing
//! is compressed.
//!
//! Decides which packet is compressed. Does not compress. Bounds: [`ENTRIES_MAX`] flows, or
//! [`ENTRIES_GATEWAY_MAX`] for a client's session at a gateway, which has many sessions.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::allowed::{Allowed, Ends, shows_web};
use super::coding::Coding;
use super::sampling::{Sampling, Scarce};
use crate::packet::Saving;
use crate::time::{Duration, Instant};
use crate::wire::inner::InnerPacket;
use crate::wire::tcp::Flags;

/// Packets up to this length are never compressed (Alshalan 2017, 5.5.1).
pub const LEN_MIN: usize = 100;
/// Flows of a session that have an entry: as many as one host has ports (Alshalan 2017, 5.5.1).
pub const ENTRIES_MAX: usize = 65_535;
/// The same for each session at a gateway, where somebody else names the flows.
pub const ENTRIES_GATEWAY_MAX: usize = 4_096;
/// A flow without a packet for so long leaves. A telemetry device that reports every few minutes
/// keeps its entry.
pub const IDLE: Duration = Duration::from_secs(600);
/// Entries that are looked at for idleness when one is added.
const SWEPT: usize = 4;

const _: () = assert!(ENTRIES_MAX * (size_of::<Ends>() + size_of::<Entry>()) <= 8 << 20);
const _: () = assert!(ENTRIES_GATEWAY_MAX * (size_of::<Ends>() + size_of::<Entry>()) <= 512 << 10);

/// Which way a packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Into the tunnel.
    Out,
    /// Out of the tunnel.
    In,
}

/// How it is decided whether compression pays. All but the first are for measurements: no
/// configuration can ask for them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum Decides {
    /// For each flow.
    #[default]
    PerFlow,
    /// For all flows together.
    Together,
    /// Not at all: everything that is allowed is compressed.
    Never,
}

/// What is known of one flow.
#[derive(Clone, Copy, Debug)]
struct Entry {
    used_at: Instant,
    sampling: Sampling,
    coding: Coding,
    /// It was seen to carry HTTP or TLS.
    is_web: bool,
    /// TCP: which ends have ended, the near and the far one.
    ended: (bool, bool),
}

/// The flows of one session that may be compressed.
#[derive(Clone, Debug)]
pub struct Entries {
    allowed: Allowed,
    flows: BTreeMap<Ends, Entry>,
    /// The most flows.
    places: usize,
    /// The decision about datagrams of flows without a place; `None` before the first.
    generic: Option<Sampling>,
    decides: Decides,
    /// The last flow that was looked at for idleness.
    swept: Option<Ends>,
}

impl Entries {
    /// No flow yet, and room for `places` flows.
    pub fn new(places: usize) -> Self {
        Self {
            allowed: Allowed::default(),
            flows: BTreeMap::new(),
            places,
            generic: None,
            decides: Decides::default(),
            swept: None,
        }
    }

    /// Changes which flows may be compressed. Flows that no rule names any more leave.
    pub fn allow(&mut self, allowed: Allowed) {
        self.flows.retain(|ends, entry| {
            let coding = allowed.coding(ends);
            entry.coding = coding.unwrap_or_default();
            coding.is_some()
        });
        self.allowed = allowed;
    }

    /// Changes how it is decided whether compression pays.
    pub const fn decide(&mut self, decides: Decides) {
        self.decides = decides;
    }

    /// Which flows may be compressed.
    pub const fn allowed(&self) -> &Allowed {
        &self.allowed
    }

    /// Whether nothing may be compressed: then no packet need be shown.
    pub fn is_off(&self) -> bool {
        self.allowed.is_empty()
    }

    /// Flows that have an entry.
    pub fn len(&self) -> usize {
        self.flows.len()
    }

    /// Whether no flow has an entry.
    pub fn is_empty(&self) -> bool {
        self.flows.is_empty()
    }

    /// Takes notice of a packet that passes. Returns how bytes are saved on it on its way into the
    /// tunnel. If it is to be compressed, [`Self::left`] must follow.
    pub fn pass(&mut self, now: Instant, way: Way, packet: &InnerPacket<'_>) -> Saving {
        let Some(ends) = ends_of(packet, way) else { return Saving::NONE };
        let shows_web = shows_web(packet.first_payload());
        self.admit(now, ends, packet);
        let Self { flows, generic, decides, .. } = self;
        let Some(entry) = flows.get_mut(&ends) else {
            let may = !shows_web && way == Way::Out && !packet.is_tcp();
            return if may { self.generic(now, &ends, packet.len()) } else { Saving::NONE };
        };
        entry.used_at = now;
        entry.is_web |= shows_web;
        let mut always_on = Sampling::new(now);
        let sampling = match decides {
            Decides::PerFlow => &mut entry.sampling,
            Decides::Together => generic.get_or_insert_with(|| Sampling::generic(now)),
            Decides::Never => &mut always_on,
        };
        let saving = match way {
            Way::Out if !entry.is_web => judge(now, sampling, entry.coding, packet.len()),
            Way::Out | Way::In => Saving::NONE,
        };
        if entry.ends(way, packet) {
            flows.remove(&ends);
        }
        saving
    }

    /// How a packet is compressed that is sent again.
    pub fn coding_again(&self, packet: &InnerPacket<'_>) -> Option<Coding> {
        let entry = self.flows.get(&ends_of(packet, Way::Out)?)?;
        let may = entry.sampling.is_on() && !entry.is_web && packet.len() > LEN_MIN;
        Some(entry.coding).filter(|coding| may && !coding.is_none())
    }

    /// A packet that [`Self::pass`] let be compressed left in `compressed` bytes, or as it was.
    pub fn left(
        &mut self,
        now: Instant,
        packet: &InnerPacket<'_>,
        compressed: Option<usize>,
        scarce: Scarce,
    ) {
        let lens = (packet.len(), compressed.unwrap_or(packet.len()));
        let entry = ends_of(packet, Way::Out).and_then(|ends| self.flows.get_mut(&ends));
        match entry.filter(|_| self.decides != Decides::Together) {
            Some(entry) => entry.sampling.left(now, lens, scarce),
            None => {
                if let Some(generic) = &mut self.generic {
                    generic.left(now, lens, scarce);
                }
            }
        }
    }

    /// Gives a flow an entry that has none, if a rule names it, its beginning is seen, and there is
    /// room. The same ends may begin another connection.
    fn admit(&mut self, now: Instant, ends: Ends, packet: &InnerPacket<'_>) {
        let begins = packet.opens_at().is_some();
        let known = self.flows.get(&ends);
        if known.is_some_and(|known| !begins || !known.has_ended()) || (packet.is_tcp() && !begins)
        {
            return;
        }
        let Some(coding) = self.allowed.coding(&ends) else { return };
        self.sweep(now);
        if self.flows.len() < self.places || self.flows.contains_key(&ends) {
            self.flows.insert(ends, Entry::new(now, coding));
        }
    }

    /// How bytes are saved on a datagram of `len` bytes whose flow has no entry.
    fn generic(&mut self, now: Instant, ends: &Ends, len: usize) -> Saving {
        let Some(coding) = self.allowed.coding(ends) else { return Saving::NONE };
        let generic = self.generic.get_or_insert_with(|| Sampling::generic(now));
        judge(now, generic, coding, len)
    }

    /// Forgets those of the next few flows that are idle.
    fn sweep(&mut self, now: Instant) {
        for _ in 0..SWEPT {
            let from = self.swept.map_or(Bound::Unbounded, Bound::Excluded);
            let mut rest = self.flows.range((from, Bound::Unbounded));
            let next = rest.next().or_else(|| self.flows.first_key_value());
            let next = next.map(|(ends, entry)| (*ends, entry.used_at));
            self.swept = next.map(|(ends, _)| ends);
            if let Some((ends, used_at)) = next
                && now.saturating_since(used_at) >= IDLE
            {
                self.flows.remove(&ends);
            }
        }
    }
}

impl Entry {
    fn new(now: Instant, coding: Coding) -> Self {
        let sampling = Sampling::new(now);
        Self { used_at: now, sampling, coding, is_web: false, ended: (false, false) }
    }

    /// Whether either end has ended.
    const fn has_ended(&self) -> bool {
        self.ended.0 || self.ended.1
    }

    /// Whether the connection is over with this packet: it is broken off, or both ends have ended.
    fn ends(&mut self, way: Way, packet: &InnerPacket<'_>) -> bool {
        let flags = packet.flags().unwrap_or_default();
        let ended = if way == Way::Out { &mut self.ended.0 } else { &mut self.ended.1 };
        *ended |= flags.has(Flags::FIN);
        flags.has(Flags::RST) || (self.ended.0 && self.ended.1)
    }
}

/// How bytes are saved on a packet of `len` bytes of a flow that a rule names. A flow that does not
/// pay is left alone for a while, its small packets too.
fn judge(now: Instant, sampling: &mut Sampling, coding: Coding, len: usize) -> Saving {
    match sampling.is_on() {
        _ if coding.is_none() => Saving::JOINED,
        true if len <= LEN_MIN => Saving::JOINED,
        true => Saving::compressed(coding.to_byte()),
        false => {
            if len > LEN_MIN {
                sampling.left(now, (len, len), Scarce::Nothing);
            }
            Saving::DIRECT
        }
    }
}

/// The ends of a packet's flow, if it is TCP or UDP and no later fragment.
fn ends_of(packet: &InnerPacket<'_>, way: Way) -> Option<Ends> {
    let headers = &packet.headers;
    let (from, to) = headers.ports?;
    let (source, destination) = ((headers.source, from), (headers.destination, to));
    let protocol = headers.protocol;
    Some(match way {
        Way::Out => Ends { near: source, far: destination, protocol },
        Way::In => Ends { near: destination, far: source, protocol },
    })
}

#[cfg(test)]
#[path = "entries_tests.rs"]
mod tests;
