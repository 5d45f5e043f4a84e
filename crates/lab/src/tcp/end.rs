//! One end of a TCP connection: what a test does with it and sees of it.
//!
//! Segments come in by [`End::arrives`] and go out by [`End::leaving`]; [`End::due_ns`] says when
//! to call that again. The law, tested: after `leaving(t)`, `due_ns()` is `None` or later than `t`,
//! until something is written, read, closed or arrives.

mod arrival;
mod sight;

use std::net::SocketAddr;

use super::clock::Clock;
use super::congestion::{CongestionControl, Control};
use super::numbering::{Numbering, ORIGIN};
use super::opening::{LINEAR, Opening};
use super::receiver::Receiver;
use super::rtt::RTO_MAX_NS;
use super::segment::{Flags, Options, SACKS_MAX, Segment, Timestamps};
use super::sender::{Fired, Piece, Sender, Terms};
use super::wheel::fires_ns;
use crate::emu::{MS, SECOND, earliest};

/// Headers that every segment has: IPv4 or IPv6, and TCP.
const HEADERS_V4: u16 = 40;
/// See [`HEADERS_V4`].
const HEADERS_V6: u16 = 60;
/// What the timestamps option takes of a payload.
const TIMESTAMPS_BYTES: u32 = 12;
/// The shortest payload that an end lets itself be talked into (`tcp_min_snd_mss`).
const MSS_MIN: u32 = 48;
/// What the other end takes if it does not say (RFC 9293, 3.7.1).
const MSS_UNSAID: u16 = 536;
/// The largest shift of windows (RFC 7323, 2.3).
const SHIFT_MAX: u8 = 14;
/// How often a segment that lies outside of the window is answered (`tcp_invalid_ratelimit`).
const CHALLENGE_EVERY_NS: u64 = 500 * MS;

/// How an end is set up.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Its own address and port.
    pub local: SocketAddr,
    /// The other's, of the same family.
    pub remote: SocketAddr,
    /// The sequence number of its SYN.
    pub initial_sequence: u32,
    /// Where the clock of its timestamps begins, and BBR's chance.
    pub seed: u64,
    /// The longest packet that it takes and sends, in bytes.
    pub mtu: u16,
    /// How it controls congestion.
    pub congestion: CongestionControl,
    /// Bytes that may wait to be read; at most 1 GiB.
    pub receive_buffer: u64,
    /// Timestamps are offered and understood (RFC 7323).
    pub timestamps: bool,
    /// SACK blocks are offered and understood (RFC 2018).
    pub sack: bool,
    /// Window scaling is offered and understood (RFC 7323).
    pub window_scaling: bool,
    /// Short segments do not wait for an acknowledgment (TCP_NODELAY).
    pub no_delay: bool,
    /// `tcp_retries2`: how often a segment is sent again, as a measure of time.
    pub retries: u32,
    /// `tcp_syn_retries`, and `tcp_synack_retries`.
    pub opening_retries: u32,
    /// TCP_USER_TIMEOUT: how long sent data may stay unacknowledged, in place of `retries`.
    pub user_timeout_ns: Option<u64>,
    /// TCP_RTO_MAX_MS: the longest retransmission timeout, in nanoseconds.
    pub rto_max_ns: u64,
    /// Whether and how an idle connection is probed.
    pub keep_alive: Option<KeepAlive>,
    /// How long the end that closes first remembers, in nanoseconds.
    pub time_wait_ns: u64,
}

/// TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeepAlive {
    /// Silence before the first probe, in nanoseconds.
    pub idle_ns: u64,
    /// Time between two probes.
    pub interval_ns: u64,
    /// Probes without an answer that end the connection.
    pub probes: u32,
}

/// Where a connection is (RFC 9293, 3.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the RFC's")]
pub enum State {
    Listen,
    SynSent,
    SynReceived,
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
    TimeWait,
    Closed,
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Both ends closed it and know.
    Finished,
    /// The other end reset it, or something in its name.
    ResetByPeer,
    /// This end gave it up ([`End::abort`]).
    Aborted,
    /// Nobody took it.
    Refused,
    /// The SYN was never answered.
    Unanswered,
    /// What was sent was never acknowledged, or a closed window never spoken of (`tcp_retries2`).
    TimedOut,
    /// Keep-alive probes were not answered.
    KeepAlive,
}

/// What an end counted beside what its sender did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EndStats {
    /// Packets that were no segments: a wrong checksum above all.
    pub malformed: u64,
    /// Segments of another connection.
    pub foreign: u64,
    /// Segments outside of the window.
    pub unacceptable: u64,
    /// Segments with a timestamp from before (PAWS).
    pub outdated: u64,
    /// Challenge acknowledgments (RFC 5961).
    pub challenges: u64,
    /// Resets that left.
    pub resets: u64,
}

/// One end.
#[derive(Debug)]
pub struct End {
    pub(super) config: Config,
    pub(super) clock: Clock,
    pub(super) phase: Phase,
    pub(super) sender: Sender,
    pub(super) receiver: Receiver,
    /// By how many bits windows are shifted: ours in what we send, theirs in what arrives.
    pub(super) shifts: (u8, u8),
    pub(super) passive_close: bool,
    /// Packets that answer what has arrived and depend on nothing else.
    pub(super) replies: Vec<Vec<u8>>,
    pub(super) challenged_ns: Option<u64>,
    keep_alive_ns: Option<u64>,
    pub(super) stats: EndStats,
}

/// How far it is; between open and closed the two halves know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Listen,
    SynSent(Opening),
    SynReceived(Opening),
    Open,
    TimeWait { until_ns: u64 },
    Closed(Ending),
}

impl Config {
    /// As Linux is set up, with CUBIC and 6 MB of receive buffer.
    pub const fn new(local: SocketAddr, remote: SocketAddr, seed: u64) -> Self {
        Self {
            local,
            remote,
            initial_sequence: (seed ^ (seed >> 32)) as u32,
            seed,
            mtu: 1_500,
            congestion: CongestionControl::Cubic,
            receive_buffer: 6 << 20,
            timestamps: true,
            sack: true,
            window_scaling: true,
            no_delay: false,
            retries: 15,
            opening_retries: 6,
            user_timeout_ns: None,
            rto_max_ns: RTO_MAX_NS,
            keep_alive: None,
            time_wait_ns: SECOND,
        }
    }

    const fn headers(&self) -> u16 {
        if self.local.is_ipv4() { HEADERS_V4 } else { HEADERS_V6 }
    }

    /// The longest payload that it takes, as its SYN says.
    const fn announced_mss(&self) -> u16 {
        self.mtu.saturating_sub(self.headers())
    }

    /// The smallest shift by which the buffer fits in the header's field.
    const fn shift(&self) -> u8 {
        let mut shift = 0;
        while shift < SHIFT_MAX && (self.receive_buffer >> shift) > 65_535 {
            shift += 1;
        }
        if self.window_scaling { shift } else { 0 }
    }
}

impl End {
    /// An end that opens the connection.
    pub fn connect(config: Config, now_ns: u64) -> Self {
        let mut end = Self::listen(config);
        end.phase = Phase::SynSent(Opening::new(now_ns));
        end
    }

    /// An end that waits for the other to open it.
    ///
    /// # Panics
    /// When the two addresses are of different families: no packet could carry them.
    pub fn listen(config: Config) -> Self {
        assert_eq!(config.local.is_ipv4(), config.remote.is_ipv4(), "one family");
        let terms = Terms {
            mss: u32::from(MSS_UNSAID),
            timestamps: config.timestamps,
            sack: config.sack,
            no_delay: config.no_delay,
            retries: config.retries,
            user_timeout_ns: config.user_timeout_ns,
            rto_max_ns: config.rto_max_ns,
        };
        let control = Control::new(config.congestion, terms.mss, config.seed);
        let numbering = Numbering::new(config.initial_sequence);
        let shift = config.shift();
        Self {
            config,
            clock: Clock::new((config.seed >> 7) as u32),
            phase: Phase::Listen,
            sender: Sender::new(numbering, terms, control, 0),
            receiver: Receiver::new(Numbering::new(0), config.receive_buffer, shift),
            shifts: (shift, 0),
            passive_close: false,
            replies: Vec::new(),
            challenged_ns: None,
            keep_alive_ns: None,
            stats: EndStats::default(),
        }
    }

    /// Gives bytes to send; takes as many as there is room for and says how many.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        match self.phase {
            Phase::Closed(_) | Phase::TimeWait { .. } => 0,
            Phase::Listen | Phase::SynSent(_) | Phase::SynReceived(_) | Phase::Open => {
                self.sender.write(bytes)
            }
        }
    }

    /// What has arrived in order, up to so many bytes; makes room for more.
    pub fn read(&mut self, most: usize) -> Vec<u8> {
        self.receiver.read(most)
    }

    /// No more bytes will be written; a FIN follows the last.
    pub const fn close(&mut self) {
        self.sender.closing = true;
    }

    /// Ends the connection at once, with a reset.
    pub fn abort(&mut self, now_ns: u64) {
        match self.phase {
            Phase::SynReceived(_) | Phase::Open => {
                self.reset_peer(now_ns);
                self.phase = Phase::Closed(Ending::Aborted);
            }
            Phase::Listen | Phase::SynSent(_) | Phase::TimeWait { .. } => {
                self.phase = Phase::Closed(Ending::Aborted);
            }
            Phase::Closed(_) => {}
        }
    }

    /// The packets that leave now.
    pub fn leaving(&mut self, now_ns: u64) -> Vec<Vec<u8>> {
        let mut packets = std::mem::take(&mut self.replies);
        match self.phase {
            Phase::Listen | Phase::Closed(_) => {}
            Phase::SynSent(_) | Phase::SynReceived(_) => self.open_again(now_ns, &mut packets),
            Phase::Open => self.run(now_ns, &mut packets),
            Phase::TimeWait { until_ns } => {
                if self.receiver.is_due(now_ns) {
                    packets.push(self.bare(now_ns));
                }
                if now_ns >= until_ns {
                    self.phase = Phase::Closed(Ending::Finished);
                }
            }
        }
        packets
    }

    /// When [`End::leaving`] has something to do if nothing arrives before; a moment that has
    /// passed means now.
    pub fn due_ns(&self) -> Option<u64> {
        if !self.replies.is_empty() {
            return Some(0);
        }
        match self.phase {
            Phase::Listen | Phase::Closed(_) => None,
            Phase::SynSent(opening) | Phase::SynReceived(opening) => Some(opening.again_ns),
            Phase::Open => {
                let Self { sender, receiver, .. } = self;
                let now = receiver.is_due(0).then_some(0);
                let (timer, ready) = (sender.timer.at_ns(), sender.ready_ns());
                earliest([timer, ready, receiver.due_ns(), self.keep_alive_ns, now])
            }
            Phase::TimeWait { until_ns } => earliest([Some(until_ns), self.receiver.due_ns()]),
        }
    }

    /// The SYN leaves, or leaves again, or has left often enough.
    fn open_again(&mut self, now_ns: u64, packets: &mut Vec<Vec<u8>>) {
        let (mut opening, acknowledges) = match self.phase {
            Phase::SynSent(opening) => (opening, false),
            Phase::SynReceived(opening) => (opening, true),
            Phase::Listen | Phase::Open | Phase::TimeWait { .. } | Phase::Closed(_) => return,
        };
        if opening.again_ns > now_ns {
            return;
        }
        if opening.sent > self.config.opening_retries {
            self.phase = Phase::Closed(Ending::Unanswered);
            return;
        }
        let linear = if acknowledges { 0 } else { LINEAR };
        opening.sends(now_ns, linear, self.config.rto_max_ns);
        packets.push(self.opening_packet(now_ns, acknowledges));
        self.phase =
            if acknowledges { Phase::SynReceived(opening) } else { Phase::SynSent(opening) };
    }

    /// What is open runs: timers first, then what may leave, then what only acknowledges.
    fn run(&mut self, now_ns: u64, packets: &mut Vec<Vec<u8>>) {
        let mut pieces = Vec::new();
        match self.sender.fire(now_ns, &mut pieces) {
            Fired::Nothing => {}
            Fired::WindowProbe => packets.push(self.probe(now_ns)),
            Fired::Dead => {
                self.phase = Phase::Closed(Ending::TimedOut);
                return;
            }
        }
        pieces.extend(self.sender.transmit(now_ns));
        for piece in pieces {
            packets.push(self.segment(now_ns, piece));
        }
        if self.receiver.is_due(now_ns) {
            packets.push(self.bare(now_ns));
        }
        self.keep_alive(now_ns, packets);
    }

    /// `tcp_keepalive_timer`.
    fn keep_alive(&mut self, now_ns: u64, packets: &mut Vec<Vec<u8>>) {
        let (Some(KeepAlive { idle_ns, interval_ns, probes }), Some(at_ns)) =
            (self.config.keep_alive, self.keep_alive_ns)
        else {
            return;
        };
        if at_ns > now_ns {
            return;
        }
        let busy = !self.sender.board.is_empty() || self.sender.has_unsent();
        let heard_ns = self.sender.heard_ns.max(self.receiver.last_data_ns().unwrap_or(0));
        let silent_ns = now_ns - heard_ns;
        let wait_ns = if busy {
            idle_ns
        } else if silent_ns < idle_ns {
            idle_ns - silent_ns
        } else if self.sender.unanswered >= probes {
            self.reset_peer(now_ns);
            packets.append(&mut self.replies);
            self.phase = Phase::Closed(Ending::KeepAlive);
            return;
        } else {
            self.sender.unanswered += 1;
            packets.push(self.probe(now_ns));
            interval_ns
        };
        self.keep_alive_ns = Some(fires_ns(now_ns, wait_ns));
    }

    /// The other end's SYN has arrived: what both agreed on.
    pub(super) fn agree(&mut self, segment: &Segment) {
        let Config { timestamps, sack, window_scaling, receive_buffer, .. } = self.config;
        let options = &segment.options;
        let timestamps = timestamps && options.timestamps.is_some();
        let scaling = window_scaling && options.window_scale.is_some();
        let mss = options.mss.unwrap_or(MSS_UNSAID).min(self.config.announced_mss());
        let taken = if timestamps { TIMESTAMPS_BYTES } else { 0 };
        self.shifts = match options.window_scale.filter(|_| scaling) {
            Some(theirs) => (self.config.shift(), theirs.min(SHIFT_MAX)),
            None => (0, 0),
        };
        let terms = &mut self.sender.terms;
        terms.mss = u32::from(mss).saturating_sub(taken).max(MSS_MIN);
        terms.timestamps = timestamps;
        terms.sack = sack && options.sack_permitted;
        let (congestion, seed) = (self.config.congestion, self.config.seed);
        self.sender.control = Control::new(congestion, terms.mss, seed);
        let numbering = Numbering::new(segment.sequence);
        self.receiver = Receiver::new(numbering, receive_buffer, self.shifts.0);
    }

    /// Both ends know: `from` is the position of the segment that says so, `window` what it
    /// offers, and `rtt_ns` how long the handshake took if that is known.
    pub(super) fn opened(&mut self, now_ns: u64, from: u64, window: u64, opening: Opening) {
        self.phase = Phase::Open;
        let sender = &mut self.sender;
        sender.heard_ns = now_ns;
        sender.sent_ns = now_ns;
        sender.window = window;
        sender.window_max = window;
        sender.window_from = from;
        if let Some(rtt_ns) = opening.rtt_ns(now_ns) {
            sender.rtt.sample(rtt_ns, ORIGIN + 1, ORIGIN + 1);
            sender.rtt.sample_shortest(now_ns, rtt_ns);
        }
        if opening.was_hard() {
            // RFC 6298, 5.7: the path may be full.
            sender.congestion.segments = 1;
        }
        let srtt_ns = sender.rtt.smoothed_ns();
        sender.control.open(now_ns, &sender.congestion, srtt_ns);
        self.keep_alive_ns = self.config.keep_alive.map(|keep| fires_ns(now_ns, keep.idle_ns));
    }

    /// A part of the stream as a packet.
    fn segment(&mut self, now_ns: u64, piece: Piece) -> Vec<u8> {
        let Piece { from, bytes, fin, push } = piece;
        let flags = Flags { fin, psh: push && !bytes.is_empty(), ..Flags::default() };
        self.packet(now_ns, from, flags, bytes)
    }

    /// A mere acknowledgment.
    fn bare(&mut self, now_ns: u64) -> Vec<u8> {
        self.packet(now_ns, self.sender.next, Flags::default(), Vec::new())
    }

    /// An empty segment below the window, which any end answers (`tcp_xmit_probe_skb`).
    fn probe(&mut self, now_ns: u64) -> Vec<u8> {
        self.packet(now_ns, self.sender.una - 1, Flags::default(), Vec::new())
    }

    fn packet(&mut self, now_ns: u64, from: u64, flags: Flags, payload: Vec<u8>) -> Vec<u8> {
        let offer = self.receiver.offer();
        let Terms { timestamps, sack, .. } = self.sender.terms;
        let value = self.clock.value(now_ns);
        let mut sacks = if sack { offer.sacks } else { Vec::new() };
        sacks.truncate(SACKS_MAX + usize::from(!timestamps));
        let options = Options {
            timestamps: timestamps.then_some(Timestamps { value, echo: offer.echo }),
            sacks,
            ..Options::default()
        };
        let sequence = self.sender.numbering.wire(from);
        let acknowledgment = Some(offer.acknowledgment);
        let window = offer.window;
        Segment { sequence, acknowledgment, flags, window, options, payload, ..self.blank() }.emit()
    }

    /// The SYN, or the SYN that acknowledges one.
    pub(super) fn opening_packet(&mut self, now_ns: u64, acknowledges: bool) -> Vec<u8> {
        let Terms { timestamps, sack, .. } = self.sender.terms;
        let scaling = if acknowledges { self.shifts != (0, 0) } else { self.config.window_scaling };
        let offer = self.receiver.offer();
        let options = Options {
            mss: Some(self.config.announced_mss()),
            window_scale: scaling.then_some(self.config.shift()),
            sack_permitted: sack,
            timestamps: timestamps
                .then(|| Timestamps { value: self.clock.value(now_ns), echo: offer.echo }),
            sacks: Vec::new(),
        };
        let window = self.config.receive_buffer.min(65_535) as u16;
        let segment = Segment {
            sequence: self.sender.numbering.wire(ORIGIN),
            acknowledgment: acknowledges.then_some(offer.acknowledgment),
            flags: Flags { syn: true, ..Flags::default() },
            window,
            options,
            ..self.blank()
        };
        segment.emit()
    }

    /// A reset that the other end accepts, among the replies.
    pub(super) fn reset_peer(&mut self, now_ns: u64) {
        let flags = Flags { rst: true, ..Flags::default() };
        let packet = self.packet(now_ns, self.sender.next, flags, Vec::new());
        self.replies.push(packet);
        self.stats.resets += 1;
    }

    /// Tells the other end what is missing, but not more often than that (RFC 5961, 7).
    pub(super) fn challenge(&mut self, now_ns: u64) {
        let lately = |before_ns: u64| now_ns.saturating_sub(before_ns) < CHALLENGE_EVERY_NS;
        if self.challenged_ns.is_some_and(lately) {
            return;
        }
        self.challenged_ns = Some(now_ns);
        self.stats.challenges += 1;
        self.receiver.answer_now();
    }

    pub(super) fn blank(&self) -> Segment {
        Segment {
            source: self.config.local,
            destination: self.config.remote,
            sequence: 0,
            acknowledgment: None,
            flags: Flags::default(),
            window: 0,
            options: Options::default(),
            payload: Vec::new(),
        }
    }
}
