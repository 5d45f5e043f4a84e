//! `symmetric`: one connection over two links of 10 Mbit/s (Figures 3.5 and 3.6 of
//! Lukaszewski's thesis).
//!
//! The thesis' round trip of 0 is told with 1 ms: no link is shorter than its serialiser takes for
//! a packet.

use super::links::{
    self, ASSIST, CONGESTION, Carried, Cells, FILE, FLOW, GRID, KEYS, Link, MODE, Pair, SCHEDULER,
    SECONDS, TRANSFER, TRANSPORT,
};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::{About, Outcome, Scenario, Stage};
use crate::ground::{Known, Spread};
use serde_json::{Value, json};

/// The share of the sum that must be there.
pub(super) const SHARE_OF_SUM_MIN: f64 = 0.95;

/// By round trip.
pub(super) const PAIRS: &[Pair] = &[pair(20), pair(60), pair(1)];

const CELLS: Cells = Cells {
    pairs: PAIRS,
    to: &[],
    known: Known::ByAddress,
    spreads: &[Spread::ONE],
    losses: &["0", "0.5", "1"],
    few: &[(2, 0), (0, 0), (0, 2), (1, 0), (1, 2)],
    carried: Carried::ALL,
    few_others: &[(0, 0), (0, 2), (1, 0), (1, 2)],
};

/// What can be set.
const SETTINGS: &[Setting] = &[
    MODE,
    SCHEDULER,
    TRANSPORT,
    ASSIST,
    TRANSFER,
    CONGESTION,
    Setting::choice("rtt", &[GRID, "1", "20", "60"], "round trip of both links in milliseconds"),
    Setting::choice("loss", &[GRID, "0", "0.5", "1"], "what each loses each way, in per cent"),
    FLOW,
    SECONDS,
    FILE,
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

    fn paper(&self, _settings: &Settings) -> Value {
        json!({
            "source": "issue 5: others measured in the setting of Lukaszewski 2017, Figures 3.5 \
                       and 3.6; Mbit/s of the file of 16,331,410 bytes by CUBIC",
            "rtt_ms/loss_percent": ["20/0", "20/0.5", "20/1", "60/0", "60/0.5", "60/1"],
            "openvpn_udp_one_link": [9.3, 7.5, 5.0, 9.2, 2.8, 1.8],
            "openvpn_tcp_one_link": [8.9, 7.3, 4.8, 8.1, 2.7, 1.8],
            "openvpn_mptcp_full_mesh": [15.7, 14.4, 11.6, 11.1, 6.4, 4.5],
            "openvpn_mptcp_one_a_link": [16.2, 10.5, 7.3, 13.6, 4.2, 3.3],
            "mlvpn": [17.9, 3.7, 2.1, 15.3, 1.3, 0.8],
            "glorytun": [17.2, 7.2, 5.0, 15.8, 3.0, 2.0],
            "mqvpn_wlb": [9.3, 6.8, 4.7, 9.3, 2.6, 1.8],
            "mqvpn_minrtt": [10.1, 6.3, 4.7, 9.7, 2.7, 2.0],
            "mqvpn_hybrid": [18.5, 17.6, 17.1, 17.9, 15.6, 17.2],
        })
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        links::limits(settings, Some(SHARE_OF_SUM_MIN))
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        links::bound_ms(PAIRS)
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let round_trip = |pair: &Pair| pair[0].round_trip_ms.to_string();
        CELLS.tell(stage, links::chosen(stage.settings, "rtt", PAIRS, round_trip))
    }
}

const fn pair(round_trip_ms: u64) -> Pair {
    [Link::of(10, round_trip_ms); 2]
}
