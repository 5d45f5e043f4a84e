//! HTTP CONNECT (RFC 9110 section 9.3.6, RFC 9112): one request, one response, then a tunnel.
//!
//! The response is parsed strictly and within [`http::ANSWER_LEN_MAX`]. Data that is no HTTP/1
//! response is refused at its first wrong byte, so that the error can say that the proxy's address
//! is wrong.

use std::{
    fmt::{self, Write as _},
    io::{self, Read as _, Write as _},
    net::SocketAddr,
};

use data_encoding::BASE64;
use socket2::Socket;

use super::{StreamError, wire::Wire};
use crate::{
    error::Error,
    http::{self, Answer},
};

/// Bytes of the longest target: a DNS name (RFC 1035 section 2.3.4), a colon and a port.
const TARGET_LEN_MAX: usize = 255 + 6;
/// Bytes of the longest user name and of the longest password.
const CREDENTIAL_LEN_MAX: usize = 512;

/// A proxy between here and the gateway.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Proxy<'a> {
    /// Where it listens.
    pub address: SocketAddr,
    /// What it shall connect to: `host:port`, the host a name or an address (IPv6 in brackets).
    pub target: &'a str,
    /// Who asks, if the proxy wants to know.
    pub authorization: Option<Basic<'a>>,
}

/// User and password of the Basic scheme (RFC 7617). They travel readable to the proxy.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Basic<'a> {
    /// The user's name, without a colon.
    pub user: &'a str,
    /// The password.
    pub password: &'a str,
}

impl fmt::Debug for Basic<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Basic(..)")
    }
}

/// A request under way.
pub(crate) struct Exchange {
    proxy: SocketAddr,
    target: String,
    /// What is to be sent still.
    request: Vec<u8>,
    answer: Vec<u8>,
}

impl fmt::Debug for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The request may hold a password.
        f.debug_struct("Exchange").field("proxy", &self.proxy).finish_non_exhaustive()
    }
}

impl Exchange {
    /// A request to `proxy`, not sent yet.
    ///
    /// # Errors
    /// [`Error::BadProxy`] for a target or credentials that cannot be written into a request.
    pub(crate) fn new(proxy: &Proxy<'_>) -> Result<Self, Error> {
        let request = request(proxy)?;
        let target = proxy.target.to_owned();
        Ok(Self { proxy: proxy.address, target, request, answer: Vec::new() })
    }

    /// Sends and receives what is possible now. True as soon as the tunnel is there.
    pub(crate) fn advance(&mut self, socket: &Socket) -> Result<bool, StreamError> {
        while !self.request.is_empty() {
            match Wire(socket).write(&self.request) {
                Ok(count) => drop(self.request.drain(..count)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(StreamError::broken(error)),
            }
        }
        loop {
            let mut piece = [0; 1_024];
            match Wire(socket).read(&mut piece) {
                Ok(0) => return Err(self.odd("it closed the connection without one")),
                Ok(count) => self.answer.extend_from_slice(&piece[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(StreamError::broken(error)),
            }
            match http::read(&self.answer) {
                Ok(None) => {}
                Ok(Some(answer)) => return self.judge(&answer),
                Err(why) => return Err(self.odd(why)),
            }
        }
    }

    fn judge(&self, answer: &Answer) -> Result<bool, StreamError> {
        match answer.status {
            // A gateway never speaks first, so there can be no bytes of the tunnel yet.
            200..=299 if answer.length == self.answer.len() => Ok(true),
            200..=299 => Err(self.odd("it sends more than an answer")),
            407 => Err(StreamError::ProxyAuthentication { proxy: self.proxy }),
            status => Err(StreamError::ProxyRefused {
                proxy: self.proxy,
                target: self.target.clone(),
                status,
                reason: answer.reason.clone(),
            }),
        }
    }

    fn odd(&self, why: &'static str) -> StreamError {
        StreamError::ProxyAnswer { proxy: self.proxy, why }
    }
}

/// The whole request. Nothing in it can begin another line.
pub(super) fn request(proxy: &Proxy<'_>) -> Result<Vec<u8>, Error> {
    let target = proxy.target;
    let port = target.rsplit_once(':').and_then(|(_, port)| port.parse::<u16>().ok());
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:[]".contains(&byte);
    if port.is_none_or(|port| port == 0)
        || target.len() > TARGET_LEN_MAX
        || !target.bytes().all(is_plain)
    {
        return Err(Error::BadProxy { why: format!("{target:?} is not HOST:PORT") });
    }
    let mut text = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n");
    if let Some(Basic { user, password }) = proxy.authorization {
        let is_odd = |text: &str| {
            text.len() > CREDENTIAL_LEN_MAX || text.chars().any(|letter| letter.is_control())
        };
        if user.contains(':') || is_odd(user) || is_odd(password) {
            let why = "its user name or password holds what HTTP cannot carry".to_owned();
            return Err(Error::BadProxy { why });
        }
        let secret = BASE64.encode(format!("{user}:{password}").as_bytes());
        // Writing to a string cannot fail.
        let _ = write!(text, "Proxy-Authorization: Basic {secret}\r\n");
    }
    text.push_str("\r\n");
    Ok(text.into_bytes())
}
