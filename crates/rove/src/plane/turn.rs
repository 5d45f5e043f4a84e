//! The data thread's loop. One turn: wait, take what is there in bounded portions, tell the core
//! the time, send what came of it.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};
use std::time::Duration;

use anyhow::{Context, Result};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token};
use rove_os::clock::Clock;
use rove_os::tun::{Read, Tun};
use rove_os::udp::ReceiveBuffer;
use rove_proto::node::{Event, Meta, Node};
use rove_proto::outbox::Outbox;
use rove_proto::time::Instant;
use rove_proto::wire::inner::InnerPacket;

use super::sockets::Sockets;
use super::{Counters, Order};

/// The waker's place in the event queue; sockets have their own numbers.
pub(super) const WAKER: Token = Token(usize::MAX);
const TUN: Token = Token(usize::MAX - 1);

/// Super-packets taken from the TUN before the sockets have their turn.
const TUN_READS: usize = 8;
/// Receive calls on one socket before the others have their turn.
const RECEIVES: usize = 4;
/// Pieces of one receive call, 64 KB each: what an outbox takes without being emptied between.
const RECEIVE_SLOTS: usize = 8;
/// Orders taken in one turn: all that can wait, because each wake-up is seen once.
const ORDERS: usize = super::ORDERS_MAX;

/// The thread's state.
pub(super) struct Plane {
    poll: Poll,
    clock: Clock,
    node: Node,
    tun: Tun,
    tun_readable: bool,
    sockets: Sockets,
    buffer: ReceiveBuffer,
    out: Outbox,
    inbox: Receiver<Order>,
    events: SyncSender<Event>,
    counters: Counters,
}

impl Plane {
    pub(super) fn new(
        poll: Poll,
        node: Node,
        tun: Tun,
        sockets: Sockets,
        inbox: Receiver<Order>,
        events: SyncSender<Event>,
    ) -> Result<Self> {
        poll.registry()
            .register(&mut SourceFd(&tun.as_raw_fd()), TUN, Interest::READABLE)
            .context("cannot wait for the tunnel interface")?;
        Ok(Self {
            poll,
            clock: Clock::new(),
            node,
            tun,
            tun_readable: true,
            sockets,
            buffer: ReceiveBuffer::new(RECEIVE_SLOTS),
            out: Outbox::new(),
            inbox,
            events,
            counters: Counters::default(),
        })
    }

    /// Turns until it is told to stop.
    pub(super) fn run(&mut self) -> Result<()> {
        let mut events = Events::with_capacity(64);
        loop {
            self.wait(&mut events)?;
            self.take_inner()?;
            self.take_datagrams()?;
            let go_on = self.take_orders();
            let now = self.now();
            if self.node.poll_timeout().is_some_and(|(due, _)| due <= now) {
                self.node.handle_timeout(now, &mut self.out);
            }
            self.flush()?;
            if !go_on {
                return Ok(());
            }
        }
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.clock.now())
    }

    /// Waits until there is something to do.
    fn wait(&mut self, events: &mut Events) -> Result<()> {
        let timeout = if self.tun_readable || self.sockets.any_readable() {
            Some(Duration::ZERO)
        } else {
            let due = self.node.poll_timeout().map(|(due, _)| due);
            due.map(|due| due.saturating_since(self.now()))
        };
        match self.poll.poll(events, timeout) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                return Err(error).context("cannot wait for packets");
            }
            Ok(()) | Err(_) => {}
        }
        for event in events.iter() {
            match event.token() {
                WAKER => {}
                TUN => self.tun_readable = true,
                socket => self.sockets.mark_readable(socket),
            }
        }
        Ok(())
    }

    /// Inner packets from the TUN, out.
    fn take_inner(&mut self) -> Result<()> {
        for _ in 0..TUN_READS {
            if !self.tun_readable {
                break;
            }
            let now = Instant::from_nanos(self.clock.now());
            let (node, out) = (&mut self.node, &mut self.out);
            let read = self.tun.read(|segment| {
                let packet = InnerPacket { head: segment.header, tail: segment.payload };
                node.handle_tun(now, packet, out);
            })?;
            self.tun_readable = read != Read::Empty;
            self.flush()?;
        }
        Ok(())
    }

    /// Datagrams from the sockets, in.
    fn take_datagrams(&mut self) -> Result<()> {
        for _ in 0..RECEIVES {
            if !self.sockets.any_readable() {
                break;
            }
            let now = Instant::from_nanos(self.clock.now());
            for (id, socket) in self.sockets.iter_mut().filter(|(_, socket)| socket.readable) {
                let (node, out) = (&mut self.node, &mut self.out);
                let received = socket.udp.receive(&mut self.buffer, |from, bytes| {
                    let meta = Meta { socket: id, local: from.local, remote: from.remote };
                    for datagram in bytes.chunks_mut(from.stride) {
                        node.handle_datagram(now, meta, datagram, out);
                    }
                });
                match received {
                    Ok(pieces) => socket.readable = pieces > 0,
                    Err(error) => {
                        tracing::warn!(socket = id.0, "cannot receive: {error}");
                        socket.readable = false;
                    }
                }
                if self.out.is_full() {
                    break;
                }
            }
            self.flush()?;
        }
        Ok(())
    }

    /// Orders of the control plane. Returns whether to go on.
    fn take_orders(&mut self) -> bool {
        for _ in 0..ORDERS {
            let now = self.now();
            match self.inbox.try_recv() {
                Ok(Order::Command(command)) => {
                    self.node.handle_command(now, command, &mut self.out);
                }
                Ok(Order::LinkNames(names)) => self.sockets.set_names(names),
                Ok(Order::Ask(question)) => question(&self.node, &self.counters),
                Ok(Order::Stop) | Err(TryRecvError::Disconnected) => return false,
                Err(TryRecvError::Empty) => return true,
            }
        }
        true
    }

    /// Sends and writes what the core wants. Sockets come first: the runs use them.
    fn flush(&mut self) -> Result<()> {
        let mut closing = Vec::new();
        while let Some(event) = self.node.poll_event() {
            match event {
                Event::OpenSocket { socket, link, local } => self.sockets.open(socket, link, local),
                Event::CloseSocket { socket } => closing.push(socket),
                other => {
                    if self.events.try_send(other).is_err() {
                        self.counters.events_lost += 1;
                    }
                }
            }
        }
        if !self.out.is_empty() {
            self.out.seal();
            for (run, bytes) in self.out.runs() {
                self.sockets.send(run, bytes, &mut self.counters);
            }
            let written = self.tun.write(self.out.inner())?;
            self.counters.tun_refused += written.refused as u64;
            self.out.clear();
        }
        // A goodbye may have left by a socket that closes.
        for socket in closing {
            self.sockets.close(socket);
        }
        Ok(())
    }
}
