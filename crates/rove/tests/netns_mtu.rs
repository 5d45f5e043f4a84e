//! A way that carries less than it seems to: nothing is lost for good, and no message says why.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use serde_json::Value;
use socket2::SockRef;
use support::netns::{
    Lab, SOON, download, in_namespace, inside, need_program, pattern, sh, wait_until,
};

const WEB: &str = "198.51.100.80:80";
const WEB_V6: &str = "[2001:db8:b::2]:80";
const THANKS: &[u8] = b"it came whole";
const TAKER: &str = "198.51.100.80:81";
const BYTES: usize = 3_000_000;
/// Of the narrow link, in bytes.
const NARROW: u64 = 1_300;
/// The payload that every path carries, where the search for more begins (docs/spec/wire.md#mtu).
const BASE: u64 = 1_096;
/// Around a datagram's payload: IPv4 and UDP.
const OUTER: u64 = 28;
/// Between the largest segment of a connection and the packet that it travels in: IP, TCP and its
/// timestamps.
const HEADERS: [u64; 2] = [20 + 20 + 12, 40 + 20 + 12];

#[test]
fn a_way_that_becomes_narrow_carries_everything_all_the_same() {
    in_namespace("a_way_that_becomes_narrow_carries_everything_all_the_same", || {
        need_program("a router that says nothing", "nft");
        let lab = Lab::new("a narrow way");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        let segments = [WEB, WEB_V6].map(serve);
        take();
        lab.rove("client", &format!("up {invite}")).ok();
        let mtu = || {
            let paths = lab.rove("client", "paths --json").ok();
            serde_json::from_str::<Value>(&paths).unwrap()[0]["mtu"].as_u64().unwrap()
        };
        assert_eq!(download("client", WEB).unwrap(), pattern(BYTES));
        wait_until("the whole of the link is used", || mtu() > NARROW);

        // Its segments were chosen before.
        let connect = || TcpStream::connect(TAKER).unwrap();
        let stream = inside("client", connect).join().unwrap();
        // Either way and by either family, for the tunnel's own datagrams; not where what was in
        // it travels on.
        sh("ip -n router route add 203.0.113.2/32 dev to-client mtu lock 1300
            ip -n router route add 192.0.2.1/32 dev to-gateway mtu lock 1300
            ip -n router route add 2001:db8:c::2/128 dev to-client mtu lock 1300
            ip -n router route add 2001:db8:a::2/128 dev to-gateway mtu lock 1300
            nsenter --net=/run/netns/router nft -f - <<'RULES'
            table inet silent { chain output {
                type filter hook output priority 0
                icmp type destination-unreachable drop
                icmpv6 type packet-too-big drop
            }
            }
RULES");
        // What was measured before holds no more, and nobody says so.
        assert_eq!(download("client", WEB).unwrap(), pattern(BYTES));
        assert_eq!(download("client", WEB_V6).unwrap(), pattern(BYTES));
        upload(stream);
        wait_until("it is noticed", || mtu() <= NARROW - OUTER);
        assert!(mtu() >= BASE, "less than any path carries: {}", mtu());
        // The search begins anew with the least that every path carries, and goes on while data
        // flows.
        wait_until("it is measured", || {
            assert_eq!(download("client", WEB).unwrap(), pattern(BYTES));
            mtu() > BASE
        });

        // From now on connections choose segments that fit in one piece.
        for ((address, segments), headers) in [WEB, WEB_V6].iter().zip(&segments).zip(HEADERS) {
            while segments.try_recv().is_ok() {}
            assert_eq!(download("client", address).unwrap(), pattern(BYTES));
            let segment = u64::from(segments.recv_timeout(SOON).unwrap());
            assert!(segment + headers < mtu(), "{address}: {segment} of {}", mtu());
            assert!(segment > 1_000, "{address}: {segment} is needlessly small");
        }
        lab.rove("client", "down").ok();
    });
}

/// A server that sends the pattern, and tells for every connection the largest segment that it may
/// send, in bytes (TCP_MAXSEG, tcp(7)): what the other end's SYN said, less the timestamps.
fn serve(address: &'static str) -> Receiver<u32> {
    let (told, segments) = channel();
    let (ready, is_ready) = channel();
    inside("server", move || {
        let listener = TcpListener::bind(address.parse::<SocketAddr>().unwrap()).unwrap();
        ready.send(()).unwrap();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let segment = SockRef::from(&stream).tcp_mss().unwrap();
            told.send(segment).unwrap();
            // A client that hangs up has seen enough.
            let _ = stream.write_all(&pattern(BYTES));
        }
    });
    is_ready.recv_timeout(SOON).unwrap();
    segments
}

/// A server that takes the pattern, and says so if it came whole.
fn take() {
    let (ready, is_ready) = channel();
    inside("server", move || {
        let listener = TcpListener::bind(TAKER).unwrap();
        ready.send(()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        let mut content = Vec::new();
        stream.read_to_end(&mut content).unwrap();
        if content == pattern(BYTES) {
            stream.write_all(THANKS).unwrap();
        }
    });
    is_ready.recv_timeout(SOON).unwrap();
}

/// Sends the pattern to such a server, whole.
fn upload(mut stream: TcpStream) {
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_write_timeout(Some(SOON)).unwrap();
    stream.write_all(&pattern(BYTES)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    assert_eq!(said, THANKS);
}

/// Limits the router's link to the client to these sizes, in both directions and families. No ICMP
/// message reports it, as with a tunnel on the path whose operator filters ICMP.
fn narrow(v4: u32, v6: u32) {
    sh(&format!(
        "ip -n router route replace 203.0.113.2/32 dev to-client mtu lock {v4}
         ip -n router route replace 192.0.2.1/32 dev to-gateway mtu lock {v4}
         ip -n router route replace 2001:db8:c::2/128 dev to-client mtu lock {v6}
         ip -n router route replace 2001:db8:a::2/128 dev to-gateway mtu lock {v6}
         nsenter --net=/run/netns/router nft -f - <<'RULES'
         table inet silent
         delete table inet silent
         table inet silent {{ chain output {{
             type filter hook output priority 0
             icmp type destination-unreachable drop
             icmpv6 type packet-too-big drop
         }}
         }}
RULES"
    ));
}

/// Waits until a download comes whole, each try with its own connection.
fn comes_whole(address: &str) {
    wait_until(&format!("{address} is read whole"), || {
        download("client", address).is_ok_and(|content| content == pattern(BYTES))
    });
}

#[test]
fn the_narrowest_path_carries_from_the_start_and_in_the_midst() {
    in_namespace("the_narrowest_path_carries_from_the_start_and_in_the_midst", || {
        need_program("a router that says nothing", "nft");
        let lab = Lab::new("the narrowest way");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        let _segments = [WEB, WEB_V6].map(serve);
        for (v4, v6) in [(1_124, 1_280), (1_200, 1_280), (1_240, 1_300)] {
            narrow(v4, v6);
            let up = if v4 == 1_124 { format!("up {invite}") } else { "up".to_owned() };
            lab.rove("client", &up).ok();
            [WEB, WEB_V6].into_iter().for_each(comes_whole);
            lab.rove("client", "down").ok();
        }
        // During a session, and on a connection that chose its segment size before.
        narrow(1_500, 1_500);
        take();
        lab.rove("client", "up").ok();
        comes_whole(WEB);
        let stream = inside("client", || TcpStream::connect(TAKER).unwrap()).join().unwrap();
        narrow(1_124, 1_280);
        upload(stream);
        [WEB, WEB_V6].into_iter().for_each(comes_whole);
        let carrying = || {
            let status = lab.rove("client", "status --json").ok();
            serde_json::from_str::<Value>(&status).unwrap()["carrying"] == true
        };
        wait_until("it says that it carries", carrying);
        lab.rove("client", "down").ok();
    });
}
