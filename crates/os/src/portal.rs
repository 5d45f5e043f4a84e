//! Captive portals: networks that block everything until somebody has signed in, and answer plain
//! HTTP in everybody's name until then.
//!
//! No third party is asked. One request goes to the gateway's own address, port 80, on one link.
//! Without a portal it is refused, or the gateway's own web server answers it. A portal answers
//! with the address of its page (RFC 6585 section 6, or a redirection to another host). This module
//! decides whether a response is a portal's. It does not decide when to ask.
//!
//! The response comes from a stranger: it is read within a bound of bytes and time, and a page's
//! address is shown only if it is plain text. Limits: some portals look like a web server, such as
//! one that returns its page at once, under the gateway's name and without the status for it, or
//! one that only intercepts names. A gateway whose own web server redirects to another host for a
//! while looks like a portal as long as nothing else of it answers.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use socket2::{Domain, Protocol, Socket, Type};

use crate::{error::Error, http, socket::lead};

/// Where portals listen: all of plain HTTP.
pub const PORT: u16 = 80;
/// How long one question may take, from the first packet to the end of the answer's head.
pub const PATIENCE: Duration = Duration::from_secs(4);
/// Bytes of the longest address of a page that is shown.
pub const PAGE_LEN_MAX: usize = 512;

/// What is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question<'a> {
    /// By this interface only (`SO_BINDTODEVICE`).
    pub interface: &'a str,
    /// The mark of every packet (`SO_MARK`), by which policy rules let it pass by the tunnel.
    pub mark: Option<u32>,
    /// The gateway's address.
    pub gateway: IpAddr,
    /// The gateway's name for the request, or its address.
    pub host: &'a str,
}

/// What came back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// A portal's: where to sign in.
    Portal {
        /// An address of `http` or `https`, printable, at most [`PAGE_LEN_MAX`] bytes.
        page: String,
    },
    /// Somebody's, perhaps the gateway's own: no portal that shows itself.
    Other,
    /// Nothing, or a refusal.
    Nothing,
}

/// Asks, and waits for the answer, at most [`PATIENCE`].
///
/// # Errors
/// What is wrong on this side: [`Error::NoPrivilege`], [`Error::NoInterface`] or [`Error::Os`].
pub fn ask(question: Question<'_>) -> Result<Answer, Error> {
    let until = Instant::now() + PATIENCE;
    let to = SocketAddr::new(question.gateway, PORT);
    let mut socket = open(question, to)?;
    let left = || until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    if socket.connect_timeout(&to.into(), left()).is_err() {
        return Ok(Answer::Nothing);
    }
    let time = |what: std::io::Result<()>| what.map_err(|error| Error::os("ask by a link", error));
    time(socket.set_write_timeout(Some(left())))?;
    if socket.write_all(request(question).as_bytes()).is_err() {
        return Ok(Answer::Nothing);
    }
    let mut answer = Vec::new();
    let mut piece = [0; 1_024];
    while Instant::now() < until {
        time(socket.set_read_timeout(Some(left())))?;
        match socket.read(&mut piece) {
            Ok(0) => break,
            Ok(count) => answer.extend_from_slice(&piece[..count]),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
        if let Some(judged) = judge(&answer, question) {
            return Ok(judged);
        }
    }
    Ok(if answer.is_empty() { Answer::Nothing } else { Answer::Other })
}

fn open(question: Question<'_>, to: SocketAddr) -> Result<Socket, Error> {
    let kind = Type::STREAM.cloexec();
    let socket = Socket::new(Domain::for_address(to), kind, Some(Protocol::TCP))
        .map_err(|error| Error::os("open a TCP socket", error))?;
    lead(&socket, Some(question.interface), question.mark)?;
    Ok(socket)
}

/// A request that names nobody. What could begin another line is not in a host's name.
fn request(question: Question<'_>) -> String {
    let is_plain = |letter: &char| letter.is_ascii_alphanumeric() || ".-:[]".contains(*letter);
    let host: String = question.host.chars().filter(is_plain).collect();
    format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
}

/// What an answer means; `None` while more has to come.
pub(crate) fn judge(bytes: &[u8], question: Question<'_>) -> Option<Answer> {
    let answer = match http::read(bytes) {
        Ok(answer) => answer?,
        Err(_) => return Some(Answer::Other),
    };
    let head = bytes.get(..answer.length).unwrap_or_default();
    let page = http::field(head, "location").and_then(page_of);
    let is_elsewhere = |page: &String| host_of(page).is_some_and(|host| !is_ours(host, question));
    // Whoever asks for anything gets there, without a name that is made to be misread.
    let anything = || format!("http://{}/", shown(question));
    let page = page.filter(is_elsewhere);
    let page = page.map(|page| if page.contains('@') { anything() } else { page });
    Some(match (answer.status, page) {
        // RFC 6585: the page is in the body.
        (511, page) => Answer::Portal { page: page.unwrap_or_else(anything) },
        // A web server that sends everybody to another name, or to TLS, says that it always will.
        (301 | 308, _) => Answer::Other,
        (300..=399, Some(page)) => Answer::Portal { page },
        _ => Answer::Other,
    })
}

/// The address of a page that can be shown to people.
fn page_of(value: &[u8]) -> Option<String> {
    let is_plain = |byte: &u8| (b'!'..=b'~').contains(byte);
    let text = std::str::from_utf8(value).ok()?;
    (value.len() <= PAGE_LEN_MAX && value.iter().all(is_plain) && host_of(text).is_some())
        .then(|| text.to_owned())
}

/// The host in an address of `http` or `https`, without user and port (RFC 3986 section 3.2).
fn host_of(page: &str) -> Option<&str> {
    let (scheme, rest) = page.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.split_once(']')?.0,
        None => host.split_once(':').map_or(host, |(host, _)| host),
    };
    (!host.is_empty()).then_some(host)
}

/// Whether a host is the gateway itself, which may send whoever asks to its own pages.
fn is_ours(host: &str, question: Question<'_>) -> bool {
    host.eq_ignore_ascii_case(question.host)
        || host.parse::<IpAddr>().is_ok_and(|ip| ip == question.gateway)
}

/// The gateway's address as it stands in the address of a page.
fn shown(question: Question<'_>) -> String {
    match question.gateway {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
#[path = "portal_tests.rs"]
mod tests;
