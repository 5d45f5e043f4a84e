//! The one JSON object with the results of a run.

use super::paper::Paper;
use super::values::{Values, shown};
use super::{Baseline, Key, Outcome, Worse, statistics, table};
use crate::emu::MS;
use crate::netns::{Timekeeping, Times};
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use std::collections::BTreeMap;

/// The key under which every record says whether the program under test was alive at the end.
pub const ALIVE: Key = Key::must_hold("alive");

/// A condition on a measured key, written `[key, operator, bound]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    key: &'static str,
    operator: Operator,
    bound: Value,
}

/// How a value is compared with a bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// At most.
    AtMost,
    /// At least.
    AtLeast,
    /// Exactly.
    Equal,
}

/// The emulator's timing.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LatenessRecord {
    /// Lateness of 99 of 100 packets at most, in milliseconds.
    pub p99_ms: f64,
    /// The greatest lateness, in milliseconds.
    pub max_ms: f64,
    /// Packets handed over.
    pub packets: u64,
    /// Like `p99_ms`, for the packets between a move and the first that arrived after it.
    pub after_moves_p99_ms: f64,
}

impl LatenessRecord {
    /// The lateness that counts against a bound, in milliseconds: a move has few packets, and must
    /// not hide among those of a download.
    pub const fn judged_ms(&self) -> f64 {
        self.p99_ms.max(self.after_moves_p99_ms)
    }
}

/// The machine's evenness: processor time of one small task, by its processor's clock.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct MachineRecord {
    /// Median, in microseconds.
    pub work_p50_us: f64,
    /// 99th percentile.
    pub work_p99_us: f64,
    /// Maximum.
    pub work_max_us: f64,
    /// Number of samples.
    pub looks: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Record {
    /// Name of the scenario.
    pub scenario: &'static str,
    /// The seed; in the last object of several seeds, their number stands in `seeds` instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<u64>,
    /// How many seeds were run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seeds: Option<u64>,
    /// The version of the binary under test; null without one.
    pub rove_version: Option<String>,
    /// SHA-256 of the binary under test.
    pub rove_sha256: Option<String>,
    /// `netns` or `virtual`.
    #[serde(rename = "where")]
    pub place: &'static str,
    /// The covered part of the grid of conditions.
    pub grid: &'static str,
    /// The settings of the command line.
    pub settings: BTreeMap<String, String>,
    /// The values that papers print.
    pub paper: Paper,
    /// Measured values; over several seeds, the medians.
    pub measured: Values,
    /// The reason why a key has no value.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub not_measured: BTreeMap<String, String>,
    /// Over several seeds, the worst of each key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worst: Option<Values>,
    /// The single values of each median.
    pub samples: BTreeMap<String, Vec<f64>>,
    /// The same without Rove.
    pub baseline: Option<BTreeMap<String, Values>>,
    /// The reason why there is none.
    pub baseline_reason: Option<String>,
    /// The emulator's timing; null in virtual time.
    pub lateness: Option<LatenessRecord>,
    /// The machine's evenness; null in virtual time.
    pub machine: Option<MachineRecord>,
    /// Attempts until the emulator was on time.
    pub attempts: u32,
    /// The limits.
    pub limits: Vec<Limit>,
    /// Whether they hold; null only if lateness voids the run.
    pub pass: Option<bool>,
    /// The reason if they do not, or if there is no verdict.
    pub reason: Option<String>,
}

impl Limit {
    /// The value must be at most this.
    pub fn at_most(key: &'static str, bound: impl Into<Value>) -> Self {
        Self { key, operator: Operator::AtMost, bound: bound.into() }
    }

    /// The value must be at least this.
    pub fn at_least(key: &'static str, bound: impl Into<Value>) -> Self {
        Self { key, operator: Operator::AtLeast, bound: bound.into() }
    }

    /// The value must be this.
    pub fn equal(key: &'static str, bound: impl Into<Value>) -> Self {
        Self { key, operator: Operator::Equal, bound: bound.into() }
    }

    /// Its key.
    pub const fn key(&self) -> &'static str {
        self.key
    }

    /// The condition without the key: `<= 50`.
    pub fn bound(&self) -> String {
        format!("{} {}", self.operator.symbol(), shown(&self.bound))
    }

    /// Whether it holds; a missing or null value fails.
    pub fn holds(&self, measured: &Values) -> bool {
        let Some(value) = measured.get(self.key) else { return false };
        if self.operator == Operator::Equal && !self.bound.is_number() {
            return *value == self.bound;
        }
        match (value.as_f64(), self.bound.as_f64()) {
            (Some(value), Some(bound)) => match self.operator {
                Operator::AtMost => value <= bound,
                Operator::AtLeast => value >= bound,
                Operator::Equal => value == bound,
            },
            _ => false,
        }
    }

    /// The condition as text, with the measured value.
    pub fn describe(&self, measured: &Values) -> String {
        let value = measured.get(self.key).unwrap_or(&Value::Null);
        format!("{} is {value}, must be {} {}", self.key, self.operator.symbol(), self.bound)
    }
}

impl Operator {
    const ALL: [Self; 3] = [Self::AtMost, Self::AtLeast, Self::Equal];

    /// Its form in the JSON.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::AtMost => "<=",
            Self::AtLeast => ">=",
            Self::Equal => "==",
        }
    }
}

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        (self.key, self.operator.symbol(), &self.bound).serialize(serializer)
    }
}

impl From<&Timekeeping> for LatenessRecord {
    fn from(Timekeeping { all, after_moves }: &Timekeeping) -> Self {
        let ms = |ns: u64| statistics::rounded(ns as f64 / MS as f64);
        Self {
            p99_ms: ms(all.quantile_ns(0.99)),
            max_ms: ms(all.max_ns()),
            packets: all.count(),
            after_moves_p99_ms: ms(after_moves.quantile_ns(0.99)),
        }
    }
}

impl From<&Times> for MachineRecord {
    fn from(times: &Times) -> Self {
        let us = |ns: u64| statistics::rounded(ns as f64 / 1e3);
        Self {
            work_p50_us: us(times.quantile_ns(0.5)),
            work_p99_us: us(times.quantile_ns(0.99)),
            work_max_us: us(times.max_ns()),
            looks: times.count(),
        }
    }
}

impl Record {
    /// Takes the result of a run, with its further limits, and judges it. Keys without a value are
    /// null. A run in which the program under test failed has not passed, whatever was measured
    /// before.
    pub fn judge(&mut self, outcome: Outcome, keys: &[Key]) {
        self.measured = outcome.measured;
        for limit in outcome.limits {
            // A run that is repeated adds the same limit again.
            if !self.limits.contains(&limit) {
                self.limits.push(limit);
            }
        }
        self.measured.insert(ALIVE.name.to_owned(), Value::Bool(outcome.broke.is_none()));
        for key in keys {
            self.measured.entry(key.name.to_owned()).or_insert(Value::Null);
        }
        self.not_measured = outcome.not_measured;
        self.samples = outcome.samples;
        self.lateness = outcome.timekeeping.as_ref().map(LatenessRecord::from);
        (self.baseline, self.baseline_reason) = match outcome.baseline {
            Baseline::Measured(values) => (Some(values), None),
            Baseline::None(reason) => (None, Some(reason)),
        };
        self.judge_limits();
        if let Some(broke) = outcome.broke {
            let limits = self.reason.take().unwrap_or_default();
            self.reason = Some(format!("{broke}; {limits}"));
        }
    }

    /// Takes the values of an earlier record, and judges them by the present limits. The further
    /// limits of that record stay.
    ///
    /// # Errors
    /// It is no record of this scenario.
    pub fn recall(&mut self, before: &Value, keys: &[Key]) -> serde_json::Result<()> {
        let part = |name: &str| before.get(name).cloned().unwrap_or_default();
        self.measured = serde_json::from_value(part("measured"))?;
        if let Some(reasons) = before.get("not_measured") {
            self.not_measured = serde_json::from_value(reasons.clone())?;
        }
        self.samples = serde_json::from_value(part("samples"))?;
        self.baseline = serde_json::from_value(part("baseline"))?;
        self.baseline_reason = serde_json::from_value(part("baseline_reason"))?;
        self.lateness = serde_json::from_value(part("lateness"))?;
        self.machine = serde_json::from_value(part("machine"))?;
        self.attempts = serde_json::from_value(part("attempts"))?;
        let asked: Vec<(String, String, Value)> = serde_json::from_value(part("limits"))?;
        for (name, symbol, bound) in asked {
            let key = keys.iter().find(|key| key.name == name);
            let operator = Operator::ALL.into_iter().find(|one| one.symbol() == symbol);
            let is_asked = self.limits.iter().any(|limit| limit.key == name);
            if let (Some(key), Some(operator), false) = (key, operator, is_asked) {
                self.limits.push(Limit { key: key.name, operator, bound });
            }
        }
        self.judge_limits();
        if part("pass").is_null() {
            self.void(serde_json::from_value(part("reason"))?);
        }
        Ok(())
    }

    /// Withdraws the verdict because the emulator was too late.
    pub fn void(&mut self, reason: String) {
        self.pass = None;
        self.reason = Some(reason);
    }

    /// The object for all seeds: medians, worst values, and the verdict of the medians. Void runs
    /// do not count; if most are void, the whole is void.
    ///
    /// Returns `None` for an empty list.
    pub fn summary(all: &[Self], keys: &[Key]) -> Option<Self> {
        let clean: Vec<Self> = all.iter().filter(|record| record.pass.is_some()).cloned().collect();
        let void = all.len() - clean.len();
        // Void runs alone have figures too, but no verdict.
        let records = if clean.is_empty() { all } else { &clean };
        let first = records.first()?;
        let names: std::collections::BTreeSet<&String> =
            records.iter().flat_map(|record| record.measured.keys()).collect();
        let mut measured = Values::new();
        let mut worst = Values::new();
        for name in names {
            let values: Vec<&Value> = records
                .iter()
                .map(|record| record.measured.get(name).unwrap_or(&Value::Null))
                .collect();
            let mut known = keys.iter().chain([&ALIVE]);
            let worse = known.find(|key| key.name == name).map_or(Worse::Higher, |key| key.worse);
            measured.insert(name.clone(), middle_of(&values));
            worst.insert(name.clone(), worst_of(&values, worse));
        }
        table::judge_by_cells(&mut measured);
        let baseline = summary_of_baselines(records);
        let mut summary = Self {
            baseline_reason: first.baseline_reason.clone().filter(|_| baseline.is_none()),
            baseline,
            seed: None,
            seeds: Some(all.len() as u64),
            measured,
            worst: Some(worst),
            samples: BTreeMap::new(),
            lateness: worst_lateness(all),
            machine: worst_machine(all),
            attempts: all.iter().map(|record| record.attempts).sum(),
            limits: middle_limits(records),
            ..first.clone()
        };
        summary.judge_limits();
        if void >= clean.len() {
            summary.void(format!("{void} of {} runs are void", all.len()));
        }
        Some(summary)
    }

    /// The exit status: 0 passed, 1 not, 3 void.
    pub const fn exit_status(&self) -> u8 {
        match self.pass {
            Some(true) => 0,
            Some(false) => 1,
            None => 3,
        }
    }

    fn judge_limits(&mut self) {
        let broken: Vec<String> = self
            .limits
            .iter()
            .filter(|limit| !limit.holds(&self.measured))
            .map(|limit| limit.describe(&self.measured))
            .collect();
        self.pass = Some(broken.is_empty());
        self.reason = (!broken.is_empty()).then(|| broken.join("; "));
    }
}

/// The limits of the first, each with the median of the runs' bounds, because a bound may depend on
/// the seed.
fn middle_limits(records: &[Record]) -> Vec<Limit> {
    let middle = |limit: &Limit| {
        let is_same = |one: &&Limit| one.key == limit.key && one.operator == limit.operator;
        let same = records.iter().filter_map(|record| record.limits.iter().find(is_same));
        let bounds: Vec<&Value> = same.map(|one| &one.bound).collect();
        let differs = bounds.iter().any(|bound| **bound != limit.bound);
        let bound = if differs { middle_of(&bounds) } else { limit.bound.clone() };
        Limit { bound, ..limit.clone() }
    };
    records.first().map_or_else(Vec::new, |first| first.limits.iter().map(middle).collect())
}

/// The medians of each value of each comparison that every run has.
fn summary_of_baselines(records: &[Record]) -> Option<BTreeMap<String, Values>> {
    let mut summary = records.first()?.baseline.clone()?;
    for (name, values) in &mut summary {
        for (key, value) in values {
            let of = |record: &Record| record.baseline.as_ref()?.get(name)?.get(key).cloned();
            let all: Option<Vec<Value>> = records.iter().map(of).collect();
            *value = all.map_or(Value::Null, |all| middle_of(&all.iter().collect::<Vec<_>>()));
        }
    }
    Some(summary)
}

/// The median of numbers, rounded; of flags, whether all hold; of texts, the common one; of tables,
/// the medians of their cells; null if any value is missing.
fn middle_of(values: &[&Value]) -> Value {
    if let Some(table) = table::middle(values) {
        return table;
    }
    if let Some((first, others)) = values.split_first()
        && first.is_string()
        && others.iter().all(|other| other == first)
    {
        return (*first).clone();
    }
    if let Some(flags) = values.iter().map(|value| value.as_bool()).collect::<Option<Vec<_>>>() {
        return Value::Bool(flags.into_iter().all(|flag| flag));
    }
    let numbers = values.iter().map(|value| value.as_f64()).collect::<Option<Vec<_>>>();
    let middle = numbers.and_then(|numbers| statistics::median(&numbers));
    middle.map_or(Value::Null, |middle| Value::from(statistics::rounded(middle)))
}

fn worst_of(values: &[&Value], worse: Worse) -> Value {
    let numbers = || values.iter().map(|value| value.as_f64()).collect::<Option<Vec<_>>>();
    match worse {
        Worse::False => middle_of(values),
        Worse::Higher => {
            numbers().and_then(|all| statistics::max(&all)).map_or(Value::Null, Value::from)
        }
        Worse::Lower => {
            numbers().and_then(|all| statistics::min(&all)).map_or(Value::Null, Value::from)
        }
    }
}

fn worst_lateness(records: &[Record]) -> Option<LatenessRecord> {
    let all: Vec<_> = records.iter().filter_map(|record| record.lateness).collect();
    let max =
        |of: fn(&LatenessRecord) -> f64| statistics::max(&all.iter().map(of).collect::<Vec<_>>());
    Some(LatenessRecord {
        p99_ms: max(|lateness| lateness.p99_ms)?,
        max_ms: max(|lateness| lateness.max_ms)?,
        after_moves_p99_ms: max(|lateness| lateness.after_moves_p99_ms)?,
        packets: all.iter().map(|lateness| lateness.packets).sum(),
    })
}

fn worst_machine(records: &[Record]) -> Option<MachineRecord> {
    let all = records.iter().filter_map(|record| record.machine);
    all.max_by(|one, other| one.work_p99_us.total_cmp(&other.work_p99_us))
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
