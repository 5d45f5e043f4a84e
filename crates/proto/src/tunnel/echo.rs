//! A gateway's answer that a client asked for later, to learn how long its NAT remembers
//! (docs/spec/wire.md#keepalives-and-idle-sessions). One question is kept, the newest.

use std::net::SocketAddr;

use crate::path::PathId;
use crate::paths::nat::INTERVAL_MAX;
use crate::time::Instant;
use crate::wire::frame::{Echo, Response};

/// The answer that is owed, if any.
#[derive(Debug, Default)]
pub(crate) struct PendingEcho(Option<Owed>);

#[derive(Clone, Copy, Debug)]
struct Owed {
    due: Instant,
    path: PathId,
    response: Response,
}

impl PendingEcho {
    /// The client asks, by `path`, where it was seen as `observed`. A question that is to wait for
    /// longer than [`INTERVAL_MAX`] is ignored.
    pub(crate) fn ask(&mut self, now: Instant, path: PathId, observed: SocketAddr, echo: Echo) {
        if echo.delay <= INTERVAL_MAX {
            let response = Response { token: echo.token, observed };
            self.0 = Some(Owed { due: now + echo.delay, path, response });
        }
    }

    /// When the answer is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.0.as_ref().map(|owed| owed.due)
    }

    /// The answer that is due, and the path that it leaves by.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<(PathId, Response)> {
        self.0.take_if(|owed| owed.due <= now).map(|owed| (owed.path, owed.response))
    }
}
