//! What must hold of what links carry together. Knows no pair, and measures nothing.

use super::{OTHERS_SHARE, feedback, scheduler, transport};
use crate::scenario::record::Limit;
use crate::scenario::settings::Settings;
use serde_json::Value;

/// The share of the best single link that must be there on every pair.
const SHARE_OF_BEST_MIN: f64 = 0.98;
/// And of the sum, where it is asked for, in every cell of what is no TCP.
const OTHERS_SHARE_OF_SUM_MIN: f64 = 0.90;

/// What must hold, with so much of the sum for TCP in every cell judged by it. Of the schedulers
/// and of the streams that are there to compare with, no goodput is promised; but what goes by all
/// links is as fast as the best. So is what goes by one of them, by the mode.
pub(in super::super) fn limits(settings: &Settings, share_of_sum_min: Option<f64>) -> Vec<Limit> {
    let of_sum = share_of_sum_min.map_or_else(Vec::new, |least| {
        let tcp = Limit::at_least("share_of_sum_min", least);
        let is_told = !["quic", "udp"].contains(&settings.text("flow"));
        let others = Limit::equal("others_ok", true);
        is_told.then_some(tcp).into_iter().chain([others]).collect()
    });
    let of_best = Some(Limit::at_least("share_of_best_min", SHARE_OF_BEST_MIN));
    // A control does not say so: what it breaks is the sum.
    let carries_by_all = !["backup", "single"].contains(&settings.text("mode"));
    let (of_sum, of_best) = match (transport(settings), scheduler(settings)) {
        ("auto" | "udp", "earliest") if carries_by_all => (of_sum, of_best),
        ("auto" | "udp", "earliest" | "redundant") => (Vec::new(), of_best),
        _ => (Vec::new(), None),
    };
    let feedback = share_of_sum_min.map(|_| feedback::limit());
    let held = ["queues_ok", "checksum_ok"].map(|key| Limit::equal(key, true));
    of_sum.into_iter().chain(of_best).chain(feedback).chain(held).collect()
}

/// Whether what is no TCP has enough of the sum in each of these rows.
pub(super) fn others_ok(rows: &[Value]) -> bool {
    let shares = rows.iter().filter_map(|row| row.get(OTHERS_SHARE));
    shares.map(Value::as_f64).all(|share| share.is_some_and(|it| it >= OTHERS_SHARE_OF_SUM_MIN))
}
