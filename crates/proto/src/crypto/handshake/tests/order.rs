//! Messages lost, reordered, repeated, and halves of different exchanges mixed.

use super::*;

/// A responder that does what the specification asks and no more: opens each A once, finds it by
/// the link in B, accepts each counter once.
struct Table {
    pair: Pair,
    waiting: BTreeMap<ExchangeId, PendingA>,
    highest: u64,
    opened: usize,
}

type Answer = (Vec<u8>, Option<EpochKeys>);

impl Table {
    fn handle(&mut self, message: &[u8]) -> Result<Option<Answer>, DropReason> {
        if let Ok(a) = MessageA::parse(message) {
            let link = ExchangeId::of(a);
            if !self.waiting.contains_key(&link) {
                let pending = self.pair.open(message)?;
                assert_eq!(pending.link(), link);
                self.opened += 1;
                self.waiting.insert(link, pending);
            }
            return Ok(None);
        }
        let link = ExchangeId(crate::wire::handshake::MessageB::parse(message)?.link());
        let pending = self.waiting.get_mut(&link).ok_or(DropReason::BadHandshake)?;
        let complete = pending.complete(message)?;
        self.waiting.remove(&link);
        let counter = complete.hello().counter;
        let answer = if counter > self.highest {
            self.highest = counter;
            welcome()
        } else {
            Welcome { status: Status::StaleCounter { highest: self.highest }, ..welcome() }
        };
        complete.respond(&mut self.pair.rng, Some(&PSK), &answer).map(Some)
    }
}

/// All sequences of five deliveries out of A1, B1, A2, B2: an exchange is answered exactly when
/// its B comes after its A, accepted exactly when its counter is new, and its answer is good for
/// its own initiator only.
#[test]
fn any_order_gives_a_session_or_nothing() {
    let (mut accepted, mut stale, mut nothing) = (0, 0, 0);
    for sequence in 0..4u32.pow(5) {
        let mut pair = Pair::new(11);
        let first = pair.start(&Hello { counter: 1, ..hello() });
        let second = pair.start(&Hello { counter: 2, indices: indices(300), ..hello() });
        let mut exchanges = [first, second];
        let mut table = Table { pair, waiting: BTreeMap::new(), highest: 0, opened: 0 };
        let mut waits = [false; 2];
        for step in 0..5 {
            let choice = sequence / 4u32.pow(step) % 4;
            let (which, half) = ((choice / 2) as usize, choice % 2);
            let messages = exchanges[which].1.clone();
            if half == 0 {
                assert!(table.handle(&messages.a).unwrap().is_none());
                waits[which] = true;
                continue;
            }
            let answer = table.handle(&messages.b);
            if !std::mem::take(&mut waits[which]) {
                assert!(matches!(answer, Err(DropReason::BadHandshake)));
                nothing += 1;
                continue;
            }
            let (response, theirs) = answer.unwrap().unwrap();
            let other = &mut exchanges[1 - which].0;
            assert_eq!(other.finish(&response).unwrap_err(), DropReason::BadHandshake);
            let Ok((said, ours)) = exchanges[which].0.finish(&response) else {
                stale += 1;
                assert!(theirs.is_none(), "only a repetition finds its exchange over");
                continue;
            };
            match (ours, theirs) {
                (Some(ours), Some(theirs)) => {
                    accepted += 1;
                    talk(&ours, &theirs);
                }
                (None, None) => {
                    stale += 1;
                    assert!(matches!(said.status, Status::StaleCounter { .. }));
                }
                (ours, theirs) => panic!("one-sided: {ours:?} {theirs:?}"),
            }
        }
    }
    assert!(accepted > 500 && stale > 20 && nothing > 500, "{accepted} {stale} {nothing}");
}

#[test]
fn a_repeated_a_is_known_before_it_is_opened() {
    let mut pair = Pair::new(12);
    let (mut initiator, messages) = pair.start(&hello());
    let mut table = Table { pair, waiting: BTreeMap::new(), highest: 0, opened: 0 };
    table.handle(&messages.a).unwrap();
    // With a cookie it is still the same A.
    let gate = Gate::new(table.pair.responder.public(), &mut SeededRng::new(1), Instant::ZERO);
    let reply = gate.cookie_reply(&mut SeededRng::new(2), &messages.a, observed()).unwrap();
    let cookie = initiator.open_cookie_reply(&reply).unwrap();
    let proven = initiator.add_cookie(&cookie).clone();
    assert_ne!(proven, messages);
    table.handle(&proven.a).unwrap();
    assert_eq!(table.opened, 1);
    let (response, _) = table.handle(&proven.b).unwrap().unwrap();
    assert!(initiator.finish(&response).unwrap().1.is_some());
}

#[test]
fn halves_of_different_exchanges_do_not_mix() {
    let mut pair = Pair::new(13);
    let (_, first) = pair.start(&hello());
    let (_, second) = pair.start(&hello());
    let mut pending = pair.open(&first.a).unwrap();

    assert_eq!(pending.complete(&second.b).unwrap_err(), DropReason::BadHandshake);
    // Forged with the right link and a right MAC: the hash inside A tells.
    let mut forged = second.b.clone();
    forged[..5 + LINK_LEN].copy_from_slice(&first.b[..5 + LINK_LEN]);
    let key = Mac1Key::of_responder(pair.responder.public());
    put_mac1(&key, &mut forged, MAC_LEN);
    assert_eq!(pending.complete(&forged).unwrap_err(), DropReason::BadHandshake);
    // The link is right but the index is another's.
    let mut renamed = first.b.clone();
    renamed[4] ^= 1;
    put_mac1(&key, &mut renamed, MAC_LEN);
    assert_eq!(pending.complete(&renamed).unwrap_err(), DropReason::BadHandshake);

    let complete = pending.complete(&first.b).expect("a wrong B did not destroy the A");
    assert_eq!(complete.peer(), pair.initiator.public());
    assert_eq!(pending.complete(&first.b).unwrap_err(), DropReason::BadHandshake, "once");
}
