//! `asymmetric`: one connection over two links that have little in common (Table 3.3 of
//! Lukaszewski's thesis, and pairs that people have).

use super::links::{
    self, ASSIST, CONGESTION, Carried, Cells, FILE, FLOW, GRID, Link, MODE, Pair, SCHEDULER,
    SECONDS, TRANSFER, TRANSPORT, is_recorded, name,
};
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::{About, Key, Outcome, Scenario, Stage};
use crate::ground::{Known, Spread};
use serde_json::{Value, json};

/// The share of the sum that must be there.
pub(super) const SHARE_OF_SUM_MIN: f64 = 0.90;

/// Of the thesis; fibre and DSL, fibre and LTE, two of cable, DSL and LTE, DSL and a satellite; two
/// mobile networks.
pub(super) const PAIRS: &[Pair] = &[
    pair((10, 10), (40, 60)),
    pair((300, 10), (80, 30)),
    pair((300, 10), (30, 60)),
    pair((100, 25), (100, 25)),
    pair((40, 10), (10, 60)),
    pair((50, 10), (5, 300)),
    // Mean rates down: 5.3 and 16.0 Mbit/s.
    [Link::recorded("verizon-lte", 5, 50), Link::recorded("tmobile-lte", 16, 50)],
];

const CELLS: Cells = Cells {
    pairs: PAIRS,
    to: &[],
    known: Known::ByAddress,
    spreads: &[Spread::ONE],
    losses: &["0", "0.5", "1", "2", "bursty"],
    few: &[(0, 0), (0, 1), (1, 0), (3, 4), (4, 3), (5, 0), (6, 0)],
    carried: Carried::ALL,
    few_others: &[(0, 0), (1, 0), (3, 4), (4, 3), (5, 0), (6, 0)],
};

/// What is measured at least: of recorded networks beside.
const KEYS: &[Key] = &Key::with::<{ links::KEYS_OF_ALL.len() + 3 }>(
    links::KEYS_OF_ALL,
    &[
        Key::higher_is_better(links::OFFERED_SHARE_LEAST),
        Key::higher_is_better(links::OFFERED_SHARE_LOSSY_LEAST),
        Key::lower_is_better(links::RECORDED_FEEDBACK_MOST),
    ],
);

/// What can be set.
const SETTINGS: &[Setting] = &[
    MODE,
    SCHEDULER,
    TRANSPORT,
    ASSIST,
    TRANSFER,
    CONGESTION,
    Setting::choice(
        "pair",
        &[
            GRID,
            "10/10+40/60",
            "300/10+80/30",
            "300/10+30/60",
            "100/25+100/25",
            "40/10+10/60",
            "50/10+5/300",
            "verizon-lte+tmobile-lte",
        ],
        "the links, each with its Mbit/s and the milliseconds of its round trip; or two mobile \
         networks, recorded on the way and walked through at the same time",
    ),
    Setting::choice(
        "loss",
        &[GRID, "0", "0.5", "1", "2", "bursty"],
        "what each loses each way, in per cent; or 2 % in bursts of 3",
    ),
    FLOW,
    SECONDS,
    FILE,
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Asymmetric;

impl Scenario for Asymmetric {
    fn about(&self) -> About {
        About {
            name: "asymmetric",
            summary: "one connection over two links of different kinds, beside the better one",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn paper(&self, _settings: &Settings) -> Value {
        json!({
            "source": "10/10+40/60 as Lukaszewski 2017, Table 3.3; 300+80 of mqvpn's lane \
                       of packets; Mbit/s without loss",
            "10/10+40/60": {
                "mptcp": 46.5, "openvpn_over_mptcp": 42.7, "openvpn_better_link": 35.6,
            },
            "300+80": {"mqvpn_packets": 149, "mqvpn_better_link": 255},
        })
    }

    /// What recorded networks offer nobody can foresee: there the better one is the measure, and
    /// beside it a floor.
    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        let chosen = links::chosen(settings, "pair", PAIRS, name);
        let foreseeable = !chosen.is_some_and(is_recorded);
        links::limits(settings, foreseeable.then_some(SHARE_OF_SUM_MIN))
    }

    fn bound_ms(&self, settings: &Settings) -> f64 {
        let chosen = links::chosen(settings, "pair", PAIRS, name);
        chosen.map_or_else(|| links::bound_ms(PAIRS), |pair| links::bound_ms(&[pair]))
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        CELLS.tell(stage, links::chosen(stage.settings, "pair", PAIRS, name))
    }
}

/// Two links by rate and round trip.
const fn pair(first: (u64, u64), second: (u64, u64)) -> Pair {
    [Link::of(first.0, first.1), Link::of(second.0, second.1)]
}

#[cfg(test)]
mod tests {
    use super::{PAIRS, SETTINGS, is_recorded, links, name};
    use crate::emu::{Loss, Rate};
    use crate::scenario::settings::{Kind, Settings};

    #[test]
    fn every_pair_can_be_chosen_by_its_name() {
        let setting = SETTINGS.iter().find(|setting| setting.key == "pair").unwrap();
        let Kind::Choice(words) = setting.kind else { panic!() };
        assert_eq!(words[1..], PAIRS.iter().map(name).collect::<Vec<_>>());
        for pair in PAIRS {
            let set = [format!("pair={}", name(pair))];
            let settings = Settings::parse(SETTINGS, &set).unwrap();
            assert_eq!(links::chosen(&settings, "pair", PAIRS, name), Some(*pair));
            let has_trace =
                pair.map(|link| matches!(link.config(Loss::None).up.rate, Rate::Trace(_)));
            assert_eq!(has_trace, [is_recorded(*pair); 2], "{}", name(pair));
        }
        let settings = Settings::parse(SETTINGS, &[]).unwrap();
        assert_eq!(links::chosen(&settings, "pair", PAIRS, name), None);
    }
}
