//! `rove rehearse`: a link is not used for a while, and what every connection felt, in words.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::output::{self, field};
use crate::cli::RehearseArgs;
use crate::control::{self, AskError, Request};
use crate::home::{Home, Role};

/// How often the client is asked whether it is over; it takes who does not ask for gone.
const ASK_EVERY: Duration = Duration::from_millis(250);
/// How much later than announced it may be over.
const GRACE: Duration = Duration::from_secs(10);

/// Rehearses, and tells.
pub(super) fn run(home: &Home, args: &RehearseArgs) -> Result<()> {
    let socket = home.socket(Role::Client)?;
    let (unplug, lasts, force) = (args.unplug.clone(), args.lasts.to_string(), args.force);
    let begin = Request::Rehearse { unplug, lasts, force };
    let begun: Value = match control::ask(&socket, &begin) {
        Err(AskError::NotRunning) => bail!("not up: connect with `rove up`"),
        begun => begun?,
    };
    let lasts = begun.get("lasts_ms").and_then(Value::as_u64).context("no time was told")?;
    let give_up = Instant::now() + Duration::from_millis(lasts) + GRACE;
    let report = loop {
        thread::sleep(ASK_EVERY);
        let report: Value = control::ask(&socket, &Request::Rehearsed)
            .context("the client ended, and the rehearsal with it")?;
        if report.get("over").and_then(Value::as_bool) == Some(true) {
            break report;
        }
        if Instant::now() > give_up {
            bail!("the rehearsal is not over in time: see `rove status`");
        }
    };
    if args.json { output::json(&report) } else { output::print(&text(&report)) }
}

/// A line that says what was done, and for each connection one with what it felt.
fn text(report: &Value) -> String {
    let flows = report.get("flows").and_then(Value::as_array).map(Vec::as_slice);
    let flows = flows.unwrap_or_default();
    let number = |name| report.get(name).and_then(Value::as_u64).unwrap_or_default();
    let lasted = number("without_ms") / 1_000;
    let plural = if flows.len() == 1 { "" } else { "s" };
    let is_forsaken = report.get("forsaken").and_then(Value::as_bool) == Some(true);
    let early = if is_forsaken { ", ended early because nobody asked for it" } else { "" };
    let mut text = format!(
        "did without {} for {lasted} s{early}; {} connection{plural} watched\n",
        field(report, "link"),
        flows.len(),
    );
    if flows.is_empty() {
        return text;
    }
    let rows: Vec<[String; 5]> = flows.iter().map(row).collect();
    text.push_str(&output::table(["BEFORE", "WITHOUT", "AFTER", "END", "CONNECTION"], &rows));
    text.push_str(&format!("pauses are known to within {} ms\n", 2 * number("blind_ms")));
    text
}

fn row(flow: &Value) -> [String; 5] {
    let is_open = flow.get("open").and_then(Value::as_bool).unwrap_or_default();
    let end = if is_open { "open" } else { "ended" };
    let name = field(flow, "tuple").to_owned();
    [felt(&flow["before"]), felt(&flow["without"]), felt(&flow["after"]), end.to_owned(), name]
}

/// What a connection felt in one stage: how fast it was, if anything went by, and its longest
/// pause; nothing where it was not open then.
fn felt(stage: &Value) -> String {
    let number = |name| stage.get(name).and_then(Value::as_u64).unwrap_or_default();
    let pause = format!("pause {} ms", number("pause_ms"));
    if number("tx_bytes") + number("rx_bytes") > 0 {
        let rate = |name| stage.get(name).and_then(Value::as_f64).unwrap_or_default();
        return format!("{:.1} Mbit/s, {pause}", rate("tx_mbps") + rate("rx_mbps"));
    }
    let is_known = stage.get("known").and_then(Value::as_bool).unwrap_or_default();
    if is_known { pause } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_felt_is_a_line() {
        let stage = |rx: f64, pause: u64| {
            json!({
                "known": true,
                "tx_bytes": 0,
                "rx_bytes": (rx * 1e6) as u64,
                "tx_mbps": 0.0,
                "rx_mbps": rx,
                "pause_ms": pause,
            })
        };
        let flow = |port: u16, before: Value, without: Value, after: Value, open: bool| {
            let tuple = format!("tcp a:{port} b:443");
            let (before, without, after) = (&before, &without, &after);
            json!({
                "tuple": tuple, "open": open, "before": before, "without": without, "after": after,
            })
        };
        let unknown = || json!({ "known": false, "pause_ms": 0 });
        // What stood still for all of the time is what somebody looks for.
        let flows = [
            flow(4000, stage(18.0, 12), stage(9.04, 48), stage(0.0, 3_000), true),
            flow(4001, stage(8.0, 20), stage(0.0, 10_000), stage(0.0, 0), false),
            flow(4002, unknown(), stage(0.5, 700), unknown(), false),
        ];
        let report = json!({
            "link": "eth1", "without_ms": 10_000, "blind_ms": 11, "flows": flows,
        });
        let expected = "\
did without eth1 for 10 s; 3 connections watched
BEFORE                    WITHOUT                   AFTER          END    CONNECTION
18.0 Mbit/s, pause 12 ms  9.0 Mbit/s, pause 48 ms   pause 3000 ms  open   tcp a:4000 b:443
8.0 Mbit/s, pause 20 ms   pause 10000 ms            pause 0 ms     ended  tcp a:4001 b:443
-                         0.5 Mbit/s, pause 700 ms  -              ended  tcp a:4002 b:443
pauses are known to within 22 ms
";
        assert_eq!(text(&report), expected);
        let early = json!({ "link": "eth1", "without_ms": 2_010, "forsaken": true, "flows": [] });
        let expected = "did without eth1 for 2 s, ended early because nobody asked for it; \
                        0 connections watched\n";
        assert_eq!(text(&early), expected);
    }
}
