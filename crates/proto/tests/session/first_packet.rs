//! What a session costs before its first answer: a handshake, a packet each way, and little else.

use std::cell::RefCell;
use std::rc::Rc;

use rove_proto::node::Command;
use rove_proto::time::Duration;

use crate::pair::{Pair, packet};

/// Bytes of datagrams in both directions until the client has an answer to its first packet. The
/// handshake has 2,709 of them because of its post-quantum keys, and the first probe of the MTU
/// 1,452. The client sends that after its first round trip, while the answer is on its way.
const BYTES_MAX: usize = 5_100;

#[test]
fn little_is_sent_before_the_first_answer() {
    let mut pair = Pair::new(None);
    pair.admit_client();
    let sent = Rc::new(RefCell::new(Vec::new()));
    let lengths = Rc::clone(&sent);
    pair.filter = Box::new(move |datagram| {
        lengths.borrow_mut().push((datagram.from.port(), datagram.bytes.len()));
        true
    });
    pair.tell_client(Command::Connect(pair.gateway_key));
    pair.send(&packet(84, false));
    let step = Duration::from_millis(1);
    for _ in 0..200 {
        pair.run(step);
        if !pair.gateway_inner.is_empty() {
            break;
        }
    }
    assert_eq!(pair.gateway_inner.len(), 1, "the first packet arrives");
    pair.send_back(&packet(84, true));
    for _ in 0..200 {
        if !pair.client_inner.is_empty() {
            break;
        }
        pair.run(step);
    }
    assert_eq!(pair.client_inner.len(), 1, "it is answered");
    let sent = sent.borrow();
    let bytes: usize = sent.iter().map(|&(_, len)| len).sum();
    assert!(bytes <= BYTES_MAX, "{bytes} bytes in {} datagrams: {sent:?}", sent.len());
}
