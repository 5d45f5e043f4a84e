//! The thread that emulates the Internet in real time.
//!
//! One thread holds the other side of every host's interfaces. It waits for packets, for the
//! emulator's next event and for requests. It takes sent packets, delivers due ones, and notes
//! their lateness. Nothing else touches the emulator, so there is no lock: [`Emulator::with`] sends
//! a function to the thread and waits for its answer.

use super::lateness::Timekeeping;
use super::monotonic_ns;
use super::tap::{ETHERNET_HEADER, Tap};
use crate::emu::{Endpoints, Frame, Internet, IpPacket, LinkId, NodeId, SECOND};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::thread::JoinHandle;

/// Packets taken from one card before the others get their turn.
const BATCH: usize = 64;
/// The longest frame that a card can send.
const FRAME_BYTES: usize = 65_536 + ETHERNET_HEADER;
/// The most packets that one capture notes.
const CAPTURED_MAX: usize = 1_000_000;
/// What `epoll` reports for a request; cards report their own number.
const REQUEST_TOKEN: u64 = u64::MAX;
/// What `epoll` reports for the timer.
const TIMER_TOKEN: u64 = u64::MAX - 1;

type Request = Box<dyn FnOnce(&mut Shell) + Send>;

/// A handle to the emulator's thread, which ends when this is dropped.
#[derive(Debug)]
pub struct Emulator {
    requests: Option<Sender<Request>>,
    wake: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// The thread's state: the emulated Internet and the interfaces of its hosts.
#[derive(Debug)]
pub struct Shell {
    /// The network itself.
    pub internet: Internet<IpPacket>,
    cards: Vec<Card>,
    /// The interface of each connected link, by its number.
    plugged: BTreeMap<LinkId, usize>,
    timekeeping: Timekeeping,
    /// The interface that was connected last, until its first packet arrives.
    awaited: Option<usize>,
    epoll: OwnedFd,
}

/// A host's interface, from the cable's side.
#[derive(Debug)]
struct Card {
    tap: Tap,
    mac: [u8; 6],
    /// The emulated link it is plugged into.
    plug: Option<(NodeId, LinkId)>,
    capture: Option<Capture>,
}

/// Which way a captured packet went, seen from the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the host.
    Out,
    /// To the host.
    In,
}

/// One captured packet.
#[derive(Clone, Copy, Debug)]
pub struct Captured {
    /// When the emulator took it or handed it over ([`monotonic_ns`]).
    pub at_ns: u64,
    /// Which way it went.
    pub direction: Direction,
    /// Layer-3 length in bytes.
    pub bytes: usize,
    /// Its addresses, if it is a packet that can be forwarded.
    pub endpoints: Option<Endpoints>,
}

/// The packets of one interface during a capture; at most a million.
#[derive(Clone, Debug, Default)]
pub struct Capture {
    /// The packets in the order in which they passed.
    pub packets: Vec<Captured>,
    /// Packets that passed after the capture was full.
    pub missed: u64,
    /// The packets themselves, one for one, if they were requested.
    pub contents: Option<Vec<IpPacket>>,
}

impl Emulator {
    /// Starts the thread over an empty network whose chance follows from `seed`.
    pub fn start(seed: u64) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let readable = epoll::EventFlags::IN;
        epoll::add(&epoll, &*wake, epoll::EventData::new_u64(REQUEST_TOKEN), readable)?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(TIMER_TOKEN), readable)?;
        let (requests, inbox) = channel();
        let woken = Arc::clone(&wake);
        let shell = Shell {
            internet: Internet::new(seed),
            cards: Vec::new(),
            plugged: BTreeMap::new(),
            timekeeping: Timekeeping::default(),
            awaited: None,
            epoll,
        };
        let run = move || {
            // The default slack lets timers expire 50 us late. Refused nowhere known; harmless.
            let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
            shell.run(&timer, &woken, &inbox);
        };
        let thread = std::thread::Builder::new().name("emulator".to_owned()).spawn(run)?;
        Ok(Self { requests: Some(requests), wake, thread: Some(thread) })
    }

    /// Runs a function on the emulator's thread, with the present time, and returns its result.
    ///
    /// # Errors
    /// When the thread has died.
    pub fn with<R: Send + 'static>(
        &self,
        f: impl FnOnce(&mut Shell, u64) -> R + Send + 'static,
    ) -> io::Result<R> {
        let gone = || io::Error::other("the emulator's thread has died");
        let (answer, result) = sync_channel(1);
        let request: Request = Box::new(move |shell| {
            // An error means that nobody waits for the answer any more.
            let _ = answer.send(f(shell, monotonic_ns()));
        });
        self.requests.as_ref().ok_or_else(gone)?.send(request).map_err(|_| gone())?;
        self.wake();
        result.recv().map_err(|_| gone())
    }

    /// The lateness of deliveries since the start or the last call, which clears it.
    pub fn take_timekeeping(&self) -> io::Result<Timekeeping> {
        self.with(|shell, _| std::mem::take(&mut shell.timekeeping))
    }

    fn wake(&self) {
        // The only error is a full counter, which wakes as well.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.requests = None;
        self.wake();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shell {
    /// Takes packets, delivers due ones, serves requests, until the handle is dropped.
    fn run(mut self, timer: &OwnedFd, wake: &OwnedFd, inbox: &Receiver<Request>) {
        let mut buffer = vec![0; FRAME_BYTES];
        let mut events: Vec<epoll::Event> = Vec::with_capacity(64);
        let mut armed = None;
        loop {
            self.arm(timer, &mut armed);
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, spare, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
            }
            for event in &events {
                match event.data.u64() {
                    REQUEST_TOKEN => {
                        let _ = rustix::io::read(wake, &mut [0u8; 8]);
                        loop {
                            match inbox.try_recv() {
                                Ok(request) => request(&mut self),
                                Err(std::sync::mpsc::TryRecvError::Empty) => break,
                                Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
                            }
                        }
                    }
                    TIMER_TOKEN => {
                        let _ = rustix::io::read(timer, &mut [0u8; 8]);
                        armed = None;
                    }
                    card => self.take_from(card as usize, &mut buffer),
                }
            }
            self.hand_over();
        }
    }

    /// Sets the timer to the emulator's next event, unless it stands there already.
    fn arm(&self, timer: &OwnedFd, armed: &mut Option<u64>) {
        let next = self.internet.poll_timeout();
        if *armed == next {
            return;
        }
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A time of zero would disarm it.
        let at_ns = next.map_or(0, |at| at.max(1));
        let at = Timespec {
            tv_sec: (at_ns / SECOND).cast_signed(),
            tv_nsec: (at_ns % SECOND).cast_signed(),
        };
        let value = Itimerspec { it_interval: zero, it_value: at };
        // It cannot fail: the descriptor is a timer and the time is valid.
        let _ = rustix::time::timerfd_settime(timer, TimerfdTimerFlags::ABSTIME, &value);
        *armed = next;
    }

    /// Takes the packets that a host has sent on one interface.
    fn take_from(&mut self, card: usize, buffer: &mut [u8]) {
        for _ in 0..BATCH {
            let Some(Ok(Some(length))) = self.cards.get(card).map(|c| c.tap.receive(buffer)) else {
                return;
            };
            let now_ns = monotonic_ns();
            let Some(frame) = buffer.get(..length) else { return };
            let Some(packet) = ip_packet(frame) else { continue };
            let packet = IpPacket::new(packet.to_vec());
            if let Some(capture) = &mut self.cards[card].capture {
                capture.note(now_ns, Direction::Out, &packet);
            }
            if let Some((host, link)) = self.cards[card].plug {
                self.internet.push(now_ns, host, link, packet);
            }
        }
    }

    /// Delivers every due packet, and notes its lateness.
    fn hand_over(&mut self) {
        let mut now_ns = monotonic_ns();
        while let Some(delivery) = self.internet.poll_delivery(now_ns) {
            let Some(&number) = self.plugged.get(&delivery.link) else { continue };
            let card = &mut self.cards[number];
            // An interface that is down or full loses the packet, as a real one would.
            let _ = card.tap.send(card.mac, delivery.frame.bytes());
            now_ns = monotonic_ns();
            let late_ns = now_ns.saturating_sub(delivery.at_ns);
            self.timekeeping.all.record(late_ns);
            if let Some(awaited) = self.awaited {
                self.timekeeping.after_moves.record(late_ns);
                // The move is over for the host with the first packet that comes to it.
                self.awaited = Some(awaited).filter(|awaited| *awaited != number);
            }
            if let Some(capture) = &mut card.capture {
                capture.note(now_ns, Direction::In, &delivery.frame);
            }
        }
    }

    pub(super) fn add_card(&mut self, tap: Tap, mac: [u8; 6]) -> io::Result<usize> {
        let number = self.cards.len();
        let token = epoll::EventData::new_u64(number as u64);
        epoll::add(&self.epoll, &tap, token, epoll::EventFlags::IN)?;
        self.cards.push(Card { tap, mac, plug: None, capture: None });
        Ok(number)
    }

    /// Connects an interface to a link, out of its old one; `None` leaves it unconnected. The
    /// host's kernel sees the carrier.
    pub(super) fn plug(&mut self, card: usize, plug: Option<(NodeId, LinkId)>) -> io::Result<()> {
        let entry = &mut self.cards[card];
        if let Some((_, old)) = std::mem::replace(&mut entry.plug, plug) {
            self.plugged.remove(&old);
        }
        if let Some((_, link)) = plug {
            self.plugged.insert(link, card);
            self.awaited = Some(card);
        }
        entry.tap.set_carrier(plug.is_some())
    }

    pub(super) fn set_carrier(&self, card: usize, up: bool) -> io::Result<()> {
        self.cards[card].tap.set_carrier(up)
    }

    pub(super) fn start_capture(&mut self, card: usize, contents: bool) {
        let contents = contents.then(Vec::new);
        self.cards[card].capture = Some(Capture { contents, ..Capture::default() });
    }

    pub(super) fn take_capture(&mut self, card: usize) -> Capture {
        self.cards[card].capture.take().unwrap_or_default()
    }
}

impl Capture {
    fn note(&mut self, at_ns: u64, direction: Direction, packet: &IpPacket) {
        if self.packets.len() == CAPTURED_MAX {
            self.missed += 1;
            return;
        }
        let (bytes, endpoints) = (packet.wire_len(), packet.endpoints());
        self.packets.push(Captured { at_ns, direction, bytes, endpoints });
        if let Some(contents) = &mut self.contents {
            contents.push(packet.clone());
        }
    }
}

/// The IP packet of an Ethernet frame; `None` for ARP and other frames of a host.
fn ip_packet(frame: &[u8]) -> Option<&[u8]> {
    let ethertype = frame.get(12..ETHERNET_HEADER)?;
    match ethertype {
        [0x08, 0x00] | [0x86, 0xdd] => frame.get(ETHERNET_HEADER..),
        _ => None,
    }
}
