//! `symmetric`: one connection over two links of 10 Mbit/s (Figures 3.5 and 3.6 of Lukaszewski's
//! thesis).
//!
//! The thesis' round trip of 0 is 1 ms here: no link is shorter than the time that its serialiser
//! takes for a packet.
//!
//! Each row of a TCP connection has the comparisons of the thesis (Figures 3.5, 3.6, 4.1 and 4.6),
//! from the same run: both links together, one of them over UDP and over TCP, and MPTCP over both;
//! with `compare=openvpn` also OpenVPN in these three ways. A column ends in `_mbps`, or in
//! `_file_s` for the time of the thesis' file. `times_` is the ratio to both links together.
//! `paper` has the figures of others.

use super::links::{
    self, ASSIST, COMPARE, CONGESTION, Carried, Cells, FILE, FLOW, GRID, Link, MODE, Pair,
    SCHEDULER, SECONDS, TRANSFER, TRANSPORT,
};
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::table::{TABLE, figure, least};
use super::{About, FAMILY, Key, Outcome, Scenario, Stage};
use crate::ground::{Known, Spread};
use serde_json::{Value, json};

/// The least share of the sum.
pub(super) const SHARE_OF_SUM_MIN: f64 = 0.95;

/// Figures of others with the thesis' file: for each round trip, loss by loss.
const GRID_OF_OTHERS: [&str; 6] = ["20/0", "20/0.5", "20/1", "60/0", "60/0.5", "60/1"];
/// The unit of all of them.
const MBPS: &str = "Mbit/s";
/// The best of them, in Mbit/s: mqvpn in its hybrid mode, where it ends each connection.
const HYBRID_MBPS: [f64; 6] = [18.5, 17.6, 17.1, 17.9, 15.6, 17.2];
/// The least part of that in 30 s, without losses and with them.
const OF_HYBRID: [Column; 2] = [
    Column { name: "of_mqvpn_hybrid", least: "of_mqvpn_hybrid_min", floor: 0.98 },
    Column { name: "of_mqvpn_hybrid_lossy", least: "of_mqvpn_hybrid_lossy_min", floor: 1.0 },
];

/// A column, the key of its least value, and the limit.
struct Column {
    name: &'static str,
    least: &'static str,
    floor: f64,
}

/// The smallest goodput of a cell over that of one link by UDP.
const OVER_ONE: &str = "over_one_link_min";
/// The smallest goodput by MPTCP over that by TCP, of the cells with loss.
const MPTCP_OVER_TCP: &str = "mptcp_over_tcp_min";

/// The keys at least.
const KEYS: &[Key] = &Key::with::<{ links::KEYS_OF_ALL.len() + 4 }>(
    links::KEYS_OF_ALL,
    &[
        Key::higher_is_better(OF_HYBRID[0].least),
        Key::higher_is_better(OF_HYBRID[1].least),
        Key::higher_is_better(OVER_ONE),
        Key::higher_is_better(MPTCP_OVER_TCP),
    ],
);

/// By round trip.
pub(super) const PAIRS: &[Pair] = &[pair(20), pair(60), pair(1)];

const CELLS: Cells = Cells {
    pairs: PAIRS,
    to: &[],
    known: Known::ByAddress,
    spreads: &[Spread::ONE],
    losses: &["0", "0.1", "0.5", "1"],
    few: &[(2, 0), (0, 0), (0, 1), (0, 3), (1, 0), (1, 1), (1, 3)],
    carried: Carried::ALL,
    few_others: &[(0, 0), (0, 3), (1, 0), (1, 3)],
    also: &[],
};

/// The settings.
const SETTINGS: &[Setting] = &[
    MODE,
    SCHEDULER,
    TRANSPORT,
    ASSIST,
    TRANSFER,
    CONGESTION,
    Setting::choice("rtt", &[GRID, "1", "20", "60"], "round trip of both links in milliseconds"),
    Setting::choice(
        "loss",
        &[GRID, "0", "0.1", "0.5", "1"],
        "what each loses each way, in per cent",
    ),
    FLOW,
    SECONDS,
    FILE,
    COMPARE,
    FAMILY,
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Symmetric;

impl Scenario for Symmetric {
    fn about(&self) -> About {
        About {
            name: "symmetric",
            summary: "one connection over two links of 10 Mbit/s, beside one of them and their sum",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn paper(&self, _settings: &Settings) -> Paper {
        const OTHERS: &str = "others, CUBIC, by round trip and loss";
        Paper::of(
            "Lukaszewski 2017, and what others measured in its setting; Mbit/s of the file of \
             16,331,410 bytes",
        )
        .cite("mpudp_over_udp", "a picture only", "", "Figure 4.6")
        .beside(OVER_ONE)
        .note("near twice without loss; towards one link as loss and round trip grow")
        .cite("fullmesh_over_tcp_lossy", "more than 2 times", "", "section 3.1.4")
        .beside(MPTCP_OVER_TCP)
        .list("rtt_ms/loss_percent", json!(GRID_OF_OTHERS))
        .cite("openvpn_udp_one_link", json!([9.3, 7.5, 5.0, 9.2, 2.8, 1.8]), MBPS, OTHERS)
        .cite("openvpn_tcp_one_link", json!([8.9, 7.3, 4.8, 8.1, 2.7, 1.8]), MBPS, OTHERS)
        .cite("openvpn_mptcp_full_mesh", json!([15.7, 14.4, 11.6, 11.1, 6.4, 4.5]), MBPS, OTHERS)
        .cite("openvpn_mptcp_one_a_link", json!([16.2, 10.5, 7.3, 13.6, 4.2, 3.3]), MBPS, OTHERS)
        .cite("mlvpn", json!([17.9, 3.7, 2.1, 15.3, 1.3, 0.8]), MBPS, OTHERS)
        .cite("glorytun", json!([17.2, 7.2, 5.0, 15.8, 3.0, 2.0]), MBPS, OTHERS)
        .cite("mqvpn_wlb", json!([9.3, 6.8, 4.7, 9.3, 2.6, 1.8]), MBPS, OTHERS)
        .cite("mqvpn_minrtt", json!([10.1, 6.3, 4.7, 9.7, 2.7, 2.0]), MBPS, OTHERS)
        .cite("mqvpn_hybrid", json!(HYBRID_MBPS), MBPS, OTHERS)
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        links::limits(settings, Some(SHARE_OF_SUM_MIN))
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        links::bound_ms(PAIRS)
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let round_trip = |pair: &Pair| pair[0].round_trip_ms.to_string();
        let chosen = links::chosen(stage.settings, "rtt", PAIRS, round_trip);
        let mut outcome = CELLS.tell(stage, chosen.as_slice())?;
        beside_hybrid(&mut outcome, links::adds_up(stage.settings));
        over_one_link(&mut outcome);
        Ok(outcome)
    }
}

/// Compares each cell with mqvpn's figure, if there is one, and adds the limit if it is selected.
fn beside_hybrid(outcome: &mut Outcome, is_asked: bool) {
    let Some(Value::Array(rows)) = outcome.measured.get_mut(TABLE) else { return };
    for row in rows.iter_mut().filter_map(Value::as_object_mut) {
        let hybrid_mbps = hybrid_mbps(|key| row.get(key)?.as_str());
        let Some(hybrid_mbps) = hybrid_mbps else { continue };
        let share = row.get("goodput_mbps").and_then(Value::as_f64).map(|mbps| mbps / hybrid_mbps);
        let is_lossy = row.get("loss").is_some_and(|loss| loss != "0");
        row.insert(OF_HYBRID[usize::from(is_lossy)].name.to_owned(), figure(share));
    }
    let rows = rows.clone();
    for column in &OF_HYBRID {
        if rows.iter().any(|row| row.get(column.name).is_some()) {
            outcome.measure(column.least, least(&rows, column.name));
            if is_asked {
                outcome.ask(Limit::at_least(column.least, column.floor));
            }
        }
    }
}

/// The gain over one link, and that of MPTCP over TCP, from the compared columns.
fn over_one_link(outcome: &mut Outcome) {
    let rows = outcome.measured.get(TABLE).and_then(Value::as_array).cloned().unwrap_or_default();
    match least(&rows, "times_udp_one_link") {
        None => outcome.skip(OVER_ONE, "no connection was compared"),
        times => outcome.measure(OVER_ONE, times),
    }
    let lossy: Vec<Value> = rows.iter().filter(|row| row["loss"] != "0").map(mptcp_times).collect();
    let why = links::why_missing(&rows, &["mptcp", "tcp_one_link"]);
    match least(&lossy, MPTCP_OVER_TCP) {
        None => {
            let why = why.as_deref().unwrap_or("no lossy cell was compared");
            outcome.skip(MPTCP_OVER_TCP, why);
        }
        times => outcome.measure(MPTCP_OVER_TCP, times),
    }
}

/// The goodput by MPTCP over that by TCP, as a row; empty for a row without TCP.
fn mptcp_times(row: &Value) -> Value {
    let Some(mptcp) = row.get("mptcp_mbps") else { return json!({}) };
    let times = mptcp.as_f64().zip(row["tcp_one_link_mbps"].as_f64()).map(|(all, one)| all / one);
    json!({MPTCP_OVER_TCP: figure(times)})
}

/// The rate of mqvpn in the cell of a row: a download with CUBIC.
fn hybrid_mbps<'a>(says: impl Fn(&str) -> Option<&'a str>) -> Option<f64> {
    let is_known = says("to") == Some("client") && says("flow") == Some("tcp");
    let loss = says("loss").filter(|_| is_known && says("cc") == Some("cubic"))?;
    let pair = PAIRS.iter().find(|one| says("pair") == Some(&links::name(one)))?;
    let cell = format!("{}/{loss}", pair[0].round_trip_ms);
    let at = GRID_OF_OTHERS.iter().position(|one| *one == cell)?;
    HYBRID_MBPS.get(at).copied()
}

const fn pair(round_trip_ms: u64) -> Pair {
    [Link::of(10, round_trip_ms); 2]
}

#[cfg(test)]
mod tests {
    use super::{Outcome, TABLE, beside_hybrid};
    use serde_json::{Value, json};

    fn row(rtt: u64, loss: &str, cc: &str, mbps: f64) -> Value {
        let pair = format!("10/{rtt}+10/{rtt}");
        json!({"pair": pair, "to": "client", "loss": loss, "flow": "tcp", "cc": cc,
               "goodput_mbps": mbps})
    }

    fn judged(rows: &[Value], is_asked: bool) -> (Outcome, Value) {
        let mut outcome = Outcome::default();
        outcome.measured.insert(TABLE.to_owned(), rows.into());
        beside_hybrid(&mut outcome, is_asked);
        let limits = serde_json::to_value(&outcome.limits).unwrap();
        (outcome, limits)
    }

    #[test]
    fn what_is_known_of_mqvpn_is_asked_for_where_it_was_told() {
        let rows = [
            row(20, "0", "cubic", 18.13),
            row(60, "0.5", "cubic", 31.2),
            row(60, "1", "cubic", 17.028),
            row(60, "1", "bbr", 1.0),
            row(1, "0", "cubic", 1.0),
        ];
        let (outcome, limits) = judged(&rows, true);
        assert_eq!(outcome.measured["of_mqvpn_hybrid_min"], 0.98);
        assert_eq!(outcome.measured["of_mqvpn_hybrid_lossy_min"], 0.99);
        let both = [["of_mqvpn_hybrid_min", ">="], ["of_mqvpn_hybrid_lossy_min", ">="]];
        assert_eq!([0, 1].map(|at| [&limits[at][0], &limits[at][1]]), both);
        assert_eq!(judged(&rows, false).1, json!([]));
        let (outcome, limits) = judged(&rows[3..], true);
        assert_eq!((outcome.measured.len(), limits), (1, json!([])), "nothing is known of them");
        let nothing = json!({"pair": "10/20+10/20", "to": "client", "loss": "0", "flow": "tcp",
                             "cc": "cubic", "goodput_mbps": null});
        let (outcome, limits) = judged(&[nothing], true);
        assert_eq!(
            (&outcome.measured["of_mqvpn_hybrid_min"], limits[0][2].as_f64()),
            (&Value::Null, Some(0.98)),
            "what came to nothing is no pass"
        );
    }
}
