use super::link::loss;
use super::{CONGESTION, Carried, Cell, Cells, GRID, Link, Pair, bound_ms, is_recorded, name};
use crate::emu::{Loss, MS, SECOND};
use crate::ground::{
    Act, Congestion, Connections, Cue, DatagramsRun, Known, Mode, Receiver, Spread,
};
use crate::scenario::addresses::Family;
use crate::scenario::settings::{Setting, Settings};
use crate::scenario::{CALM_NS, Grid, Outcome, Stage};
use serde_json::{Value, json};

const SETTINGS: &[Setting] =
    &[CONGESTION, Setting::choice("loss", &[GRID, "0", "1", "bursty"], "")];
const SLOW: Pair = [Link::of(10, 20); 2];
const FAST: Pair = [Link::of(300, 10), SLOW[0]];
const CELLS: Cells = Cells {
    pairs: &[SLOW, FAST],
    to: &[],
    known: Known::ByAddress,
    spreads: &[Spread::ONE],
    losses: &["0", "1", "bursty"],
    few: &[(0, 0), (1, 1), (1, 2), (0, 2)],
    carried: Carried::TCP,
    few_others: &[],
    also: &[],
};

fn told(grid: Grid, pair: Option<Pair>, set: &[&str]) -> Vec<String> {
    let texts: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
    let settings = Settings::parse(SETTINGS, &texts).unwrap();
    let stage = Stage::quiet(1, &settings, grid);
    CELLS.told(&stage, pair.as_slice()).iter().map(|cell| cell.name()).collect()
}

#[test]
fn an_outer_ipv6_header_leaves_less_room_for_payload() {
    for (outside, packet) in [(Family::V4, 1_472.0), (Family::V6, 1_492.0)] {
        let share = Carried::Tcp.share(outside, 24.0);
        assert!((share - 1_368.0 / packet).abs() < 1e-12, "{outside:?}: {share}");
    }
}

#[test]
fn what_is_set_is_told_and_of_the_rest_what_the_grid_has() {
    let all = told(Grid::Default, None, &[]);
    assert_eq!(all.len(), 4);
    assert_eq!(all[1], "300/10+10/20, loss 1, cubic");
    assert_eq!(told(Grid::Default, None, &["loss=1"]), ["10/20+10/20, loss 1, cubic"]);
    assert_eq!(told(Grid::Default, Some(FAST), &["cc=bbr"]), ["300/10+10/20, loss 0, bbr"]);
    assert_eq!(told(Grid::Default, None, &["cc=reno"]).len(), 4);
    assert_eq!(told(Grid::Full, None, &[]).len(), 2 * 3 * 3);
    assert_eq!(told(Grid::Full, Some(SLOW), &["loss=bursty"]).len(), 3);
    assert_eq!(told(Grid::Full, None, &["control=true"]), ["10/20+10/20, loss 0, cubic"]);
}

#[test]
fn in_the_default_grid_everything_is_carried_that_a_scenario_knows() {
    let all = Cells { carried: Carried::ALL, few_others: &[(1, 2)], ..CELLS };
    let told = |grid, set: &[&str]| {
        let texts: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        let own = [SETTINGS, &[super::FLOW]].concat();
        let settings = Settings::parse(&own, &texts).unwrap();
        let stage = Stage::quiet(1, &settings, grid);
        all.told(&stage, &[]).iter().map(|cell| cell.name()).collect::<Vec<_>>()
    };
    let few = told(Grid::Default, &[]);
    assert_eq!(few.len(), 4 + 2);
    assert_eq!(
        few[4..],
        ["300/10+10/20, loss bursty, cubic, quic", "300/10+10/20, loss bursty, cubic, udp"]
    );
    assert_eq!(told(Grid::Default, &["flow=udp"]).len(), 4);
    assert_eq!(told(Grid::Default, &["loss=1"]), ["10/20+10/20, loss 1, cubic"]);
    assert_eq!(told(Grid::Default, &["loss=1", "flow=quic"]), ["10/20+10/20, loss 1, cubic, quic"]);
    // Of datagrams by the clock nobody controls the rate: once each.
    assert_eq!(told(Grid::Full, &[]).len(), 2 * 3 * (3 + 3 + 1));
}

#[test]
fn what_is_told_besides_is_so_only_where_nothing_is_set() {
    let also: &[_] = &[(Carried::Quic, Congestion::Bbr, 0, 2)];
    let all = Cells { also, ..CELLS };
    let last = |grid, set: &[&str]| {
        let texts: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        let own = [SETTINGS, &[super::FLOW]].concat();
        let settings = Settings::parse(&own, &texts).unwrap();
        let stage = Stage::quiet(1, &settings, grid);
        all.told(&stage, &[]).last().unwrap().name()
    };
    let besides = "10/20+10/20, loss bursty, bbr, quic";
    assert_eq!(last(Grid::Default, &[]), besides);
    for set in ["cc=bbr", "flow=tcp", "loss=0", "control=true"] {
        assert_ne!(last(Grid::Default, &[set]), besides, "{set}");
    }
    assert_ne!(last(Grid::Full, &[]), besides, "it is in the grid");
}

#[test]
fn a_link_may_lose_what_the_other_does_not() {
    let [near, far] = [Link::parse("10/10").unwrap(), Link::parse("2.5/30/0.5").unwrap()];
    assert_eq!(name(&[near, far]), "10/10+2.5/30/0.5");
    assert_eq!(
        [near, far].map(|link| link.loss("1")),
        [Loss::Bernoulli(0.01), Loss::Bernoulli(0.005)]
    );
    let cell = |pair| Cell::down(pair, "0", Congestion::Cubic);
    assert!(cell([near, far]).is_lossy() && !cell([near; 2]).is_lossy());
    assert_eq!(cell([near, far]).modes_alone(Mode::Full), [Mode::Single, Mode::Full]);
    let terrain = cell([near, far]).terrain(&Stage::quiet(1, &Settings::default(), Grid::Full));
    assert_eq!([&terrain.link, &terrain.beside[0]].map(|link| link.down.loss.mean()), [0.0, 0.005]);
}

#[test]
fn a_queue_that_stands_for_ever_is_none_that_is_in_time() {
    let cell = |carried, loss| Cell { carried, ..Cell::down(SLOW, loss, Congestion::Cubic) };
    let took = |half| DatagramsRun { delays_ms: Some([half, 900.0, 900.0]), ..Default::default() };
    let udp = cell(Carried::Udp, "0");
    assert_eq!([200.0, 201.0].map(|ms| udp.is_in_time(&took(ms))), [Some(true), Some(false)]);
    assert_eq!(udp.is_in_time(&DatagramsRun::default()), Some(false), "nothing came");
    let lossy = cell(Carried::Udp, "1");
    assert_eq!([270.0, 271.0].map(|ms| lossy.is_in_time(&took(ms))), [Some(true), Some(false)]);
    for other in [Carried::Tcp, Carried::Quic] {
        assert_eq!(cell(other, "0").is_in_time(&took(0.0)), None, "it is not about these");
    }
}

#[test]
fn where_something_is_lost_the_link_alone_is_repaired_as_both_are() {
    let cell = |loss| Cell::down(SLOW, loss, Congestion::Cubic);
    assert_eq!(cell("1").modes_alone(Mode::Full), [Mode::Single, Mode::Full]);
    assert_eq!(cell("0").modes_alone(Mode::Full), [Mode::Single]);
    assert_eq!(cell("bursty").modes_alone(Mode::Backup), [Mode::Single], "nor does the other");
    // So it has four times as much, and is a measure.
    let settings = Settings::parse(&[super::SECONDS], &["seconds=6".to_owned()]).unwrap();
    let stage = Stage::quiet(1, &settings, Grid::Default);
    let far = Cell { pair: [Link::of(10, 60); 2], ..cell("1") };
    let best = far.alone(&stage, &mut Outcome::default()).unwrap().best_mbps.unwrap();
    assert!(best > 8.0, "{best} of 10 Mbit/s");
}

#[test]
fn what_was_told_besides_is_asked_for() {
    let asked = |rows: &[Value], set: &[&str]| {
        let texts: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        let own = [super::MODE, super::SCHEDULER, super::ASSIST];
        let settings = Settings::parse(&own, &texts).unwrap();
        let mut outcome = Outcome::default();
        super::judged::besides(&mut outcome, &settings, rows);
        let broken = outcome.limits.iter().filter(|limit| !limit.holds(&outcome.measured));
        (outcome.limits.len(), broken.map(crate::scenario::record::Limit::key).collect::<Vec<_>>())
    };
    let again = |percent| json!({"share_of_sum": 0.99, "retransmitted_percent": percent});
    assert_eq!(asked(&[again(Some(0.1))], &[]), (1, vec![]));
    assert_eq!(asked(&[again(Some(0.2))], &[]), (1, vec!["retransmitted_percent_max"]));
    assert_eq!(asked(&[again(Some(0.2))], &["assist=off"]), (0, vec![]));
    assert_eq!(asked(&[again(None)], &[]), (0, vec![]), "nobody counted");
    let other = |share| json!({"others_share_of_sum": share});
    assert_eq!(asked(&[other(Some(0.91))], &[]), (1, vec![]));
    let few = [other(Some(0.91)), other(Some(0.89))];
    assert_eq!(asked(&few, &[]), (1, vec!["others_share_of_sum_min"]));
    assert_eq!(asked(&[other(None)], &[]), (1, vec!["others_share_of_sum_min"]), "none arrived");
    assert_eq!(asked(&few, &["mode=single"]), (0, vec![]));
    let recorded = |column: &str, share| json!({column: share, "feedback_percent_recorded": 0.7});
    let both = [recorded("share_of_offered", 0.7), recorded("share_of_offered_lossy", 0.45)];
    assert_eq!(asked(&both, &[]), (3, vec!["share_of_offered_lossy_min"]));
    assert_eq!(asked(&both, &["mode=backup"]), (1, vec![]));
}

#[test]
fn queues_are_judged_where_there_are_datagrams_by_the_clock() {
    let asked = |in_time: &[bool]| {
        let mut outcome = Outcome::default();
        super::judged::queues(&mut outcome, in_time);
        let holds = outcome.limits.iter().map(|limit| limit.holds(&outcome.measured));
        holds.collect::<Vec<_>>()
    };
    assert_eq!([asked(&[true, true]), asked(&[true, false])], [[true], [false]]);
    assert!(asked(&[]).is_empty());
}

#[test]
fn a_recorded_link_can_carry_what_was_recorded_then() {
    let link = Link::recorded("tmobile-lte", 16, 50);
    let all = link.mbps_between(Receiver::Client, (0, 120 * SECOND));
    assert!((15.9..16.1).contains(&all), "{all}");
    let up = link.mbps_between(Receiver::Server, (0, 120 * SECOND));
    assert!((11.1..11.3).contains(&up), "{up}");
    let halves = [0, 60]
        .map(|from| link.mbps_between(Receiver::Client, (from * SECOND, (from + 60) * SECOND)));
    assert!((halves[0] - halves[1]).abs() > 1.0, "{halves:?}: it is not the same all the time");
    assert_eq!(SLOW[0].mbps_between(Receiver::Client, (0, SECOND)), 10.0);
    let pair = [SLOW[0], link];
    assert!(is_recorded(pair) && !is_recorded(SLOW));
    assert_eq!(name(&pair), "10/20+tmobile-lte");
}

#[test]
fn a_word_is_a_loss_and_lateness_is_held_against_the_shallowest_queue() {
    assert_eq!((loss("0"), loss("0.5")), (Loss::None, Loss::Bernoulli(0.005)));
    assert!((loss("bursty").mean() - 0.02).abs() < 1e-9);
    // 64 KiB at 10 Mbit/s, and the product of 300 Mbit/s and 10 ms.
    assert!((bound_ms(&[SLOW]) - 52.4).abs() < 0.1, "{}", bound_ms(&[SLOW]));
    assert!((bound_ms(&[SLOW, FAST]) - 10.0).abs() < 0.1, "{}", bound_ms(&[FAST]));
}

/// A busy machine looks like a silence to both ends. Whoever was held over it was never repaired
/// again: 18 of 108 Mbit/s for the rest of the connection, about what plain TCP has at this loss.
#[test]
fn after_a_silence_of_all_links_a_connection_has_as_much_as_before() {
    const SECONDS: u64 = 10;
    let settings = Settings::default();
    for (congestion, silence_ms) in
        [(Congestion::Cubic, 300), (Congestion::Cubic, 2_000), (Congestion::Bbr, 300)]
    {
        let cell = Cell::down([Link::of(80, 10), Link::of(40, 30)], "0.5", congestion);
        let stage = Stage::quiet(1, &settings, Grid::Default);
        let cue = |at_ms: u64, act| Cue::at(at_ms * MS, act);
        let script = [
            cue(2_000, Act::Swallow(0)),
            cue(2_000, Act::Swallow(1)),
            cue(2_000 + silence_ms, Act::Return(0)),
            cue(2_000 + silence_ms, Act::Return(1)),
        ];
        let bulk = Connections::outlasting(cell.to, 120, SECONDS * SECOND);
        let bulk = Connections { congestion, ..bulk };
        let mut mbps = [0.0; 2];
        let told = stage.on_ground(&cell.terrain(&stage), &mut |ground, _| {
            ground.pause(CALM_NS)?;
            let carried = ground.connect(&[bulk], 2 * SECONDS * SECOND, &script)?.concat();
            let within = |from, to| carried[0].mbps_within(from * SECOND, to * SECOND);
            mbps = [within(1, 2), within(6, SECONDS)].map(Option::unwrap_or_default);
            Ok(())
        });
        assert_eq!(told.unwrap().broke, None);
        let [before, after] = mbps;
        assert!(after > 0.9 * before, "{congestion:?}, {silence_ms} ms: {after} of {before}");
    }
}
