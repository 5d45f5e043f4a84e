//! How long what is missing is waited for.

use std::net::IpAddr;

use super::{HOLD_MIN, HOLD_TRIPS, usual_gap_time};
use crate::id::LinkId;
use crate::multipath::Mode;
use crate::node::{Command, Link};
use crate::peer::pair::{DELAY, Pair, bulk};
use crate::time::Duration;

const WIFI: [u8; 4] = [203, 0, 113, 5];
const CABLE: [u8; 4] = [192, 0, 2, 130];
const SATELLITE: [u8; 4] = [198, 51, 100, 200];

/// How long each end waits, in the mode `full`, with a satellite link that is 300 ms farther away.
fn waits(stands_by: bool) -> [Duration; 2] {
    let mut pair = Pair::up();
    let farther = Duration::from_millis(300);
    pair.farther = Some((IpAddr::from(SATELLITE), farther));
    let link = |(id, address)| {
        let stands_by = stands_by && address == SATELLITE;
        Link { id: LinkId(id), addresses: vec![IpAddr::from(address)], stands_by }
    };
    let links = [(1, WIFI), (2, CABLE), (3, SATELLITE)];
    pair.tell_client(Command::SetLinks(links.map(link).to_vec()));
    pair.tell_client(Command::SetMode(Mode::Full));
    bulk::flow(&mut pair, 0..4_000);
    pair.run(Duration::from_secs(2));
    let (client, gateway) = (pair.client_key, pair.gateway_key);
    [(&pair.client, gateway), (&pair.gateway, client)].map(|(node, peer)| {
        let session = node.session_with(peer).unwrap();
        assert!(
            session.tunnel.paths.list.iter().any(|path| path.rtt.measured() >= Some(farther * 2))
        );
        usual_gap_time(&session.tunnel.paths.list)
    })
}

#[test]
fn who_stands_by_makes_nobody_wait() {
    let nearest = (DELAY * 2).mul_f64(HOLD_TRIPS) + HOLD_MIN;
    for wait in waits(true) {
        assert!(wait < nearest + Duration::from_millis(50), "{wait:?}");
    }
    for wait in waits(false) {
        assert!(wait > Duration::from_secs(2), "{wait:?}: it carries a share");
    }
}
