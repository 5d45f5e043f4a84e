//! `rove flows`: open connections, in words.

use std::net::IpAddr;

use anyhow::{Result, bail};
use rove_api::{ClientStatus, Explanation, Flow, Flows, Hold, Node};
use rove_host::control::{self, AskError, Request};
use rove_host::flows;
use rove_host::home::{Home, Role};

use super::output;
use crate::cli::{ExplainArgs, OutputArgs};

/// Characters of a line.
const WIDTH: usize = 100;
/// What stands below a connection's line begins with.
const INDENT: &str = "  ";

/// That packets reach the gateway does not mean that they leave its host.
const UNANSWERED: &str =
    "no; if nothing else answers either, run `rove gateway check` on the gateway";

/// During an outage nobody is answered.
const WITHOUT_TUNNEL: &str = "no; the tunnel does not carry now: see `rove check`";

/// Those of the client in `home`, else of the gateway there.
pub(super) fn of_any(home: &Home, args: OutputArgs) -> Result<()> {
    show(home, ask_any(home, &[], None)?, args)
}

/// Why connections that `args` name are treated as they are: of the client in `home`, else of the
/// gateway there.
///
/// Without such a connection it says where packets of this user to the address end. A command of
/// root has become the node's user, whose packets other rules may lead elsewhere.
pub(super) fn explain(home: &Home, args: &ExplainArgs, user: u32) -> Result<()> {
    let Some(reply) = ask_any(home, &args.flow, Some(user))? else {
        bail!("nothing runs here: connect with `rove up`")
    };
    let flows = reply.flows;
    if flows.is_empty()
        && reply.node == Some(Node::Client)
        && let Some(address) = flows::address(&args.flow)
    {
        return explain_address(home, (address, user), reply.blocked == Some(true), args.json);
    }
    if flows.is_empty() {
        bail!("no open connection is known by {:?}: see `rove flows`", args.flow.join(" "));
    }
    if args.json {
        return output::json(&Explanation { flows, uses_tunnel: None, blocked: None });
    }
    // Whether others are answered tells a destination from a gateway that leads nowhere.
    let is_any_unanswered = flows.iter().any(|flow| !flow.answered);
    let all = if is_any_unanswered { ask_any(home, &[], None)? } else { None };
    let all = all.map(|all| all.flows).unwrap_or_default();
    let others: Vec<&Flow> =
        all.iter().filter(|one| flows.iter().all(|flow| flow.tuple != one.tuple)).collect();
    let carries = !is_any_unanswered || reply.node != Some(Node::Client) || carries(home)?;
    let texts = flows.iter().map(|flow| explanation(flow, &others, carries));
    output::print(&texts.collect::<Vec<_>>().join("\n"))
}

/// Whether the client's tunnel carries now, as far as the client knows.
fn carries(home: &Home) -> Result<bool> {
    let status: ClientStatus = control::ask(&home.socket(Role::Client)?, &Request::Status)?;
    Ok(status.carrying)
}

/// Says whether packets of a user to an address use the tunnel, as the kernel routes them now.
fn explain_address(
    home: &Home,
    (address, user): (IpAddr, u32),
    blocked: bool,
    json: bool,
) -> Result<()> {
    let is_own = rove_os::plan::is_own(address)?;
    let status: ClientStatus = control::ask(&home.socket(Role::Client)?, &Request::Status)?;
    let leaves_on = rove_os::plan::link_to(address, user)?;
    let links = rove_os::links::snapshot()?;
    let is_inner = |name: &str| {
        let mut own = links.iter().filter(|link| link.name == name).flat_map(|l| &l.addresses);
        own.any(|net| status.inner.contains(&net.addr()))
    };
    let uses_tunnel = leaves_on.as_deref().map(is_inner).or_else(|| is_own.then_some(false));
    let blocked = blocked && uses_tunnel == Some(false);
    if json {
        return output::json(&Explanation {
            flows: Vec::new(),
            uses_tunnel,
            blocked: Some(blocked),
        });
    }
    let leads = match leaves_on {
        _ if is_own => Leads::Here,
        Some(link) if uses_tunnel == Some(true) => Leads::Inside(link),
        Some(link) if blocked => Leads::Blocked(link),
        Some(link) => Leads::Outside(link),
        None => Leads::Nowhere,
    };
    output::line(&of_address(address, &leads))
}

/// Where packets of this host to an address end.
enum Leads {
    Here,
    Inside(String),
    Blocked(String),
    Outside(String),
    Nowhere,
}

fn of_address(address: IpAddr, leads: &Leads) -> String {
    match leads {
        Leads::Here => format!("{address} is an address of this host"),
        Leads::Inside(link) => {
            format!("{address} uses the tunnel ({link}); no open connection to it is known")
        }
        Leads::Blocked(link) => format!(
            "{address} does not use the tunnel: routing sends its packets to {link}, and Rove \
             blocks them there; see `rove status`"
        ),
        Leads::Outside(link) => {
            format!("{address} does not use the tunnel: its packets leave on {link}")
        }
        Leads::Nowhere => format!("no packet to {address} leaves: no route leads there"),
    }
}

/// All that is known of one connection, a line for each.
fn explanation(flow: &Flow, others: &[&Flow], carries: bool) -> String {
    let lines = [
        ("class", flow.class.clone()),
        ("sealed by", flow.profile.clone().unwrap_or_default()),
        ("goes by", goes_by(flow)),
        ("chosen", flow.chosen.clone().unwrap_or_default()),
        ("state", format!("{}, {}", flow.stage, flow.state)),
        ("held", bytes(flow.held_bytes)),
        ("owed", bytes(flow.owed_bytes.into())),
        ("idle", time(flow.idle_ms / 1_000)),
        ("because", flow.why.clone()),
    ];
    let answered = match (flow.answered, carries) {
        (true, _) => None,
        (false, true) => Some(("answered", unanswered(flow, others))),
        (false, false) => Some(("answered", WITHOUT_TUNNEL.to_owned())),
    };
    let device = flow.device.clone().map(|name| ("device", name));
    let rules = flow.rules.iter();
    let rules = rules
        .map(|says| (says.property.as_str(), format!("{}, as {} says", says.value, says.rule)));
    let level = level(flow).map(|level| ("level", level));
    let queue = queue(flow).map(|queue| ("waits", queue));
    let mut text = format!("{}\n", flow.tuple);
    let all = device.into_iter().chain(lines).chain(answered).chain(queue).chain(level);
    for (name, value) in all.chain(rules) {
        text.push_str(&format!("{INDENT}{name:<9}  {value}\n"));
    }
    text
}

/// That nothing has come back, and whether that is so of `others` of this address family, too. The
/// gateway's host may have a route for one family only.
fn unanswered(flow: &Flow, others: &[&Flow]) -> String {
    let is_v6 = |flow: &Flow| flow.remote.matches(':').count() > 1;
    let family = if is_v6(flow) { "IPv6" } else { "IPv4" };
    let others = || others.iter().filter(|other| is_v6(other) == is_v6(flow));
    let (all, answered) = (others().count(), others().filter(|flow| flow.answered).count());
    match (all, answered) {
        (0, _) => UNANSWERED.to_owned(),
        (_, 0) => format!(
            "no; of the other {family} connections 0 of {all} are answered: run `rove gateway \
             check` on the gateway, which tests its host"
        ),
        (_, _) => format!(
            "no; of the other {family} connections {answered} of {all} are answered: this \
             destination does not answer, or a filter in front of it drops the packets"
        ),
    }
}

/// By which links it goes; at a gateway, which has none of its own to choose among, to where.
fn goes_by(flow: &Flow) -> String {
    let joined = |names: Vec<String>| names.join(" and ");
    match (flow.links.is_empty(), flow.remotes.is_empty()) {
        (false, _) => joined(flow.links.iter().cloned().collect()),
        (true, false) => {
            let remotes = flow.remotes.iter().map(ToString::to_string);
            format!("what leads to {}", joined(remotes.collect()))
        }
        (true, true) => "nothing yet".to_owned(),
    }
}

/// Its level, where that is not the usual one, and what follows from it now.
fn level(flow: &Flow) -> Option<String> {
    match (flow.level, flow.narrowed_to_bytes) {
        (2, None) => None,
        (level, None) => Some(level.to_string()),
        (level, Some(room)) => {
            let room = bytes(room.into());
            Some(format!("{level}; leaves room for others: its sender is shown {room} of window"))
        }
    }
}

/// What of it waits where it enters the tunnel, and for how long it may.
fn queue(flow: &Flow) -> Option<String> {
    let (queued, target_ms) = (bytes(flow.queued_bytes?), flow.queue_target_ms?);
    let interval_ms = flow.queue_interval_ms?;
    Some(format!(
        "{queued} at the tunnel's entry; told to slow down after {interval_ms} ms above \
         {target_ms} ms"
    ))
}

/// Those of the gateway in `home`.
pub(super) fn of_gateway(home: &Home, args: OutputArgs) -> Result<()> {
    show(home, ask(home, Role::Gateway, &[], None)?, args)
}

/// What the client in `home` says of connections that the words `meant` fit, else the gateway.
fn ask_any(home: &Home, meant: &[String], user: Option<u32>) -> Result<Option<Flows>> {
    match ask(home, Role::Client, meant, user)? {
        Some(reply) => Ok(Some(reply)),
        None => ask(home, Role::Gateway, meant, user),
    }
}

/// What the node says; nothing where none runs.
fn ask(home: &Home, role: Role, meant: &[String], user: Option<u32>) -> Result<Option<Flows>> {
    let request = Request::Flows { meant: meant.to_vec(), user };
    match control::ask(&home.socket(role)?, &request) {
        Err(AskError::NotRunning) => Ok(None),
        reply => Ok(Some(reply?)),
    }
}

fn show(home: &Home, reply: Option<Flows>, args: OutputArgs) -> Result<()> {
    match (reply, args.json) {
        (Some(reply), true) => output::json(&reply),
        (Some(reply), false) => output::print(&text(&reply)),
        (None, true) => output::json(&Flows {
            node: None,
            flows: Vec::new(),
            known: 0,
            complete: true,
            held_bytes: 0,
            memory_bytes: None,
            hold: None,
            rules: 0,
            blocked: None,
        }),
        (None, false) if home.config(Role::Gateway).exists() => {
            output::line("the gateway does not run: start it with `rove gateway run`")
        }
        (None, false) => output::line("not up: connect with `rove up`"),
    }
}

/// A line that sums it up, and for each connection one with what it is and one with why.
fn text(reply: &Flows) -> String {
    let flows = &reply.flows;
    if flows.is_empty() {
        let off = reply.hold == Some(Hold::Off) && reply.rules == 0;
        let why = if off { ": none is looked at, as persistence.hold = \"off\" says" } else { "" };
        return format!("no open connection is known{why}\n");
    }
    let (known, shown) = (reply.known, flows.len() as u64);
    let plural = if known == 1 { "" } else { "s" };
    let mut text = format!(
        "{}{known} open connection{plural}, {} of at most {} held",
        if reply.complete { "" } else { "more than " },
        bytes(reply.held_bytes),
        bytes(reply.memory_bytes.unwrap_or_default()),
    );
    if shown < known {
        text.push_str(&format!("; the {shown} that are held, or were used last:"));
    }
    text.push('\n');
    let gateway = reply.node == Some(Node::Gateway);
    let rows: Vec<[String; 7]> = flows.iter().map(|flow| row(flow, gateway)).collect();
    let by = if gateway { "PEER" } else { "LINKS" };
    let wide = output::table(["STATE", "HELD", "IDLE", "CLASS", by, "LOCAL", "REMOTE"], &rows);
    let fits = wide.lines().all(|line| line.chars().count() <= WIDTH);
    let table = if fits {
        wide
    } else {
        let rows = rows.iter().map(|[a, b, c, d, e, _, _]| [a, b, c, d, e].map(String::clone));
        output::table(["STATE", "HELD", "IDLE", "CLASS", by], &rows.collect::<Vec<_>>())
    };
    let mut lines = table.lines();
    text.extend(lines.next().map(|head| format!("{head}\n")));
    for (line, flow) in lines.zip(flows) {
        text.push_str(&format!("{line}\n"));
        if !fits {
            text.push_str(&format!("{INDENT}{}  {}\n", flow.local, flow.remote));
        }
        text.push_str(&format!("{INDENT}{}\n", flow.why));
        if let Some(level) = level(flow) {
            text.push_str(&format!("{INDENT}level {level}\n"));
        }
    }
    text
}

fn row(flow: &Flow, gateway: bool) -> [String; 7] {
    // Who is carried as usual is somewhere between its beginning and its end.
    let state = if flow.state == "normal" { &flow.stage } else { &flow.state };
    let held = Some(flow.held_bytes).filter(|&held| held > 0);
    let links = || flow.links.iter().map(String::as_str).collect::<Vec<_>>().join("+");
    [
        state.clone(),
        held.map(bytes).unwrap_or_default(),
        time(flow.idle_ms / 1_000),
        flow.class.clone(),
        if gateway { flow.peer.clone().unwrap_or_default() } else { links() },
        flow.local.clone(),
        flow.remote.clone(),
    ]
}

/// Bytes in the largest unit that fits; a KB is 1,024 of them, as in the configuration.
fn bytes(bytes: u64) -> String {
    let units = [(1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    match units.into_iter().find(|&(length, _)| bytes >= length) {
        None => format!("{bytes} B"),
        Some((length, unit)) if bytes.is_multiple_of(length) => {
            format!("{} {unit}", bytes / length)
        }
        Some((length, unit)) => {
            let tenths = bytes * 10 / length;
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
    }
}

/// A time in the largest unit that fits.
fn time(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "min")];
    let fits = units.into_iter().find(|&(length, _)| seconds >= length);
    let (length, unit) = fits.unwrap_or((1, "s"));
    format!("{} {unit}", seconds / length)
}

#[cfg(test)]
#[path = "flows_tests.rs"]
mod tests;
