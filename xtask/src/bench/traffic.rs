//! The programs that make traffic: a TCP source and sink, a UDP echo and ping, and a forwarder that
//! times the first answer. They print one line when ready and one with what they saw.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use crate::report;

/// Bytes of one write and one read of a TCP flow.
const BLOCK: usize = 128 * 1_024;
/// The start of a flow that is not counted: slow start and the first buffers.
const WARM_UP: Duration = Duration::from_secs(1);
/// The congestion control of every flow, the usual one of Linux. Some machines have BBR as their
/// default. It allows in flight what two of the shortest round trips carry. The path is idle when
/// it measures those, so the figures would depend on what it happens to measure.
const CONGESTION_CONTROL: &str = "cubic";
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// Takes one flow and prints `bytes seconds` of what came after the warm-up.
pub(super) fn sink(address: &str) -> Result<(), String> {
    let listener = TcpListener::bind(address).map_err(|error| format!("{address}: {error}"))?;
    report::line("ready");
    let (mut flow, _) = listener.accept().map_err(|error| format!("accept: {error}"))?;
    let mut block = vec![0; BLOCK];
    let (begin, mut counted) = (Instant::now(), 0);
    let mut start = None;
    loop {
        let read = flow.read(&mut block).map_err(|error| format!("reading: {error}"))?;
        if read == 0 {
            break;
        }
        let now = Instant::now();
        match start {
            Some(_) => counted += read,
            None if now - begin >= WARM_UP => start = Some(now),
            None => {}
        }
    }
    let seconds = start.ok_or("the flow was shorter than its warm-up")?.elapsed().as_secs_f64();
    report::line(format_args!("{counted} {seconds}"));
    Ok(())
}

/// Fills one flow for `seconds` after the warm-up.
pub(super) fn source(address: &str, seconds: &str) -> Result<(), String> {
    let seconds = seconds.parse().map_err(|_| format!("{seconds} is no number of seconds"))?;
    let mut flow = TcpStream::connect(address).map_err(|error| format!("{address}: {error}"))?;
    rustix::net::sockopt::set_tcp_congestion(&flow, CONGESTION_CONTROL)
        .map_err(|error| format!("{CONGESTION_CONTROL}: {error}"))?;
    let block = vec![0; BLOCK];
    let end = Instant::now() + WARM_UP + Duration::from_secs(seconds);
    while Instant::now() < end {
        flow.write_all(&block).map_err(|error| format!("writing: {error}"))?;
    }
    Ok(())
}

/// Sends every datagram back.
pub(super) fn echo(address: &str) -> Result<(), String> {
    let socket = UdpSocket::bind(address).map_err(|error| format!("{address}: {error}"))?;
    report::line("ready");
    let mut datagram = vec![0; 2_048];
    loop {
        let (length, from) = match socket.recv_from(&mut datagram) {
            Ok(received) => received,
            // An earlier answer met a closed port: that one asker is gone, the next may come.
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => continue,
            Err(error) => return Err(format!("receiving: {error}")),
        };
        let _ = socket.send_to(&datagram[..length], from);
    }
}

/// Sends `count` datagrams of `size` bytes one by one, `gap_us` after each answer, and prints
/// `lost p50_us p99_us`.
pub(super) fn ping(address: &str, count: &str, size: &str, gap_us: &str) -> Result<(), String> {
    let number = |text: &str| text.parse::<usize>().map_err(|_| format!("{text} is no number"));
    let (count, size) = (number(count)?, number(size)?);
    let gap = Duration::from_micros(u64::try_from(number(gap_us)?).unwrap_or(0));
    let socket = UdpSocket::bind("0.0.0.0:0").map_err(|error| format!("socket: {error}"))?;
    socket.connect(address).map_err(|error| format!("{address}: {error}"))?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(|error| format!("timeout: {error}"))?;
    let mut datagram = vec![0; size];
    let mut times = Vec::with_capacity(count);
    for _ in 0..count {
        let begin = Instant::now();
        socket.send(&datagram).map_err(|error| format!("sending: {error}"))?;
        if socket.recv(&mut datagram).is_ok() {
            times.push(begin.elapsed());
        }
        std::thread::sleep(gap);
    }
    times.sort_unstable();
    let at = |percent: usize| {
        let index = (times.len() * percent / 100).min(times.len().saturating_sub(1));
        times.get(index).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    };
    report::line(format_args!("{} {:.1} {:.1}", count - times.len(), at(50), at(99)));
    Ok(())
}

/// Stands between one client and its gateway, and prints the microseconds from the client's first
/// datagram to the gateway's first answer, as seen here: what the gateway itself takes for it.
pub(super) fn forward(listen: &str, to: &str) -> Result<(), String> {
    let to: SocketAddr = to.parse().map_err(|error| format!("{to}: {error}"))?;
    let socket = UdpSocket::bind(listen).map_err(|error| format!("{listen}: {error}"))?;
    socket.set_read_timeout(Some(PATIENCE)).map_err(|error| format!("timeout: {error}"))?;
    report::line("ready");
    let mut datagram = vec![0; 2_048];
    let (mut client, mut begin) = (None, None::<Instant>);
    loop {
        let (length, from) =
            socket.recv_from(&mut datagram).map_err(|error| format!("no answer: {error}"))?;
        let now = Instant::now();
        if from == to {
            let begin = begin.ok_or("the gateway spoke first")?;
            report::line(format_args!("{:.1}", (now - begin).as_secs_f64() * 1e6));
            return client.map_or(Ok(()), |client| send(&socket, &datagram[..length], client));
        }
        client = Some(from);
        begin = begin.or(Some(now));
        send(&socket, &datagram[..length], to)?;
    }
}

fn send(socket: &UdpSocket, datagram: &[u8], to: SocketAddr) -> Result<(), String> {
    socket.send_to(datagram, to).map(drop).map_err(|error| format!("forwarding: {error}"))
}
