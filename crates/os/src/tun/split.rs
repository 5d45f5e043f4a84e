//! Cutting a super-packet of the kernel into the packets that it stands for.
//!
//! This is what a network card does with TSO and USO: per segment it corrects lengths, IPv4
//! identification, TCP sequence number and flags, and completes the checksum
//! (Linux `tcp_gso_segment` and `__udp_gso_segment`). The payload is never copied here: each
//! segment is a header of ours and a borrowed piece of the super-packet.
//!
//! It refuses to know where segments go. What the kernel promised is checked all the same: a
//! header that does not fit its packet is [`Malformed`], never a panic.

use super::{
    checksum::{fold, pseudo_header, sum},
    vnet::{Checksum, Gso, Vnet},
};

/// Bytes of IP and transport headers that a super-packet may have: IPv6 with 156 bytes of
/// extension headers and a full TCP header. What has more is refused.
pub const HEADER_LEN_MAX: usize = 256;

const PROTOCOL_TCP: u8 = 6;
const PROTOCOL_UDP: u8 = 17;
const TCP_HEADER_LEN_MIN: usize = 20;
const TCP_CHECKSUM: usize = 16;
const UDP_HEADER_LEN: usize = 8;
const UDP_CHECKSUM: usize = 6;
const FLAG_FIN: u8 = 0x01;
const FLAG_PSH: u8 = 0x08;
const FLAG_CWR: u8 = 0x80;

/// One inner packet: the bytes of `header` followed by those of `payload`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment<'a> {
    /// IP and transport header, complete in every field; for a packet that was not cut, all of it.
    pub header: &'a [u8],
    /// The rest, in the buffer of the super-packet.
    pub payload: &'a [u8],
    /// Where `payload` begins in the super-packet.
    pub at: usize,
}

impl Segment<'_> {
    /// Bytes of the whole packet.
    pub fn len(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    /// Whether it was cut out of a super-packet. Its checksums are right then: they were made here,
    /// from all that they cover.
    pub fn is_cut(&self) -> bool {
        !self.payload.is_empty()
    }

    /// Whether the packet has no byte at all, which no segment of a [`super::Tun`] has.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The header in front of a packet does not fit the packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Malformed;

/// Calls `each` for every packet that `packet`, which is finished, stands for, in order; returns
/// how many.
pub(crate) fn split(
    vnet: Vnet,
    packet: &[u8],
    each: impl FnMut(Segment<'_>),
) -> Result<usize, Malformed> {
    match vnet.gso {
        _ if packet.is_empty() => Err(Malformed),
        Gso::None => pass_whole(packet, each),
        Gso::Tcp | Gso::Udp => split_super_packet(vnet, packet, each),
    }
}

/// Makes a packet that the kernel did not finish a whole one, if it stands for itself.
pub(crate) fn finish(vnet: Vnet, packet: &mut [u8]) -> Result<(), Malformed> {
    if let (Gso::None, Checksum::Partial { start, offset }) = (vnet.gso, vnet.checksum) {
        complete_checksum(packet, usize::from(start), usize::from(offset))?;
    }
    Ok(())
}

fn pass_whole(packet: &[u8], mut each: impl FnMut(Segment<'_>)) -> Result<usize, Malformed> {
    each(Segment { header: packet, payload: &[], at: packet.len() });
    Ok(1)
}

/// Adds header and payload to a checksum that so far covers the pseudo-header only.
fn complete_checksum(packet: &mut [u8], start: usize, offset: usize) -> Result<(), Malformed> {
    let covered = packet.get_mut(start..).ok_or(Malformed)?;
    let sum = fold(sum(covered));
    let field = covered.get_mut(offset..offset + 2).ok_or(Malformed)?;
    // Zero means "no checksum" in UDP, where alone a sum of zero must be sent as its other
    // form (RFC 768); TCP may send either, both verify.
    let value = if sum == 0xffff { 0xffff } else { !sum };
    field.copy_from_slice(&value.to_be_bytes());
    Ok(())
}

/// The fields of a super-packet's header that differ from segment to segment.
struct Template {
    /// Header as the kernel gave it; rewritten for every segment.
    header: [u8; HEADER_LEN_MAX],
    header_len: usize,
    /// Where the transport header starts.
    transport: usize,
    gso: Gso,
    v6: bool,
    identification: u16,
    sequence: u32,
    tcp_flags: u8,
}

fn split_super_packet(
    vnet: Vnet,
    packet: &[u8],
    mut each: impl FnMut(Segment<'_>),
) -> Result<usize, Malformed> {
    let mut template = Template::new(vnet, packet)?;
    let payload = &packet[template.header_len..];
    let size = usize::from(vnet.gso_size);
    if size == 0 || payload.is_empty() {
        return Err(Malformed);
    }
    let count = payload.len().div_ceil(size);
    for (index, piece) in payload.chunks(size).enumerate() {
        let at = template.header_len + index * size;
        let header = template.segment(index, size, index + 1 == count, piece);
        each(Segment { header, payload: piece, at });
    }
    Ok(count)
}

impl Template {
    fn new(vnet: Vnet, packet: &[u8]) -> Result<Self, Malformed> {
        let Checksum::Partial { start, offset: _ } = vnet.checksum else { return Err(Malformed) };
        let transport = usize::from(start);
        let (v6, ip_len_min) = match packet[0] >> 4 {
            4 => (false, 20),
            6 => (true, 40),
            _ => return Err(Malformed),
        };
        if transport < ip_len_min || (!v6 && transport != usize::from(packet[0] & 0x0f) * 4) {
            return Err(Malformed);
        }
        let transport_len = match vnet.gso {
            Gso::Udp => UDP_HEADER_LEN,
            Gso::Tcp | Gso::None => {
                usize::from(*packet.get(transport + 12).ok_or(Malformed)? >> 4) * 4
            }
        };
        let header_len = transport + transport_len;
        let shortest = if vnet.gso == Gso::Udp { UDP_HEADER_LEN } else { TCP_HEADER_LEN_MIN };
        if transport_len < shortest || header_len > HEADER_LEN_MAX || header_len > packet.len() {
            return Err(Malformed);
        }
        let mut header = [0; HEADER_LEN_MAX];
        header[..header_len].copy_from_slice(&packet[..header_len]);
        let (sequence, tcp_flags) = match vnet.gso {
            Gso::Udp => (0, 0),
            Gso::Tcp | Gso::None => {
                let [a, b, c, d] = [4, 5, 6, 7].map(|at| header[transport + at]);
                (u32::from_be_bytes([a, b, c, d]), header[transport + 13])
            }
        };
        let identification = u16::from_be_bytes([header[4], header[5]]);
        let gso = vnet.gso;
        Ok(Self { header, header_len, transport, gso, v6, identification, sequence, tcp_flags })
    }

    /// The header of segment number `index`, whose payload is `piece`.
    fn segment(&mut self, index: usize, size: usize, last: bool, piece: &[u8]) -> &[u8] {
        let total = self.header_len + piece.len();
        self.write_ip(index, total);
        let transport_len = total - self.transport;
        let (protocol, field) = match self.gso {
            Gso::Udp => {
                let length = (transport_len as u16).to_be_bytes();
                self.header[self.transport + 4..self.transport + 6].copy_from_slice(&length);
                (PROTOCOL_UDP, self.transport + UDP_CHECKSUM)
            }
            Gso::Tcp | Gso::None => {
                self.write_tcp(index, size, last);
                (PROTOCOL_TCP, self.transport + TCP_CHECKSUM)
            }
        };
        self.header[field..field + 2].fill(0);
        let addresses = if self.v6 { &self.header[8..40] } else { &self.header[12..20] };
        let sum = pseudo_header(addresses, protocol, transport_len)
            + sum(&self.header[self.transport..self.header_len])
            + sum(piece);
        let value = match !fold(sum) {
            0 if self.gso == Gso::Udp => 0xffff,
            value => value,
        };
        self.header[field..field + 2].copy_from_slice(&value.to_be_bytes());
        &self.header[..self.header_len]
    }

    fn write_ip(&mut self, index: usize, total: usize) {
        if self.v6 {
            let length = (total - 40) as u16;
            self.header[4..6].copy_from_slice(&length.to_be_bytes());
            return;
        }
        let identification = self.identification.wrapping_add(index as u16);
        self.header[2..4].copy_from_slice(&(total as u16).to_be_bytes());
        self.header[4..6].copy_from_slice(&identification.to_be_bytes());
        self.header[10..12].fill(0);
        let sum = !fold(sum(&self.header[..self.transport]));
        self.header[10..12].copy_from_slice(&sum.to_be_bytes());
    }

    fn write_tcp(&mut self, index: usize, size: usize, last: bool) {
        let sequence = self.sequence.wrapping_add((index * size) as u32);
        let mut flags = self.tcp_flags;
        if !last {
            flags &= !(FLAG_FIN | FLAG_PSH);
        }
        if index > 0 {
            // The sender reduced its window once, so it says so once (RFC 3168 section 6.1.2).
            flags &= !FLAG_CWR;
        }
        self.header[self.transport + 4..self.transport + 8]
            .copy_from_slice(&sequence.to_be_bytes());
        self.header[self.transport + 13] = flags;
    }
}
