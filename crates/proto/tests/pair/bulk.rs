//! A flow that is much, by numbered packets: what several links carry together, in order.

use super::{Pair, links, udp};
use rove_proto::multipath::Mode;
use rove_proto::node::Command;
use rove_proto::time::Duration;

/// A session by these links, which share what there is, and of which it is known how much that is.
pub(crate) fn bonded(mut pair: Pair, addresses: &[[u8; 4]]) -> Pair {
    pair.tell_client(links(addresses));
    pair.tell_client(Command::SetMode(Mode::Full));
    pair.run(Duration::from_millis(500));
    flow(&mut pair, 0..4_000);
    pair.run(Duration::from_millis(200));
    pair.client_inner.clear();
    pair.gateway_inner.clear();
    pair
}

/// The `number`th packet of a flow that is much, and of which order matters.
pub(crate) fn packet(number: u32, back: bool) -> Vec<u8> {
    let mut payload = vec![0; 1_200];
    payload[..4].copy_from_slice(&number.to_be_bytes());
    udp((40_000, 40_001), &payload, back)
}

/// One packet both ways each 500 us, 2.4 MB/s.
pub(crate) fn flow(pair: &mut Pair, numbers: std::ops::Range<u32>) {
    for number in numbers {
        pair.send(&packet(number, false));
        pair.send_back(&packet(number, true));
        pair.run(Duration::from_micros(500));
    }
}

/// What arrived, up and down.
pub(crate) fn arrived(pair: &Pair) -> [Vec<u32>; 2] {
    [&pair.gateway_inner, &pair.client_inner].map(|inner| {
        let number = |packet: &[u8]| u32::from_be_bytes(packet[28..32].try_into().unwrap());
        inner.iter().map(|(_, packet)| number(packet)).collect()
    })
}
