//! Queries over UDP, and the loop that waits for them.
//!
//! Each server that is asked gets a socket of its own, connected to it: the kernel drops datagrams
//! from elsewhere. Port and identifier are fresh each time. An earlier server may still answer
//! after the next one was asked.
//!
//! Any user of the host can send queries that no server answers. If all sockets are in use, the
//! oldest query is forgotten: a flood of queries delays others less than a refusal of new ones.

use std::{
    io,
    net::{SocketAddr, TcpListener, UdpSocket},
    os::{
        fd::{AsRawFd, RawFd},
        unix::net::UnixStream,
    },
    sync::Arc,
    time::{Duration, Instant},
};

use socket2::Type;

use super::{
    message::{self, Answer, ID_LEN, MESSAGE_LEN_MAX},
    servers::{QUERY_TIME, RETRY, Server, Servers, identifier, is_local},
    streams::{self, Streams},
};

/// Sockets that wait for an answer at once. A page with 80 hosts asks for three kinds of record
/// each.
pub(super) const SOCKETS_MAX: usize = 256;
/// Queries with the same question that wait at once. More are a circle, for example if a resolver
/// of this host asks the forwarder and is asked by it.
pub(super) const SAME_MAX: usize = 64;
/// Bytes of a query. The longest name takes 271 with its header; options and signatures follow.
const QUERY_LEN_MAX: usize = 4_096;
/// Datagrams that are read from one socket before the others have their turn.
const BATCH: usize = 64;

/// A query that waits for its answer.
struct Pending {
    client: SocketAddr,
    /// As the client sent it.
    query: Vec<u8>,
    /// The servers that were not asked yet, the next one last.
    left: Vec<Server>,
    asked: Vec<Asked>,
    /// When the next server is asked, or the query is given up.
    due: Instant,
    end: Instant,
}

/// A server that was asked.
struct Asked {
    socket: UdpSocket,
    id: [u8; ID_LEN],
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
    let streams = Arc::new(Streams::default());
    while !servers.is_stopped() {
        let fixed = [wakes.as_raw_fd(), datagrams.as_raw_fd(), listener.as_raw_fd()];
        let waiting = queries.sockets().map(|socket| socket.as_raw_fd());
        let mut polled: Vec<_> = fixed.into_iter().chain(waiting).map(readable).collect();
        wait(&mut polled, queries.patience());
        let (fixed, waiting) = polled.split_at(fixed.len());
        queries.take_answers(waiting, &mut room);
        queries.ask_due(Instant::now());
        if fixed.get(1).is_some_and(is_ready) {
            queries.take_queries(&mut room);
        }
        if fixed.get(2).is_some_and(is_ready) {
            streams::accept(listener, servers, &streams);
        }
    }
}

struct Queries<'a> {
    datagrams: &'a UdpSocket,
    servers: &'a Servers,
    /// The oldest first.
    pending: Vec<Pending>,
}

impl Queries<'_> {
    fn patience(&self) -> Option<Duration> {
        let due = self.pending.iter().map(|pending| pending.due).min()?;
        Some(due.saturating_duration_since(Instant::now()))
    }

    fn sockets(&self) -> impl Iterator<Item = &UdpSocket> {
        self.pending.iter().flat_map(|pending| &pending.asked).map(|asked| &asked.socket)
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
        let is_same = |pending: &&Pending| message::query(&pending.query) == Some(question);
        let same = self.pending.iter().filter(is_same).count();
        if query.len() > QUERY_LEN_MAX || same >= SAME_MAX {
            return;
        }
        while self.sockets().count() >= SOCKETS_MAX {
            self.pending.remove(0);
        }
        let mut left = self.servers.of(question);
        left.reverse();
        let now = Instant::now();
        let (query, asked) = (query.to_vec(), Vec::new());
        let mut pending = Pending { client, query, left, asked, due: now, end: now + QUERY_TIME };
        pending.ask_next(now);
        if pending.can_be_answered() {
            self.pending.push(pending);
        } else {
            pending.fail(self.datagrams);
        }
    }

    /// Reads the [sockets](Self::sockets) that are ready.
    fn take_answers(&mut self, polled: &[libc::pollfd], room: &mut [u8]) {
        let mut rest = polled;
        self.pending.retain_mut(|pending| {
            let (ours, others) = rest.split_at(pending.asked.len());
            rest = others;
            // From the last to the first: a socket without hope leaves the list.
            for at in (0..ours.len()).rev().filter(|&at| is_ready(&ours[at])) {
                if let Some(length) = pending.take_answer(at, room) {
                    pending.reply(&mut room[..length], self.datagrams);
                    return false;
                }
            }
            let waits = pending.can_be_answered();
            if !waits {
                pending.fail(self.datagrams);
            }
            waits
        });
    }

    /// Asks the next server where one is due, and forgets queries that are too old.
    fn ask_due(&mut self, now: Instant) {
        let mut free = SOCKETS_MAX.saturating_sub(self.sockets().count());
        self.pending.retain_mut(|pending| {
            if pending.due <= now {
                if free == 0 && !pending.left.is_empty() && !pending.asked.is_empty() {
                    pending.asked.remove(0);
                    free += 1;
                }
                let before = pending.asked.len();
                pending.ask_next(now);
                free = free.saturating_sub(pending.asked.len() - before);
                if !pending.can_be_answered() {
                    pending.fail(self.datagrams);
                    return false;
                }
            }
            pending.end > now
        });
    }
}

impl Pending {
    /// Asks the next server that can be reached.
    fn ask_next(&mut self, now: Instant) {
        self.due = self.end;
        while let Some(server) = self.left.pop() {
            if let Ok(asked) = ask(&self.query, &server) {
                self.asked.push(asked);
                if !self.left.is_empty() {
                    self.due = now + RETRY;
                }
                return;
            }
        }
    }

    /// Whether a server may still answer, or can still be asked.
    fn can_be_answered(&self) -> bool {
        !self.asked.is_empty() || !self.left.is_empty()
    }

    /// Reads what a server sent. Returns the length of the answer that the client gets. The next
    /// server is due if this one has none.
    fn take_answer(&mut self, at: usize, room: &mut [u8]) -> Option<usize> {
        let is_last = self.left.is_empty() && self.asked.len() == 1;
        let Asked { socket, id } = &self.asked[at];
        for _ in 0..BATCH {
            match socket.recv(room) {
                Ok(length) => match message::judge(&room[..length], *id, &self.query) {
                    Answer::Foreign => continue,
                    Answer::Refusal if !is_last => {}
                    Answer::Valid | Answer::Refusal => return Some(length),
                },
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                // The server does not listen (ICMP).
                Err(_) => {}
            }
            self.asked.remove(at);
            self.due = Instant::now();
            return None;
        }
        None
    }

    /// Answers the client, with as many bytes as it takes.
    fn reply(&self, answer: &mut [u8], datagrams: &UdpSocket) {
        answer[..ID_LEN].copy_from_slice(&self.query[..ID_LEN]);
        let Some(question) = message::query(&self.query) else { return };
        // A client that is gone, or whose queue is full, asks again.
        let _ = datagrams.send_to(&message::fit(answer, &self.query, question), self.client);
    }

    /// Answers that no server could be asked.
    fn fail(&self, datagrams: &UdpSocket) {
        if let Some(question) = message::query(&self.query) {
            self.reply(&mut message::failure(&self.query, question), datagrams);
        }
    }
}

fn ask(query: &[u8], server: &Server) -> io::Result<Asked> {
    let socket = server.socket(Type::DGRAM)?;
    socket.connect(&server.address.into())?;
    socket.set_nonblocking(true)?;
    let id = identifier()?;
    socket.send(&[&id, &query[ID_LEN..]].concat())?;
    Ok(Asked { socket: socket.into(), id })
}

fn readable(fd: RawFd) -> libc::pollfd {
    libc::pollfd { fd, events: libc::POLLIN, revents: 0 }
}

fn is_ready(polled: &libc::pollfd) -> bool {
    polled.revents != 0
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
