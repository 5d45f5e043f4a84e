//! The header in front of every packet of a TUN opened with `IFF_VNET_HDR`.
//!
//! It is the `virtio_net_hdr` of linux/virtio_net.h without `num_buffers`: ten bytes in the byte
//! order of the machine (the TUN's default, tun.c `tun_is_little_endian`).

/// Length of the header in bytes.
pub(crate) const VNET_LEN: usize = 10;

/// Bytes of the largest packet that a TUN carries.
pub const PACKET_LEN_MAX: usize = 65_535;

const F_NEEDS_CSUM: u8 = 1;
const F_DATA_VALID: u8 = 2;
const GSO_NONE: u8 = 0;
const GSO_TCPV4: u8 = 1;
const GSO_TCPV6: u8 = 4;
const GSO_UDP_L4: u8 = 5;
const GSO_ECN: u8 = 0x80;

/// How the kernel wants (or is asked) to cut the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gso {
    /// Not at all: it is one packet.
    None,
    /// Into TCP segments.
    Tcp,
    /// Into UDP datagrams (USO, Linux 6.2).
    Udp,
}

/// The state of the transport checksum.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Checksum {
    /// In the packet; the receiver of it may check.
    Present,
    /// In the packet, and already verified.
    Verified,
    /// The field holds the sum of the pseudo-header; the rest is to be added.
    Partial {
        /// Where summing starts, in bytes from the start of the packet: the transport header.
        start: u16,
        /// Where the field lies, in bytes from `start`.
        offset: u16,
    },
}

/// One header, decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Vnet {
    pub(crate) gso: Gso,
    /// Payload bytes of each segment; of no meaning with [`Gso::None`].
    pub(crate) gso_size: u16,
    /// Bytes of all headers of the packet; a hint that the kernel checks, ours are exact.
    pub(crate) header_len: u16,
    pub(crate) checksum: Checksum,
}

impl Vnet {
    /// The header of an ordinary packet.
    pub(crate) const fn plain(checksum: Checksum) -> Self {
        Self { gso: Gso::None, gso_size: 0, header_len: 0, checksum }
    }

    /// Reads a header; `None` if it asks for something that was not agreed with `TUNSETOFFLOAD`.
    pub(crate) fn decode(bytes: &[u8; VNET_LEN]) -> Option<Self> {
        let [flags, gso_type, rest @ ..] = *bytes;
        let [h0, h1, s0, s1, c0, c1, o0, o1] = rest;
        let gso = match gso_type & !GSO_ECN {
            GSO_NONE => Gso::None,
            GSO_TCPV4 | GSO_TCPV6 => Gso::Tcp,
            GSO_UDP_L4 => Gso::Udp,
            _ => return None,
        };
        let checksum = if flags & F_NEEDS_CSUM != 0 {
            Checksum::Partial {
                start: u16::from_ne_bytes([c0, c1]),
                offset: u16::from_ne_bytes([o0, o1]),
            }
        } else if flags & F_DATA_VALID != 0 {
            Checksum::Verified
        } else {
            Checksum::Present
        };
        Some(Self {
            gso,
            gso_size: u16::from_ne_bytes([s0, s1]),
            header_len: u16::from_ne_bytes([h0, h1]),
            checksum,
        })
    }

    /// Writes the header for a packet of IPv6, if `v6`, else of IPv4.
    pub(crate) fn encode(self, v6: bool) -> [u8; VNET_LEN] {
        let gso_type = match (self.gso, v6) {
            (Gso::None, _) => GSO_NONE,
            (Gso::Tcp, false) => GSO_TCPV4,
            (Gso::Tcp, true) => GSO_TCPV6,
            (Gso::Udp, _) => GSO_UDP_L4,
        };
        let (flags, start, offset) = match self.checksum {
            Checksum::Present => (0, 0, 0),
            Checksum::Verified => (F_DATA_VALID, 0, 0),
            Checksum::Partial { start, offset } => (F_NEEDS_CSUM, start, offset),
        };
        let [h0, h1] = self.header_len.to_ne_bytes();
        let [s0, s1] = self.gso_size.to_ne_bytes();
        let [c0, c1] = start.to_ne_bytes();
        let [o0, o1] = offset.to_ne_bytes();
        [flags, gso_type, h0, h1, s0, s1, c0, c1, o0, o1]
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in any::<[u8; VNET_LEN]>()) {
            if let Some(vnet) = Vnet::decode(&bytes) {
                for v6 in [false, true] {
                    prop_assert_eq!(
                        Vnet::decode(&vnet.encode(v6)).map(|again| (again.gso, again.checksum)),
                        Some((vnet.gso, vnet.checksum))
                    );
                }
            }
        }
    }

    #[test]
    fn layout_of_a_tcp_super_packet() {
        let vnet = Vnet {
            gso: Gso::Tcp,
            gso_size: 1_348,
            header_len: 52,
            checksum: Checksum::Partial { start: 20, offset: 16 },
        };
        let mut expected = vec![1, 1];
        for field in [52u16, 1_348, 20, 16] {
            expected.extend(field.to_ne_bytes());
        }
        assert_eq!(vnet.encode(false).to_vec(), expected);
        assert_eq!(vnet.encode(true)[1], 4);
        assert_eq!(Vnet::decode(&vnet.encode(true)), Some(vnet));
    }
}
