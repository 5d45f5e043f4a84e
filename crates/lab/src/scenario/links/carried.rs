//! The traffic of a cell: TCP, QUIC, or datagrams at a constant rate. This module decides the
//! offered rate and computes goodput; it knows only the links' rates.

use super::{Cell, FIRST_NS, FLOWS, GRID, INNER_BYTES, INNER_HEADERS, Link, is_recorded};
use crate::emu::SECOND;
use crate::ground::{Connections, Datagrams, DatagramsRun, Flow, Ground, Transfer, Trouble, What};
use crate::scenario::Stage;
use crate::scenario::addresses::Family;
use crate::scenario::settings::Setting;
use crate::scenario::statistics::min;
use crate::udp;

/// Offered rate of datagrams, relative to the links' capacity.
const OFFERED: f64 = 1.1;
/// The part of a QUIC packet that is no stream payload: IPv4 and UDP; the short header with 8 bytes
/// of connection ID and 2 of packet number (RFC 9000, 17.3.1); the tag; the frame's type, stream,
/// and offset of 4 bytes (RFC 9000, 19.8).
const QUIC_HEADERS: f64 = 28.0 + 11.0 + 16.0 + 6.0;

/// Length of the flow that shows how many bytes the tunnel adds to a packet.
const SHOWING_NS: u64 = SECOND / 2;

/// The longest queue of an unresponsive flow, with the queue of each path, in milliseconds.
const QUEUE_MS: f64 = 190.0;
/// How long a gap may be held open, in round trips of the longest path.
const HOLD_TRIPS: f64 = 3.5;

/// The traffic.
pub(in super::super) const FLOW: Setting = Setting::choice(
    "flow",
    &[GRID, "tcp", "quic", "udp"],
    "what is carried: a TCP connection, a QUIC connection, or datagrams at a tenth more than the \
     links carry",
);

/// The traffic of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum Carried {
    /// A TCP connection.
    Tcp,
    /// A stream over a QUIC connection.
    Quic,
    /// Datagrams at a constant rate, more than the links carry.
    Udp,
}

/// The result of traffic that never ends by itself.
#[derive(Default)]
pub(super) struct Goodput {
    /// In Mbit/s.
    pub(super) mbps: Option<f64>,
    /// From one moment to another, on the backend's clock.
    pub(super) window: (u64, u64),
    /// Its datagrams.
    pub(super) run: DatagramsRun,
}

impl Carried {
    /// All kinds.
    pub(in super::super) const ALL: &'static [Self] = &[Self::Tcp, Self::Quic, Self::Udp];
    /// The traffic of a scenario about TCP.
    pub(in super::super) const TCP: &'static [Self] = &[Self::Tcp];

    /// The name in the setting.
    pub(in super::super) const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Quic => "quic",
            Self::Udp => "udp",
        }
    }

    /// The greatest payload share of all layer-3 bytes on a link with IPv4, by the least that this
    /// tunnel adds to each packet; `None` if that is unknown.
    pub(in super::super) fn payload_share(
        self,
        ground: &mut dyn Ground,
    ) -> Result<Option<f64>, Trouble> {
        self.payload_share_over(Family::V4, ground)
    }

    /// The same if the tunnel uses this family outside.
    pub(super) fn payload_share_over(
        self,
        outside: Family,
        ground: &mut dyn Ground,
    ) -> Result<Option<f64>, Trouble> {
        let added = ground.flow(Flow::lasting(SHOWING_NS), &[])?.added_bytes;
        Ok(min(&added).map(|added| self.share(outside, added)))
    }

    /// The payload share if the tunnel adds this to each packet, in bytes, without outer headers.
    pub(super) fn share(self, outside: Family, added: f64) -> f64 {
        let (inner, payload) = self.packet_bytes();
        payload / (inner + added + outside.udp_headers() as f64)
    }

    /// Bytes of a full inner packet, and its payload.
    pub(super) fn packet_bytes(self) -> (f64, f64) {
        match self {
            Self::Tcp => (INNER_BYTES, INNER_BYTES - INNER_HEADERS),
            Self::Quic => (INNER_BYTES, INNER_BYTES - QUIC_HEADERS),
            Self::Udp => (f64::from(Datagrams::BYTES + udp::HEADERS), f64::from(Datagrams::BYTES)),
        }
    }
}

impl<const N: usize> Cell<N> {
    /// The goodput of traffic that never ends by itself.
    pub(super) fn goodput(
        &self,
        stage: &Stage<'_>,
        ground: &mut dyn Ground,
    ) -> Result<Goodput, Trouble> {
        let run = match self.carried {
            Carried::Tcp => {
                let transfer = self.connections(stage, ground)?;
                DatagramsRun { transfer, ..DatagramsRun::default() }
            }
            Carried::Quic | Carried::Udp => self.pour(stage, ground)?,
        };
        let length_ns = stage.settings.number("seconds") * SECOND;
        // Short runs are tests of the lab: they skip in proportion.
        let skip_ns = match stage.settings.number("first") {
            0 => FIRST_NS.min(length_ns / 6),
            seconds => seconds * SECOND,
        };
        let mbps = run.transfer.mbps_within(skip_ns, length_ns);
        let start_ns = run.transfer.start_ns;
        Ok(Goodput { mbps, window: (start_ns + skip_ns, start_ns + length_ns), run })
    }

    /// TCP connections that outlast the run, taken together.
    fn connections(&self, stage: &Stage<'_>, ground: &mut dyn Ground) -> Result<Transfer, Trouble> {
        let length_ns = stage.settings.number("seconds") * SECOND;
        let rates = self.pair.iter().map(Link::mbps);
        // A recorded network may exceed its mean for a while.
        let mbps = rates.sum::<u64>() * if is_recorded(self.pair) { 4 } else { 1 };
        let bulk = Connections::outlasting(self.to, mbps, length_ns);
        let count = stage.settings.number(FLOWS.key).max(1) as u32;
        let kind = Connections { congestion: self.congestion, count, ..bulk };
        let longest_ns = length_ns + Connections::OPENING_NS;
        Ok(Transfer::together(ground.connect(&[kind], longest_ns, &[])?.concat()))
    }

    /// Whether half of the datagrams arrived in time: within the allowed queue and the longest
    /// link's delay. With losses or unpredictable rates, the time of a gap is added. `None` without
    /// such datagrams.
    pub(super) fn is_in_time(&self, run: &DatagramsRun) -> Option<bool> {
        let trips = self.pair.iter().map(|link| link.round_trip_ms as f64);
        let trip_ms = trips.fold(0.0, f64::max);
        let is_held = self.is_lossy() || is_recorded(self.pair);
        let held_ms = if is_held { HOLD_TRIPS * trip_ms } else { 0.0 };
        let most_ms = QUEUE_MS + trip_ms / 2.0 + held_ms;
        let is_in_time = || run.delays_ms.is_some_and(|[half, ..]| half <= most_ms);
        (self.carried == Carried::Udp).then(is_in_time)
    }

    /// Sends datagrams for the length that is set.
    fn pour(&self, stage: &Stage<'_>, ground: &mut dyn Ground) -> Result<DatagramsRun, Trouble> {
        let rates: f64 = self.pair.iter().map(|link| Link::mbps_to(link, self.to)).sum();
        // A recorded network may exceed its mean for a while.
        let offered = rates * OFFERED * if is_recorded(self.pair) { 4.0 } else { 1.0 };
        let what = match self.carried {
            Carried::Quic => What::Quic { congestion: self.congestion },
            Carried::Tcp | Carried::Udp => What::Clock { kbps: (offered * 1e3) as u64 },
        };
        let length_ns = stage.settings.number("seconds") * SECOND;
        let skip_ns = FIRST_NS.min(length_ns / 6);
        ground.pour(Datagrams { to: self.to, what, length_ns, skip_ns })
    }
}
