//! Headers that stay the same travel once: packets of a flow get shorter on the wire and come out
//! byte for byte, whatever is lost, and only if both ends understand that.

use std::cell::RefCell;
use std::rc::Rc;

use crate::pair::bulk::{self, arrived, flow};
use crate::pair::{Datagram, Pair, complete, config, secrets, udp};
use rove_proto::crypto::{Features, SeededRng};
use rove_proto::error::DropReason;
use rove_proto::node::{Command, Config, Node};
use rove_proto::role::Access;
use rove_proto::time::Duration;
use rove_proto::wire::control::Prefix;

const WIFI: [u8; 4] = [203, 0, 113, 5];
const CABLE: [u8; 4] = [192, 0, 2, 130];
/// Bytes of a datagram around a packet without a number.
const AROUND: usize = 26 + 1;
/// Bytes less for UDP over IPv4: 28 of headers become length, context and three bytes of fields.
const SAVED: usize = 28 - 3 - 4;
const INNER: [u8; 4] = [10, 9, 0, 2];

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The lengths of all datagrams that leave from now on and are long.
fn lengths(pair: &mut Pair) -> Rc<RefCell<Vec<usize>>> {
    let lengths = Rc::new(RefCell::new(Vec::new()));
    let seen = Rc::clone(&lengths);
    pair.filter = Box::new(move |datagram: &Datagram| {
        if datagram.bytes.len() > 300 {
            seen.borrow_mut().push(datagram.bytes.len());
        }
        true
    });
    lengths
}

/// The packet with this number of a flow, which changes what changes in a flow.
fn packet(number: u16) -> Vec<u8> {
    let mut packet = udp((5_060, 5_061), &[number as u8; 500], false);
    packet[1] = (number % 3) as u8;
    packet[4..6].copy_from_slice(&number.to_be_bytes());
    complete(&mut packet);
    packet
}

/// Sends packets apart. Returns how many of them came out, all as they were.
fn send(pair: &mut Pair, numbers: std::ops::Range<u16>) -> usize {
    pair.gateway_inner.clear();
    for number in numbers.clone() {
        pair.send(&packet(number));
        pair.run(ms(20));
    }
    pair.run(ms(300));
    let sent: Vec<_> = numbers.map(packet).collect();
    assert!(pair.gateway_inner.iter().all(|(_, came)| sent.contains(came)), "something else came");
    pair.gateway_inner.len()
}

#[test]
fn a_flow_gets_shorter_and_comes_out_as_it_was() {
    let mut pair = Pair::up();
    let lengths = lengths(&mut pair);
    assert_eq!(send(&mut pair, 0..50), 50);
    let (whole, short) = (528 + AROUND, 528 + AROUND - SAVED);
    let lengths = lengths.borrow();
    let data: Vec<_> = lengths.iter().filter(|len| [whole, short].contains(len)).collect();
    assert_eq!((data[0], data[49], data.len()), (&whole, &short, 50));
    assert!(data.iter().filter(|&&&len| len == whole).count() < 12, "{data:?}");
}

#[test]
fn an_end_that_does_not_understand_it_gets_none() {
    let mut pair = Pair::new(None);
    let (_, secret) = secrets();
    let plain = Config { features: Features::NONE, ..config(&secret) };
    pair.gateway = Node::new(pair.now, plain, Box::new(SeededRng::new(2)), 100);
    pair.admit_client();
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.run(ms(200));
    let lengths = lengths(&mut pair);
    assert_eq!(send(&mut pair, 0..50), 50);
    let short = 528 + AROUND - SAVED;
    assert!(lengths.borrow().iter().all(|&len| len != short), "{:?}", lengths.borrow());
}

#[test]
fn a_wrong_checksum_comes_out_wrong() {
    let mut pair = Pair::up();
    assert_eq!(send(&mut pair, 0..20), 20);
    pair.gateway_inner.clear();
    let mut wrong = packet(20);
    wrong[27] ^= 1;
    let mut none = packet(21);
    none[26..28].fill(0);
    for packet in [&wrong, &none] {
        (0..10).for_each(|_| pair.send(packet));
        pair.run(ms(100));
    }
    let came: Vec<_> = pair.gateway_inner.iter().map(|(_, packet)| packet.clone()).collect();
    assert_eq!(came, [vec![wrong; 10], vec![none; 10]].concat());
}

/// Every packet of the flow may be the one that is lost, a definition or its acknowledgement too.
#[test]
fn what_is_lost_leaves_again_and_comes_out_as_it_was() {
    let mut pair = bulk::bonded(Pair::up(), &[WIFI, CABLE]);
    let mut count = 0;
    pair.filter = Box::new(move |_| {
        count += 1;
        count % 13 != 0
    });
    flow(&mut pair, 0..3_000);
    pair.filter = Box::new(|_| true);
    flow(&mut pair, 3_000..3_020);
    pair.run(ms(800));
    for numbers in arrived(&pair) {
        assert_eq!(numbers, Vec::from_iter(0..3_020));
    }
    for node in [&pair.client, &pair.gateway] {
        assert_eq!(node.drops().of(DropReason::UnknownContext), 0);
        assert_eq!(node.drops().of(DropReason::BadFrame), 0);
    }
    let all = [(&pair.gateway_inner, false), (&pair.client_inner, true)];
    for (came, back) in all {
        assert!((0..).zip(came).all(|(number, (_, it))| *it == bulk::packet(number, back)));
    }
}

/// New keys come with no contexts: the flow goes on, and has one under them soon.
#[test]
fn a_flow_goes_on_under_new_keys() {
    let mut pair = Pair::up();
    assert_eq!(send(&mut pair, 0..20), 20);
    let epochs = pair.epochs();
    pair.run(Duration::from_secs(125));
    let lengths = lengths(&mut pair);
    assert_eq!(send(&mut pair, 20..70), 50);
    assert_eq!(pair.epochs(), epochs + 1);
    let (whole, short) = (528 + AROUND, 528 + AROUND - SAVED);
    let lengths = lengths.borrow();
    let count = |len| lengths.iter().filter(|&&it| it == len).count();
    assert!((5..15).contains(&count(whole)) && count(short) > 35, "{lengths:?}");
}

/// What a peer may send is asked where a context is defined and where a packet is delivered.
#[test]
fn a_lease_may_change_between_definition_and_delivery() {
    let mut pair = Pair::up();
    assert_eq!(send(&mut pair, 0..20), 20);
    let access = |own: [u8; 4]| {
        let (own, gateway) = (vec![Prefix::host(own.into())], vec![[10, 9, 0, 1].into()]);
        let (local, allow) = (vec![], vec![]);
        Access::Restricted { own, gateway, internet: true, local, allow }
    };
    let key = pair.client_key;
    pair.tell_gateway(Command::SetAccess { peer: key, access: access([10, 9, 0, 3]) });
    let before = pair.gateway.drops().of(DropReason::NotAllowed);
    assert_eq!(send(&mut pair, 20..30), 0);
    assert_eq!(pair.gateway.drops().of(DropReason::NotAllowed) - before, 10, "at delivery");
    // Another flow of the same address begins now.
    let other = udp((6_000, 6_001), &[1; 500], false);
    for _ in 0..20 {
        pair.send(&other);
        pair.run(ms(20));
    }
    assert!(pair.gateway.drops().of(DropReason::UnknownContext) > 0, "at definition");
    pair.tell_gateway(Command::SetAccess { peer: key, access: access(INNER) });
    assert_eq!(send(&mut pair, 30..40), 10);
}
