//! What a client asks of both ends: how to choose among paths, and what flows have by repair.
//!
//! A client says it when it changes, and under new keys again; the gateway goes by it. If there is
//! no room for a control frame now, the client says it when there is.

use crate::multipath::Recovery;
use crate::multipath::scheduler::Scheduler;
use crate::wire::control::Control;

/// What both ends go by.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Settings {
    /// Which path gets the next packet.
    pub(crate) scheduler: Scheduler,
    /// What flows shall have by repair.
    pub(crate) recovery: Recovery,
    /// Client: the scheduler that the gateway was asked for in this epoch.
    scheduler_told: Option<Scheduler>,
    /// Client: the kind of repair that the gateway uses in this epoch. It uses the default until it
    /// is asked for another.
    recovery_told: Recovery,
}

impl Settings {
    /// Client: goes by these. What the gateway does not know is handed to `push`, which returns
    /// whether there is room for it.
    pub(crate) fn apply(
        &mut self,
        scheduler: Scheduler,
        recovery: Recovery,
        mut push: impl FnMut(&Control) -> bool,
    ) {
        (self.scheduler, self.recovery) = (scheduler, recovery);
        let is_news = self.scheduler_told != Some(scheduler);
        if is_news && push(&Control::Scheduler(scheduler.number())) {
            self.scheduler_told = Some(scheduler);
        }
        if self.recovery_told != recovery && push(&Control::Recovery(recovery.number())) {
            self.recovery_told = recovery;
        }
    }

    /// Gateway: the client asks for this scheduler; the default if this node does not know it.
    pub(crate) fn ask_scheduler(&mut self, number: u8) {
        self.scheduler = Scheduler::numbered(number).unwrap_or_default();
    }

    /// Gateway: the client asks for this kind of repair; the default if this node does not know it.
    pub(crate) fn ask_recovery(&mut self, number: u8) {
        self.recovery = Recovery::numbered(number).unwrap_or_default();
    }

    /// The session has new keys. `at_gateway` the default repair is used until the client asks for
    /// another under them.
    pub(crate) fn begin_epoch(&mut self, at_gateway: bool) {
        (self.scheduler_told, self.recovery_told) = (None, Recovery::default());
        if at_gateway {
            self.recovery = Recovery::default();
        }
    }
}
