//! A record as people read it: a line for each key, with its bound and the paper's value.
//!
//! Decides how values, bounds and citations are written. Judges nothing.

use super::record::{LatenessRecord, Limit, MachineRecord, Record};
use super::table;
use super::values::shown;
use serde_json::Value;
use std::io::Write;

/// Prints a record: a line for each key beside the paper's value, then what else there is.
///
/// # Errors
/// It cannot be written.
pub(super) fn print(record: &Record, out: &mut dyn Write) -> anyhow::Result<()> {
    let of = match (record.seed, record.seeds) {
        (Some(seed), _) => format!("seed {seed}"),
        (None, Some(seeds)) => format!("median of {seeds} seeds (worst)"),
        (None, None) => String::new(),
    };
    writeln!(out, "{}, {}, {of}", record.scenario, record.place)?;
    for (key, value) in &record.measured {
        match value.as_array() {
            Some(rows) => print_table(key, rows, out)?,
            None => writeln!(out, "{}", line(record, key, value))?,
        }
    }
    print_papers(record, out)?;
    print_baselines(record, out)?;
    if let Some(lateness) = &record.lateness {
        let LatenessRecord { p99_ms, max_ms, packets, after_moves_p99_ms } = lateness;
        writeln!(
            out,
            "  emulator late by p99 {p99_ms} ms, after moves {after_moves_p99_ms} ms, max {max_ms} \
             ms, {packets} packets"
        )?;
    }
    if let Some(machine) = &record.machine {
        let MachineRecord { work_p50_us, work_p99_us, work_max_us, .. } = machine;
        writeln!(
            out,
            "  the same little work took the machine {work_p50_us} us, p99 {work_p99_us} us, max \
             {work_max_us} us"
        )?;
    }
    let reason = record.reason.as_deref().map_or_else(String::new, |reason| format!(": {reason}"));
    let verdict = match record.pass {
        Some(true) => "pass",
        Some(false) => "FAIL",
        None => "VOID",
    };
    writeln!(out, "  {verdict}{reason}")?;
    Ok(())
}

/// The line of a key: its value and over seeds the worst, the verdict, the bound, and what papers
/// have; or why there is no value.
fn line(record: &Record, key: &str, value: &Value) -> String {
    let worst = record.worst.as_ref().and_then(|worst| worst.get(key));
    let worst = worst.map_or_else(String::new, |worst| format!(" ({})", shown(worst)));
    let value = format!("{}{worst}", shown(value));
    let mut limits = record.limits.iter().filter(|limit| limit.key() == key).peekable();
    let is_limited = limits.peek().is_some();
    let mark = match limits.all(|limit| limit.holds(&record.measured)) {
        _ if !is_limited => "",
        true => "ok",
        false => "NOT",
    };
    let missing = record.not_measured.get(key).map(|why| format!("not measured: {why}"));
    let papers = record.paper.beside_key(key).map(|cited| format!("paper {}", cited.text()));
    let beside = papers.chain(missing).collect::<Vec<_>>().join("; ");
    let bound = bounds(record, key);
    format!("  {key:<26} {value:>18}  {mark:<3}  {bound:<10}  {beside}").trim_end().to_owned()
}

/// The limits of a key: `<= 50`; empty for a key without any.
pub(super) fn bounds(record: &Record, key: &str) -> String {
    let limits = record.limits.iter().filter(|limit| limit.key() == key);
    limits.map(Limit::bound).collect::<Vec<_>>().join(", ")
}

/// Prints what papers have that stands beside no key.
fn print_papers(record: &Record, out: &mut dyn Write) -> anyhow::Result<()> {
    for cited in record.paper.alone(|key| record.measured.contains_key(key)) {
        writeln!(out, "  paper: {} {}", cited.name, cited.text())?;
    }
    if let Some(source) = record.paper.source() {
        writeln!(out, "  paper: {source}")?;
    }
    Ok(())
}

/// Prints what others had in the same run, or why there are none.
fn print_baselines(record: &Record, out: &mut dyn Write) -> anyhow::Result<()> {
    for (name, values) in record.baseline.iter().flatten() {
        for (key, value) in values {
            let name = format!("{name}: {key}");
            match value.as_array() {
                Some(rows) => print_table(&name, rows, out)?,
                None => writeln!(out, "  {name:<26} {:>18}", shown(value))?,
            }
        }
    }
    if let Some(reason) = &record.baseline_reason {
        writeln!(out, "  no baseline: {reason}")?;
    }
    Ok(())
}

/// Prints a line for each cell.
fn print_table(name: &str, rows: &[Value], out: &mut dyn Write) -> anyhow::Result<()> {
    writeln!(out, "  {name}")?;
    for row in rows.iter().filter_map(Value::as_object) {
        writeln!(out, "    {}", table::line(row))?;
    }
    Ok(())
}
