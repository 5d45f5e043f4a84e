//! What open connections are told of the paths.

use std::net::IpAddr;

use crate::peer::pair::{DELAY, Pair, links, packet};
use crate::time::Duration;

const HERE: [u8; 4] = [203, 0, 113, 5];
const THERE: [u8; 4] = [198, 18, 0, 9];

#[test]
fn both_ends_know_by_which_networks_the_client_went() {
    let mut pair = Pair::up();
    for (address, before) in [(HERE, 0), (THERE, 1), (HERE, 2)] {
        pair.tell_client(links(&[address]));
        pair.run(Duration::from_secs(5));
        let present = Some((IpAddr::from(address), DELAY * 2));
        let (client, gateway) = (pair.client_key, pair.gateway_key);
        for (node, peer) in [(&mut pair.client, gateway), (&mut pair.gateway, client)] {
            assert_eq!(node.session_with(peer).unwrap().flows().networks(), (present, before));
        }
        // A silence is not another network.
        pair.filter = Box::new(|_| false);
        pair.send(&packet(100, false));
        pair.run(Duration::from_secs(3));
        pair.filter = Box::new(|_| true);
        pair.run(Duration::from_secs(3));
    }
}
