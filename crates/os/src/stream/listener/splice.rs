//! A connection of another program, passed to the web server behind the gateway: two sockets and a
//! small buffer in each direction.
//!
//! It does not look at the bytes. The end of either side is passed on after everything before it.
//! If one side breaks, both end.

use std::{
    io::{self, Read as _, Write as _},
    net::Shutdown,
};

use socket2::Socket;

use crate::stream::wire::Wire;

/// Bytes that a connection which is passed on may have waiting in each direction.
pub const SPLICE_BUFFER_LEN: usize = 16 << 10;
/// Fillings of a buffer that one turn moves in each direction.
const ROUNDS_PER_TURN: usize = 8;

/// Two connections that are one.
#[derive(Debug)]
pub(super) struct Splice {
    visitor: Socket,
    backend: Socket,
    up: Direction,
    down: Direction,
}

/// What one call did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Pumped {
    /// Nothing could be moved.
    Nothing,
    /// Something was, and nothing more can be.
    Moved,
    /// There is more to move than a turn allows.
    More,
    /// Both have ended, or one broke.
    Over,
}

/// What waits in one direction.
#[derive(Debug)]
struct Direction {
    bytes: Vec<u8>,
    /// Bytes of it that were written already.
    written: usize,
    end: End,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The reader goes on.
    Not,
    /// The reader has ended, the writer does not know it.
    Read,
    /// The writer knows.
    Told,
}

impl Splice {
    /// `seen` is what the visitor has sent already.
    pub(super) fn new(visitor: Socket, backend: Socket, seen: &[u8]) -> Self {
        let up = Direction { bytes: seen.to_vec(), written: 0, end: End::Not };
        let down = Direction { bytes: Vec::new(), written: 0, end: End::Not };
        Self { visitor, backend, up, down }
    }

    /// Moves what can be moved.
    pub(super) fn pump(&mut self) -> Pumped {
        let Self { visitor, backend, up, down } = self;
        let moved = up.pump(visitor, backend).and_then(|up| {
            let down = down.pump(backend, visitor)?;
            Ok([up, down])
        });
        match moved {
            Err(_) => Pumped::Over,
            Ok(_) if up.end == End::Told && down.end == End::Told => Pumped::Over,
            Ok(moved) if moved.contains(&Pumped::More) => Pumped::More,
            Ok(moved) if moved.contains(&Pumped::Moved) => Pumped::Moved,
            Ok(_) => Pumped::Nothing,
        }
    }
}

impl Direction {
    fn pump(&mut self, from: &Socket, to: &Socket) -> io::Result<Pumped> {
        let mut done = Pumped::Nothing;
        if self.end == End::Told {
            return Ok(done);
        }
        for _ in 0..ROUNDS_PER_TURN {
            if self.bytes.is_empty() && self.end == End::Not && !self.fill(from)? {
                return Ok(done);
            }
            if !self.drain(to)? {
                return Ok(done);
            }
            done = Pumped::Moved;
            if self.end == End::Told {
                return Ok(done);
            }
        }
        Ok(Pumped::More)
    }

    /// Reads into the empty buffer. False when nothing is there.
    fn fill(&mut self, from: &Socket) -> io::Result<bool> {
        self.bytes.resize(SPLICE_BUFFER_LEN, 0);
        let count = Wire(from).read(&mut self.bytes);
        self.bytes.truncate(*count.as_ref().unwrap_or(&0));
        match count {
            Ok(0) => self.end = End::Read,
            Ok(_) => {}
            Err(error) if is_early(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Writes the whole buffer, and the end behind it. False when there is no room now.
    fn drain(&mut self, to: &Socket) -> io::Result<bool> {
        while self.written < self.bytes.len() {
            match Wire(to).write(&self.bytes[self.written..]) {
                Ok(count) => self.written += count,
                Err(error) if is_early(&error) => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        self.written = 0;
        self.bytes.clear();
        if self.end == End::Read {
            to.shutdown(Shutdown::Write)?;
            self.end = End::Told;
        }
        Ok(true)
    }
}

/// Nothing yet: no data, no room, or the backend does not answer yet.
fn is_early(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}
