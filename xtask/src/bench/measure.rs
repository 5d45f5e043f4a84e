//! One round of one contender: everything that the table shows, measured in the same order.

use std::fmt;
use std::thread::sleep;
use std::time::Duration;

use super::place::{Host, Place, Processors, cpu_seconds, resident_kb};
use super::tunnels::{Running, Tunnel};

/// Where the first sink listens; the next ones listen on the ports after it.
const SINK_PORT: u16 = 5_301;
/// TCP flows at once, where there are several.
const SEVERAL: u16 = 4;
/// Where the echo listens.
const ECHO_PORT: u16 = 5_202;
/// Idle round trips in a round.
const PINGS: u32 = 400;
/// Between two idle round trips, in microseconds: long enough that everything sleeps again.
const PING_GAP_US: u32 = 2_000;
/// Payload of an idle round trip, in bytes.
const PING_SIZE: usize = 56;
/// The inner packet by which the overhead is measured, in bytes at layer 3: fits every tunnel, and
/// a multiple of 16, so that WireGuard pads nothing.
const OVERHEAD_PACKET: usize = 1_200;
/// How many of them are sent, each answered by one as long.
const OVERHEAD_COUNT: u32 = 500;
/// IPv4 and UDP headers.
const IP_UDP: usize = 28;
/// An Ethernet header, which the counters of a veth include.
const ETHERNET: f64 = 14.0;
/// How long a fresh tunnel is left alone before its memory is read.
const IDLE: Duration = Duration::from_secs(2);
/// Bytes of a gigabyte.
const GIGABYTE: f64 = 1e9;

/// What one round gave. Medians of rounds have the same shape.
#[derive(Clone, Debug)]
pub(super) struct Figures {
    /// One TCP flow from client to gateway, Mbit/s of payload.
    pub(super) up_mbps: f64,
    /// One TCP flow from gateway to client, Mbit/s of payload.
    pub(super) down_mbps: f64,
    /// [`SEVERAL`] TCP flows from client to gateway, Mbit/s of payload together.
    pub(super) several_up_mbps: f64,
    /// [`SEVERAL`] TCP flows from gateway to client, Mbit/s of payload together.
    pub(super) several_down_mbps: f64,
    /// Processor time of both ends' tunnel programs for one GB from client to gateway, seconds.
    pub(super) cpu_s_per_gb: f64,
    /// Idle round trip of a small UDP datagram, median, microseconds.
    pub(super) rtt_us: f64,
    /// Idle round trip, 99th percentile, microseconds.
    pub(super) rtt_p99_us: f64,
    /// The same with every program on one processor, so that none has to be woken: what the
    /// tunnel itself takes. Median, microseconds.
    pub(super) rtt_one_us: f64,
    /// From the client's first datagram to the gateway's first answer, microseconds.
    pub(super) first_reply_us: f64,
    /// Resident memory of the idle gateway with one client, kB.
    pub(super) idle_kb: f64,
    /// Resident memory of the client, idle, kB.
    pub(super) client_idle_kb: f64,
    /// Bytes at layer 3 on the link beyond those of the inner packet, per packet.
    pub(super) overhead_bytes: f64,
}

/// Measures one contender once.
///
/// # Errors
/// When it does not start or does not carry.
pub(super) fn round(tunnel: &dyn Tunnel, place: &Place, seconds: u32) -> Result<Figures, String> {
    let first_reply_us = tunnel.first_reply_us(place)?.unwrap_or(f64::NAN);
    let running = tunnel.start(place)?;
    let inner = running.gateway_inner.as_str();
    let echo_at = format!("{inner}:{ECHO_PORT}");
    let mut echo = place.traffic(Host::Gateway, &["echo", &echo_at])?;
    echo.wait_for("ready")?;
    let pids: Vec<u32> = [running.gateway_pid(), running.client_pid(), Some(echo.pid())]
        .into_iter()
        .flatten()
        .collect();
    carries(place, &echo_at)?;
    sleep(IDLE);
    let idle = |pid: Option<u32>| pid.map_or(Ok(f64::NAN), |pid| resident_kb(pid).map(kilobytes));
    let (idle_kb, client_idle_kb) = (idle(running.gateway_pid())?, idle(running.client_pid())?);
    let idle_ping = |on| ping(place, on, &echo_at, PINGS, PING_SIZE, PING_GAP_US);
    let (rtt_us, rtt_p99_us) = idle_ping(Processors::All)?;
    pids.iter().try_for_each(|&pid| Processors::One.confine(pid))?;
    let (rtt_one_us, _) = idle_ping(Processors::One)?;
    pids.iter().try_for_each(|&pid| Processors::All.confine(pid))?;
    let overhead_bytes = overhead(place, &echo_at)?;
    let before = cpu(&running)?;
    let (up_mbps, gigabytes) = flows(place, Host::Gateway, inner, 1, seconds)?;
    let cpu_s_per_gb = (cpu(&running)? - before) / gigabytes;
    let client_inner = running.client_inner.as_str();
    let (down_mbps, _) = flows(place, Host::Client, client_inner, 1, seconds)?;
    let (several_up_mbps, _) = flows(place, Host::Gateway, inner, SEVERAL, seconds)?;
    let (several_down_mbps, _) = flows(place, Host::Client, client_inner, SEVERAL, seconds)?;
    Ok(Figures {
        up_mbps,
        down_mbps,
        several_up_mbps,
        several_down_mbps,
        cpu_s_per_gb,
        rtt_us,
        rtt_p99_us,
        rtt_one_us,
        first_reply_us,
        idle_kb,
        client_idle_kb,
        overhead_bytes,
    })
}

/// So many TCP flows at once towards the host `to`; Mbit/s of all after the warm-up, and gigabytes.
fn flows(
    place: &Place,
    to: Host,
    inner: &str,
    count: u16,
    seconds: u32,
) -> Result<(f64, f64), String> {
    let from = if to == Host::Gateway { Host::Client } else { Host::Gateway };
    let address = |number: u16| format!("{inner}:{}", SINK_PORT + number);
    let mut sinks = Vec::new();
    for number in 0..count {
        let mut sink = place.traffic(to, &["sink", &address(number)])?;
        sink.wait_for("ready")?;
        sinks.push(sink);
    }
    let source = |number| place.traffic(from, &["source", &address(number), &seconds.to_string()]);
    let sources = (0..count).map(source).collect::<Result<Vec<_>, _>>()?;
    // First the sources: without them the sinks would be waited for in vain.
    for source in sources {
        source.finish()?;
    }
    let (mut mbps, mut gigabytes) = (0.0, 0.0);
    for mut sink in sinks {
        let line = sink.line()?;
        let (bytes, counted) = line.split_once(' ').ok_or("the sink said nothing")?;
        let bytes: f64 = bytes.parse().map_err(|_| "the sink counted nothing")?;
        let counted: f64 = counted.parse().map_err(|_| "the sink timed nothing")?;
        mbps += bytes * 8.0 / counted / 1e6;
        // The warm-up, a second, is not counted; the processor works for it all the same.
        gigabytes += bytes / GIGABYTE * (counted + 1.0) / counted;
    }
    Ok((mbps, gigabytes))
}

/// Median and 99th percentile of round trips, in microseconds.
fn ping(
    place: &Place,
    on: Processors,
    to: &str,
    count: u32,
    size: usize,
    gap: u32,
) -> Result<(f64, f64), String> {
    let (count, size, gap) = (count.to_string(), size.to_string(), gap.to_string());
    let program = place.traffic_on(Host::Client, on, &["ping", to, &count, &size, &gap])?;
    let line = program.finish()?;
    let numbers: Vec<f64> = line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    match numbers.as_slice() {
        [lost, p50, p99] if *lost == 0.0 => Ok((*p50, *p99)),
        [lost, ..] => Err(format!("{lost} of {count} datagrams to {to} were lost on a clean link")),
        [] => Err("ping said nothing".to_owned()),
    }
}

/// The tunnel must answer before anything is measured.
fn carries(place: &Place, echo: &str) -> Result<(), String> {
    ping(place, Processors::All, echo, 3, PING_SIZE, 1_000).map(drop)
}

/// Bytes on the link for each inner packet beyond the packet itself, from the counters of the
/// interface: headers, tags, and whatever else the tunnel sent meanwhile.
fn overhead(place: &Place, echo: &str) -> Result<f64, String> {
    let before = place.counters()?;
    ping(place, Processors::All, echo, OVERHEAD_COUNT, OVERHEAD_PACKET - IP_UDP, 0)?;
    let after = place.counters()?;
    let packets = (after.packets - before.packets) as f64;
    let layer_3 = (after.bytes - before.bytes) as f64 - packets * ETHERNET;
    // There and back again.
    let inner = f64::from(2 * OVERHEAD_COUNT);
    Ok(layer_3 / inner - OVERHEAD_PACKET as f64)
}

/// Not a number where there is no program.
fn cpu(running: &Running) -> Result<f64, String> {
    match (running.gateway_pid(), running.client_pid()) {
        (Some(gateway), Some(client)) => Ok(cpu_seconds(gateway)? + cpu_seconds(client)?),
        _ => Ok(f64::NAN),
    }
}

fn kilobytes(kb: u64) -> f64 {
    kb as f64
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { up_mbps, down_mbps, several_up_mbps, several_down_mbps, rtt_us, .. } = self;
        write!(
            f,
            "up {up_mbps:.0} Mbit/s, down {down_mbps:.0} Mbit/s, {SEVERAL} flows up \
             {several_up_mbps:.0} Mbit/s, down {several_down_mbps:.0} Mbit/s, rtt {rtt_us:.0} us"
        )
    }
}
