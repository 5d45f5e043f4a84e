//! TCP and UDP packets with correct checksums, for targets that test the code after the checksum.
//! Contains a second implementation of the checksum (RFC 1071), so that it can contradict the
//! first.

/// The fields of a packet that vary.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fields {
    pub(crate) v6: bool,
    pub(crate) udp: bool,
    pub(crate) port: u8,
    /// The position in the stream, in bytes.
    pub(crate) sequence: u32,
    /// The identification of IPv4.
    pub(crate) identification: u16,
    /// Flags of TCP.
    pub(crate) flags: u8,
    /// Bytes of payload.
    pub(crate) len: usize,
    /// Spoils the checksum of the transport.
    pub(crate) spoilt: bool,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            v6: false,
            udp: false,
            port: 80,
            sequence: 0xffff_ff00,
            identification: 0xfffe,
            flags: 0x10,
            len: 0,
            spoilt: false,
        }
    }
}

impl Fields {
    /// A packet by its description: `kind | port | place in the flow | TCP flags beside ACK | bytes
    /// of payload | bytes by which it is off its place`. The bits of the kind are IPv6, UDP,
    /// spoilt.
    pub(crate) fn described([kind, port, place, flags, len, differs]: [u8; 6]) -> Self {
        let len = usize::from(len);
        let step = u32::from(place) * u32::try_from(len).unwrap_or(0);
        Self {
            udp: kind & 2 != 0,
            v6: kind & 1 != 0,
            spoilt: kind & 4 != 0,
            port,
            sequence: 0xffff_ff00_u32.wrapping_add(step).wrapping_add(u32::from(differs & 3)),
            identification: 0xfffe_u16.wrapping_add(u16::from(place)),
            flags: 0x10 | flags,
            len,
        }
    }

    /// The packet.
    pub(crate) fn packet(self) -> Vec<u8> {
        let mut transport = vec![0x0f, 0xa0, 0, self.port];
        if self.udp {
            let length = u16::try_from(8 + self.len).unwrap_or(u16::MAX);
            transport.extend(length.to_be_bytes());
            transport.extend([0, 0]);
        } else {
            transport.extend(self.sequence.to_be_bytes());
            transport.extend([0, 0, 0, 7, 0x80, self.flags, 1, 0xf4, 0, 0, 0, 0]);
            transport.extend([1, 1, 8, 10, 0, 0, 0, 99, 0, 0, 0, 1]);
        }
        transport.extend((0..self.len).map(|at| at.to_le_bytes()[0]));
        let mut packet = self.ip_header(transport.len());
        let protocol = if self.udp { 17 } else { 6 };
        let sum = checksum(pseudo_header(&packet, protocol, transport.len()), &transport);
        let sum = if sum == 0 && self.udp { 0xffff } else { sum };
        let at = if self.udp { 6 } else { 16 };
        transport[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        transport[at] ^= u8::from(self.spoilt);
        packet.extend(transport);
        packet
    }

    fn ip_header(self, transport_len: usize) -> Vec<u8> {
        let protocol = if self.udp { 17 } else { 6 };
        let length = |len: usize| u16::try_from(len).unwrap_or(u16::MAX).to_be_bytes();
        if self.v6 {
            let mut header = vec![0x60, 0, 0, 0];
            header.extend(length(transport_len));
            header.extend([protocol, 64]);
            header.extend([[0xfd; 16], [0xfe; 16]].concat());
            return header;
        }
        let mut header = vec![0x45, 0];
        header.extend(length(20 + transport_len));
        header.extend(self.identification.to_be_bytes());
        header.extend([0x40, 0, 64, protocol, 0, 0, 10, 77, 0, 2, 198, 51, 100, 7]);
        let sum = checksum(0, &header);
        header[10..12].copy_from_slice(&sum.to_be_bytes());
        header
    }
}

/// The checksum over `bytes` and an earlier sum: the value for the field, or zero if the field is
/// already correct.
pub(crate) fn checksum(before: u32, bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|word| {
        let low = word.get(1).copied().unwrap_or(0);
        u32::from(u16::from_be_bytes([word[0], low]))
    });
    let mut sum = before + words.sum::<u32>();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

/// The sum of the pseudo-header of a packet that begins with this IP header.
pub(crate) fn pseudo_header(ip: &[u8], protocol: u8, transport_len: usize) -> u32 {
    let addresses = if ip[0] >> 4 == 6 { &ip[8..40] } else { &ip[12..20] };
    let words = addresses.chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    words.sum::<u32>() + u32::from(protocol) + u32::try_from(transport_len).unwrap_or(0)
}
