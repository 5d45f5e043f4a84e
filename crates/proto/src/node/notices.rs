//! Restart notices: what a gateway answers to an index that it does not know
//! (docs/spec/wire.md#7-restart-notice)
//!.
//!
//! Any stranger can ask for one, so they are few, shorter than what asks for them, and cost one
//! hash. Who they are for is not known here: only the client that the token was told to can tell
//! whether one means anything.

use crate::crypto::{RestartKey, StaticSecret};
use crate::id::SessionIndex;
use crate::outbox::{Outbox, Route};
use crate::time::{Duration, Instant};
use crate::wire::restart::RestartNotice;

/// Notices in one [`PERIOD`], some 125 KB a second at layer 3 in all.
const NOTICES_MAX: u32 = 256;
/// The period over which they are counted.
const PERIOD: Duration = Duration::from_millis(100);

/// What makes notices, and how many there were of late.
#[derive(Debug)]
pub(super) struct Notices {
    key: RestartKey,
    since: Instant,
    count: u32,
}

impl Notices {
    pub(super) fn new(now: Instant, secret: &StaticSecret) -> Self {
        Self { key: RestartKey::of(secret), since: now, count: 0 }
    }

    pub(super) const fn key(&self) -> &RestartKey {
        &self.key
    }

    /// Answers a datagram whose index leads nowhere, unless there were many.
    pub(super) fn answer(
        &mut self,
        now: Instant,
        route: Route,
        index: SessionIndex,
        out: &mut Outbox,
    ) {
        if now.saturating_since(self.since) >= PERIOD {
            (self.since, self.count) = (now, 0);
        }
        if self.count < NOTICES_MAX {
            self.count += 1;
            self.send(route, index, out);
        }
    }

    /// Sends a notice for `index`; whether there was room.
    pub(super) fn send(&self, route: Route, index: SessionIndex, out: &mut Outbox) -> bool {
        let notice = RestartNotice { index, token: self.key.token(index) };
        out.push_clear(route, &notice.emit())
    }
}
