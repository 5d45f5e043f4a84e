//! A batch of datagrams that is settled once has the same outcome as one datagram after the other,
//! and so has a run of packets.

use std::cell::RefCell;
use std::rc::Rc;

use crate::pair::{Datagram, Pair, links, packet};
use rove_proto::id::SocketId;
use rove_proto::node::{Meta, Node, PeerState};
use rove_proto::outbox::Outbox;
use rove_proto::time::{Duration, Instant};
use rove_proto::wire::inner::Pieces;

/// Takes everything that the client sends out of the network.
fn intercept(pair: &mut Pair) -> Rc<RefCell<Vec<Datagram>>> {
    let taken = Rc::new(RefCell::new(Vec::new()));
    let copies = Rc::clone(&taken);
    pair.filter = Box::new(move |datagram| {
        copies.borrow_mut().push(datagram.clone());
        false
    });
    taken
}

/// Gives the gateway all datagrams at once, by `each`, and ends with a settled node.
fn deliver(
    pair: &mut Pair,
    datagrams: &[Datagram],
    each: fn(&mut Node, Instant, Meta, &mut [u8], &mut Outbox),
) -> Outbox {
    let mut out = Outbox::new();
    for datagram in datagrams {
        let meta = Meta {
            socket: SocketId(0),
            local: Some(datagram.to.ip()),
            remote: datagram.from,
            waited: Duration::ZERO,
        };
        each(&mut pair.gateway, pair.now, meta, &mut datagram.bytes.clone(), &mut out);
    }
    pair.gateway.settle(pair.now, &mut out);
    pair.gateway.handle_timeout(pair.now, &mut out);
    assert!(pair.gateway.poll_timeout().is_none_or(|(at, _)| at > pair.now), "the law of time");
    out
}

/// What the gateway makes of `count` packets of its client, and in the midst of a move if `moves`.
fn outcome(
    count: usize,
    moves: bool,
    each: fn(&mut Node, Instant, Meta, &mut [u8], &mut Outbox),
) -> (Vec<Vec<u8>>, PeerState, u64) {
    let mut pair = Pair::up();
    let taken = intercept(&mut pair);
    for number in 0..count {
        if moves && number == count / 2 {
            pair.tell_client(links(&[[192, 0, 2, 99]]));
        }
        pair.send(&packet(200 + number, false));
    }
    let datagrams = taken.borrow().clone();
    assert!(datagrams.len() >= count, "{} of {count} packets left", datagrams.len());
    let out = deliver(&mut pair, &datagrams, each);
    let inner = out.inner().map(Pieces::to_vec).collect();
    let client = pair.client_key;
    let state = pair.gateway.status(client).expect("the client is known").state;
    (inner, state, pair.gateway.drops().iter().map(|(_, count)| count).sum())
}

#[test]
fn a_batch_has_the_outcome_of_its_datagrams_one_by_one() {
    for (count, moves) in [(1, false), (40, false), (40, true)] {
        let single = outcome(count, moves, Node::handle_datagram);
        let batch = outcome(count, moves, Node::receive);
        assert!(single.0.len() == count, "{} of {count} were delivered", single.0.len());
        assert!(single == batch, "{count} packets, moves: {moves}");
    }
}

#[test]
fn another_verb_settles_what_a_batch_left() {
    let mut pair = Pair::up();
    let taken = intercept(&mut pair);
    pair.send(&packet(300, false));
    let datagram = taken.borrow()[0].clone();
    let (mut bytes, mut out) = (datagram.bytes, Outbox::new());
    let meta = Meta {
        socket: SocketId(0),
        local: Some(datagram.to.ip()),
        remote: datagram.from,
        waited: Duration::ZERO,
    };
    pair.gateway.receive(pair.now, meta, &mut bytes, &mut out);
    pair.gateway.handle_timeout(pair.now, &mut out);
    assert!(pair.gateway.poll_timeout().is_none_or(|(at, _)| at > pair.now));
    assert_eq!(out.inner().count(), 1);
}

#[test]
fn a_run_of_packets_leaves_like_its_packets_one_by_one() {
    let sent = |send: fn(&mut Node, Instant, Pieces<'_>, &mut Outbox)| {
        let (mut pair, mut out) = (Pair::up(), Outbox::new());
        for number in 0..40 {
            send(&mut pair.client, pair.now, Pieces::whole(&packet(200 + number, false)), &mut out);
        }
        pair.client.settle(pair.now, &mut out);
        assert!(pair.client.poll_timeout().is_none_or(|(at, _)| at > pair.now), "the law of time");
        out.seal();
        out.runs().map(|(_, bytes)| bytes.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(sent(Node::send), sent(Node::handle_tun));
}
