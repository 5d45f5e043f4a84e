//! A link that becomes slower tells late of everything, but it tells: it is not dead, and what it
//! carries is waited for.

#![allow(clippy::unwrap_used, reason = "a test: a panic is the report")]

mod pair;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::IpAddr;
use std::rc::Rc;

use pair::bulk::{arrived, bonded, flow};
use pair::{Datagram, Pair};
use rove_proto::path::Health;
use rove_proto::time::Duration;

const WIFI: [u8; 4] = [203, 0, 113, 5];
const CABLE: [u8; 4] = [192, 0, 2, 130];
const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// The client sends 2.4 MB/s for 600 ms, of which one link carries a datagram in each 10 ms; the
/// rest waits there, and arrives as slowly in the end. Returns how many packets that were, and at
/// how many of 120 looks the path counted as silent.
fn slowed(pair: &mut Pair) -> (usize, u32) {
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
    let (mut silent, mut number) = (0, 0);
    for step in 0..120 {
        flow(pair, number..number + 10);
        number += 10;
        if step % 2 == 0 {
            next().into_iter().for_each(|datagram| pair.arrive(datagram));
        }
        let paths = pair.client.status(pair.gateway_key).unwrap().paths;
        let is_silent = paths.iter().any(|path| matches!(path.health, Health::Silent { .. }));
        silent += u32::from(is_silent);
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
    let (sent, silent) = slowed(&mut pair);
    let (arrived, late) = (arrived(&pair)[0].len(), overtaken(&pair));
    println!("{arrived} of {sent} arrived, {late} late; {silent} of 120 looks silent");
    assert_eq!((arrived, silent), (sent, 0));
    // 45 where what came too late teaches nothing.
    assert!((1..36).contains(&late), "{late} came too late");
}
