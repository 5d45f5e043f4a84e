//! A link that becomes slower tells late of everything, but it tells: it is not dead, and what it
//! carries is waited for.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;

use crate::pair::bulk::{arrived, bonded, flow};
use crate::pair::{Datagram, Pair};
use rove_proto::path::Health;
use rove_proto::time::Duration;

const WIFI: [u8; 4] = [203, 0, 113, 5];
const CABLE: [u8; 4] = [192, 0, 2, 130];
const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The client sends 2.4 MB/s for 600 ms. One link stands still for the first of these `still`
/// steps of 5 ms and carries a datagram in every second of the others; the rest waits there, and
/// arrives as slowly in the end. Returns how many packets that were, and the numbers of the looks
/// of 120, one after each step, at which the path counted as silent.
fn slowed(pair: &mut Pair, still: u32) -> (usize, Vec<u32>) {
    let queue = Rc::new(RefCell::new(VecDeque::new()));
    let (waiting, gateway) = (Rc::clone(&queue), pair.gateway_at[0]);
    pair.filter = Box::new(move |datagram: &Datagram| {
        let waits = datagram.from.ip() == IpAddr::from(WIFI) && datagram.to == gateway;
        if waits {
            waiting.borrow_mut().push_back(datagram.clone());
        }
        !waits
    });
    let next = || queue.borrow_mut().pop_front();
    let (mut silent, mut number) = (Vec::new(), 0);
    for step in 0..120 {
        flow(pair, number..number + 10);
        number += 10;
        if step % 2 == 0 && step >= still {
            next().into_iter().for_each(|datagram| pair.arrive(datagram));
        }
        let paths = pair.client.status(pair.gateway_key).unwrap().paths;
        if paths.iter().any(|path| matches!(path.health, Health::Silent { .. })) {
            silent.push(step);
        }
    }
    pair.filter = Box::new(|_| true);
    while let Some(datagram) = next() {
        pair.arrive(datagram);
        pair.run(ms(10));
    }
    pair.run(ms(500));
    (number as usize, silent)
}

/// Packets that were overtaken by one that left later.
fn overtaken(pair: &Pair) -> usize {
    arrived(pair)[0].windows(2).filter(|two| two[0] > two[1]).count()
}

#[test]
fn a_link_that_becomes_slower_is_waited_for() {
    let mut pair = bonded(Pair::up(), &[WIFI, CABLE]);
    let (sent, silent) = slowed(&mut pair, 0);
    let (arrived, late) = (arrived(&pair)[0].len(), overtaken(&pair));
    println!("{arrived} of {sent} arrived, {late} late; silent at {silent:?} of 120 looks");
    assert_eq!((arrived, silent), (sent, Vec::new()));
    // 45 where what came too late teaches nothing.
    assert!((1..36).contains(&late), "{late} came too late");
}

#[test]
fn a_link_that_stood_still_and_tells_again_is_not_silent() {
    let mut pair = bonded(Pair::up(), &[WIFI, CABLE]);
    let (sent, silent) = slowed(&mut pair, 40);
    println!("{} of {sent} arrived; silent at {silent:?}", arrived(&pair)[0].len());
    assert_eq!(arrived(&pair)[0].len(), sent);
    // What is told of first left 200 ms before, and what is told of next not much later: a path of
    // which only the age of that counts is silent again at every look up to the last.
    assert!((17..50).contains(silent.last().unwrap()), "{silent:?}");
}
