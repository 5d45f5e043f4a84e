//! The bodies of control frames: what peers tell each other once and for certain
//! (docs/spec/wire.md#4-control).

use std::net::{IpAddr, SocketAddr};

use super::cursor::{Reader, Writer};
use super::restart::RestartToken;
use crate::error::DropReason;
use crate::id::{PathSerial, SessionIndex};

mod kind {
    pub(super) const LEASE: u8 = 1;
    pub(super) const ROUTES: u8 = 2;
    pub(super) const INDICES: u8 = 3;
    pub(super) const ADDRESSES: u8 = 4;
    pub(super) const RESTART_TOKENS: u8 = 5;
    pub(super) const EARLY: u8 = 6;
    pub(super) const SCHEDULER: u8 = 7;
    pub(super) const RECOVERY: u8 = 8;
    pub(super) const TAKEN: u8 = 9;
    pub(super) const RUN: u8 = 10;
    pub(super) const KEY_IS_SHARED: u8 = 11;
    pub(super) const NETWORKS: u8 = 12;
    pub(super) const POLICED: u8 = 13;
    pub(super) const CONTEXT: u8 = 14;
    pub(super) const COMPRESS: u8 = 15;
    pub(super) const DICTIONARIES: u8 = 16;
}

/// The most inner addresses, name servers or domains of one lease.
pub(crate) const LEASE_ENTRIES_MAX: usize = 8;
/// The most prefixes in one routes frame.
pub const ROUTES_MAX: usize = 32;
/// The most networks that a gateway names to a client: as many as a body has room for.
pub const NETWORKS_MAX: usize = 56;
/// The most session indices in one frame.
pub const INDICES_MAX: usize = 16;
/// The most addresses of one gateway.
pub const ADDRESSES_MAX: usize = 8;
/// The most ends in one early frame.
pub const ENDS_MAX: usize = 32;
/// The most bytes of headers in one context frame.
pub const CONTEXT_HEADER_MAX: usize = 100;
/// The most rules in one compress frame.
pub const RULES_MAX: usize = 32;
/// The most dictionaries in one frame.
pub const DICTIONARIES_MAX: usize = 15;
/// Bytes of the hash that names a dictionary's content.
pub const DICTIONARY_HASH: usize = 8;
/// The longest body of a control frame, so that one always fits a datagram of the smallest path.
pub const BODY_MAX: usize = 1_024;

/// An address range: an address and the number of its leading bits that count.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Prefix {
    /// Any address within the range.
    pub address: IpAddr,
    /// Leading bits that count: 0 to 32 or 0 to 128.
    pub bits: u8,
}

impl Prefix {
    /// Whether `address` lies within the range. Families never match each other.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.bits.min(32))).unwrap_or(0);
                (u32::from(own) ^ u32::from(other)) & mask == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.bits.min(128))).unwrap_or(0);
                (u128::from(own) ^ u128::from(other)) & mask == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }

    /// The range of one address.
    pub const fn host(address: IpAddr) -> Self {
        let bits = match address {
            IpAddr::V4(_) => 32,
            IpAddr::V6(_) => 128,
        };
        Self { address, bits }
    }

    const fn is_valid(&self) -> bool {
        match self.address {
            IpAddr::V4(_) => self.bits <= 32,
            IpAddr::V6(_) => self.bits <= 128,
        }
    }
}

/// Ends of flows: a range of addresses, and a port or all of them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct End {
    /// The addresses.
    pub network: Prefix,
    /// The port; `None` for any.
    pub port: Option<u16>,
}

impl End {
    /// Whether an address and a port are meant.
    pub fn means(&self, (address, port): (IpAddr, u16)) -> bool {
        self.network.contains(address) && self.port.is_none_or(|own| own == port)
    }
}

/// What a gateway gives a client: its inner addresses and what goes with them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Lease {
    /// The client's inner addresses, each with the size of the network it lies in.
    pub addresses: Vec<Prefix>,
    /// The gateway's own inner addresses.
    pub gateway: Vec<IpAddr>,
    /// Name servers to ask through the tunnel.
    pub dns: Vec<IpAddr>,
}

/// One control message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Control {
    /// Gateway to client: inner addresses and name servers.
    Lease(Lease),
    /// Client to gateway: all the ranges that lie behind the sender, none or up to [`ROUTES_MAX`].
    /// It takes the place of what was said before.
    Routes(Vec<Prefix>),
    /// Session indices that the sender issues, for path serials `first`, `first + 1`, ...
    Indices {
        /// The serial of the first index.
        first: PathSerial,
        /// The indices, in order of their serials.
        indices: Vec<SessionIndex>,
    },
    /// Gateway to client: where it is reached from now on, best first; in place of what it said
    /// before. A client whose path leads elsewhere than to the first of its family goes there.
    Addresses(Vec<SocketAddr>),
    /// Gateway to client: what proves a restart, for the indices of path serials `first`,
    /// `first + 1`, ...
    RestartTokens {
        /// The serial of the first token's index.
        first: PathSerial,
        /// The tokens, in order of their serials.
        tokens: Vec<RestartToken>,
    },
    /// Client to gateway: the ends of flows that its user wants early, both ways, none or up to
    /// [`ENDS_MAX`]. It takes the place of what was said before.
    Early(Vec<End>),
    /// Client to gateway: by which scheduler, by its number, both share data among paths from now
    /// on.
    Scheduler(u8),
    /// Client to gateway: what flows shall have by repair, by its number, both ways from now on.
    Recovery(u8),
    /// Client to gateway: the gateway's indices below this serial are used, on links that may be
    /// dead.
    Taken {
        /// The lowest serial that is not used up.
        next: PathSerial,
    },
    /// Client to gateway: a random number for the run of its program.
    Run(u64),
    /// Gateway to client: another host uses the same key, and the two displace each other.
    KeyIsShared,
    /// Gateway to client: the networks beside the Internet that the client may reach there, none or
    /// up to [`NETWORKS_MAX`]. It takes the place of what was said before.
    Networks(Vec<Prefix>),
    /// Gateway to client: what the gateway sends under this path serial is policed.
    Policed {
        /// The serial of the session index that the gateway sends to.
        serial: PathSerial,
        /// What passes, in kilobits per second.
        kbps: u32,
    },
    /// Headers that packets of one flow have in common, under an ID by which compact packets name
    /// them.
    Context {
        /// The ID: one more with each of these frames of an epoch.
        id: u16,
        /// Which fields vary, beside what the headers show of it.
        form: u8,
        /// The headers, at most [`CONTEXT_HEADER_MAX`] bytes; zero where they vary.
        header: Vec<u8>,
    },
    /// Client to gateway: how both ends save bytes from now on, and on which flows, none or up to
    /// [`RULES_MAX`]. It takes the place of what was said before.
    Compress {
        /// Whether results are padded, so that their length tells less.
        pads: bool,
        /// Whether as few bytes as possible leave: no copies of realtime packets and DNS replies.
        frugal: bool,
        /// An end of the flows, and the byte that says how they are compressed.
        rules: Vec<(End, u8)>,
    },
    /// The dictionaries that the sender has, by number and hash, up to [`DICTIONARIES_MAX`].
    Dictionaries(Vec<(u8, [u8; DICTIONARY_HASH])>),
    /// A kind of a later version: acknowledged and ignored.
    Unknown(u8),
}

impl Control {
    /// Parses kind and body.
    ///
    /// # Errors
    /// [`DropReason::BadFrame`] when the body breaks its format or a bound.
    pub fn parse(body: &[u8]) -> Result<Self, DropReason> {
        let mut reader = Reader::new(body);
        let control = match reader.u8()? {
            kind::LEASE => Self::Lease(Lease {
                addresses: list(&mut reader, LEASE_ENTRIES_MAX, prefix)?,
                gateway: list(&mut reader, LEASE_ENTRIES_MAX, Reader::ip)?,
                dns: list(&mut reader, LEASE_ENTRIES_MAX, Reader::ip)?,
            }),
            kind::ROUTES => Self::Routes(list(&mut reader, ROUTES_MAX, prefix)?),
            kind::INDICES => Self::Indices {
                first: PathSerial(reader.u32()?),
                indices: list(&mut reader, INDICES_MAX, |r| r.u32().map(SessionIndex))?,
            },
            kind::ADDRESSES => {
                Self::Addresses(list(&mut reader, ADDRESSES_MAX, Reader::socket_addr)?)
            }
            kind::RESTART_TOKENS => Self::RestartTokens {
                first: PathSerial(reader.u32()?),
                tokens: list(&mut reader, INDICES_MAX, |r| r.array().map(RestartToken))?,
            },
            kind::EARLY => Self::Early(list(&mut reader, ENDS_MAX, end)?),
            kind::SCHEDULER => Self::Scheduler(reader.u8()?),
            kind::RECOVERY => Self::Recovery(reader.u8()?),
            kind::TAKEN => Self::Taken { next: PathSerial(reader.u32()?) },
            kind::RUN => Self::Run(reader.u64()?),
            kind::KEY_IS_SHARED => Self::KeyIsShared,
            kind::NETWORKS => Self::Networks(list(&mut reader, NETWORKS_MAX, prefix)?),
            kind::POLICED => {
                Self::Policed { serial: PathSerial(reader.u32()?), kbps: reader.u32()? }
            }
            kind::CONTEXT => {
                let (id, form, length) = (reader.u16()?, reader.u8()?, reader.u8()?);
                if usize::from(length) > CONTEXT_HEADER_MAX {
                    return Err(DropReason::BadFrame);
                }
                Self::Context { id, form, header: reader.take(length.into())?.to_vec() }
            }
            kind::COMPRESS => {
                let flags = reader.u8()?;
                Self::Compress {
                    pads: flags & 1 != 0,
                    frugal: flags & 2 != 0,
                    rules: list(&mut reader, RULES_MAX, |r| Ok((end(r)?, r.u8()?)))?,
                }
            }
            kind::DICTIONARIES => Self::Dictionaries(list(&mut reader, DICTIONARIES_MAX, |r| {
                Ok((r.u8()?, r.array()?))
            })?),
            other => Self::Unknown(other),
        };
        Ok(control)
    }

    /// Appends kind and body to `out`.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut writer = Writer::new(out);
        match self {
            Self::Lease(lease) => {
                writer.u8(kind::LEASE);
                emit_list(&mut writer, &lease.addresses, LEASE_ENTRIES_MAX, emit_prefix);
                emit_list(&mut writer, &lease.gateway, LEASE_ENTRIES_MAX, |w, ip| w.ip(*ip));
                emit_list(&mut writer, &lease.dns, LEASE_ENTRIES_MAX, |w, ip| w.ip(*ip));
            }
            Self::Routes(routes) => {
                writer.u8(kind::ROUTES);
                emit_list(&mut writer, routes, ROUTES_MAX, emit_prefix);
            }
            Self::Indices { first, indices } => {
                writer.u8(kind::INDICES);
                writer.u32(first.0);
                emit_list(&mut writer, indices, INDICES_MAX, |w, index| w.u32(index.0));
            }
            Self::Addresses(addresses) => {
                writer.u8(kind::ADDRESSES);
                emit_list(&mut writer, addresses, ADDRESSES_MAX, |w, at| w.socket_addr(*at));
            }
            Self::RestartTokens { first, tokens } => {
                writer.u8(kind::RESTART_TOKENS);
                writer.u32(first.0);
                emit_list(&mut writer, tokens, INDICES_MAX, |w, token| w.bytes(&token.0));
            }
            Self::Early(ends) => {
                writer.u8(kind::EARLY);
                emit_list(&mut writer, ends, ENDS_MAX, emit_end);
            }
            Self::Scheduler(number) => {
                writer.u8(kind::SCHEDULER);
                writer.u8(*number);
            }
            Self::Recovery(number) => {
                writer.u8(kind::RECOVERY);
                writer.u8(*number);
            }
            Self::Taken { next } => {
                writer.u8(kind::TAKEN);
                writer.u32(next.0);
            }
            Self::Run(run) => {
                writer.u8(kind::RUN);
                writer.u64(*run);
            }
            Self::KeyIsShared => writer.u8(kind::KEY_IS_SHARED),
            Self::Networks(networks) => {
                writer.u8(kind::NETWORKS);
                emit_list(&mut writer, networks, NETWORKS_MAX, emit_prefix);
            }
            Self::Policed { serial, kbps } => {
                writer.u8(kind::POLICED);
                writer.u32(serial.0);
                writer.u32(*kbps);
            }
            Self::Context { id, form, header } => {
                writer.u8(kind::CONTEXT);
                writer.u16(*id);
                writer.u8(*form);
                let header = &header[..header.len().min(CONTEXT_HEADER_MAX)];
                writer.u8(u8::try_from(header.len()).unwrap_or(u8::MAX));
                writer.bytes(header);
            }
            Self::Compress { .. } => emit_compress(&mut writer, self),
            Self::Dictionaries(all) => emit_dictionaries(&mut writer, all),
            Self::Unknown(kind) => writer.u8(*kind),
        }
        debug_assert!(out.len() - start <= BODY_MAX);
    }
}

fn emit_compress(writer: &mut Writer<'_>, control: &Control) {
    let Control::Compress { pads, frugal, rules } = control else { return };
    writer.u8(kind::COMPRESS);
    writer.u8(u8::from(*pads) | u8::from(*frugal) << 1);
    emit_list(writer, rules, RULES_MAX, |w, (end, coding)| {
        emit_end(w, end);
        w.u8(*coding);
    });
}

fn emit_dictionaries(writer: &mut Writer<'_>, all: &[(u8, [u8; DICTIONARY_HASH])]) {
    writer.u8(kind::DICTIONARIES);
    emit_list(writer, all, DICTIONARIES_MAX, |w, (number, hash)| {
        w.u8(*number);
        w.bytes(hash);
    });
}

fn prefix(reader: &mut Reader<'_>) -> Result<Prefix, DropReason> {
    let prefix = Prefix { bits: reader.u8()?, address: reader.ip()? };
    if prefix.is_valid() { Ok(prefix) } else { Err(DropReason::BadFrame) }
}

fn emit_prefix(writer: &mut Writer<'_>, prefix: &Prefix) {
    writer.u8(prefix.bits);
    writer.ip(prefix.address);
}

/// Port 0 stands for any.
fn end(reader: &mut Reader<'_>) -> Result<End, DropReason> {
    let (network, port) = (prefix(reader)?, reader.u16()?);
    Ok(End { network, port: (port != 0).then_some(port) })
}

fn emit_end(writer: &mut Writer<'_>, end: &End) {
    emit_prefix(writer, &end.network);
    writer.u16(end.port.unwrap_or(0));
}

fn list<'a, T>(
    reader: &mut Reader<'a>,
    max: usize,
    mut item: impl FnMut(&mut Reader<'a>) -> Result<T, DropReason>,
) -> Result<Vec<T>, DropReason> {
    let count = usize::from(reader.u8()?);
    if count > max {
        return Err(DropReason::BadFrame);
    }
    (0..count).map(|_| item(reader)).collect()
}

/// Appends a list; what is beyond `max` is left out, because no receiver would take it.
fn emit_list<T>(
    writer: &mut Writer<'_>,
    items: &[T],
    max: usize,
    mut item: impl FnMut(&mut Writer<'_>, &T),
) {
    let items = &items[..items.len().min(max)];
    writer.u8(u8::try_from(items.len()).unwrap_or(u8::MAX));
    for entry in items {
        item(writer, entry);
    }
}
