use super::*;
use crate::wire::inner::{TCP, UDP};

const BULK: (Class, Whose) = (Class::Bulk, Whose::Known(None));
const DEVICE: [u8; 4] = [192, 168, 7, 20];
const SERVER: [u8; 4] = [203, 0, 113, 7];

fn prefix(address: [u8; 4], bits: u8) -> Prefix {
    Prefix { address: address.into(), bits }
}

/// A flow as the client sees it.
fn flow(port: u16, protocol: u8) -> Tuple {
    Tuple { local: (DEVICE.into(), 40_000), remote: (SERVER.into(), port), protocol }
}

/// The same flow as the gateway sees it.
fn reversed(tuple: Tuple) -> Tuple {
    Tuple { local: tuple.remote, remote: tuple.local, ..tuple }
}

fn strong(of: Selector) -> Override {
    Override { of, asks: Asks { strength: Some(Strength::Bits256), ..Asks::default() } }
}

fn meets(of: Selector, tuple: Tuple, class: Class) -> bool {
    let overrides = Overrides::new(&[strong(of)]);
    let [near, far] =
        [(Devices::Local, tuple), (Devices::Remote, reversed(tuple))].map(|(devices, tuple)| {
            overrides.decide(devices, &tuple, (class, Whose::Known(None))).strength.is_some()
        });
    assert_eq!(near, far, "both ends understand a rule alike: {of:?}");
    near
}

#[test]
fn every_condition_that_is_there_has_to_be_met() {
    let flow = flow(443, TCP);
    let any = Selector::default();
    for (of, expected) in [
        (any, true),
        (Selector { device: Some(prefix(DEVICE, 24)), ..any }, true),
        (Selector { device: Some(prefix(SERVER, 24)), ..any }, false),
        (Selector { destination: Some(prefix(SERVER, 32)), ..any }, true),
        (Selector { destination: Some(prefix(DEVICE, 32)), ..any }, false),
        (Selector { port: Some(443), ..any }, true),
        (Selector { port: Some(40_000), ..any }, false),
        (Selector { protocol: Some(TCP), ..any }, true),
        (Selector { protocol: Some(UDP), ..any }, false),
        (Selector { class: Some(Class::Bulk), ..any }, true),
        (Selector { class: Some(Class::RealTime), ..any }, false),
        (Selector { port: Some(443), protocol: Some(UDP), ..any }, false),
    ] {
        assert_eq!(meets(of, flow, Class::Bulk), expected, "{of:?}");
    }
}

#[test]
fn the_first_rule_that_says_something_counts() {
    let low = Asks { strength: Some(Strength::Bits128), ..Asks::default() };
    let to_server = Selector { destination: Some(prefix(SERVER, 32)), ..Selector::default() };
    let rules = [
        Override { of: Selector::default(), asks: Asks::default() },
        strong(Selector { port: Some(22), ..to_server }),
        Override { of: to_server, asks: low },
        strong(Selector::default()),
    ];
    let overrides = Overrides::new(&rules);
    let by = |port| overrides.decide(Devices::Local, &flow(port, TCP), BULK).strength;
    assert_eq!(by(22), Some(By { value: Strength::Bits256, rule: 2 }));
    assert_eq!(by(80), Some(By { value: Strength::Bits128, rule: 3 }));
    let elsewhere = Tuple { remote: (DEVICE.into(), 80), ..flow(80, TCP) };
    let decided = overrides.decide(Devices::Local, &elsewhere, BULK);
    assert_eq!(decided.strength, Some(By { value: Strength::Bits256, rule: 4 }));
    assert_eq!(overrides.strongest(), Strength::Bits256);
    assert_eq!(Overrides::default().strongest(), Strength::Bits128);
}

#[test]
fn each_property_comes_from_the_first_rule_that_has_it() {
    let of = Selector::default();
    let says = |asks| Override { of, asks };
    let overrides = Overrides::new(&[
        says(Asks { level: Some(Level::First), ..Asks::default() }),
        says(Asks { level: Some(Level::Third), goal: Some(Goal::Data), ..Asks::default() }),
        strong(of),
        says(Asks { copies: Some(Copies::Never), goal: Some(Goal::Power), ..Asks::default() }),
    ]);
    let decided = overrides.decide(Devices::Local, &flow(443, TCP), BULK);
    assert_eq!(decided.level, Some(By { value: Level::First, rule: 1 }));
    assert_eq!(decided.goal, Some(By { value: Goal::Data, rule: 2 }));
    assert_eq!(decided.strength.map(|by| by.rule), Some(3));
    assert_eq!(decided.copies, Some(By { value: Copies::Never, rule: 4 }));
}

#[test]
fn until_a_user_is_known_his_flow_is_as_strong_as_it_may_have_to_be() {
    let of = Selector { user: Some(1_000), ..Selector::default() };
    let low = Asks { level: Some(Level::Third), ..Asks::default() };
    let rules = [strong(of), Override { of, asks: low }];
    let overrides = Overrides::new(&rules);
    assert!(overrides.asks_users() && !Overrides::new(&[strong(Selector::default())]).asks_users());
    let decide = |whose| overrides.decide(Devices::Local, &flow(443, TCP), (Class::Bulk, whose));
    for whose in [Whose::Unasked, Whose::Asked] {
        let decided = decide(whose);
        let expected = Decided { meanwhile: Strength::Bits256, ..Decided::default() };
        assert_eq!(decided, expected, "nothing else is guessed");
    }
    for other in [Some(1_001), None] {
        assert_eq!(decide(Whose::Known(other)), Decided::default());
    }
    let decided = decide(Whose::Known(Some(1_000)));
    assert_eq!(decided.strength, Some(By { value: Strength::Bits256, rule: 1 }));
    assert_eq!(decided.level, Some(By { value: Level::Third, rule: 2 }));
    let elsewhere = Selector { port: Some(22), ..of };
    let decided = Overrides::new(&[strong(elsewhere)]).decide(
        Devices::Local,
        &flow(443, TCP),
        (Class::Bulk, Whose::Asked),
    );
    assert_eq!(decided, Decided::default(), "no rule may be for it, whoever it is");
}

#[test]
fn so_many_and_no_more() {
    let nobody = strong(Selector { port: Some(1), ..Selector::default() });
    let mut rules = vec![nobody; OVERRIDES_MAX + 1];
    rules[OVERRIDES_MAX] = strong(Selector::default());
    let overrides = Overrides::new(&rules);
    let decided = overrides.decide(Devices::Local, &flow(443, TCP), BULK);
    assert_eq!(decided, Decided::default(), "the last one does not count");
}
