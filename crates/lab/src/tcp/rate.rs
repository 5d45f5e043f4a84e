//! The rate at which data is delivered, sampled with every acknowledgment (`tcp_rate.c`; Cheng,
//! Cardwell: draft-cheng-iccrg-delivery-rate-estimation).
//!
//! A sample spans from when some segment left to when it is acknowledged, over the longer of what
//! sending and what acknowledging took, so that neither a burst of segments nor one of
//! acknowledgments is taken for rate.

/// What had been delivered when a segment left.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Snapshot {
    /// Segments delivered, and when the last of them was.
    delivered: u64,
    delivered_ns: u64,
    /// When the first segment of the span left that this one ends.
    first_sent_ns: u64,
    /// There was nothing to send.
    app_limited: bool,
}

/// The running counts of a sender.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateMeter {
    /// Segments delivered.
    pub(super) delivered: u64,
    /// When the last was.
    pub(super) delivered_ns: u64,
    first_sent_ns: u64,
    /// Samples are limited by the application until this many segments were delivered.
    app_limited_until: Option<u64>,
}

/// What one acknowledgment says about the rate.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateSample {
    /// Segments delivered over the interval in nanoseconds; `None` where it is too short to say.
    pub(super) rate: Option<(u64, u64)>,
    /// Segments delivered before the one that this sample began with left.
    pub(super) prior_delivered: u64,
    /// There was nothing to send for some of the time.
    pub(super) app_limited: bool,
    /// Segments that this acknowledgment newly says have arrived.
    pub(super) acked: u32,
    /// Segments newly found lost.
    pub(super) losses: u32,
    /// Segments on their way before this acknowledgment.
    pub(super) prior_in_flight: u32,
    /// The round trip of the newest segment acknowledged, in nanoseconds.
    pub(super) rtt_ns: Option<u64>,
}

/// A sample that is being put together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RateDraft {
    newest: Option<(Snapshot, u64)>,
    /// The round trip of the newest segment acknowledged.
    pub(super) rtt_ns: Option<u64>,
}

impl RateMeter {
    /// A segment leaves; `idle` is whether nothing was on the way (`tcp_rate_skb_sent`).
    pub(super) const fn sends(&mut self, now_ns: u64, idle: bool) -> Snapshot {
        if idle {
            self.first_sent_ns = now_ns;
            self.delivered_ns = now_ns;
        }
        Snapshot {
            delivered: self.delivered,
            delivered_ns: self.delivered_ns,
            first_sent_ns: self.first_sent_ns,
            app_limited: self.app_limited_until.is_some(),
        }
    }

    /// There is nothing to send though there would be room (`tcp_rate_check_app_limited`).
    pub(super) fn runs_dry(&mut self, in_flight: u32) {
        self.app_limited_until = Some((self.delivered + u64::from(in_flight)).max(1));
    }

    /// Whether there was nothing to send lately.
    pub(super) const fn is_app_limited(&self) -> bool {
        self.app_limited_until.is_some()
    }

    /// A segment has arrived, in order or not (`tcp_rate_skb_delivered`).
    pub(super) fn delivers(&mut self, draft: &mut RateDraft, snapshot: Snapshot, sent_ns: u64) {
        self.delivered += 1;
        let newer = draft.newest.is_none_or(|(newest, _)| snapshot.delivered > newest.delivered);
        if newer {
            draft.newest = Some((snapshot, sent_ns - snapshot.first_sent_ns.min(sent_ns)));
            self.first_sent_ns = sent_ns;
        }
    }

    /// The sample of an acknowledgment (`tcp_rate_gen`).
    pub(super) fn sample(
        &mut self,
        now_ns: u64,
        draft: RateDraft,
        acked: u32,
        shortest_ns: u64,
    ) -> RateSample {
        if self.app_limited_until.is_some_and(|until| self.delivered > until) {
            self.app_limited_until = None;
        }
        if acked > 0 {
            self.delivered_ns = now_ns;
        }
        let Some((snapshot, sending_ns)) = draft.newest else {
            return RateSample { acked, rtt_ns: draft.rtt_ns, ..RateSample::default() };
        };
        let interval_ns = sending_ns.max(now_ns - snapshot.delivered_ns.min(now_ns));
        let delivered = self.delivered - snapshot.delivered;
        // Shorter than any round trip: a mistake about what arrived (as on a spurious resend).
        let valid = interval_ns > 0 && (shortest_ns == u64::MAX || interval_ns >= shortest_ns);
        RateSample {
            rate: valid.then_some((delivered, interval_ns)),
            prior_delivered: snapshot.delivered,
            app_limited: snapshot.app_limited,
            acked,
            rtt_ns: draft.rtt_ns,
            ..RateSample::default()
        }
    }
}
