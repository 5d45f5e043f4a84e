//! What a client asks of both ends: how to choose among paths, and what flows have by repair.
//!
//! A client says it when it changes, and under new keys again; the gateway goes by it. Where there
//! is no room for it now it is said when there is.

use super::Bonding;
use crate::multipath::Recovery;
use crate::multipath::scheduler::Scheduler;
use crate::session::epochs::Standing;
use crate::tunnel::{Context, Tunnel};
use crate::wire::control::Control;

impl Bonding {
    /// Client: chooses as it was told, and tells the gateway if that does not know. Where there is
    /// no room it is told when there is.
    pub(crate) fn tell_scheduler(&mut self, cx: &Context<'_>, tunnel: &mut Tunnel) {
        if tunnel.paths.at_gateway() {
            return;
        }
        let wanted = cx.config.scheduler;
        self.multipath.scheduler = wanted;
        if tunnel.epochs.current.is_some()
            && self.scheduler_told != Some(wanted)
            && tunnel.control.push(cx.now, &Control::Scheduler(wanted.number()))
        {
            self.scheduler_told = Some(wanted);
        }
    }

    /// Gateway: the client says how both choose among paths.
    pub(crate) fn take_scheduler(&mut self, tunnel: &Tunnel, standing: Standing, number: u8) {
        // Under old keys it is late: it was said again under the new ones.
        if tunnel.paths.at_gateway() && standing != Standing::Previous {
            self.multipath.scheduler = Scheduler::numbered(number).unwrap_or_default();
        }
    }

    /// Client: goes by it, and tells the gateway if that does not know.
    pub(crate) fn tell_recovery(&mut self, cx: &Context<'_>, tunnel: &mut Tunnel) {
        if tunnel.paths.at_gateway() {
            return;
        }
        let wanted = cx.config.recovery;
        if std::mem::replace(&mut self.multipath.recovery, wanted) != wanted {
            self.multipath.looked = None;
        }
        if tunnel.epochs.current.is_some()
            && self.recovery_told != wanted
            && tunnel.control.push(cx.now, &Control::Recovery(wanted.number()))
        {
            self.recovery_told = wanted;
        }
    }

    /// Gateway: the client says what flows shall have by repair.
    pub(crate) fn take_recovery(&mut self, tunnel: &Tunnel, standing: Standing, number: u8) {
        if tunnel.paths.at_gateway() && standing != Standing::Previous {
            self.multipath.recovery = Recovery::numbered(number).unwrap_or_default();
            self.multipath.looked = None;
        }
    }
}
