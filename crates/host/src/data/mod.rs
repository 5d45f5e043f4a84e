//! The data thread: sockets and TUN in, core, sockets and TUN out.
//!
//! One turn: wait for readiness, a command or the core's own timeout, then let the [`Engine`] move
//! packets. The thread never waits for anything else, and never for the control thread: events for
//! which that thread has no room are kept in the `Backlog`, up to a bound.
//!
//! Limits: one thread and one [`Node`]; sharding by session index comes with the step that needs
//! it.

mod backlog;
mod device;
mod report;
mod sockets;
mod streams;
mod token;
mod turn;

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use backlog::Backlog;
use device::Device;
use mio::{Poll, Waker};
pub use report::{Carried, Forbidden, News, Snapshot};
use rove_engine::Engine;
use rove_os::clock::Clock;
use rove_os::copied;
use rove_os::links::Link;
use rove_os::stream::{Listener, ListeningSocket};
use rove_os::tun::Tun;
use rove_os::udp::UdpSocket;
use rove_proto::crypto::Rng;
use rove_proto::id::{PeerKey, SocketId};
use rove_proto::node::{Command, Config, FlowsFrom, FlowsPage, Node, StreamTo};
use rove_proto::time::Instant;
use sockets::Sockets;
pub use streams::{ByProxy, Mptcp, Way};
use token::{COPIED, TUN, WAKE};

/// Orders that wait for the data thread.
const ORDERS_MAX: usize = 1_024;
/// How long the thread may take to answer: it never waits, and one turn takes moments.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);

/// The core numbers the sockets that it asks for from here; those below are the control thread's,
/// and listen.
pub const FIRST_SOCKET_OF_CORE: u32 = 1_024;

/// What the control thread wants.
pub enum Order {
    /// A change for the core.
    Command(Box<Command>),
    /// The usable links, best first, and whether each is for when no other carries: for the core,
    /// and for the names of interfaces.
    Links(Vec<(Link, bool)>),
    /// How streams are made from now on, by the numbers that the core is told.
    Ways(Vec<Way>),
    /// One more socket that listens. Who asks by it before the core was told of everybody is
    /// refused for good.
    Listen {
        /// Its number, below [`FIRST_SOCKET_OF_CORE`].
        number: SocketId,
        /// The socket, bound.
        socket: UdpSocket,
    },
    /// Where streams come in, likewise.
    Accept(Listener),
    /// One more place where streams come in.
    AcceptAlso(ListeningSocket),
    /// The new interface, created because the old one was deleted.
    Device(Tun),
    /// A snapshot of some sessions, all of them if none are named.
    Status {
        /// Whose.
        peers: Option<Vec<PeerKey>>,
        /// Where to.
        reply: SyncSender<Snapshot>,
    },
    /// A page of open connections, the first unless something else is said.
    Flows {
        /// Where to go on.
        from: Option<FlowsFrom>,
        /// Where to.
        reply: SyncSender<FlowsPage>,
    },
    /// Write packets to the tunnel device as if clients had sent them.
    Inject {
        /// The packets.
        packets: Vec<Vec<u8>>,
        /// Where to say that the kernel has them.
        reply: SyncSender<()>,
    },
    /// Say goodbye, send what is left and end.
    Stop,
}

/// How a data thread is set up.
pub struct Setup {
    /// What holds for all sessions.
    pub config: Config,
    /// Inner packets.
    pub tun: Tun,
    /// The mark of the sockets that it opens.
    pub mark: Option<u32>,
}

/// The control thread's end.
pub struct Handle {
    orders: SyncSender<Order>,
    waker: Arc<Waker>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// Starts the thread; news goes to `to`.
    pub fn start<T: Send + 'static>(
        setup: Setup,
        to: SyncSender<T>,
        wrap: impl Fn(News) -> T + Send + 'static,
    ) -> Result<Self> {
        let poll = Poll::new().context("cannot make an epoll")?;
        let waker = Waker::new(poll.registry(), WAKE).context("cannot make an eventfd")?;
        let waker = Arc::new(waker);
        let (orders, inbox) = sync_channel(ORDERS_MAX);
        let mut data = Data::new(setup, poll, inbox)?;
        let thread = thread::Builder::new().name("rove-data".to_owned()).spawn(move || {
            let mut tell = |news| match to.try_send(wrap(news)) {
                Ok(()) => true,
                Err(std::sync::mpsc::TrySendError::Full(_)) => false,
                // Nobody listens any more: nothing is lost.
                Err(std::sync::mpsc::TrySendError::Disconnected(_)) => true,
            };
            // A panic is printed where it happens; the daemon must not live on without a data path.
            let ended = catch_unwind(AssertUnwindSafe(|| data.run(&mut tell)));
            // From here on orders are refused, so that nobody waits for room among them.
            drop(data);
            let why = match ended {
                // Whoever gave that order is waiting for the end, and reads nothing any more.
                Ok(Ok(())) => return,
                Ok(Err(error)) => format!("{error:#}"),
                Err(_) => "it panicked".to_owned(),
            };
            // The one message that must arrive; the control thread is about to read.
            let _ = to.send(wrap(News::Ended(why)));
        });
        let thread = Some(thread.context("cannot start the data thread")?);
        Ok(Self { orders, waker, thread })
    }

    /// Gives an order. Waits while `ORDERS_MAX` wait already; an ended thread takes none.
    pub fn order(&self, order: Order) {
        if self.orders.send(order).is_ok() {
            // An eventfd that cannot be written wakes its reader by being full.
            let _ = self.waker.wake();
        }
    }

    /// Gives the core a command.
    pub fn command(&self, command: Command) {
        self.order(Order::Command(Box::new(command)));
    }

    /// Tells how a gateway may be reached by streams, best first: by them `alone`, or where UDP is
    /// blocked.
    pub fn set_streams(&self, peer: PeerKey, streams: Vec<(SocketAddr, Way)>, alone: bool) {
        let (remotes, ways): (Vec<_>, Vec<_>) = streams.into_iter().unzip();
        self.order(Order::Ways(ways));
        let numbered = (0..).zip(remotes);
        let streams = numbered.map(|(method, remote)| StreamTo { remote, method }).collect();
        self.command(Command::SetStreams { peer, streams, alone });
    }

    /// A snapshot of the sessions with `peers`, or with all; none when the thread has ended.
    pub fn status(&self, peers: Option<Vec<PeerKey>>) -> Option<Snapshot> {
        let (reply, replied) = sync_channel(1);
        self.order(Order::Status { peers, reply });
        replied.recv_timeout(ANSWER_WITHIN).ok()
    }

    /// A page of open connections; none when the thread has ended. Packets have their turn between
    /// two pages.
    pub fn flows(&self, from: Option<FlowsFrom>) -> Option<FlowsPage> {
        let (reply, replied) = sync_channel(1);
        self.order(Order::Flows { from, reply });
        replied.recv_timeout(ANSWER_WITHIN).ok()
    }

    /// Writes packets to the tunnel device as if clients had sent them. Returns whether that was
    /// done.
    pub fn inject(&self, packets: Vec<Vec<u8>>) -> bool {
        let (reply, replied) = sync_channel(1);
        self.order(Order::Inject { packets, reply });
        replied.recv_timeout(ANSWER_WITHIN).is_ok()
    }

    /// Ends the thread and waits for it.
    pub fn stop(&mut self) {
        self.order(Order::Stop);
        if let Some(thread) = self.thread.take() {
            // A panic in it was printed, and there is nothing to save.
            let _ = thread.join();
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop();
        }
    }
}

/// The thread's own things.
struct Data {
    engine: Engine<BootClock, Device, Sockets, Backlog>,
    /// Whether orders may be left from the last turn.
    orders_wait: bool,
    poll: Poll,
    inbox: Receiver<Order>,
    /// Tells if another machine may have this memory.
    copied: copied::Watch,
}

impl Data {
    fn new(setup: Setup, poll: Poll, inbox: Receiver<Order>) -> Result<Self> {
        let Setup { config, tun, mark } = setup;
        let clock = BootClock(Clock::new());
        let now = rove_engine::Clock::now(&clock);
        let node = Node::new(now, config, Box::new(SystemRng), FIRST_SOCKET_OF_CORE);
        let registry = poll.registry().try_clone().context("cannot share an epoll")?;
        let sockets = Sockets::new(registry, mark);
        watch_device(&poll, &tun)?;
        let copied = copied::Watch::new();
        if let Some(events) = copied.descriptor() {
            let source = &mut mio::unix::SourceFd(&events);
            let watched = poll.registry().register(source, COPIED, mio::Interest::READABLE);
            watched.context("cannot watch the kernel's events")?;
        }
        let engine = Engine::new(node, clock, Device::new(tun), sockets, Backlog::default());
        Ok(Self { engine, orders_wait: false, poll, inbox, copied })
    }

    fn now(&self) -> Instant {
        rove_engine::Clock::now(&self.engine.clock)
    }
}

/// The clock of the host, for the engine.
struct BootClock(Clock);

impl rove_engine::Clock for BootClock {
    fn now(&self) -> Instant {
        Instant::from_nanos(self.0.now())
    }
}

fn watch_device(poll: &Poll, tun: &Tun) -> Result<()> {
    let source = &mut mio::unix::SourceFd(&std::os::fd::AsRawFd::as_raw_fd(tun));
    let watched = poll.registry().register(source, TUN, mio::Interest::READABLE);
    watched.context("cannot watch the TUN")
}

/// The operating system's randomness, for the core.
struct SystemRng;

impl Rng for SystemRng {
    fn fill(&mut self, dest: &mut [u8]) {
        if rove_os::random::fill(dest).is_err() {
            // No key may be made of anything less, and the core cannot go on without.
            tracing::error!("the operating system gives no randomness");
            std::process::abort();
        }
    }
}
