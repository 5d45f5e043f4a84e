//! Applies what the user says to the flows of a session, when he says it or when a flow is new.
//!
//! Flows that are known are judged anew, and go on: nothing here ends or delays one. Asks the shell
//! whose a flow is, if a rule is for a user.

use super::Flows;
use super::classify::classify;
use super::overrides::{Devices, Overrides, Whose};
use super::pep::memory::Memory;
use super::pep::race::Race;
use super::priority::Priorities;
use super::record::Flow;
use super::tuple::Tuple;
use crate::id::FlowId;
use crate::packet::Strength;
use crate::wire::inner::{Headers, InnerPacket};

/// Flows about whose users the shell is asked at once. Programs that open more at once wait for a
/// later packet of each.
const QUESTIONS_MAX: usize = 64;

/// What is preferred from now on.
pub(crate) fn set_priorities(flows: &mut Flows, memory: &mut Memory, priorities: Priorities) {
    if flows.wishes.priorities != priorities {
        flows.wishes.priorities = priorities;
        all(flows, memory);
    }
}

/// The user's rules from now on.
pub(crate) fn set_overrides(flows: &mut Flows, memory: &mut Memory, overrides: Overrides) {
    if flows.wishes.overrides != overrides {
        flows.wishes.overrides = overrides;
        all(flows, memory);
    }
}

/// The user wants something else: every flow is judged anew.
fn all(flows: &mut Flows, memory: &mut Memory) {
    let levels = flows.wishes.levels();
    for flow in flows.table.flows_mut() {
        flow.judge(&flows.wishes);
        let level = flow.packet(0).level;
        if let Some(connection) = &mut flow.connection {
            connection.judge_anew(memory, levels, level);
        }
    }
    flows.race = Race::of(levels);
}

/// Which end of a flow is the device that the rules name. To be set before any rule.
pub(crate) const fn set_devices(flows: &mut Flows, devices: Devices) {
    flows.wishes.devices = devices;
}

/// If a rule is for a user, the shell is asked whose flow it is, once. If it has too many
/// questions, it is asked with a later packet.
pub(super) fn ask_whose(flows: &mut Flows, id: FlowId) {
    if !flows.wishes.asks_users() || flows.unidentified.len() >= QUESTIONS_MAX {
        return;
    }
    let flow = flows.table.flow_mut(id);
    flows.unidentified.extend(flow.and_then(Flow::ask_whose));
}

/// A flow whose user is to be found out; to be answered with [`identified`].
pub(crate) fn poll_unidentified(flows: &mut Flows) -> Option<Tuple> {
    flows.unidentified.pop()
}

/// The flow between these ends is that of this user, or of no user of the host.
pub(crate) fn identified(flows: &mut Flows, tuple: &Tuple, user: Option<u32>) {
    let id = flows.table.id_of(tuple);
    if let Some(flow) = id.and_then(|id| flows.table.flow_mut(id)) {
        flow.identified(user);
        flow.judge(&flows.wishes);
    }
}

/// The strength that a packet of `flow` asks for that is sent again. Of a flow that is not known
/// any more it is the highest of any rule.
pub(crate) fn strength_again(flows: &Flows, flow: Option<FlowId>) -> Strength {
    let strongest = flows.wishes.overrides.strongest();
    if strongest == Strength::default() {
        return strongest;
    }
    let known = flow.and_then(|id| flows.flow(id));
    known.map_or(strongest, |flow| flow.packet(0).marks.strength())
}

/// Something came that is no TCP: if some flows are preferred, it is counted at its level.
pub(super) fn note_other(flows: &mut Flows, packet: &InnerPacket<'_>) {
    if flows.race.is_off() {
        return;
    }
    let Headers { ports, source, destination, protocol, .. } = packet.headers;
    let (from, to) = ports.unwrap_or_default();
    let tuple = Tuple { local: (destination, to), remote: (source, from), protocol };
    let known = flows.table.id_of(&tuple).and_then(|id| flows.table.flow(id));
    let by_rules = || {
        let class = classify(tuple.ports(), false);
        flows.wishes.level(&tuple, &flows.wishes.decide(&tuple, class, Whose::Unasked))
    };
    let level = known.map_or_else(by_rules, |flow| flow.packet(0).level);
    flows.race.note_other(level, packet);
}
