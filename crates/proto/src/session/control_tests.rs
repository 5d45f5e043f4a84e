use proptest::prelude::*;

use super::*;
use crate::crypto::{SeededRng, draw};
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
    /// Over a link that loses, repeats and reorders a third each, all arrive once and in order.
    #[test]
    fn all_arrive_once_in_order(seed in any::<u64>()) {
        let mut rng = SeededRng::new(seed);
        let mut third = move || draw::<1>(&mut rng)[0] < 85;
        let (mut sender, mut receiver) = (ControlSender::default(), ControlReceiver::default());
        let mut now = Instant::ZERO;
        let wanted: Vec<_> = (0..20).map(message).collect();
        for message in &wanted {
            prop_assert!(sender.push(now, message));
        }
        let mut got = Vec::new();
        for _ in 0..1_000 {
            let mut held = None;
            while let Some((number, body)) =
                sender.take_due(now, Duration::from_millis(50), BODY_MAX)
            {
                let body = body.to_vec();
                if third() {
                    continue;
                }
                if third() && held.is_none() {
                    held = Some((number, body));
                    continue;
                }
                receiver.receive(number, &body).unwrap();
                if third() {
                    receiver.receive(number, &body).unwrap();
                }
            }
            if let Some((number, body)) = held {
                receiver.receive(number, &body).unwrap();
            }
            got.extend(drain(&mut receiver));
            if let Some(ack) = receiver.take_ack()
                && !third()
            {
                sender.acknowledged(ack);
            }
            let Some(due) = sender.due() else { break };
            now = due;
        }
        prop_assert_eq!(got, wanted);
        prop_assert!(sender.is_empty());
    }
}
