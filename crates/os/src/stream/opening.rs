//! How a client's stream opens: TCP, then the proxy, then TLS, then frames.
//!
//! Each step owns its state and is never entered again. Datagrams that are sent meanwhile wait, up
//! to the size of a handshake and its repetitions, and leave first.

use std::{io, net::SocketAddr};

use rustls::{ClientConnection, Connection};
use socket2::Socket;

use super::{
    StreamError,
    carrier::{Carrier, Layer},
    frame::{self, ALPN, FRAME_LEN_MAX, PREFACE},
    options::Phase,
    proxy::Exchange,
    socket,
    wire::Wire,
};
use crate::udp::SendError;

/// Bytes of frames that wait until the stream is open: eight datagrams, of which a handshake has
/// two. Older ones are of no use when it opens.
pub const EARLY_MAX: usize = 8 * FRAME_LEN_MAX;

/// A client's stream that is not open yet.
#[derive(Debug)]
pub(super) struct Opening {
    /// Whom TCP connects to.
    to: SocketAddr,
    step: Step,
    early: Vec<u8>,
}

/// What is waited for, and what comes after it.
#[derive(Debug)]
enum Step {
    Connecting { proxy: Option<Exchange>, security: Option<Box<ClientConnection>> },
    Asking { proxy: Exchange, security: Option<Box<ClientConnection>> },
    Securing(Box<ClientConnection>),
    Done(Layer),
}

/// Where an opening got to.
#[derive(Debug)]
pub(super) enum Advanced {
    /// Something has to arrive first.
    Waits(Opening),
    /// It is open.
    Open(Carrier),
}

impl Opening {
    /// A connection to `to` was begun.
    pub(super) fn new(
        to: SocketAddr,
        proxy: Option<Exchange>,
        security: Option<Box<ClientConnection>>,
    ) -> Self {
        Self { to, step: Step::Connecting { proxy, security }, early: Vec::new() }
    }

    pub(super) fn phase(&self) -> Phase {
        match &self.step {
            Step::Connecting { .. } => Phase::Connecting,
            Step::Asking { .. } => Phase::AskingProxy,
            Step::Securing(_) => Phase::Securing,
            Step::Done(_) => Phase::Open,
        }
    }

    /// Keeps datagrams until the stream is open.
    pub(super) fn send(&mut self, contents: &[u8], segment: usize) -> Result<(), SendError> {
        for datagram in contents.chunks(segment.max(1)) {
            let length = frame::length(datagram.len()).ok_or(SendError::TooLong)?;
            if self.early.len() + length.len() + datagram.len() > EARLY_MAX {
                return Err(SendError::WouldBlock);
            }
            self.early.extend_from_slice(&length);
            self.early.extend_from_slice(datagram);
        }
        Ok(())
    }

    pub(super) fn waiting(&self) -> usize {
        self.early.len()
    }

    /// Does what is possible now.
    pub(super) fn advance(mut self, socket: &Socket) -> Result<Advanced, StreamError> {
        loop {
            self.step = match self.step {
                Step::Connecting { proxy, security } => {
                    if !socket::is_connected(socket, self.to)? {
                        self.step = Step::Connecting { proxy, security };
                        return Ok(Advanced::Waits(self));
                    }
                    match proxy {
                        Some(proxy) => Step::Asking { proxy, security },
                        None => secure(security),
                    }
                }
                Step::Asking { mut proxy, security } => {
                    if !proxy.advance(socket)? {
                        self.step = Step::Asking { proxy, security };
                        return Ok(Advanced::Waits(self));
                    }
                    secure(security)
                }
                Step::Securing(mut tls) => {
                    if !shake_hands(&mut tls, socket, self.to)? {
                        self.step = Step::Securing(tls);
                        return Ok(Advanced::Waits(self));
                    }
                    Step::Done(Layer::Tls(Box::new(Connection::Client(*tls))))
                }
                Step::Done(layer) => {
                    let preface = match &layer {
                        Layer::Plain => &PREFACE[..],
                        Layer::Tls(_) => &[],
                    };
                    return Ok(Advanced::Open(Carrier::new(layer, preface, &self.early)));
                }
            };
        }
    }
}

fn secure(security: Option<Box<ClientConnection>>) -> Step {
    security.map_or(Step::Done(Layer::Plain), Step::Securing)
}

/// Goes on with a client's TLS handshake. True when it is done and `rove/1` was chosen.
fn shake_hands(
    tls: &mut ClientConnection,
    socket: &Socket,
    to: SocketAddr,
) -> Result<bool, StreamError> {
    let mut wire = Wire(socket);
    loop {
        while tls.wants_write() {
            match tls.write_tls(&mut wire) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(StreamError::broken(error)),
            }
        }
        if !tls.is_handshaking() {
            let is_rove = tls.alpn_protocol() == Some(ALPN);
            return if is_rove { Ok(true) } else { Err(StreamError::NotRove { to }) };
        }
        match tls.read_tls(&mut wire) {
            Ok(0) => {
                let why = "the other end closes the stream during the handshake".to_owned();
                return Err(StreamError::Tls { to, why });
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(StreamError::broken(error)),
        }
        if let Err(error) = tls.process_new_packets() {
            // The other end is told why, if it still listens.
            let _ = tls.write_tls(&mut wire);
            let refused =
                rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol);
            return Err(if error == refused {
                StreamError::NotRove { to }
            } else {
                StreamError::Tls { to, why: error.to_string() }
            });
        }
    }
}
