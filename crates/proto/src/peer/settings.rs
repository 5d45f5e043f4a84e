//! What a client asks of both ends: how to choose among paths, and what flows have by repair.
//!
//! A client says it when it changes, and under new keys again; the gateway goes by it. Where there
//! is no room for it now it is said when there is.

use super::epochs::Standing;
use super::{Context, Peer};
use crate::bond::Recovery;
use crate::bond::scheduler::Scheduler;
use crate::wire::control::Control;

impl Peer {
    /// Client: both ends choose among paths in another way from now on.
    pub(crate) fn scheduler_changed(&mut self, cx: &mut Context<'_>) {
        self.tell_scheduler(cx);
        self.send_control(cx);
        self.serve_bond(cx);
    }

    /// Client: chooses as it was told, and tells the gateway if that does not know. Where there is
    /// no room it is told when there is.
    pub(super) fn tell_scheduler(&mut self, cx: &Context<'_>) {
        if self.at_gateway() {
            return;
        }
        let wanted = cx.config.scheduler;
        self.bond.scheduler = wanted;
        if self.epochs.current.is_some()
            && self.scheduler_told != Some(wanted)
            && self.control.push(cx.now, &Control::Scheduler(wanted.number()))
        {
            self.scheduler_told = Some(wanted);
        }
    }

    /// Gateway: the client says how both choose among paths.
    pub(super) fn take_scheduler(&mut self, standing: Standing, number: u8) {
        // Under old keys it is late: it was said again under the new ones.
        if self.at_gateway() && standing != Standing::Previous {
            self.bond.scheduler = Scheduler::numbered(number).unwrap_or_default();
        }
    }

    /// Client: flows shall have something else by repair from now on, both ways.
    pub(crate) fn recovery_changed(&mut self, cx: &mut Context<'_>) {
        self.tell_recovery(cx);
        self.send_control(cx);
    }

    /// Client: goes by it, and tells the gateway if that does not know.
    pub(super) fn tell_recovery(&mut self, cx: &Context<'_>) {
        if self.at_gateway() {
            return;
        }
        let wanted = cx.config.recovery;
        if std::mem::replace(&mut self.bond.recovery, wanted) != wanted {
            self.bond.looked = None;
        }
        if self.epochs.current.is_some()
            && self.recovery_told != wanted
            && self.control.push(cx.now, &Control::Recovery(wanted.number()))
        {
            self.recovery_told = wanted;
        }
    }

    /// Gateway: the client says what flows shall have by repair.
    pub(super) fn take_recovery(&mut self, standing: Standing, number: u8) {
        if self.at_gateway() && standing != Standing::Previous {
            self.bond.recovery = Recovery::numbered(number).unwrap_or_default();
            self.bond.looked = None;
        }
    }
}
