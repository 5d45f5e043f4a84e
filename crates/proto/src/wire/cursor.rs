//! Reading and writing of big-endian fields, checked once at each step.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::error::DropReason;

/// The largest number that a field of variable length holds.
pub(crate) const VARINT_MAX: u64 = (1 << 62) - 1;

/// Reads fields from the front of a slice.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What was not read yet.
    pub(crate) const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8], DropReason> {
        if len > self.rest.len() {
            return Err(DropReason::BadFrame);
        }
        let (head, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(head)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], DropReason> {
        self.take(N)?.try_into().map_err(|_| DropReason::BadFrame)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, DropReason> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, DropReason> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, DropReason> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, DropReason> {
        self.array().map(u64::from_be_bytes)
    }

    /// A number of up to 62 bits in 1, 2, 4 or 8 bytes, of which the first two bits say how many
    /// (RFC 9000, section 16).
    pub(crate) fn varint(&mut self) -> Result<u64, DropReason> {
        let first = self.u8()?;
        let more = (1_usize << (first >> 6)) - 1;
        let value = u64::from(first & 0x3f);
        Ok(self.take(more)?.iter().fold(value, |value, byte| value << 8 | u64::from(*byte)))
    }

    /// The same, of at most 32 bits.
    pub(crate) fn varint_u32(&mut self) -> Result<u32, DropReason> {
        u32::try_from(self.varint()?).map_err(|_| DropReason::BadFrame)
    }

    /// A family byte (4 or 6) and 16 bytes of which IPv4 uses the first four.
    pub(crate) fn ip(&mut self) -> Result<IpAddr, DropReason> {
        let (family, bytes) = (self.u8()?, self.array::<16>()?);
        match family {
            4 => Ok(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into()),
            6 => Ok(Ipv6Addr::from(bytes).into()),
            _ => Err(DropReason::BadFrame),
        }
    }

    pub(crate) fn socket_addr(&mut self) -> Result<SocketAddr, DropReason> {
        Ok(SocketAddr::new(self.ip()?, self.u16()?))
    }
}

/// Appends fields to a buffer.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    pub(crate) const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.out.push(value);
    }

    pub(crate) fn u16(&mut self, value: u16) {
        self.bytes(&value.to_be_bytes());
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.bytes(&value.to_be_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.bytes(&value.to_be_bytes());
    }

    /// A number of at most [`VARINT_MAX`] in as few bytes as [`Reader::varint`] reads it from.
    pub(crate) fn varint(&mut self, value: u64) {
        debug_assert!(value <= VARINT_MAX);
        let value = value.min(VARINT_MAX);
        match value {
            0..0x40 => self.bytes(&value.to_be_bytes()[7..]),
            0x40..0x4000 => self.bytes(&(value | 0x4000).to_be_bytes()[6..]),
            0x4000..0x4000_0000 => self.bytes(&(value | 0x8000_0000).to_be_bytes()[4..]),
            _ => self.u64(value | 0xc000_0000_0000_0000),
        }
    }

    pub(crate) fn ip(&mut self, address: IpAddr) {
        let (family, bytes) = match address {
            IpAddr::V4(v4) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&v4.octets());
                (4, bytes)
            }
            IpAddr::V6(v6) => (6, v6.octets()),
        };
        self.u8(family);
        self.bytes(&bytes);
    }

    pub(crate) fn socket_addr(&mut self, address: SocketAddr) {
        self.ip(address.ip());
        self.u16(address.port());
    }
}
