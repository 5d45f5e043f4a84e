//! Bulk data over many TCP connections at once, in either direction.
//!
//! One program listens, the other connects; one of them sends, the other receives. The receiver
//! compares every byte with the seed's, and reports the progress of each connection. The end that
//! notices a broken connection reports it. That may be one end only: if a sender gives up silently,
//! the receiver waits for ever.
//!
//! Its limit: a thread for each connection, which is enough for some hundreds.

use super::content::{Comparison, Content};
use super::report::{Carried, Report, Reporter};
use crate::arrivals::Arrivals;
use crate::ground::KeepAlive;
use crate::netns::monotonic_ns;
use anyhow::{Context as _, bail};
use clap::Args;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// The most connections of one program.
const CONNECTIONS_MAX: u32 = 2_000;
/// The longest name of a congestion control (`TCP_CA_NAME_MAX`, its final zero included).
const NAME_MAX: usize = 16;
/// The time between two reports of one connection, in nanoseconds.
const REPORT_NS: u64 = 50_000_000;
/// The same for each connection beyond the first: the lab reads some hundred lines a second.
const REPORT_MORE_NS: u64 = 4_000_000;
/// Bytes taken from a socket at once.
const READ_BYTES: usize = 64 * 1024;
/// The stack of a connection's thread, its buffer included.
const STACK_BYTES: usize = 256 * 1024;

/// The content, and how it is sent. Both ends get the same arguments except for the side.
#[derive(Clone, Debug, Args)]
pub struct Carriage {
    /// Send; otherwise receive
    #[arg(long)]
    pub send: bool,
    /// Connections at once
    #[arg(long, default_value_t = 1)]
    pub count: u32,
    /// The content follows from it, and from the number of the connection
    #[arg(long)]
    pub seed: u64,
    /// Bytes over each connection
    #[arg(long)]
    pub length: u64,
    /// Bytes said at a time; 0 for as many as the connection takes
    #[arg(long, default_value_t = 0)]
    pub piece: u32,
    /// Microseconds between two pieces
    #[arg(long, default_value_t = 0)]
    pub every_us: u64,
    /// Congestion control, by the kernel's name; its default if none is named
    #[arg(long)]
    pub congestion: Option<String>,
    /// Ask a silent peer after 10 s, every 5 s, and give it up after three times
    #[arg(long)]
    pub keepalive: bool,
}

/// Accepts this number of connections, and carries the content over each.
///
/// # Errors
/// If the address cannot be bound, or the kernel does not know the congestion control. A connection
/// that breaks is reported.
pub fn accept(listen: SocketAddr, carriage: &Carriage, reporter: &Reporter) -> anyhow::Result<()> {
    carriage.check()?;
    let listener = listen_on(listen, carriage.count)?;
    carriage.prepare(&SockRef::from(&listener))?;
    reporter.tell(&Report::Ready)?;
    let carriage = Arc::new(carriage.clone());
    let mut running = Vec::new();
    for _ in 0..carriage.count {
        let (stream, _) = listener.accept()?;
        let carriage = Arc::clone(&carriage);
        running.push(spawn(move || {
            let mut number = [0; 4];
            // If one fails before it has sent its number, the other end reports it.
            if (&stream).read_exact(&mut number).is_ok() {
                carriage.run(&stream, u32::from_be_bytes(number));
            }
        })?);
    }
    wait_for(running);
    Ok(())
}

/// Opens this number of connections, and carries the content over each.
///
/// # Errors
/// As for [`accept`].
pub fn connect(to: SocketAddr, carriage: &Carriage, reporter: &Reporter) -> anyhow::Result<()> {
    carriage.check()?;
    let carriage = Arc::new(carriage.clone());
    let mut running = Vec::new();
    for number in 0..carriage.count {
        let carriage = Arc::clone(&carriage);
        running.push(spawn(move || {
            let opened = carriage.open(to).and_then(|mut stream| {
                stream.write_all(&number.to_be_bytes())?;
                Ok(stream)
            });
            match opened {
                Ok(stream) => carriage.run(&stream, number),
                Err(error) => tell_broken(number, &error),
            }
        })?);
    }
    reporter.tell(&Report::Ready)?;
    wait_for(running);
    Ok(())
}

impl Carriage {
    fn check(&self) -> anyhow::Result<()> {
        if self.count == 0 || self.count > CONNECTIONS_MAX {
            bail!("a number of connections must be from 1 to {CONNECTIONS_MAX}");
        }
        if self.congestion.as_ref().is_some_and(|name| name.is_empty() || name.len() >= NAME_MAX) {
            bail!("a congestion control has a name of 1 to {} letters", NAME_MAX - 1);
        }
        Ok(())
    }

    /// A connection to the listener.
    fn open(&self, to: SocketAddr) -> io::Result<TcpStream> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM, Some(Protocol::TCP))?;
        self.prepare(&socket).map_err(io::Error::other)?;
        socket.connect(&to.into())?;
        Ok(socket.into())
    }

    /// Sets the options; accepted connections inherit those of the listener.
    fn prepare(&self, socket: &Socket) -> anyhow::Result<()> {
        if let Some(name) = &self.congestion {
            socket
                .set_tcp_congestion(name.as_bytes())
                .with_context(|| format!("the kernel has no congestion control {name} for us"))?;
        }
        if self.keepalive {
            keep_alive(socket)?;
        }
        socket.set_tcp_nodelay(true)?;
        Ok(())
    }

    /// Carries the content over one connection; an error is reported.
    fn run(&self, stream: &TcpStream, number: u32) {
        let result =
            if self.send { self.send(stream, number) } else { self.receive(stream, number) };
        if let Err(error) = result {
            tell_broken(number, &error);
        }
    }

    /// Sends everything, and waits until the other end has it.
    fn send(&self, mut stream: &TcpStream, number: u32) -> io::Result<()> {
        let mut content = Content::new(self.content_seed(number), self.length);
        let mut buffer = Vec::new();
        let mut pacer = Pacer::new(self.piece, self.every_us);
        loop {
            let block = content.next_block(&mut buffer);
            if block.is_empty() {
                break;
            }
            for piece in block.chunks(pacer.piece_bytes()) {
                pacer.wait();
                stream.write_all(piece)?;
            }
        }
        stream.shutdown(Shutdown::Write)?;
        match stream.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(io::Error::other("the receiver said something")),
        }
    }

    /// Receives everything, and reports its progress.
    fn receive(&self, mut stream: &TcpStream, number: u32) -> io::Result<()> {
        let mut news = News::new(number);
        tell(&Report::Opened { connection: number, at_ns: monotonic_ns() })?;
        let report_ns = REPORT_NS + u64::from(self.count - 1) * REPORT_MORE_NS;
        stream.set_read_timeout(Some(Duration::from_nanos(report_ns)))?;
        let mut comparison = Comparison::new(self.content_seed(number), self.length);
        let mut buffer = vec![0; READ_BYTES];
        while news.bytes < self.length {
            match stream.read(&mut buffer) {
                Ok(0) => return Err(io::Error::from(ErrorKind::UnexpectedEof)),
                Ok(count) => {
                    comparison.take(&buffer[..count]);
                    news.arrived(count, comparison.same());
                }
                // The longest time without data is over. (If TCP gives up, the error is
                // `TimedOut`.)
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => {
                    news.tell(false)?;
                    return Err(error);
                }
            }
            if monotonic_ns() >= news.told_ns + report_ns {
                news.tell(false)?;
            }
        }
        news.tell(true)
    }

    const fn content_seed(&self, number: u32) -> u64 {
        content_seed(self.seed, number)
    }
}

/// The seed from which the content of a connection follows.
const fn content_seed(seed: u64, number: u32) -> u64 {
    seed.wrapping_add((number as u64) << 32)
}

/// Sets the keep-alives of the thesis.
pub(super) fn keep_alive(socket: &Socket) -> io::Result<()> {
    let KeepAlive { time_s, interval_s, probes } = KeepAlive::THESIS;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(time_s))
        .with_interval(Duration::from_secs(interval_s))
        .with_retries(probes);
    socket.set_tcp_keepalive(&keepalive)
}

/// Progress of one connection that was not yet reported.
struct News {
    number: u32,
    bytes: u64,
    intact: bool,
    arrivals: Arrivals,
    told_ns: u64,
    told_bytes: u64,
}

impl News {
    fn new(number: u32) -> Self {
        let (arrivals, told_ns) = (Arrivals::default(), monotonic_ns());
        Self { number, bytes: 0, intact: true, arrivals, told_ns, told_bytes: 0 }
    }

    fn arrived(&mut self, count: usize, intact: bool) {
        self.bytes += count as u64;
        self.intact = intact;
        self.arrivals.note(monotonic_ns());
    }

    /// Reports it, if there is anything new.
    fn tell(&mut self, complete: bool) -> io::Result<()> {
        self.told_ns = monotonic_ns();
        if self.told_bytes == self.bytes && !complete {
            return Ok(());
        }
        self.told_bytes = self.bytes;
        tell(&Report::Carried(Carried {
            connection: self.number,
            bytes: self.bytes,
            latest_ns: self.arrivals.latest_ns(),
            gaps: self.arrivals.take_gaps(),
            intact: self.intact,
            complete,
        }))
    }
}

/// Sends pieces on time; overdue ones follow at once.
struct Pacer {
    piece: usize,
    every_ns: u64,
    next_ns: u64,
}

impl Pacer {
    fn new(piece: u32, every_us: u64) -> Self {
        Self { piece: piece as usize, every_ns: every_us * 1_000, next_ns: monotonic_ns() }
    }

    const fn piece_bytes(&self) -> usize {
        if self.piece == 0 { usize::MAX } else { self.piece }
    }

    fn wait(&mut self) {
        let early_ns = self.next_ns.saturating_sub(monotonic_ns());
        if early_ns > 0 {
            std::thread::sleep(Duration::from_nanos(early_ns));
        }
        self.next_ns += self.every_ns;
    }
}

/// Listens with room for all connections at once.
pub(super) fn listen_on(listen: SocketAddr, count: u32) -> anyhow::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(listen), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.bind(&listen.into()).with_context(|| format!("cannot listen on {listen}"))?;
    socket.listen(count as i32)?;
    Ok(socket.into())
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    Builder::new().stack_size(STACK_BYTES).spawn(work)
}

fn wait_for(running: Vec<JoinHandle<()>>) {
    for thread in running {
        // A thread that panicked has nothing to report.
        let _ = thread.join();
    }
}

pub(super) fn tell_broken(connection: u32, error: &io::Error) {
    let broken = Report::Broken { connection, at_ns: monotonic_ns(), error: error.to_string() };
    // Without a reader there is nobody to report to.
    let _ = tell(&broken);
}

fn tell(report: &Report) -> io::Result<()> {
    Reporter::new().tell(report).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::{Carriage, Pacer, content_seed};
    use crate::netns::monotonic_ns;

    fn carriage() -> Carriage {
        let (seed, length, count, piece, every_us) = (1, 1_000, 1, 0, 0);
        let (congestion, send, keepalive) = (None, false, false);
        Carriage { send, count, seed, length, piece, every_us, congestion, keepalive }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        assert!(carriage().check().is_ok());
        assert!(Carriage { count: 0, ..carriage() }.check().is_err());
        assert!(Carriage { count: 2_001, ..carriage() }.check().is_err());
        let named = |name: &str| Carriage { congestion: Some(name.to_owned()), ..carriage() };
        assert!(named("cubic").check().is_ok());
        assert!(named("").check().is_err() && named("a-name-of-sixteen").check().is_err());
    }

    #[test]
    fn no_two_connections_of_two_seeds_have_the_same_content() {
        assert_ne!(content_seed(1, 1), content_seed(2, 0));
        assert_ne!(content_seed(1, 1), content_seed(1, 0));
    }

    #[test]
    fn what_is_late_follows_at_once() {
        let mut pacer = Pacer::new(10, 1_000);
        pacer.next_ns -= 5_000_000;
        let start_ns = monotonic_ns();
        (0..7).for_each(|_| pacer.wait());
        // Five were late; the other two had to wait.
        assert!(monotonic_ns() - start_ns >= 1_000_000);
        assert_eq!(pacer.piece_bytes(), 10);
    }
}
