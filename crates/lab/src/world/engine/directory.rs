//! How clients find the gateway: what they are told, and what its name stands for.

use std::net::SocketAddr;

use rove_proto::id::Transport;
use rove_proto::node::{Command, PeerState};

use super::World;
use crate::emu::MS;
use crate::world::agenda::Task;
use crate::world::host::Power;
use crate::world::host_id::HostId;
use crate::world::laws::Breach;

/// How long an answer takes, in nanoseconds: the nearest name server is not next door.
const LOOKUP_NS: u64 = 30 * MS;

impl World {
    /// The client's process begins and asks for the name.
    pub(in crate::world) fn begin_directory(&mut self, client: usize) {
        self.clients[client].directory.restart();
        self.ask_soon(client);
    }

    /// The node says how the session is.
    pub(in crate::world) fn note_state(&mut self, client: usize, state: PeerState) {
        let rests_or_carries = matches!(state, PeerState::Up | PeerState::Resting);
        self.clients[client].directory.set_up(rests_or_carries);
        if !rests_or_carries {
            self.ask_soon(client);
        }
    }

    /// The links changed: with another network the name may be found that was not.
    pub(in crate::world) fn ask_by_new_links(&mut self, client: usize) {
        if self.clients[client].directory.asks_again() {
            self.ask_soon(client);
        }
    }

    fn ask_soon(&mut self, client: usize) {
        if let Some(at_ns) = self.clients[client].directory.ask_soon(self.now_ns) {
            self.schedule(at_ns - self.now_ns, Task::AskName { client, at_ns });
        }
    }

    /// The name is asked for, unless the session carries by now.
    pub(in crate::world) fn ask_name(&mut self, client: usize, at_ns: u64) {
        let is_on = self.hosts[HostId::Client(client)].power == Power::On;
        if !self.clients[client].directory.asks(at_ns, is_on.then_some(self.now_ns)) {
            return;
        }
        if self.has_network(client) {
            self.schedule(LOOKUP_NS, Task::Resolved { client });
        }
        self.ask_soon(client);
    }

    /// The name server answers.
    pub(in crate::world) fn resolved(&mut self, client: usize) -> Result<(), Breach> {
        let name = &self.gateways.serving(client).name;
        self.clients[client].directory.find(name);
        self.set_remotes(client)
    }

    /// The gateway says where it is reached.
    pub(in crate::world) fn take_announced(
        &mut self,
        client: usize,
        addresses: &[SocketAddr],
    ) -> Result<(), Breach> {
        self.clients[client].directory.announce(addresses);
        self.set_remotes(client)
    }

    /// The session goes by a path to wherever it goes now.
    pub(in crate::world) fn note_where(&mut self, client: usize) {
        let status =
            self.hosts[HostId::Client(client)].node().status(self.gateways.serving(client).key);
        let path = status.and_then(|status| status.paths.into_iter().find(|path| path.in_use));
        if let Some(path) = path.filter(|path| path.route.socket.transport() == Transport::Udp) {
            self.clients[client].directory.note_answered(path.remote());
        }
    }

    /// Tells the node of all addresses, if they have changed, and of the streams, which may be
    /// others even so.
    fn set_remotes(&mut self, client: usize) -> Result<(), Breach> {
        if self.hosts[HostId::Client(client)].power != Power::On {
            return Ok(());
        }
        if let Some(remotes) = self.clients[client].directory.news() {
            self.trust(client, &remotes);
            let peer = self.gateways.serving(client).key;
            self.command(HostId::Client(client), Command::SetRemotes { peer, remotes })?;
        }
        self.tell_streams(client)
    }

    /// What the node of a process that begins is told.
    pub(in crate::world) fn first_remotes(&mut self, client: usize) -> Vec<SocketAddr> {
        let remotes = self.clients[client].directory.tell();
        self.trust(client, &remotes);
        remotes
    }

    fn has_network(&self, client: usize) -> bool {
        let cards = self.hosts[HostId::Client(client)].cards.iter().flatten();
        cards.into_iter().any(|card| self.place.access(client, card.access).carrier)
    }

    /// From now on a gateway's name stands for where it is.
    pub(in crate::world) fn rename(&mut self, gateway: HostId) {
        self.gateways.of_mut(gateway).name = self.gateway_addresses(gateway);
    }
}
