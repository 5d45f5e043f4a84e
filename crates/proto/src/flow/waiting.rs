//! Inner packets that arrived before there was a path to send them by: few, and not for long.
//!
//! Datagrams of flows that the user named wait apart from others, and for minutes: telemetry is
//! said once and is of use later. Speech is not.
//!
//! Packets of flows that are compressed wait compressed, so that more of them fit
//! (docs/decisions/0082-compression-is-an-allow-list.md). They leave as `tunnel::saving` decides
//! then.

use std::collections::{BTreeMap, VecDeque};

use crate::codec::coding::Coding;
use crate::codec::compression::Coder;
use crate::error::DropReason;
use crate::flow;
use crate::outbox::REST;
use crate::packet::{PacketRecord, Saving};
use crate::recovery::sent_packets::KEPT_BYTES_MAX;
use crate::time::{Duration, Instant};
use crate::wire::inner::{Headers, InnerPacket, Pieces, TCP, UDP};

/// Packets that wait, per session: of connections,
const SEGMENTS_MAX: usize = 4_096;
/// of everything else,
const DATAGRAMS_MAX: usize = 512;
/// datagrams of flows that the user named,
const NAMED_MAX: usize = 512;
/// and all of them.
pub const WAITING_MAX: usize = SEGMENTS_MAX + DATAGRAMS_MAX + NAMED_MAX;
/// Bytes of connections: as much as may have been on its way by a path that is gone, since as much
/// follows in the round trip in which another one is proven. Its sender misses none of it.
const SEGMENT_BYTES_MAX: usize = KEPT_BYTES_MAX;
/// Bytes of everything else: nobody slows down a sender of datagrams, and what would come late is
/// not to fill a slow link. 64 of the longest, or a voice call's for as long as a handshake takes.
const DATAGRAM_BYTES_MAX: usize = 96 * 1_024;
/// Bytes of datagrams of flows that the user named, as they wait: some minutes of a device that
/// sends a value each second. More would hold up others on a slow link, less would lose values of
/// more outages.
const NAMED_BYTES_MAX: usize = 96 * 1_024;
/// How long a packet may wait: after this its sender has sent it again.
const WAITING_TIME: Duration = Duration::from_secs(3);
/// The same for datagrams of flows that the user named, which nobody sends again: as long as a TCP
/// sender that hears nothing goes on (`STALE` in `pep::tcp`).
const NAMED_TIME: Duration = Duration::from_secs(20 * 60);

/// A datagram after which so much later another of its flow was sent is speech, or as good as that:
/// nobody waits for it any longer (ITU-T G.114).
const OF_USE: Duration = Duration::from_millis(400);

/// What waits: of connections, in order, the first; of everything else, the last.
#[derive(Debug, Default)]
pub struct Waiting {
    segments: Queue,
    datagrams: Queue,
    /// Datagrams of flows that the user named.
    named: Queue,
    /// When they could all leave, but for the outbox.
    resting: Option<Instant>,
    /// Bytes of memory that compression saved so far.
    spared: u64,
}

/// A packet that waits.
#[derive(PartialEq, Eq, Debug)]
pub struct Kept {
    since: Instant,
    record: PacketRecord,
    headers: Headers,
    bytes: Vec<u8>,
    /// Whether the bytes are compressed.
    is_compressed: bool,
}

impl Kept {
    /// Compressed, if its record says so and if that makes it smaller.
    fn of(now: Instant, record: PacketRecord, packet: &InnerPacket<'_>, coder: &mut Coder) -> Self {
        let coding = record.saving.coding().and_then(Coding::from_byte);
        let result = coding.and_then(|coding| coder.compress(coding, packet.pieces, false));
        let mut bytes = result.unwrap_or_default().to_vec();
        let is_compressed = !bytes.is_empty();
        if !is_compressed {
            bytes.reserve_exact(packet.len());
            packet.pieces.copy_to(&mut bytes);
        }
        let record = PacketRecord { kept: 0, ..record };
        Self { since: now, record, headers: packet.headers, bytes, is_compressed }
    }

    /// Brings the packet back to what it was, before it leaves.
    ///
    /// # Errors
    /// [`DropReason::BadFrame`] if the memory was damaged.
    pub fn restore(&mut self, coder: &mut Coder) -> Result<(), DropReason> {
        if std::mem::take(&mut self.is_compressed) {
            self.bytes = coder.take(&self.bytes)?;
        }
        Ok(())
    }

    /// The record of the packet, all of whose bytes are here.
    pub const fn record(&self) -> PacketRecord {
        self.record
    }

    /// The packet, which was restored.
    pub fn packet(&self) -> InnerPacket<'_> {
        debug_assert!(!self.is_compressed);
        InnerPacket::read(self.headers, Pieces::whole(&self.bytes))
    }

    /// Whether the user named its flow. One that is recognised as speech does not count.
    fn is_named(&self) -> bool {
        self.record.saving != Saving::NONE
    }

    /// The flow of a UDP datagram.
    fn datagram_flow(&self) -> Option<u32> {
        let headers = &self.headers;
        (headers.protocol == UDP && headers.ports.is_some()).then(|| flow::hash(headers))
    }
}

#[derive(Debug, Default)]
struct Queue {
    packets: VecDeque<Kept>,
    bytes: usize,
}

impl Waiting {
    /// Keeps a copy of `packet`. Returns how many packets were given up for want of room.
    pub fn push(
        &mut self,
        now: Instant,
        record: PacketRecord,
        packet: &InnerPacket<'_>,
        coder: &mut Coder,
    ) -> usize {
        let kept = Kept::of(now, record, packet, coder);
        let len = kept.bytes.len();
        let spared = (packet.len() - len) as u64;
        if packet.is_tcp() {
            // What follows a gap has to wait for it: the oldest are worth most.
            let fits = self.segments.fits(len, SEGMENTS_MAX, SEGMENT_BYTES_MAX);
            if fits {
                self.spared += spared;
                self.segments.push(kept);
            }
            return usize::from(!fits);
        }
        let (queue, packets_max, bytes_max) = if kept.is_named() {
            (&mut self.named, NAMED_MAX, NAMED_BYTES_MAX)
        } else {
            (&mut self.datagrams, DATAGRAMS_MAX, DATAGRAM_BYTES_MAX)
        };
        let before = queue.packets.len();
        while !queue.fits(len, packets_max, bytes_max) && queue.pop() {}
        let given_up = before - queue.packets.len();
        self.spared += spared;
        queue.push(kept);
        given_up
    }

    /// Bytes of memory that compression saved so far.
    pub const fn spared(&self) -> u64 {
        self.spared
    }

    /// All packets that did not wait too long, and of how many a later one of their flow says that
    /// they are of no use any more; nothing waits afterwards.
    pub fn take(&mut self, now: Instant) -> (VecDeque<Kept>, usize) {
        self.expire(now);
        let empty = Self { spared: self.spared, ..Self::default() };
        let Self { segments, datagrams, named, .. } = std::mem::replace(self, empty);
        let count = datagrams.packets.len();
        let mut newest = BTreeMap::new();
        for kept in &datagrams.packets {
            newest.extend(kept.datagram_flow().map(|flow| (flow, kept.since)));
        }
        let is_of_use = |kept: &Kept| {
            let newest = kept.datagram_flow().and_then(|flow| newest.get(&flow));
            newest.is_none_or(|newest: &Instant| newest.saturating_since(kept.since) <= OF_USE)
        };
        let mut packets: VecDeque<_> = datagrams.packets.into_iter().filter(is_of_use).collect();
        let useless = count - packets.len();
        packets.extend(segments.packets);
        // The oldest datagrams hold up nobody else.
        packets.extend(named.packets);
        (packets, useless)
    }

    /// The rest of what was taken could not leave yet. It follows what waits again meanwhile; at
    /// once, as soon as the shell has sent, if only the outbox was full.
    pub fn put_back(&mut self, now: Instant, rest: VecDeque<Kept>) {
        if self.is_empty() && !rest.is_empty() {
            self.resting = Some(now + REST);
        }
        for kept in rest {
            let queue = match kept.headers.protocol {
                TCP => &mut self.segments,
                _ if kept.is_named() => &mut self.named,
                _ => &mut self.datagrams,
            };
            queue.push(kept);
        }
    }

    /// Whether what waits for the outbox is to be tried again.
    pub(crate) fn may_leave(&self, now: Instant) -> bool {
        self.resting.is_some_and(|at| at <= now)
    }

    /// When the oldest packet will have waited too long, or there may be room in the outbox.
    pub fn due(&self) -> Option<Instant> {
        let queues = [&self.segments, &self.datagrams];
        let due = queues.into_iter().filter_map(|queue| queue.due(WAITING_TIME));
        due.chain(self.named.due(NAMED_TIME)).chain(self.resting).min()
    }

    /// Forgets what waited too long, and returns how many packets that were. A peer that nobody
    /// hears of for days holds no memory.
    pub fn expire(&mut self, now: Instant) -> usize {
        let others = [&mut self.segments, &mut self.datagrams];
        let expired: usize = others.into_iter().map(|queue| queue.expire(now, WAITING_TIME)).sum();
        expired + self.named.expire(now, NAMED_TIME)
    }

    /// Packets that wait.
    pub fn len(&self) -> usize {
        let queues = [&self.segments, &self.datagrams, &self.named];
        queues.into_iter().map(|queue| queue.packets.len()).sum()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Queue {
    fn fits(&self, len: usize, packets_max: usize, bytes_max: usize) -> bool {
        self.packets.len() < packets_max && self.bytes + len <= bytes_max
    }

    fn push(&mut self, kept: Kept) {
        self.bytes += kept.bytes.len();
        self.packets.push_back(kept);
    }

    /// The oldest goes. Returns whether there was one.
    fn pop(&mut self) -> bool {
        let oldest = self.packets.pop_front();
        self.bytes -= oldest.as_ref().map_or(0, |kept| kept.bytes.len());
        oldest.is_some()
    }

    fn due(&self, time: Duration) -> Option<Instant> {
        self.packets.front().map(|kept| kept.since + time)
    }

    /// Forgets what waits for that long.
    fn expire(&mut self, now: Instant, time: Duration) -> usize {
        let late = self.packets.partition_point(|kept| kept.since + time <= now);
        self.bytes -= self.packets.drain(..late).map(|kept| kept.bytes.len()).sum::<usize>();
        if self.packets.is_empty() {
            self.packets = VecDeque::new();
        }
        late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(len: u16) -> Vec<u8> {
        let mut packet = vec![0x45; len.into()];
        packet[2..4].copy_from_slice(&len.to_be_bytes());
        packet
    }

    fn push(waiting: &mut Waiting, now: Instant, packet: &[u8]) -> usize {
        let (record, packet) = (PacketRecord::of_bucket(0), InnerPacket::whole(packet).unwrap());
        waiting.push(now, record, &packet, &mut Coder::default())
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_they_are_too_long() {
        let now = Instant::from_nanos(0);
        let mut waiting = Waiting::default();
        for _ in 0..DATAGRAMS_MAX {
            assert_eq!(push(&mut waiting, now, &packet(100)), 0);
        }
        assert_eq!(push(&mut waiting, now, &packet(100)), 1);
        let long = DATAGRAM_BYTES_MAX / 1_500;
        let given_up: usize = (0..long).map(|_| push(&mut waiting, now, &packet(1_500))).sum();
        assert!(given_up >= DATAGRAMS_MAX - 8, "{given_up}");
        assert_eq!(waiting.len() + given_up, DATAGRAMS_MAX + long);
        assert!(
            waiting.take(now).0.iter().map(|kept| kept.bytes.len()).sum::<usize>()
                <= DATAGRAM_BYTES_MAX
        );
        assert_eq!((waiting.len(), waiting.datagrams.bytes), (0, 0));
    }

    #[test]
    fn of_connections_the_first_stay_and_as_many_as_a_path_may_have_had() {
        let segment = |number: u16| {
            let mut packet = vec![0; 1_400];
            (packet[0], packet[9], packet[32]) = (0x45, TCP, 0x50);
            packet[2..4].copy_from_slice(&1_400u16.to_be_bytes());
            packet[1_398..].copy_from_slice(&number.to_be_bytes());
            packet
        };
        let now = Instant::from_nanos(0);
        let mut waiting = Waiting::default();
        let room = u16::try_from(SEGMENT_BYTES_MAX / 1_400).unwrap();
        for number in 0..room + 10 {
            let given_up = push(&mut waiting, now, &segment(number));
            assert_eq!(given_up, usize::from(number >= room), "{number}");
        }
        assert_eq!(push(&mut waiting, now, &packet(100)), 0, "others have their own");
        let (packets, _) = waiting.take(now);
        let expected = std::iter::once(packet(100)).chain((0..room).map(segment));
        let kept = |packet: Vec<u8>| {
            let record = PacketRecord::of_bucket(0);
            Kept::of(now, record, &InnerPacket::whole(&packet).unwrap(), &mut Coder::default())
        };
        let expected: VecDeque<_> = expected.map(kept).collect();
        assert!(packets == expected);
        waiting.put_back(now, packets);
        assert_eq!(waiting.due(), Some(now + REST), "the outbox was full");
        assert!(waiting.may_leave(now + REST) && waiting.take(now).0 == expected, "in order");
        assert_eq!((waiting.len(), waiting.segments.bytes), (0, 0));
    }

    #[test]
    fn speech_that_is_late_is_left_out_and_what_is_said_once_is_not() {
        let udp = |port: u8, number: u8| {
            let mut packet = vec![0; 60];
            (packet[0], packet[3], packet[9]) = (0x45, 60, UDP);
            (packet[21], packet[59]) = (port, number);
            packet
        };
        let start = Instant::from_nanos(0);
        let mut waiting = Waiting::default();
        for number in 0..100 {
            let now = start + Duration::from_millis(20) * u32::from(number);
            push(&mut waiting, now, &udp(1, number));
            if number < 2 {
                push(&mut waiting, now, &udp(2, number));
            }
        }
        let (packets, useless) = waiting.take(start + Duration::from_secs(2));
        let numbers = |port| {
            let of = packets.iter().filter(move |kept| kept.bytes[21] == port);
            of.map(|kept| kept.bytes[59]).collect::<Vec<_>>()
        };
        assert_eq!(numbers(1), (79..100).collect::<Vec<_>>(), "400 ms of speech");
        assert_eq!((numbers(2), useless), (vec![0, 1], 79));
    }

    #[test]
    fn datagrams_of_flows_that_the_user_named_wait_for_minutes() {
        let (start, mut coder) = (Instant::ZERO, Coder::default());
        let mut waiting = Waiting::default();
        for saving in [Saving::JOINED, Saving::DIRECT, Saving::compressed(1)] {
            let record = PacketRecord { saving, ..PacketRecord::of_bucket(0) };
            for second in 0..100 {
                let (now, packet) = (start + Duration::from_secs(second), packet(80));
                let packet = InnerPacket::whole(&packet).unwrap();
                assert_eq!(waiting.push(now, record, &packet, &mut coder), 0);
            }
        }
        let last = start + Duration::from_secs(99);
        push(&mut waiting, last, &packet(100));
        assert_eq!((waiting.expire(last + WAITING_TIME), waiting.len()), (1, 300), "the other one");
        assert_eq!(waiting.due(), Some(start + NAMED_TIME));
        for _ in 0..2 {
            let (packets, useless) = waiting.take(last + WAITING_TIME);
            assert_eq!((packets.len(), useless), (300, 0));
            waiting.put_back(last, packets);
        }
        assert_eq!((waiting.named.packets.len(), waiting.expire(last + NAMED_TIME)), (300, 300));
        // Long ones fill the bytes first, and the oldest go.
        let record = PacketRecord { saving: Saving::DIRECT, ..PacketRecord::of_bucket(0) };
        let long = packet(1_500);
        let given_up = (0..NAMED_MAX)
            .map(|_| waiting.push(last, record, &InnerPacket::whole(&long).unwrap(), &mut coder));
        assert_eq!(given_up.sum::<usize>(), NAMED_MAX - NAMED_BYTES_MAX / 1_500);
        assert_eq!(push(&mut waiting, last, &packet(100)), 0, "others have their own room");
    }

    #[test]
    fn nothing_waits_for_long() {
        let mut now = Instant::from_nanos(0);
        let mut waiting = Waiting::default();
        push(&mut waiting, now, &packet(100));
        now = now + WAITING_TIME / 2;
        push(&mut waiting, now, &packet(200));
        assert_eq!(waiting.expire(now + WAITING_TIME / 2), 1);
        assert_eq!((waiting.len(), waiting.datagrams.bytes), (1, 200));
    }

    #[test]
    fn packets_of_compressed_flows_take_less_room_and_come_back_as_they_were() {
        let text = |number: u16| {
            let mut packet = packet(1_200);
            packet[28..].fill(b'a');
            packet[30..32].copy_from_slice(&number.to_be_bytes());
            packet
        };
        let (now, mut coder) = (Instant::ZERO, Coder::default());
        let count = u16::try_from(2 * DATAGRAM_BYTES_MAX / 1_200).unwrap();
        for (coding, is_enough) in
            [(Coding::LZ4, true), (Coding::ZSTD, true), (Coding::NONE, false)]
        {
            let saving = Saving::compressed(coding.to_byte());
            let record = PacketRecord { saving, ..PacketRecord::of_bucket(0) };
            let mut waiting = Waiting::default();
            let given_up = (0..count).map(|number| {
                let packet = text(number);
                waiting.push(now, record, &InnerPacket::whole(&packet).unwrap(), &mut coder)
            });
            let given_up = given_up.sum::<usize>();
            assert_eq!((given_up == 0, waiting.spared() > 0), (is_enough, is_enough));
            let (packets, _) = waiting.take(now);
            assert_eq!(waiting.spared() > 0, is_enough, "still counted");
            for (number, mut kept) in (0..count).skip(given_up).zip(packets) {
                kept.restore(&mut coder).unwrap();
                assert!(kept.bytes == text(number) && kept.record() == record);
            }
        }
    }
}
