use super::*;
use crate::flow::Flows;
use crate::flow::Hold;
use crate::flow::classify::Class;
use crate::flow::record::Flow;
use crate::flow::table::OTHERS_MAX;
use crate::flow::tuple::Direction;
use crate::time::Duration;
use crate::wire::control::Prefix;
use crate::wire::inner::InnerPacket;
use crate::wire::inner::{TCP, UDP};

/// A packet of 13 bytes of payload between these ports, which is RTP of a call or is not.
fn packet(protocol: u8, ports: (u16, u16), number: Option<u16>) -> Vec<u8> {
    let mut bytes = vec![0x45, 0, 0, 41, 0, 0, 0, 0, 64, protocol, 0, 0];
    bytes.extend([10, 0, 0, 2, 192, 0, 2, 9]);
    bytes.extend(ports.0.to_be_bytes());
    bytes.extend(ports.1.to_be_bytes());
    bytes.extend([0, 21, 0, 0]);
    bytes.extend([0; 13]);
    if let Some(number) = number {
        bytes[28] = 0x80;
        bytes[30..32].copy_from_slice(&number.to_be_bytes());
    }
    bytes
}

fn observe(
    flows: &mut Flows,
    ms: u64,
    protocol: u8,
    ports: (u16, u16),
    number: Option<u16>,
) -> Option<Class> {
    let bytes = packet(protocol, ports, number);
    let packet = InnerPacket::whole(&bytes).unwrap();
    let now = Instant::ZERO + Duration::from_millis(ms);
    let place = flows.observe(now, Direction::Out, &packet)?;
    flows.flow(place).map(Flow::class)
}

fn known(flows: &Flows) -> impl Iterator<Item = &Flow> {
    (0..flows.table.places()).filter_map(|number| flows.table.at(number))
}

#[test]
fn what_is_rtp_is_real_time_and_nothing_else_is() {
    let mut flows = Flows::new(Hold::Off, 7);
    for number in 0..20 {
        let call = observe(&mut flows, 0, UDP, (40_000, 40_002), Some(number));
        assert_eq!(call, Some(if number < 5 { Class::Bulk } else { Class::RealTime }));
        assert_eq!(observe(&mut flows, 0, UDP, (40_001, 53), None), Some(Class::Names));
        assert_eq!(observe(&mut flows, 0, TCP, (40_000, 40_002), Some(number)), None);
    }
    assert_eq!(known(&flows).count(), 2);
}

#[test]
fn what_its_user_wants_early_is_real_time_whatever_it_is() {
    let mut flows = Flows::new(Hold::Off, 7);
    let network = Prefix { address: [192, 0, 2, 0].into(), bits: 24 };
    let early = |port| Early::new(&[End { network, port }]);
    assert_eq!(observe(&mut flows, 0, UDP, (40_000, 27_015), None), Some(Class::Bulk));
    flows.set_early(early(Some(27_015)));
    let class = known(&flows).map(Flow::class).next();
    assert_eq!(class, Some(Class::RealTime), "also what was known before");
    assert_eq!(observe(&mut flows, 0, TCP, (40_000, 27_015), None), Some(Class::RealTime));
    assert_eq!(observe(&mut flows, 0, TCP, (40_000, 443), None), None);
    flows.set_early(early(None));
    assert_eq!(observe(&mut flows, 0, TCP, (40_000, 443), None), Some(Class::RealTime));
    let many = vec![End { network, port: Some(1) }; ENDS_MAX + 1];
    assert_eq!(Early::new(&many).ends().len(), ENDS_MAX);
}

#[test]
fn many_flows_do_not_push_out_a_call() {
    let mut flows = Flows::new(Hold::Off, 7);
    for number in 0..200u16 {
        observe(&mut flows, u64::from(number) * 20, UDP, (40_000, 40_002), Some(number));
        for other in 0..100 {
            observe(&mut flows, u64::from(number) * 20, UDP, (number * 100 + other, 443), None);
        }
    }
    assert_eq!(known(&flows).count(), OTHERS_MAX, "and there is a bound to them");
    let is_call = |flow: &&Flow| flow.tuple.remote.1 == 40_002;
    assert_eq!(known(&flows).find(is_call).map(Flow::class), Some(Class::RealTime));
    for other in 0..2_000 {
        observe(&mut flows, 30_000, UDP, (other, 443), None);
    }
    assert!(known(&flows).all(|flow| !is_call(&flow)), "it ended long ago");
}

#[test]
fn what_is_too_much_to_be_early_waits_its_turn_for_a_while() {
    let mut flows = Flows::new(Hold::Off, 7);
    let bytes = packet(UDP, (40_000, 40_002), None);
    let packet = InnerPacket::whole(&bytes).unwrap();
    let place = flows.observe(Instant::ZERO, Direction::Out, &packet).unwrap();
    let flow = flows.live_mut(place).unwrap();
    let allowance = Allowance { rate: 1_000.0, burst: 500.0 };
    let at = |ms| Instant::ZERO + Duration::from_millis(ms);
    for ms in (0..10_000).step_by(100) {
        assert!(flow.may_leave(at(ms), allowance, 100), "as much as may be");
    }
    let left = (0..10).filter(|_| flow.may_leave(at(10_000), allowance, 100)).count();
    assert_eq!(left, 5);
    assert!(!flow.may_leave(at(10_999), allowance, 1));
    assert!(flow.may_leave(at(11_000), allowance, 100));
}

#[test]
fn the_order_of_a_flow_that_sends_much_is_kept_for_as_long_as_it_does() {
    let at = |ms| Instant::ZERO + Duration::from_millis(ms);
    let mut flow = LiveFlow::default();
    assert!(!flow.keeps_order(at(0)));
    (0..11).for_each(|ms| flow.leaves_in_turn(at(ms), 1_400));
    assert!(!flow.keeps_order(at(11)), "a handshake");
    flow.leaves_in_turn(at(11), 1_400);
    assert!(flow.keeps_order(at(12)) && flow.keeps_order(at(1_011)));
    assert!(!flow.keeps_order(at(1_012)), "all of it has arrived");
    flow.leaves_in_turn(at(1_012), 1_400);
    assert!(!flow.keeps_order(at(1_012)), "it begins anew");
}
