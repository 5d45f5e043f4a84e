//! A peer that holds valid keys and breaks all rules, and the real end that it talks to. Everything
//! that the peer seals is authentic. Runs in virtual time, without a network between them.
//!
//! The input is a list of operations of one byte each. Some have arguments in the following bytes;
//! arguments beyond the end of the input are zero. After each step, the properties that must hold
//! for any peer are checked.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

use rove_engine::memory::MemoryEngine;
use rove_proto::crypto::{
    EpochKeys, Floor, HeaderCipher, Hello, Initiator, Nonce, PendingA, Profile, SeededRng,
    StaticSecret, Status, Suite, Token, Welcome,
};
use rove_proto::id::{LinkId, PathSerial, SessionIndex};
use rove_proto::node::{Command, Link, Meta, PeerConfig, SideConfig};
use rove_proto::role::Access;
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::control::{Lease, Prefix};
use rove_proto::wire::data::{
    HEADER_LEN, MAX_DATAGRAM, OVERHEAD, TAG_LEN, expand_number, session_index,
};
use rove_proto::wire::features::Features;
use rove_proto::wire::frame::{
    ControlAck, FEEDBACK_RUNS_MAX, Feedback, Frame, Frames, Framing, Response, emit_padding,
};
use rove_proto::wire::inner::Headers;

use crate::between::{End, HOLD_MEMORY, LISTENING, engine, gateway_address, take};
use crate::internet::Fields;

/// Operations of one run.
const OPERATIONS_MAX: usize = 150;
/// Datagrams that one call of the real end may produce: far more than it needs.
const DATAGRAMS_MAX: usize = 4_096;
/// The number of bytes that an unproven address may get for each byte from it, and the excess
/// allowed for a first answer (docs/spec/wire.md#addresses).
const AMPLIFICATION_MAX: usize = 3;
/// Where the profile ID stands in a datagram.
const PROFILE_ID_AT: usize = 5;
/// Challenges that are remembered until they are answered.
const CHALLENGES_MAX: usize = 64;
/// Paths of an epoch that the peer uses.
const PATHS: usize = 8;
/// How long the real end runs alone after the last operation.
const AFTERWARDS: Duration = Duration::from_secs(2);
/// The time in one run: longer than the key replacement interval. An end without a path works every
/// 15 ms, so more time would be slow.
const TIME_MAX: Duration = Duration::from_secs(150);
/// The client's address inside, that of [`Fields`], and the gateway's.
const INNER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
const INNER_GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The client's address outside.
const OUTER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);

/// Runs an input against the real end `victim`.
pub(crate) fn run(victim: End, input: &[u8]) {
    let _ = attack(victim, input);
}

fn attack(victim: End, input: &[u8]) -> Keyed<'_> {
    let mut keyed = Keyed::new(victim, input);
    keyed.shake_hands();
    for _ in 0..OPERATIONS_MAX {
        let Some(operation) = keyed.byte() else { break };
        keyed.operation(operation);
    }
    keyed.advance(AFTERWARDS);
    keyed
}

/// The keys of a handshake, and the next packet numbers under them.
struct Epoch {
    keys: EpochKeys,
    /// The indices that the real end issued, by path.
    theirs: [SessionIndex; PATHS],
    /// And those of this end.
    ours: [SessionIndex; PATHS],
    next: [u64; PATHS],
    heard: [Option<u64>; PATHS],
}

struct Keyed<'a> {
    victim: End,
    engine: MemoryEngine,
    client: StaticSecret,
    gateway: StaticSecret,
    rng: SeededRng,
    access: Access,
    epoch: Option<Epoch>,
    initiator: Option<Initiator>,
    half: Option<PendingA>,
    handshakes: u32,
    challenges: Vec<u64>,
    /// The source address of this end.
    from: SocketAddr,
    last: Vec<u8>,
    passed: Duration,
    /// Packets that came out of the tunnel.
    delivered: usize,
    /// Bytes from and to each unproven address; none once a challenge was answered.
    balance: Option<BTreeMap<SocketAddr, (usize, usize)>>,
    /// The addresses at which the answer to a handshake arrived.
    proven: Vec<SocketAddr>,
    input: &'a [u8],
}

impl<'a> Keyed<'a> {
    fn new(victim: End, input: &'a [u8]) -> Self {
        let mut rng = SeededRng::new(11);
        let (client, gateway) =
            (StaticSecret::generate(&mut rng), StaticSecret::generate(&mut rng));
        let now = Instant::from_nanos(1_000_000_000);
        let (own, from) = match victim {
            End::Client => (&client, gateway_address()),
            End::Gateway => (&gateway, SocketAddr::from((OUTER, 40_000))),
        };
        Self {
            victim,
            engine: engine(victim, now, own, 5),
            client,
            gateway,
            rng,
            access: access(),
            epoch: None,
            initiator: None,
            half: None,
            handshakes: 0,
            challenges: Vec::new(),
            from,
            last: Vec::new(),
            passed: Duration::from_secs(0),
            delivered: 0,
            balance: Some(BTreeMap::new()),
            proven: Vec::new(),
            input,
        }
    }

    /// Adds the peer at the real end, and begins a session.
    fn shake_hands(&mut self) {
        let (key, access, side) = match self.victim {
            End::Gateway => {
                let addresses = vec![Prefix { address: INNER.into(), bits: 24 }];
                let gateway = vec![INNER_GATEWAY.into()];
                let lease = Lease { addresses, gateway, dns: Vec::new() };
                (self.client.public(), access(), SideConfig::Client { lease })
            }
            End::Client => {
                let remotes = vec![gateway_address()];
                let advertise = Vec::new();
                let side = SideConfig::Gateway { remotes, counter: 1, token: None, advertise };
                (self.gateway.public(), Access::Unrestricted, side)
            }
        };
        let config = PeerConfig { key, psk: None, access, side };
        self.command(Command::AddPeer(Box::new(config)));
        if self.victim == End::Client {
            let link = Link { id: LinkId(1), addresses: vec![OUTER.into()], stands_by: false };
            self.command(Command::SetLinks(vec![link]));
            self.command(Command::Connect(key));
        } else {
            self.begin_handshake();
        }
        assert!(self.epoch.is_some(), "an honest handshake has keys");
    }

    fn operation(&mut self, operation: u8) {
        match operation % 16 {
            0..=2 => {
                let path = self.argument();
                let frames = self.bytes();
                self.seal(path, &frames);
            }
            3 => {
                let (path, size) = (self.argument(), self.argument());
                let mut frames = self.bytes();
                let padding = usize::from(size) * 4;
                emit_padding(&mut frames, padding);
                self.seal(path, &frames);
            }
            4 => {
                let (path, jump) = (self.argument(), self.argument() % 40);
                if let Some(epoch) = &mut self.epoch {
                    epoch.next[usize::from(path) % PATHS] += 1 << jump;
                }
            }
            5 => {
                let time = Duration::from_millis(1 << (self.argument() % 18));
                if self.passed + time <= TIME_MAX {
                    self.passed += time;
                    self.advance(time);
                }
            }
            6 => self.host_sends(),
            7 => self.answer_challenges(),
            8 => self.acknowledge(),
            9 => self.change_address(),
            10 => {
                let (path, next, beyond) = (self.argument(), self.argument(), self.argument());
                let (next, beyond) = (u32::from(next), u32::from(beyond));
                self.send(path, &[Frame::ControlAck(ControlAck { next, beyond })]);
            }
            11 => self.shake_hands_again(),
            12 | 13 => self.send_packet(operation % 16 == 13),
            14 => {
                self.change_address();
                let datagram = self.last.clone();
                self.deliver(datagram);
            }
            _ => self.advance(Duration::from_millis(20)),
        }
    }

    /// Inner packets of the real end's own host. The peer can then lie about these packets in
    /// flight.
    fn host_sends(&mut self) {
        let (count, kind, port) = (self.argument() % 8, self.argument(), self.argument());
        for place in 0..=count {
            let fields = Fields::described([kind & 6, port, place, kind >> 3, 200, 0]);
            let packet = self.towards_peer(fields.packet());
            self.engine.device.push(packet);
            self.turn();
        }
    }

    /// If the real end is the gateway, turns a packet of the client into one to the client.
    fn towards_peer(&self, mut packet: Vec<u8>) -> Vec<u8> {
        if self.victim == End::Gateway {
            turned(&mut packet)
        }
        packet
    }

    /// A packet of TCP or UDP, bare or with a number.
    fn send_packet(&mut self, numbered: bool) {
        let (path, bucket, sequence) = (self.argument(), self.argument(), self.argument());
        let fields = std::array::from_fn(|_| self.argument());
        let mut packet = Fields::described(fields).packet();
        if self.victim == End::Client {
            turned(&mut packet);
        }
        let sequence = u32::from(sequence);
        let framing = match (numbered, bucket & 1) {
            (false, _) => Framing::Plain,
            (true, 0) => Framing::Once { bucket, sequence },
            (true, _) => Framing::InOrder { bucket, sequence },
        };
        self.send(path, &[Frame::Packet { framing, packet: &packet }]);
    }

    fn answer_challenges(&mut self) {
        let path = self.argument();
        // An address that answered may get any amount.
        self.balance = None;
        for token in std::mem::take(&mut self.challenges) {
            let observed = SocketAddr::from((OUTER, 40_000));
            self.send(path, &[Frame::Response(Response { token, observed })]);
        }
    }

    /// Sends true or false acknowledgements.
    fn acknowledge(&mut self) {
        let (path, about, shift) = (self.argument(), self.argument(), self.argument());
        let (first, missing, bytes) = (self.argument(), self.argument(), self.argument());
        let place = usize::from(about) % PATHS;
        let heard = self.epoch.as_ref().and_then(|epoch| epoch.heard[place]).unwrap_or(0);
        let mut runs = [(0, 0); FEEDBACK_RUNS_MAX];
        runs[0] = (u16::from(first).into(), u16::from(missing).into());
        let largest = heard.saturating_add_signed(i64::from(shift.cast_signed()));
        let feedback = Feedback {
            serial: PathSerial(u32::try_from(place).unwrap_or(0)),
            largest,
            delay_us: u32::from(shift),
            arrived_us: u32::from(bytes),
            // The wire cannot say that more arrived than was sent.
            received: u64::from(first).min(largest + 1),
            bytes: u64::from(bytes) << 10,
            runs,
        };
        let frame = match about & 0x80 {
            0 => Frame::Feedback(feedback),
            _ => Frame::LastFeedback(feedback),
        };
        self.send(path, &[frame]);
    }

    fn change_address(&mut self) {
        let number = self.argument();
        self.from = match (number, self.victim) {
            (0, End::Client) => gateway_address(),
            (0, End::Gateway) => SocketAddr::from((OUTER, 40_000)),
            (number, _) => SocketAddr::from(([198, 51, 100, 66], 1_000 + u16::from(number))),
        };
    }

    fn shake_hands_again(&mut self) {
        if self.victim == End::Gateway {
            self.begin_handshake();
        }
    }

    fn begin_handshake(&mut self) {
        self.handshakes += 1;
        let counter = u64::from(self.handshakes);
        let first = self.handshakes * 100;
        let indices = std::array::from_fn(|place| SessionIndex(first + number(place)));
        let (features, floor, token) = (self.features(), Floor::BITS_128, None::<Token>);
        let hello = Hello { counter, features, floor, has_aes: true, token, indices };
        let key = self.gateway.public();
        let started = Initiator::start(&mut self.rng, &self.client, key, None, &hello);
        let Ok((initiator, messages)) = started else { panic!("a generated key is usable") };
        self.initiator = Some(initiator);
        self.deliver(messages.a);
        self.deliver(messages.b);
    }

    /// What this end announces: redrawn profile IDs in every second handshake.
    const fn features(&self) -> Features {
        if self.handshakes.is_multiple_of(2) { Features::PROFILES } else { Features::NONE }
    }

    /// Takes a datagram of the real end: half of a handshake, or data.
    fn hear(&mut self, datagram: &[u8]) {
        if let Some(initiator) = &mut self.initiator
            && let Ok((welcome, Some(keys))) = initiator.finish(datagram)
        {
            // A datagram sealed under these keys from this address proves that the answer arrived
            // here.
            self.proven.push(self.from);
            let first = self.handshakes * 100;
            let ours = std::array::from_fn(|place| SessionIndex(first + number(place)));
            self.begin_epoch(keys, welcome.indices, ours);
        } else if self.victim == End::Client
            && let Ok(half) = PendingA::open(&mut self.rng, &self.gateway, datagram)
        {
            self.half = Some(half);
        } else if let Some(half) = &mut self.half
            && let Ok(complete) = half.complete(datagram)
        {
            self.handshakes += 1;
            let first = 10_000 + self.handshakes * 100;
            let indices = std::array::from_fn(|place| SessionIndex(first + number(place)));
            let theirs = complete.hello().indices;
            let welcome = Welcome {
                status: Status::Accepted,
                features: self.features(),
                floor: Floor::BITS_128,
                header_cipher: HeaderCipher::Aes,
                observed: SocketAddr::from((OUTER, 40_000)),
                indices,
            };
            let answered = complete.respond(&mut self.rng, None, &welcome);
            let Ok((response, Some(keys))) = answered else { return };
            self.begin_epoch(keys, theirs, indices);
            self.deliver(response);
        } else {
            self.open(datagram);
        }
    }

    fn begin_epoch(
        &mut self,
        keys: EpochKeys,
        theirs: [SessionIndex; PATHS],
        ours: [SessionIndex; PATHS],
    ) {
        let (next, heard) = ([0; PATHS], [None; PATHS]);
        self.epoch = Some(Epoch { keys, theirs, ours, next, heard });
    }

    fn open(&mut self, datagram: &[u8]) {
        let Some(epoch) = &mut self.epoch else { return };
        let Ok(index) = session_index(datagram) else { return };
        let Some(path) = epoch.ours.iter().position(|ours| *ours == index) else { return };
        let Ok(unmasked) = epoch.keys.open.unmask(datagram) else { return };
        let number = expand_number(epoch.heard[path], unmasked.number);
        let serial = PathSerial(u32::try_from(path).unwrap_or(0));
        let mut datagram = datagram.to_vec();
        let opened = epoch.keys.open.open(serial, number, &unmasked, &mut datagram);
        let Ok(frames) = opened else { return };
        epoch.heard[path] = epoch.heard[path].max(Some(number));
        for frame in Frames::new(frames) {
            let frame = frame.expect("the real end says what can be read");
            if let Frame::Challenge(challenge) = frame
                && self.challenges.len() < CHALLENGES_MAX
            {
                self.challenges.push(challenge.token);
            }
        }
    }

    fn send(&mut self, path: u8, frames: &[Frame<'_>]) {
        let mut bytes = Vec::new();
        for frame in frames {
            frame.emit(&mut bytes);
        }
        self.seal(path, &bytes);
    }

    /// Seals frames, whatever they are, for the path `path` of the latest epoch. The rest of `path`
    /// says which profile: in a padded one, the last two bytes of `frames` pass for padding.
    fn seal(&mut self, path: u8, frames: &[u8]) {
        let Some(epoch) = &mut self.epoch else { return };
        if frames.is_empty() {
            return;
        }
        let frames = &frames[..frames.len().min(MAX_DATAGRAM - OVERHEAD)];
        let place = usize::from(path) % PATHS;
        let choice = usize::from(path >> 3);
        let suite = Suite::ALL[choice % Suite::ALL.len()];
        let is_padded = epoch.keys.seal.has_all_profiles() && choice / Suite::ALL.len() % 2 == 1;
        let number = epoch.next[place];
        epoch.next[place] += 1;
        let serial = PathSerial(u32::try_from(place).unwrap_or(0));
        let mut datagram = vec![0; HEADER_LEN];
        datagram.extend_from_slice(frames);
        datagram.resize(datagram.len() + TAG_LEN, 0);
        let nonce = Nonce { serial, number };
        if !suite.meets(epoch.keys.seal.floor()) {
            let strong = Profile::whole(Suite::Aes256Gcm);
            epoch.keys.seal.seal(epoch.theirs[place], strong, nonce, &mut datagram);
            self.claim_another_profile(datagram, number);
            return;
        }
        let profile = Profile::whole(suite);
        let profile = if is_padded { profile.padded() } else { profile };
        epoch.keys.seal.seal(epoch.theirs[place], profile, nonce, &mut datagram);
        self.deliver(datagram);
    }

    /// Gives a sealed datagram another profile ID, perhaps one that means a suite below the real
    /// end's floor. It has to be dropped and counted.
    fn claim_another_profile(&mut self, mut datagram: Vec<u8>, number: u64) {
        let drops =
            |keyed: &Self| keyed.engine.node().drops().iter().map(|(_, count)| count).sum::<u64>();
        let change = number % 255 + 1;
        datagram[PROFILE_ID_AT] ^= u8::try_from(change).unwrap_or(1);
        let before = drops(self);
        let is_reached = self.victim == End::Gateway || !self.engine.sockets.bound().is_empty();
        self.deliver(datagram);
        assert!(!is_reached || drops(self) > before, "another profile was taken");
    }

    fn deliver(&mut self, datagram: Vec<u8>) {
        self.last.clone_from(&datagram);
        let (socket, local) = match self.victim {
            End::Gateway => (LISTENING, None),
            End::Client => {
                let open = self.engine.sockets.bound();
                let Some((socket, local)) = open.last_key_value() else { return };
                (*socket, Some(*local))
            }
        };
        let meta = Meta { socket, local, remote: self.from, waited: Duration::ZERO };
        if let Some(balance) = &mut self.balance {
            balance.entry(self.from).or_default().0 += datagram.len();
        }
        self.engine.sockets.push(meta, datagram);
        self.turn();
    }

    fn command(&mut self, command: Command) {
        self.engine.command(command);
        self.turn();
    }

    /// Time passes; what falls due on the way is done at its time.
    fn advance(&mut self, time: Duration) {
        let end = self.engine.clock.now + time;
        while self.engine.clock.now < end {
            let next = self.engine.due().map_or(end, |(at, _)| at);
            self.engine.clock.now = next.clamp(self.engine.clock.now, end);
            self.turn();
        }
    }

    /// A turn of the real end; then checks the properties.
    fn turn(&mut self) {
        self.engine.turn();
        assert_eq!(self.engine.overdue(), None, "a timer is still due");
        let held = self.engine.node().held_bytes();
        assert!(held <= HOLD_MEMORY, "{held} bytes held");
        let (_, sent, written) = take(&mut self.engine);
        for packet in written {
            self.came_out(&packet);
        }
        assert!(sent.len() <= DATAGRAMS_MAX, "{} datagrams at once", sent.len());
        for sent in sent {
            assert!(sent.bound.is_some(), "a socket is open while datagrams use it");
            self.is_balanced(sent.route.remote, sent.datagram.len());
            self.hear(&sent.datagram);
        }
    }

    /// An unproven address gets at most three times the bytes that came from it. A client sends
    /// first, to the gateway's address, which the operator vouches for.
    fn is_balanced(&mut self, to: SocketAddr, len: usize) {
        if self.victim == End::Client && to == gateway_address() {
            return;
        }
        let Some(balance) = self.balance.as_mut().filter(|_| !self.proven.contains(&to)) else {
            return;
        };
        let (came, went) = balance.entry(to).or_default();
        *went += len;
        assert!(*went <= AMPLIFICATION_MAX * *came, "{to} got {went} bytes for {came}");
    }

    /// Checks that a packet out of the tunnel is whole and, at a gateway, has the client's source
    /// address.
    fn came_out(&mut self, packet: &[u8]) {
        self.delivered += 1;
        let view = Headers::parse(packet, packet.len()).expect("a packet that the device takes");
        if self.victim == End::Gateway {
            let admitted = self.access.admit(&view);
            assert!(admitted.is_ok(), "{} to {}: {admitted:?}", view.source, view.destination);
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.input.split_first()?;
        self.input = rest;
        Some(*byte)
    }

    fn argument(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }

    /// Bytes with their length before them.
    fn bytes(&mut self) -> Vec<u8> {
        let length = usize::from(self.argument()).min(self.input.len());
        let (bytes, rest) = self.input.split_at(length);
        self.input = rest;
        bytes.to_vec()
    }
}

/// The client's permissions.
fn access() -> Access {
    Access::Restricted {
        own: vec![Prefix::host(INNER.into())],
        gateway: vec![INNER_GATEWAY.into()],
        internet: true,
        local: vec![Prefix { address: Ipv4Addr::new(198, 51, 100, 128).into(), bits: 25 }],
        allow: Vec::new(),
    }
}

/// The packet's answer: addresses and ports change places, which no checksum minds.
fn turned(packet: &mut [u8]) {
    let (addresses, ports) = if packet[0] >> 4 == 6 { (8, 40) } else { (12, 20) };
    let size = if packet[0] >> 4 == 6 { 16 } else { 4 };
    let (source, destination) = packet[addresses..addresses + 2 * size].split_at_mut(size);
    source.swap_with_slice(destination);
    let (source, destination) = packet[ports..ports + 4].split_at_mut(2);
    source.swap_with_slice(destination);
}

fn number(place: usize) -> u32 {
    u32::try_from(place).unwrap_or(0) + 1
}

/// Inputs for either end: every kind of frame in a session that carries, and every operation.
pub(crate) fn seeds(frames: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let mut seeds = vec![
        // A session that behaves: traffic, answers to challenges, acknowledgements, moves.
        vec![15, 7, 0, 6, 3, 0, 80, 12, 0, 0, 0, 0, 80, 1, 0, 100, 0, 15, 8, 0, 0, 0, 4, 0, 4, 15],
        vec![
            6, 7, 2, 53, 15, 8, 1, 0, 200, 3, 1, 9, 15, 5, 12, 6, 7, 2, 53, 8, 0, 0x80, 9, 0, 0, 0,
        ],
        vec![9, 5, 12, 1, 0, 0, 0, 80, 1, 0, 100, 0, 15, 7, 1, 14, 6, 14, 7, 9, 0, 15],
        // TCP from its beginning, with gaps, under new keys.
        vec![
            13, 0, 1, 0, 0, 80, 0, 2, 0, 0, 13, 0, 1, 2, 0, 80, 1, 0, 90, 0, 11, 13, 0, 1, 1, 5, 17,
        ],
        vec![4, 0, 31, 12, 0, 0, 0, 4, 9, 9, 0, 30, 0, 10, 0, 200, 0, 10, 1, 1, 255, 5, 16],
        // Profile IDs that claim another suite, fixed ones and redrawn ones; then padding.
        vec![
            12, 8, 0, 0, 0, 80, 1, 0, 100, 0, 12, 8, 0, 0, 0, 80, 1, 0, 100, 0, 11, 12, 8, 0, 0, 0,
            80, 1, 0, 100, 0, 0, 24, 4, 0, 0, 0, 3, 0, 24, 3, 0, 0, 9, 15,
        ],
    ];
    for frame in frames {
        let length = u8::try_from(frame.len()).unwrap_or(u8::MAX);
        let sealed = [&[0, 0, length], &frame[..usize::from(length)]].concat();
        seeds.push([&[6, 2, 0, 80][..], &sealed, &[15, 7, 0], &sealed, &[15]].concat());
    }
    seeds
}

#[cfg(test)]
#[path = "keyed_tests.rs"]
mod tests;
