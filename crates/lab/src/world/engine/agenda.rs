//! Carries out what is due: everything that happens neither by a packet nor by a timer.

use super::World;
use crate::world::agenda::Task;
use crate::world::host::Power;
use crate::world::host_id::HostId;
use crate::world::laws::Breach;
use crate::world::op::Way;
use crate::world::parcel::Input;

impl World {
    /// Puts a task on the agenda.
    pub(in crate::world) fn schedule(&mut self, after_ns: u64, task: Task) {
        self.agenda.schedule(self.now_ns + after_ns, task);
    }

    /// Carries out at once whatever was held back.
    pub(in crate::world) fn release_all(&mut self) -> Result<(), Breach> {
        for task in self.agenda.take_all() {
            self.perform(task)?;
        }
        self.hosts.ids().try_for_each(|host| self.take_in(host))
    }

    pub(in crate::world) fn perform(&mut self, task: Task) -> Result<(), Breach> {
        match task {
            Task::Send { client, way, body } => {
                let gateway = self.gateways.serving(client).host;
                let host = if way == Way::Up { HostId::Client(client) } else { gateway };
                if self.hosts[host].power == Power::On {
                    let inner = self.delivery.send(self.now_ns, gateway, client, way, body);
                    self.put(host, Input::Packet(inner));
                }
                Ok(())
            }
            // A busy host may have taken this turn for a timer already; its next turn is later.
            Task::Turn { host } if self.hosts[host].busy.is_some() => {
                let is_due = self.hosts[host].turn_ns.is_some_and(|at_ns| at_ns <= self.now_ns);
                if is_due { self.turn_busy(host) } else { Ok(()) }
            }
            Task::Turn { host } => self.take_in(host),
            Task::Release { host, link, parcel } => {
                self.place.net.push(self.now_ns, self.place.hosts[host], link, parcel);
                Ok(())
            }
            Task::Decide { gateway, peer, client, token } => {
                self.decide(gateway, peer, client, &token)
            }
            Task::Rename { gateway } => {
                self.rename(gateway);
                Ok(())
            }
            Task::AskName { client, at_ns } => {
                self.ask_name(client, at_ns);
                Ok(())
            }
            Task::Resolved { client } => self.resolved(client),
            Task::Announced { client, addresses } => self.take_announced(client, &addresses),
            Task::Recorded { host, peer, tuple } => self.write_down(host, peer, tuple),
            Task::Unplug { client, card } => self.plug(client, card, None),
            Task::SocketFailed { host, socket } => self.tell_failed(host, socket),
            Task::Retire { gateway, kept } => self.retire(gateway, &kept),
            Task::Recall { gateway, peer } => self.recall(gateway, peer),
            Task::PowerOn { host, reboot } => self.power_on(host, reboot),
        }
    }
}
