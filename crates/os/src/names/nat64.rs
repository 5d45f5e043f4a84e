//! NAT64: how a network with IPv6 only reaches IPv4 hosts. Covers the network's prefixes (RFC 6052)
//! and how to ask the network for them (RFC 7050).
//!
//! This module decides which prefixes are valid and how a prefix and an IPv4 address are combined.
//! It does not know which link a prefix belongs to, or whether a translator exists there. The
//! gateway proves itself in the handshake, so a wrong prefix costs only a datagram. Limit: router
//! advertisements (RFC 8781) are not read.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    time::Duration,
};

use super::{Target, resolve_for};
use crate::error::Error;

/// Prefixes accepted from one network's answer.
pub const PREFIXES_MAX: usize = 4;
/// The name for which a network with NAT64 synthesises IPv6 addresses, and its real IPv4 addresses
/// (RFC 7050 section 2.2).
const NAME: &str = "ipv4only.arpa";
const KNOWN: [Ipv4Addr; 2] = [Ipv4Addr::new(192, 0, 0, 170), Ipv4Addr::new(192, 0, 0, 171)];
/// The lengths that a prefix may have, in bits (RFC 6052 section 2.2), the usual one first.
const LENGTHS: [u8; 6] = [96, 64, 56, 48, 40, 32];
/// The octet that must be zero in every such address: bits 64 to 71 (RFC 6052 section 2.2).
const ZERO_OCTET: usize = 8;

/// A prefix whose addresses a network translates to IPv4.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Nat64Prefix {
    network: Ipv6Addr,
    bits: u8,
}

impl Nat64Prefix {
    /// 64:ff9b::/96, which many networks use (RFC 6052 section 2.1).
    pub const WELL_KNOWN: Self =
        Self { network: Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), bits: 96 };

    /// The first `bits` bits of `address` as a prefix; `None` if no network can use it.
    fn of(address: Ipv6Addr, bits: u8) -> Option<Self> {
        let network = Ipv6Addr::from(address.to_bits() & mask(bits));
        let is_zero = network.octets()[ZERO_OCTET] == 0;
        (is_zero && may_translate(network)).then_some(Self { network, bits })
    }

    /// The IPv6 address through which `v4` is reached. `None` if `v4` is not public and the prefix
    /// is the well-known one (RFC 6052 section 3.1).
    pub fn embed(&self, v4: Ipv4Addr) -> Option<Ipv6Addr> {
        let is_private = v4.is_private() || v4.is_loopback() || v4.is_link_local();
        if *self == Self::WELL_KNOWN && is_private {
            return None;
        }
        Some(self.join(v4))
    }

    /// The IPv4 address in `v6`, if it has this prefix.
    pub fn extract(&self, v6: Ipv6Addr) -> Option<Ipv4Addr> {
        let octets = v6.octets();
        let mut v4 = [0; 4];
        for (octet, place) in v4.iter_mut().zip(places(self.bits)) {
            *octet = octets[place];
        }
        let v4 = Ipv4Addr::from(v4);
        // All other bits must be zero, else this is an ordinary address of that network.
        (self.join(v4) == v6).then_some(v4)
    }

    fn join(&self, v4: Ipv4Addr) -> Ipv6Addr {
        let mut octets = self.network.octets();
        for (place, octet) in places(self.bits).zip(v4.octets()) {
            octets[place] = octet;
        }
        octets.into()
    }
}

impl fmt::Display for Nat64Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.bits)
    }
}

/// The positions of the octets of an IPv4 address behind a prefix of this many bits.
fn places(bits: u8) -> impl Iterator<Item = usize> {
    (usize::from(bits) / 8..16).filter(|&place| place != ZERO_OCTET).take(4)
}

fn mask(bits: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0)
}

/// Whether packets to such a prefix reach a router at all. True for the allocated part of the
/// Internet, unique local addresses, and ranges reserved for translation (RFC 6052, RFC 8215).
/// False for multicast, this host and link-local addresses.
fn may_translate(network: Ipv6Addr) -> bool {
    let [first, second, ..] = network.segments();
    first & 0xe000 == 0x2000 || first & 0xfe00 == 0xfc00 || (first, second) == (0x64, 0xff9b)
}

/// The prefixes from which the network made these addresses of the well-known name.
fn prefixes(answers: &[IpAddr]) -> Vec<Nat64Prefix> {
    let mut found = Vec::new();
    for answer in answers {
        let IpAddr::V6(answer) = *answer else { continue };
        for prefix in LENGTHS.into_iter().filter_map(|bits| Nat64Prefix::of(answer, bits)) {
            let is_known = prefix.extract(answer).is_some_and(|v4| KNOWN.contains(&v4));
            if is_known && !found.contains(&prefix) && found.len() < PREFIXES_MAX {
                found.push(prefix);
            }
        }
    }
    found
}

/// Asks the network behind the link `link` for its prefixes, through its name servers. Returns none
/// if the network announces no NAT64. Blocks for `time` at most.
///
/// # Errors
/// Those of [`super::resolve`].
pub fn discover(
    servers: &[SocketAddr],
    mark: Option<u32>,
    link: &str,
    time: Duration,
) -> Result<Vec<Nat64Prefix>, Error> {
    let target = Target { name: NAME, link: Some(link) };
    match resolve_for(target, servers, mark, time) {
        Ok(answers) => Ok(prefixes(&answers)),
        Err(Error::NameUnknown { .. }) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// The table of RFC 6052 section 2.4.
    #[test]
    fn addresses_are_joined_as_the_standard_shows() {
        for (network, bits, joined) in [
            ("2001:db8::", 32, "2001:db8:c000:221::"),
            ("2001:db8:100::", 40, "2001:db8:1c0:2:21::"),
            ("2001:db8:122::", 48, "2001:db8:122:c000:2:2100::"),
            ("2001:db8:122:300::", 56, "2001:db8:122:3c0:0:221::"),
            ("2001:db8:122:344::", 64, "2001:db8:122:344:c0:2:2100::"),
            ("2001:db8:122:344::", 96, "2001:db8:122:344::192.0.2.33"),
            ("64:ff9b::", 96, "64:ff9b::192.0.2.33"),
        ] {
            let v4 = Ipv4Addr::new(192, 0, 2, 33);
            let prefix = Nat64Prefix::of(network.parse().unwrap(), bits).unwrap();
            let joined: Ipv6Addr = joined.parse().unwrap();
            assert_eq!(prefix.embed(v4), Some(joined), "{prefix}");
            assert_eq!(prefix.extract(joined), Some(v4), "{prefix}");
        }
        assert_eq!(Nat64Prefix::WELL_KNOWN.embed(Ipv4Addr::new(10, 0, 0, 1)), None);
        assert_eq!(Nat64Prefix::WELL_KNOWN.to_string(), "64:ff9b::/96");
    }

    #[test]
    fn a_prefix_of_every_length_is_found_in_an_answer() {
        for bits in LENGTHS {
            let network = "2001:db8:122:344::".parse().unwrap();
            let prefix = Nat64Prefix::of(network, bits).unwrap();
            let answers = KNOWN.map(|v4| prefix.embed(v4).unwrap().into());
            assert_eq!(prefixes(&answers), [prefix]);
        }
    }

    #[test]
    fn answers_that_make_no_sense_have_no_prefix() {
        for nonsense in [
            "192.0.0.170",
            "::ffff:192.0.0.170",
            "::192.0.0.170",
            "ff02::192.0.0.170",
            "fe80::192.0.0.170",
            "2001:db8::192.0.2.1",
            "2001:db8::100:0:192.0.0.170",
            "2001:db8:122:344:1c0:0:aa00::",
        ] {
            assert_eq!(prefixes(&[ip(nonsense)]), [], "{nonsense}");
        }
        let many: Vec<IpAddr> =
            (0..100).map(|n| ip(&format!("2001:db8:{n:x}::192.0.0.170"))).collect();
        assert_eq!(prefixes(&many).len(), PREFIXES_MAX);
    }

    proptest! {
        #[test]
        fn whatever_is_answered_there_are_few_prefixes_and_none_of_a_link_or_group(
            answers in prop::collection::vec(any::<[u8; 16]>(), 0..20),
            known in any::<bool>(),
        ) {
            let answers: Vec<IpAddr> = answers
                .into_iter()
                .map(|mut octets| {
                    if known {
                        octets[12..].copy_from_slice(&KNOWN[0].octets());
                        octets[ZERO_OCTET] = 0;
                    }
                    octets.into()
                })
                .collect();
            let found = prefixes(&answers);
            prop_assert!(found.len() <= PREFIXES_MAX);
            for prefix in found {
                let made = prefix.embed(Ipv4Addr::new(192, 0, 2, 1)).unwrap();
                prop_assert!(!made.is_multicast() && !made.is_loopback());
                prop_assert!(!made.is_unicast_link_local() && made.to_ipv4_mapped().is_none());
            }
        }

        #[test]
        fn what_was_joined_comes_apart_again(
            network in any::<[u8; 16]>(),
            v4 in any::<[u8; 4]>(),
            length in 0..LENGTHS.len(),
        ) {
            if let Some(prefix) = Nat64Prefix::of(network.into(), LENGTHS[length]) {
                let v4 = Ipv4Addr::from(v4);
                prop_assert_eq!(prefix.extract(prefix.join(v4)), Some(v4));
            }
        }
    }
}
