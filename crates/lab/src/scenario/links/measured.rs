//! The measurements of a cell, as the row of a table. It judges nothing.

use super::compared::Compared;
use super::{Carried, Cell, is_recorded, name};
use crate::ground::{DatagramsRun, Receiver};
use crate::scenario::table::{Row, figure};
use serde_json::Value;

/// The column with the share of the sum for traffic other than TCP.
pub(super) const OTHERS_SHARE: &str = "others_share_of_sum";
/// The columns of recorded networks, and of retransmissions by TCP senders.
pub(super) const OFFERED_SHARE: &str = "share_of_offered";
pub(super) const OFFERED_SHARE_LOSSY: &str = "share_of_offered_lossy";
pub(super) const RECORDED_FEEDBACK: &str = "feedback_percent_recorded";
pub(super) const SENT_AGAIN: &str = "retransmitted_percent";
const RECORDED_SENT_AGAIN: &str = "retransmitted_percent_recorded";

/// The measurements of a cell; rates in Mbit/s.
#[derive(Debug, Default)]
pub(super) struct Measured {
    pub(super) goodput_mbps: Option<f64>,
    /// The capacity of both links for inner payload.
    pub(super) sum_mbps: Option<f64>,
    pub(super) best_mbps: Option<f64>,
    pub(super) feedback_percent: Option<f64>,
    /// The result of the datagrams, if there were any.
    pub(super) datagrams: DatagramsRun,
    pub(super) file_s: Option<f64>,
    pub(super) bare_file_s: Option<f64>,
    pub(super) compared: Compared,
    /// Whether everything received is what was sent, on one link alone as well, and the whole file
    /// has arrived.
    pub(super) is_whole: bool,
    /// The error that ended a connection early, on all links or on one alone.
    pub(super) broke: Option<String>,
}

impl Measured {
    /// Retransmissions of the inner sender, in per cent of all segments; `None` if nobody counts.
    fn again_percent(&self) -> Option<f64> {
        self.datagrams.transfer.segments?.percent_again()
    }

    /// The row of a table.
    pub(super) fn row<const N: usize>(&self, cell: &Cell<N>) -> Row {
        let share = |part: Option<f64>, of: Option<f64>| figure(part.zip(of).map(|(a, b)| a / b));
        // Recorded networks have limits of their own.
        let (of_sum, feedback) = match (is_recorded(cell.pair), cell.carried) {
            (false, Carried::Tcp) => ("share_of_sum", "feedback_percent"),
            (false, _) => (OTHERS_SHARE, "feedback_percent"),
            (true, _) if cell.loss == "0" => (OFFERED_SHARE, RECORDED_FEEDBACK),
            (true, _) => (OFFERED_SHARE_LOSSY, RECORDED_FEEDBACK),
        };
        let again = if is_recorded(cell.pair) { RECORDED_SENT_AGAIN } else { SENT_AGAIN };
        let congestion = (cell.carried != Carried::Udp).then(|| cell.congestion.name());
        let mut row = vec![
            ("pair", name(&cell.pair).into()),
            ("to", if cell.to == Receiver::Client { "client" } else { "server" }.into()),
            ("loss", cell.loss.into()),
            ("subflows", cell.spread.subflows.into()),
            ("flow", cell.carried.name().into()),
            ("cc", congestion.into()),
            ("goodput_mbps", figure(self.goodput_mbps)),
            ("sum_mbps", figure(self.sum_mbps)),
            ("best_mbps", figure(self.best_mbps)),
            (of_sum, share(self.goodput_mbps, self.sum_mbps)),
            ("share_of_best", share(self.goodput_mbps, self.best_mbps)),
            (feedback, figure(self.feedback_percent)),
        ];
        match cell.carried {
            Carried::Tcp => row.extend([
                (again, figure(self.again_percent())),
                ("file_s", figure(self.file_s)),
                ("bare_file_s", figure(self.bare_file_s)),
                ("file_share", share(self.bare_file_s, self.file_s)),
            ]),
            Carried::Quic => {}
            Carried::Udp => {
                let [half, most, all] =
                    self.datagrams.delays_ms.map_or([None; 3], |ms| ms.map(Some));
                row.extend([
                    ("delay_ms", figure(half)),
                    ("delay_ms_p99", figure(most)),
                    ("longest_ms", figure(all)),
                    ("overtaken", self.datagrams.overtaken.into()),
                ]);
            }
        }
        row.extend(self.broke.as_ref().map(|why| ("broke", why.as_str().into())));
        let row = row.into_iter().map(|(key, value): (&str, Value)| (key.to_owned(), value));
        row.chain(self.compared.columns(self.goodput_mbps)).collect()
    }
}
