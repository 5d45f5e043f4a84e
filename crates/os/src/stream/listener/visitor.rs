//! One visitor: its first bytes decide the protocol. If that is TLS, the handshake follows.

use std::{
    io::{self, Read as _, Write as _},
    net::{Shutdown, SocketAddr},
    sync::Arc,
};

use rustls::{
    Connection, ServerConfig, ServerConnection,
    server::{Accepted, Acceptor},
};
use socket2::Socket;

use super::splice::{SPLICE_BUFFER_LEN, Splice};
use crate::stream::{
    carrier::{Carrier, Layer},
    frame::{ALPN, PREFACE},
    tls::NO_PROTOCOL_ALERT,
    wire::Wire,
};

/// Bytes of the longest first message of TLS that is waited for: one record (RFC 8446 section 5.1).
/// Browsers send below 2 KB, or twice that with post-quantum keys.
pub(super) const HELLO_LEN_MAX: usize = 5 + 16_384;
// What a splice is given fits the bound that is told for a direction of it, but for the header of
// a record.
const _: () = assert!(HELLO_LEN_MAX <= SPLICE_BUFFER_LEN + 5);
/// The type of a TLS record that holds a handshake message.
const HANDSHAKE_RECORD: u8 = 22;

/// A connection that has not shown yet what it speaks.
pub(crate) struct Visitor {
    socket: Socket,
    remote: SocketAddr,
    /// Everything that was read, for the backend; no longer filled when it is Rove.
    seen: Vec<u8>,
    stage: Stage,
}

enum Stage {
    /// Nothing but part of the preface, or nothing at all, has come.
    Silent,
    /// A TLS record began.
    Hello { acceptor: Box<Acceptor>, fed: usize },
    /// TLS with `rove/1`.
    Securing(Box<ServerConnection>),
}

/// What became of a visitor.
pub(crate) enum Verdict {
    /// More has to come.
    Waits(Box<Visitor>),
    /// It speaks Rove, and the stream is open.
    Rove { socket: Socket, remote: SocketAddr, carrier: Carrier },
    /// It speaks something else.
    Foreign(Box<Visitor>),
    /// It closed, broke, or failed at TLS.
    Gone,
}

/// What the bytes so far say.
enum Speaks {
    Unclear,
    Rove,
    Foreign,
    Nothing,
}

impl std::fmt::Debug for Visitor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Visitor").field("remote", &self.remote).finish_non_exhaustive()
    }
}

impl Visitor {
    pub(crate) const fn new(socket: Socket, remote: SocketAddr) -> Self {
        Self { socket, remote, seen: Vec::new(), stage: Stage::Silent }
    }

    /// Reads and answers what is possible now.
    pub(crate) fn advance(mut self: Box<Self>, tls: &Arc<ServerConfig>) -> Verdict {
        let speaks = match &mut self.stage {
            Stage::Silent | Stage::Hello { .. } => self.listen(tls),
            Stage::Securing(_) => Speaks::Unclear,
        };
        match speaks {
            Speaks::Rove => {
                let carrier = Carrier::new(Layer::Plain, &[], &[]);
                return Verdict::Rove { socket: self.socket, remote: self.remote, carrier };
            }
            Speaks::Foreign => return Verdict::Foreign(self),
            Speaks::Nothing => return Verdict::Gone,
            Speaks::Unclear => {}
        }
        let Self { socket, remote, seen, stage } = *self;
        let Stage::Securing(mut connection) = stage else {
            return Verdict::Waits(Box::new(Self { socket, remote, seen, stage }));
        };
        match shake_hands(&mut connection, &socket) {
            Ok(true) => {
                let layer = Layer::Tls(Box::new(Connection::Server(*connection)));
                Verdict::Rove { socket, remote, carrier: Carrier::new(layer, &[], &[]) }
            }
            Ok(false) => {
                let stage = Stage::Securing(connection);
                Verdict::Waits(Box::new(Self { socket, remote, seen, stage }))
            }
            Err(_) => Verdict::Gone,
        }
    }

    /// Says to who offered no protocol of ours that there is none, and closes.
    pub(super) fn turn_away(self) {
        if self.seen.first() == Some(&HANDSHAKE_RECORD) {
            // Seven bytes fit, or the visitor has gone.
            let _ = Wire(&self.socket).write(&NO_PROTOCOL_ALERT);
        }
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    /// Connects it with the backend, which gets all that was read here.
    pub(super) fn into_splice(self, backend: Socket) -> Splice {
        Splice::new(self.socket, backend, &self.seen)
    }

    /// Reads until it is clear what is spoken.
    fn listen(&mut self, tls: &Arc<ServerConfig>) -> Speaks {
        loop {
            // Not a byte beyond the preface, which is not ours to keep.
            let wanted = match self.stage {
                Stage::Silent => PREFACE.len() - self.seen.len(),
                Stage::Hello { .. } | Stage::Securing(_) => HELLO_LEN_MAX - self.seen.len(),
            };
            let before = self.seen.len();
            self.seen.resize(before + wanted.min(4_096), 0);
            let count = Wire(&self.socket).read(&mut self.seen[before..]);
            self.seen.truncate(before + *count.as_ref().unwrap_or(&0));
            match count {
                // What was begun and broken off is not for the backend either.
                Ok(0) => return Speaks::Nothing,
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Speaks::Unclear,
                Err(_) => return Speaks::Nothing,
            }
            match self.judge(tls) {
                Speaks::Unclear if !matches!(self.stage, Stage::Securing(_)) => {}
                clear @ (Speaks::Unclear | Speaks::Rove | Speaks::Foreign | Speaks::Nothing) => {
                    return clear;
                }
            }
        }
    }

    /// What all that was read so far says.
    fn judge(&mut self, tls: &Arc<ServerConfig>) -> Speaks {
        if let Stage::Silent = self.stage {
            if self.seen[..] == PREFACE {
                return Speaks::Rove;
            }
            if PREFACE.starts_with(&self.seen) {
                return Speaks::Unclear;
            }
            if self.seen.first() != Some(&HANDSHAKE_RECORD) {
                return Speaks::Foreign;
            }
            self.stage = Stage::Hello { acceptor: Box::default(), fed: 0 };
        }
        let Stage::Hello { acceptor, fed } = &mut self.stage else { return Speaks::Unclear };
        while *fed < self.seen.len() {
            match acceptor.read_tls(&mut &self.seen[*fed..]) {
                Ok(0) | Err(_) => return Speaks::Foreign,
                Ok(count) => *fed += count,
            }
            let accepted = match acceptor.accept() {
                Ok(None) => continue,
                Ok(Some(accepted)) => accepted,
                Err(_) => return Speaks::Foreign,
            };
            let rest = *fed;
            return if offers_rove(&accepted) {
                self.secure(accepted, rest, tls)
            } else {
                Speaks::Foreign
            };
        }
        // A message that is longer than anything Rove sends is somebody else's.
        if self.seen.len() >= HELLO_LEN_MAX { Speaks::Foreign } else { Speaks::Unclear }
    }

    /// Goes on as the TLS server. What came behind the first message belongs to TLS.
    fn secure(&mut self, accepted: Accepted, rest: usize, tls: &Arc<ServerConfig>) -> Speaks {
        let mut connection = match accepted.into_connection(Arc::clone(tls)) {
            Ok(connection) => connection,
            Err((_, mut alert)) => {
                let _ = alert.write(&mut Wire(&self.socket));
                return Speaks::Nothing;
            }
        };
        let mut rest = &self.seen[rest..];
        while !rest.is_empty() {
            let is_fine = matches!(connection.read_tls(&mut rest), Ok(count) if count > 0)
                && connection.process_new_packets().is_ok();
            if !is_fine {
                return Speaks::Nothing;
            }
        }
        self.seen = Vec::new();
        self.stage = Stage::Securing(Box::new(connection));
        Speaks::Unclear
    }
}

fn offers_rove(accepted: &Accepted) -> bool {
    accepted.client_hello().alpn().is_some_and(|mut offered| offered.any(|name| name == ALPN))
}

/// Goes on with the handshake. True when it is done; what the kernel did not take of it then waits
/// in the connection.
fn shake_hands(tls: &mut ServerConnection, socket: &Socket) -> io::Result<bool> {
    let mut wire = Wire(socket);
    loop {
        while tls.wants_write() {
            match tls.write_tls(&mut wire) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if !tls.is_handshaking() {
            return Ok(true);
        }
        match tls.read_tls(&mut wire) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        if let Err(error) = tls.process_new_packets() {
            let _ = tls.write_tls(&mut wire);
            return Err(io::Error::other(error));
        }
    }
}
