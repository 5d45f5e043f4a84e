//! A handshake between honest ends with someone in between who changes bytes: what was changed is
//! refused, and the true message is accepted afterwards.
//!
//! The input is a list of changes, four bytes each: which message, where (two bytes), with what the
//! byte there is combined. A change by zero, or beyond the end, changes nothing.

use std::net::{Ipv4Addr, SocketAddr};

use rove_proto::crypto::{
    EpochKeys, Floor, Gate, HeaderCipher, Hello, Initiator, MessagePair, PendingA, Rng, SeededRng,
    StaticSecret, Status, Token, Verdict, Welcome,
};
use rove_proto::id::SessionIndex;
use rove_proto::time::Instant;
use rove_proto::wire::features::Features;

use crate::Target;

/// The target. A handshake costs half a millisecond, hence the few mutations.
pub const TARGET: Target = Target { name: "exchange", run, seeds, mutations: 1_000 };

/// Bytes of both MAC fields at the end of A and B, which the gate checks.
const MACS: usize = 32;

fn run(data: &[u8]) {
    let mut ends = Ends::new(Features::NONE);
    let (a, b) = (ends.messages.a.clone(), ends.messages.b.clone());
    let changed = |number: u8, message: &[u8]| {
        let mut message = message.to_vec();
        for change in data.chunks_exact(4).filter(|change| change[0] % 3 == number) {
            let at = usize::from(change[1]) << 8 | usize::from(change[2]);
            if let Some(byte) = message.get_mut(at) {
                *byte ^= change[3];
            }
        }
        message
    };

    let (hostile_a, hostile_b) = (changed(0, &a), changed(1, &b));
    ends.gate_holds(&a, &hostile_a);
    ends.gate_holds(&b, &hostile_b);

    let pending = PendingA::open(&mut ends.rng, &ends.gateway, &hostile_a);
    let kept = hostile_a[..a.len() - MACS] == a[..a.len() - MACS];
    assert_eq!(pending.is_ok(), kept, "message A");
    let Ok(mut pending) = pending.or_else(|_| PendingA::open(&mut ends.rng, &ends.gateway, &a))
    else {
        panic!("the true A was refused")
    };
    // mac1 is part of the link between the halves, so an A changed there has no B.
    if hostile_a[..a.len() - MACS / 2] != a[..a.len() - MACS / 2] && kept {
        assert!(pending.complete(&b).is_err(), "a B was taken for another A");
        return;
    }

    let complete = pending.complete(&hostile_b);
    let kept = hostile_b[..b.len() - MACS] == b[..b.len() - MACS];
    assert_eq!(complete.is_ok(), kept, "message B");
    let Ok(complete) = complete.or_else(|_| pending.complete(&b)) else {
        panic!("the true B was refused")
    };
    let answered = complete.respond(&mut ends.rng, None, &welcome(Features::NONE));
    let Ok((response, Some(_))) = answered else { panic!("no response to a true message 1") };

    let hostile_response = changed(2, &response);
    let finished = ends.initiator.finish(&hostile_response);
    assert_eq!(finished.is_ok(), hostile_response == response, "the response");
    if finished.is_err() {
        assert!(ends.initiator.finish(&response).is_ok(), "the true response was refused");
    }
}

fn seeds() -> Vec<Vec<u8>> {
    vec![
        Vec::new(),
        // One byte of each message, near its beginning, its middle, its MACs.
        vec![0, 0, 1, 1],
        vec![0, 2, 0, 0x80],
        vec![0, 4, 0xb0, 1],
        vec![0, 4, 0xc8, 1],
        vec![1, 0, 1, 1],
        vec![1, 0, 7, 1],
        vec![1, 0, 0x60, 1],
        vec![1, 0, 0xde, 1],
        vec![2, 0, 1, 1],
        vec![2, 0, 0x40, 1],
        vec![2, 3, 0, 1],
        vec![2, 4, 0xc0, 1],
        vec![0, 0, 9, 1, 1, 0, 9, 1, 2, 0, 9, 1],
    ]
}

/// Both ends of an exchange, the same every time.
struct Ends {
    rng: SeededRng,
    gateway: StaticSecret,
    gate: Gate,
    initiator: Initiator,
    messages: MessagePair,
}

impl Ends {
    fn new(features: Features) -> Self {
        let mut rng = SeededRng::new(1);
        let (client, gateway) =
            (StaticSecret::generate(&mut rng), StaticSecret::generate(&mut rng));
        let gate = Gate::new(gateway.public(), &mut rng, Instant::ZERO);
        let started = Initiator::start(&mut rng, &client, gateway.public(), None, &hello(features));
        let Ok((initiator, messages)) = started else { panic!("a generated key is usable") };
        Self { rng, gateway, gate, initiator, messages }
    }

    /// Who saw the true message cannot make another one, and under load nobody gets through who
    /// was not sent a cookie.
    fn gate_holds(&self, honest: &[u8], hostile: &[u8]) {
        let source = SocketAddr::from((Ipv4Addr::new(203, 0, 113, 7), 4433));
        let kept = honest.len() - MACS / 2;
        let passes = hostile[..kept] == honest[..kept];
        assert_eq!(self.gate.check(hostile, source, false) == Verdict::Pass, passes, "mac1");
        assert_ne!(self.gate.check(hostile, source, true), Verdict::Pass, "no cookie was sent");
    }
}

/// The keys of both ends after a handshake that nobody disturbed: initiator's, responder's. Both
/// have these features.
pub(crate) fn session(features: Features) -> (EpochKeys, EpochKeys) {
    let mut ends = Ends::new(features);
    let rng: &mut dyn Rng = &mut ends.rng;
    let answered = PendingA::open(rng, &ends.gateway, &ends.messages.a)
        .and_then(|mut pending| pending.complete(&ends.messages.b))
        .and_then(|complete| complete.respond(rng, None, &welcome(features)));
    let Ok((response, Some(responder))) = answered else { panic!("an undisturbed handshake") };
    match ends.initiator.finish(&response) {
        Ok((_, Some(initiator))) => (initiator, responder),
        _ => panic!("an undisturbed handshake"),
    }
}

fn hello(features: Features) -> Hello {
    let indices = [1, 2, 3, 4, 5, 6, 7, 8].map(SessionIndex);
    let token = Token::new(b"a token of 16 B.");
    let floor = Floor::BITS_128;
    Hello { counter: 1, features, floor, has_aes: true, token, indices }
}

fn welcome(features: Features) -> Welcome {
    Welcome {
        status: Status::Accepted,
        features,
        floor: Floor::BITS_128,
        header_cipher: HeaderCipher::Aes,
        observed: SocketAddr::from((Ipv4Addr::new(203, 0, 113, 7), 4433)),
        indices: [11, 12, 13, 14, 15, 16, 17, 18].map(SessionIndex),
    }
}
