//! Requests to the kernel's routing (rtnetlink(7)), one at a time, answered before they return.
//!
//! It knows messages and replies. The callers decide which links, addresses, routes and rules
//! exist. Every wait is bounded: the kernel answers at once or not at all.

pub(crate) mod generic;
pub(crate) mod monitor;
pub(crate) mod sockets;

use std::{io, os::fd::AsRawFd, time::Duration};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::error::Error;

/// How long an answer may take. The kernel works synchronously: this only ends what is broken.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);
/// Changes that one call sends. If the kernel refused all of them, its answers would still fit half
/// of a socket's usual receive buffer (`net.core.rmem_default`).
const BATCH_MAX: usize = 128;
/// How often a dump that was disturbed by a change is repeated.
const DUMP_TRIES_MAX: u32 = 8;
/// Flag of a dump during which something changed (linux/netlink.h).
const NLM_F_DUMP_INTR: u16 = 0x10;

/// The family of addresses in messages.
pub(crate) fn family(v6: bool) -> AddressFamily {
    if v6 { AddressFamily::Inet6 } else { AddressFamily::Inet }
}

/// A socket for requests.
#[derive(Debug)]
pub(crate) struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket to the routing of the present network namespace.
    pub(crate) fn open() -> Result<Self, Error> {
        let what = "talk to the kernel's routing (netlink)";
        let mut socket = Socket::new(NETLINK_ROUTE).map_err(|error| Error::os(what, error))?;
        socket.bind_auto().map_err(|error| Error::os(what, error))?;
        socket2::SockRef::from(&Borrowed(&socket))
            .set_read_timeout(Some(ANSWER_TIME_MAX))
            .map_err(|error| Error::os(what, error))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// Changes something; returns when the kernel has done or refused it. `flags` are those
    /// besides `NLM_F_REQUEST` and `NLM_F_ACK`.
    pub(crate) fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.send(message, NLM_F_ACK | flags)?;
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            for answer in Messages(&bytes) {
                let answer = answer?;
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                if let NetlinkPayload::Error(error) = answer.payload {
                    return if error.code.is_none() { Ok(()) } else { Err(error.to_io()) };
                }
            }
        }
    }

    /// Makes many changes of one kind; returns when the kernel has done or refused all. `excuse`
    /// decides which refusals count. The first of these ends the work after its batch.
    pub(crate) fn change_all(
        &mut self,
        messages: impl IntoIterator<Item = RouteNetlinkMessage>,
        flags: u16,
        excuse: impl Fn(io::Error) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut messages = messages.into_iter().peekable();
        let mut batch = Vec::new();
        while messages.peek().is_some() {
            batch.clear();
            let first = self.sequence.wrapping_add(1);
            for count in 1..=BATCH_MAX {
                let Some(message) = messages.next() else { break };
                // The kernel reports every refusal. Of what it does, only the end matters.
                let is_last = count == BATCH_MAX || messages.peek().is_none();
                let acknowledged = if is_last { NLM_F_ACK } else { 0 };
                self.append(&mut batch, message, acknowledged | flags);
            }
            self.socket.send_to(&batch, &SocketAddr::new(0, 0), 0)?;
            self.finish_batch(first, &excuse)?;
        }
        Ok(())
    }

    /// Reads the answers to the batch that began with the sequence number `first`.
    fn finish_batch(
        &self,
        first: u32,
        excuse: impl Fn(io::Error) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut done = Ok(());
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            for answer in Messages(&bytes) {
                let answer = answer?;
                let number = answer.header.sequence_number;
                let is_of_batch = number.wrapping_sub(first) <= self.sequence.wrapping_sub(first);
                let NetlinkPayload::Error(error) = answer.payload else { continue };
                if is_of_batch && error.code.is_some() {
                    done = done.and_then(|()| excuse(error.to_io()));
                }
                if number == self.sequence {
                    return done;
                }
            }
        }
    }

    /// Lets the kernel filter dumps by the fields of the request, where it can (Linux 4.20).
    pub(crate) fn dump_strictly(&mut self) {
        // An older kernel sends everything; readers filter it themselves in any case.
        let _ = self.socket.set_netlink_get_strict_chk(true);
    }

    /// The single entry that `message` asks for, parsed by `read`.
    pub(crate) fn get<T>(
        &mut self,
        message: RouteNetlinkMessage,
        read: impl Fn(RouteNetlinkMessage) -> Option<T>,
    ) -> io::Result<Option<T>> {
        self.send(message, NLM_F_ACK)?;
        let mut found = None;
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            for answer in Messages(&bytes) {
                let Ok(answer) = answer else { continue };
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                if let NetlinkPayload::Error(error) = answer.payload {
                    return if error.code.is_none() { Ok(found) } else { Err(error.to_io()) };
                } else if let NetlinkPayload::InnerMessage(entry) = answer.payload {
                    found = read(entry);
                }
            }
        }
    }

    /// What `read` finds in everything of one kind. Of a host with a thousand links, or the
    /// Internet's routes, no more than that is kept. A message that this version cannot read is
    /// left out.
    pub(crate) fn dump<T>(
        &mut self,
        message: &RouteNetlinkMessage,
        read: impl Fn(RouteNetlinkMessage) -> Option<T>,
    ) -> io::Result<Vec<T>> {
        for _ in 0..DUMP_TRIES_MAX {
            if let Some(entries) = self.dump_once(message.clone(), &read)? {
                return Ok(entries);
            }
        }
        Err(io::Error::other("the kernel's tables change faster than they can be read"))
    }

    /// `None` if something changed meanwhile.
    fn dump_once<T>(
        &mut self,
        message: RouteNetlinkMessage,
        read: impl Fn(RouteNetlinkMessage) -> Option<T>,
    ) -> io::Result<Option<Vec<T>>> {
        self.send(message, NLM_F_DUMP)?;
        let mut entries = Vec::new();
        let mut disturbed = false;
        loop {
            let (bytes, _) = self.socket.recv_from_full()?;
            for answer in Messages(&bytes) {
                let Ok(answer) = answer else { continue };
                if answer.header.sequence_number != self.sequence {
                    continue;
                }
                disturbed |= answer.header.flags & NLM_F_DUMP_INTR != 0;
                if let NetlinkPayload::Error(error) = answer.payload {
                    return Err(error.to_io());
                } else if let NetlinkPayload::InnerMessage(entry) = answer.payload {
                    entries.extend(read(entry));
                } else if let NetlinkPayload::Done(_) = answer.payload {
                    return Ok((!disturbed).then_some(entries));
                }
            }
        }
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        let mut bytes = Vec::new();
        self.append(&mut bytes, message, flags);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0).map(drop)
    }

    /// Appends a request to a buffer, under the next sequence number.
    fn append(&mut self, bytes: &mut Vec<u8>, message: RouteNetlinkMessage, flags: u16) {
        self.sequence = self.sequence.wrapping_add(1);
        let mut packet =
            NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::from(message));
        packet.header.flags = NLM_F_REQUEST | flags;
        packet.header.sequence_number = self.sequence;
        packet.finalize();
        let start = bytes.len();
        // Messages start at multiples of four bytes.
        bytes.resize(start + packet.buffer_len().next_multiple_of(4), 0);
        packet.serialize(bytes.get_mut(start..).unwrap_or_default());
    }
}

/// The messages in what one call received.
pub(crate) struct Messages<'a>(pub(crate) &'a [u8]);

/// Bytes of a netlink message's header (linux/netlink.h).
const HEADER_LEN: usize = 16;

impl Iterator for Messages<'_> {
    type Item = io::Result<NetlinkMessage<RouteNetlinkMessage>>;

    fn next(&mut self) -> Option<Self::Item> {
        let length = self.0.first_chunk().map(|length| u32::from_ne_bytes(*length) as usize)?;
        if length < HEADER_LEN || length > self.0.len() {
            self.0 = &[];
            return None;
        }
        let (message, _) = self.0.split_at(length);
        // Messages start at multiples of four bytes.
        self.0 = self.0.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(NetlinkMessage::deserialize(message).map_err(io::Error::other))
    }
}

/// A netlink socket as socket2 wants to borrow it.
struct Borrowed<'a>(&'a Socket);

impl std::os::fd::AsFd for Borrowed<'_> {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        // SAFETY: the descriptor belongs to the socket, which is borrowed as long as this is.
        unsafe { std::os::fd::BorrowedFd::borrow_raw(self.0.as_raw_fd()) }
    }
}
