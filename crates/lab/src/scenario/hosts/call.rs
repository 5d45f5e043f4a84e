//! A call between real programs, and the connections and datagrams beside it.

use super::connections::Pair;
use super::pour::Pouring;
use super::{Captures, Hosts};
use crate::emu::Endpoints;
use crate::ground::{Beside, Call, CallRun, Connections, Cue, Datagrams, Talk, Trouble};
use crate::netns::{Captured, Direction, Process};
use crate::programs::{Report, report};
use std::time::Duration;

/// How long after its regular end the report on a call is awaited.
const REPORT: Duration = Duration::from_secs(10);

impl Hosts {
    /// Runs a call, and connections until it has ended.
    pub(super) fn talk(
        &mut self,
        call: Call,
        beside: &[Connections],
        poured: Option<Datagrams>,
        script: &[Cue],
    ) -> Result<Beside, Trouble> {
        self.start_captures()?;
        let poured = poured.map(|datagrams| self.begin_pouring(datagrams)).transpose()?;
        let mut pairs = self.open(beside)?;
        let [answering, calling] = self.testbed.call(&call)?;
        let length_ns = call.end_ns() + Call::PATIENCE_NS;
        self.watch(&mut pairs, (length_ns, length_ns), script)?;
        let transfers = pairs.into_iter().map(Pair::end).collect();
        let (up, down) = (heard(answering, &call), heard(calling, &call));
        let captured = self.take_captures()?;
        let carriers = self.carriers(&captured, call.talk);
        let poured = poured.map(Pouring::end).transpose()?;
        Ok((CallRun { up, down, carriers }, transfers, poured))
    }

    /// Tunnel datagrams from either end that carry one of a call's, by their length.
    fn carriers(&self, captured: &Captures, talk: Talk) -> u64 {
        let headers = self.testbed.family().udp_headers();
        let gateways = self.testbed.gateway_addresses();
        let of_tunnel = |ends: Endpoints| {
            [ends.source, ends.destination].iter().any(|end| gateways.contains(&end.ip()))
        };
        let is_carrier = |packet: &&Captured| {
            let payload = packet.bytes.checked_sub(headers);
            packet.direction == Direction::Out
                && packet.endpoints.is_some_and(of_tunnel)
                && payload.is_some_and(|payload| talk.is_carried_in(payload))
        };
        let ends = captured.cards.iter().chain([&captured.uplink]);
        ends.flat_map(|card| &card.packets).filter(is_carrier).count() as u64
    }
}

/// The delays at an end; empty if it does not report, because nobody called it.
fn heard(mut end: Process, call: &Call) -> Vec<Option<u64>> {
    let said = end.line_where(REPORT, |line| {
        if let Report::Heard(heard) = report(line)? { Some(heard.delays_ns) } else { None }
    });
    said.unwrap_or_else(|_| vec![None; call.count() as usize])
}
