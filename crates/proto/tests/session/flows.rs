//! Of every connection of every peer is told once, in pages of a bounded size.

use std::collections::BTreeSet;
use std::net::IpAddr;

use crate::pair::{Pair, lease};
use rove_proto::flow::report::{FlowState, Stage};
use rove_proto::id::PeerKey;
use rove_proto::node::{Command, FLOWS_PER_PAGE, Node, PeerConfig, SideConfig};
use rove_proto::outbox::Outbox;
use rove_proto::role::Access;
use rove_proto::wire::control::Prefix;
use rove_proto::wire::inner::Pieces;
use rove_proto::wire::tcp::{Ends, Flags, Made, Seq};

const PEERS: u16 = 400;

fn inner(peer: u16) -> IpAddr {
    let [high, low] = peer.to_be_bytes();
    [10, 9, high, low].into()
}

fn key(peer: u16) -> PeerKey {
    let mut key = [9; 32];
    key[..2].copy_from_slice(&peer.to_be_bytes());
    PeerKey(key)
}

/// The gateway knows more peers, which have never spoken.
fn add_peers(pair: &mut Pair) {
    for peer in 0..PEERS {
        let access = Access::Restricted {
            own: vec![Prefix::host(inner(peer))],
            gateway: vec![],
            internet: true,
            local: vec![],
            allow: vec![],
        };
        let side = SideConfig::Client { lease: lease() };
        let config = PeerConfig { key: key(peer), psk: None, access, side };
        pair.tell_gateway(Command::AddPeer(Box::new(config)));
    }
}

/// Somebody asks the peer for so many connections.
fn open(pair: &mut Pair, peer: u16, connections: u16) {
    let mut out = Outbox::new();
    for number in 0..connections {
        let source = ([198, 51, 100, 7].into(), 1_024 + number);
        let ends = Ends { source, destination: (inner(peer), 80) };
        let (seq, ack, timestamps) = (Seq(1), Seq(0), None);
        let mut packet = Vec::new();
        let made = Made { ends, seq, ack, flags: Flags::SYN, window: 1_000, timestamps };
        made.emit((&[], &[]), &mut packet);
        pair.gateway.handle_tun(pair.now, Pieces::whole(&packet), &mut out);
        out.clear();
    }
}

/// Everything that is told, and in how many pages.
fn told(node: &Node, pair: &Pair) -> (BTreeSet<(PeerKey, u16)>, usize) {
    let (mut all, mut from, mut pages) = (BTreeSet::new(), None, 0);
    loop {
        let page = node.flows(pair.now, from);
        assert!(page.flows.len() <= FLOWS_PER_PAGE);
        for (peer, flow) in page.flows {
            assert_eq!((flow.state, flow.stage), (FlowState::Suspended, Stage::Opening));
            assert!(all.insert((peer, flow.tuple.local.1)), "told twice: {flow:?}");
        }
        pages += 1;
        assert!(page.next.is_none() || page.next > from, "it goes on");
        from = page.next;
        if from.is_none() {
            return (all, pages);
        }
    }
}

#[test]
fn every_connection_is_told_of_once() {
    let mut pair = Pair::new(None);
    assert_eq!(told(&pair.gateway, &pair), (BTreeSet::new(), 1));
    add_peers(&mut pair);
    let (none, pages) = told(&pair.gateway, &pair);
    assert!(none.is_empty());
    assert_eq!(pages, 2, "who has no connections counts, too");
    let many = [(3, 1), (5, 700), (6, 256), (7, 255), (9, 1), (399, 600)];
    let mut expected = BTreeSet::new();
    for (peer, connections) in many {
        open(&mut pair, peer, connections);
        expected.extend((0..connections).map(|number| (key(peer), 1_024 + number)));
    }
    let (all, pages) = told(&pair.gateway, &pair);
    assert!(all == expected, "{} of {}", all.len(), expected.len());
    let places: u16 = many.iter().map(|(_, connections)| connections).sum();
    let least = usize::from(places + PEERS) / FLOWS_PER_PAGE;
    assert!((least..=least + 1).contains(&pages), "{pages} pages for {places} places");
}

#[test]
fn a_peer_that_goes_between_two_pages_takes_nobody_along() {
    let mut pair = Pair::new(None);
    add_peers(&mut pair);
    for peer in 0..3 {
        open(&mut pair, peer, 400);
    }
    let first = pair.gateway.flows(pair.now, None);
    let second = pair.gateway.flows(pair.now, first.next);
    pair.tell_gateway(Command::RevokePeer(key(1)));
    let third = pair.gateway.flows(pair.now, second.next);
    assert_eq!(third.flows.len(), FLOWS_PER_PAGE);
    assert!(third.flows.iter().all(|(peer, _)| *peer == key(2)));
}
