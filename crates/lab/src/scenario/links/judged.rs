//! What must hold of what links carry together. Knows no pair, and measures nothing.

use super::measured::{OFFERED_SHARE, OFFERED_SHARE_LOSSY, RECORDED_FEEDBACK, SENT_AGAIN};
use super::{OTHERS_SHARE, assist, feedback, scheduler, transport};
use crate::ground::Assist;
use crate::scenario::Outcome;
use crate::scenario::record::Limit;
use crate::scenario::settings::Settings;
use crate::scenario::table::{greatest, least};
use serde_json::Value;

/// The share of the best single link that must be there on every pair.
const SHARE_OF_BEST_MIN: f64 = 0.98;
/// And of the sum, where it is asked for, in every cell of what is no TCP.
const OTHERS_SHARE_OF_SUM_MIN: f64 = 0.90;

/// The key of the most that a TCP sender sent again in any cell.
pub(in super::super) const SENT_AGAIN_MOST: &str = "retransmitted_percent_max";
/// The key of what others than TCP have of the sum at least, where they are told.
pub(in super::super) const OTHERS_SHARE_LEAST: &str = "others_share_of_sum_min";
/// The key of whether datagrams by the clock were there in time, where there are any.
pub(in super::super) const QUEUES: &str = "queues_ok";
/// The keys of recorded networks: what there is of what they offered, without losses and with them,
/// and what feedback costs.
pub(in super::super) const OFFERED_SHARE_LEAST: &str = "share_of_offered_min";
pub(in super::super) const OFFERED_SHARE_LOSSY_LEAST: &str = "share_of_offered_lossy_min";
pub(in super::super) const RECORDED_FEEDBACK_MOST: &str = "feedback_percent_recorded_max";

/// What there must be of what recorded networks offered, which nobody foresees. It is no promise
/// but a floor under what there is: nine tenths of the least of four seeds, of TCP, QUIC and
/// datagrams (0.776 without losses, 0.518 with 2 % in bursts).
const OFFERED_SHARE_MIN: f64 = 0.70;
const OFFERED_SHARE_LOSSY_MIN: f64 = 0.46;

/// What a TCP sender that is assisted may send again, in per cent of its segments: hardly any, as
/// it sees neither reordering nor loss (0.002 by three sub-flows, else none). One that is not is
/// told by drops when there is too much: 0.014. Over recorded networks it may be 0.3.
const SENT_AGAIN_PERCENT_MAX: f64 = 0.1;

/// What must hold, with so much of the sum for TCP in every cell judged by it. Of the schedulers
/// and of the streams that are there to compare with, no goodput is promised; but what goes by all
/// links is as fast as the best. So is what goes by one of them, by the mode.
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

/// Whether what is carried is to have what the links have together: by our own datagrams, by the
/// default scheduler, by all links. A control does not say otherwise: the sum is what it breaks.
pub(in super::super) fn adds_up(settings: &Settings) -> bool {
    let by_all = !["backup", "single"].contains(&settings.text("mode"));
    by_all && ["auto", "udp"].contains(&transport(settings)) && scheduler(settings) == "earliest"
}

/// Notes whether the datagrams of all cells that have them were there in time, and asks for it.
pub(super) fn queues(outcome: &mut Outcome, in_time: &[bool]) {
    if !in_time.is_empty() {
        outcome.hold(QUEUES, in_time.iter().all(|one| *one));
        outcome.ask(Limit::equal(QUEUES, true));
    }
}

/// Measures what not every run tells, and asks for it where it was told.
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
    // Between namespaces nobody counts it.
    if again.is_some() && adds_up(settings) && assist(settings) == Assist::On {
        outcome.ask(Limit::at_most(SENT_AGAIN_MOST, SENT_AGAIN_PERCENT_MAX));
    }
}
