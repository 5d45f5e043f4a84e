//! `rove paths` and `rove gateway paths`: what each path carries, in words. Which paths there are,
//! and in which order, the daemon says.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::{Value, json};

use super::output::{self, field};
use crate::cli::{PathsArgs, PeerPathsArgs};
use crate::control::{self, AskError, Request};
use crate::home::{Home, Role};

/// What is told of each path, at either end.
const HEAD: [&str; 11] =
    ["STATE", "LOCAL", "REMOTE", "BY", "RTT", "OUT", "IN", "SHARE", "QUEUE", "LOSS", "HEARD"];

/// How often they are shown again.
const WATCH_EVERY: Duration = Duration::from_secs(1);
/// A terminal's screen is cleared, and what follows stands at its top (ECMA-48: CUP, ED).
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Those of the client in `home`: once, or again and again.
pub(super) fn of_client(home: &Home, args: PathsArgs) -> Result<()> {
    if args.watch { watch(home, args) } else { output::print(&shown(home, args.json)?) }
}

/// A client that ends or begins meanwhile is no reason to stop looking.
fn watch(home: &Home, args: PathsArgs) -> Result<()> {
    let before = match (args.json, io::stdout().is_terminal()) {
        (true, _) => "",
        (false, true) => CLEAR,
        (false, false) => "\n",
    };
    let begun = Instant::now();
    let mut text = shown(home, args.json)?;
    if before == CLEAR {
        text.insert_str(0, CLEAR);
    }
    for times in 1u32.. {
        let next = WATCH_EVERY.saturating_mul(times);
        if !output::print_on(&text)? || args.lasts.is_some_and(|lasts| next > lasts.duration()) {
            break;
        }
        thread::sleep((begun + next).saturating_duration_since(Instant::now()));
        text = format!("{before}{}", shown(home, args.json)?);
    }
    Ok(())
}

fn shown(home: &Home, json: bool) -> Result<String> {
    let reply = match control::ask(&home.socket(Role::Client)?, &Request::Paths) {
        Err(AskError::NotRunning) if json => json!([]),
        Err(AskError::NotRunning) => return Ok("not up: connect with `rove up`\n".to_owned()),
        reply => reply?,
    };
    Ok(if json {
        format!("{}\n", serde_json::to_string(&reply)?)
    } else {
        client_text(reply.as_array().map(Vec::as_slice).unwrap_or_default())
    })
}

/// Those of the sessions of the gateway in `home`.
pub(super) fn of_gateway(home: &Home, args: PeerPathsArgs) -> Result<()> {
    let PeerPathsArgs { name, json } = args;
    let reply = match control::ask(
        &home.socket(Role::Gateway)?,
        &Request::PeerPaths { name: name.map(|n| n.to_string()) },
    ) {
        Err(AskError::NotRunning) if json => json!({ "paths": [], "known": 0, "complete": true }),
        Err(AskError::NotRunning) => {
            return output::line("the gateway does not run: start it with `rove gateway run`");
        }
        reply => reply?,
    };
    if json { output::json(&reply) } else { output::print(&gateway_text(&reply)) }
}

fn client_text(paths: &[Value]) -> String {
    let row = |path: &Value| {
        let rank = number(path, "link_rank").map(|rank| rank.to_string());
        let why = Some(field(path, "link_state").to_owned()).filter(|why| !why.is_empty());
        let usage = Some(field(path, "link_use").to_owned()).filter(|usage| usage == "backup");
        let signal = number(path, "signal_dbm").map(|dbm| format!("{dbm} dBm"));
        let rank: Vec<String> = [rank, usage, why, signal].into_iter().flatten().collect();
        cells([field(path, "link").to_owned(), rank.join(" ")], figures(path))
    };
    let rows: Vec<[String; 13]> = paths.iter().map(row).collect();
    let mut text = output::table(cells(["LINK", "RANK"], HEAD), &rows);
    if let Some(name) = paths.iter().map(|path| field(path, "scheduler")).find(|n| !n.is_empty()) {
        text.push_str(&format!("data goes by several, chosen among by {name}\n"));
    }
    text.extend(paths.iter().flat_map(subflows));
    let held = paths.iter().filter(|path| !field(path, "portal").is_empty());
    let told = |path: &Value| {
        let (link, page) = (field(path, "link"), field(path, "portal"));
        format!("captive portal on {link}: sign in at {page}\n")
    };
    let told: BTreeSet<String> = held.map(told).collect();
    text.extend(told);
    text
}

fn gateway_text(reply: &Value) -> String {
    let paths = reply.get("paths").and_then(Value::as_array).map(Vec::as_slice);
    let paths = paths.unwrap_or_default();
    let row = |path: &Value| cells([field(path, "peer").to_owned()], figures(path));
    let rows: Vec<[String; 12]> = paths.iter().map(row).collect();
    let mut text = output::table(cells(["PEER"], HEAD), &rows);
    text.extend(paths.iter().flat_map(subflows));
    if reply.get("complete").and_then(Value::as_bool) == Some(false) {
        let known = reply.get("known").and_then(Value::as_u64).unwrap_or_default();
        text.push_str(&format!(
            "{} of {known} paths, of the peers that were heard last; all of one peer: `rove \
             gateway paths NAME`\n",
            paths.len()
        ));
    }
    text
}

fn number(path: &Value, name: &str) -> Option<f64> {
    path.get(name).and_then(Value::as_f64)
}

/// The cells of a row: those of one end only, then those that both ends tell.
fn cells<T: Default, const OWN: usize, const ALL: usize>(
    own: [T; OWN],
    both: [T; HEAD.len()],
) -> [T; ALL] {
    const { assert!(OWN + HEAD.len() == ALL) };
    let mut cells = own.into_iter().chain(both);
    std::array::from_fn(|_| cells.next().unwrap_or_default())
}

/// A cell for each word of [`HEAD`].
fn figures(path: &Value) -> [String; HEAD.len()] {
    let shown = |name, scale: f64, unit| {
        number(path, name).map_or_else(String::new, |n| format!("{:.1}{unit}", n * scale))
    };
    [
        field(path, "state").to_owned(),
        field(path, "local").to_owned(),
        field(path, "remote").to_owned(),
        field(path, "transport").to_owned(),
        shown("rtt_us", 1e-3, " ms"),
        shown("rate_mbps", 1.0, " Mbit/s"),
        shown("rx_rate_mbps", 1.0, " Mbit/s"),
        shown("share", 100.0, " %"),
        shown("queue_ms", 1.0, " ms"),
        shown("loss", 100.0, " %"),
        shown("last_heard_ms", 1e-3, " s ago"),
    ]
}

/// A line for each subflow of a path by MPTCP.
fn subflows(path: &Value) -> impl Iterator<Item = String> + '_ {
    let all = path.get("subflows").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    all.iter().map(|subflow| {
        let megabytes = |name| {
            let bytes = subflow.get(name).and_then(Value::as_f64).unwrap_or_default();
            format!("{:.1} MB", bytes * 1e-6)
        };
        let link = Some(field(subflow, "link")).filter(|link| !link.is_empty());
        let (local, remote) = (field(subflow, "local"), field(subflow, "remote"));
        let by = link.unwrap_or(local);
        let (sent, received) = (megabytes("tx_bytes"), megabytes("rx_bytes"));
        format!("subflow by {by} to {remote}: {sent} out, {received} in\n")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(peer: &str, share: f64) -> Value {
        json!({
            "peer": peer,
            "state": "in use",
            "local": "192.0.2.1",
            "remote": "203.0.113.5:40112",
            "transport": "udp",
            "rtt_us": 20_500,
            "rate_mbps": 17.25,
            "rx_rate_mbps": null,
            "share": share,
            "queue_ms": 1.5,
            "loss": 0.01,
            "last_heard_ms": 200,
        })
    }

    #[test]
    fn a_gateway_shows_whose_each_path_is() {
        let all = json!({ "paths": [path("laptop", 0.75)], "known": 1, "complete": true });
        assert_eq!(
            gateway_text(&all),
            "PEER    STATE   LOCAL      REMOTE             BY   RTT      OUT          IN  SHARE   \
             QUEUE   LOSS   HEARD\n\
             laptop  in use  192.0.2.1  203.0.113.5:40112  udp  20.5 ms  17.2 Mbit/s  -   75.0 %  \
             1.5 ms  1.0 %  0.2 s ago\n"
        );
    }

    #[test]
    fn a_gateway_says_that_there_are_more() {
        let some = json!({ "paths": [path("laptop", 1.0)], "known": 3, "complete": false });
        let text = gateway_text(&some);
        assert!(text.contains("1 of 3 paths, of the peers that were heard last"), "{text}");
    }
}
