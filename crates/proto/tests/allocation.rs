//! The data path allocates nothing per packet, once its buffers have grown.

mod pair;

use allocation_counter::measure;
use pair::{Pair, packet};
use rove_proto::blocks::Blocks;
use rove_proto::crypto::{Features, Floor};
use rove_proto::id::SocketId;
use rove_proto::multipath::codel::Bound;
use rove_proto::multipath::fq_codel::FqCodel;
use rove_proto::multipath::reorder::Reorder;
use rove_proto::node::{Config, Meta};
use rove_proto::outbox::Outbox;
use rove_proto::packet::PacketRecord;
use rove_proto::policy::Sealing;
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::inner::Pieces;

const PACKETS: usize = 2_000;

#[test]
fn sending_and_receiving_allocate_nothing_per_packet() {
    allocate_nothing_per_packet(Pair::up());
}

#[test]
fn neither_changes_of_the_profile_nor_padding_allocate_anything() {
    let all = |config: &mut Config| {
        config.features = config.features | Features::PROFILES;
        config.sealing = Sealing { strength: Floor::BITS_128, changes: true, pads: true };
    };
    allocate_nothing_per_packet(Pair::up_as(all, all));
}

fn allocate_nothing_per_packet(mut pair: Pair) {
    pair.run(Duration::from_secs(1));
    let (mut out, mut back) = (Outbox::new(), Outbox::new());
    let packet = packet(1_400, false);
    // Once for the buffers to grow, once to count.
    for counted in [false, true] {
        let mut allocations = [0, 0];
        for _ in 0..PACKETS {
            pair.run(Duration::from_micros(50)); // feedback comes and goes
            out.clear();
            back.clear();
            let now = pair.now;
            let sent = measure(|| {
                pair.client.handle_tun(now, Pieces::whole(&packet), &mut out);
                out.seal();
            });
            let (run, bytes) = out.runs().next().expect("it is sent at once");
            let port = 40_000 + u16::try_from(run.route.socket.0).expect("few sockets");
            let remote = ([203, 0, 113, 5], port).into();
            let meta = Meta { socket: SocketId(0), local: None, remote, waited: Duration::ZERO };
            let mut bytes = bytes.to_vec();
            let received = measure(|| {
                pair.gateway.handle_datagram(now, meta, &mut bytes, &mut back);
            });
            assert_eq!(back.inner().next().map(|it| it.head), Some(&packet[..]));
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

#[test]
fn waiting_for_a_turn_and_for_order_allocates_nothing_per_packet() {
    const AHEAD: u32 = 64;
    let (mut entry, mut reorder, mut blocks) =
        (FqCodel::default(), Reorder::default(), Blocks::default());
    let (sent, mut out) = (packet(1_400, false), Vec::with_capacity(2_000));
    let mut now = Instant::ZERO;
    let hold = Duration::from_millis(10);
    for number in (0..AHEAD).step_by(2) {
        reorder.take(&mut blocks, now, 9, number, Pieces::whole(&sent), || hold);
    }
    for counted in [false, true] {
        let from = if counted { PACKETS as u32 } else { 0 };
        let allocations = measure(|| {
            for number in from..from + PACKETS as u32 {
                now = now + Duration::from_micros(50);
                let inner = Pieces::whole(&sent);
                let record = PacketRecord::of_bucket(number as u8 % 5);
                entry.push(&mut blocks, now, record, inner, Bound::SHORT);
                while number % 50 == 49
                    && let Some((_, packet)) = entry.pop(&mut blocks, now)
                {
                    blocks.discard(packet);
                }
                // Every second comes by a path that is faster, and some of the others are lost.
                let sequence = if number % 2 == 0 { number + AHEAD } else { number };
                if sequence % 100 != 33 {
                    reorder.take(&mut blocks, now, 9, sequence, inner, || hold);
                }
                out.clear();
                while reorder.next(&mut blocks, now, &mut out).is_some() {
                    out.clear();
                }
            }
        });
        if counted {
            assert_eq!(allocations.count_total, 0, "in {PACKETS} packets");
        } else {
            assert!(allocations.count_total > 0, "queues grow, and that is counted");
        }
    }
}
