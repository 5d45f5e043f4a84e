//! What proves to a client that its gateway lost the session (docs/spec/wire.md#7-restart-notice).

use super::epoch::Epoch;
use super::epochs::Epochs;
use crate::crypto;
use crate::outbox::Route;
use crate::path::Path;
use crate::time::Duration;
use crate::wire::restart::RestartNotice;

/// What would prove that a gateway lost a session.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proof {
    /// Where it would come.
    pub(crate) route: Route,
    notice: RestartNotice,
    /// The round trip there.
    pub(crate) rtt: Option<Duration>,
}

impl Proof {
    /// The proof for the lane of `path` under the keys of `epoch`.
    pub(crate) fn of(epoch: &Epoch, path: &Path) -> Option<Self> {
        let notice = epoch.restart_proof(path.id)?;
        Some(Self { route: path.route, notice, rtt: path.rtt.measured() })
    }

    /// What would prove that the gateway lost the session, where the path in use leads.
    pub(crate) fn find(epochs: &Epochs, active: Option<&Path>) -> Option<Self> {
        Self::of(epochs.current.as_ref()?, active?)
    }

    /// Whether this notice is the proof.
    pub(crate) fn is(&self, notice: &RestartNotice) -> bool {
        self.notice.index == notice.index && crypto::same(&self.notice.token.0, &notice.token.0)
    }
}
