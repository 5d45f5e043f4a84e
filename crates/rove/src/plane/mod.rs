//! The data plane: one thread that owns the core, the TUN and the sockets, and waits in one place
//! for all of them.
//!
//! A packet's way: [`turn`] reads the TUN or a socket, hands each packet to the core, has the
//! outbox sealed, sends its runs and writes its inner packets. Everything else reaches the thread
//! as an [`Order`] through a bounded queue and a waker, and leaves it as an event through another;
//! no lock is taken and nothing waits on the control plane.

mod sockets;
mod turn;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use mio::{Poll, Waker};
use rove_os::tun::Tun;
use rove_os::udp::UdpSocket;
use rove_proto::id::LinkId;
use rove_proto::node::{Command, Event, Node};

use sockets::Sockets;
use turn::Plane;

/// Orders that may wait for the thread.
const ORDERS_MAX: usize = 256;
/// Events that may wait for the control plane; what does not fit is dropped and counted.
const EVENTS_MAX: usize = 4_096;

/// What the control plane wants of the data plane.
pub enum Order {
    /// A change for the core.
    Command(Command),
    /// Names of the links, by which sockets are bound to them.
    LinkNames(BTreeMap<LinkId, String>),
    /// A question to the core and the plane's own counters, answered on the data thread.
    Ask(Box<dyn FnOnce(&Node, &Counters) + Send>),
    /// The thread ends, after what the core has to say was sent.
    Stop,
}

/// What the plane itself threw away, beside the core's own counters.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Datagrams that a full socket buffer did not take.
    pub send_full: u64,
    /// Datagrams that were too long for their link.
    pub send_too_long: u64,
    /// Runs for a destination without a route, or from an address that is gone.
    pub send_unreachable: u64,
    /// Inner packets that the kernel did not take.
    pub tun_refused: u64,
    /// Events that the control plane was too slow for.
    pub events_lost: u64,
}

/// What the plane is built from.
pub struct Parts {
    /// The core, with its peers.
    pub node: Node,
    /// The TUN, up and configured.
    pub tun: Tun,
    /// Listening sockets, numbered from 0: a gateway's.
    pub listening: Vec<UdpSocket>,
    /// The mark of the sockets that the core asks for.
    pub mark: Option<u32>,
}

/// The control plane's end of a running data plane.
pub struct Handle {
    orders: SyncSender<Order>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<Result<()>>>,
}

/// Starts the thread. Events come out of the receiver.
///
/// # Errors
/// When the kernel refuses a thread or an event queue.
pub fn start(parts: Parts) -> Result<(Handle, Receiver<Event>)> {
    let poll = Poll::new().context("cannot create an event queue")?;
    let waker =
        Arc::new(Waker::new(poll.registry(), turn::WAKER).context("cannot create a waker")?);
    let (orders, inbox) = sync_channel(ORDERS_MAX);
    let (events, outlet) = sync_channel(EVENTS_MAX);
    let sockets = Sockets::new(poll.registry().try_clone()?, parts.listening, parts.mark)?;
    let mut plane = Plane::new(poll, parts.node, parts.tun, sockets, inbox, events)?;
    let thread = std::thread::Builder::new()
        .name("rove-plane".into())
        .spawn(move || plane.run())
        .context("cannot start the data thread")?;
    Ok((Handle { orders, waker, thread: Some(thread) }, outlet))
}

impl Handle {
    /// Gives an order.
    ///
    /// # Errors
    /// When the thread has ended, or does not keep up with orders.
    pub fn order(&self, order: Order) -> Result<()> {
        self.orders.try_send(order).map_err(|error| match error {
            TrySendError::Full(_) => anyhow!("the data thread does not keep up with orders"),
            TrySendError::Disconnected(_) => anyhow!("the data thread has ended"),
        })?;
        self.waker.wake().context("cannot wake the data thread")
    }

    /// Gives a command to the core.
    ///
    /// # Errors
    /// As [`Handle::order`].
    pub fn command(&self, command: Command) -> Result<()> {
        self.order(Order::Command(command))
    }

    /// Asks the core and waits for the answer, at most two seconds.
    ///
    /// # Errors
    /// As [`Handle::order`], and when no answer comes in time.
    pub fn ask<T: Send + 'static>(
        &self,
        question: impl FnOnce(&Node, &Counters) -> T + Send + 'static,
    ) -> Result<T> {
        let (answer, answered) = sync_channel(1);
        self.order(Order::Ask(Box::new(move |node, counters| {
            // Nobody waits any more when this fails.
            let _ = answer.try_send(question(node, counters));
        })))?;
        answered
            .recv_timeout(std::time::Duration::from_secs(2))
            .context("the data thread does not answer")
    }

    /// Whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the thread and waits for it.
    ///
    /// # Errors
    /// What ended it, when it was not this.
    pub fn stop(mut self) -> Result<()> {
        let _ = self.order(Order::Stop); // it may have ended by itself
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(_)) => Err(anyhow!("the data thread panicked")),
            None => Ok(()),
        }
    }
}
