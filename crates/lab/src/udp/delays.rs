//! How long datagrams took: how many of them how long, so that any number needs the same room.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Delays are told apart to so many nanoseconds.
const STEP_NS: u64 = 100_000;
/// What took longer counts as this long.
const LONGEST_NS: u64 = 60_000_000_000;

/// Delays of datagrams; written as pairs of steps and how many took that, since not all that JSON
/// is read by makes numbers of its keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub struct Delays {
    /// How many took how many steps.
    steps: BTreeMap<u64, u64>,
    count: u64,
}

impl From<Vec<(u64, u64)>> for Delays {
    fn from(pairs: Vec<(u64, u64)>) -> Self {
        let count = pairs.iter().map(|(_, count)| count).sum();
        Self { steps: pairs.into_iter().collect(), count }
    }
}

impl From<Delays> for Vec<(u64, u64)> {
    fn from(delays: Delays) -> Self {
        delays.steps.into_iter().collect()
    }
}

impl Delays {
    /// One took so long.
    pub fn note(&mut self, delay_ns: u64) {
        *self.steps.entry(delay_ns.min(LONGEST_NS) / STEP_NS).or_default() += 1;
        self.count += 1;
    }

    /// Within how many milliseconds that share of them came, to a tenth and rounded up; `None`
    /// where none did.
    pub fn within_ms(&self, share: f64) -> Option<f64> {
        let wanted = (share * self.count as f64).ceil() as u64;
        let mut so_far = 0;
        let reached = |(_, count): &(&u64, &u64)| {
            so_far += **count;
            so_far >= wanted.max(1)
        };
        let (step, _) = self.steps.iter().find(reached)?;
        Some(((step + 1) * STEP_NS) as f64 / 1e6)
    }
}
