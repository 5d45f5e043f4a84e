//! What a host says on its cable, as its far end hears it.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, RecvFlags, SocketFlags, SocketType, eth, recv, socket_with};

use super::netns::{inside, sh, wait_until};

/// How long what was sent may need to the far end of its cable, on a busy machine.
const ARRIVES_WITHIN: Duration = Duration::from_millis(100);
const ETHERNET_HEADER: usize = 14;

/// The packets of one host since [`Capture::start`], without what keeps the link itself going:
/// address resolution and neighbour discovery.
pub(crate) struct Capture {
    seen: Arc<Mutex<Vec<String>>>,
    sources: Arc<Mutex<BTreeSet<IpAddr>>>,
}

impl Capture {
    /// Listens at the router's end of a host's cable. A frame is the host's own if it has the
    /// address of its interface: what the router passes on has its own.
    pub(crate) fn start(host: &str) -> Self {
        Self::on(host, "to-router")
    }

    /// The same for another cable of the host's to the router.
    pub(crate) fn on(host: &str, cable: &str) -> Self {
        let link = || sh(&format!("ip -n {host} -o link show {cable}"));
        // The kernel takes up to a second to notice that a new cable carries.
        wait_until("the cable carries", || link().contains("state UP"));
        let text = link();
        let hardware = text.split_whitespace().skip_while(|word| *word != "link/ether").nth(1);
        let octets = hardware.unwrap().split(':').map(|part| u8::from_str_radix(part, 16).unwrap());
        let hardware: Vec<u8> = octets.collect();
        let seen = Arc::<Mutex<Vec<String>>>::default();
        let sources = Arc::<Mutex<BTreeSet<IpAddr>>>::default();
        let (noted, noted_sources) = (Arc::clone(&seen), Arc::clone(&sources));
        let open = || {
            let (family, flags) = (AddressFamily::PACKET, SocketFlags::empty());
            socket_with(family, SocketType::RAW, flags, Some(eth::ALL)).unwrap()
        };
        let socket = inside("router", open).join().unwrap();
        thread::spawn(move || {
            let mut frame = vec![0; 1 << 16];
            loop {
                let (got, _) = recv(&socket, &mut frame[..], RecvFlags::empty()).unwrap();
                let frame = &frame[..got];
                if frame.get(6..12) == Some(&hardware[..]) {
                    noted.lock().unwrap().extend(describe(&frame[ETHERNET_HEADER..]));
                    noted_sources.lock().unwrap().extend(source(&frame[ETHERNET_HEADER..]));
                }
            }
        });
        Self { seen, sources }
    }

    /// The source addresses of all packets since the last call.
    pub(crate) fn take_sources(&self) -> BTreeSet<IpAddr> {
        thread::sleep(ARRIVES_WITHIN);
        std::mem::take(&mut self.sources.lock().unwrap())
    }

    /// What came since the last call, as "protocol destination:port".
    pub(crate) fn take(&self) -> Vec<String> {
        thread::sleep(ARRIVES_WITHIN);
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

fn source(packet: &[u8]) -> Option<IpAddr> {
    match packet.first()? >> 4 {
        4 => {
            packet.get(12..16).and_then(|octets| <[u8; 4]>::try_from(octets).ok()).map(IpAddr::from)
        }
        6 => {
            packet.get(8..24).and_then(|octets| <[u8; 16]>::try_from(octets).ok()).map(IpAddr::from)
        }
        _ => None,
    }
}

fn describe(packet: &[u8]) -> Option<String> {
    let (protocol, destination, transport) = match packet.first()? >> 4 {
        4 => {
            let octets: [u8; 4] = packet[16..20].try_into().unwrap();
            (packet[9], IpAddr::from(octets), &packet[20..])
        }
        6 => {
            let octets: [u8; 16] = packet[24..40].try_into().unwrap();
            (packet[6], IpAddr::from(octets), &packet[40..])
        }
        _ => return None,
    };
    let to = || SocketAddr::new(destination, u16::from_be_bytes([transport[2], transport[3]]));
    match protocol {
        17 => Some(format!("udp {}", to())),
        6 => Some(format!("tcp {}", to())),
        1 => Some(format!("icmp {destination}")),
        // Below 133 it is an echo or an error, from there on discovery (RFC 4443, RFC 4861).
        58 if transport[0] < 133 && !destination.is_multicast() => {
            Some(format!("icmp {destination}"))
        }
        // Multicast listener reports come with a hop-by-hop header.
        0 | 58 => None,
        other => Some(format!("protocol {other} {destination}")),
    }
}
