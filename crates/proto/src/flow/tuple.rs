//! Which inner connection a packet belongs to.

use std::net::IpAddr;

use crate::wire::inner::Headers;
use crate::wire::tcp::Ends;

/// Which way a packet goes, as seen from one end of the tunnel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From the TUN into the tunnel: this end's side sends it.
    Out,
    /// From the tunnel to the TUN: the other end's side sent it.
    In,
}

/// The two ends of an inner connection: the same for packets of both directions.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Tuple {
    /// The end behind this node's TUN: address and port.
    pub local: (IpAddr, u16),
    /// The end behind the peer.
    pub remote: (IpAddr, u16),
    /// IP protocol number.
    pub protocol: u8,
}

impl Tuple {
    /// The flow of a packet with these headers, which goes `way`. `None` when it has no ports.
    pub fn of(headers: &Headers, way: Direction) -> Option<Self> {
        let (from, to) = headers.ports?;
        let (source, destination) = ((headers.source, from), (headers.destination, to));
        let protocol = headers.protocol;
        Some(match way {
            Direction::Out => Self { local: source, remote: destination, protocol },
            Direction::In => Self { local: destination, remote: source, protocol },
        })
    }

    /// Whether a packet with these headers, which goes `way`, is of this connection.
    pub fn is_of(&self, headers: &Headers, way: Direction) -> bool {
        let (source, destination) = match way {
            Direction::Out => (&self.local, &self.remote),
            Direction::In => (&self.remote, &self.local),
        };
        headers.ports == Some((source.1, destination.1))
            && headers.protocol == self.protocol
            && headers.source == source.0
            && headers.destination == destination.0
    }

    /// The ports of both ends.
    pub(crate) const fn ports(&self) -> (u16, u16) {
        (self.local.1, self.remote.1)
    }

    /// Sender and receiver of a packet that goes `way`.
    pub const fn ends(&self, way: Direction) -> Ends {
        match way {
            Direction::Out => Ends { source: self.local, destination: self.remote },
            Direction::In => Ends { source: self.remote, destination: self.local },
        }
    }

    /// The bucket, among those of `multipath`, of what its local end sends.
    pub(crate) fn bucket(&self) -> u8 {
        bucket(self.flow_hash())
    }

    #[expect(clippy::cast_possible_truncation, reason = "a part of a hash")]
    fn flow_hash(&self) -> u32 {
        self.hash(0) as u32
    }

    /// A number that is the same for the packets of a connection, and that nobody who does not know
    /// `secret` can make the same for many: 64 bits at a time, each multiplied into 128 and folded.
    pub fn hash(&self, secret: u64) -> u64 {
        let ports = u64::from(self.local.1) << 24
            | u64::from(self.remote.1) << 40
            | u64::from(self.protocol);
        let mut hash = fold(secret ^ ports, ODD[0]);
        for address in [self.local.0, self.remote.0] {
            hash = match address {
                IpAddr::V4(v4) => fold(hash ^ u64::from(v4.to_bits()), ODD[1]),
                IpAddr::V6(v6) => {
                    let bits = v6.to_bits();
                    #[expect(clippy::cast_possible_truncation, reason = "one half each")]
                    let (high, low) = ((bits >> 64) as u64, bits as u64);
                    fold(fold(hash ^ high, ODD[1]) ^ low, ODD[2])
                }
            };
        }
        hash
    }
}

/// A number that is the same for all packets of a flow in one direction. No secret depends on it:
/// it only says which packets may arrive by several paths.
pub fn hash(headers: &Headers) -> u32 {
    let (source, destination) = headers.ports.unwrap_or((0, 0));
    let (local, remote) = ((headers.source, source), (headers.destination, destination));
    Tuple { local, remote, protocol: headers.protocol }.flow_hash()
}

/// The bucket, among those of `multipath`, of what leaves of a flow with this hash.
#[expect(clippy::cast_possible_truncation, reason = "as many buckets as a byte has values")]
pub const fn bucket(hash: u32) -> u8 {
    hash as u8
}

/// Odd numbers with as many ones as zeros: digits of the golden ratio, of pi and of e.
const ODD: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0x243f_6a88_85a3_08d3, 0xb7e1_5162_8aed_2a6b];

const fn fold(a: u64, b: u64) -> u64 {
    let product = a as u128 * b as u128;
    #[expect(clippy::cast_possible_truncation, reason = "one half each")]
    let (high, low) = ((product >> 64) as u64, product as u64);
    high ^ low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::inner::TCP;

    fn tuple(number: u32) -> Tuple {
        let port = u16::try_from(number % 5_000).unwrap() + 1_024;
        let local = IpAddr::from([10, 77, 0, u8::try_from(number / 5_000).unwrap()]);
        Tuple { local: (local, port), remote: ([192, 0, 2, 1].into(), 443), protocol: TCP }
    }

    #[test]
    fn neighbours_lie_apart() {
        let mut counts = vec![0u32; 1 << 12];
        for number in 0..1 << 14 {
            counts[(tuple(number).hash(7) & 0xfff) as usize] += 1;
        }
        assert!(counts.iter().all(|&count| count < 20), "{:?}", counts.iter().max());
        assert_ne!(tuple(1).hash(7), tuple(1).hash(8));
    }
}
