//! `rove rehearse`: a link is not used for a while, and what every connection felt, in words.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rove_api::{Felt, Rehearsal, RehearsalBegun, RehearsedFlow};
use rove_host::control::{self, AskError, Request};
use rove_host::home::{Home, Role};

use super::output;
use crate::cli::RehearseArgs;

/// How often the client is asked whether it is over; it takes who does not ask for gone.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// How much later than announced it may be over.
const GRACE: Duration = Duration::from_secs(10);

/// Rehearses, and tells.
pub(super) fn run(home: &Home, args: &RehearseArgs) -> Result<()> {
    let socket = home.socket(Role::Client)?;
    let (unplug, lasts, force) = (args.unplug.clone(), args.lasts.to_string(), args.force);
    let begin = Request::Rehearse { unplug, lasts, force };
    let begun: RehearsalBegun = match control::ask(&socket, &begin) {
        Err(AskError::NotRunning) => bail!("not up: connect with `rove up`"),
        begun => begun?,
    };
    let give_up = Instant::now() + Duration::from_millis(begun.lasts_ms) + GRACE;
    let report = loop {
        thread::sleep(ASK_EVERY);
        let report: Rehearsal = control::ask(&socket, &Request::Rehearsed)
            .context("the client ended, and the rehearsal with it")?;
        if report.over {
            break report;
        }
        if Instant::now() > give_up {
            bail!("the rehearsal is not over in time: see `rove status`");
        }
    };
    if args.json { output::json(&report) } else { output::print(&text(&report)) }
}

/// A line that says what was done, and for each connection one with what it felt.
fn text(report: &Rehearsal) -> String {
    let flows = &report.flows;
    let lasted = report.without_ms / 1_000;
    let plural = if flows.len() == 1 { "" } else { "s" };
    let early = if report.forsaken { ", ended early because nobody asked for it" } else { "" };
    let mut text = format!(
        "did without {} for {lasted} s{early}; {} connection{plural} watched\n",
        report.link,
        flows.len(),
    );
    if flows.is_empty() {
        return text;
    }
    let rows: Vec<[String; 5]> = flows.iter().map(row).collect();
    text.push_str(&output::table(["BEFORE", "WITHOUT", "AFTER", "END", "CONNECTION"], &rows));
    text.push_str(&format!("pauses are known to within {} ms\n", 2 * report.blind_ms));
    text
}

fn row(flow: &RehearsedFlow) -> [String; 5] {
    let end = if flow.open { "open" } else { "ended" };
    let [before, without, after] = [&flow.before, &flow.without, &flow.after].map(felt);
    [before, without, after, end.to_owned(), flow.tuple.clone()]
}

/// What a connection felt in one stage: how fast it was, if anything went by, and its longest
/// pause; nothing where it was not open then.
fn felt(stage: &Felt) -> String {
    let pause = format!("pause {} ms", stage.pause_ms);
    if stage.tx_bytes + stage.rx_bytes > 0 {
        return format!("{:.1} Mbit/s, {pause}", stage.tx_mbps + stage.rx_mbps);
    }
    if stage.known { pause } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_felt_is_a_line() {
        let stage = |rx_mbps: f64, pause_ms: u64| {
            let (tx_bytes, tx_mbps) = (0, 0.0);
            Felt {
                known: true,
                tx_bytes,
                rx_bytes: (rx_mbps * 1e6) as u64,
                tx_mbps,
                rx_mbps,
                pause_ms,
            }
        };
        let flow = |port: u16, before: Felt, without: Felt, after: Felt, open: bool| {
            let (tuple, class) = (format!("tcp a:{port} b:443"), "bulk".to_owned());
            RehearsedFlow { tuple, class, open, before, without, after }
        };
        let unknown = Felt::default;
        // What stood still for all of the time is what somebody looks for.
        let flows = [
            flow(4000, stage(18.0, 12), stage(9.04, 48), stage(0.0, 3_000), true),
            flow(4001, stage(8.0, 20), stage(0.0, 10_000), stage(0.0, 0), false),
            flow(4002, unknown(), stage(0.5, 700), unknown(), false),
        ];
        let report = Rehearsal {
            link: "eth1".to_owned(),
            over: true,
            forsaken: false,
            doing: None,
            without_ms: 10_000,
            blind_ms: 11,
            flows: flows.to_vec(),
        };
        let expected = "\
did without eth1 for 10 s; 3 connections watched
BEFORE                    WITHOUT                   AFTER          END    CONNECTION
18.0 Mbit/s, pause 12 ms  9.0 Mbit/s, pause 48 ms   pause 3000 ms  open   tcp a:4000 b:443
8.0 Mbit/s, pause 20 ms   pause 10000 ms            pause 0 ms     ended  tcp a:4001 b:443
-                         0.5 Mbit/s, pause 700 ms  -              ended  tcp a:4002 b:443
pauses are known to within 22 ms
";
        assert_eq!(text(&report), expected);
        let early = Rehearsal { without_ms: 2_010, forsaken: true, flows: Vec::new(), ..report };
        let expected = "did without eth1 for 2 s, ended early because nobody asked for it; \
                        0 connections watched\n";
        assert_eq!(text(&early), expected);
    }
}
