//! Makes the golden traces of `testdata/tcp`: what the kernel's TCP does on an emulated link.
//!
//! ```text
//! cargo run --release -p rove-lab --example tcp_traces [DIRECTORY]
//! ```
//!
//! Two hosts in namespaces, 20 Mbit/s and 40 ms between them with a queue of one bandwidth-delay
//! product; the client sends 10 MB with each congestion control, once undisturbed, once with a
//! silent outage of 1.4 and of 5 seconds, once to a reader that pauses. It takes some two
//! minutes of real time on an otherwise idle machine, and says how late the emulator was.

#![expect(clippy::print_stdout, reason = "it tells how it went")]

use anyhow::Context as _;
use rove_lab::emu::{Carrier, LinkConfig, MS};
use rove_lab::netns::{self, CardId, Direction, Entered, HostId, Network, monotonic_ns};
use rove_lab::tcp::trace::{Trace, Tracer};
use socket2::{Domain, Socket, Type};
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

/// What the client sends.
const BYTES: usize = 10_000_000;
/// When something happens, after the connection was asked for.
///
/// Neither this nor the lengths of outages are round: no timeout of any algorithm ends near the end
/// of an outage, and none of BBR's ten seconds, so that a few milliseconds more or less decide
/// nothing.
const HAPPENS: Duration = Duration::from_millis(2_300);
/// What the reader that pauses asks the kernel for.
const READER_BUFFER: usize = 600_000;
/// How often lateness may spoil a case, and from where on it does, in nanoseconds.
const TRIES: u32 = 5;
/// See [`TRIES`].
const LATE_NS: u64 = 2 * MS;

/// What happens during a transfer.
#[derive(Clone, Copy)]
enum Event {
    Nothing,
    Outage(Duration),
    Pause(Duration),
}

/// A transfer to be made.
struct Case {
    congestion: &'static str,
    name: &'static str,
    event: Event,
}

/// The two hosts.
struct Hosts {
    network: Network,
    client: HostId,
    server: HostId,
    card: CardId,
    access: netns::AccessId,
}

const CLIENT: &str = "198.51.100.2/24";
const SERVER: &str = "192.0.2.2/24";
const SERVICE: &str = "192.0.2.2:80";

fn main() -> anyhow::Result<()> {
    let into = std::env::args_os()
        .nth(1)
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tcp"), PathBuf::from);
    let entered = netns::enter()?;
    let events = [
        ("steady", Event::Nothing),
        ("outage-1s", Event::Outage(Duration::from_millis(1_400))),
        ("outage-5s", Event::Outage(Duration::from_secs(5))),
        ("window", Event::Pause(Duration::from_millis(3_500))),
    ];
    for congestion in ["reno", "cubic", "bbr"] {
        for (name, event) in events {
            let case = Case { congestion, name, event };
            let text = case.make(&entered)?;
            std::fs::write(into.join(format!("{congestion}-{name}.txt")), text)?;
        }
    }
    Ok(())
}

impl Case {
    /// The text of a trace that lateness did not spoil.
    fn make(&self, entered: &Entered) -> anyhow::Result<String> {
        let Self { congestion, name, .. } = self;
        for _ in 0..TRIES {
            let (text, late_ns) = self.run(entered)?;
            println!("{congestion} {name}: 99 % of deliveries within {} us", late_ns / 1_000);
            if late_ns <= LATE_NS {
                return Ok(text);
            }
        }
        anyhow::bail!("{congestion} {name}: the machine is too busy to keep time")
    }

    fn run(&self, entered: &Entered) -> anyhow::Result<(String, u64)> {
        let hosts = Hosts::new(entered)?;
        let pauses = matches!(self.event, Event::Pause(_));
        let listener = hosts.listen(pauses)?;
        let socket = hosts.socket(self.congestion)?;
        hosts.network.start_capture_of_contents(hosts.card)?;
        let start_ns = monotonic_ns();
        let pause = match self.event {
            Event::Pause(length) => Some((HAPPENS, length)),
            Event::Nothing | Event::Outage(_) => None,
        };
        let reader = thread::spawn(move || read_all(&listener, start_ns, pause));
        let writer = thread::spawn(move || write_all(&socket));
        let mut header = String::new();
        if let Event::Outage(length) = self.event {
            thread::sleep(HAPPENS);
            hosts.network.set_access(hosts.access, Carrier::BlackHole)?;
            let from_us = (monotonic_ns() - start_ns) / 1_000;
            thread::sleep(length);
            hosts.network.set_access(hosts.access, Carrier::Up)?;
            let to_us = (monotonic_ns() - start_ns) / 1_000;
            writeln!(header, "outage_us {from_us} {to_us}")?;
        }
        writer.join().map_err(|_| anyhow::anyhow!("the writer died"))??;
        let paused = reader.join().map_err(|_| anyhow::anyhow!("the reader died"))??;
        thread::sleep(Duration::from_millis(200));
        let trace = hosts.trace()?;
        if let Some(Paused { from_us, to_us, read }) = paused {
            let buffer = u64::from(trace.acknowledged_at(to_us)).saturating_sub(read + 1);
            writeln!(header, "pause_us {from_us} {to_us}\nbuffer {buffer}")?;
        }
        let late_ns = hosts.network.take_timekeeping()?.all.quantile_ns(0.99);
        Ok((self.text(&header, &trace)?, late_ns))
    }

    fn text(&self, header: &str, trace: &Trace) -> anyhow::Result<String> {
        let kernel = rustix::system::uname();
        let kernel = kernel.release().to_string_lossy();
        let number = kernel.split('-').next().unwrap_or_default();
        Ok(format!(
            "# Linux {number} on 20 Mbit/s, 40 ms, made by the example tcp_traces of rove-lab\n\
             congestion {}\nbytes {BYTES}\n{header}{trace}",
            self.congestion,
        ))
    }
}

impl Hosts {
    fn new(entered: &Entered) -> anyhow::Result<Self> {
        let mut network = Network::new(entered, 1)?;
        let (client, server) = (network.add_host("client")?, network.add_host("server")?);
        let (card, eth) = (network.add_card(client, "wlan0")?, network.add_card(server, "eth0")?);
        let (here, there): (ipnet::IpNet, ipnet::IpNet) = (CLIENT.parse()?, SERVER.parse()?);
        let link = LinkConfig::lossless(20_000_000, 40 * MS);
        let access = network.add_access(client, link, &[here.trunc()], None)?;
        let hosting = network.add_access(server, LinkConfig::ideal(), &[there.trunc()], None)?;
        network.plug(card, access, &[here], 100)?;
        network.plug(eth, hosting, &[there], 100)?;
        Ok(Self { network, client, server, card, access })
    }

    fn listen(&self, small: bool) -> anyhow::Result<Socket> {
        let listener = self.network.host(self.server).inside(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            if small {
                socket.set_recv_buffer_size(READER_BUFFER)?;
            }
            socket
                .bind(&"0.0.0.0:80".parse::<SocketAddr>().map_err(std::io::Error::other)?.into())?;
            socket.listen(1)?;
            Ok(socket)
        });
        listener.context("no listener")
    }

    fn socket(&self, congestion: &str) -> anyhow::Result<Socket> {
        let socket = self.network.host(self.client).inside(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_tcp_congestion(congestion.as_bytes())?;
            Ok(socket)
        });
        socket.with_context(|| format!("this kernel has no {congestion}"))
    }

    fn trace(&self) -> anyhow::Result<Trace> {
        let capture = self.network.take_capture(self.card)?;
        let contents = capture.contents.context("nothing was captured")?;
        let mut tracer = Tracer::default();
        for (packet, content) in capture.packets.iter().zip(&contents) {
            let out = packet.direction == Direction::Out;
            tracer.note(packet.at_ns, out, content.bytes());
        }
        Ok(tracer.finish())
    }
}

/// When the reader paused and how much it had read, counted from `start_ns`.
struct Paused {
    from_us: u64,
    to_us: u64,
    read: u64,
}

fn write_all(socket: &Socket) -> anyhow::Result<()> {
    socket.connect(&SERVICE.parse::<SocketAddr>()?.into())?;
    let mut socket = socket;
    socket.write_all(&vec![0x5a; BYTES])?;
    socket.shutdown(std::net::Shutdown::Write)?;
    // The other end closes when it has read everything.
    let mut nothing = [0];
    anyhow::ensure!(socket.read(&mut nothing)? == 0, "nobody sends anything back");
    Ok(())
}

fn read_all(
    listener: &Socket,
    start_ns: u64,
    mut pause: Option<(Duration, Duration)>,
) -> anyhow::Result<Option<Paused>> {
    let (socket, _) = listener.accept()?;
    let mut socket = &socket;
    let mut buffer = vec![0; 1 << 16];
    let (mut total, mut paused) = (0, None);
    loop {
        let since_ns = monotonic_ns() - start_ns;
        if let Some((_, length)) = pause.filter(|(at, _)| u128::from(since_ns) >= at.as_nanos()) {
            thread::sleep(length);
            let to_us = (monotonic_ns() - start_ns) / 1_000;
            paused = Some(Paused { from_us: since_ns / 1_000, to_us, read: total });
            pause = None;
        }
        let count = socket.read(&mut buffer)?;
        if count == 0 {
            return Ok(paused);
        }
        total += count as u64;
    }
}
