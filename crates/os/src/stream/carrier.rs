//! An open stream: frames to bytes, TLS around them, and the queue of bytes that the kernel did not
//! take.
//!
//! A datagram is queued whole or not at all, and queued bytes leave in order. A refused datagram is
//! a loss for the layers above, as on UDP. Nothing is allocated for a datagram: both buffers keep
//! their memory.

use std::{
    collections::VecDeque,
    io::{self, Read as _, Write as _},
};

use rustls::Connection;
use socket2::Socket;

use super::{
    StreamError,
    frame::{self, FRAME_LEN_MAX, LENGTH_LEN},
    wire::Wire,
};
use crate::udp::{Queue, SendError};

/// Bytes of frames that may wait here for the kernel, beyond what it took: one run of datagrams at
/// its longest. More would be older when it arrives, and not more.
pub const UNSENT_MAX: usize = 64 << 10;
/// Bytes that one receive takes from the kernel.
pub const READ_LEN: usize = 64 << 10;

// The shortest room of a receive has place for what is held and something new.
const _: () = assert!(FRAME_LEN_MAX < crate::udp::RECEIVE_LEN / 2);

/// What surrounds the frames.
#[derive(Debug)]
pub(super) enum Layer {
    /// Nothing.
    Plain,
    /// TLS, its handshake done.
    Tls(Box<Connection>),
}

/// An open stream without its socket.
#[derive(Debug)]
pub(crate) struct Carrier {
    layer: Layer,
    /// Frames that TLS has not sealed yet; always empty without TLS.
    unsealed: Vec<u8>,
    /// Bytes for the kernel.
    unsent: VecDeque<u8>,
    /// The beginning of a frame whose end has not come yet.
    partial: Vec<u8>,
}

impl Carrier {
    /// A stream over `layer` that first sends `preface`, which TLS does not seal, then `early`
    /// frames.
    pub(super) fn new(layer: Layer, preface: &[u8], early: &[u8]) -> Self {
        let mut carrier = Self {
            layer,
            unsealed: Vec::new(),
            unsent: preface.iter().copied().collect(),
            partial: Vec::new(),
        };
        carrier.put(early);
        carrier
    }

    /// Queues datagrams of `segment` bytes (the last may be shorter) and sends what the kernel
    /// takes.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] when the queue has no room for one of them; it and those behind
    /// it are refused. [`SendError::TooLong`]; [`SendError::Fatal`] when the stream broke.
    pub(super) fn send(
        &mut self,
        socket: &Socket,
        contents: &[u8],
        segment: usize,
    ) -> Result<(), SendError> {
        for datagram in contents.chunks(segment.max(1)) {
            let length = frame::length(datagram.len()).ok_or(SendError::TooLong)?;
            if self.waiting() + LENGTH_LEN + datagram.len() > UNSENT_MAX {
                self.flush(socket).map_err(SendError::Fatal)?;
                if self.waiting() + LENGTH_LEN + datagram.len() > UNSENT_MAX {
                    return Err(SendError::WouldBlock);
                }
            }
            self.put(&length);
            self.put(datagram);
        }
        self.flush(socket).map_err(SendError::Fatal)
    }

    /// Seals what is not sealed and gives the kernel what it takes.
    pub(super) fn flush(&mut self, socket: &Socket) -> io::Result<()> {
        if let Layer::Tls(tls) = &mut self.layer {
            if !self.unsealed.is_empty() {
                tls.writer().write_all(&self.unsealed)?;
                self.unsealed.clear();
            }
            while tls.wants_write() {
                tls.write_tls(&mut self.unsent)?;
            }
        }
        while !self.unsent.is_empty() {
            let (front, back) = self.unsent.as_slices();
            let pieces = [io::IoSlice::new(front), io::IoSlice::new(back)];
            match Wire(socket).write_vectored(&pieces) {
                Ok(count) => {
                    self.unsent.drain(..count);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Receives at most [`READ_LEN`] bytes into `buffer` (at least one slot of a
    /// [`crate::udp::ReceiveBuffer`]) and calls `each` with every datagram that is complete.
    ///
    /// # Errors
    /// The end of the stream; the datagrams before it were handed over.
    pub(super) fn receive(
        &mut self,
        socket: &Socket,
        buffer: &mut [u8],
        mut each: impl FnMut(&mut [u8]),
    ) -> Result<Queue, StreamError> {
        let Self { layer, partial, .. } = self;
        let count = match layer {
            Layer::Plain => {
                let held = partial.len();
                let room = buffer.len().min(held + READ_LEN);
                let count = Wire(socket).read(&mut buffer[held..room]);
                cut(partial, &mut buffer[..held + length_of(&count)], &mut each)?;
                count
            }
            Layer::Tls(tls) => {
                let (opened, sealed) = buffer.split_at_mut(buffer.len() / 2);
                let room = sealed.len().min(READ_LEN);
                let count = Wire(socket).read(&mut sealed[..room]);
                open(tls, &sealed[..length_of(&count)], partial, opened, &mut each)?;
                if tls.wants_write() {
                    // TLS itself has an answer, to a change of keys.
                    self.flush(socket).map_err(StreamError::broken)?;
                }
                count
            }
        };
        match count {
            Ok(0) => Err(StreamError::Ended),
            Ok(_) => Ok(Queue::Unknown),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(Queue::Empty),
            Err(error) => Err(StreamError::broken(error)),
        }
    }

    pub(super) const fn has_tls(&self) -> bool {
        matches!(self.layer, Layer::Tls(_))
    }

    /// Bytes that wait here for the kernel.
    pub(super) fn waiting(&self) -> usize {
        self.unsealed.len() + self.unsent.len()
    }

    fn put(&mut self, bytes: &[u8]) {
        match self.layer {
            Layer::Plain => self.unsent.extend(bytes),
            Layer::Tls(_) => self.unsealed.extend_from_slice(bytes),
        }
    }
}

/// Opens the records in `sealed` and cuts what was inside, in `room`.
fn open(
    tls: &mut Connection,
    mut sealed: &[u8],
    partial: &mut Vec<u8>,
    room: &mut [u8],
    each: &mut impl FnMut(&mut [u8]),
) -> Result<(), StreamError> {
    // Once without new bytes: some may have come with the last message of the handshake.
    loop {
        loop {
            let held = partial.len();
            match tls.reader().read(&mut room[held..]) {
                Ok(0) => return Err(StreamError::Ended),
                Ok(count) => cut(partial, &mut room[..held + count], each)?,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(StreamError::broken(error)),
            }
        }
        if sealed.is_empty() {
            return Ok(());
        }
        if tls.read_tls(&mut sealed).map_err(StreamError::broken)? == 0 {
            return Err(StreamError::Ended);
        }
        tls.process_new_packets().map_err(|error| StreamError::broken(io::Error::other(error)))?;
    }
}

/// Hands over the datagrams that are complete. `bytes` has room for `partial`, then what is new.
pub(crate) fn cut(
    partial: &mut Vec<u8>,
    bytes: &mut [u8],
    each: &mut impl FnMut(&mut [u8]),
) -> Result<(), StreamError> {
    bytes[..partial.len()].copy_from_slice(partial);
    partial.clear();
    let used = frame::split(bytes, each)?;
    partial.extend_from_slice(&bytes[used..]);
    Ok(())
}

fn length_of(count: &io::Result<usize>) -> usize {
    *count.as_ref().unwrap_or(&0)
}
