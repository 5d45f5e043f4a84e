//! Downloads of several levels over one link, whose senders have as much on its way as they may.

use std::collections::VecDeque;

use super::*;
use crate::flow::priority::{Level, Priorities};
use crate::wire::control::{End, Prefix};

/// Bytes per second of the link.
const RATE: u32 = 1_250_000;
/// Servers of the first and of the third level, and one that nobody named.
const FIRST: [u8; 4] = [203, 0, 113, 1];
const THIRD: [u8; 4] = [203, 0, 113, 3];
const UNNAMED: [u8; 4] = [198, 51, 100, 9];
/// What a local side has room for, as it stands in the header.
const WINDOW: u16 = u16::MAX;

fn priorities() -> Priorities {
    let end = |address: [u8; 4]| End { network: Prefix::host(address.into()), port: None };
    Priorities::new(&[(end(FIRST), Level::First), (end(THIRD), Level::Third)])
}

/// A download: all but the headers of its packets.
#[derive(Clone, Debug)]
struct Download {
    port: u16,
    server: [u8; 4],
    /// By how many bits the local side shifts its windows.
    scale: u8,
    /// What the server's side has sent, and what it knows to have arrived.
    sent: Seq,
    acked: Seq,
    /// Up to where it has room, as it knows; and the furthest that anybody told.
    edge: Seq,
    told: Seq,
    /// What it has on its way at most, and bytes per millisecond that its program says.
    flight: u32,
    says: u32,
    said: u32,
    /// Up to where it has come, and the bytes that came since they were last counted.
    came: Seq,
    count: u64,
}

/// Both ends of the tunnel as one, and a link behind it.
struct Link {
    now: Instant,
    flows: Flows,
    memory: Memory,
    downloads: Vec<Download>,
    /// Segments that wait for the link, by whose they are, and what it may carry by now.
    queue: VecDeque<usize>,
    credit: u32,
    /// Acknowledgements on their way: when they are there, whose, up to where, and the room.
    acks: VecDeque<(Instant, usize, Seq, Seq)>,
}

impl Download {
    fn ends(&self, way: Direction) -> crate::wire::tcp::Ends {
        let (local, remote) = ((LOCAL.0.into(), self.port), (self.server.into(), 443));
        match way {
            Direction::Out => crate::wire::tcp::Ends { source: local, destination: remote },
            Direction::In => crate::wire::tcp::Ends { source: remote, destination: local },
        }
    }

    fn packet(&self, way: Direction, flags: Flags, payload: &[u8]) -> Vec<u8> {
        let (seq, ack) = match way {
            Direction::Out => (LOCAL_START.plus(1), self.came),
            Direction::In => (self.came, LOCAL_START.plus(1)),
        };
        let mut packet = Vec::new();
        let ends = self.ends(way);
        let made = Made { ends, seq, ack, flags, window: WINDOW, timestamps: None };
        made.emit((payload, &[]), &mut packet);
        packet
    }

    /// A SYN, or the answer to one, with the options of most systems.
    fn syn(&self, way: Direction) -> Vec<u8> {
        let mss = u16::try_from(MSS).unwrap().to_be_bytes();
        let options = [2, 4, mss[0], mss[1], 3, 3, self.scale, 4, 2, 1, 1, 1];
        let (flags, seq, ack) = match way {
            Direction::Out => (Flags::SYN, LOCAL_START, Seq(0)),
            Direction::In => (Flags::SYN.and(Flags::ACK), REMOTE_START, LOCAL_START.plus(1)),
        };
        let made = Made { ends: self.ends(way), seq, ack, flags, window: WINDOW, timestamps: None };
        let mut packet = Vec::new();
        made.emit((&options, &[]), &mut packet);
        put(&mut packet, 32, 8 << 4);
        packet
    }
}

impl Link {
    fn new(priorities: Priorities) -> Self {
        let mut flows = Flows::new(Hold::Full, 1);
        let mut memory = Memory::new(1 << 20);
        judge::set_priorities(&mut flows, &mut memory, priorities);
        let now = Instant::ZERO + Duration::from_secs(10);
        flows.resume(now, &mut memory, TRIP);
        let (downloads, queue, acks) = (Vec::new(), VecDeque::new(), VecDeque::new());
        Self { now, flows, memory, downloads, queue, credit: 0, acks }
    }

    /// A download begins whose sender has so much on its way. Returns its number.
    fn begin(&mut self, server: [u8; 4], flight: u32) -> usize {
        self.begin_scaled(server, flight, 7)
    }

    fn begin_scaled(&mut self, server: [u8; 4], flight: u32, scale: u8) -> usize {
        let began = REMOTE_START.plus(1);
        let number = self.downloads.len();
        let download = Download {
            port: LOCAL.1 + u16::try_from(number).unwrap(),
            server,
            scale,
            sent: began,
            acked: began,
            edge: began,
            told: began,
            flight,
            says: u32::MAX,
            said: 0,
            came: began,
            count: 0,
        };
        self.leave(&download.syn(Direction::Out));
        self.now = self.now + TRIP;
        self.come(&download.syn(Direction::In));
        self.downloads.push(download);
        self.acknowledge(number);
        number
    }

    /// A packet of a local side's, as it leaves the tunnel at the other end.
    fn leave(&mut self, packet: &[u8]) -> Vec<u8> {
        let whole = InnerPacket::whole(packet).unwrap();
        let record = self.flows.outgoing(self.now, &mut self.memory, &whole, true).unwrap();
        let mut head = Vec::new();
        let is_narrowed = self.flows.narrow(self.now, record.flow, &whole, &mut head);
        if is_narrowed { head } else { packet.to_vec() }
    }

    fn come(&mut self, packet: &[u8]) {
        let inner = InnerPacket::whole(packet).unwrap();
        let verdict = self.flows.incoming(self.now, &mut self.memory, &inner);
        assert_eq!(verdict, Verdict::Pass);
    }

    /// What is said for a download: that it never takes back any room.
    fn hear(&mut self, number: usize, packet: &[u8]) {
        let download = &mut self.downloads[number];
        let said = read(Output::ToRemote, packet);
        let edge = said.ack.plus((said.window >> SCALE) << download.scale);
        assert!(!edge.is_before(download.told), "the edge moves back");
        assert!(edge.beyond(said.ack) >= 2 * MSS, "{said:?}");
        download.told = edge;
        self.acks.push_back((self.now + TRIP, number, said.ack, edge));
    }

    fn acknowledge(&mut self, number: usize) {
        let packet = self.downloads[number].packet(Direction::Out, Flags::ACK, &[]);
        let packet = self.leave(&packet);
        self.hear(number, &packet);
    }

    fn millisecond(&mut self) {
        self.now = self.now + Duration::from_millis(1);
        while let Some((_, number, acked, edge)) =
            self.acks.pop_front_if(|(due, ..)| *due <= self.now)
        {
            let download = &mut self.downloads[number];
            (download.acked, download.edge) = (acked, edge);
        }
        for (number, download) in self.downloads.iter_mut().enumerate() {
            download.said = download.said.saturating_add(download.says);
            let flight = download.acked.plus(download.flight);
            while !download.edge.min(flight).is_before(download.sent.plus(MSS))
                && download.said >= MSS
            {
                download.said = if download.says == u32::MAX { MSS } else { download.said - MSS };
                download.sent = download.sent.plus(MSS);
                self.queue.push_back(number);
            }
        }
        self.credit += RATE / 1_000;
        while self.credit >= MSS
            && let Some(number) = self.queue.pop_front()
        {
            self.credit -= MSS;
            let packet =
                self.downloads[number].packet(Direction::In, Flags::ACK, &bytes(Seq(0), MSS));
            self.come(&packet);
            let download = &mut self.downloads[number];
            download.came = download.came.plus(MSS);
            download.count += u64::from(MSS);
            self.acknowledge(number);
        }
        self.credit = if self.queue.is_empty() { 0 } else { self.credit };
    }

    /// Lets time pass. Returns the part of the link that each had.
    fn pass(&mut self, seconds: u32) -> Vec<f64> {
        self.downloads.iter_mut().for_each(|download| download.count = 0);
        (0..seconds * 1_000).for_each(|_| self.millisecond());
        let all = f64::from(RATE) * f64::from(seconds);
        self.downloads.iter().map(|download| download.count as f64 / all).collect()
    }

    fn narrowed_to(&self, number: usize) -> Option<u32> {
        let mut reports = Vec::new();
        self.flows.report(self.now, 0, 100, &mut reports);
        let of_it =
            |report: &&report::FlowReport| report.tuple.local.1 == self.downloads[number].port;
        reports.iter().find(of_it).unwrap().narrowed_to
    }
}

/// What fills the link by itself.
const FULL: u32 = 100_000;

#[test]
fn where_all_want_more_than_there_is_each_has_its_part() {
    let mut link = Link::new(priorities());
    let [first, second, third] = [FIRST, UNNAMED, THIRD].map(|server| link.begin(server, FULL));
    link.pass(10);
    let parts = link.pass(20);
    let all: f64 = parts.iter().sum();
    assert!(all > 0.99, "{parts:?}");
    // 16, 4 and 1 of 21.
    assert!((0.66..0.84).contains(&parts[first]), "{parts:?}");
    assert!((0.13..0.26).contains(&parts[second]), "{parts:?}");
    assert!((0.02..0.08).contains(&parts[third]), "{parts:?}");
    let mut link = Link::new(Priorities::default());
    for server in [FIRST, UNNAMED, THIRD] {
        link.begin(server, FULL);
    }
    let equal = link.pass(20);
    assert!(equal.iter().all(|part| (0.3..0.36).contains(part)), "{equal:?}: nobody is preferred");
}

#[test]
fn what_is_preferred_costs_nothing_while_it_does_not_come() {
    let mut link = Link::new(priorities());
    let third = link.begin(THIRD, FULL);
    assert!(link.pass(5)[third] > 0.98);
    let first = link.begin(FIRST, FULL);
    link.pass(10);
    assert!(link.pass(5)[first] > 0.85);
    assert!(link.narrowed_to(third).is_some() && link.narrowed_to(first).is_none());
    link.downloads[first].says = 0;
    link.pass(2);
    assert!(link.pass(1)[third] > 0.98, "within two seconds all is its own again");
    link.pass(2);
    assert_eq!(link.narrowed_to(third), None);
}

#[test]
fn what_others_do_not_use_is_given_back() {
    let mut link = Link::new(priorities());
    let third = link.begin(THIRD, FULL);
    let first = link.begin(FIRST, FULL);
    // A fifth of the link is all that it ever says.
    link.downloads[first].says = RATE / 5_000;
    link.pass(5);
    let parts = link.pass(60);
    assert!(parts[first] > 0.19 && parts[first] + parts[third] > 0.95, "{parts:?}");
}

#[test]
fn one_that_alone_has_a_level_is_never_narrowed_and_two_of_one_level_share() {
    let mut link = Link::new(priorities());
    let both = [THIRD, THIRD].map(|server| link.begin(server, FULL));
    let parts = link.pass(10);
    assert!(both.iter().all(|&one| (0.45..0.55).contains(&parts[one])), "{parts:?}");
    assert!(both.iter().all(|&one| link.narrowed_to(one).is_none()));
}

#[test]
fn datagrams_that_are_preferred_count_as_well() {
    let mut link = Link::new(priorities());
    let third = link.begin(THIRD, FULL);
    let mut datagram = vec![0; 1_000];
    datagram[..4].copy_from_slice(&[0x45, 0, 3, 232]);
    datagram[9] = crate::wire::inner::UDP;
    datagram[12..16].copy_from_slice(&FIRST);
    datagram[16..20].copy_from_slice(&LOCAL.0);
    for _ in 0..3_000 {
        link.come(&datagram);
        link.millisecond();
    }
    assert!(link.narrowed_to(third).is_some());
}

#[test]
fn what_counts_its_windows_in_large_units_or_was_not_seen_from_its_beginning_is_left_alone() {
    let mut link = Link::new(priorities());
    let first = link.begin(FIRST, FULL);
    let third = link.begin_scaled(THIRD, FULL, 11);
    link.pass(8);
    assert!((0.4..0.6).contains(&link.pass(4)[third]));
    assert_eq!((link.narrowed_to(first), link.narrowed_to(third)), (None, None));
    // The same where the client is only told of what is preferred while it goes on.
    let mut link = Link::new(Priorities::default());
    let both = [FIRST, THIRD].map(|server| link.begin(server, FULL));
    link.pass(2);
    judge::set_priorities(&mut link.flows, &mut link.memory, priorities());
    link.pass(30);
    let parts = link.pass(5);
    assert!(parts[both[0]] > 0.85, "it was seen, and what it was told is used up: {parts:?}");
    judge::set_priorities(&mut link.flows, &mut link.memory, Priorities::default());
    link.pass(2);
    let parts = link.pass(5);
    assert!(parts.iter().all(|part| (0.45..0.55).contains(part)), "{parts:?}");
}

/// What this end says of its own accord has the last word's room, and no more: while there is no
/// way, when there is one again, and beside what is acknowledged here.
#[test]
fn what_is_said_in_its_place_gives_no_more_room() {
    for assists in [Assists::None, Assists::All] {
        let mut link = Link::new(priorities());
        let first = link.begin(FIRST, FULL);
        let third = link.begin(THIRD, FULL);
        link.flows.set_assist(assists);
        link.pass(12);
        let narrowed = link.narrowed_to(third).unwrap();
        // The local side has something to say as well, which nobody answers.
        let mut seq = LOCAL_START.plus(1);
        for _ in 0..10 {
            let mut packet =
                link.downloads[third].packet(Direction::Out, Flags::ACK, &bytes(seq, MSS));
            let at = seq.0.to_be_bytes();
            (24..28).zip(at).for_each(|(place, byte)| put(&mut packet, place, byte));
            let packet = link.leave(&packet);
            link.hear(third, &packet);
            seq = seq.plus(MSS);
        }
        let mut said = Vec::new();
        let mut speak = |link: &mut Link| {
            for _ in 0..100 {
                let mut packet = Vec::new();
                match link.flows.poll(link.now, &mut link.memory, &mut packet) {
                    Some(Output::ToRemote) => {
                        let whole = InnerPacket::whole(&packet).unwrap();
                        let mut head = Vec::new();
                        let flow = link.flows.record_of(link.now, &whole, true).flow;
                        let narrows = link.flows.narrow(link.now, flow, &whole, &mut head);
                        let packet = if narrows { head } else { packet };
                        let told = read(Output::ToRemote, &packet);
                        let number = usize::from(told.port - LOCAL.1);
                        let room = told.window >> SCALE << 7;
                        assert!(number == first || room < 30_000, "{room}");
                        link.hear(number, &packet);
                        said.push(number);
                    }
                    // What the local side hears is of the other direction.
                    Some(Output::ToLocal) => {}
                    None => match link.flows.poll_record() {
                        Some(tuple) => link.flows.recorded(&tuple),
                        None => break,
                    },
                }
            }
        };
        speak(&mut link);
        link.flows.suspend(link.now + TRIP, &mut link.memory);
        for seconds in [0, 1, 30] {
            link.now = link.now + Duration::from_secs(seconds);
            speak(&mut link);
        }
        link.flows.resume(link.now, &mut link.memory, TRIP);
        for _ in 0..40 {
            link.now = link.now + Duration::from_millis(10);
            speak(&mut link);
        }
        let of_third = said.iter().filter(|&&number| number == third).count();
        assert!(of_third >= 10, "what the local side said leaves from here: {of_third}");
        assert!(narrowed < 30_000 && link.narrowed_to(first).is_none());
    }
}

#[test]
fn what_is_known_of_connections_where_some_are_preferred_counts_as_memory() {
    let mut link = Link::new(priorities());
    let before = link.memory.used();
    let all = [FIRST, THIRD, [203, 0, 113, 9]].map(|server| link.begin(server, FULL));
    let of_each = (link.memory.used() - before) / all.len();
    assert!((80..400).contains(&of_each), "{of_each} bytes of each connection");
    // Where nobody is preferred any more, nothing of it is kept.
    let with = link.memory.used();
    judge::set_priorities(&mut link.flows, &mut link.memory, Priorities::default());
    assert_eq!(with - link.memory.used(), of_each * all.len());
    judge::set_priorities(&mut link.flows, &mut link.memory, priorities());
    assert_eq!(link.memory.used(), with);
    // Who is forgotten costs nothing.
    let (mut packets, mut ends) = (Vec::new(), Vec::new());
    link.flows.terminate(&mut link.memory, &mut packets, &mut ends);
    assert_eq!(link.memory.used(), 0);
}

#[test]
fn whom_there_is_no_memory_for_is_left_alone() {
    let mut link = Link::new(priorities());
    link.memory = Memory::new(64);
    link.flows.resume(link.now, &mut link.memory, TRIP);
    let both = [FIRST, THIRD].map(|server| link.begin(server, FULL));
    link.pass(10);
    assert_eq!(both.map(|one| link.narrowed_to(one)), [None, None]);
    assert!(link.pass(4).iter().all(|part| (0.4..0.6).contains(part)));
    assert_eq!(link.memory.used(), 0);
}
