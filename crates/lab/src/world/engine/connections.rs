//! What the world does for the ends of TCP connections: their packets go into the tunnel or beside
//! it, come out of it, and their machines sleep.

use std::net::SocketAddr;

use super::World;
use crate::emu::{Datagram, IpPacket, NodeId};
use crate::tcp::Config;
use crate::world::connections::{Connection, Leaving, Number, Party, SERVER_PORT, Side};
use crate::world::host::Power;
use crate::world::host_id::{GATEWAY, HostId};
use crate::world::inner::LEN_MAX;
use crate::world::laws::Breach;
use crate::world::parcel::{Origin, Parcel};
use crate::world::place::{NEIGHBOUR, NEIGHBOURS_SERVER};

impl World {
    /// Client `client` opens a connection to this one of the server's addresses; `tune` says how
    /// its ends differ from what is usual, and what runs over it.
    pub(in crate::world) fn open_connection(
        &mut self,
        (client, server): (usize, u8),
        tune: impl FnOnce([Config; 2]) -> [Party; 2],
    ) -> Number {
        let parties = tune(self.connections.configs(client, server, LEN_MAX));
        self.connections.open(self.now_ns, client, parties)
    }

    /// The ends of connections that are due have their turn.
    pub(in crate::world) fn keep_connections(&mut self) -> Result<(), Breach> {
        for Leaving { client, side, is_open, packet } in self.connections.leaving(self.now_ns)? {
            if is_open {
                self.send_open(side, packet);
                continue;
            }
            let host = match side {
                Side::Client => HostId::Client(client),
                Side::Server => self.gateways.serving(client).host,
            };
            if self.hosts[host].power == Power::On {
                self.put_inner(host, packet)?;
            }
        }
        Ok(())
    }

    /// A packet of somebody who has no tunnel leaves.
    fn send_open(&mut self, side: Side, packet: Vec<u8>) {
        let Some(neighbour) = self.place.neighbour else { return };
        let ends = [NEIGHBOUR, NEIGHBOURS_SERVER].map(|ip| SocketAddr::from((ip, SERVER_PORT)));
        let ((host, link), [source, destination]) = match side {
            Side::Client => (neighbour, ends),
            Side::Server => {
                let link = self.gateways.of(GATEWAY).link;
                ((self.place.hosts[GATEWAY], link), [ends[1], ends[0]])
            }
        };
        let datagram = Datagram { source, destination, payload: packet };
        let (origin, to, segment, is_open) = (Origin::Nobody, destination, None, true);
        let parcel = Parcel { datagram, origin, to, segment, is_open };
        self.place.net.push(self.now_ns, host, link, parcel);
    }

    /// One arrives at its end.
    pub(in crate::world) fn takes_open(&mut self, place: NodeId, packet: Vec<u8>) {
        let is_client = self.place.neighbour.is_some_and(|(host, _)| host == place);
        let packet = IpPacket::new(packet);
        if let Some((number, side)) = self.connections.whose(is_client.then_some(0), &packet) {
            self.connections.arrives(self.now_ns, number, side, packet);
        }
    }

    /// A packet has come out of the tunnel: whether it belongs to a connection, whose end has it
    /// then.
    pub(in crate::world) fn takes_segment(&mut self, host: HostId, packet: &[u8]) -> bool {
        if !self.connections.were_any() {
            return false;
        }
        let packet = IpPacket::new(packet.to_vec());
        let Some((number, side)) = self.connections.whose(host.client(), &packet) else {
            return false;
        };
        // What a client says to the server comes out at its own gateway only.
        let client = self.connections.get(number).map(Connection::client);
        if client.is_some_and(|client| !self.gateways.share(host, HostId::Client(client))) {
            return false;
        }
        self.trace.add(&[self.now_ns, number.into(), packet.bytes().len() as u64]);
        self.connections.arrives(self.now_ns, number, side, packet);
        true
    }

    /// A client's machine falls asleep, with all that runs on it.
    pub(in crate::world) fn fall_asleep(&mut self, host: HostId) {
        self.hosts[host].power = Power::Asleep;
        if let Some(client) = host.client() {
            self.connections.sleeps(self.now_ns, client);
        }
    }

    /// It wakes up.
    pub(in crate::world) fn wake_up(&mut self, host: HostId) {
        self.hosts[host].power = Power::On;
        if let Some(client) = host.client() {
            self.connections.wakes(self.now_ns, client);
        }
    }
}
