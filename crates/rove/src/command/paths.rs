//! `rove paths` and `rove gateway paths`: what each path carries, in words. Which paths there are,
//! and in which order, the daemon says.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rove_api::{ClientPath, LinkUse, Path, PathState, PeerPaths};
use rove_host::control::{self, AskError, Request};
use rove_host::home::{Home, Role};

use super::output;
use crate::cli::{PathsArgs, PeerPathsArgs};

/// What is told of each path, at either end.
const HEAD: [&str; 11] =
    ["STATE", "LOCAL", "REMOTE", "BY", "RTT", "OUT", "IN", "SHARE", "QUEUE", "LOSS", "HEARD"];

/// A path that was heard within this time is not called silent.
const HEARD_LATELY_MS: u64 = 1_000;
/// How often they are shown again.
const WATCH_EVERY: Duration = Duration::from_secs(1);

/// Those of the client in `home`: once, or again and again.
pub(super) fn of_client(home: &Home, args: PathsArgs) -> Result<()> {
    if args.watch { watch(home, args) } else { output::print(&shown(home, args.json)?) }
}

/// A client that ends or begins meanwhile is no reason to stop looking.
fn watch(home: &Home, args: PathsArgs) -> Result<()> {
    let clears = !args.json && io::stdout().is_terminal();
    let between = if args.json || clears { "" } else { "\n" };
    let begun = Instant::now();
    let mut text = shown(home, args.json)?;
    for times in 1u32.. {
        let next = WATCH_EVERY.saturating_mul(times);
        let is_read = !clears || output::clear()?;
        if !is_read
            || !output::print_on(&text)?
            || args.lasts.is_some_and(|lasts| next > lasts.duration())
        {
            break;
        }
        thread::sleep((begun + next).saturating_duration_since(Instant::now()));
        text = format!("{between}{}", shown(home, args.json)?);
    }
    Ok(())
}

fn shown(home: &Home, json: bool) -> Result<String> {
    let paths: Vec<ClientPath> = match control::ask(&home.socket(Role::Client)?, &Request::Paths) {
        Err(AskError::NotRunning) if json => Vec::new(),
        Err(AskError::NotRunning) => return Ok("not up: connect with `rove up`\n".to_owned()),
        reply => reply?,
    };
    Ok(if json { format!("{}\n", output::json_text(&paths)?) } else { client_text(&paths) })
}

/// Those of the sessions of the gateway in `home`.
pub(super) fn of_gateway(home: &Home, args: PeerPathsArgs) -> Result<()> {
    let PeerPathsArgs { name, json } = args;
    let request = Request::PeerPaths { name: name.map(|name| name.to_string()) };
    let reply = match control::ask(&home.socket(Role::Gateway)?, &request) {
        Err(AskError::NotRunning) if json => {
            PeerPaths { complete: true, known: 0, paths: Vec::new() }
        }
        Err(AskError::NotRunning) => {
            return output::line("the gateway does not run: start it with `rove gateway run`");
        }
        reply => reply?,
    };
    if json { output::json(&reply) } else { output::print(&gateway_text(&reply)) }
}

fn client_text(paths: &[ClientPath]) -> String {
    let row = |path: &ClientPath| {
        let rank = path.link_rank.map(|rank| rank.to_string());
        let usage = path.link_use.filter(|usage| *usage == LinkUse::Backup);
        let usage = usage.map(|usage| usage.to_string());
        let signal = path.signal_dbm.map(|dbm| format!("{dbm} dBm"));
        let rank = [rank, usage, path.link_state.clone(), signal];
        let rank: Vec<String> = rank.into_iter().flatten().collect();
        cells([path.link.clone().unwrap_or_default(), rank.join(" ")], figures(&path.path))
    };
    let rows: Vec<[String; 13]> = paths.iter().map(row).collect();
    let mut text = output::table(cells(["LINK", "RANK"], HEAD), &rows);
    if let Some(name) = paths.iter().find_map(|path| path.path.scheduler.as_deref()) {
        text.push_str(&format!("several paths carry data; scheduler: {name}\n"));
    }
    text.extend(paths.iter().filter_map(|path| saved(&path.path)));
    text.extend(paths.iter().flat_map(|path| subflows(&path.path)));
    let told = |path: &ClientPath| {
        let (link, page) = (path.link.as_deref().unwrap_or_default(), path.portal.as_deref()?);
        Some(format!("captive portal on {link}: sign in at {page}\n"))
    };
    let told: BTreeSet<String> = paths.iter().filter_map(told).collect();
    text.extend(told);
    text
}

fn gateway_text(reply: &PeerPaths) -> String {
    let PeerPaths { complete, known, paths } = reply;
    let rows = paths.iter().map(|path| cells([path.peer.clone()], figures(&path.path)));
    let rows: Vec<[String; 12]> = rows.collect();
    let mut text = output::table(cells(["PEER"], HEAD), &rows);
    text.extend(paths.iter().filter_map(|path| saved(&path.path)));
    text.extend(paths.iter().flat_map(|path| subflows(&path.path)));
    if !complete {
        text.push_str(&format!(
            "{} of {known} paths, of the peers that were heard last; all of one peer: `rove \
             gateway paths NAME`\n",
            paths.len()
        ));
    }
    text
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
fn figures(path: &Path) -> [String; HEAD.len()] {
    let shown = |number: Option<f64>, unit| {
        number.map_or_else(String::new, |number| format!("{number:.1}{unit}"))
    };
    let thousandth = |number: Option<u64>| number.map(|number| number as f64 * 1e-3);
    let percent = |part: Option<f64>| part.map(|part| part * 100.0);
    // Datagrams of the other end still come, so that "silent" would seem wrong.
    let is_heard = path.last_heard_ms.is_some_and(|ago| ago < HEARD_LATELY_MS);
    let is_unanswered = path.state == PathState::Silent && is_heard;
    let state = if is_unanswered { "unanswered".to_owned() } else { path.state.to_string() };
    [
        state,
        path.local.map(|local| local.to_string()).unwrap_or_default(),
        path.remote.to_string(),
        path.transport.clone(),
        shown(thousandth(path.rtt_us), " ms"),
        shown(path.rate_mbps, " Mbit/s"),
        shown(path.rx_rate_mbps, " Mbit/s"),
        shown(percent(path.share), " %"),
        shown(path.queue_ms, " ms"),
        shown(percent(path.loss), " %"),
        shown(thousandth(path.last_heard_ms), " s ago"),
    ]
}

/// A line for what was saved on a path, if anything was.
fn saved(path: &Path) -> Option<String> {
    let told = output::saved(&path.saved)?;
    Some(format!("saved on path {} to {}: {told}\n", path.id, path.remote))
}

/// A line for each subflow of a path by MPTCP.
fn subflows(path: &Path) -> impl Iterator<Item = String> + '_ {
    path.subflows.iter().flatten().map(|subflow| {
        let megabytes = |bytes: u64| format!("{:.1} MB", bytes as f64 * 1e-6);
        let by = subflow.link.clone().unwrap_or_else(|| subflow.local.to_string());
        let (sent, received) = (megabytes(subflow.tx_bytes), megabytes(subflow.rx_bytes));
        format!("subflow by {by} to {}: {sent} out, {received} in\n", subflow.remote)
    })
}

#[cfg(test)]
mod tests {
    use rove_api::{PeerPath, Saved};

    use super::*;

    fn path(peer: &str, share: f64) -> PeerPath {
        let path = Path {
            id: 1,
            local: Some([192, 0, 2, 1].into()),
            remote: ([203, 0, 113, 5], 40_112).into(),
            state: PathState::InUse,
            transport: "udp".to_owned(),
            scheduler: None,
            repairs: false,
            controller: None,
            subflows: None,
            rtt_us: Some(20_500),
            rate_mbps: Some(17.25),
            rx_rate_mbps: None,
            loss: Some(0.01),
            queue_ms: Some(1.5),
            share: Some(share),
            tx_bytes: 0,
            rx_bytes: 0,
            last_heard_ms: Some(200),
            mtu: 1_232,
            split: 0,
            retransmitted: 0,
            copied_bytes: 0,
            feedback_datagrams: 0,
            feedback_bytes: 0,
            saved: Saved::default(),
            fallback: None,
        };
        PeerPath { path, peer: peer.to_owned() }
    }

    #[test]
    fn a_gateway_shows_whose_each_path_is() {
        let all = PeerPaths { complete: true, known: 1, paths: vec![path("laptop", 0.75)] };
        assert_eq!(
            gateway_text(&all),
            "PEER    STATE   LOCAL      REMOTE             BY   RTT      OUT          IN  SHARE   \
             QUEUE   LOSS   HEARD\n\
             laptop  in use  192.0.2.1  203.0.113.5:40112  udp  20.5 ms  17.2 Mbit/s  -   75.0 %  \
             1.5 ms  1.0 %  0.2 s ago\n"
        );
    }

    #[test]
    fn what_was_saved_has_a_line() {
        let mut paths = vec![path("laptop", 1.0)];
        paths[0].path.saved =
            Saved { compression: 3_400_000, aggregation: 1_000, ..Saved::default() };
        let text = gateway_text(&PeerPaths { complete: true, known: 1, paths });
        let line = "saved on path 1 to 203.0.113.5:40112: 3.4 MB (compression 3.4 MB, shared \
                    datagrams 1 kB)\n";
        assert!(text.ends_with(line), "{text}");
    }

    #[test]
    fn a_gateway_says_that_there_are_more() {
        let some = PeerPaths { complete: false, known: 3, paths: vec![path("laptop", 1.0)] };
        let text = gateway_text(&some);
        assert!(text.contains("1 of 3 paths, of the peers that were heard last"), "{text}");
    }
}
