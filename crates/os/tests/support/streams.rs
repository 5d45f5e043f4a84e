//! A listener and whoever connects to it, in one thread, and the servers that stand around them,
//! each in a thread of its own that ends with its connections.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::AsRawFd,
    thread,
    time::{Duration, Instant},
};

use rove_os::{
    clock::Clock,
    stream::{ListenOptions, Listener, Phase, Proxy, Security, Stream, StreamError, StreamOptions},
    udp::{Datagrams, Ecn, Queue, ReceiveBuffer, SendError},
};

/// How long anything may take that takes milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// A gateway's listener, and the streams that it has handed over.
pub(crate) struct Gateway {
    pub(crate) listener: Listener,
    pub(crate) streams: Vec<Stream>,
    pub(crate) clock: Clock,
    /// How far its clock is ahead, in nanoseconds.
    pub(crate) ahead: u64,
}

impl Gateway {
    pub(crate) fn new(local: &str, backend: Option<SocketAddr>) -> Self {
        let local = &[local.parse().unwrap()];
        let options = ListenOptions { local, ipv6_only: false, mark: None, backend };
        let listener = Listener::bind(&options).unwrap();
        Self { listener, streams: Vec::new(), clock: Clock::new(), ahead: 0 }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.listener.locals().next().unwrap()
    }

    /// Lets the listener do all it can, and waits a moment for more.
    pub(crate) fn turn(&mut self) {
        wait_for(self.listener.as_raw_fd(), libc::POLLIN, 2);
        for _ in 0..1_000 {
            let now = self.clock.now() + self.ahead;
            let streams = &mut self.streams;
            if self.listener.turn(now, |stream| streams.push(stream)).unwrap() == Queue::Empty {
                return;
            }
        }
        panic!("the listener never comes to rest");
    }

    /// Turns until `is_done`.
    pub(crate) fn turn_until(&mut self, what: &str, mut is_done: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !is_done(self) {
            assert!(start.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
            self.turn();
        }
    }

    /// Opens `client` and returns the gateway's end.
    pub(crate) fn open(&mut self, client: &mut Stream) -> Result<Stream, StreamError> {
        let start = Instant::now();
        loop {
            assert!(start.elapsed() < PATIENCE, "a stream hangs in {:?}", client.phase());
            let phase = client.ready(true, true, self.clock.now())?;
            self.turn();
            if phase == Phase::Open
                && let Some(stream) = self.streams.pop()
            {
                return Ok(stream);
            }
        }
    }
}

/// Begins a stream to a gateway on this machine.
pub(crate) fn connect(
    remote: SocketAddr,
    security: Security<'_>,
    proxy: Option<Proxy<'_>>,
) -> Stream {
    let options = StreamOptions {
        local: None,
        interface: None,
        mark: None,
        remote,
        mptcp: false,
        security,
        proxy,
    };
    Stream::connect(&options, Clock::new().now()).unwrap()
}

/// Goes on with a stream that has no partner here until it fails.
pub(crate) fn failure(mut stream: Stream) -> StreamError {
    let start = Instant::now();
    let mut buffer = ReceiveBuffer::new(1);
    loop {
        assert!(start.elapsed() < PATIENCE, "a stream hangs in {:?}", stream.phase());
        wait_for(stream.as_raw_fd(), libc::POLLIN, 2);
        if let Err(error) = stream.ready(true, true, 0) {
            assert_eq!(stream.phase(), Phase::Closed);
            return error;
        }
        if let Err(error) = stream.receive(&mut buffer, |_, _| {}) {
            assert_eq!(stream.phase(), Phase::Closed);
            return error;
        }
    }
}

/// A run to the stream's only address.
pub(crate) fn run(stream: &mut Stream, contents: &[u8], segment: usize) -> Result<(), SendError> {
    let remote = stream.remote();
    let segment = Some(segment);
    stream.send(Datagrams { remote, source: None, ecn: Ecn::NotCapable, contents, segment })
}

/// Sends everything from one end to the other, in runs of datagrams of `segment` bytes, repeating
/// what was refused, and checks that it arrives as it was.
pub(crate) fn carry(from: &mut Stream, to: &mut Stream, total: usize, segment: usize) {
    let contents: Vec<u8> = (0..total).map(|at| (at * 31 + at / 251) as u8).collect();
    let (mut next, mut arrived) = (0, Vec::new());
    let mut buffer = ReceiveBuffer::new(2);
    let start = Instant::now();
    while arrived.len() < total {
        assert!(start.elapsed() < PATIENCE, "{} of {total} bytes arrived", arrived.len());
        from.ready(false, true, 0).unwrap();
        while next < total {
            let end = total.min(next + segment);
            match run(from, &contents[next..end], segment) {
                Ok(()) => next = end,
                Err(SendError::WouldBlock) => break,
                Err(error) => panic!("{error}"),
            }
        }
        wait_for(to.as_raw_fd(), libc::POLLIN, 2);
        let remote = to.remote();
        let local = to.local();
        while to
            .receive(&mut buffer, |meta, datagram| {
                assert_eq!((meta.remote, meta.local), (remote, local));
                assert_eq!(meta.stride, datagram.len());
                assert!(datagram.len() == segment || arrived.len() + datagram.len() == total);
                arrived.extend_from_slice(datagram);
            })
            .unwrap()
            == Queue::Unknown
        {}
    }
    assert!(arrived == contents, "what arrived is not what was sent");
}

pub(crate) fn wait_for(fd: i32, events: libc::c_short, millis: libc::c_int) -> bool {
    let mut polled = libc::pollfd { fd, events, revents: 0 };
    // SAFETY: one pollfd that lives through the call.
    unsafe { libc::poll(&raw mut polled, 1, millis) > 0 }
}

/// A server that treats every connection with `serve`, in threads.
pub(crate) fn server(
    local: &str,
    serve: impl Fn(TcpStream) + Send + Sync + Clone + 'static,
) -> SocketAddr {
    let listener = TcpListener::bind(local).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            connection.set_nodelay(true).unwrap();
            connection.set_read_timeout(Some(PATIENCE)).unwrap();
            let serve = serve.clone();
            thread::spawn(move || serve(connection));
        }
    });
    address
}

/// Reads up to and with the empty line.
pub(crate) fn read_head(connection: &mut TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && connection.read(&mut byte).is_ok_and(|count| count == 1) {
        head.push(byte[0]);
    }
    String::from_utf8(head).unwrap()
}

/// An HTTP proxy. It wants this credential, if one is given.
pub(crate) fn proxy(local: &str, credential: Option<&'static str>) -> SocketAddr {
    server(local, move |mut connection| {
        let head = read_head(&mut connection);
        let is_known = credential
            .is_none_or(|known| head.contains(&format!("Proxy-Authorization: Basic {known}\r\n")));
        if !is_known {
            let _ = connection.write_all(b"HTTP/1.1 407 Who are you\r\n\r\n");
            return;
        }
        let target = head.split(' ').nth(1).unwrap().to_owned();
        let Ok(behind) = TcpStream::connect(target) else {
            let _ = connection.write_all(b"HTTP/1.1 502 Nobody There\r\n\r\n");
            return;
        };
        connection.write_all(b"HTTP/1.1 200 Go Ahead\r\nVia: 1.1 here\r\n\r\n").unwrap();
        join(connection, behind, 64 << 10);
    })
}

/// Copies both ways until both ends have ended, at most `piece` bytes at a time.
pub(crate) fn join(one: TcpStream, other: TcpStream, piece: usize) {
    other.set_nodelay(true).unwrap();
    let (one_too, other_too) = (one.try_clone().unwrap(), other.try_clone().unwrap());
    let back = thread::spawn(move || copy(other_too, one_too, piece));
    copy(one, other, piece);
    back.join().unwrap();
}

fn copy(mut from: TcpStream, mut to: TcpStream, piece: usize) {
    let mut bytes = vec![0; piece];
    while let Ok(count) = from.read(&mut bytes) {
        if count == 0 || to.write_all(&bytes[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}
