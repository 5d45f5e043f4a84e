//! `asymmetric`: one connection over two links that have little in common, as people have them. The
//! split links of Lukaszewski's thesis (Table 3.3) are in `split`.

use super::links::{
    self, ASSIST, CONGESTION, Carried, Cells, FILE, FLOW, FLOWS, GRID, Link, MODE, Pair, SCHEDULER,
    SECONDS, TRANSFER, TRANSPORT, is_recorded, name,
};
use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::table::TABLE;
use super::{About, Key, Outcome, Scenario, Stage};
use crate::ground::{Congestion, Known, Spread};
use serde_json::{Value, json};

/// The least share of the sum.
pub(super) const SHARE_OF_SUM_MIN: f64 = 0.90;

/// A slow near link and a fast far one; fibre and DSL, fibre and LTE, two of cable, DSL and LTE,
/// DSL and a satellite; two mobile networks.
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

/// The pair on which QUIC by BBR without losses misses its bounds, and until when.
const KNOWN_MISS: (usize, &str) = (0, "until the multipath rework");
/// The column of known misses.
const KNOWN: &str = "known_miss";

const CELLS: Cells = Cells {
    pairs: PAIRS,
    to: &[],
    known: Known::ByAddress,
    spreads: &[Spread::ONE],
    losses: &["0", "0.5", "1", "2", "bursty"],
    few: &[(0, 0), (0, 1), (1, 0), (3, 4), (4, 3), (5, 0), (6, 0)],
    carried: Carried::ALL,
    few_others: &[(0, 0), (1, 0), (3, 4), (4, 3), (5, 0), (6, 0)],
    also: &[(Carried::Quic, Congestion::Bbr, KNOWN_MISS.0, 0)],
};

/// The keys at least, with those of recorded networks.
const KEYS: &[Key] = &Key::with::<{ links::KEYS_OF_ALL.len() + 3 }>(
    links::KEYS_OF_ALL,
    &[
        Key::higher_is_better(links::OFFERED_SHARE_LEAST),
        Key::higher_is_better(links::OFFERED_SHARE_LOSSY_LEAST),
        Key::lower_is_better(links::RECORDED_FEEDBACK_MOST),
    ],
);

/// The settings.
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
    FLOWS,
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

    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("what others measured over these links without loss; no seed has them")
            .cite(
                "10/10+40/60",
                json!({"mptcp": 46.5, "openvpn_over_mptcp": 42.7, "openvpn_better_link": 35.6}),
                "Mbit/s",
                "others",
            )
            .cite(
                "300+80",
                json!({"mqvpn_packets": 149, "mqvpn_better_link": 255}),
                "Mbit/s",
                "others, mqvpn's lane of packets",
            )
    }

    /// Nobody can predict the rates of recorded networks. There the better link is the measure, and
    /// a floor.
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
        let chosen = links::chosen(stage.settings, "pair", PAIRS, name);
        let mut outcome = CELLS.tell(stage, chosen.as_slice())?;
        if let Some(Value::Array(rows)) = outcome.measured.get_mut(TABLE) {
            note_known_miss(rows);
        }
        Ok(outcome)
    }
}

/// Marks the row of the cell that is known to miss its bounds.
fn note_known_miss(rows: &mut [Value]) {
    let (at, until) = KNOWN_MISS;
    let cell = [("pair", name(&PAIRS[at])), ("loss", "0".into()), ("flow", "quic".into())];
    let cell = [cell.as_slice(), &[("cc", "bbr".into())]].concat();
    for row in rows.iter_mut().filter_map(Value::as_object_mut) {
        if cell.iter().all(|(key, word)| row.get(*key).is_some_and(|it| it == word.as_str())) {
            row.insert(KNOWN.to_owned(), until.into());
        }
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
