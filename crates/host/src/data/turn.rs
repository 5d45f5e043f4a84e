//! The turns of the data thread around those of the engine: waiting, and orders of the control
//! thread.

use std::time::Duration;

use anyhow::{Context, Result};
use mio::Events;
use rove_engine::Device as _;
use rove_os::links::Link;
use rove_os::tun::Tun;
use rove_proto::id::{LinkId, Transport};
use rove_proto::node::{self, Command, PeerStatus};
use rove_proto::wire::inner::Pieces;

use super::token::{COPIED, STREAMS, TUN, WAKE};
use super::{Data, News, Order, Snapshot};

/// Readiness that one wait reports.
const READY_MAX: usize = 64;
/// Orders taken in one turn.
const ORDERS_PER_TURN: usize = 64;
/// The longest wait: nothing depends on it.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// How soon the control thread is asked again whether it has room for events.
const RETRY: Duration = Duration::from_millis(20);

/// Whether the thread goes on.
#[derive(PartialEq, Eq)]
enum Next {
    Turn,
    Stop,
}

impl Data {
    /// Turns until told to stop. `tell` returns false while its receiver has no room.
    pub(super) fn run(&mut self, tell: &mut impl FnMut(News) -> bool) -> Result<()> {
        let mut events = Events::with_capacity(READY_MAX);
        loop {
            self.wait(&mut events)?;
            if self.copied.was_suspended() {
                self.forget_keys("this machine was suspended");
            }
            let next = self.take_orders();
            let now = self.now().as_nanos();
            self.engine.sockets.keep_streams(now)?;
            self.engine.turn();
            if let Some(error) = self.engine.device.take_failure() {
                return Err(error.into());
            }
            self.engine.events.pass(tell);
            if next == Next::Stop {
                return Ok(());
            }
        }
    }

    fn wait(&mut self, events: &mut Events) -> Result<()> {
        let now = self.now().as_nanos();
        let busy = self.engine.device.is_readable()
            || self.orders_wait
            || self.engine.sockets.is_any_ready(now);
        let timeout = if busy { Duration::ZERO } else { self.patience() };
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                return Err(error).context("cannot wait for packets");
            }
            Ok(()) | Err(_) => {}
        }
        if events.is_empty() {
            self.engine.device.rest();
        }
        for event in events.iter() {
            match event.token() {
                WAKE => {}
                TUN => self.engine.device.set_readable(),
                STREAMS => self.engine.sockets.set_door_ready(),
                COPIED if self.copied.has_new_generation() => {
                    self.forget_keys("this virtual machine was copied or set back");
                }
                COPIED => {}
                _ => self.engine.sockets.set_ready(self.now().as_nanos(), event),
            }
        }
        Ok(())
    }

    /// An image of this memory may be resumed twice, and no two machines may seal under one key.
    fn forget_keys(&mut self, why: &str) {
        tracing::info!("{why}: sessions get new keys");
        self.engine.command(Command::ForgetKeys);
    }

    /// How long nothing is due.
    fn patience(&self) -> Duration {
        let now = self.now();
        let due = self.engine.due().map(|(due, _)| due.saturating_since(now));
        let now = now.as_nanos();
        let streams = self.engine.sockets.due(now).map(|due| due.saturating_sub(now));
        let patience = due.unwrap_or(WAIT_MAX).min(WAIT_MAX);
        let patience = streams.map_or(patience, |due| patience.min(Duration::from_nanos(due)));
        if self.engine.events.is_empty() { patience } else { patience.min(RETRY) }
    }

    fn take_orders(&mut self) -> Next {
        self.orders_wait = false;
        for _ in 0..ORDERS_PER_TURN {
            match self.inbox.try_recv() {
                Ok(Order::Command(command)) => self.engine.command(*command),
                Ok(Order::Links(links)) => {
                    self.engine.sockets.set_links(&links);
                    let links = links.iter().map(|(link, by)| core_link(link, *by)).collect();
                    self.engine.command(Command::SetLinks(links));
                }
                Ok(Order::Ways(ways)) => self.engine.sockets.set_ways(ways),
                Ok(Order::Listen { number, socket }) => {
                    if let Err(error) = self.engine.sockets.add(number, socket) {
                        tracing::error!(%error, "cannot watch a socket that listens");
                    }
                }
                Ok(Order::Accept(listener)) => {
                    if let Err(error) = self.engine.sockets.add_door(listener) {
                        tracing::error!(%error, "cannot watch the port for streams");
                    }
                }
                Ok(Order::AcceptAlso(socket)) => {
                    if let Err(error) = self.engine.sockets.widen_door(socket) {
                        tracing::error!(%error, "cannot watch another port for streams");
                    }
                }
                Ok(Order::Device(tun)) => self.replace_device(tun),
                Ok(Order::Status { peers, reply }) => {
                    // An asker that gave up waiting is no loss.
                    let _ = reply.try_send(self.snapshot(peers));
                }
                Ok(Order::Flows { from, reply }) => {
                    // Likewise.
                    let _ = reply.try_send(self.engine.node().flows(self.now(), from));
                }
                Ok(Order::Inject { packets, reply }) => {
                    self.engine.device.write(packets.iter().map(|packet| Pieces::whole(packet)));
                    // Likewise.
                    let _ = reply.try_send(());
                }
                Ok(Order::Stop) | Err(std::sync::mpsc::TryRecvError::Disconnected) => {
                    return Next::Stop;
                }
                Err(std::sync::mpsc::TryRecvError::Empty) => return Next::Turn,
            }
        }
        self.orders_wait = true;
        Next::Turn
    }

    fn replace_device(&mut self, tun: Tun) {
        match super::watch_device(&self.poll, &tun) {
            Ok(()) => self.engine.device.replace(tun),
            Err(error) => tracing::error!("the new interface is not used: {error:#}"),
        }
    }

    fn snapshot(&self, peers: Option<Vec<rove_proto::id::PeerKey>>) -> Snapshot {
        let (is_named, node) = (peers.is_some(), self.engine.node());
        let peers: Vec<_> = peers.unwrap_or_else(|| node.peers().collect());
        let peers: Vec<PeerStatus> =
            peers.into_iter().filter_map(|peer| node.status(peer)).collect();
        let sockets = peers.iter().flat_map(|peer| &peer.paths).map(|path| path.route.socket);
        let streams = sockets.filter(|socket| socket.transport() == Transport::Stream);
        // The kernel is asked of each: of one client's, not of all that a gateway has.
        let carried = |socket| Some((socket, self.engine.sockets.carried(socket, is_named)?));
        let streams = streams.filter_map(carried).collect();
        let merging_off = self.engine.device.merging_off();
        let forbidden = self.engine.sockets.forbidden();
        Snapshot { now: self.now(), peers, drops: self.drops(), streams, merging_off, forbidden }
    }

    fn drops(&self) -> Vec<(&'static str, u64)> {
        let unsent = self.engine.sockets.unsent();
        let kernel = [
            ("send_full", unsent.full),
            ("send_too_long", unsent.too_long),
            ("send_unreachable", unsent.unreachable),
            ("tun_refused", self.engine.device.refused()),
            ("events_lost", self.engine.events.lost()),
        ];
        let core = self.engine.node().drops().iter().map(|(reason, count)| (reason.label(), count));
        core.chain(kernel.into_iter().filter(|&(_, count)| count > 0)).collect()
    }
}

/// A link as the core wants it.
fn core_link(link: &Link, stands_by: bool) -> node::Link {
    let addresses = link.addresses.iter().map(ipnet::IpNet::addr).collect();
    node::Link { id: LinkId(link.index), addresses, stands_by }
}
