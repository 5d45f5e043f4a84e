//! What part of what left by a path did not arrive, as feedback shows it.

/// Loss of a path as an exponentially weighted mean over the intervals between feedback frames.
#[derive(Clone, Copy, Debug, Default)]
pub struct Loss {
    mean: f64,
}

impl Loss {
    /// Lost part of what was sent, 0 to 1.
    pub const fn share(&self) -> f64 {
        self.mean
    }

    /// So many were sent between two feedbacks, and so many of them arrived.
    pub(super) fn sample(&mut self, sent: u64, received: u64) {
        if sent == 0 {
            return;
        }
        #[expect(clippy::cast_precision_loss, reason = "counts of one interval")]
        let lost = 1.0 - (received as f64 / sent as f64).min(1.0);
        #[expect(clippy::cast_precision_loss, reason = "counts of one interval")]
        let weight = (sent as f64 / 256.0).min(1.0) / 2.0;
        self.mean += (lost - self.mean) * weight;
    }
}
