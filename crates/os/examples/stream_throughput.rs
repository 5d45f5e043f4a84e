//! How much a stream carries over loopback: `cargo run --release -p rove-os --example
//! stream_throughput`. One thread sends runs of datagrams, another receives them, both as the data
//! thread does; two seconds each.

use std::{
    io::Write as _,
    os::fd::AsFd,
    thread,
    time::{Duration, Instant},
};

use mio::{Events, Interest, Poll, Token, unix::SourceFd};
use rove_os::{
    error::Error,
    stream::{ListenOptions, Listener, Phase, Security, Stream, StreamOptions},
    udp::{Datagrams, Ecn, Queue, ReceiveBuffer, SendError},
};

const SECONDS: u64 = 2;
const SEGMENT: usize = 1_448;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout();
    writeln!(out, "stream        datagrams/run  Gbit/s  kdatagrams/s  refused")?;
    for (name, security) in
        [("plain", Security::Plain), ("TLS", Security::Tls { server_name: "localhost" })]
    {
        for mptcp in [false, true] {
            for datagrams in [1, 8, 44] {
                let (bytes, refused) = measure(security, mptcp, datagrams * SEGMENT)?;
                let rate = bytes as f64 / SECONDS as f64;
                let name = format!("{name} {}", if mptcp { "MPTCP" } else { "TCP" });
                writeln!(
                    out,
                    "{name:12} {datagrams:14} {:7.2} {:13.0} {refused:8}",
                    rate * 8.0 / 1e9,
                    rate / SEGMENT as f64 / 1e3
                )?;
            }
        }
    }
    Ok(())
}

/// Bytes that arrived, and runs that had no room and were repeated.
fn measure(
    security: Security<'_>,
    mptcp: bool,
    run: usize,
) -> Result<(u64, u64), Box<dyn std::error::Error>> {
    let local = &["127.0.0.1:0".parse()?];
    let mut listener =
        Listener::bind(&ListenOptions { local, ipv6_only: false, mark: None, backend: None })?;
    let remote = listener.locals().next().ok_or("no address")?;
    let options = StreamOptions {
        local: None,
        interface: None,
        mark: None,
        remote,
        mptcp,
        security,
        proxy: None,
    };
    let mut client = Stream::connect(&options, 0)?;
    let mut ours = None;
    while client.ready(true, true, 0)? != Phase::Open || ours.is_none() {
        listener.turn(0, |stream| ours = Some(stream))?;
        thread::sleep(Duration::from_millis(1));
    }
    let ours = ours.ok_or("no stream")?;
    let end = Instant::now() + Duration::from_secs(SECONDS);
    let receiver = thread::spawn(move || receive(ours));
    let refused = send(&mut client, &vec![7; run], end)?;
    drop(client);
    let bytes = receiver.join().map_err(|_| "the receiver panicked")??;
    Ok((bytes, refused))
}

fn send(
    stream: &mut Stream,
    contents: &[u8],
    end: Instant,
) -> Result<u64, Box<dyn std::error::Error>> {
    let mut poll = watch(stream)?;
    let mut events = Events::with_capacity(1);
    let (remote, mut refused) = (stream.remote(), 0);
    let segment = Some(SEGMENT);
    while Instant::now() < end {
        let datagrams = Datagrams { remote, source: None, ecn: Ecn::NotCapable, contents, segment };
        match stream.send(datagrams) {
            Ok(()) => {}
            Err(SendError::WouldBlock) => {
                refused += 1;
                poll.poll(&mut events, Some(Duration::from_millis(100)))?;
                stream.ready(false, true, 0)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(refused)
}

fn receive(mut stream: Stream) -> Result<u64, Error> {
    let mut poll = watch(&stream)?;
    let mut events = Events::with_capacity(1);
    let mut buffer = ReceiveBuffer::new(8);
    let mut bytes = 0;
    loop {
        match stream.receive(&mut buffer, |_, datagram| bytes += datagram.len() as u64) {
            Ok(Queue::Unknown) => {}
            Ok(Queue::Empty) => {
                let waited = poll.poll(&mut events, Some(Duration::from_secs(1)));
                waited.map_err(failed)?;
            }
            Err(_) => return Ok(bytes),
        }
    }
}

fn watch(stream: &Stream) -> Result<Poll, Error> {
    let poll = Poll::new().map_err(failed)?;
    let descriptor = std::os::fd::AsRawFd::as_raw_fd(&stream.as_fd());
    let interest = Interest::READABLE | Interest::WRITABLE;
    poll.registry().register(&mut SourceFd(&descriptor), Token(0), interest).map_err(failed)?;
    Ok(poll)
}

fn failed(source: std::io::Error) -> Error {
    Error::Os { what: "wait for a stream".to_owned(), cause: source }
}
