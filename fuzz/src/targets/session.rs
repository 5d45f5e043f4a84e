//! A whole session under attack: the input says what is sent, and what somebody between the two
//! ends does with every datagram. Whatever he does, nothing forged, changed or repeated comes out;
//! and once he is gone, the session carries again.
//!
//! The input is a list of operations, one byte each, some with arguments in the bytes that follow.

use std::net::{Ipv4Addr, SocketAddr};

use rove_proto::time::Duration;

use crate::Target;
use crate::between::{Between, Datagram, End};

/// The target. A run costs some milliseconds, hence the few mutations.
pub const TARGET: Target = Target { name: "session", run, seeds, mutations: 300 };

/// Operations of one run.
const OPERATIONS_MAX: usize = 200;
/// Datagrams that the attacker keeps for later.
const KEPT_MAX: usize = 32;
/// How long the session may take to carry again once nobody disturbs it: longer than any pause
/// between two tries.
const RECOVERY: Duration = Duration::from_secs(120);
/// How long a packet may take on a session that carries.
const CARRY: Duration = Duration::from_secs(1);
/// The step in which time passes at peace: the one-way delay.
const STEP: Duration = Duration::from_millis(20);

fn run(data: &[u8]) {
    let mut attack = Attack { between: Between::new(), kept: Vec::new(), input: data };
    for _ in 0..OPERATIONS_MAX {
        let Some(operation) = attack.byte() else { break };
        attack.operation(operation);
    }
    let mut between = attack.between;
    between.at_peace(RECOVERY, STEP);
    // What is sent first may still be needed to notice that a path is dead.
    for end in [End::Client, End::Gateway] {
        between.send(end, 100);
        between.at_peace(RECOVERY, STEP);
        let serial = between.send(end, 100);
        between.at_peace(CARRY, STEP);
        assert!(between.arrived(serial), "{end:?} cannot send although nobody disturbs");
    }
}

/// Who is between the two ends.
struct Attack<'a> {
    between: Between,
    kept: Vec<Datagram>,
    input: &'a [u8],
}

impl Attack<'_> {
    /// Carries out one operation. Arguments beyond the end of the input are zero.
    fn operation(&mut self, operation: u8) {
        match operation % 16 {
            0 | 1 => {
                let end = if operation.is_multiple_of(2) { End::Client } else { End::Gateway };
                let size = size(self.argument());
                self.between.send(end, size);
            }
            2..=4 => self.deliver_next(),
            5 => drop(self.between.waiting.pop_front()),
            6 => self.keep_copy(),
            7 => self.repeat(),
            8 => self.alter(),
            9 => self.between.waiting.rotate_left(1.min(self.between.waiting.len())),
            10 => {
                // Up to two minutes: beyond every timer but the longest.
                let time = Duration::from_millis(1 << (self.argument() % 18));
                self.between.advance(time);
            }
            11 => self.inject(),
            12 => {
                let number = self.argument() % 4;
                self.between.move_client(number);
            }
            13 => self.between.rebind_nat(),
            14 => {
                // Seldom: a gateway does not restart all the time.
                let seed = self.argument();
                if seed.is_multiple_of(8) {
                    self.between.restart_gateway(u64::from(seed));
                }
            }
            _ => self.between.at_peace(Duration::from_millis(100), STEP),
        }
    }

    fn deliver_next(&mut self) {
        if let Some(datagram) = self.between.waiting.pop_front() {
            self.between.deliver(datagram);
        }
    }

    fn keep_copy(&mut self) {
        if let Some(datagram) = self.between.waiting.front()
            && self.kept.len() < KEPT_MAX
        {
            self.kept.push(datagram.clone());
        }
    }

    /// Sends a kept datagram, from where it came or from elsewhere.
    fn repeat(&mut self) {
        let choice = self.argument();
        let count = self.kept.len().max(1);
        let Some(mut datagram) = self.kept.get(usize::from(choice) % count).cloned() else {
            return;
        };
        if choice & 0x80 != 0 {
            datagram.from = stranger(choice);
        }
        self.between.deliver(datagram);
    }

    /// Changes a byte of the next datagram, keeping the original to be sent later.
    fn alter(&mut self) {
        let (high, low, change) = (self.argument(), self.argument(), self.argument());
        self.keep_copy();
        if let Some(datagram) = self.between.waiting.front_mut() {
            let at = (usize::from(high) << 8 | usize::from(low)) % datagram.bytes.len().max(1);
            if let Some(byte) = datagram.bytes.get_mut(at) {
                *byte ^= change;
            }
        }
    }

    /// Sends bytes of the input itself to one of the ends, as a stranger or as the other end.
    fn inject(&mut self) {
        let (who, length) = (self.argument(), self.argument());
        let length = usize::from(length).min(self.input.len());
        let (bytes, rest) = self.input.split_at(length);
        self.input = rest;
        let (client, gateway) = self.between.addresses();
        let (to, other) = if who & 1 == 0 { (gateway, client) } else { (client, gateway) };
        let from = if who & 2 == 0 { other } else { stranger(who) };
        self.between.deliver(Datagram { from, to, bytes: bytes.to_vec() });
    }

    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.input.split_first()?;
        self.input = rest;
        Some(*byte)
    }

    fn argument(&mut self) -> u8 {
        self.byte().unwrap_or(0)
    }
}

/// Lengths from the shortest packet to the longest.
fn size(byte: u8) -> usize {
    24 + usize::from(byte) * 1_476 / 255
}

fn stranger(number: u8) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(198, 51, 100, 66), u16::from(number) + 1))
}

fn seeds() -> Vec<Vec<u8>> {
    /// Peace for a tenth of a second: a handshake.
    const PEACE: u8 = 15;
    vec![
        vec![PEACE, 0, 10, 1, 200, PEACE],
        // Message 1 is kept, delivered, repeated by a stranger; its halves change places.
        vec![6, 2, 6, 2, 7, 0x80, 7, 0x81, 2, 2, PEACE],
        vec![9, 2, 2, 2, PEACE, 0, 1, PEACE],
        // A move, a rebinding and a restart while packets are under way.
        vec![PEACE, 0, 50, 12, 1, 0, 51, PEACE, 1, 52, PEACE],
        vec![PEACE, 0, 50, 13, 0, 51, 2, 2, 1, 52, PEACE],
        vec![PEACE, 0, 50, 14, 0, 0, 51, 10, 13, PEACE],
        // Sleep, then a packet under the old keys, altered and then true.
        vec![PEACE, 10, 17, 0, 9, 8, 0, 12, 1, 2, 7, 0, PEACE],
        // Noise as a data datagram, as a stranger and as the other end.
        vec![
            PEACE, 11, 2, 30, 0x10, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,
        ],
    ]
}
