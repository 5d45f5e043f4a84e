//! `rove flows`: open connections, in words.

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::output::{self, field};
use crate::cli::{ExplainArgs, OutputArgs};
use crate::control::{self, AskError, Request};
use crate::home::{Home, Role};

/// Characters of a line.
const WIDTH: usize = 100;
/// What stands below a connection's line begins with.
const INDENT: &str = "  ";

/// Those of the client in `home`, else of the gateway there.
pub(super) fn of_any(home: &Home, args: OutputArgs) -> Result<()> {
    show(home, ask_any(home, &[])?, args)
}

/// Why connections that `args` name are treated as they are: of the client in `home`, else of the
/// gateway there.
pub(super) fn explain(home: &Home, args: &ExplainArgs) -> Result<()> {
    let Some(reply) = ask_any(home, &args.flow)? else {
        bail!("nothing runs here: connect with `rove up`")
    };
    let meant = reply.get("flows").and_then(Value::as_array).map(Vec::as_slice);
    let meant = meant.unwrap_or_default();
    if meant.is_empty() {
        bail!("no open connection is known by {:?}: see `rove flows`", args.flow.join(" "));
    }
    if args.json {
        return output::json(&json!({ "flows": meant }));
    }
    let texts: Vec<String> = meant.iter().map(explanation).collect();
    output::print(&texts.join("\n"))
}

/// All that is known of one connection, a line for each.
fn explanation(flow: &Value) -> String {
    let number = |name| flow.get(name).and_then(Value::as_u64).unwrap_or_default();
    let lines = [
        ("class", field(flow, "class").to_owned()),
        ("sealed by", field(flow, "profile").to_owned()),
        ("goes by", goes_by(flow)),
        ("chosen", field(flow, "chosen").to_owned()),
        ("state", format!("{}, {}", field(flow, "stage"), field(flow, "state"))),
        ("held", bytes(number("held_bytes"))),
        ("owed", bytes(number("owed_bytes"))),
        ("idle", time(number("idle_ms") / 1_000)),
        ("because", field(flow, "why").to_owned()),
    ];
    let level = level(flow).map(|level| ("level", level));
    let queue = queue(flow).map(|queue| ("waits", queue));
    let mut text = format!("{}\n", field(flow, "tuple"));
    for (name, value) in lines.into_iter().chain(queue).chain(level) {
        text.push_str(&format!("{INDENT}{name:<9}  {value}\n"));
    }
    text
}

/// By which links it goes; at a gateway, which has none of its own to choose among, to where.
fn goes_by(flow: &Value) -> String {
    match (names(flow, "links").join(" and "), names(flow, "remotes").join(" and ")) {
        (links, _) if !links.is_empty() => links,
        (_, remotes) if !remotes.is_empty() => format!("what leads to {remotes}"),
        (_, _) => "nothing yet".to_owned(),
    }
}

/// The names in a list of a connection.
fn names<'a>(flow: &'a Value, list: &str) -> Vec<&'a str> {
    let all = flow.get(list).and_then(Value::as_array).map(Vec::as_slice);
    all.unwrap_or_default().iter().filter_map(Value::as_str).collect()
}

/// Its level, where that is not the usual one, and what follows from it now.
fn level(flow: &Value) -> Option<String> {
    let level = flow.get("level").and_then(Value::as_u64)?;
    let narrowed_to = flow.get("narrowed_to_bytes").and_then(Value::as_u64);
    let room = narrowed_to.map(bytes);
    match (level, room) {
        (2, None) => None,
        (level, None) => Some(level.to_string()),
        (level, Some(room)) => {
            Some(format!("{level}; leaves room for others: its sender is shown {room} of window"))
        }
    }
}

/// What of it waits where it enters the tunnel, and for how long it may.
fn queue(flow: &Value) -> Option<String> {
    let [queued, target_ms, interval_ms] = ["queued_bytes", "queue_target_ms", "queue_interval_ms"]
        .map(|name| flow.get(name).and_then(Value::as_u64));
    let (queued, target_ms, interval_ms) = (bytes(queued?), target_ms?, interval_ms?);
    Some(format!(
        "{queued} at the tunnel's entry; told to slow down after {interval_ms} ms above \
         {target_ms} ms"
    ))
}

/// Those of the gateway in `home`.
pub(super) fn of_gateway(home: &Home, args: OutputArgs) -> Result<()> {
    show(home, ask(home, Role::Gateway, &[])?, args)
}

/// What the client in `home` says of connections that the words `meant` fit, else the gateway.
fn ask_any(home: &Home, meant: &[String]) -> Result<Option<Value>> {
    match ask(home, Role::Client, meant)? {
        Some(reply) => Ok(Some(reply)),
        None => ask(home, Role::Gateway, meant),
    }
}

/// What the node says; nothing where none runs.
fn ask(home: &Home, role: Role, meant: &[String]) -> Result<Option<Value>> {
    match control::ask::<Value>(&home.socket(role)?, &Request::Flows { meant: meant.to_vec() }) {
        Err(AskError::NotRunning) => Ok(None),
        reply => {
            let mut reply = reply?;
            reply["node"] = match role {
                Role::Client => "client",
                Role::Gateway => "gateway",
            }
            .into();
            Ok(Some(reply))
        }
    }
}

fn show(home: &Home, reply: Option<Value>, args: OutputArgs) -> Result<()> {
    match (reply, args.json) {
        (Some(reply), true) => output::json(&reply),
        (Some(reply), false) => output::print(&text(&reply)),
        (None, true) => output::json(&json!({
            "node": null,
            "flows": [],
            "known": 0,
            "complete": true,
            "held_bytes": 0,
            "memory_bytes": null,
            "hold": null,
            "rules": 0,
        })),
        (None, false) if home.config(Role::Gateway).exists() => {
            output::line("the gateway does not run: start it with `rove gateway run`")
        }
        (None, false) => output::line("not up: connect with `rove up`"),
    }
}

/// A line that sums it up, and for each connection one with what it is and one with why.
fn text(reply: &Value) -> String {
    let number = |name| reply.get(name).and_then(Value::as_u64).unwrap_or_default();
    let flows = reply.get("flows").and_then(Value::as_array).map(Vec::as_slice);
    let flows = flows.unwrap_or_default();
    if flows.is_empty() {
        let off = field(reply, "hold") == "off" && number("rules") == 0;
        let why = if off { ": none is looked at, as persistence.hold = \"off\" says" } else { "" };
        return format!("no open connection is known{why}\n");
    }
    let (known, shown) = (number("known"), flows.len() as u64);
    let complete = reply.get("complete").and_then(Value::as_bool).unwrap_or(true);
    let plural = if known == 1 { "" } else { "s" };
    let mut text = format!(
        "{}{known} open connection{plural}, {} of at most {} held",
        if complete { "" } else { "more than " },
        bytes(number("held_bytes")),
        bytes(number("memory_bytes")),
    );
    if shown < known {
        text.push_str(&format!("; the {shown} that are held, or were used last:"));
    }
    text.push('\n');
    let gateway = field(reply, "node") == "gateway";
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
            let (local, remote) = (field(flow, "local"), field(flow, "remote"));
            text.push_str(&format!("{INDENT}{local}  {remote}\n"));
        }
        text.push_str(&format!("{INDENT}{}\n", field(flow, "why")));
        if let Some(level) = level(flow) {
            text.push_str(&format!("{INDENT}level {level}\n"));
        }
    }
    text
}

fn row(flow: &Value, gateway: bool) -> [String; 7] {
    let number = |name| flow.get(name).and_then(Value::as_u64).unwrap_or_default();
    // Who is carried as usual is somewhere between its beginning and its end.
    let state = match field(flow, "state") {
        "normal" => field(flow, "stage"),
        state => state,
    };
    let held = Some(number("held_bytes")).filter(|&held| held > 0);
    [
        state.to_owned(),
        held.map(bytes).unwrap_or_default(),
        time(number("idle_ms") / 1_000),
        field(flow, "class").to_owned(),
        if gateway { field(flow, "peer").to_owned() } else { names(flow, "links").join("+") },
        field(flow, "local").to_owned(),
        field(flow, "remote").to_owned(),
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
