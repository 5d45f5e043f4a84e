//! The turns of the data thread, in the order in which a packet meets them.

use std::time::Duration;

use anyhow::{Context, Result};
use mio::Events;
use rove_os::error::Error;
use rove_os::links::Link;
use rove_os::tun::{Read, Segment, Tun};
use rove_os::udp::{ReceiveBuffer, Received};
use rove_proto::id::{LinkId, SocketId, Transport};
use rove_proto::node::{self, Command, Event, Meta, PeerStatus};
use rove_proto::wire::inner::{Home, Pieces};

use super::{Data, EVENTS_MAX, News, Order, STREAMS, Snapshot, TUN, WAKE};

/// Readiness that one wait reports.
const READY_MAX: usize = 64;
/// Reads of the TUN, and receives of sockets, in one turn: then the others have theirs.
const READS_MAX: usize = 32;
/// Slots of one receive: with segmentation offload half a megabyte, which the outbox can hold.
const RECEIVE_SLOTS: usize = 8;
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
        let mut buffer = ReceiveBuffer::new(RECEIVE_SLOTS);
        loop {
            self.wait(&mut events)?;
            let next = self.take_orders();
            self.sockets.keep_streams(self.clock.now())?;
            self.receive_all(&mut buffer)?;
            self.read_tun()?;
            self.keep_time()?;
            self.report_failures()?;
            self.flush()?;
            self.pass_events(tell);
            if next == Next::Stop {
                return Ok(());
            }
        }
    }

    fn wait(&mut self, events: &mut Events) -> Result<()> {
        let now = self.clock.now();
        let busy = (self.tun_ready && !self.tun_lost)
            || self.orders_wait
            || self.sockets.is_any_ready(now);
        let timeout = if busy { Duration::ZERO } else { self.patience() };
        match self.poll.poll(events, Some(timeout)) {
            Err(error) if error.kind() != std::io::ErrorKind::Interrupted => {
                return Err(error).context("cannot wait for packets");
            }
            Ok(()) | Err(_) => {}
        }
        if events.is_empty() {
            self.tun.rest();
        }
        for event in events.iter() {
            match event.token() {
                WAKE => {}
                TUN => self.tun_ready = true,
                STREAMS => self.sockets.set_door_ready(),
                _ => self.sockets.set_ready(self.clock.now(), event),
            }
        }
        Ok(())
    }

    /// How long nothing is due.
    fn patience(&self) -> Duration {
        let due = self.node.poll_timeout().map(|(due, _)| due.saturating_since(self.now()));
        let now = self.clock.now();
        let streams = self.sockets.due(now).map(|due| due.saturating_sub(now));
        let patience = due.unwrap_or(WAIT_MAX).min(WAIT_MAX);
        let patience = streams.map_or(patience, |due| patience.min(Duration::from_nanos(due)));
        if self.backlog.is_empty() { patience } else { patience.min(RETRY) }
    }

    fn take_orders(&mut self) -> Next {
        self.orders_wait = false;
        for _ in 0..ORDERS_PER_TURN {
            match self.inbox.try_recv() {
                Ok(Order::Command(command)) => {
                    self.node.handle_command(self.now(), *command, &mut self.out);
                }
                Ok(Order::Links(links)) => {
                    self.sockets.set_links(&links);
                    let links = links.iter().map(|(link, by)| core_link(link, *by)).collect();
                    let command = Command::SetLinks(links);
                    self.node.handle_command(self.now(), command, &mut self.out);
                }
                Ok(Order::Ways(ways)) => self.sockets.set_ways(ways),
                Ok(Order::Listen { number, socket }) => {
                    if let Err(error) = self.sockets.add(number, socket) {
                        tracing::error!(%error, "cannot watch a socket that listens");
                    }
                }
                Ok(Order::Accept(listener)) => {
                    if let Err(error) = self.sockets.add_door(listener) {
                        tracing::error!(%error, "cannot watch the port for streams");
                    }
                }
                Ok(Order::AcceptAlso(socket)) => {
                    if let Err(error) = self.sockets.widen_door(socket) {
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
                    let _ = reply.try_send(self.node.flows(self.now(), from));
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

    /// Closes the old interface, which also removes it from the poller.
    fn replace_device(&mut self, tun: Tun) {
        match super::watch_device(&self.poll, &tun) {
            Ok(()) => {
                self.tun = tun;
                (self.tun_ready, self.tun_lost) = (true, false);
            }
            Err(error) => tracing::error!("the new interface is not used: {error:#}"),
        }
    }

    /// Somebody deleted the interface. The sessions continue, and packets for the interface are
    /// lost until the control thread has created a new one.
    fn lose_device(&mut self) {
        (self.tun_ready, self.tun_lost) = (false, true);
        tracing::debug!("the tunnel's interface is gone");
    }

    fn snapshot(&self, peers: Option<Vec<rove_proto::id::PeerKey>>) -> Snapshot {
        let is_named = peers.is_some();
        let peers: Vec<_> = peers.unwrap_or_else(|| self.node.peers().collect());
        let peers: Vec<PeerStatus> =
            peers.into_iter().filter_map(|peer| self.node.status(peer)).collect();
        let sockets = peers.iter().flat_map(|peer| &peer.paths).map(|path| path.route.socket);
        let streams = sockets.filter(|socket| socket.transport() == Transport::Stream);
        // The kernel is asked of each: of one client's, not of all that a gateway has.
        let carried = |socket| Some((socket, self.sockets.carried(socket, is_named)?));
        let streams = streams.filter_map(carried).collect();
        Snapshot { now: self.now(), peers, drops: self.drops(), streams }
    }

    fn drops(&self) -> Vec<(&'static str, u64)> {
        let unsent = self.sockets.unsent();
        let kernel = [
            ("send_full", unsent.full),
            ("send_too_long", unsent.too_long),
            ("send_unreachable", unsent.unreachable),
            ("tun_refused", self.tun_refused),
            ("events_lost", self.events_lost),
        ];
        let core = self.node.drops().iter().map(|(reason, count)| (reason.label(), count));
        core.chain(kernel.into_iter().filter(|&(_, count)| count > 0)).collect()
    }

    fn receive_all(&mut self, buffer: &mut ReceiveBuffer) -> Result<()> {
        for _ in 0..READS_MAX {
            let Some(id) = self.sockets.next_ready(self.received) else { return Ok(()) };
            self.received = Some(id);
            self.receive(id, buffer);
            self.flush()?;
        }
        Ok(())
    }

    fn receive(&mut self, id: SocketId, buffer: &mut ReceiveBuffer) {
        let now = self.now();
        let Self { node, out, sockets, .. } = self;
        sockets.receive(id, buffer, |from: Received, bytes: &mut [u8]| {
            let meta =
                Meta { socket: id, local: from.local, remote: from.remote, waited: from.waited };
            for datagram in bytes.chunks_mut(from.stride) {
                node.handle_datagram(now, meta, datagram, out);
            }
        });
    }

    fn read_tun(&mut self) -> Result<()> {
        if !self.tun_ready || self.tun_lost {
            return Ok(());
        }
        for _ in 0..READS_MAX {
            let now = self.now();
            let Self { node, out, tun, .. } = self;
            let read = tun.read(|Segment { header, payload, .. }, home| {
                let home = home.map(|home| Home { buffer: home.buffer, at: home.at });
                node.handle_tun(now, Pieces { head: header, tail: payload, home }, out);
            });
            match read {
                Ok(Read::Packets(_) | Read::Malformed) => {}
                Ok(Read::Empty) => {
                    self.tun_ready = false;
                    return Ok(());
                }
                Err(Error::NoInterface { .. }) => {
                    self.lose_device();
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
            if self.out.is_full() {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn keep_time(&mut self) -> Result<()> {
        let now = self.now();
        if self.node.poll_timeout().is_some_and(|(due, _)| due <= now) {
            self.flush()?;
            self.node.handle_timeout(now, &mut self.out);
        }
        Ok(())
    }

    /// Tells the core which sockets it can use no more.
    fn report_failures(&mut self) -> Result<()> {
        // Those that fail because of this have their turn later.
        for socket in self.sockets.take_failed() {
            self.flush()?;
            let command = Command::SocketFailed(socket);
            self.node.handle_command(self.now(), command, &mut self.out);
        }
        Ok(())
    }

    /// Opens what must be open, sends and writes everything, closes what is not needed any more.
    fn flush(&mut self) -> Result<()> {
        let mut closing: Vec<SocketId> = Vec::new();
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::OpenSocket { socket, link, local, stream } => {
                    self.sockets.open(self.clock.now(), socket, link, local, stream);
                }
                Event::CloseSocket { socket } => closing.push(socket),
                Event::HandshakeCounter { .. }
                | Event::EnrolmentRequested { .. }
                | Event::PeerRefused { .. }
                | Event::Refused { .. }
                | Event::Established { .. }
                | Event::Leased { .. }
                | Event::Routes { .. }
                | Event::Announced { .. }
                | Event::Reached { .. }
                | Event::Owing { .. }
                | Event::Settled { .. }
                | Event::State { .. }
                | Event::Moved { .. }
                | Event::KeyIsShared { .. }
                | Event::Ended { .. } => self.keep(event),
            }
        }
        if !self.out.is_empty() {
            self.out.seal();
            for (run, contents) in self.out.runs() {
                self.sockets.send(run.route, run.segment, contents);
            }
            self.write_tun();
            self.out.clear();
        }
        for socket in closing {
            self.sockets.close(socket);
        }
        Ok(())
    }

    fn write_tun(&mut self) {
        if self.tun_lost {
            self.tun_refused += self.out.inner().count() as u64;
            return;
        }
        match self.tun.write(self.out.inner()) {
            Ok(written) => self.tun_refused += written.refused as u64,
            Err(_) => self.lose_device(),
        }
    }

    /// Keeps an event until the control thread has room. When there is none here either, the first
    /// to go is a refusal: any stranger can cause those, and nothing waits for them.
    fn keep(&mut self, event: Event) {
        if self.backlog.len() >= EVENTS_MAX {
            self.events_lost += 1;
            let refusal = |event: &Event| matches!(event, Event::PeerRefused { .. });
            match self.backlog.iter().position(refusal) {
                _ if refusal(&event) => return,
                Some(place) => drop(self.backlog.remove(place)),
                None => drop(self.backlog.pop_front()),
            }
        }
        self.backlog.push_back(event);
    }

    /// Tells what happened, as far as there is room.
    fn pass_events(&mut self, tell: &mut impl FnMut(News) -> bool) {
        while let Some(event) = self.backlog.pop_front() {
            if !tell(News::Event(event.clone())) {
                self.backlog.push_front(event);
                return;
            }
        }
    }
}

/// A link as the core wants it.
fn core_link(link: &Link, stands_by: bool) -> node::Link {
    let addresses = link.addresses.iter().map(ipnet::IpNet::addr).collect();
    node::Link { id: LinkId(link.index), addresses, stands_by }
}
