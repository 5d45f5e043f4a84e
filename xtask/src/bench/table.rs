//! Medians, ratios and the table, in Markdown, ready for `bench/README.md`.

use std::fmt::Write as _;
use std::fs;

use super::measure::Figures;
use super::tunnels::{BARE, BEFORE, HOLDING_NOTHING, OWN, RIVAL};

/// Where something is in the figures.
type Pick = fn(&Figures) -> f64;
/// A row: what it is, its unit with decimals, where it is in the figures.
type Row = (&'static str, usize, Pick);

const ROWS: &[Row] = &[
    ("one TCP flow, client to gateway, Mbit/s", 0, |f| f.up_mbps),
    ("one TCP flow, gateway to client, Mbit/s", 0, |f| f.down_mbps),
    ("four TCP flows, client to gateway, Mbit/s", 0, |f| f.several_up_mbps),
    ("four TCP flows, gateway to client, Mbit/s", 0, |f| f.several_down_mbps),
    ("processor time of both ends, s/GB", 2, |f| f.cpu_s_per_gb),
    ("idle round trip, median, us", 0, |f| f.rtt_us),
    ("idle round trip, p99, us", 0, |f| f.rtt_p99_us),
    ("idle round trip, all programs on one processor, median, us", 0, |f| f.rtt_one_us),
    ("handshake: first reply by the gateway, us", 0, |f| f.first_reply_us),
    ("resident memory, gateway with one idle client, MB", 1, |f| f.idle_kb / 1_000.0),
    ("resident memory, idle client, MB", 1, |f| f.client_idle_kb / 1_000.0),
    ("bytes on the wire beyond the inner packet", 1, |f| f.overhead_bytes),
];

/// What a contender gave, round by round.
pub(super) type Rounds = Vec<Figures>;

/// The median of each figure over the rounds.
pub(super) fn median(rounds: &[Figures]) -> Figures {
    let of = |pick: Pick| middle(rounds.iter().map(pick));
    Figures {
        up_mbps: of(|f| f.up_mbps),
        down_mbps: of(|f| f.down_mbps),
        several_up_mbps: of(|f| f.several_up_mbps),
        several_down_mbps: of(|f| f.several_down_mbps),
        cpu_s_per_gb: of(|f| f.cpu_s_per_gb),
        rtt_us: of(|f| f.rtt_us),
        rtt_p99_us: of(|f| f.rtt_p99_us),
        rtt_one_us: of(|f| f.rtt_one_us),
        first_reply_us: of(|f| f.first_reply_us),
        idle_kb: of(|f| f.idle_kb),
        client_idle_kb: of(|f| f.client_idle_kb),
        overhead_bytes: of(|f| f.overhead_bytes),
    }
}

/// The table: a column for each contender, and the ratio of the last to wireguard-go.
pub(super) fn render(
    medians: &[(&str, Figures)],
    crowds: &[(&str, u64)],
    rounds: u32,
    seconds: u32,
) -> String {
    let mut out = format!(
        "\n{rounds} interleaved rounds, flows of {seconds} s, medians; {}\n\n",
        machine().join(", ")
    );
    let names: Vec<&str> = medians.iter().map(|(name, _)| *name).collect();
    let rival = medians.iter().find(|(name, _)| *name == RIVAL).map(|(_, f)| f);
    let own = medians.iter().find(|(name, _)| *name == OWN).map(|(_, f)| f);
    let _ = writeln!(out, "| | {} | rove / wireguard-go |", names.join(" | "));
    let _ = writeln!(out, "|---|{}---|", "---|".repeat(names.len()));
    for (title, decimals, pick) in ROWS {
        let cells: Vec<String> =
            medians.iter().map(|(_, figures)| cell(pick(figures), *decimals)).collect();
        let ratio = own.zip(rival).map_or(f64::NAN, |(own, rival)| pick(own) / pick(rival));
        let _ = writeln!(out, "| {title} | {} | {} |", cells.join(" | "), cell(ratio, 2));
    }
    let crowd = |name: &str| {
        let found = crowds.iter().find(|(of, _)| *of == name);
        found.map_or(f64::NAN, |(_, kilobytes)| *kilobytes as f64 / 1_000.0)
    };
    let cells: Vec<String> = names.iter().map(|name| cell(crowd(name), 1)).collect();
    let ratio = cell(crowd(OWN) / crowd(RIVAL), 2);
    let title = "resident memory, gateway with 1,000 idle clients, MB";
    let _ = writeln!(out, "| {title} | {} | {ratio} |", cells.join(" | "));
    out
}

/// What Rove shall reach, against what it did: a line each, for what was measured. A ratio is the
/// median of the rounds' ratios: what else the machine does meets both sides of one alike.
pub(super) fn bounds(contenders: &[(&str, Rounds)], crowds: &[(&str, u64)]) -> String {
    let of = |name: &str| contenders.iter().find(|(of, _)| *of == name).map(|(_, rounds)| rounds);
    let Some(own) = of(OWN) else { return String::new() };
    let beside = |name: &str, compare: &dyn Fn(&Figures, &Figures) -> f64| {
        let other = of(name)?;
        Some(middle(own.iter().zip(other).map(|(own, other)| compare(own, other))))
    };
    let ratio = |name: &str, pick: Pick| beside(name, &|own, other| pick(own) / pick(other));
    let beyond = |name: &str, pick: Pick| beside(name, &|own, other| pick(own) - pick(other));
    let of_own = |pick: Pick| Some(middle(own.iter().map(pick)));
    let crowd = crowds.iter().find(|(of, _)| *of == OWN);
    let crowd = crowd.map(|(_, kilobytes)| *kilobytes as f64 / 1_000.0);
    let (up, down) = (|f: &Figures| f.up_mbps, |f: &Figures| f.down_mbps);
    let several_up = |f: &Figures| f.several_up_mbps;
    let several_down = |f: &Figures| f.several_down_mbps;
    let bounds = [
        ("one TCP flow up, of wireguard-go's", ratio(RIVAL, up), ">=", 1.0),
        ("one TCP flow down, of wireguard-go's", ratio(RIVAL, down), ">=", 1.0),
        ("four TCP flows up, of wireguard-go's", ratio(RIVAL, several_up), ">=", 1.3),
        ("four TCP flows down, of wireguard-go's", ratio(RIVAL, several_down), ">=", 1.3),
        ("one TCP flow up, of that before", ratio(BEFORE, up), ">=", 0.98),
        ("one TCP flow down, of that before", ratio(BEFORE, down), ">=", 0.98),
        ("four TCP flows up, of that before", ratio(BEFORE, several_up), ">=", 0.98),
        ("four TCP flows down, of that before", ratio(BEFORE, several_down), ">=", 0.98),
        ("idle round trip, of that before", ratio(BEFORE, |f| f.rtt_us), "<=", 1.02),
        ("one TCP flow up, of that without holding", ratio(HOLDING_NOTHING, up), ">=", 0.97),
        ("one TCP flow down, of that without holding", ratio(HOLDING_NOTHING, down), ">=", 0.97),
        ("its processor time", ratio(HOLDING_NOTHING, |f| f.cpu_s_per_gb), "<=", 1.03),
        ("idle round trip beyond the bare link's, us", beyond(BARE, |f| f.rtt_us), "<=", 60.0),
        ("the same on one processor, us", beyond(BARE, |f| f.rtt_one_us), "<=", 60.0),
        ("handshake: first reply, us", of_own(|f| f.first_reply_us), "<=", 3_000.0),
        ("resident memory, idle gateway, MB", of_own(|f| f.idle_kb / 1_000.0), "<=", 16.0),
        ("resident memory, idle client, MB", of_own(|f| f.client_idle_kb / 1_000.0), "<=", 16.0),
        ("resident memory, gateway with 1,000 idle clients, MB", crowd, "<=", 60.0),
    ];
    let line = |(title, value, relation, bound): (&str, Option<f64>, &str, f64)| {
        let value = value?;
        let holds = if relation == ">=" { value >= bound } else { value <= bound };
        let verdict = if holds { "ok " } else { "NOT" };
        Some(format!("{verdict} {title}: {value:.3} {relation} {bound}\n"))
    };
    bounds.into_iter().filter_map(line).collect()
}

/// The median; not a number of nothing.
fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.as_slice() {
        [] => f64::NAN,
        values if values.len() % 2 == 1 => values[middle],
        values => f64::midpoint(values[middle - 1], values[middle]),
    }
}

/// What does not apply is a dash.
fn cell(value: f64, decimals: usize) -> String {
    if value.is_finite() { format!("{value:.decimals$}") } else { "-".to_owned() }
}

/// Processors, kernel: what a ratio may depend on.
fn machine() -> Vec<String> {
    let cores = std::thread::available_parallelism().map_or(0, std::num::NonZero::get);
    let cpu = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("unknown processor", |rest| rest.trim_start_matches([':', ' ', '\t']));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.trim().split('-').next().unwrap_or_default().to_owned();
    vec![format!("{cores} cores of {model}"), format!("Linux {kernel}")]
}
