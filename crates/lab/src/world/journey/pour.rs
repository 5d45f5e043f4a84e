//! One flow of datagrams in virtual time: lets it run and hands out what was heard. What is said is
//! [`crate::udp`]'s.

use super::super::road::{Road, Tunnelled};
use super::Journey;
use crate::ground::{Datagrams, DatagramsRun, Receiver, Trouble};

impl Journey {
    /// Lets a flow of datagrams run for its time, or gives it up when nothing is ever heard of it.
    pub(super) fn pour(&mut self, datagrams: Datagrams) -> Result<DatagramsRun, Trouble> {
        let side = self.begin_pouring(datagrams)?;
        let road = &mut self.tunnelled;
        let mut end_ns = road.now_ns() + Datagrams::OPENING_NS;
        while road.now_ns() < end_ns && road.world.exchange.broke().is_none() {
            let next_ns = road.next_ns().map_or(end_ns, |next_ns| next_ns.min(end_ns));
            road.pass(next_ns)?;
            if let Some(opened_ns) = opened_ns(road, side) {
                end_ns = opened_ns + datagrams.length_ns;
            }
        }
        Ok(self.end_pouring(side, end_ns))
    }

    /// Begins a flow of datagrams. Returns the side of its receiver.
    pub(super) fn begin_pouring(&mut self, datagrams: Datagrams) -> Result<usize, Trouble> {
        let world = &mut self.tunnelled.world;
        world.exchange.begin(datagrams.ends(self.seed, world.now_ns)?);
        Ok(usize::from(datagrams.to == Receiver::Server))
    }

    /// Ends the flow of datagrams: how it went until then, as its receiver saw it.
    pub(super) fn end_pouring(&mut self, side: usize, end_ns: u64) -> DatagramsRun {
        let world = &mut self.tunnelled.world;
        let heard = world.exchange.heard(side).cloned().unwrap_or_default();
        let broke = world.exchange.broke().map(str::to_owned);
        world.exchange.end();
        DatagramsRun::of(heard, end_ns.min(world.now_ns), broke)
    }
}

fn opened_ns(road: &Tunnelled, side: usize) -> Option<u64> {
    road.world.exchange.heard(side)?.opened_ns
}
