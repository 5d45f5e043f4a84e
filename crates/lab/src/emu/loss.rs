//! What becomes of a packet on the air: lost whole, or with bits turned.

use super::rng::Rng;

/// How packets get lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Loss {
    /// Nothing is lost.
    #[default]
    None,
    /// Every packet independently with this probability.
    Bernoulli(f64),
    /// Two states with a loss probability each and a chance to change at every packet
    /// (Gilbert 1960, Elliott 1963): losses come in bursts, as on radio.
    GilbertElliott {
        /// Chance that a packet is the first one after a good spell.
        good_to_bad: f64,
        /// Chance that a packet is the first one after a bad spell.
        bad_to_good: f64,
        /// Loss probability while good.
        loss_good: f64,
        /// Loss probability while bad.
        loss_bad: f64,
    },
}

impl Loss {
    /// Bursty loss with `mean` of all packets lost in bursts of `burst` packets on average
    /// (at least 1), nothing in between: the simple Gilbert model.
    pub fn bursts(mean: f64, burst: f64) -> Self {
        let bad_to_good = 1.0 / burst.max(1.0);
        let mean = mean.clamp(0.0, 0.999);
        Self::GilbertElliott {
            good_to_bad: (bad_to_good * mean / (1.0 - mean)).min(1.0),
            bad_to_good,
            loss_good: 0.0,
            loss_bad: 1.0,
        }
    }

    /// The share of packets lost in the long run, in `[0, 1]`.
    pub fn mean(&self) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Bernoulli(p) => p.clamp(0.0, 1.0),
            Self::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                let changes = good_to_bad + bad_to_good;
                let bad = if changes > 0.0 { good_to_bad / changes } else { 0.0 };
                bad * loss_bad + (1.0 - bad) * loss_good
            }
        }
    }
}

/// Bits turned on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum BitErrors {
    /// None.
    #[default]
    None,
    /// Each bit with this probability; the link's own checksum notices and drops the packet, as
    /// Ethernet and Wi-Fi do. Long packets are lost more often than short ones.
    Dropped(f64),
    /// Each bit with this probability; the packet is delivered with one of its bits turned, so
    /// that the receiver's checks are what is tested.
    Delivered(f64),
}

/// The loss process of one pipe: a [`Loss`] and which state it is in.
#[derive(Clone, Debug)]
pub(super) struct LossProcess {
    model: Loss,
    bad: bool,
}

impl LossProcess {
    pub(super) const fn new(model: Loss) -> Self {
        Self { model, bad: false }
    }

    /// Decides one packet: true when it is lost.
    pub(super) fn loses(&mut self, rng: &mut Rng) -> bool {
        match self.model {
            Loss::None => false,
            Loss::Bernoulli(p) => rng.chance(p),
            Loss::GilbertElliott { good_to_bad, bad_to_good, loss_good, loss_bad } => {
                let leaves = if self.bad { bad_to_good } else { good_to_bad };
                if rng.chance(leaves) {
                    self.bad = !self.bad;
                }
                rng.chance(if self.bad { loss_bad } else { loss_good })
            }
        }
    }
}

impl BitErrors {
    /// The probability that a packet of `bytes` has at least one bit turned.
    pub(super) fn hit(&self, bytes: usize) -> f64 {
        match *self {
            Self::None => 0.0,
            Self::Dropped(per_bit) | Self::Delivered(per_bit) => {
                let bits = (bytes * 8) as f64;
                1.0 - (bits * (-per_bit.clamp(0.0, 1.0)).ln_1p()).exp()
            }
        }
    }
}
