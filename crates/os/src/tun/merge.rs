//! Joining consecutive packets of a flow into one super-packet for the kernel.
//!
//! Writing 40 segments of a TCP flow as one 64 kB packet costs one walk through the kernel's stack
//! instead of 40. The rules are those of the kernel's own receive offload (`tcp_gro_receive`,
//! `udp_gro_receive`), with one addition, which is the law of this module: cutting the result
//! again gives the very packets that went in. So nothing is joined that differs in any field that
//! [`super::split`] does not recreate, and nothing whose checksums do not verify: a corrupted
//! packet must reach the receiver as such, not be made whole. A packet whose checksum was left out
//! is not summed here: the super-packet has a checksum of its own.
//!
//! A batch may hold several bare acknowledgements of one flow. The newest is written, and the
//! others are not if it says all that they say (ACK filtering, RFC 3449). All of them would reach
//! their receiver in the same moment, and each would be answered with a few segments. One is
//! answered with a large super-packet, which costs both ends of the tunnel far less.
//!
//! Packets of one flow leave in the order in which they came; flows may overtake each other.
//! Payload is borrowed, never copied. At most [`BATCH_MAX`] packets and [`RUNS_MAX`] flows are
//! looked at together: a batch ends all runs, so it has room for what one receive brings.

use super::{
    checksum::{fold, pseudo_header, sum},
    packet::Packet,
    split::HEADER_LEN_MAX,
    vnet::{Checksum, Gso, Vnet},
};

/// Packets that are looked at together.
pub(crate) const BATCH_MAX: usize = 512;
/// Packets of one super-packet.
pub(crate) const RUN_MAX: usize = 128;
/// Flows of a batch that can be open for joining at once; the oldest is closed for another.
pub(crate) const RUNS_MAX: usize = 16;
/// Bytes of a super-packet: the most that the length field of IPv4 can say.
const SUPER_LEN_MAX: usize = 65_535;

const IPV4_HEADER_LEN: usize = 20;
const IPV6_HEADER_LEN: usize = 40;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const TCP_HEADER_LEN_MIN: usize = 20;
const TCP_CHECKSUM: u16 = 16;
const UDP_HEADER_LEN: usize = 8;
const UDP_CHECKSUM: u16 = 6;
const FLAG_PSH: u8 = 0x08;
const FLAG_ACK: u8 = 0x10;
/// The only options that may stand in an acknowledgement that another replaces: timestamps, after
/// two bytes of padding (RFC 7323, appendix A).
const TIMESTAMPS: [u8; 4] = [1, 1, 8, 10];
const TIMESTAMPS_LEN: usize = 12;
/// Of the field with flags and fragment offset: everything but "don't fragment".
const FRAGMENT_BITS: u8 = 0xbf;

/// What may be joined, as agreed with the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Allowed {
    pub(crate) tcp: bool,
    pub(crate) udp: bool,
}

/// One thing to write.
#[derive(Debug)]
pub(crate) enum Output<'a, 'b> {
    /// A packet as it came, and whether its checksum was found right.
    Single { packet: Packet<'a>, verified: bool },
    /// Several packets of one flow.
    Super {
        vnet: Vnet,
        /// Header of the whole.
        header: &'b [u8],
        /// Payload of each packet, in order.
        payloads: &'b [&'a [u8]],
        /// The packets themselves, should the kernel refuse the whole.
        packets: &'b [Packet<'a>],
    },
}

/// Passes `packets`, of which there are at most [`BATCH_MAX`], to `emit`, joined where possible.
pub(crate) fn merge<'a>(
    packets: &[Packet<'a>],
    allowed: Allowed,
    emit: &mut impl FnMut(Output<'a, '_>),
) {
    assert!(packets.len() <= BATCH_MAX, "the caller cuts its batches");
    let mut batch = Batch { packets, next: [END; BATCH_MAX], runs: [const { None }; RUNS_MAX] };
    for (index, &packet) in packets.iter().enumerate() {
        match inspect(packet, allowed) {
            Inspected::Candidate(candidate) => batch.take(index as u16, candidate, emit),
            Inspected::OfFlow(flow) => {
                batch.close_flow(&flow, packet.bytes(), emit);
                emit(Output::Single { packet, verified: false });
            }
            Inspected::OfNoFlow => {
                // A fragment, perhaps, of a flow that is open.
                batch.close_all(emit);
                emit(Output::Single { packet, verified: false });
            }
            Inspected::Alone => emit(Output::Single { packet, verified: false }),
        }
    }
    batch.close_all(emit);
}

/// The end of a list of packets.
const END: u16 = u16::MAX;
const _: () = assert!(BATCH_MAX <= END as usize);

/// A packet that may be joined with others.
#[derive(Clone, Copy)]
struct Candidate {
    flow: Flow,
    header_len: usize,
    payload_len: usize,
    /// TCP sequence number; zero for UDP.
    sequence: u32,
    /// The sender asked for delivery: nothing is joined behind it.
    push: bool,
}

impl Candidate {
    /// Whether it is a bare acknowledgement.
    const fn is_bare(&self) -> bool {
        self.payload_len == 0
    }

    /// What the packet behind it must carry as its sequence number.
    fn next_sequence(&self) -> u32 {
        match self.flow.protocol {
            PROTOCOL_TCP => self.sequence.wrapping_add(self.payload_len as u32),
            _ => self.sequence,
        }
    }
}

/// Where in a packet its flow is named.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Flow {
    v6: bool,
    protocol: u8,
    /// IP header in bytes; the ports follow.
    ip_len: usize,
}

impl Flow {
    /// Whether two packets with this layout are of the same flow.
    fn same(self, one: &[u8], other: &[u8]) -> bool {
        let addresses = if self.v6 { 8..IPV6_HEADER_LEN } else { 12..IPV4_HEADER_LEN };
        let ports = self.ip_len..self.ip_len + 4;
        one[addresses.clone()] == other[addresses] && one[ports.clone()] == other[ports]
    }

    fn addresses(self, packet: &[u8]) -> &[u8] {
        if self.v6 { &packet[8..IPV6_HEADER_LEN] } else { &packet[12..IPV4_HEADER_LEN] }
    }
}

enum Inspected {
    /// May be joined.
    Candidate(Candidate),
    /// Must not be joined, nor overtake the packets of its flow.
    OfFlow(Flow),
    /// Belongs to no flow that can be told: must overtake nothing.
    OfNoFlow,
    /// Belongs to a flow that is never joined.
    Alone,
}

fn inspect(whole: Packet<'_>, allowed: Allowed) -> Inspected {
    let packet = whole.bytes();
    let Some(flow) = flow_of(packet) else { return Inspected::OfNoFlow };
    let wanted = if flow.protocol == PROTOCOL_TCP { allowed.tcp } else { allowed.udp };
    if !wanted {
        return Inspected::Alone;
    }
    let candidate = match flow.protocol {
        PROTOCOL_TCP => tcp_candidate(packet, flow),
        _ => udp_candidate(whole, flow),
    };
    match candidate {
        Some(candidate)
            if ip_header_is_sound(packet, flow)
                && (whole.lacks_checksum() || checksum_is_right(packet, flow)) =>
        {
            Inspected::Candidate(candidate)
        }
        Some(_) | None => Inspected::OfFlow(flow),
    }
}

/// The flow of a TCP or UDP packet without IP options, extension headers or fragmentation.
fn flow_of(packet: &[u8]) -> Option<Flow> {
    let (v6, protocol, ip_len) = match packet.first()? {
        0x45 if packet.len() >= IPV4_HEADER_LEN => {
            let fragmented = packet[6] & FRAGMENT_BITS != 0 || packet[7] != 0;
            if fragmented {
                return None;
            }
            (false, packet[9], IPV4_HEADER_LEN)
        }
        0x60..=0x6f if packet.len() >= IPV6_HEADER_LEN => (true, packet[6], IPV6_HEADER_LEN),
        _ => return None,
    };
    let transport_len = match protocol {
        PROTOCOL_TCP => TCP_HEADER_LEN_MIN,
        PROTOCOL_UDP => UDP_HEADER_LEN,
        _ => return None,
    };
    (packet.len() >= ip_len + transport_len).then_some(Flow { v6, protocol, ip_len })
}

fn tcp_candidate(packet: &[u8], flow: Flow) -> Option<Candidate> {
    let tcp = &packet[flow.ip_len..];
    let tcp_len = usize::from(tcp[12] >> 4) * 4;
    let flags = tcp[13];
    let header_len = flow.ip_len + tcp_len;
    let plain = flags & !FLAG_PSH == FLAG_ACK && tcp[12] & 0x0f == 0;
    if !plain || tcp_len < TCP_HEADER_LEN_MIN || packet.len() < header_len {
        return None;
    }
    if packet.len() == header_len && !is_replaceable(flags, &tcp[TCP_HEADER_LEN_MIN..]) {
        return None;
    }
    let sequence = u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]]);
    let payload_len = packet.len() - header_len;
    let push = flags & FLAG_PSH != 0;
    Some(Candidate { flow, header_len, payload_len, sequence, push })
}

/// Whether a bare acknowledgement says nothing but how far its sender is: no push, no selective
/// acknowledgement and no option that may not be lost.
fn is_replaceable(flags: u8, options: &[u8]) -> bool {
    let is_known = options.len() == TIMESTAMPS_LEN && options.starts_with(&TIMESTAMPS);
    flags == FLAG_ACK && (options.is_empty() || is_known)
}

fn udp_candidate(whole: Packet<'_>, flow: Flow) -> Option<Candidate> {
    let packet = whole.bytes();
    let udp = &packet[flow.ip_len..];
    let length = usize::from(u16::from_be_bytes([udp[4], udp[5]]));
    let has_checksum = udp[6] != 0 || udp[7] != 0 || whole.lacks_checksum();
    let header_len = flow.ip_len + UDP_HEADER_LEN;
    if length != udp.len() || !has_checksum || packet.len() <= header_len {
        return None;
    }
    let payload_len = packet.len() - header_len;
    Some(Candidate { flow, header_len, payload_len, sequence: 0, push: false })
}

/// Whether lengths, and the checksum of IPv4, are right.
fn ip_header_is_sound(packet: &[u8], flow: Flow) -> bool {
    if flow.v6 {
        let length = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
        return length + IPV6_HEADER_LEN == packet.len();
    }
    let length = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    let sum = fold(sum(&packet[..IPV4_HEADER_LEN]));
    length == packet.len() && sum == 0xffff
}

fn checksum_is_right(packet: &[u8], flow: Flow) -> bool {
    let transport = &packet[flow.ip_len..];
    let pseudo = pseudo_header(flow.addresses(packet), flow.protocol, transport.len());
    fold(pseudo + sum(transport)) == 0xffff
}

/// Packets of one flow that will be one.
struct Run {
    /// As of the first packet.
    first: Candidate,
    head: u16,
    tail: u16,
    count: u16,
    /// Bytes of the super-packet.
    len: usize,
    next_sequence: u32,
    /// No packet may follow: the last was short, or pushed.
    full: bool,
}

struct Batch<'a, 'p> {
    packets: &'p [Packet<'a>],
    /// For each packet the next one of its run.
    next: [u16; BATCH_MAX],
    /// Open runs, the oldest first, without gaps.
    runs: [Option<Run>; RUNS_MAX],
}

impl<'a> Batch<'a, '_> {
    fn take(&mut self, index: u16, candidate: Candidate, emit: &mut impl FnMut(Output<'a, '_>)) {
        let packet = self.packets[usize::from(index)].bytes();
        let slot = self.slot_of(&candidate.flow, packet);
        if let Some(slot) = slot {
            if self.append(slot, index, &candidate) {
                return;
            }
            self.close(slot, emit);
        } else if self.runs[RUNS_MAX - 1].is_some() {
            self.close(0, emit);
        }
        let run = Run {
            first: candidate,
            head: index,
            tail: index,
            count: 1,
            len: packet.len(),
            next_sequence: candidate.next_sequence(),
            full: candidate.push,
        };
        if let Some(free) = self.runs.iter_mut().find(|run| run.is_none()) {
            *free = Some(run);
        }
    }

    /// The open run with the flow of `packet`.
    fn slot_of(&self, flow: &Flow, packet: &[u8]) -> Option<usize> {
        self.runs.iter().flatten().position(|run| {
            let head = self.packets[usize::from(run.head)].bytes();
            run.first.flow == *flow && flow.same(head, packet)
        })
    }

    /// Adds the packet to the run if both agree in all that cutting cannot recreate. A bare
    /// acknowledgement takes the place of the one before it.
    fn append(&mut self, slot: usize, index: u16, candidate: &Candidate) -> bool {
        let Some(run) = &mut self.runs[slot] else { return false };
        let head = self.packets[usize::from(run.head)].bytes();
        let packet = self.packets[usize::from(index)].bytes();
        if run.first.is_bare() || candidate.is_bare() {
            let is_newer = run.first.is_bare()
                && candidate.is_bare()
                && candidate.header_len == run.first.header_len
                && acknowledges_more(head, packet, candidate.flow);
            if is_newer {
                (run.head, run.tail) = (index, index);
            }
            return is_newer;
        }
        let fits = !run.full
            && usize::from(run.count) < RUN_MAX
            && candidate.payload_len <= run.first.payload_len
            && run.len + candidate.payload_len <= SUPER_LEN_MAX
            && candidate.sequence == run.next_sequence
            && candidate.header_len == run.first.header_len
            && same_ip_header(head, packet, run.first.flow.v6, run.count)
            && (candidate.flow.protocol == PROTOCOL_UDP
                || same_tcp_header(
                    &head[run.first.flow.ip_len..run.first.header_len],
                    &packet[run.first.flow.ip_len..run.first.header_len],
                ));
        if !fits {
            return false;
        }
        self.next[usize::from(run.tail)] = index;
        run.tail = index;
        run.count += 1;
        run.len += candidate.payload_len;
        run.next_sequence = candidate.next_sequence();
        run.full = candidate.push || candidate.payload_len < run.first.payload_len;
        true
    }

    fn close_flow(&mut self, flow: &Flow, packet: &[u8], emit: &mut impl FnMut(Output<'a, '_>)) {
        if let Some(slot) = self.slot_of(flow, packet) {
            self.close(slot, emit);
        }
    }

    fn close_all(&mut self, emit: &mut impl FnMut(Output<'a, '_>)) {
        while self.runs[0].is_some() {
            self.close(0, emit);
        }
    }

    /// Emits the run and moves the younger ones up.
    fn close(&mut self, slot: usize, emit: &mut impl FnMut(Output<'a, '_>)) {
        let run = self.runs[slot].take();
        self.runs[slot..].rotate_left(1);
        let Some(run) = run else { return };
        if run.count == 1 {
            let packet = self.packets[usize::from(run.head)];
            emit(Output::Single { packet, verified: true });
            return;
        }
        let (mut packets, mut payloads) = ([Packet::default(); RUN_MAX], [&[][..]; RUN_MAX]);
        let mut at = run.head;
        for slot in 0..usize::from(run.count) {
            packets[slot] = self.packets[usize::from(at)];
            payloads[slot] = &packets[slot].bytes()[run.first.header_len..];
            at = self.next[usize::from(at)];
        }
        let count = usize::from(run.count);
        let (header, vnet) = super_header(&run, packets[0].bytes(), packets[count - 1].bytes());
        emit(Output::Super {
            vnet,
            header: &header[..run.first.header_len],
            payloads: &payloads[..count],
            packets: &packets[..count],
        });
    }
}

/// Whether a bare acknowledgement says all that `head` says, and more. The same again is a sign of
/// loss to its receiver, and must arrive (RFC 5681, 2).
fn acknowledges_more(head: &[u8], packet: &[u8], flow: Flow) -> bool {
    let advance = |at: usize| {
        let field = |packet: &[u8]| {
            let at = flow.ip_len + at;
            u32::from_be_bytes([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
        };
        field(packet).wrapping_sub(field(head)) as i32
    };
    let traffic_class = if flow.v6 { 4 } else { 2 };
    head[..traffic_class] == packet[..traffic_class] && advance(4) >= 0 && advance(8) > 0
}

/// Everything of the IP header but length and checksum; the identification counts up.
fn same_ip_header(head: &[u8], packet: &[u8], v6: bool, count: u16) -> bool {
    if v6 {
        // Addresses are the flow's, and the flow was compared.
        return head[..4] == packet[..4] && head[6..8] == packet[6..8];
    }
    let identification = |packet: &[u8]| u16::from_be_bytes([packet[4], packet[5]]);
    head[..2] == packet[..2]
        && head[6..10] == packet[6..10]
        && identification(packet) == identification(head).wrapping_add(count)
}

/// Everything of the TCP header but sequence number, PSH and checksum; options byte for byte.
fn same_tcp_header(head: &[u8], packet: &[u8]) -> bool {
    head[8..13] == packet[8..13]
        && (head[13] ^ packet[13]) & !FLAG_PSH == 0
        && head[14..16] == packet[14..16]
        && head[18..] == packet[18..]
}

/// The header of the whole: the first packet's, with the length of all, the last one's PSH and
/// a checksum that covers the pseudo-header, as the kernel expects of `NEEDS_CSUM`.
fn super_header(run: &Run, first: &[u8], last: &[u8]) -> ([u8; HEADER_LEN_MAX], Vnet) {
    let flow = run.first.flow;
    let mut header = [0; HEADER_LEN_MAX];
    header[..run.first.header_len].copy_from_slice(&first[..run.first.header_len]);
    if flow.v6 {
        header[4..6].copy_from_slice(&((run.len - IPV6_HEADER_LEN) as u16).to_be_bytes());
    } else {
        header[2..4].copy_from_slice(&(run.len as u16).to_be_bytes());
        header[10..12].fill(0);
        let sum = !fold(sum(&header[..IPV4_HEADER_LEN]));
        header[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    let (gso, offset) = if flow.protocol == PROTOCOL_TCP {
        header[flow.ip_len + 13] |= last[flow.ip_len + 13] & FLAG_PSH;
        (Gso::Tcp, TCP_CHECKSUM)
    } else {
        let length = ((run.len - flow.ip_len) as u16).to_be_bytes();
        header[flow.ip_len + 4..flow.ip_len + 6].copy_from_slice(&length);
        (Gso::Udp, UDP_CHECKSUM)
    };
    let pseudo = pseudo_header(flow.addresses(first), flow.protocol, run.len - flow.ip_len);
    let field = flow.ip_len + usize::from(offset);
    header[field..field + 2].copy_from_slice(&fold(pseudo).to_be_bytes());
    let vnet = Vnet {
        gso,
        gso_size: run.first.payload_len as u16,
        header_len: run.first.header_len as u16,
        checksum: Checksum::Partial { start: flow.ip_len as u16, offset },
    };
    (header, vnet)
}
