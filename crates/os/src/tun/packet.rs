//! A packet that is written to the TUN, and the checksum that it may lack.
//!
//! Whoever has restored a packet knows that its checksum is right and would have to sum the payload
//! to write it. A super-packet has one checksum for all of its packets, so only a packet that
//! is written alone gets one here.

use super::{
    checksum::{fold, pseudo_header, sum},
    split::HEADER_LEN_MAX,
};

const IPV4_HEADER_LEN: usize = 20;
const IPV6_HEADER_LEN: usize = 40;
const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const TCP_CHECKSUM: usize = 16;
const UDP_CHECKSUM: usize = 6;

/// An inner packet.
#[derive(Clone, Copy, Default, Debug)]
pub struct Packet<'a> {
    bytes: &'a [u8],
    lacks_checksum: bool,
}

impl<'a> Packet<'a> {
    /// A packet that is written as it is.
    pub const fn whole(bytes: &'a [u8]) -> Self {
        Self { bytes, lacks_checksum: false }
    }

    /// A packet of TCP or UDP, without IP options or extension headers, whose transport checksum
    /// was left out: the field means nothing, and the receiver gets the right checksum.
    pub const fn without_checksum(bytes: &'a [u8]) -> Self {
        Self { bytes, lacks_checksum: true }
    }

    pub(super) const fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    pub(super) const fn lacks_checksum(&self) -> bool {
        self.lacks_checksum
    }

    /// The packet in two pieces, with its checksum. If it lacked that, the first piece lies in
    /// `room`.
    pub(crate) fn finish<'r>(&self, room: &'r mut [u8; HEADER_LEN_MAX]) -> [&'r [u8]; 2]
    where
        'a: 'r,
    {
        let whole = [self.bytes, &[]];
        let Some((start, protocol)) = transport(self.bytes).filter(|_| self.lacks_checksum) else {
            return whole;
        };
        let addresses = if start == IPV4_HEADER_LEN { 12..start } else { 8..start };
        let field = start + if protocol == PROTOCOL_TCP { TCP_CHECKSUM } else { UDP_CHECKSUM };
        let (head, tail) = self.bytes.split_at(self.bytes.len().min(HEADER_LEN_MAX));
        let room = &mut room[..head.len()];
        room.copy_from_slice(head);
        let Some(checksum) = room.get_mut(field..field + 2) else { return whole };
        checksum.fill(0);
        let pseudo = pseudo_header(&head[addresses], protocol, self.bytes.len() - start);
        let made = match !fold(pseudo + sum(&room[start..]) + sum(tail)) {
            0 => 0xffff, // UDP has no other way to write zero (RFC 768)
            made => made,
        };
        room[field..field + 2].copy_from_slice(&made.to_be_bytes());
        [room, tail]
    }
}

impl<'a> From<&'a [u8]> for Packet<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::whole(bytes)
    }
}

/// Where the header of TCP or UDP begins that follows the IP header, and which of both it is.
fn transport(packet: &[u8]) -> Option<(usize, u8)> {
    let (start, protocol) = match packet.first()? {
        0x45 => (IPV4_HEADER_LEN, *packet.get(9)?),
        0x60..=0x6f => (IPV6_HEADER_LEN, *packet.get(6)?),
        _ => return None,
    };
    let is_known = matches!(protocol, PROTOCOL_TCP | PROTOCOL_UDP) && packet.len() > start;
    is_known.then_some((start, protocol))
}
