//! The data path allocates nothing per packet, once its buffers have grown.

mod pair;

use allocation_counter::measure;
use pair::{Pair, packet};
use rove_proto::id::SocketId;
use rove_proto::node::Meta;
use rove_proto::outbox::Outbox;
use rove_proto::time::Duration;
use rove_proto::wire::inner::InnerPacket;

const PACKETS: usize = 2_000;

#[test]
fn sending_and_receiving_allocate_nothing_per_packet() {
    let mut pair = Pair::up();
    pair.run(Duration::from_secs(1));
    let (mut out, mut back) = (Outbox::new(), Outbox::new());
    let packet = packet(1_400, false);
    // Once for the buffers to grow, once to count.
    for counted in [false, true] {
        let mut allocations = [0, 0];
        for _ in 0..PACKETS {
            pair.now = pair.now + Duration::from_micros(50);
            out.clear();
            back.clear();
            let now = pair.now;
            let sent = measure(|| {
                pair.client.handle_tun(now, InnerPacket::whole(&packet), &mut out);
                out.seal();
            });
            let (run, bytes) = out.runs().next().expect("it is sent at once");
            let port = 40_000 + u16::try_from(run.route.socket.0).expect("few sockets");
            let remote = ([203, 0, 113, 5], port).into();
            let meta = Meta { socket: SocketId(0), local: None, remote };
            let mut bytes = bytes.to_vec();
            let received = measure(|| {
                pair.gateway.handle_datagram(now, meta, &mut bytes, &mut back);
            });
            assert_eq!(back.inner().next(), Some(&packet[..]));
            allocations[0] += sent.count_total;
            allocations[1] += received.count_total;
        }
        if counted {
            assert_eq!(allocations, [0, 0], "in {PACKETS} packets sent, and received");
        } else {
            assert!(allocations[0] > 0, "buffers grow, and that is counted");
        }
    }
}
