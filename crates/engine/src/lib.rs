//! The loop around a [`Node`]: it moves packets between a tunnel device, sockets and the node.
//!
//! The daemon, the simulated world and the fuzz targets drive this one loop. Each brings a
//! [`Clock`], a [`Device`], [`Sockets`] and [`Events`]: the daemon those of the kernel, the others
//! those of [`memory`].
//!
//! # One turn
//!
//! [`Engine::command`] gives the node what the control thread ordered before the turn.
//! [`Engine::turn`] then runs these stages, in this order:
//!
//! 1. [`Engine::receive`] gives the node the datagrams of all readable sockets. After each batch,
//!    it lets the node settle the batch and hands the result over.
//! 2. [`Engine::read_tun`] gives the node the packets that the device has for it.
//! 3. [`Engine::timeout`] calls the node if one of its timers is due.
//! 4. [`Engine::report_failures`] tells the node which sockets failed.
//! 5. [`Engine::hand_over`] does everything that the node wants done. It opens sockets and reports
//!    events (`poll_events`), seals and sends datagrams (`send`), writes inner packets
//!    (`write_tun`) and closes sockets (`close`). Sockets are therefore open before the first
//!    datagram that uses them and until the last one.
//!
//! A stage hands over early where the next input may not fit into the [`Outbox`], so nothing is
//! lost there. The simulated world calls single stages, because it decides the order in which
//! hosts act.
//!
//! # Limits
//!
//! One engine drives one node on one thread and seals on that thread. It never waits: its driver
//! waits for readiness or for [`Engine::due`].
//!
//! The pair of nodes in the tests of `rove-proto` keeps its own loop. The unit tests there include
//! it, and this crate would bring a second copy of `rove-proto` with other types.

#![forbid(unsafe_code)]

pub mod memory;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::net::IpAddr;

use rove_proto::id::{LinkId, SocketId};
use rove_proto::node::{Command, Event, Meta, Node, Reason, StreamTo};
use rove_proto::outbox::{INNER_BYTES_MAX, Outbox, Route, Sending};
use rove_proto::time::Instant;
use rove_proto::wire::inner::Pieces;

/// Receives in one turn. With more, the device and the timers wait longer; with fewer, the driver
/// asks the kernel for readiness more often.
pub const RECEIVES_MAX: usize = 32;
/// Reads of the device in one turn, for the same reason.
pub const READS_MAX: usize = 32;

/// Most bytes of datagrams in one receive. Their inner packets must fit into an empty [`Outbox`].
pub const BATCH_BYTES_MAX: usize = 1 << 19;

const _: () = assert!(BATCH_BYTES_MAX <= INNER_BYTES_MAX);

/// A clock that never goes back.
pub trait Clock {
    /// The time.
    fn now(&self) -> Instant;
}

/// A tunnel device.
pub trait Device {
    /// Reads once and calls `each` for every packet, in order.
    fn read(&mut self, each: impl FnMut(Pieces<'_>)) -> Queue;

    /// Writes packets, in order, each in one piece. Makes the checksums that were left out. Packets
    /// that the device refuses are lost, as on any interface.
    fn write<'a>(&mut self, packets: impl Iterator<Item = Pieces<'a>>);
}

/// Sockets, by the numbers that the node gives them, and sockets that listen.
pub trait Sockets {
    /// Opens a socket on `link` with the address `local`: a stream, or else UDP.
    /// [`Sockets::take_failed`] reports a failure.
    fn open(
        &mut self,
        now: Instant,
        socket: SocketId,
        link: LinkId,
        local: IpAddr,
        stream: Option<StreamTo>,
    );

    /// Receives once from a socket that may be readable, at most [`BATCH_BYTES_MAX`] bytes. Calls
    /// `each` for datagrams that came together. They lie end to end and have the given length; the
    /// last may be shorter. [`Queue::Empty`] means that no socket is readable.
    fn receive(&mut self, each: impl FnMut(Meta, usize, &mut [u8])) -> Queue;

    /// Called before the datagrams of an outbox are sealed and sent.
    fn before_send(&mut self, _out: &Outbox) {}

    /// Sends a run of datagrams of `segment` bytes; the last may be shorter. Datagrams that cannot
    /// leave now are lost, as they would be in the network.
    fn send(&mut self, route: Route, sending: Sending, segment: usize, run: &[u8]);

    /// Closes a socket.
    fn close(&mut self, socket: SocketId);

    /// The sockets that failed since the last call.
    fn take_failed(&mut self) -> BTreeSet<SocketId>;
}

/// Takes the events of a node.
pub trait Events {
    /// Takes an event. Those that open or close a socket are included: the engine has opened the
    /// socket already, and closes it after it has sent the last datagrams.
    fn tell(&mut self, event: Event);
}

impl Events for Vec<Event> {
    fn tell(&mut self, event: Event) {
        self.push(event);
    }
}

/// The state of a queue after a read or a receive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Queue {
    /// It is empty.
    Empty,
    /// It may contain more.
    Unknown,
}

/// A node and its surroundings.
#[derive(Debug)]
pub struct Engine<C, D, S, E> {
    /// Tells the time.
    pub clock: C,
    /// Inner packets.
    pub device: D,
    /// Datagrams.
    pub sockets: S,
    /// Takes events.
    pub events: E,
    node: Node,
    out: Outbox,
    /// Sockets to close as soon as everything is sent.
    closing: Vec<SocketId>,
}

impl<C: Clock, D: Device, S: Sockets, E: Events> Engine<C, D, S, E> {
    /// Drives `node` with these surroundings.
    pub fn new(node: Node, clock: C, device: D, sockets: S, events: E) -> Self {
        let (out, closing) = (Outbox::new(), Vec::new());
        Self { clock, device, sockets, events, node, out, closing }
    }

    /// The node, for questions about its state.
    pub const fn node(&self) -> &Node {
        &self.node
    }

    /// When [`Engine::timeout`] is to be called next, and why.
    pub fn due(&self) -> Option<(Instant, Reason)> {
        self.node.poll_timeout()
    }

    /// The timer that is due now. After a turn there is none, as long as the clock stands still.
    pub fn overdue(&self) -> Option<(Instant, Reason)> {
        self.due().filter(|&(due, _)| due <= self.clock.now())
    }

    /// Gives the node a command. Its result is handed over later.
    pub fn command(&mut self, command: Command) {
        if self.out.is_full() {
            self.hand_over();
        }
        self.node.handle_command(self.clock.now(), command, &mut self.out);
    }

    /// Runs all stages once.
    pub fn turn(&mut self) {
        self.receive();
        self.read_tun();
        self.timeout();
        self.report_failures();
        self.hand_over();
    }

    /// Takes datagrams from the sockets, at most [`RECEIVES_MAX`] batches.
    pub fn receive(&mut self) {
        for _ in 0..RECEIVES_MAX {
            let now = self.clock.now();
            let Self { node, out, sockets, .. } = self;
            let queue = sockets.receive(|meta, stride, datagrams| {
                if datagrams.is_empty() {
                    // The node counts an empty datagram, which is no chunk.
                    node.handle_datagram(now, meta, datagrams, out);
                }
                for datagram in datagrams.chunks_mut(stride) {
                    node.receive(now, meta, datagram, out);
                }
            });
            node.settle(now, out);
            if queue == Queue::Empty {
                return;
            }
            // A second batch might not fit.
            self.hand_over();
        }
    }

    /// Takes packets from the device, at most [`READS_MAX`] reads.
    pub fn read_tun(&mut self) {
        for _ in 0..READS_MAX {
            let now = self.clock.now();
            let Self { node, out, device, .. } = self;
            let queue = device.read(|packet| node.send(now, packet, out));
            node.settle(now, out);
            if queue == Queue::Empty {
                return;
            }
            if self.out.is_full() {
                self.hand_over();
            }
        }
    }

    /// Calls the node if one of its timers is due.
    pub fn timeout(&mut self) {
        let now = self.clock.now();
        if self.due().is_some_and(|(due, _)| due <= now) {
            self.hand_over();
            self.node.handle_timeout(now, &mut self.out);
        }
    }

    /// Tells the node which sockets failed. Sockets that fail meanwhile are for the next turn.
    pub fn report_failures(&mut self) {
        for socket in self.sockets.take_failed() {
            self.hand_over();
            self.command(Command::SocketFailed(socket));
        }
    }

    /// Does everything that the node wants done: opens, sends, writes and closes.
    pub fn hand_over(&mut self) {
        self.poll_events();
        if !self.out.is_empty() {
            self.send();
            self.write_tun();
            self.out.clear();
        }
        self.close();
    }

    fn poll_events(&mut self) {
        while let Some(event) = self.node.poll_event() {
            if let Event::OpenSocket { socket, link, local, stream } = event {
                self.sockets.open(self.clock.now(), socket, link, local, stream);
            } else if let Event::CloseSocket { socket } = event {
                self.closing.push(socket);
            }
            self.events.tell(event);
        }
    }

    fn send(&mut self) {
        self.sockets.before_send(&self.out);
        self.out.seal();
        for (run, datagrams) in self.out.runs() {
            self.sockets.send(run.route, run.sending, run.segment, datagrams);
        }
    }

    fn write_tun(&mut self) {
        self.device.write(self.out.inner());
    }

    fn close(&mut self) {
        for socket in self.closing.drain(..) {
            self.sockets.close(socket);
        }
    }
}
