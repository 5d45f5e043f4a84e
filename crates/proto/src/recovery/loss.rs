//! What part of what left by a path did not arrive, as feedback shows it.

use super::sample::FRESH;
use crate::time::Instant;

/// Loss of a path as an exponentially weighted mean over the intervals between feedback frames.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Loss {
    mean: f64,
    told_at: Option<Instant>,
}

impl Loss {
    /// Lost part of what was sent, 0 to 1, as far as it was ever measured.
    pub const fn share(&self) -> f64 {
        self.mean
    }

    /// The same at this moment; `None` when nothing was told of for long, or ever.
    pub fn at(&self, now: Instant) -> Option<f64> {
        let told_at = self.told_at?;
        (now.saturating_since(told_at) < FRESH).then_some(self.mean)
    }

    /// So many were sent between two feedbacks, and so many of them arrived.
    pub fn sample(&mut self, now: Instant, sent: u64, received: u64) {
        if sent == 0 {
            return;
        }
        self.told_at = Some(now);
        #[expect(clippy::cast_precision_loss, reason = "counts of one interval")]
        let lost = 1.0 - (received as f64 / sent as f64).min(1.0);
        #[expect(clippy::cast_precision_loss, reason = "counts of one interval")]
        let weight = (sent as f64 / 256.0).min(1.0) / 2.0;
        self.mean += (lost - self.mean) * weight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;

    #[test]
    fn what_was_not_measured_lately_is_not_known() {
        let mut loss = Loss::default();
        let at = |ms| Instant::ZERO + Duration::from_millis(ms);
        assert_eq!((loss.at(at(0)), loss.share()), (None, 0.0));
        loss.sample(at(10), 0, 0);
        assert_eq!(loss.at(at(10)), None, "nothing was sent");
        loss.sample(at(10), 256, 192);
        assert_eq!(loss.at(at(2_009)), Some(0.125));
        assert_eq!((loss.at(at(2_010)), loss.share()), (None, 0.125), "but a choice may go by it");
    }
}
