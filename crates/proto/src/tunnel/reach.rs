//! A gateway's ways to a client: where the client is reached, how it is called back, and what it
//! was told of the gateway's own addresses.
//!
//! Decides when the shell is told of a new route, when a client is called, and when addresses are
//! announced. Knows neither why a gateway moves nor which of its addresses work. One announcement
//! is under way at a time: if the client cannot be reached, only the last one is worth sending.

use crate::context::{Announced, Context};
use crate::id::{SessionIndex, Transport};
use crate::outbox::Route;
use crate::paths::list::Paths;
use crate::session::control::ControlSender;
use crate::session::epochs::Epochs;
use crate::time::{Duration, Instant};
use crate::wire::control::Control;
use crate::wire::restart::RestartNotice;

/// How long a gateway waits for an answer before it calls again, while there is something to send;
/// twice as long each time, because whoever has that address now may be no client,
const CALL_EVERY: Duration = Duration::from_secs(1);
/// but so many times at most: to about a minute.
const CALL_DOUBLED: u32 = 6;

/// Where a client is reached, and what was done about that.
#[derive(Debug, Default)]
pub(crate) struct Reach {
    /// Route and index, as the shell was told.
    at: Option<(Route, SessionIndex)>,
    /// Whether they may have changed since.
    has_changed: bool,
    /// How often the client was called since its session was given up, and when last.
    calls: u32,
    called_at: Option<Instant>,
    /// The version of the gateway's addresses that the client was told in this epoch.
    announced: u32,
}

impl Reach {
    /// The client may be reached by another route or index now.
    pub(crate) const fn note_change(&mut self) {
        self.has_changed = true;
    }

    /// The client does not wait to be called any more.
    pub(crate) const fn forget(&mut self) {
        self.at = None;
    }

    /// There are new keys, so the client has answered.
    pub(crate) const fn begin_epoch(&mut self) {
        (self.calls, self.called_at) = (0, None);
    }

    /// How the client is reached now, if the path in use is proven and the shell was told
    /// something else. A new process reads it in the shell's journal.
    pub(crate) fn take_news(
        &mut self,
        epochs: &Epochs,
        paths: &Paths,
    ) -> Option<(Route, SessionIndex)> {
        if !std::mem::take(&mut self.has_changed) {
            return None;
        }
        let path = paths.active().filter(|path| path.is_proven())?;
        let epoch = epochs.current.as_ref()?;
        let lane = epoch.rx_serial(path.id).and_then(|serial| epoch.rx.get(&serial))?;
        let at = (path.route, lane.index);
        (self.at.replace(at) != Some(at)).then_some(at)
    }

    /// Calls the client with the notice that a gateway sends after a restart: the client answers
    /// with a handshake (docs/spec/wire.md#7-restart-notice). A stream cannot be called.
    pub(crate) fn call(&mut self, cx: &mut Context<'_>) {
        let Some((route, index)) = self.at else { return };
        let pause = CALL_EVERY * (1 << self.calls.saturating_sub(1).min(CALL_DOUBLED));
        let lately = self.called_at.is_some_and(|last| last + pause > cx.now);
        if lately || route.socket.transport() != Transport::Udp {
            return;
        }
        self.calls = self.calls.saturating_add(1);
        self.called_at = Some(cx.now);
        cx.send_clear(route, &RestartNotice { index, token: cx.restart_key.token(index) }.emit());
    }

    /// The client may speak with another process than before: it is told everything again.
    pub(crate) const fn announce_again(&mut self) {
        self.announced = 0;
    }

    /// Queues the gateway's addresses if the client was not told these. Returns whether a control
    /// frame was queued.
    pub(crate) fn announce(
        &mut self,
        now: Instant,
        addresses: &Announced,
        control: &mut ControlSender,
    ) -> bool {
        let is_due = self.announced != addresses.version() && !control.announces();
        let is_queued =
            is_due && control.push(now, &Control::Addresses(addresses.addresses().to_vec()));
        if is_queued {
            self.announced = addresses.version();
        }
        is_queued
    }
}
