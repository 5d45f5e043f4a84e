//! A link of a cell: its rates, its round trip and its own loss, as text and as the emulator has
//! it. Knows no cell.

use crate::emu::{LinkConfig, Loss, MS, PipeConfig, Rate};
use crate::ground::Receiver;

/// Parts per million in one per cent.
const PPM_PER_PERCENT: f64 = 1e4;

/// A link of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) struct Link {
    /// Its rates to the client and from it, in kbit/s; of a recorded one the approximate mean.
    pub(super) kbps: [u64; 2],
    /// Its round trip, in milliseconds.
    pub(in super::super) round_trip_ms: u64,
    /// Its own packet loss each way, in parts per million. With 0, the loss of its cell counts.
    pub(super) loses_ppm: u32,
    /// The name of the network, if its rate was recorded.
    pub(super) recording: Option<&'static str>,
}

/// Loss by its name: this share of all packets, in per cent, independently; or as Wi-Fi at its
/// worst.
pub(super) fn loss(word: &str) -> Loss {
    match word.parse::<f64>() {
        Ok(0.0) => Loss::None,
        Ok(percent) => Loss::Bernoulli(percent / 100.0),
        Err(_) => Loss::bursts(0.02, 3.0),
    }
}

impl Link {
    /// A link by its rate in Mbit/s and its round trip in milliseconds.
    pub(in super::super) const fn of(mbps: u64, round_trip_ms: u64) -> Self {
        Self::of_kbps([mbps * 1_000; 2], round_trip_ms)
    }

    /// A link by its rates to the client and from it, in kbit/s.
    pub(in super::super) const fn of_kbps(kbps: [u64; 2], round_trip_ms: u64) -> Self {
        Self { kbps, round_trip_ms, loses_ppm: 0, recording: None }
    }

    /// The same with this loss in each direction, in parts per million, whatever the other link
    /// loses.
    pub(in super::super) const fn losing(self, ppm: u32) -> Self {
        Self { loses_ppm: ppm, ..self }
    }

    /// Reads the form that [`Self::name`] writes: `10/8`, or `10/8/0.15` with 0.15 % of loss.
    pub(in super::super) fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let mbps: f64 =
            parts.next()?.parse().ok().filter(|mbps| (0.1..=10_000.0).contains(mbps))?;
        let round_trip_ms = parts.next()?.parse().ok().filter(|ms| (1..=10_000).contains(ms))?;
        let percent: f64 = parts.next().map_or(Some(0.0), |word| word.parse().ok())?;
        let is_whole = (0.0..=50.0).contains(&percent) && parts.next().is_none();
        let link = Self::of_kbps([(mbps * 1e3) as u64; 2], round_trip_ms);
        is_whole.then(|| link.losing((percent * PPM_PER_PERCENT).round() as u32))
    }

    /// A recorded network with about this mean rate down.
    pub(in super::super) const fn recorded(
        name: &'static str,
        mbps: u64,
        round_trip_ms: u64,
    ) -> Self {
        let recording = Some(name);
        Self { recording, ..Self::of(mbps, round_trip_ms) }
    }

    /// As text: rates in Mbit/s, round trip in milliseconds, its own loss in per cent; or a name.
    pub(super) fn name(&self) -> String {
        if let Some(name) = self.recording {
            return name.to_owned();
        }
        let [down, up] = self.kbps.map(|kbps| kbps as f64 / 1e3);
        let up = if down == up { String::new() } else { format!(":{up}") };
        let loss = match self.loses_ppm {
            0 => String::new(),
            ppm => format!("/{}", f64::from(ppm) / PPM_PER_PERCENT),
        };
        format!("{down}{up}/{}{loss}", self.round_trip_ms)
    }

    /// Its packet loss, in a cell with this loss.
    pub(super) fn loss(&self, of_cell: &str) -> Loss {
        match self.loses_ppm {
            0 => loss(of_cell),
            ppm => Loss::Bernoulli(f64::from(ppm) / PPM_PER_PERCENT / 100.0),
        }
    }

    /// The emulator's form of it. A test of the pairs checks that every recording exists.
    pub(in super::super) fn config(&self, loss: Loss) -> LinkConfig {
        let ([down, up], trip_ns) = (self.kbps, self.round_trip_ms * MS);
        let recorded = self.recording.and_then(|name| LinkConfig::recorded_as(name, trip_ns));
        let pipe = |kbps| PipeConfig::clean(kbps * 1_000, trip_ns / 2);
        let link = match recorded {
            Some(Ok(link)) => link,
            Some(Err(_)) | None => LinkConfig { up: pipe(up), down: pipe(down) },
        };
        link.loss(loss)
    }

    /// Its capacity to a receiver between two moments of the backend's clock, in Mbit/s.
    pub(super) fn mbps_between(&self, to: Receiver, (from_ns, to_ns): (u64, u64)) -> f64 {
        let LinkConfig { up, down } = self.config(Loss::None);
        let pipe = if to == Receiver::Client { down } else { up };
        match &pipe.rate {
            Rate::Trace(trace) => {
                let bits = trace.capacity_bytes(from_ns, to_ns) as f64 * 8.0;
                bits * 1e3 / to_ns.saturating_sub(from_ns) as f64
            }
            Rate::Unlimited | Rate::BitsPerSecond(_) | Rate::Changing(_) => self.mbps_to(to),
        }
    }

    /// Its rate to a receiver, in Mbit/s; of a recorded one the approximate mean.
    pub(in super::super) fn mbps_to(&self, to: Receiver) -> f64 {
        self.kbps[to as usize] as f64 / 1e3
    }

    /// The larger of its rates, in Mbit/s, rounded up.
    pub(in super::super) fn mbps(&self) -> u64 {
        self.kbps[0].max(self.kbps[1]).div_ceil(1_000)
    }
}

/// Links as text.
pub(in super::super) fn name<const N: usize>(pair: &[Link; N]) -> String {
    pair.map(|link| link.name()).join("+")
}

/// Whether one of them is a recorded network.
pub(in super::super) fn is_recorded<const N: usize>(pair: [Link; N]) -> bool {
    pair.iter().any(|link| link.recording.is_some())
}
