//! What `rove flows` tells, from pages of the core. Keys are only ever added.
//!
//! Looks at every connection and keeps the few that somebody would look for: first what is not as
//! usual, by how much of it is held, then by when it was used.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result};
use rove_api::{self as api, Flow, Flows, LinkMode, Node, RuleSays};
use rove_proto::flow::Hold;
use rove_proto::flow::overrides::Decided;
use rove_proto::flow::priority::Level;
use rove_proto::flow::report::{Because, FlowReport, FlowState, Stage, Why};
use rove_proto::flow::tuple::Tuple;
use rove_proto::id::PeerKey;
use rove_proto::node::PeerStatus;
use rove_proto::packet::Strength;
use rove_proto::policy;
use rove_proto::wire::inner::{TCP, UDP};

use crate::config::{Device, FlowRules, Persistence};
use crate::data::Handle;
use crate::way::Way;

/// Connections that are told of.
const TOLD_MAX: usize = 1_000;
/// Pages that are asked for: more than twice what all connections that a node can know fill, places
/// that are free again and peers without any among them.
const PAGES_MAX: usize = 2_048;

/// Who is at the other end of the tunnel, and by what it is reached.
pub struct Whose {
    /// How people call it.
    pub peer: String,
    /// On a client: the links of its paths, by the paths' numbers.
    pub links: BTreeMap<u32, String>,
    /// What a client makes of its links; a gateway does as each client says.
    pub mode: Option<LinkMode>,
}

/// The connections that somebody would look for.
#[derive(Default)]
struct Found {
    first: Vec<(PeerKey, FlowReport)>,
    /// All that there were.
    seen: usize,
    /// What is held of all of them.
    held_bytes: usize,
    memory_bytes: usize,
    is_all: bool,
}

/// `rove flows`, of those that all words of `meant` fit. `whose` names a peer, and its session's
/// path where it has one. `rules` are those that the core was told last.
pub fn tell(
    node: Node,
    data: &Handle,
    (persistence, rules): (&Persistence, &FlowRules),
    meant: &[String],
    whose: impl Fn(PeerKey, Option<&PeerStatus>) -> Whose,
) -> Result<Flows> {
    let silent = "the data thread does not answer: see the log";
    let found = find(data, meant).context(silent)?;
    let peers: BTreeSet<PeerKey> = found.first.iter().map(|(peer, _)| *peer).collect();
    let snapshot = data.status(Some(peers.iter().copied().collect())).context(silent)?;
    let sessions = snapshot.peers.iter().map(|session| (session.peer, session));
    let sessions: BTreeMap<PeerKey, &PeerStatus> = sessions.collect();
    let named = peers.into_iter().map(|peer| (peer, whose(peer, sessions.get(&peer).copied())));
    let named: BTreeMap<PeerKey, Whose> = named.collect();
    let flows = found.first.iter();
    let flows = flows.map(|(peer, report)| {
        let (whose, session) = (named.get(peer), sessions.get(peer).copied());
        let mode = whose.and_then(|whose| whose.mode);
        let way = session.map(|session| Way::of(report, session, mode, &snapshot.streams));
        with_rules(flow(report, whose, session, way.as_ref()), report, node, rules)
    });
    Ok(Flows {
        node: Some(node),
        flows: flows.collect(),
        known: found.seen as u64,
        complete: found.is_all,
        held_bytes: found.held_bytes as u64,
        memory_bytes: Some(found.memory_bytes as u64),
        hold: Some(word(persistence.hold)),
        rules: persistence.rules.len() as u64,
        blocked: None,
    })
}

/// The address that alone was asked for, with or without a port.
pub fn address(words: &[String]) -> Option<IpAddr> {
    let [word] = words else { return None };
    let with_port = || word.parse().ok().map(|place: SocketAddr| place.ip());
    word.parse().ok().or_else(with_port)
}

/// The word for it in the configuration.
const fn word(hold: Hold) -> api::Hold {
    match hold {
        Hold::Full => api::Hold::Full,
        Hold::Reinject => api::Hold::Reinject,
        Hold::Off => api::Hold::Off,
    }
}

/// Looks at every connection, for those that are meant.
fn find(data: &Handle, meant: &[String]) -> Option<Found> {
    let mut found = Found::default();
    let mut from = None;
    for _ in 0..PAGES_MAX {
        let page = data.flows(from)?;
        (found.held_bytes, found.memory_bytes) = (page.held_bytes, page.memory_bytes);
        found.seen += page.flows.len();
        found.first.extend(page.flows.into_iter().filter(|(_, flow)| is_meant(flow, meant)));
        if found.first.len() >= 2 * TOLD_MAX {
            found.keep_the_first();
        }
        from = page.next;
        if from.is_none() {
            found.is_all = true;
            break;
        }
    }
    found.keep_the_first();
    Some(found)
}

impl Found {
    fn keep_the_first(&mut self) {
        self.first.sort_by_key(|(peer, flow)| (rank(flow), *peer, flow.tuple));
        self.first.truncate(TOLD_MAX);
    }
}

/// Whether all `words` fit a connection.
fn is_meant(flow: &FlowReport, words: &[String]) -> bool {
    if words.is_empty() {
        return true; // there may be very many to look at
    }
    let (protocol, local, remote) = self::words(&flow.tuple);
    let parts = |(ip, port): (IpAddr, u16)| [ip.to_string(), port.to_string()];
    let parts = [flow.tuple.local, flow.tuple.remote].map(parts).concat();
    let fits = |word: &str| {
        [protocol, flow.class.label(), &local, &remote].contains(&word)
            || parts.iter().any(|part| part == word)
    };
    words.iter().flat_map(|word| word.split_whitespace()).all(fits)
}

/// The less, the sooner somebody would look for it.
fn rank(flow: &FlowReport) -> (bool, Reverse<usize>, Duration) {
    match flow.state {
        // What is held of it is on its way.
        FlowState::Normal | FlowState::Assisted => (true, Reverse(0), flow.idle),
        FlowState::Suspended | FlowState::Resuming | FlowState::Broken => {
            (false, Reverse(flow.held_bytes), flow.idle)
        }
    }
}

/// A connection as people name it.
pub fn tuple(tuple: &Tuple) -> String {
    let (protocol, local, remote) = words(tuple);
    format!("{protocol} {local} {remote}")
}

fn words(tuple: &Tuple) -> (&'static str, String, String) {
    let end = |(ip, port)| SocketAddr::new(ip, port).to_string();
    let protocol = match tuple.protocol {
        TCP => "tcp",
        UDP => "udp",
        _ => "other",
    };
    (protocol, end(tuple.local), end(tuple.remote))
}

fn flow(
    report: &FlowReport,
    whose: Option<&Whose>,
    session: Option<&PeerStatus>,
    way: Option<&Way<'_>>,
) -> Flow {
    let FlowReport { tuple, class, state, stage, .. } = report;
    let (protocol, local, remote) = words(tuple);
    let ways = way.map(|way| way.paths.as_slice()).unwrap_or_default();
    let path = ways.first().map(|path| path.id);
    let link = |path: u32| whose.and_then(|whose| whose.links.get(&path)).cloned();
    let asked = report.decided.asked();
    let profile = session.and_then(|session| session.profile);
    let suite = profile.map(|profile| policy::raised(profile.suite(), asked));
    Flow {
        tuple: self::tuple(tuple),
        protocol: protocol.to_owned(),
        local,
        remote,
        peer: whose.map(|whose| whose.peer.clone()),
        class: class.label().to_owned(),
        level: report.level.number(),
        device: None,
        rules: Vec::new(),
        narrowed_to_bytes: report.narrowed_to,
        queued_bytes: report.queue.map(|queue| queue.bytes as u64),
        queue_target_ms: report.queue.map(|queue| ms(queue.bound.target)),
        queue_interval_ms: report.queue.map(|queue| ms(queue.bound.interval)),
        profile: suite.map(|suite| suite.label().to_owned()),
        path,
        link: path.and_then(link),
        links: ways.iter().filter_map(|path| link(path.id)).collect(),
        remotes: ways.iter().map(|path| path.remote()).collect(),
        chosen: way.map(|way| way.why().to_owned()),
        held_bytes: report.held_bytes as u64,
        owed_bytes: report.owed_bytes,
        state: state.label().to_owned(),
        stage: stage.label().to_owned(),
        answered: match (report.why, tuple.protocol) {
            (Why::Refused | Why::RefusedOnTheWay | Why::NoWay, _) => true,
            (_, TCP) => *stage != Stage::Opening,
            _ => report.received != 0,
        },
        idle_ms: ms(report.idle),
        why: why(report.why),
    }
}

/// The same with the name of its device, and with what the rules say of it.
fn with_rules(flow: Flow, report: &FlowReport, node: Node, rules: &FlowRules) -> Flow {
    let Tuple { local, remote, .. } = report.tuple;
    let device = match node {
        Node::Client => local.0,
        Node::Gateway => remote.0,
    };
    let device = rules.device_of(device).map(|device| device.name.clone());
    let Decided { strength, level, copies, goal, .. } = report.decided;
    let says = |property: &str, value: String, number: u8| {
        // The rules may have changed a moment ago.
        let rule = rules.label(number)?.to_owned();
        Some(RuleSays { property: property.to_owned(), value, rule })
    };
    let says = [
        strength.and_then(|by| says("strength", bits(by.value).to_string(), by.rule)),
        level.and_then(|by| says("priority", by.value.number().to_string(), by.rule)),
        goal.and_then(|by| says("goal", by.value.label().to_owned(), by.rule)),
        copies.and_then(|by| says("copies", by.value.label().to_owned(), by.rule)),
    ];
    Flow { device, rules: says.into_iter().flatten().collect(), ..flow }
}

/// The key length that a strength stands for, in bits.
const fn bits(strength: Strength) -> u16 {
    match strength {
        Strength::Bits128 => 128,
        Strength::Bits256 => 256,
    }
}

/// A device of the configuration, for the status.
pub fn device(device: &Device) -> api::Device {
    let Device { name, network, asks } = device;
    let is_host = network.prefix_len() == network.max_prefix_len();
    let address = if is_host { network.addr().to_string() } else { network.to_string() };
    api::Device {
        name: name.clone(),
        address,
        strength: asks.strength.map(bits),
        priority: asks.level.map(Level::number),
        goal: asks.goal.map(|goal| goal.label().to_owned()),
        copies: asks.copies.map(|copies| copies.label().to_owned()),
    }
}

/// Why it is treated so, in words.
fn why(why: Why) -> String {
    if why == Why::CarriedInPart(Because::Midst) {
        return "carried. Rove did not see its start, so it cannot keep it through an outage"
            .to_owned();
    }
    why.to_string()
}

/// A time in whole milliseconds.
fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
#[path = "flows_tests.rs"]
mod tests;
