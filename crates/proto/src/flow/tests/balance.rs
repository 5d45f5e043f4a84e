//! Whatever happens to connections: what is told of them adds up to what the memory has given, and
//! what is owed is there.

use proptest::prelude::*;

use super::*;
use crate::flow::report::FlowReport;

/// Something that happens.
#[derive(Clone, Copy, Debug)]
enum Op {
    /// A segment of the connection of this number, from or to the local side.
    Say {
        way: Direction,
        connection: u16,
        kind: Kind,
    },
    Suspend,
    Resume,
    /// Time passes; everything that is due is said, and written down if `records`.
    Wait {
        ms: u64,
        records: bool,
    },
    Rules(Hold),
    BreakOff(u16),
    Terminate,
}

/// What a segment is, for one that knows how far its sender is.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Syn,
    Data {
        bytes: u16,
    },
    Again {
        bytes: u16,
    },
    /// Everything that the other end sent is there, less so many bytes.
    Ack {
        less: u16,
    },
    Fin,
    Reset,
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        2 => Just(Kind::Syn),
        6 => (1u16..1_400).prop_map(|bytes| Kind::Data { bytes }),
        2 => (1u16..3_000).prop_map(|bytes| Kind::Again { bytes }),
        6 => prop_oneof![Just(0), 0u16..4_000].prop_map(|less| Kind::Ack { less }),
        1 => Just(Kind::Fin),
        1 => Just(Kind::Reset),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    let way = || prop_oneof![Just(Direction::Out), Just(Direction::In)];
    let hold = prop_oneof![Just(Hold::Full), Just(Hold::Reinject), Just(Hold::Off)];
    prop_oneof![
        30 => (way(), 0u16..4, kind()).prop_map(|(way, connection, kind)| {
            Op::Say { way, connection, kind }
        }),
        2 => Just(Op::Suspend),
        2 => Just(Op::Resume),
        6 => (0u64..3_000, any::<bool>()).prop_map(|(ms, records)| Op::Wait { ms, records }),
        1 => (60_000u64..300_000).prop_map(|ms| Op::Wait { ms, records: true }),
        1 => hold.prop_map(Op::Rules),
        1 => (0u16..5).prop_map(Op::BreakOff),
        1 => Just(Op::Terminate),
    ]
}

/// Some connections, and how far their ends are: local, remote.
struct Room {
    now: Instant,
    flows: Flows,
    memory: Memory,
    sent: [[Seq; 2]; 4],
    unwritten: Vec<Tuple>,
}

impl Room {
    /// Two of the four connections are open.
    fn new(hold: Hold, memory: usize) -> Self {
        let mut room = Self {
            now: Instant::ZERO + Duration::from_secs(10),
            flows: Flows::new(hold, 1),
            memory: Memory::new(memory),
            sent: [[Seq(u32::MAX - 3_000), Seq(7_000)]; 4],
            unwritten: Vec::new(),
        };
        room.happen(Op::Resume);
        for connection in 0..2 {
            for (way, kind) in [
                (Direction::Out, Kind::Syn),
                (Direction::In, Kind::Syn),
                (Direction::Out, Kind::Ack { less: 0 }),
            ] {
                room.happen(Op::Say { way, connection, kind });
            }
        }
        room
    }

    fn tuple(connection: u16) -> Tuple {
        let local = (LOCAL.0.into(), LOCAL.1 + connection);
        Tuple { local, remote: (REMOTE.0.into(), REMOTE.1), protocol: TCP }
    }

    fn happen(&mut self, op: Op) {
        match op {
            Op::Say { way, connection, kind } => self.say(way, connection, kind),
            Op::Suspend => self.flows.suspend(self.now, &mut self.memory),
            Op::Resume => self.flows.resume(self.now, &mut self.memory, TRIP),
            Op::Wait { ms, records } => self.wait(Duration::from_millis(ms), records),
            Op::Rules(hold) => self.flows.set_rules(hold.into()),
            Op::BreakOff(connection) => {
                self.flows.break_off(self.now, &mut self.memory, Self::tuple(connection));
            }
            Op::Terminate => {
                let (mut packets, mut ends) = (Vec::new(), Vec::new());
                self.flows.terminate(&mut self.memory, &mut packets, &mut ends);
            }
        }
    }

    fn say(&mut self, way: Direction, connection: u16, kind: Kind) {
        let sent = &mut self.sent[usize::from(connection)];
        let (own, other) = if way == Direction::Out { (0, 1) } else { (1, 0) };
        let (mut seq, mut ack, mut flags, mut len) = (sent[own], sent[other], Flags::ACK, 0);
        match kind {
            Kind::Syn => {
                seq = seq.minus(1);
                flags = if way == Direction::Out { Flags::SYN } else { Flags::SYN.and(Flags::ACK) };
            }
            Kind::Data { bytes } => (sent[own], len) = (seq.plus(bytes.into()), bytes),
            Kind::Again { bytes } => (seq, len) = (seq.minus(bytes.into()), bytes.min(1_400)),
            Kind::Ack { less } => ack = ack.minus(less.into()),
            Kind::Fin => (sent[own], flags) = (seq.plus(1), flags.and(Flags::FIN)),
            Kind::Reset => flags = flags.and(Flags::RST),
        }
        let timestamps = Some(Timestamps { value: 1, echo: 1 });
        let ends = Self::tuple(connection).ends(way);
        let mut packet = Vec::new();
        let made = Made { ends, seq, ack, flags, window: 60_000, timestamps };
        made.emit((&vec![5; len.into()], &[]), &mut packet);
        let whole = InnerPacket::whole(&packet).unwrap();
        match way {
            Direction::Out => {
                self.flows.outgoing(self.now, &mut self.memory, &whole, true);
            }
            Direction::In => {
                self.flows.incoming(self.now, &mut self.memory, &whole);
            }
        }
    }

    fn wait(&mut self, time: Duration, records: bool) {
        let end = self.now + time;
        let mut packet = Vec::new();
        for _ in 0..10_000 {
            while self.flows.poll(self.now, &mut self.memory, &mut packet).is_some() {
                packet.clear();
            }
            while let Some(tuple) = self.flows.poll_record() {
                self.unwritten.push(tuple);
            }
            if records && let Some(tuple) = self.unwritten.pop() {
                self.flows.recorded(&tuple);
                continue;
            }
            match self.flows.due().filter(|&due| due <= end) {
                Some(due) => self.now = self.now.max(due),
                None => break,
            }
        }
        self.now = end;
        while self.flows.poll_settled().is_some() {}
    }

    fn told(&self) -> Vec<FlowReport> {
        let mut reports = Vec::new();
        self.flows.report(self.now, 0, 100, &mut reports);
        reports
    }
}

proptest! {
    #[test]
    fn what_is_told_adds_up(
        memory in prop_oneof![Just(20_000usize), Just(100_000), Just(1 << 20)],
        ops in proptest::collection::vec(op(), 1..80),
    ) {
        let mut room = Room::new(Hold::Full, memory);
        for op in ops {
            room.happen(op);
            let told = room.told();
            let held: usize = told.iter().map(|flow| flow.held_bytes).sum();
            prop_assert_eq!(held, room.memory.used(), "after {:?}: {:?}", op, told);
            prop_assert!(held <= room.memory.max());
            for flow in told {
                let owed = flow.owed_bytes as usize;
                prop_assert!(owed <= flow.held_bytes, "after {:?}: {:?}", op, flow);
            }
        }
    }
}
