//! One end of a stream, without the world around it: how it opens, frames into bytes and back, and
//! when it is over.

use std::net::SocketAddr;

use rove_proto::id::SocketId;

use crate::emu::{SECOND, earliest};
use crate::world::host_id::GATEWAY;
use crate::world::host_id::HostId;
use crate::world::tcp::{Header, Kind, Tcp};

use super::StreamId;
use super::proxy::{ASKED, GRANTED, PROXY};

/// How long a client's stream may take to open, and the gateway's may be open without an answer of
/// its node: the daemon's.
const TRIAL_NS: u64 = 10 * SECOND;
/// Bytes that wait for the network, in the shell and in its kernel: the daemon's.
const UNSENT_MAX: usize = (64 << 10) + (32 << 10);
/// The same while a stream opens.
const EARLY_MAX: usize = 8 * (LENGTH_LEN + DATAGRAM_MAX);
/// How long the gateway's kernel waits for a word until it asks, how often it asks then, and after
/// how much silence it gives up: the daemon's, and Linux's.
pub(in crate::world) const KEEPALIVE_NS: u64 = 600 * SECOND;
const ASKS_EVERY_NS: u64 = 75 * SECOND;
const SILENT_MAX_NS: u64 = KEEPALIVE_NS + 9 * ASKS_EVERY_NS;
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
    pub(in crate::world) client: HostId,
    pub(in crate::world) card: usize,
    /// Client: whether TLS is in it.
    pub(in crate::world) tls: bool,
    /// Its node's number; the gateway gives one when the connection is there.
    pub(in crate::world) socket: Option<SocketId>,
    /// The proxy's other connection.
    pub(in crate::world) other: Option<StreamId>,
    /// The node is done with it, and what it sent still leaves.
    pub(in crate::world) closed: bool,
    pub(in crate::world) tcp: Tcp,
    pub(in crate::world) step: Step,
    /// Frames that wait until it is open.
    early: Vec<u8>,
    /// Bytes that have arrived and are no whole message yet.
    pub(in crate::world) partial: Vec<u8>,
    /// Whether the node has sent by it.
    used: bool,
    trial_ns: u64,
    pub(in crate::world) heard_ns: u64,
    /// When the kernel asks next whether anybody is there.
    pub(in crate::world) asks_ns: u64,
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
        client: HostId,
        tcp: Tcp,
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
            asks_ns: now_ns + KEEPALIVE_NS,
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
            Step::Connecting(_) if !self.tcp.is_open() => return false,
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

    /// The segments that leave now.
    pub(in crate::world) fn leaving(&mut self, now_ns: u64, mss: usize) -> Vec<(Header, Vec<u8>)> {
        let mut leaving = self.tcp.leaving(now_ns, mss);
        if self.is_accepted() && now_ns >= self.asks_ns {
            self.asks_ns = now_ns + ASKS_EVERY_NS;
            leaving.push((Header::of(Kind::Ask), Vec::new()));
        }
        leaving
    }

    /// Whether it is of no use any more.
    pub(in crate::world) fn is_over(&self, now_ns: u64) -> bool {
        let open = matches!(self.step, Step::Open | Step::Relaying);
        let useful = if self.is_accepted() { self.used } else { open };
        let patience_ns = match self.ends.0 {
            PROXY => PROXY_PATIENCE_NS,
            GATEWAY => SILENT_MAX_NS,
            _ => u64::MAX, // a client ends what it does not need
        };
        let silent = now_ns >= self.heard_ns.saturating_add(patience_ns);
        let gone = self.closed && (self.tcp.is_drained() || !self.tcp.is_open());
        let failed = self.step == Step::Broken || self.tcp.is_broken(now_ns);
        gone || failed || silent || (!useful && now_ns >= self.trial_ns)
    }

    /// When it has something to do if nothing arrives before.
    pub(in crate::world) fn next_ns(&self, now_ns: u64) -> Option<u64> {
        let trial = Some(self.trial_ns).filter(|&at| at > now_ns);
        let asks = match self.ends.0 {
            PROXY => Some(self.heard_ns + PROXY_PATIENCE_NS),
            GATEWAY => Some(self.asks_ns),
            _ => None,
        };
        earliest([self.tcp.due_ns(), trial, asks])
    }

    /// Whether it came to the gateway.
    pub(in crate::world) const fn is_accepted(&self) -> bool {
        self.ends.0 == GATEWAY
    }
}

/// Bytes of TLS that begin like this.
fn flight(begin: &[u8], len: usize) -> Vec<u8> {
    let mut flight = begin.to_vec();
    flight.resize(len, 0);
    flight
}
