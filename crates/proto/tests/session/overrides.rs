//! The user's rules for flows: the strength of the suite that seals a flow's packets, copies, and
//! what becomes of open flows when the rules change.

use crate::pair::bulk::{self, arrived};
use crate::pair::{Pair, syn, udp};
use rove_proto::crypto::Floor;
use rove_proto::flow::overrides::{Asks, By, Copies, Decided, Goal, Override, Overrides, Selector};
use rove_proto::flow::report::FlowReport;
use rove_proto::node::{Command, Config, Event};
use rove_proto::packet::{Level, Strength};
use rove_proto::policy::Sealing;
use rove_proto::time::Duration;

const WIFI: [u8; 4] = [203, 0, 113, 5];
const CABLE: [u8; 4] = [192, 0, 2, 130];
/// Lengths of datagrams that carry packets of the tests. Probes of the MTU are longer, all others
/// shorter.
const LARGE: std::ops::Range<usize> = 1_000..1_300;
const NAMED: u16 = 5_060;
const OTHER: u16 = 8_000;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn rule(port: u16, strength: Strength) -> Command {
    let of = Selector { port: Some(port), ..Selector::default() };
    let asks = Asks { strength: Some(strength), ..Asks::default() };
    Command::SetOverrides(Overrides::new(&[Override { of, asks }]))
}

/// A client that wants no more than this by itself.
fn wants(floor: Floor, strength: Floor) -> impl Fn(&mut Config) {
    move |config| {
        config.floor = floor;
        config.sealing = Sealing { strength, ..Sealing::default() };
    }
}

/// A session whose paths have been measured, and how strong large datagrams are from now on.
fn measured(floor: Floor, strength: Floor) -> Pair {
    let mut pair = Pair::up_as(wants(floor, strength), wants(floor, strength));
    pair.run(ms(5_000)); // the path's size is known: nothing else is large
    pair.client_sealed.clear();
    pair
}

/// Datagrams with packets since this was asked last: with a suite of 128 bits, and of 256.
fn strengths(pair: &mut Pair) -> [usize; 2] {
    let large = std::mem::take(&mut pair.client_sealed);
    let large: Vec<_> = large.into_iter().filter(|(len, _)| LARGE.contains(len)).collect();
    [Floor::BITS_128, Floor::BITS_256]
        .map(|it| large.iter().filter(|(_, profile)| profile.suite().strength() == it).count())
}

/// Ten packets of each of two flows.
fn send(pair: &mut Pair) -> [usize; 2] {
    for _ in 0..10 {
        for port in [NAMED, OTHER] {
            pair.send(&udp((40_000, port), &[7; 1_100], false));
            pair.run(ms(5));
        }
    }
    pair.run(ms(100));
    strengths(pair)
}

#[test]
fn a_rule_raises_the_datagrams_of_its_flow_and_no_others() {
    let mut pair = measured(Floor::BITS_128, Floor::BITS_128);
    assert_eq!(send(&mut pair), [20, 0], "without a rule");
    pair.tell_client(rule(NAMED, Strength::Bits256));
    assert_eq!(send(&mut pair), [10, 10], "the flow goes on, under the new rule");
    pair.tell_client(Command::SetOverrides(Overrides::default()));
    assert_eq!(send(&mut pair), [20, 0], "the rule is gone");
    assert_eq!((pair.gateway_inner.len(), pair.epochs()), (60, 1), "no change costs a packet");
}

#[test]
fn a_rule_below_what_holds_anyway_changes_nothing() {
    for (floor, strength) in
        [(Floor::BITS_256, Floor::BITS_128), (Floor::BITS_128, Floor::BITS_256)]
    {
        let mut pair = measured(floor, strength);
        pair.tell_client(rule(NAMED, Strength::Bits128));
        assert_eq!(send(&mut pair), [0, 20], "{floor:?} {strength:?}");
    }
}

/// Two paths lose packets: what is repaired, joined, or leaves by another path is as strong.
#[test]
fn what_is_sent_again_is_as_strong_as_it_was() {
    let weak = || wants(Floor::BITS_128, Floor::BITS_128);
    let mut pair = bulk::bonded(Pair::up_as(weak(), weak()), &[WIFI, CABLE]);
    pair.run(ms(5_000));
    pair.tell_client(rule(40_001, Strength::Bits256));
    pair.client_sealed.clear();
    let mut count = 0;
    pair.filter = Box::new(move |_| {
        count += 1;
        count % 13 != 0
    });
    bulk::flow(&mut pair, 0..2_000);
    pair.filter = Box::new(|_| true);
    bulk::flow(&mut pair, 2_000..2_020);
    pair.run(ms(800));
    assert_eq!(arrived(&pair)[0], Vec::from_iter(0..2_020));
    let [low, high] = strengths(&mut pair);
    assert_eq!(low, 0);
    assert!(high > 2_100, "{high}: repairs are among them");
}

/// What a reload changes of open flows: their treatment, and nothing else.
#[test]
fn open_flows_go_on_under_other_rules() {
    let mut pair = Pair::up();
    pair.send(&syn(false));
    pair.send(&udp((40_000, NAMED), &[7; 100], false));
    pair.run(ms(100));
    let known = |pair: &Pair| pair.client.flows(pair.now, None).flows;
    let before = known(&pair);
    assert_eq!(before.len(), 2);
    assert!(before.iter().all(|(_, flow)| flow.decided == Decided::default()));
    let asks = Asks {
        strength: Some(Strength::Bits256),
        level: Some(Level::First),
        copies: Some(Copies::Never),
        goal: Some(Goal::Latency),
    };
    let all = Override { of: Selector::default(), asks };
    pair.tell_client(Command::SetOverrides(Overrides::new(&[all])));
    for (known, before) in known(&pair).iter().zip(&before) {
        let (decided, level) = (known.1.decided, Level::First);
        assert_eq!(decided.level, Some(By { value: level, rule: 1 }));
        assert_eq!(decided.goal, Some(By { value: Goal::Latency, rule: 1 }));
        assert_eq!(decided.copies, Some(By { value: Copies::Never, rule: 1 }));
        let expected = FlowReport { decided, level, ..before.1 };
        assert_eq!(known.1, expected, "it goes on");
    }
    pair.tell_client(Command::SetOverrides(Overrides::default()));
    assert_eq!(known(&pair), before);
}

/// The shell is asked once for each flow, and only where a rule is for a user. Until it has
/// answered, the flow is as strong as it may have to be.
#[test]
fn a_rule_for_a_user_holds_for_the_flows_of_that_user() {
    let mut pair = measured(Floor::BITS_128, Floor::BITS_128);
    let asked = |pair: &mut Pair| -> Vec<_> {
        let events = std::mem::take(&mut pair.client_events).into_iter();
        let asked = events.filter_map(|event| {
            if let Event::WhoseFlow { tuple, .. } = event { Some(tuple) } else { None }
        });
        asked.collect()
    };
    assert_eq!((send(&mut pair), asked(&mut pair).len()), ([20, 0], 0), "without a rule");
    let of = Selector { user: Some(1_000), ..Selector::default() };
    let asks = Asks { strength: Some(Strength::Bits256), ..Asks::default() };
    pair.tell_client(Command::SetOverrides(Overrides::new(&[Override { of, asks }])));
    assert_eq!(send(&mut pair), [0, 20], "nobody has answered yet");
    let mut flows = asked(&mut pair);
    flows.sort();
    let ports: Vec<_> = flows.iter().map(|tuple| tuple.remote.1).collect();
    assert_eq!(ports, [NAMED, OTHER], "each once");
    for (tuple, user) in flows.into_iter().zip([Some(1_000), None]) {
        pair.tell_client(Command::SetUser { peer: pair.gateway_key, tuple, user });
    }
    assert_eq!(send(&mut pair), [10, 10]);
    assert!(asked(&mut pair).is_empty());
}
