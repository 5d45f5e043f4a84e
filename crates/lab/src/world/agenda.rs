//! What is due at a time, and doing it: everything that does not happen by a packet or a timer.

use std::net::{IpAddr, SocketAddr};

use rove_proto::crypto::Token;
use rove_proto::flow::tuple::Tuple;
use rove_proto::id::{PeerKey, SocketId};

use super::engine::{GATEWAY, World};
use super::host::Power;
use super::inner::Body;
use super::laws::Breach;
use super::op::Way;
use super::parcel::{HostId, Input, Parcel};
use crate::emu;

/// What is due at a time.
#[derive(Debug)]
pub(super) enum Task {
    /// An inner packet is sent.
    Send { client: usize, way: Way, body: Body },
    /// A datagram that was held goes its way.
    Release { host: HostId, link: emu::LinkId, parcel: Parcel },
    /// The gateway's desk has decided about an enrolment.
    Decide { peer: PeerKey, client: Option<usize>, token: Token },
    /// The gateway's name stands for where it is now.
    Rename,
    /// A client asks for the name, if nothing carries.
    AskName { client: usize, at_ns: u64 },
    /// And is answered.
    Resolved { client: usize },
    /// A client was told by the gateway where it is reached.
    Announced { client: usize, addresses: Vec<SocketAddr> },
    /// It is written down that bytes of a connection are owed.
    Recorded { host: usize, peer: PeerKey, tuple: Tuple },
    /// A card is plugged out.
    Unplug { client: usize, card: usize },
    /// The gateway gives up the addresses that it had before those.
    Retire { kept: Vec<IpAddr> },
    /// The gateway that began anew calls back who was reached by its predecessor.
    Recall { peer: PeerKey },
    /// A node is told that a socket of its is of no use any more.
    SocketFailed { host: HostId, socket: SocketId },
    /// A busy host's shell gets its turn.
    Turn { host: HostId },
    /// A host wakes up or starts.
    PowerOn { host: HostId, reboot: bool },
}

impl World {
    /// Puts a task on the agenda.
    pub(super) fn schedule(&mut self, after_ns: u64, task: Task) {
        self.scheduled += 1;
        self.agenda.insert((self.now_ns + after_ns, self.scheduled), task);
    }

    /// Carries out at once whatever was held back.
    pub(super) fn release_all(&mut self) -> Result<(), Breach> {
        for (_, task) in std::mem::take(&mut self.agenda) {
            self.perform(task)?;
        }
        (0..self.hosts.len()).try_for_each(|host| self.take_in(host))
    }

    pub(super) fn perform(&mut self, task: Task) -> Result<(), Breach> {
        match task {
            Task::Send { client, way, body } => {
                let host = if way == Way::Up { client + 1 } else { GATEWAY };
                if self.hosts[host].power == Power::On {
                    let inner = self.delivery.send(self.now_ns, client, way, body);
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
            Task::Decide { peer, client, token } => self.decide(peer, client, &token),
            Task::Rename => {
                self.rename();
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
            Task::Retire { kept } => self.retire(&kept),
            Task::Recall { peer } => self.recall(peer),
            Task::PowerOn { host, reboot } => self.power_on(host, reboot),
        }
    }
}
