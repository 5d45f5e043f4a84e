//! The limits for links that carry together. Knows no pair, and measures nothing.

use super::measured::{OFFERED_SHARE, OFFERED_SHARE_LOSSY, RECORDED_FEEDBACK, SENT_AGAIN};
use super::{OTHERS_SHARE, assist, feedback, scheduler, transport};
use crate::ground::Assist;
use crate::scenario::Outcome;
use crate::scenario::record::Limit;
use crate::scenario::settings::Settings;
use crate::scenario::table::{greatest, least};
use serde_json::Value;

/// The least share of the best single link on every pair.
const SHARE_OF_BEST_MIN: f64 = 0.98;
/// And of the sum, if that is a limit, in every cell without TCP.
const OTHERS_SHARE_OF_SUM_MIN: f64 = 0.90;

/// The key of the greatest part that a TCP sender retransmitted in any cell.
pub(in super::super) const SENT_AGAIN_MOST: &str = "retransmitted_percent_max";
/// The key of the least share of the sum for traffic other than TCP.
pub(in super::super) const OTHERS_SHARE_LEAST: &str = "others_share_of_sum_min";
/// The key of whether datagrams arrived in time, if there are any.
pub(in super::super) const QUEUES: &str = "queues_ok";
/// The keys of recorded networks: the share of the offered rate, without and with losses, and the
/// cost of feedback.
pub(in super::super) const OFFERED_SHARE_LEAST: &str = "share_of_offered_min";
pub(in super::super) const OFFERED_SHARE_LOSSY_LEAST: &str = "share_of_offered_lossy_min";
pub(in super::super) const RECORDED_FEEDBACK_MOST: &str = "feedback_percent_recorded_max";

/// The least share of the offered rate on recorded networks. It is no promise but a floor: nine
/// tenths of the least of four seeds, of TCP, QUIC and datagrams (0.776 without losses, 0.518 with
/// 2 % in bursts).
const OFFERED_SHARE_MIN: f64 = 0.70;
const OFFERED_SHARE_LOSSY_MIN: f64 = 0.46;

/// Retransmissions of a TCP sender with local acknowledgement, in per cent of its segments: hardly
/// any, as it sees neither reordering nor loss (0.002 with three sub-flows, else none). Without
/// local acknowledgement drops tell it when it sends too much: 0.014. Over recorded networks 0.3 is
/// allowed.
const SENT_AGAIN_PERCENT_MAX: f64 = 0.1;

/// The limits, with this share of the sum for TCP in every cell that is judged by it. Other
/// schedulers, and streams, promise no goodput. But all links together must be as fast as the best,
/// and so must one of them, by the mode.
pub(in super::super) fn limits(settings: &Settings, share_of_sum_min: Option<f64>) -> Vec<Limit> {
    let has_tcp = !["quic", "udp"].contains(&settings.text("flow"));
    let of_sum = share_of_sum_min.filter(|_| has_tcp);
    let of_sum = of_sum.map(|least| Limit::at_least("share_of_sum_min", least));
    let of_best = Some(Limit::at_least("share_of_best_min", SHARE_OF_BEST_MIN));
    let (of_sum, of_best) = match (transport(settings), scheduler(settings)) {
        ("auto" | "udp", "earliest") if adds_up(settings) => (of_sum, of_best),
        ("auto" | "udp", "earliest" | "redundant") => (None, of_best),
        _ => (None, None),
    };
    let feedback = share_of_sum_min.map(|_| feedback::limit());
    let held = Limit::equal("checksum_ok", true);
    of_sum.into_iter().chain(of_best).chain(feedback).chain([held]).collect()
}

/// Whether the traffic must reach the sum of the links: over UDP, by the default scheduler, in mode
/// `full`. A control does not say otherwise, because that is what it breaks.
pub(in super::super) fn adds_up(settings: &Settings) -> bool {
    let by_all = !["backup", "single"].contains(&settings.text("mode"));
    by_all && ["auto", "udp"].contains(&transport(settings)) && scheduler(settings) == "earliest"
}

/// Notes whether the datagrams of all cells arrived in time, and adds the limit.
pub(super) fn queues(outcome: &mut Outcome, in_time: &[bool]) {
    if !in_time.is_empty() {
        outcome.hold(QUEUES, in_time.iter().all(|one| *one));
        outcome.ask(Limit::equal(QUEUES, true));
    }
}

/// Measures keys that only some runs have, and adds their limits.
pub(super) fn besides(outcome: &mut Outcome, settings: &Settings, rows: &[Value]) {
    let has = |column: &str| rows.iter().any(|row| row.get(column).is_some());
    let floors = [
        (OTHERS_SHARE, OTHERS_SHARE_LEAST, OTHERS_SHARE_OF_SUM_MIN),
        (OFFERED_SHARE, OFFERED_SHARE_LEAST, OFFERED_SHARE_MIN),
        (OFFERED_SHARE_LOSSY, OFFERED_SHARE_LOSSY_LEAST, OFFERED_SHARE_LOSSY_MIN),
    ];
    for (column, key, floor) in floors.into_iter().filter(|(column, ..)| has(column)) {
        outcome.measure(key, least(rows, column));
        if adds_up(settings) {
            outcome.ask(Limit::at_least(key, floor));
        }
    }
    if has(RECORDED_FEEDBACK) {
        outcome.measure(RECORDED_FEEDBACK_MOST, greatest(rows, RECORDED_FEEDBACK));
        outcome.ask(Limit::at_most(RECORDED_FEEDBACK_MOST, feedback::PERCENT_MAX));
    }
    let again = greatest(rows, SENT_AGAIN);
    outcome.measure(SENT_AGAIN_MOST, again);
    // Between namespaces nobody counts them.
    if again.is_some() && adds_up(settings) && assist(settings) == Assist::On {
        outcome.ask(Limit::at_most(SENT_AGAIN_MOST, SENT_AGAIN_PERCENT_MAX));
    }
}
