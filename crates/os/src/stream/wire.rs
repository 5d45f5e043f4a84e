//! Reading and writing of a connected socket.

use std::io::{self, IoSlice, Read, Write};

use socket2::Socket;

/// A connected socket for those who read and write: a write to a stream that was closed is an
/// error, never a signal.
pub(super) struct Wire<'a>(pub(super) &'a Socket);

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        again(|| {
            let mut socket = self.0;
            socket.read(buffer)
        })
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        again(|| self.0.send_with_flags(bytes, libc::MSG_NOSIGNAL))
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        again(|| self.0.send_vectored_with_flags(pieces, libc::MSG_NOSIGNAL))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A call that a signal may interrupt; once more each time, which signals do not do for ever.
fn again(mut call: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}
