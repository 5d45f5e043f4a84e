//! Generic netlink (linux/genetlink.h): requests to kernel families without a protocol of their
//! own, and the attributes in their replies.
//!
//! It knows headers and lengths, and no family's meaning. Input counts as hostile: a length that
//! does not fit ends the parsing, and nothing else happens.

use std::{io, time::Duration};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};

use super::{ANSWER_TIME_MAX, Borrowed, HEADER_LEN};
use crate::error::Error;

/// Bytes of the header that follows netlink's own: command, version, two that are reserved.
const GENERIC_LEN: usize = 4;
/// Bytes of an attribute's header: length and type.
const ATTRIBUTE_LEN: usize = 4;
/// The upper two bits of a type say how the attribute is encoded (linux/netlink.h, NLA_TYPE_MASK).
const TYPE_MASK: u16 = 0x3fff;
/// The value is attributes again (`NLA_F_NESTED`): goes into the type of [`attribute`].
pub(crate) const NESTED: u16 = 1 << 15;

const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const NLM_F_REQUEST: u16 = 1;
const NLM_F_ACK: u16 = 4;
const NLM_F_DUMP: u16 = 0x300;

/// The family that knows the others, and how it is asked (`GENL_ID_CTRL`, `CTRL_CMD_GETFAMILY`).
const CONTROLLER: u16 = 0x10;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// Datagrams that one answer may take; the kernel's answers to these questions fit in a few.
const DATAGRAMS_MAX: usize = 64;

/// A socket for questions.
#[derive(Debug)]
pub(crate) struct Generic {
    socket: Socket,
    sequence: u32,
}

/// One question.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    /// The family's number.
    pub(crate) family: u16,
    /// What is asked, in the family's numbers.
    pub(crate) command: u8,
    /// Whether everything of this kind is asked for, not one thing.
    pub(crate) dump: bool,
    /// Encoded attributes, from [`attribute`].
    pub(crate) attributes: &'a [u8],
}

impl Generic {
    /// Opens a socket in the present network namespace.
    pub(crate) fn open() -> Result<Self, Error> {
        let open = || -> io::Result<Socket> {
            let mut socket = Socket::new(NETLINK_GENERIC)?;
            socket.bind_auto()?;
            let patience: Option<Duration> = Some(ANSWER_TIME_MAX);
            socket2::SockRef::from(&Borrowed(&socket)).set_read_timeout(patience)?;
            Ok(socket)
        };
        let socket = open().map_err(|error| Error::os("ask the kernel (netlink)", error))?;
        Ok(Self { socket, sequence: 0 })
    }

    /// The number of a family; `None` while the kernel has none of this name.
    pub(crate) fn family(&mut self, name: &str) -> io::Result<Option<u16>> {
        let mut text = name.as_bytes().to_vec();
        text.push(0);
        let attributes = &attribute(FAMILY_NAME, &text);
        let question =
            Question { family: CONTROLLER, command: GET_FAMILY, dump: false, attributes };
        let mut found = None;
        let asked = self.ask(question, |answer| {
            found = found.or_else(|| u16_of(answer.find(FAMILY_ID)?));
        });
        match asked {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            asked => asked.map(|()| found),
        }
    }

    /// Asks, and hands over each message of the answer.
    pub(crate) fn ask(
        &mut self,
        question: Question<'_>,
        mut each: impl FnMut(Attributes<'_>),
    ) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        let bytes = encode(question, self.sequence);
        self.socket.send_to(&bytes, &SocketAddr::new(0, 0), 0)?;
        for _ in 0..DATAGRAMS_MAX {
            let (bytes, _) = self.socket.recv_from_full()?;
            if let Some(end) = read(&bytes, self.sequence, question.family, &mut each) {
                return end;
            }
        }
        Err(io::Error::other("the kernel's answer does not end"))
    }
}

fn encode(question: Question<'_>, sequence: u32) -> Vec<u8> {
    let length = HEADER_LEN + GENERIC_LEN + question.attributes.len();
    let how = if question.dump { NLM_F_DUMP } else { NLM_F_ACK };
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(u32::try_from(length).unwrap_or(u32::MAX).to_ne_bytes());
    bytes.extend(question.family.to_ne_bytes());
    bytes.extend((NLM_F_REQUEST | how).to_ne_bytes());
    bytes.extend(sequence.to_ne_bytes());
    // The kernel's port.
    bytes.extend(0u32.to_ne_bytes());
    bytes.extend([question.command, 1, 0, 0]);
    bytes.extend(question.attributes);
    bytes
}

/// Reads one datagram; says how the answer ended, if it did.
pub(crate) fn read(
    mut bytes: &[u8],
    sequence: u32,
    family: u16,
    each: &mut impl FnMut(Attributes<'_>),
) -> Option<io::Result<()>> {
    while let Some(length) = bytes.first_chunk().map(|len| u32::from_ne_bytes(*len) as usize) {
        let Some(message) = bytes.get(..length).filter(|_| length >= HEADER_LEN) else {
            return Some(Err(io::Error::other("the kernel's answer is cut off")));
        };
        // Messages start at multiples of four bytes.
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        let number = |at: usize| message.get(at..at + 4)?.first_chunk().copied();
        if number(8).map(u32::from_ne_bytes) != Some(sequence) {
            continue;
        }
        let kind = u16::from_ne_bytes([message[4], message[5]]);
        if kind == NLMSG_DONE {
            return Some(Ok(()));
        } else if kind == NLMSG_ERROR {
            let code = number(HEADER_LEN).map_or(-libc::EIO, i32::from_ne_bytes);
            return Some(match code {
                0 => Ok(()),
                code => Err(io::Error::from_raw_os_error(code.saturating_neg())),
            });
        } else if kind == family
            && let Some(attributes) = message.get(HEADER_LEN + GENERIC_LEN..)
        {
            each(Attributes(attributes));
        }
    }
    None
}

/// An attribute as it travels, padded to four bytes.
pub(crate) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = ATTRIBUTE_LEN + value.len();
    let mut bytes = Vec::with_capacity(length.next_multiple_of(4));
    bytes.extend(u16::try_from(length).unwrap_or(u16::MAX).to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(value);
    bytes.resize(length.next_multiple_of(4), 0);
    bytes
}

/// Attributes in a row, each by type and value. The reading ends where a length does not fit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes<'a>(pub(crate) &'a [u8]);

impl<'a> Attributes<'a> {
    /// The value of the first one of a type.
    pub(crate) fn find(mut self, kind: u16) -> Option<&'a [u8]> {
        self.find_map(|(found, value)| (found == kind).then_some(value))
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let &[l0, l1, k0, k1] = self.0.first_chunk()?;
        let length = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = self.0.get(ATTRIBUTE_LEN..length);
        self.0 = match value {
            Some(_) => self.0.get(length.next_multiple_of(4)..).unwrap_or_default(),
            None => &[],
        };
        Some((u16::from_ne_bytes([k0, k1]) & TYPE_MASK, value?))
    }
}

fn u16_of(value: &[u8]) -> Option<u16> {
    value.try_into().ok().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A message of the kernel's.
    fn message(kind: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
        let mut bytes = u32::try_from(HEADER_LEN + body.len()).unwrap().to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([2, 0]);
        bytes.extend(sequence.to_ne_bytes());
        bytes.extend(7u32.to_ne_bytes());
        bytes.extend(body);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    #[test]
    fn a_question_has_the_bytes_of_the_header_file() {
        let attributes = &attribute(FAMILY_NAME, b"nl80211\0");
        let question =
            Question { family: CONTROLLER, command: GET_FAMILY, dump: false, attributes };
        if cfg!(target_endian = "little") {
            #[rustfmt::skip]
            assert_eq!(encode(question, 9), [
                32, 0, 0, 0, 0x10, 0, 5, 0, 9, 0, 0, 0, 0, 0, 0, 0,
                3, 1, 0, 0,
                12, 0, 2, 0, b'n', b'l', b'8', b'0', b'2', b'1', b'1', 0,
            ]);
        }
        let dump = encode(Question { dump: true, ..question }, 9);
        assert_eq!(u16::from_ne_bytes([dump[6], dump[7]]), 0x301);
    }

    #[test]
    fn an_answer_is_read_to_its_end_and_others_are_passed_over() {
        let entry = [&[19, 1, 0, 0][..], &attribute(1, &[1, 2, 3]), &attribute(2, b"x")].concat();
        let mut bytes = message(28, 8, &entry);
        bytes.extend(message(28, 9, &entry));
        bytes.extend(message(29, 9, &entry));
        let mut seen = Vec::new();
        let mut each = |attributes: Attributes<'_>| {
            seen.push(attributes.map(|(kind, value)| (kind, value.to_vec())).collect::<Vec<_>>());
        };
        assert!(read(&bytes, 9, 28, &mut each).is_none(), "more is to come");
        let done = message(NLMSG_DONE, 9, &[0; 4]);
        assert!(read(&done, 9, 28, &mut each).unwrap().is_ok());
        assert_eq!(seen, [[(1, vec![1, 2, 3]), (2, b"x".to_vec())]]);
        let refused = message(NLMSG_ERROR, 9, &(-libc::ENODEV).to_ne_bytes());
        let error = read(&refused, 9, 28, &mut |_| {}).unwrap().unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV));
        for cut in 1..bytes.len() {
            // Either an end by an error, or nothing more.
            let _ = read(&bytes[..cut], 9, 28, &mut |attributes| attributes.for_each(drop));
        }
    }

    #[test]
    fn the_controller_knows_itself_and_no_stranger() {
        let mut generic = Generic::open().unwrap();
        assert_eq!(generic.family("nlctrl").unwrap(), Some(CONTROLLER));
        assert_eq!(generic.family("no-such-thing").unwrap(), None);
    }

    proptest! {
        #[test]
        fn hostile_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut attributes = 0;
            let _ = read(&bytes, 0, 0, &mut |all| attributes += all.count());
            attributes += Attributes(&bytes).count();
            prop_assert!(attributes <= 2 * bytes.len());
        }
    }
}
