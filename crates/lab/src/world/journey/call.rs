//! A talk in virtual time, and the TCP connections and datagrams that are carried beside it.

use std::collections::BTreeMap;

use rove_proto::wire::Kind;

use super::super::host_id::CLIENT;
use super::super::inner::{Body, Said};
use super::super::laws::Breach;
use super::super::op::Way;
use super::super::road::{Road, Tunnelled};
use super::super::traffic::Passed;
use super::carry::{Script, end_all, open_all};
use super::{Journey, note};
use crate::ground::{Beside, Call, CallRun, Connections, Cue, Datagrams, Talk, Trouble};

impl Journey {
    /// Lets client and server talk, and carries connections until they have done.
    pub(super) fn talk(
        &mut self,
        call: Call,
        beside: &[Connections],
        poured: Option<Datagrams>,
        script: &[Cue],
    ) -> Result<Beside, Trouble> {
        let poured = poured.map(|datagrams| self.begin_pouring(datagrams)).transpose()?;
        let (road, client) = (&mut self.tunnelled, &mut self.client);
        road.arrivals();
        road.eavesdrop();
        let opened = open_all(road, beside);
        let start_ns = road.now_ns();
        let end_ns = start_ns + call.end_ns() + Call::PATIENCE_NS;
        let mut script = Script::new(start_ns, script);
        let mut talking = Talking::new(start_ns, call);
        while road.now_ns() < end_ns {
            script.act(client, road, 0)?;
            talking.hear(road)?;
            talking.speak(road)?;
            let due_ns = talking.due_ns().min(script.next_ns()).min(end_ns);
            let next_ns = road.next_ns().map_or(due_ns, |next_ns| next_ns.min(due_ns));
            road.pass(next_ns.max(road.now_ns()))?;
        }
        talking.hear(road)?;
        let is_carrier = |one: &&Passed| {
            one.leaves && one.kind == Some(Kind::Data) && call.talk.is_carried_in(one.len)
        };
        let passed = road.overheard();
        talking.run.carriers = passed.iter().filter(is_carrier).count() as u64;
        let transfers = end_all(road, &opened, &script.moments);
        note(&mut self.noted, &passed);
        let poured = poured.map(|side| self.end_pouring(side, end_ns));
        Ok((talking.run, transfers, poured))
    }
}

/// A talk under way.
struct Talking {
    call: Call,
    start_ns: u64,
    /// Datagrams that each end has sent that speaks first.
    said: u32,
    /// Those on their way: where each has its place, and when it left.
    sent: BTreeMap<u32, (Way, usize, u64)>,
    run: CallRun,
}

impl Talking {
    fn new(start_ns: u64, call: Call) -> Self {
        let none = vec![None; call.count() as usize];
        let run = CallRun { up: none.clone(), down: none, carriers: 0 };
        Self { call, start_ns, said: 0, sent: BTreeMap::new(), run }
    }

    /// When the next word is due; the maximum after the last.
    fn due_ns(&self) -> u64 {
        if self.said == self.call.count() {
            return u64::MAX;
        }
        let spoken_ns = u64::from(self.said) * self.call.talk.interval_ns();
        self.start_ns + self.call.silence_ns + spoken_ns
    }

    fn speak(&mut self, road: &mut Tunnelled) -> Result<(), Breach> {
        while self.due_ns() <= road.now_ns() {
            let number = self.said;
            self.said += 1;
            self.send(road, Way::Up, number as usize)?;
            if self.call.talk == Talk::Voice {
                self.send(road, Way::Down, number as usize)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, road: &mut Tunnelled, way: Way, number: usize) -> Result<(), Breach> {
        let said = match self.call.talk {
            Talk::Voice => Said::Voice(number as u16),
            Talk::Echo { bytes, .. } => Said::Echo(bytes),
        };
        let sent = road.world.send_now(CLIENT, way, Body::Said(said))?;
        let entry = |id| (id, (way, number, road.world.now_ns));
        self.sent.extend(sent.map(entry));
        Ok(())
    }

    fn hear(&mut self, road: &mut Tunnelled) -> Result<(), Breach> {
        for arrival in road.arrivals() {
            let Some((way, number, sent_ns)) = self.sent.remove(&arrival.id) else { continue };
            let delays = if way == Way::Up { &mut self.run.up } else { &mut self.run.down };
            delays[number] = Some(arrival.at_ns - sent_ns);
            if way == Way::Up && self.call.talk != Talk::Voice {
                self.send(road, Way::Down, number)?;
            }
        }
        Ok(())
    }
}
