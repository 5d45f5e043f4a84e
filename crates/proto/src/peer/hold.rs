//! Open connections while no path carries: they are told when there is none and when there is one
//! again, and what they want to say is passed on.

use super::egress::Load;
use super::{Context, Event, Peer, PeerState};
use crate::error::DropReason;
use crate::flow::priority::Priorities;
use crate::flow::rules::Rules;
use crate::flow::tuple::Tuple;
use crate::flow::{Memory, Output};
use crate::outbox::REST;
use crate::pack::{self, Framing};
use crate::path::probe::URGENT;
use crate::path::{Health, Path, PathId, Trust};
use crate::time::{Duration, Instant};
use crate::wire::data::MAX_DATAGRAM;
use crate::wire::inner::InnerPacket;

/// When an address has had its bound, the rest follows with the next datagram that comes; it is
/// looked at after this in any case.
const REST_UNHEARD: Duration = Duration::from_secs(1);

/// Paths that are asked more often at once: the questions of more fill a slow link by themselves.
const URGENT_PATHS: usize = 3;

impl Peer {
    /// Called when the state may have changed.
    pub(super) fn hold_or_resume(&mut self, cx: &mut Context<'_>) {
        let returns = self.returns(cx.now);
        let carries = matches!(self.state, PeerState::Up | PeerState::Moving)
            || returns
            || self.claimed().is_some();
        if self.state == PeerState::Up {
            self.tell_network();
        }
        match (self.flows.is_up(), carries) {
            (true, false) => self.flows.suspend(cx.now, cx.memory),
            (false, true) => {
                let trip = self.paths.active().map(|path| path.rtt.smoothed());
                self.flows.resume(cx.now, cx.memory, trip.unwrap_or_default());
                self.end_sequences(cx);
            }
            (true, true) => return,
            (false, false) => {}
        }
        self.ask_urgently(cx);
    }

    /// Tells by which network data goes, and how long its round trip is: at best, since a queue of
    /// this session's own says nothing of the network, nor does a signal that fades.
    fn tell_network(&mut self) {
        let Some(path) = self.paths.active() else { return };
        let remote = path.route.remote.ip();
        let client = if self.at_gateway() { remote } else { path.route.local.unwrap_or(remote) };
        if let Some(trip) = path.rtt.minimum() {
            self.flows.visit(client, trip);
        }
    }

    /// Whether the path in use was silent in both directions and is heard again: that it carries
    /// the other way as well is not proven, and likely enough for what is sent again if not.
    fn returns(&mut self, now: Instant) -> bool {
        let Some(due) = self.return_due() else { return false };
        if due <= now
            && let Some(id) = self.paths.active_id()
            && let Some(path) = self.paths.get_mut(id)
        {
            path.returned_at = None;
        }
        now < due
    }

    /// Gateway: where the peer says that it is, if it left every other place: what is said there
    /// before that is proven is bounded, and saves a round trip.
    fn claimed(&self) -> Option<&Path> {
        let path = self.paths.get(self.paths.choose()?.original)?;
        matches!(path.trust, Trust::Claimed { .. }).then_some(path)
    }

    /// Until when a path that is heard again after a silence is taken to carry without an answer.
    pub(super) fn return_due(&self) -> Option<Instant> {
        let path = self.paths.active()?;
        let is_silent = matches!(path.health, Health::Silent { .. });
        path.returned_at.filter(|_| is_silent).map(|at| at + path.patience())
    }

    /// While connections wait for a path it is asked more often, in the first minute: who asks
    /// again for what is held later does so in passing, whenever its programs try again. Of many
    /// paths, those that are likely to return first.
    fn ask_urgently(&mut self, cx: &Context<'_>) {
        let waiting = self.flows.is_waiting();
        let active = self.paths.active_id();
        let is_wanted = |path: &Path| {
            let since = match path.health {
                Health::Silent { since } => Some(since),
                Health::Gone => Some(path.heard_at.unwrap_or(path.since)),
                Health::Good => None,
            };
            waiting && since.is_none_or(|since| cx.now.saturating_since(since) < URGENT)
        };
        let likely = |path: &&Path| (Some(path.id) == active, path.heard_at.max(Some(path.since)));
        let mut chosen = [None; URGENT_PATHS];
        for place in 0..URGENT_PATHS {
            let rest = |path: &&Path| is_wanted(path) && !chosen.contains(&Some(path.id));
            chosen[place] = self.paths.iter().filter(rest).max_by_key(likely).map(|path| path.id);
        }
        for path in self.paths.iter_mut() {
            path.probes.set_urgent(cx.now, chosen.contains(&Some(path.id)));
        }
    }

    /// Passes on what is said in the place of those who cannot be reached, or were not.
    pub(super) fn speak_for_others(&mut self, cx: &mut Context<'_>) {
        if self.flows.due().is_none_or(|due| due > cx.now) {
            self.tell_owed(cx);
            return;
        }
        let mut packet = std::mem::take(&mut self.spoken);
        loop {
            if cx.out.is_full() {
                self.flows.rest(cx.now + REST);
                break;
            }
            if self.claimed().is_some_and(|path| !path.allows(MAX_DATAGRAM)) {
                self.flows.rest(cx.now + REST_UNHEARD);
                break;
            }
            packet.clear();
            let Some(output) = self.flows.poll(cx.now, cx.memory, &mut packet) else { break };
            if let Err(reason) = self.pass_on(cx, output, &packet) {
                cx.drops.count(reason);
            }
        }
        self.spoken = packet;
        self.tell_owed(cx);
    }

    /// Has the shell write down what will be owed, and strike out what is not owed any more; counts
    /// what was given up.
    fn tell_owed(&mut self, cx: &mut Context<'_>) {
        while let Some(reason) = self.flows.poll_drop() {
            cx.drops.count(reason);
        }
        while let Some(tuple) = self.flows.poll_record() {
            cx.tell(Event::Owing { peer: self.key, tuple });
        }
        while let Some(tuple) = self.flows.poll_settled() {
            cx.tell(Event::Settled { peer: self.key, tuple });
        }
    }

    /// The path `id`, which is in use, was asked whether it is there again: what open connections
    /// received last goes with the question. It is not kept: it will be asked again.
    pub(super) fn repeat_news(&mut self, cx: &mut Context<'_>, id: PathId) {
        let mut packet = std::mem::take(&mut self.spoken);
        for nth in 0.. {
            packet.clear();
            if self.flows.news(nth, &mut packet).is_none() {
                break;
            }
            let Ok(whole) = InnerPacket::whole(&packet) else { continue };
            let mut head = std::mem::take(&mut self.narrowed);
            let is_narrowed = self.flows.narrow(cx.now, &whole, &mut head);
            let whole = if is_narrowed { whole.with_head(&head) } else { whole };
            let sent = self.send_on(cx, id, Load::Quiet, |draft| {
                pack::push(draft, Framing::Plain, whole.pieces);
            });
            self.narrowed = head;
            if let Err(reason) = sent {
                cx.drops.count(reason);
            }
        }
        self.spoken = packet;
    }

    /// The session is over for good: who was promised something is told so.
    pub(super) fn break_promises(&mut self, cx: &mut Context<'_>) {
        let (mut packets, mut ends) = (Vec::new(), Vec::new());
        self.flows.terminate(cx.memory, &mut packets, &mut ends);
        let starts = std::iter::once(0).chain(ends.iter().copied());
        for (start, &end) in starts.zip(&ends) {
            if let Err(reason) = self.pass_on(cx, Output::ToLocal, &packets[start..end]) {
                cx.drops.count(reason);
            }
        }
        self.tell_owed(cx);
    }

    /// Leaves, unless somebody is still to be told that a connection is over: what came for others
    /// since the session ended is forgotten, and the memory it took is free. Returns whether it has
    /// left.
    pub(crate) fn leave(&mut self, memory: &mut Memory) -> bool {
        if self.flows.is_breaking_off() {
            return false;
        }
        self.flows.terminate(memory, &mut Vec::new(), &mut Vec::new());
        true
    }

    /// The connections.
    #[cfg(test)]
    pub(crate) const fn flows(&self) -> &crate::flow::Flows {
        &self.flows
    }

    /// What is done for connections that are seen from now on; who is not to be assisted any more
    /// is owed what it was promised, and no more.
    pub(crate) fn set_hold(&mut self, cx: &mut Context<'_>, rules: Rules) {
        self.flows.set_rules(rules);
        self.assist_or_not(cx);
        self.speak_for_others(cx);
    }

    /// Client: what its user prefers from now on.
    pub(crate) fn set_priorities(&mut self, cx: &mut Context<'_>, priorities: Priorities) {
        if *self.flows.priorities() != priorities {
            self.flows.set_priorities(cx.memory, priorities);
        }
    }

    /// What will be owed for a connection is written down.
    pub(crate) fn recorded(&mut self, cx: &mut Context<'_>, tuple: &Tuple) {
        self.flows.recorded(tuple);
        self.speak_for_others(cx);
    }

    /// Bytes of a connection were owed, and are gone.
    pub(crate) fn break_off(&mut self, cx: &mut Context<'_>, tuple: Tuple) {
        self.flows.break_off(cx.now, cx.memory, tuple);
        self.speak_for_others(cx);
    }

    fn pass_on(
        &mut self,
        cx: &mut Context<'_>,
        output: Output,
        packet: &[u8],
    ) -> Result<(), DropReason> {
        match output {
            Output::ToLocal if cx.out.push_inner(packet) => Ok(()),
            Output::ToLocal => Err(DropReason::QueueFull),
            Output::ToRemote => self.send_narrowed(cx, &InnerPacket::whole(packet)?, 0),
        }
    }
}

#[cfg(test)]
#[path = "hold_tests.rs"]
mod tests;
