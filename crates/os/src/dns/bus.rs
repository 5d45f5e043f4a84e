//! A small D-Bus client: it calls a method and reads the reply.
//!
//! The wire format is version 1 of the D-Bus specification, little endian. Existing libraries bring
//! an asynchronous runtime and threads into a process that drops its privileges before its first
//! thread. A few methods with a few types need neither. Every wait and every length is bounded. The
//! bus is trusted to deliver messages, and not to be well formed.

use std::{
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::Path,
    time::{Duration, Instant},
};

/// How long the bus, and the program behind it, may take.
const TIME_MAX: Duration = Duration::from_secs(5);
/// Bytes of a message that is read: answers here are empty, a flag or a sentence.
const MESSAGE_LEN_MAX: usize = 64 << 10;
/// Signals and other messages that are passed over while waiting for an answer.
const PASSED_MAX: usize = 256;

const METHOD_CALL: u8 = 1;
const METHOD_RETURN: u8 = 2;
const ERROR: u8 = 3;
const FIELD_PATH: u8 = 1;
const FIELD_INTERFACE: u8 = 2;
const FIELD_MEMBER: u8 = 3;
const FIELD_REPLY_SERIAL: u8 = 5;
const FIELD_DESTINATION: u8 = 6;
const FIELD_SIGNATURE: u8 = 8;

/// Which method to call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Method<'a> {
    pub(crate) destination: &'a str,
    pub(crate) path: &'a str,
    pub(crate) interface: &'a str,
    pub(crate) name: &'a str,
}

/// Why a call did not succeed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CallError {
    #[error("the bus cannot be used: {0}")]
    Io(#[from] io::Error),
    #[error("{0}")]
    Answer(String),
}

/// Arguments of a call, or the fields of a header: values at their alignment.
#[derive(Debug, Default)]
pub(crate) struct Values {
    bytes: Vec<u8>,
    signature: String,
}

/// A connection to a bus.
#[derive(Debug)]
pub(crate) struct Bus {
    stream: BufReader<UnixStream>,
    serial: u32,
    deadline: Instant,
}

impl Bus {
    /// Connects to the bus behind the socket and says hello.
    pub(crate) fn connect(path: &Path) -> Result<Self, CallError> {
        let mut bus = Self::on(UnixStream::connect(path)?);
        bus.authenticate()?;
        bus.call(
            Method {
                destination: "org.freedesktop.DBus",
                path: "/org/freedesktop/DBus",
                interface: "org.freedesktop.DBus",
                name: "Hello",
            },
            &Values::default(),
        )?;
        Ok(bus)
    }

    /// A connection before the first message.
    pub(crate) fn on(stream: UnixStream) -> Self {
        let deadline = Instant::now() + TIME_MAX;
        Self { stream: BufReader::new(stream), serial: 0, deadline }
    }

    /// Says who we are; the kernel confirms it (specification, "Authentication Protocol").
    fn authenticate(&mut self) -> io::Result<()> {
        // SAFETY: reads the ids of the process only.
        let user = unsafe { libc::geteuid() }.to_string();
        let user: String = user.bytes().map(|byte| format!("{byte:02x}")).collect();
        self.arm()?;
        self.stream.get_mut().write_all(format!("\0AUTH EXTERNAL {user}\r\n").as_bytes())?;
        let mut line = String::new();
        self.stream.by_ref().take(512).read_line(&mut line)?;
        if !line.starts_with("OK ") {
            return Err(io::Error::other(format!("it refused us: {}", line.trim())));
        }
        self.stream.get_mut().write_all(b"BEGIN\r\n")
    }

    /// Calls a method and returns the bytes of its answer.
    pub(crate) fn call(
        &mut self,
        method: Method<'_>,
        arguments: &Values,
    ) -> Result<Vec<u8>, CallError> {
        self.deadline = Instant::now() + TIME_MAX;
        self.serial += 1;
        let message = encode_call(self.serial, method, arguments);
        self.arm()?;
        self.stream.get_mut().write_all(&message)?;
        self.answer(self.serial)
    }

    /// The reply to the call with this serial number, as bytes.
    pub(crate) fn answer(&mut self, serial: u32) -> Result<Vec<u8>, CallError> {
        for _ in 0..PASSED_MAX {
            let message = self.receive()?;
            if message.reply_serial != Some(serial) {
                continue;
            }
            match message.kind {
                METHOD_RETURN => return Ok(message.body),
                ERROR => {
                    let said = first_string(&message.body);
                    let said = said.unwrap_or_else(|| "no reason given".to_owned());
                    return Err(CallError::Answer(said));
                }
                _ => {}
            }
        }
        Err(CallError::Io(io::Error::other("no answer among too many messages")))
    }

    fn receive(&mut self) -> io::Result<Message> {
        let mut fixed = [0; 16];
        self.fill(&mut fixed)?;
        let word = |at: usize| {
            u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]) as usize
        };
        let (body_len, fields_len) = (word(4), word(12));
        let padded = fields_len.next_multiple_of(8);
        if fixed[0] != b'l' || body_len.max(padded) > MESSAGE_LEN_MAX {
            return Err(io::Error::other("a message of a kind that is not understood"));
        }
        let mut fields = vec![0; padded];
        self.fill(&mut fields)?;
        let mut body = vec![0; body_len];
        self.fill(&mut body)?;
        let reply_serial = reply_serial(&fields[..fields_len]);
        Ok(Message { kind: fixed[1], reply_serial, body })
    }

    fn fill(&mut self, room: &mut [u8]) -> io::Result<()> {
        self.arm()?;
        self.stream.read_exact(room)
    }

    /// Gives the next read or write what is left of the time.
    fn arm(&mut self) -> io::Result<()> {
        let left = self.deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let stream = self.stream.get_ref();
        stream.set_read_timeout(Some(left))?;
        stream.set_write_timeout(Some(left))
    }
}

struct Message {
    kind: u8,
    reply_serial: Option<u32>,
    body: Vec<u8>,
}

impl Values {
    pub(crate) fn boolean(mut self, value: bool) -> Self {
        self.signature.push('b');
        self.word(u32::from(value));
        self
    }

    pub(crate) fn int32(mut self, value: i32) -> Self {
        self.signature.push('i');
        self.word(value as u32);
        self
    }

    pub(crate) fn string(mut self, value: &str) -> Self {
        self.signature.push('s');
        self.text(value);
        self
    }

    /// An array of structures, `signature` being that of one; `each` writes the values of one.
    pub(crate) fn structures<T>(
        mut self,
        signature: &str,
        entries: impl IntoIterator<Item = T>,
        each: impl Fn(&mut Self, T),
    ) -> Self {
        self.signature.push_str(&format!("a({signature})"));
        let length_at = self.begin_array(8);
        let start = self.bytes.len();
        for entry in entries {
            self.align(8);
            each(&mut self, entry);
        }
        self.end_array(length_at, start);
        self
    }

    /// A 32-bit number inside a structure; also a boolean.
    pub(crate) fn word(&mut self, value: u32) {
        self.align(4);
        self.bytes.extend(value.to_le_bytes());
    }

    /// A string inside a structure.
    pub(crate) fn text(&mut self, value: &str) {
        self.word(value.len() as u32);
        self.bytes.extend(value.as_bytes());
        self.bytes.push(0);
    }

    /// An array of bytes inside a structure.
    pub(crate) fn octets(&mut self, value: &[u8]) {
        self.word(value.len() as u32);
        self.bytes.extend(value);
    }

    /// Writes room for the length, and the padding before the first element, which the length
    /// does not count.
    fn begin_array(&mut self, alignment: usize) -> usize {
        self.word(0);
        let length_at = self.bytes.len() - 4;
        self.align(alignment);
        length_at
    }

    fn end_array(&mut self, length_at: usize, start: usize) {
        let length = (self.bytes.len() - start) as u32;
        self.bytes[length_at..length_at + 4].copy_from_slice(&length.to_le_bytes());
    }

    fn align(&mut self, alignment: usize) {
        self.bytes.resize(self.bytes.len().next_multiple_of(alignment), 0);
    }
}

fn encode_call(serial: u32, method: Method<'_>, arguments: &Values) -> Vec<u8> {
    let mut message = Values::default();
    message.bytes.extend([b'l', METHOD_CALL, 0, 1]);
    message.word(arguments.bytes.len() as u32);
    message.word(serial);
    let length_at = message.begin_array(8);
    let start = message.bytes.len();
    for (field, kind, value) in [
        (FIELD_PATH, b'o', method.path),
        (FIELD_DESTINATION, b's', method.destination),
        (FIELD_INTERFACE, b's', method.interface),
        (FIELD_MEMBER, b's', method.name),
    ] {
        message.align(8);
        message.bytes.extend([field, 1, kind, 0]);
        message.text(value);
    }
    if !arguments.signature.is_empty() {
        message.align(8);
        message.bytes.extend([FIELD_SIGNATURE, 1, b'g', 0, arguments.signature.len() as u8]);
        message.bytes.extend(arguments.signature.as_bytes());
        message.bytes.push(0);
    }
    message.end_array(length_at, start);
    message.align(8);
    message.bytes.extend(&arguments.bytes);
    message.bytes
}

/// To which of our calls a message with these header fields answers.
fn reply_serial(fields: &[u8]) -> Option<u32> {
    let mut at = 0usize;
    loop {
        at = at.next_multiple_of(8);
        // Code, and the signature of a variant of one simple type.
        let &[code, 1, kind, 0] = fields.get(at..)?.first_chunk::<4>()? else { return None };
        at += 4;
        match kind {
            b'u' => {
                let value = u32::from_le_bytes(*fields.get(at..)?.first_chunk()?);
                if code == FIELD_REPLY_SERIAL {
                    return Some(value);
                }
                at += 4;
            }
            b's' | b'o' => {
                let length = u32::from_le_bytes(*fields.get(at..)?.first_chunk()?);
                at = at.checked_add(length as usize)?.checked_add(5)?;
            }
            b'g' => at += usize::from(*fields.get(at)?) + 2,
            _ => return None,
        }
    }
}

/// The string that the body of an error begins with.
pub(crate) fn first_string(body: &[u8]) -> Option<String> {
    let length = u32::from_le_bytes(*body.first_chunk()?) as usize;
    let bytes = body.get(4..)?.get(..length)?;
    Some(String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(test)]
mod tests;
