//! The attacker of the tests: on every wire, with every address, and in one case a client herself.
//!
//! She cannot break keys. What she must never reach: a session that goes by her ("stolen"), data
//! to an address that did not prove itself ("redirected"), and more than three times what came
//! from an address ("amplified"). [`Eve::check`] asks for all of it at every moment.

#![allow(clippy::unwrap_used, reason = "a test harness: a panic is the report")]
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod insider;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use crate::pair::{Datagram, Pair, packet};
use rove_proto::time::Duration;

/// Her own address.
pub(crate) const EVE: &str = "198.51.100.66:666";
/// What an address may get for what came from it (docs/spec/wire.md#addresses).
const FACTOR: usize = 3;

/// A datagram as it was seen on the wire.
#[derive(Clone)]
pub(crate) struct Seen {
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

/// What she does with a datagram that she sees.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    Passes,
    Withheld,
}

/// What she knows.
#[derive(Default)]
struct Tape {
    seen: Vec<Seen>,
    /// Bytes that came from an address to the gateway, and that the gateway sent there.
    tallies: BTreeMap<SocketAddr, (usize, usize)>,
    /// The hosts where a client honestly is, or was.
    honest: BTreeSet<IpAddr>,
}

/// Her ears and hands.
pub(crate) struct Eve {
    tape: Rc<RefCell<Tape>>,
}

pub(crate) fn at(address: &str) -> SocketAddr {
    address.parse().unwrap()
}

impl Eve {
    /// She listens from now on, and does what `fate` says.
    pub(crate) fn listen(pair: &mut Pair, fate: impl FnMut(&Datagram) -> Fate + 'static) -> Self {
        let eve = Self::listen_to_strangers(pair, fate);
        eve.tape.borrow_mut().honest.insert(used(pair).ip());
        eve
    }

    /// The same where no session is there yet.
    pub(crate) fn listen_to_strangers(
        pair: &mut Pair,
        fate: impl FnMut(&Datagram) -> Fate + 'static,
    ) -> Self {
        let eve = Self { tape: Rc::default() };
        eve.change(pair, fate);
        eve
    }

    /// From now on she does what `fate` says.
    pub(crate) fn change(
        &self,
        pair: &mut Pair,
        mut fate: impl FnMut(&Datagram) -> Fate + 'static,
    ) {
        let tape = Rc::clone(&self.tape);
        pair.filter = Box::new(move |datagram| {
            let Datagram { from, to, bytes, .. } = datagram;
            let passes = fate(datagram) == Fate::Passes;
            let tape = &mut *tape.borrow_mut();
            tape.seen.push(Seen { from: *from, to: *to, bytes: bytes.clone() });
            // Only the gateway's peers have addresses in these tallies: the rest is not asked for.
            tape.tallies.entry(*to).or_default().1 += bytes.len();
            if passes {
                tape.tallies.entry(*from).or_default().0 += bytes.len();
            }
            passes
        });
    }

    /// Who sends from there is who he says.
    pub(crate) fn trust(&self, address: SocketAddr) {
        self.tape.borrow_mut().honest.insert(address.ip());
    }

    /// What was seen since the last call.
    pub(crate) fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut self.tape.borrow_mut().seen)
    }

    /// She sends, from wherever she likes.
    pub(crate) fn send(&self, pair: &mut Pair, from: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.tape.borrow_mut().tallies.entry(from).or_default().0 += bytes.len();
        pair.arrive(Datagram { at: pair.now, from, to, bytes: bytes.to_vec() });
    }

    /// Bytes that the gateway sent there.
    pub(crate) fn sent_to(&self, address: SocketAddr) -> usize {
        self.tape.borrow().tallies.get(&address).map_or(0, |tally| tally.1)
    }

    /// Nothing of hers is in use, and no address that is not honest got more than its share.
    #[track_caller]
    pub(crate) fn check(&self, pair: &Pair) {
        let tape = self.tape.borrow();
        for (address, (came, went)) in &tape.tallies {
            let gateway = pair.gateway_at.contains(address);
            if !gateway && !tape.honest.contains(&address.ip()) {
                assert!(went <= &(FACTOR * came), "amplified: {went} B to {address} for {came}");
            }
        }
        let used = used(pair);
        assert!(tape.honest.contains(&used.ip()), "stolen: the gateway sends to {used}");
    }

    /// Lets time pass and looks at every millisecond of it.
    #[track_caller]
    pub(crate) fn watch(&self, pair: &mut Pair, time: Duration) {
        let end = pair.now + time;
        while pair.now < end {
            pair.run(Duration::from_millis(1));
            self.check(pair);
        }
    }
}

/// Where the gateway sends to the client.
pub(crate) fn used(pair: &Pair) -> SocketAddr {
    let status = pair.gateway.status(pair.client_key).unwrap();
    status.paths.iter().find(|path| path.in_use).unwrap().remote()
}

/// Packets of these lengths pass both ways, each once.
#[track_caller]
pub(crate) fn carries(pair: &mut Pair, lengths: std::ops::Range<usize>) {
    let before = (pair.gateway_inner.len(), pair.client_inner.len());
    for len in lengths.clone() {
        pair.send(&packet(len, false));
        pair.send_back(&packet(len, true));
        pair.run(Duration::from_millis(10));
    }
    pair.run(Duration::from_secs(1));
    let after = (pair.gateway_inner.len(), pair.client_inner.len());
    let all = lengths.len();
    assert_eq!((after.0 - before.0, after.1 - before.1), (all, all), "up, down");
}

/// Lets everything pass.
pub(crate) fn pass(_: &Datagram) -> Fate {
    Fate::Passes
}

/// A quiet session, and Eve.
pub(crate) fn quiet() -> (Pair, Eve) {
    let mut pair = Pair::up();
    pair.run(Duration::from_secs(2));
    let eve = Eve::listen(&mut pair, pass);
    (pair, eve)
}
