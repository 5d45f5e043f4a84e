//! Links as people meet them, by name.

use super::MS;
use super::loss::Loss;
use super::pipe::{PipeConfig, Rate};
use super::policer::Policer;
use super::recordings;
use super::trace::{Trace, TraceError};
use std::sync::Arc;

/// Both directions of a link.
#[derive(Clone, Debug, Default)]
pub struct LinkConfig {
    /// From the first end (the host) to the second.
    pub up: PipeConfig,
    /// From the second end to the first.
    pub down: PipeConfig,
}

impl LinkConfig {
    /// Every preset by the name under which [`LinkConfig::by_name`] finds it, with one line on
    /// what it stands for.
    pub const NAMES: &[(&str, &str)] = &[
        ("cable", "100/20 Mbit/s, 14 ms, 120 ms of queue upstream"),
        ("dsl", "16/2 Mbit/s, 24 ms, 200 ms of queue upstream"),
        ("geo_satellite", "25/3 Mbit/s, 600 ms, 0.1 % loss"),
        ("home_wifi", "60/60 Mbit/s, 8 ms, up to 3 ms of jitter, 0.1 % loss in bursts of 2"),
        ("lan", "1 Gbit/s, 0.2 ms"),
        ("lossy_wifi", "20/20 Mbit/s, 10 ms, up to 10 ms of jitter, 2 % loss in bursts of 3"),
        ("lte", "30/10 Mbit/s, 50 ms, up to 8 ms of jitter, 300 ms of queue"),
        ("umts", "6/1.5 Mbit/s, 90 ms, up to 20 ms of jitter, 1 s of queue"),
    ];

    /// A symmetric link that loses nothing: `round_trip_ns` there and back, in each direction a
    /// queue of one bandwidth-delay product (at least 64 KiB).
    pub fn lossless(bits_per_second: u64, round_trip_ns: u64) -> Self {
        let pipe = PipeConfig::clean(bits_per_second, round_trip_ns / 2);
        Self { up: pipe.clone(), down: pipe }
    }

    /// A link that changes nothing: no delay, no limit.
    pub fn ideal() -> Self {
        Self::default()
    }

    /// A link by the name of its preset.
    pub fn by_name(name: &str) -> Option<Self> {
        let link = |down_kbps: u64, up_kbps: u64, round_trip_us: u64| Self {
            up: PipeConfig::clean(up_kbps * 1_000, round_trip_us * 500),
            down: PipeConfig::clean(down_kbps * 1_000, round_trip_us * 500),
        };
        Some(match name {
            "cable" => link(100_000, 20_000, 14_000).queue_up_ms(120),
            "dsl" => link(16_000, 2_000, 24_000).queue_up_ms(200),
            "geo_satellite" => link(25_000, 3_000, 600_000).loss(Loss::Bernoulli(0.001)),
            "home_wifi" => {
                link(60_000, 60_000, 8_000).jitter(3 * MS).loss(Loss::bursts(0.001, 2.0))
            }
            "lan" => link(1_000_000, 1_000_000, 200),
            "lossy_wifi" => {
                link(20_000, 20_000, 10_000).jitter(10 * MS).loss(Loss::bursts(0.02, 3.0))
            }
            "lte" => link(30_000, 10_000, 50_000).jitter(8 * MS).queue_ms(300),
            "umts" => link(6_000, 1_500, 90_000).jitter(20 * MS).queue_ms(1_000),
            _ => return None,
        })
    }

    /// A recorded link: one trace for each direction, `round_trip_ns` of delay, and a queue of
    /// one second at the recording's mean rate, as deep as mobile networks have it.
    pub fn recorded(up: Trace, down: Trace, round_trip_ns: u64) -> Self {
        let pipe = |trace: Trace| PipeConfig {
            queue_bytes: trace.mean_bits_per_second() / 8,
            rate: Rate::Trace(Arc::new(trace)),
            delay_ns: round_trip_ns / 2,
            ..PipeConfig::default()
        };
        Self { up: pipe(up), down: pipe(down) }
    }

    /// A recorded network by name, with this round trip in nanoseconds; `None` of a name that
    /// nobody has recorded.
    pub fn recorded_as(name: &str, round_trip_ns: u64) -> Option<Result<Self, TraceError>> {
        let traces = recordings::recorded(name)?;
        Some(traces.map(|(up, down)| Self::recorded(up, down, round_trip_ns)))
    }

    /// The same link losing packets this way in both directions.
    pub fn loss(mut self, loss: Loss) -> Self {
        self.up.loss = loss;
        self.down.loss = loss;
        self
    }

    /// The same link with a policer of UDP in each direction.
    pub const fn policed(mut self, udp: Policer) -> Self {
        self.up.udp = Some(udp);
        self.down.udp = Some(udp);
        self
    }

    /// The same link with up to this much jitter in each direction, in nanoseconds.
    pub const fn jitter(mut self, jitter_ns: u64) -> Self {
        self.up.jitter_ns = jitter_ns;
        self.down.jitter_ns = jitter_ns;
        self
    }

    /// The same link with queues of this many milliseconds at its own rates.
    pub fn queue_ms(self, queue_ms: u64) -> Self {
        Self { up: self.up.with_queue_ms(queue_ms), down: self.down.with_queue_ms(queue_ms) }
    }

    /// The same link with another queue upstream.
    pub fn queue_up_ms(mut self, queue_ms: u64) -> Self {
        self.up = self.up.with_queue_ms(queue_ms);
        self
    }

    /// Its round trip for a packet that meets no queue and takes no time to send, in nanoseconds.
    pub const fn round_trip_ns(&self) -> u64 {
        self.up.delay_ns + self.down.delay_ns
    }
}

#[cfg(test)]
#[path = "preset_tests.rs"]
mod tests;
