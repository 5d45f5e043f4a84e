//! One flow of datagrams between a client and the server behind the gateway.
//!
//! Decides whose turn it is and which packet is of it. Knows nothing of what carries it: its ends
//! stand behind the hosts' TUNs and see whole payloads ([`crate::udp`]).

use super::engine::{GATEWAY, World};
use super::inner::{LEN_MAX, header};
use super::laws::{Breach, Law};
use super::op::Way;
use super::parcel::HostId;
use super::road::CLIENT;
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

impl World {
    /// The ends of the flow that are due have their turn.
    pub(super) fn keep_exchange(&mut self) -> Result<(), Breach> {
        for side in 0..2 {
            let is_due = self.exchange.due_ns[side].is_some_and(|due_ns| due_ns <= self.now_ns);
            let Some(ends) = self.exchange.ends.as_mut().filter(|_| is_due) else { continue };
            let mut leaving = Vec::new();
            let turn = ends[side].leaving(self.now_ns, &mut leaving);
            self.exchange.note(turn);
            self.exchange.arm(side);
            if self.exchange.due_ns[side].is_some_and(|due_ns| due_ns <= self.now_ns) {
                return Err(Breach::new(
                    Law::Timeout,
                    "an end of a flow is due again at once".to_owned(),
                ));
            }
            let (way, host) = if side == 0 { (Way::Up, CLIENT + 1) } else { (Way::Down, GATEWAY) };
            for payload in leaving {
                let packet = packet(way, self.exchange.port(), &payload);
                // Longer ones the interface refuses.
                if packet.len() <= usize::from(LEN_MAX) {
                    self.put_inner(host, packet)?;
                }
            }
        }
        Ok(())
    }

    /// A packet has come out of the tunnel: whether it belongs to the flow, whose end has it then.
    pub(super) fn takes_datagram(&mut self, host: HostId, packet: &[u8]) -> Result<bool, Breach> {
        if self.exchange.begun == 0 {
            return Ok(false);
        }
        let side = if host == GATEWAY { 1 } else { 0 };
        let Some(port) = port_of(side, packet) else { return Ok(false) };
        // Of one that is over some may still come.
        let is_this = port == self.exchange.port();
        if let Some(ends) = self.exchange.ends.as_mut().filter(|_| is_this) {
            let payload = &packet[IP_HEADER + 8..];
            let turn = ends[side].arrives(self.now_ns, payload);
            self.exchange.note(turn);
            self.trace.add(&[self.now_ns, packet.len() as u64]);
            self.exchange.arm(side);
        }
        Ok(true)
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
    // No checksum: RFC 768 has it so that 0 says that there is none.
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
