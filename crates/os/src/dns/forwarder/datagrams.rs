//! Queries over UDP, and the loop that waits for them.
//!
//! Each query has a socket of its own, connected to the server: the kernel drops datagrams from
//! elsewhere. When the next server is asked, the socket is replaced, so port and identifier are
//! fresh.

use std::{
    io,
    net::{SocketAddr, TcpListener, UdpSocket},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    sync::{Arc, atomic::AtomicUsize},
    time::{Duration, Instant},
};

use socket2::Type;

use super::{
    message::{self, Answer, ID_LEN, MESSAGE_LEN_MAX},
    servers::{QUERY_TIME, RETRY, Server, Servers, identifier, is_local},
    streams,
};

/// Queries that wait for an answer at once, each with a socket. A page with 80 hosts asks for three
/// kinds of record each.
pub(super) const PENDING_MAX: usize = 256;
/// Datagrams that are read from one socket before the others have their turn.
const BATCH: usize = 64;

/// A query that waits for its answer.
struct Pending {
    client: SocketAddr,
    client_id: [u8; ID_LEN],
    /// The query as the server gets it.
    query: Vec<u8>,
    /// The servers that were not asked yet, the next one last.
    left: Vec<Server>,
    socket: UdpSocket,
    /// When the next server is asked, or the query is given up.
    due: Instant,
    end: Instant,
}

/// Forwards queries until `wakes` is closed.
pub(super) fn serve(
    datagrams: &UdpSocket,
    listener: &TcpListener,
    wakes: &UnixStream,
    servers: &Arc<Servers>,
) {
    let mut queries = Queries { datagrams, servers, pending: Vec::new() };
    let mut room = vec![0; MESSAGE_LEN_MAX];
    let streams = Arc::new(AtomicUsize::new(0));
    while !servers.is_stopped() {
        let fixed = [wakes.as_raw_fd(), datagrams.as_raw_fd(), listener.as_raw_fd()];
        let waiting = queries.pending.iter().map(|pending| pending.socket.as_raw_fd());
        let mut polled: Vec<_> = fixed.into_iter().chain(waiting).map(readable).collect();
        wait(&mut polled, queries.patience());
        let is_ready = |at: usize| polled.get(at).is_some_and(|polled| polled.revents != 0);
        // From the last to the first: an answered query leaves the list.
        for at in (0..queries.pending.len()).rev() {
            if is_ready(fixed.len() + at) {
                queries.take_answers(at, &mut room);
            }
        }
        queries.ask_due(Instant::now());
        if is_ready(1) {
            queries.take_queries(&mut room);
        }
        if is_ready(2) {
            streams::accept(listener, servers, &streams);
        }
    }
}

struct Queries<'a> {
    datagrams: &'a UdpSocket,
    servers: &'a Servers,
    pending: Vec<Pending>,
}

impl Queries<'_> {
    fn patience(&self) -> Option<Duration> {
        let due = self.pending.iter().map(|pending| pending.due).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    fn take_queries(&mut self, room: &mut [u8]) {
        for _ in 0..BATCH {
            match self.datagrams.recv_from(room) {
                Ok((length, from)) if is_local(&from) => self.take_query(&room[..length], from),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // An error that an earlier reply met.
                Err(_) => {}
            }
        }
    }

    fn take_query(&mut self, query: &[u8], client: SocketAddr) {
        let Some(question) = message::query(query) else { return };
        let Some(&client_id) = query.first_chunk() else { return };
        if self.pending.len() >= PENDING_MAX {
            return;
        }
        let mut left = self.servers.of(question);
        left.reverse();
        let mut query = query.to_vec();
        match ask_next(&mut query, &mut left) {
            Some(socket) => {
                let now = Instant::now();
                let end = now + QUERY_TIME;
                let due = if left.is_empty() { end } else { now + RETRY };
                self.pending.push(Pending { client, client_id, query, left, socket, due, end });
            }
            None => self.fail(&mut query, client_id, client),
        }
    }

    fn take_answers(&mut self, at: usize, room: &mut [u8]) {
        for _ in 0..BATCH {
            let pending = &mut self.pending[at];
            let length = match pending.socket.recv(room) {
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The server does not listen (ICMP).
                Err(_) if pending.left.is_empty() => {
                    let mut failed = self.pending.swap_remove(at);
                    return self.fail(&mut failed.query, failed.client_id, failed.client);
                }
                Err(_) => {
                    pending.due = Instant::now();
                    return;
                }
            };
            match message::judge(&room[..length], &pending.query) {
                Answer::Foreign => {}
                Answer::Refusal if !pending.left.is_empty() => pending.due = Instant::now(),
                Answer::Valid | Answer::Refusal => {
                    let answered = self.pending.swap_remove(at);
                    room[..ID_LEN].copy_from_slice(&answered.client_id);
                    return self.reply(&room[..length], answered.client);
                }
            }
        }
    }

    /// Asks the next server where one is due, and forgets queries that are too old.
    fn ask_due(&mut self, now: Instant) {
        self.pending.retain_mut(|pending| {
            if pending.due > now {
                return true;
            }
            if let Some(socket) = ask_next(&mut pending.query, &mut pending.left) {
                pending.socket = socket;
                pending.due = if pending.left.is_empty() { pending.end } else { now + RETRY };
                return pending.due > now;
            }
            // The last server may still answer.
            pending.due = pending.end;
            pending.due > now
        });
    }

    /// Answers that no server could be asked.
    fn fail(&self, query: &mut [u8], client_id: [u8; ID_LEN], client: SocketAddr) {
        query[..ID_LEN].copy_from_slice(&client_id);
        if let Some(question) = message::query(query) {
            self.reply(&message::failure(query, question), client);
        }
    }

    fn reply(&self, answer: &[u8], client: SocketAddr) {
        // A client that is gone, or whose queue is full, asks again.
        let _ = self.datagrams.send_to(answer, client);
    }
}

/// Sends the query to the next server that can be reached, with a new identifier.
fn ask_next(query: &mut [u8], left: &mut Vec<Server>) -> Option<UdpSocket> {
    while let Some(server) = left.pop() {
        let ask = |query: &mut [u8]| -> io::Result<UdpSocket> {
            let socket = server.socket(Type::DGRAM)?;
            socket.connect(&server.address.into())?;
            socket.set_nonblocking(true)?;
            query[..ID_LEN].copy_from_slice(&identifier()?);
            socket.send(query)?;
            Ok(socket.into())
        };
        if let Ok(socket) = ask(query) {
            return Some(socket);
        }
    }
    None
}

fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

/// Waits until one of the sockets is readable or closed, for ever without `time`.
fn wait(polled: &mut [libc::pollfd], time: Option<Duration>) {
    // Rounded up: a wait of nothing would be a loop.
    let time = time.map_or(-1, |time| {
        libc::c_int::try_from(time.as_millis()).unwrap_or(libc::c_int::MAX).saturating_add(1)
    });
    // SAFETY: the pointer and the length are those of a live, writable slice.
    unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, time) };
}
