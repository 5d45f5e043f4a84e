//! One flow of datagrams between a client and the server behind the gateway.
//!
//! Decides whose turn it is and which packet is of it. Knows nothing of what carries it: its ends
//! stand behind the hosts' TUNs and see whole payloads ([`crate::udp`]).

use super::host_id::CLIENT;
use super::inner::{LEN_MAX, header, ipv4_checksum};
use super::laws::{Breach, Law};
use super::op::Way;
use crate::emu::earliest;
use crate::udp::{End, HEADERS, Heard};

const UDP: u8 = 17;
/// The server's port: that of QUIC.
const SERVER_PORT: u16 = 443;
/// The client's first port, which nothing else in the world has; every flow has its own.
const FIRST_PORT: u16 = 50_000;
/// IPv4 header, in bytes.
const IP_HEADER: usize = 20;

/// The flow that there is, if there is one.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    /// How many there were.
    begun: u16,
    /// The client's end, and the server's.
    ends: Option<[End; 2]>,
    due_ns: [Option<u64>; 2],
    /// What ended it early: an end that goes on no more, or that heard what nobody said.
    broke: Option<String>,
}

impl Exchange {
    /// A flow begins, and none goes on beside it.
    pub(super) fn begin(&mut self, ends: [End; 2]) {
        self.begun += 1;
        (self.ends, self.broke) = (Some(ends), None);
        (0..2).for_each(|side| self.arm(side));
    }

    /// What ended it early, if anything did.
    pub(super) fn broke(&self) -> Option<&str> {
        self.broke.as_deref()
    }

    /// It is over.
    pub(super) fn end(&mut self) {
        (self.ends, self.due_ns) = (None, [None; 2]);
    }

    /// What either end has heard so far that hears the data.
    pub(super) fn heard(&self, side: usize) -> Option<&Heard> {
        self.ends.as_ref()?[side].heard()
    }

    /// When an end has something to do next.
    pub(super) fn next_ns(&self) -> Option<u64> {
        earliest(self.due_ns)
    }

    /// The packets that leave one end now.
    ///
    /// # Errors
    /// An end that never rests.
    pub(super) fn leaving(&mut self, now_ns: u64, side: usize) -> Result<Vec<Vec<u8>>, Breach> {
        let is_due = |due_ns: Option<u64>| due_ns.is_some_and(|due_ns| due_ns <= now_ns);
        let is_its_turn = is_due(self.due_ns[side]);
        let Some(ends) = self.ends.as_mut().filter(|_| is_its_turn) else { return Ok(Vec::new()) };
        let mut leaving = Vec::new();
        let turn = ends[side].leaving(now_ns, &mut leaving);
        self.note(turn);
        self.arm(side);
        if is_due(self.due_ns[side]) {
            let what = "an end of a flow is due again at once".to_owned();
            return Err(Breach::new(Law::Timeout, what));
        }
        let way = if side == 0 { Way::Up } else { Way::Down };
        let packets = leaving.into_iter().map(|payload| packet(way, self.port(), &payload));
        // Longer ones the interface refuses.
        Ok(packets.filter(|packet| packet.len() <= usize::from(LEN_MAX)).collect())
    }

    /// A packet comes out at an end: whether it is the flow's, and of one that is not over.
    pub(super) fn arrives(&mut self, now_ns: u64, side: usize, packet: &[u8]) -> Option<bool> {
        if self.begun == 0 {
            return None;
        }
        let is_this = port_of(side, packet)? == self.port();
        let Some(ends) = self.ends.as_mut().filter(|_| is_this) else { return Some(false) };
        let turn = ends[side].arrives(now_ns, &packet[IP_HEADER + 8..]);
        self.note(turn);
        self.arm(side);
        Some(true)
    }

    fn arm(&mut self, side: usize) {
        let ends = self.ends.as_mut().filter(|_| self.broke.is_none());
        self.due_ns[side] = ends.and_then(|ends| ends[side].due_ns());
    }

    /// Notes what an end says of its turn; after what breaks one, neither has another.
    fn note(&mut self, turn: Result<(), String>) {
        if let Err(why) = turn {
            self.broke.get_or_insert(why);
            self.due_ns = [None; 2];
        }
    }

    const fn port(&self) -> u16 {
        FIRST_PORT + self.begun
    }
}

fn packet(way: Way, port: u16, payload: &[u8]) -> Vec<u8> {
    let len = payload.len() + usize::from(HEADERS);
    let mut packet = header(len, CLIENT, way);
    packet[9] = UDP;
    let [from, to] = match way {
        Way::Up => [port, SERVER_PORT],
        Way::Down => [SERVER_PORT, port],
    };
    packet[20..22].copy_from_slice(&from.to_be_bytes());
    packet[22..24].copy_from_slice(&to.to_be_bytes());
    packet[24..26].copy_from_slice(&((len - IP_HEADER) as u16).to_be_bytes());
    let sum = ipv4_checksum(&packet);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    // No checksum of UDP: RFC 768 has it so that 0 says that there is none.
    packet[usize::from(HEADERS)..].copy_from_slice(payload);
    packet
}

/// The client's port of a packet that came out at that side, if it is one of these flows.
fn port_of(side: usize, packet: &[u8]) -> Option<u16> {
    let port = |at: usize| Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?));
    let is_udp = packet.len() >= usize::from(HEADERS) && packet[9] == UDP;
    let (client, server) = if side == 0 { (port(22)?, port(20)?) } else { (port(20)?, port(22)?) };
    (is_udp && server == SERVER_PORT && client > FIRST_PORT).then_some(client)
}

#[cfg(test)]
mod tests {
    use super::{End, Exchange};
    use crate::udp::{Sink, Source};

    fn ends() -> [End; 2] {
        let sink = Sink::new(100, Some(0), 0);
        [End::Sink(Box::new(sink)), End::Source(Source::new(1, 100, Some(0)))]
    }

    #[test]
    fn what_breaks_one_end_ends_it_for_both_until_the_next_flow() {
        let mut exchange = Exchange::default();
        exchange.begin(ends());
        assert_eq!((exchange.next_ns(), exchange.broke()), (Some(0), None));
        exchange.note(Err("it came twice".to_owned()));
        exchange.note(Err("it came a third time".to_owned()));
        (0..2).for_each(|side| exchange.arm(side));
        assert_eq!((exchange.next_ns(), exchange.broke()), (None, Some("it came twice")));
        exchange.begin(ends());
        assert_eq!((exchange.next_ns(), exchange.broke()), (Some(0), None));
    }
}
