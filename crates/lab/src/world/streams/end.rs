//! One end of a stream, without the world around it: how it opens, frames into bytes and back, and
//! when it is over.

use std::net::SocketAddr;

use rove_proto::id::SocketId;

use crate::emu::{SECOND, earliest};
use crate::tcp::{Config, End, KeepAlive, State};
use crate::world::host_id::HostId;

use super::StreamId;
use super::proxy::{ASKED, GRANTED};

/// How long a client's stream may take to open, and the gateway's may be open without an answer of
/// its node: the daemon's.
const TRIAL_NS: u64 = 10 * SECOND;
/// Bytes that wait for the network, in the shell and in its kernel: the daemon's.
const UNSENT_MAX: usize = (64 << 10) + (32 << 10);
/// The same while a stream opens.
const EARLY_MAX: usize = 8 * (LENGTH_LEN + DATAGRAM_MAX);
/// How the gateway's kernel probes an idle connection: the daemon's time before the first probe,
/// and Linux's defaults.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle_ns: 600 * SECOND, interval_ns: 75 * SECOND, probes: 9 };
/// How long sent data may stay unacknowledged, and the longest time between two repetitions: the
/// daemon's.
const USER_TIMEOUT_NS: u64 = 30 * SECOND;
const RTO_MAX_NS: u64 = SECOND;
/// Bytes that wait for a proxy to read them: a receive buffer that Linux has not enlarged.
const PROXY_BUFFER: u64 = 128 << 10;
/// After how much silence a proxy ends a connection.
const PROXY_PATIENCE_NS: u64 = 300 * SECOND;
/// What a plain stream begins with, the length before a datagram, and the longest datagram.
const PREFACE: &[u8] = b"\0rove/1\n";
const LENGTH_LEN: usize = 2;
const DATAGRAM_MAX: usize = 1_472;
/// How TLS begins (RFC 8446): a record with a ClientHello.
const TLS_RECORD: [u8; 6] = [22, 3, 1, 2, 0, 1];
/// The client's first flight of TLS, the server's, and the client's second, in bytes: usual ones.
const HELLO_LEN: usize = 517;
const ANSWER_LEN: usize = 1_200;
const FINISHED_LEN: usize = 74;

/// By whom and where a stream ends: host, local, remote.
pub(in crate::world) type Ends = (HostId, SocketAddr, SocketAddr);

/// One end of a stream.
#[derive(Debug)]
pub(in crate::world) struct Stream {
    pub(in crate::world) ends: Ends,
    /// The client whose stream it is.
    pub(in crate::world) client: usize,
    pub(in crate::world) card: usize,
    /// Client: whether TLS is in it.
    pub(in crate::world) tls: bool,
    /// Its node's number; the gateway gives one when the connection is there.
    pub(in crate::world) socket: Option<SocketId>,
    /// The proxy's other connection.
    pub(in crate::world) other: Option<StreamId>,
    /// The node is done with it, and what it sent still leaves.
    pub(in crate::world) closed: bool,
    pub(in crate::world) tcp: End,
    pub(in crate::world) step: Step,
    /// Frames that wait until it is open.
    early: Vec<u8>,
    /// Bytes that have arrived and are no whole message yet.
    pub(in crate::world) partial: Vec<u8>,
    /// Whether the node has sent by it.
    used: bool,
    trial_ns: u64,
    pub(in crate::world) heard_ns: u64,
    pub(in crate::world) due_ns: Option<u64>,
}

/// How a client makes a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::world) enum Way {
    Tls,
    Plain,
    /// TLS, by the proxy.
    ByProxy,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::world) enum Step {
    /// Client: a connection.
    Connecting(Way),
    /// Client: the proxy's answer.
    Asking,
    /// Client: the server's flight of TLS.
    Securing,
    /// Gateway: the first bytes.
    Judging,
    /// Gateway: the client's second flight of TLS.
    Finishing,
    /// Frames.
    Open,
    /// Proxy: what the client asks for.
    Asked,
    /// Proxy, for the client: a connection to there.
    Reaching,
    /// Proxy: bytes that are passed on.
    Relaying,
    /// Nothing more: it broke, or was never one of ours.
    Broken,
}

impl Stream {
    /// An end of a stream of `client`'s that begins now.
    pub(in crate::world) const fn new(
        ends: Ends,
        client: usize,
        tcp: End,
        step: Step,
        now_ns: u64,
    ) -> Self {
        Self {
            ends,
            client,
            card: 0,
            tls: false,
            socket: None,
            other: None,
            closed: false,
            tcp,
            step,
            early: Vec::new(),
            partial: Vec::new(),
            used: false,
            trial_ns: now_ns + TRIAL_NS,
            heard_ns: now_ns,
            due_ns: None,
        }
    }

    /// Goes on with what has arrived, and returns the datagrams in it.
    pub(in crate::world) fn proceed(&mut self) -> Vec<Vec<u8>> {
        self.partial.extend(self.tcp.read(usize::MAX));
        while self.advance() {}
        if self.step == Step::Open { self.take_frames() } else { Vec::new() }
    }

    /// One step of opening, if what it waits for is there.
    fn advance(&mut self) -> bool {
        let hello = || flight(&TLS_RECORD, HELLO_LEN);
        let (awaited, answer, next) = match self.step {
            Step::Connecting(_) if !self.is_open() => return false,
            Step::Connecting(Way::Plain) => (0, PREFACE.to_vec(), Step::Open),
            Step::Connecting(Way::Tls) => (0, hello(), Step::Securing),
            Step::Connecting(Way::ByProxy) => (0, ASKED.to_vec(), Step::Asking),
            Step::Asking => (GRANTED.len(), hello(), Step::Securing),
            Step::Securing => (ANSWER_LEN, flight(&[], FINISHED_LEN), Step::Open),
            Step::Judging if self.partial.starts_with(PREFACE) => {
                (PREFACE.len(), Vec::new(), Step::Open)
            }
            Step::Judging if PREFACE.starts_with(&self.partial) => return false,
            Step::Judging if self.partial.first() == TLS_RECORD.first() => {
                (HELLO_LEN, flight(&[], ANSWER_LEN), Step::Finishing)
            }
            Step::Judging => (0, Vec::new(), Step::Broken),
            Step::Finishing => (FINISHED_LEN, Vec::new(), Step::Open),
            Step::Open | Step::Asked | Step::Reaching | Step::Relaying | Step::Broken => {
                return false;
            }
        };
        if self.partial.len() < awaited {
            return false;
        }
        self.partial.drain(..awaited);
        self.tcp.write(&answer);
        self.step = next;
        if next == Step::Open {
            let early = std::mem::take(&mut self.early);
            self.tcp.write(&early);
        }
        true
    }

    fn take_frames(&mut self) -> Vec<Vec<u8>> {
        let mut datagrams = Vec::new();
        while let Some(&[high, low]) = self.partial.first_chunk() {
            let len = usize::from(u16::from_be_bytes([high, low]));
            if !(1..=DATAGRAM_MAX).contains(&len) {
                self.step = Step::Broken;
                break;
            }
            if self.partial.len() < LENGTH_LEN + len {
                break;
            }
            datagrams.push(self.partial.drain(..LENGTH_LEN + len).skip(LENGTH_LEN).collect());
        }
        datagrams
    }

    /// The node sends; what has no room is lost.
    pub(in crate::world) fn send(&mut self, datagram: &[u8]) {
        self.used = true;
        let frame = [&(datagram.len() as u16).to_be_bytes(), datagram].concat();
        if self.step == Step::Open {
            if self.tcp.unsent() + frame.len() <= UNSENT_MAX {
                self.tcp.write(&frame);
            }
        } else if self.early.len() + frame.len() <= EARLY_MAX {
            self.early.extend(frame);
        }
    }

    /// The packets that leave now. A stream that is of no use any more ends with a reset.
    pub(in crate::world) fn leaving(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        if self.is_useless(now_ns) {
            self.tcp.abort(now_ns);
        }
        self.tcp.leaving(now_ns)
    }

    /// Whether both ends know of the connection.
    pub(in crate::world) fn is_open(&self) -> bool {
        self.tcp.state() == State::Established
    }

    /// Whether the kernel asks if the other end is there: it was silent for too long.
    pub(in crate::world) const fn is_probed(&self, now_ns: u64) -> bool {
        self.is_accepted() && now_ns >= self.heard_ns + KEEP_ALIVE.idle_ns
    }

    /// Whether the connection has ended.
    pub(in crate::world) fn is_over(&self) -> bool {
        self.tcp.state() == State::Closed
    }

    fn is_useless(&self, now_ns: u64) -> bool {
        let open = matches!(self.step, Step::Open | Step::Relaying);
        let useful = if self.is_accepted() { self.used } else { open };
        let silent = self.ends.0 == HostId::Proxy && now_ns >= self.heard_ns + PROXY_PATIENCE_NS;
        let gone = self.closed && (self.tcp.unacknowledged() == 0 || !self.is_open());
        let failed = self.step == Step::Broken;
        gone || failed || silent || (!useful && now_ns >= self.trial_ns)
    }

    /// When it has something to do if nothing arrives before.
    pub(in crate::world) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let trial = Some(self.trial_ns).filter(|&at| at > now_ns);
        let silent = (self.ends.0 == HostId::Proxy).then_some(self.heard_ns + PROXY_PATIENCE_NS);
        earliest([self.tcp.due_ns(), trial, silent])
    }

    /// Whether it came to the gateway.
    pub(in crate::world) const fn is_accepted(&self) -> bool {
        self.ends.0.is_gateway()
    }
}

/// How the kernel of `ends` sets up a connection: as the daemon's options say
/// (`crates/os/src/stream/socket.rs`). A router has clamped the MSS to a path of `mtu` bytes.
pub(in crate::world) fn config((host, local, remote): Ends, mtu: usize, seed: u64) -> Config {
    let config = Config::new(local, remote, seed);
    Config {
        mtu: mtu as u16,
        no_delay: true,
        user_timeout_ns: Some(USER_TIMEOUT_NS),
        rto_max_ns: RTO_MAX_NS,
        keep_alive: (host.is_gateway()).then_some(KEEP_ALIVE),
        receive_buffer: if host == HostId::Proxy { PROXY_BUFFER } else { config.receive_buffer },
        ..config
    }
}

/// Bytes of TLS that begin like this.
fn flight(begin: &[u8], len: usize) -> Vec<u8> {
    let mut flight = begin.to_vec();
    flight.resize(len, 0);
    flight
}
