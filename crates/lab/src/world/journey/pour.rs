//! One flow of datagrams in virtual time: lets it run and hands out what was heard. What is said is
//! [`crate::udp`]'s.

use super::super::road::{Road, Tunnelled};
use super::Journey;
use crate::ground::{Datagrams, DatagramsRun, Receiver, Trouble};

impl Journey {
    /// Lets a flow of datagrams run for its time, or gives it up when nothing is ever heard of it.
    pub(super) fn pour(&mut self, datagrams: Datagrams) -> Result<DatagramsRun, Trouble> {
        let Self { tunnelled: road, seed, .. } = self;
        let start_ns = road.now_ns();
        let side = usize::from(datagrams.to == Receiver::Server);
        road.world.exchange.begin(datagrams.ends(*seed, start_ns)?);
        let mut end_ns = start_ns + Datagrams::OPENING_NS;
        while road.now_ns() < end_ns && road.world.exchange.broke().is_none() {
            let next_ns = road.next_ns().map_or(end_ns, |next_ns| next_ns.min(end_ns));
            road.pass(next_ns)?;
            if let Some(opened_ns) = opened_ns(road, side) {
                end_ns = opened_ns + datagrams.length_ns;
            }
        }
        let heard = road.world.exchange.heard(side).cloned().unwrap_or_default();
        let broke = road.world.exchange.broke().map(str::to_owned);
        road.world.exchange.end();
        Ok(DatagramsRun::of(heard, end_ns.min(road.now_ns()), broke))
    }
}

fn opened_ns(road: &Tunnelled, side: usize) -> Option<u64> {
    road.world.exchange.heard(side)?.opened_ns
}
