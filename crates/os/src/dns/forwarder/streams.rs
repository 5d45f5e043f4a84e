//! Queries over TCP (RFC 7766), which follow a truncated answer.
//!
//! Each connection has a thread, and its queries are answered one after the other.

use std::{
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use socket2::Type;

use super::{
    message::{self, Answer, ID_LEN},
    servers::{QUERY_TIME, Server, Servers, identifier, is_local},
};

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

/// Takes a connection that waits.
pub(super) fn accept(listener: &TcpListener, servers: &Arc<Servers>, open: &Arc<AtomicUsize>) {
    let Ok((stream, from)) = listener.accept() else { return };
    if !is_local(&from) || open.load(Ordering::Acquire) >= STREAMS_MAX {
        return;
    }
    let (servers, counted) = (Arc::clone(servers), Arc::clone(open));
    open.fetch_add(1, Ordering::AcqRel);
    let serve = move || {
        // Its client, or a server, went away.
        let _ = serve(&stream, &servers);
        counted.fetch_sub(1, Ordering::AcqRel);
    };
    if thread::Builder::new().name("dns-stream".to_owned()).spawn(serve).is_err() {
        open.fetch_sub(1, Ordering::AcqRel);
    }
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
