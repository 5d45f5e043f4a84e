//! Two hosts with one key, for example after a disk was cloned: both users and the operator get a
//! report. The simulated world checks that honest clients never cause one.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::pair::{DELAY, Datagram, GATEWAY, Pair, config, links, packet, secrets};
use rove_proto::crypto::SeededRng;
use rove_proto::error::CloseCode;
use rove_proto::id::{PeerKey, SocketId};
use rove_proto::node::{ALARM_TIME, Command, Event, Meta, Node, PeerConfig, SharedKey, SideConfig};
use rove_proto::outbox::Outbox;
use rove_proto::role::Access;
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::inner::Pieces;

const TICK: Duration = Duration::from_millis(5);
/// How soon all get the report, if both hosts have traffic.
const TOLD_WITHIN: Duration = Duration::from_secs(90);

/// A host that has the key.
struct Host {
    node: Node,
    at: [u8; 4],
    alarms: usize,
}

/// A gateway and hosts that all have the same key.
struct Clones {
    now: Instant,
    gateway: Node,
    gateway_key: PeerKey,
    client_key: PeerKey,
    hosts: Vec<Host>,
    wire: VecDeque<Datagram>,
    alarms: usize,
}

impl Clones {
    /// The gateway of a [`Pair`], which knows the client's key, and `count` hosts.
    fn new(count: u8) -> Self {
        let mut pair = Pair::new(None);
        pair.admit_client();
        let mut clones = Self {
            now: pair.now,
            gateway: pair.gateway,
            gateway_key: pair.gateway_key,
            client_key: pair.client_key,
            hosts: Vec::new(),
            wire: VecDeque::new(),
            alarms: 0,
        };
        for number in 1..=count {
            let host = clones.begin(number.into(), [203, 0, 113, number]);
            clones.hosts.push(host);
        }
        clones
    }

    /// A run of the program on a host, with the store that all of them copied.
    fn begin(&self, seed: u64, at: [u8; 4]) -> Host {
        let rng = Box::new(SeededRng::new(seed));
        let mut node = Node::new(self.now, config(&secrets().0), rng, 100);
        let remotes = vec![GATEWAY.parse().unwrap()];
        let side = SideConfig::Gateway { remotes, counter: 1, token: None, advertise: vec![] };
        let access = Access::Unrestricted;
        let peer = PeerConfig { key: self.gateway_key, psk: None, access, side };
        let mut out = Outbox::new();
        for command in
            [Command::AddPeer(Box::new(peer)), links(&[at]), Command::Connect(self.gateway_key)]
        {
            node.handle_command(self.now, command, &mut out);
        }
        Host { node, at, alarms: 0 }
    }

    /// Lets time pass while these hosts send something every second.
    fn talk(&mut self, time: Duration, who: &[usize]) {
        let end = self.now + time;
        while self.now < end {
            if self.now.as_nanos() % 1_000_000_000 < TICK.as_nanos() as u64 {
                for &host in who {
                    let packet = packet(100, false);
                    self.with_host(host, |node, now, out| {
                        node.handle_tun(now, Pieces::whole(&packet), out);
                    });
                }
            }
            self.tick();
        }
    }

    fn tick(&mut self) {
        self.now = self.now + TICK;
        while self.wire.front().is_some_and(|datagram| datagram.at <= self.now) {
            let Some(Datagram { from, to, mut bytes, .. }) = self.wire.pop_front() else { break };
            let port = u32::from(if to.port() == 4433 { 0 } else { to.port() - 40_000 });
            let (socket, local) = (SocketId(port), Some(to.ip()));
            let meta = Meta { socket, local, remote: from, waited: Duration::ZERO };
            match self.hosts.iter().position(|host| to.ip() == std::net::IpAddr::from(host.at)) {
                Some(host) => self.with_host(host, |node, now, out| {
                    node.handle_datagram(now, meta, &mut bytes, out);
                }),
                None => self.with_gateway(|node, now, out| {
                    node.handle_datagram(now, meta, &mut bytes, out);
                }),
            }
        }
        for host in 0..self.hosts.len() {
            self.with_host(host, Node::handle_timeout);
        }
        self.with_gateway(Node::handle_timeout);
    }

    fn with_host(&mut self, host: usize, verb: impl FnOnce(&mut Node, Instant, &mut Outbox)) {
        let Host { node, at, alarms } = &mut self.hosts[host];
        let mut out = Outbox::new();
        verb(node, self.now, &mut out);
        while let Some(event) = node.poll_event() {
            *alarms += usize::from(matches!(event, Event::KeyIsShared { .. }));
        }
        let at = *at;
        self.send(out, |socket| SocketAddr::from((at, 40_000 + u16::try_from(socket.0).unwrap())));
    }

    fn with_gateway(&mut self, verb: impl FnOnce(&mut Node, Instant, &mut Outbox)) {
        let mut out = Outbox::new();
        verb(&mut self.gateway, self.now, &mut out);
        while let Some(event) = self.gateway.poll_event() {
            self.alarms += usize::from(matches!(event, Event::KeyIsShared { .. }));
        }
        self.send(out, |_| GATEWAY.parse().unwrap());
    }

    fn send(&mut self, mut out: Outbox, from: impl Fn(SocketId) -> SocketAddr) {
        out.seal();
        for (run, bytes) in out.runs() {
            for datagram in bytes.chunks(run.segment) {
                let (at, to) = (self.now + DELAY, run.route.remote);
                let (from, bytes) = (from(run.route.socket), datagram.to_vec());
                self.wire.push_back(Datagram { at, from, to, bytes });
            }
        }
    }

    /// Whether the gateway, and each host, reports the shared key.
    fn told(&self) -> Vec<bool> {
        let stands = |shared: Option<SharedKey>| shared.is_some_and(|it| it.stands(self.now));
        let hosts = self.hosts.iter().map(|host| (&host.node, self.gateway_key));
        let all = std::iter::once((&self.gateway, self.client_key)).chain(hosts);
        all.map(|(node, peer)| stands(node.status(peer).unwrap().shared_key)).collect()
    }
}

#[test]
fn two_hosts_with_one_key_and_the_operator_are_told_until_one_of_them_is_gone() {
    let mut clones = Clones::new(2);
    let begun = clones.now;
    while clones.told() != [true; 3] {
        clones.talk(Duration::from_secs(1), &[0, 1]);
        let took = clones.now.saturating_since(begun);
        assert!(took < TOLD_WITHIN, "after {took:?}: {:?}", clones.told());
    }
    println!("told after {:?}", clones.now.saturating_since(begun));
    clones.talk(Duration::from_secs(120), &[0, 1]);
    let alarms: Vec<usize> = clones.hosts.iter().map(|host| host.alarms).collect();
    assert_eq!((clones.alarms, alarms), (1, vec![1, 1]), "it is said once");

    // One of the hosts got a key of its own, and the alarm ends.
    let gateway = clones.gateway_key;
    clones.with_host(1, |node, now, out| {
        let code = CloseCode::Requested;
        node.handle_command(now, Command::Close { peer: gateway, code }, out);
    });
    clones.talk(ALARM_TIME * 2, &[0]);
    assert_eq!(clones.told(), [false; 3]);
}

#[test]
fn three_hosts_are_told_as_well() {
    let mut clones = Clones::new(3);
    clones.talk(TOLD_WITHIN * 2, &[0, 1, 2]);
    assert_eq!(clones.told(), [true; 4]);
}

#[test]
fn one_host_that_begins_anew_and_moves_every_few_seconds_gives_no_alarm() {
    let mut clones = Clones::new(1);
    for round in 0..40 {
        clones.talk(Duration::from_secs(1 + round % 7), &[0]);
        let at = [203, 0, 113, 10 + (round % 3) as u8];
        if round % 2 == 0 {
            clones.hosts[0] = clones.begin(100 + round, at);
        } else {
            clones.hosts[0].at = at;
            clones.with_host(0, |node, now, out| node.handle_command(now, links(&[at]), out));
        }
    }
    assert_eq!((clones.alarms, clones.told()), (0, vec![false; 2]));
}
