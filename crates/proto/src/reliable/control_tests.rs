use proptest::prelude::*;

use super::*;
use crate::wire::control::Prefix;

fn message(n: u8) -> Control {
    Control::Routes(vec![Prefix { address: [10, n, 0, 0].into(), bits: 16 }])
}

fn drain(receiver: &mut ControlReceiver) -> Vec<Control> {
    std::iter::from_fn(|| receiver.poll()).map(|body| Control::parse(&body).unwrap()).collect()
}

#[test]
fn repeats_until_acknowledged() {
    let mut sender = ControlSender::default();
    let timeout = Duration::from_millis(100);
    assert!(sender.push(Instant::ZERO, &message(1)));
    assert!(sender.take_due(Instant::ZERO, timeout, BODY_MAX).is_some());
    assert!(sender.take_due(Instant::ZERO, timeout, BODY_MAX).is_none());
    let due = sender.due().unwrap();
    assert_eq!(due, Instant::ZERO + timeout);
    assert!(sender.take_due(due, timeout, BODY_MAX).is_some());
    assert_eq!(sender.due(), Some(due + 2 * timeout));
    sender.acknowledged(ControlAck { next: 1, beyond: 0 });
    assert!(sender.is_empty());
}

#[test]
fn a_new_epoch_numbers_anew_and_drops_what_belonged_to_the_old() {
    let mut sender = ControlSender::default();
    let indices = Control::Indices { first: crate::id::PathSerial(8), indices: vec![] };
    for control in [message(1), indices, message(2)] {
        assert!(sender.push(Instant::ZERO, &control));
    }
    sender.renumber(Instant::ZERO);
    let mut receiver = ControlReceiver::default();
    while let Some((number, body)) = sender.take_due(Instant::ZERO, REPEAT_MAX, BODY_MAX) {
        let body = body.to_vec();
        receiver.receive(number, &body).unwrap();
    }
    assert_eq!(drain(&mut receiver), [message(1), message(2)]);
}

#[test]
fn the_receiver_is_bounded() {
    let mut receiver = ControlReceiver::default();
    assert_eq!(receiver.receive(AHEAD_MAX + 1, &[]), Err(DropReason::TableFull));
    assert_eq!(receiver.receive(0, &[0; BODY_MAX + 1]), Err(DropReason::BadFrame));
    for number in 1..=AHEAD_MAX {
        receiver.receive(number, &[1]).unwrap();
    }
    assert_eq!(receiver.take_ack(), Some(ControlAck { next: 0, beyond: u32::MAX }));
}

proptest! {
    /// Over a link that loses, repeats and reorders, all messages arrive once and in order.
    #[test]
    fn all_arrive_once_in_order(fates in proptest::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 1..200)) {
        let (mut sender, mut receiver) = (ControlSender::default(), ControlReceiver::default());
        let mut now = Instant::ZERO;
        let mut wanted = Vec::new();
        for n in 0..20 {
            prop_assert!(sender.push(now, &message(n)));
            wanted.push(message(n));
        }
        let mut fates = fates.into_iter().cycle();
        let mut got = Vec::new();
        for _ in 0..10_000 {
            if sender.is_empty() { break; }
            let mut held = None;
            while let Some((number, body)) = sender.take_due(now, Duration::from_millis(50), BODY_MAX) {
                let (lost, repeated, swapped) = fates.next().unwrap();
                let body = body.to_vec();
                if lost { continue; }
                if swapped && held.is_none() { held = Some((number, body)); continue; }
                let _ = receiver.receive(number, &body);
                if repeated { let _ = receiver.receive(number, &body); }
            }
            if let Some((number, body)) = held { let _ = receiver.receive(number, &body); }
            got.extend(drain(&mut receiver));
            if let Some(ack) = receiver.take_ack() && !fates.next().unwrap().0 {
                sender.acknowledged(ack);
            }
            now = sender.due().unwrap_or(now);
        }
        if fates.any(|f| !f.0) || sender.is_empty() { prop_assert_eq!(got, wanted); }
    }
}
