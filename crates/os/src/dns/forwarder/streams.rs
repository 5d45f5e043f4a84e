//! Queries over TCP (RFC 7766), which follow a truncated answer.
//!
//! Each connection has a thread, and its queries are answered one after the other.
//!
//! Any user of the host can open connections and keep them. A user gets another one only while it
//! has fewer than are free. So one user gets half of them, and a second one half of the rest.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use socket2::Type;

use super::{
    message::{self, Answer, ID_LEN},
    servers::{QUERY_TIME, Server, Servers, identifier, is_local},
};
use crate::netlink::sockets::{self, Protocol};

/// Connections at once.
pub(super) const STREAMS_MAX: usize = 16;
/// Connections that wait to be accepted.
pub(super) const BACKLOG: libc::c_int = 16;
/// Queries of one connection.
const QUERIES_MAX: usize = 64;
/// How long a server has before the next one is asked. Over TCP an answer takes two round trips,
/// and the answer of the earlier server is lost.
const RETRY: Duration = Duration::from_secs(2);
/// How long a connection may wait for its next query.
const IDLE: Duration = Duration::from_secs(5);

/// The users of the connections that are served, one entry for each connection.
#[derive(Debug, Default)]
pub(super) struct Streams {
    users: Mutex<Vec<u32>>,
}

/// The place of one connection. It is free again when this is dropped.
struct Place {
    streams: Arc<Streams>,
    user: u32,
}

impl Streams {
    /// A place for another connection of `user`, if it may have one.
    fn take(self: &Arc<Self>, user: u32) -> Option<Place> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        let own = users.iter().filter(|of| **of == user).count();
        if own >= STREAMS_MAX.saturating_sub(users.len()) {
            return None;
        }
        users.push(user);
        Some(Place { streams: Arc::clone(self), user })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut users = self.streams.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(at) = users.iter().position(|of| *of == self.user) {
            users.swap_remove(at);
        }
    }
}

/// Takes a connection that waits.
pub(super) fn accept(listener: &TcpListener, servers: &Arc<Servers>, open: &Arc<Streams>) {
    let Ok((stream, from)) = listener.accept() else { return };
    if !is_local(&from) {
        return;
    }
    let Some(place) = open.take(user_of(&stream, from)) else { return };
    let servers = Arc::clone(servers);
    let serve = move || {
        let _place = place;
        // Its client, or a server, went away.
        let _ = serve(&stream, &servers);
    };
    // Without a thread the connection is closed.
    let _ = thread::Builder::new().name("dns-stream".to_owned()).spawn(serve);
}

/// The user at the other end. Connections whose user the kernel does not tell count as those of one
/// user.
fn user_of(stream: &TcpStream, from: SocketAddr) -> u32 {
    let user = stream.local_addr().and_then(|own| sockets::user_of(Protocol::Tcp, from, own));
    user.unwrap_or(sockets::NOBODY)
}

fn serve(stream: &TcpStream, servers: &Servers) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    for _ in 0..QUERIES_MAX {
        let query = receive(stream, Instant::now() + IDLE)?;
        let question = message::query(&query).ok_or(io::ErrorKind::InvalidData)?;
        if servers.is_stopped() {
            return Ok(());
        }
        let answer = ask(&query, &servers.of(question));
        let answer = answer.unwrap_or_else(|| message::failure(&query, question));
        send(stream, &answer, Instant::now() + IDLE)?;
    }
    Ok(())
}

/// The answer of the first server that has one, else the last refusal.
fn ask(query: &[u8], servers: &[Server]) -> Option<Vec<u8>> {
    let mut refusal = None;
    let end = Instant::now() + QUERY_TIME;
    for (at, server) in servers.iter().enumerate() {
        let is_last = at + 1 == servers.len();
        let until = if is_last { end } else { end.min(Instant::now() + RETRY) };
        match ask_one(query, server, until) {
            Ok((Answer::Valid, answer)) => return Some(answer),
            Ok((Answer::Refusal, answer)) => refusal = Some(answer),
            Ok((Answer::Foreign, _)) | Err(_) => {}
        }
    }
    refusal
}

fn ask_one(query: &[u8], server: &Server, end: Instant) -> io::Result<(Answer, Vec<u8>)> {
    let socket = server.socket(Type::STREAM)?;
    socket.connect_timeout(&server.address.into(), time_to(end)?.min(RETRY))?;
    let stream = TcpStream::from(socket);
    let id = identifier()?;
    send(&stream, &[&id, &query[ID_LEN..]].concat(), end)?;
    let mut answer = receive(&stream, end)?;
    let judged = message::judge(&answer, id, query);
    if judged != Answer::Foreign {
        answer[..ID_LEN].copy_from_slice(&query[..ID_LEN]);
    }
    Ok((judged, answer))
}

/// One message behind its length (RFC 1035 section 4.2.2).
fn receive(stream: &TcpStream, end: Instant) -> io::Result<Vec<u8>> {
    let mut length = [0; 2];
    read(stream, &mut length, end)?;
    let mut message = vec![0; u16::from_be_bytes(length).into()];
    read(stream, &mut message, end)?;
    Ok(message)
}

/// Fills `room` until `end`, however slowly its bytes come.
fn read(mut stream: &TcpStream, room: &mut [u8], end: Instant) -> io::Result<()> {
    let mut at = 0;
    while at < room.len() {
        stream.set_read_timeout(Some(time_to(end)?))?;
        match stream.read(&mut room[at..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            more => at += more,
        }
    }
    Ok(())
}

fn send(mut stream: &TcpStream, message: &[u8], end: Instant) -> io::Result<()> {
    let length = u16::try_from(message.len()).map_err(io::Error::other)?;
    stream.set_write_timeout(Some(time_to(end)?))?;
    stream.write_all(&[&length.to_be_bytes(), message].concat())
}

fn time_to(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, path::Path};

    use super::*;

    #[test]
    fn one_user_cannot_take_all_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let servers = Arc::new(Servers::new(Ipv4Addr::LOCALHOST, Path::new("/nonexistent")));
        let open = Arc::new(Streams::default());
        let connect = || {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            accept(&listener, &servers, &open);
            stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
            stream
        };
        let held: Vec<TcpStream> = (0..STREAMS_MAX).map(|_| connect()).collect();
        let is_served = |mut stream: &TcpStream| stream.read(&mut [0]).is_err();
        assert_eq!(held.iter().filter(|stream| is_served(stream)).count(), STREAMS_MAX / 2);
        let other = crate::plan::own_user() + 1;
        let of_other: Vec<Place> = (0..STREAMS_MAX).map_while(|_| open.take(other)).collect();
        assert_eq!(of_other.len(), STREAMS_MAX / 4);
        assert!(open.take(other + 1).is_some(), "and another one");
        drop((held, of_other));
        let is_free = || open.take(other).is_some();
        assert!((0..100).any(|_| {
            thread::sleep(Duration::from_millis(10));
            is_free() && open.users.lock().unwrap().is_empty()
        }));
    }
}
