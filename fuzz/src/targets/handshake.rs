//! The layouts of the handshake: what the whole Internet may send to a gateway, and the two
//! payloads inside.

use std::net::{Ipv4Addr, SocketAddr};

use rove_proto::id::SessionIndex;
use rove_proto::wire::features::Features;
use rove_proto::wire::handshake::{
    CT_LEN, CookieReply, EK_HEAD_LEN, EK_TAIL_LEN, Floor, HELLO_LEN, HeaderCipher, Hello,
    HelloPayload, MessageA, MessageB, NOISE_1_LEN, NOISE_2_LEN, Response, ResponsePart, Status,
    Token, WELCOME_LEN, Welcome,
};

use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "handshake", run, seeds, mutations: 100_000 };

fn run(data: &[u8]) {
    if let Ok(a) = MessageA::parse(data) {
        assert_eq!(a.noise().len(), NOISE_1_LEN);
        assert!(a.linked().len() < data.len());
        let _ = a.sender();
    }
    if let Ok(b) = MessageB::parse(data) {
        let again = MessageB::emit(b.sender(), &b.link(), &b.ek_tail());
        assert!(data.starts_with(&again[..again.len() - 32]), "only the MACs may differ");
    }
    if let Ok(response) = Response::parse(data) {
        assert_eq!(response.noise().len(), NOISE_2_LEN);
        let _ = (response.sender(), response.receiver(), response.ciphertext());
        let parts = ResponsePart::both(data).expect("it is a response");
        let pieces = parts.iter().map(|part| ResponsePart::parse(part).expect("just cut").piece);
        assert_eq!(pieces.collect::<Vec<_>>().concat(), data);
    }
    if let Ok(part) = ResponsePart::parse(data) {
        assert!(part.number < 2 && part.piece.len() < data.len());
    }
    if let Ok(reply) = CookieReply::parse(data) {
        assert_eq!(CookieReply::emit(reply.receiver(), &reply.nonce(), &reply.sealed()), data);
    }
    if let Ok(payload) = HelloPayload::parse(&filled::<HELLO_LEN>(data)) {
        let bytes = payload.emit();
        assert_eq!(HelloPayload::parse(&filled(&bytes)), Ok(payload));
    }
    if let Ok(welcome) = Welcome::parse(&filled::<WELCOME_LEN>(data)) {
        assert_eq!(Welcome::parse(&filled(&welcome.emit())), Ok(welcome));
    }
}

/// The payloads have one length each, and what decrypts has it: here it is made so, that an input
/// need not be found by luck.
fn filled<const LEN: usize>(data: &[u8]) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    let used = data.len().min(LEN);
    bytes[..used].copy_from_slice(&data[..used]);
    bytes
}

fn seeds() -> Vec<Vec<u8>> {
    let index = SessionIndex(0x0102_0304);
    let indices = [1, 2, 3, 4, 5, 6, 7, 8].map(SessionIndex);
    let hello = |token: Option<Token>| {
        let (counter, features, floor) = (41, Features::NONE, Floor::BITS_128);
        let hello = Hello { counter, features, floor, has_aes: true, token, indices };
        HelloPayload { hello, ek_hash: [7; 32], ek_head: [9; EK_HEAD_LEN] }.emit()
    };
    let welcome = |status| {
        let observed = SocketAddr::from((Ipv4Addr::new(203, 0, 113, 7), 4433));
        let (floor, header_cipher) = (Floor::BITS_256, HeaderCipher::Aes);
        let features = Features::NONE;
        Welcome { status, features, floor, header_cipher, observed, indices }.emit()
    };
    vec![
        MessageA::emit(index, &[1; NOISE_1_LEN]),
        MessageB::emit(index, &[2; 16], &[3; EK_TAIL_LEN]),
        Response::emit(index, index, &[4; NOISE_2_LEN], &[5; CT_LEN]),
        [vec![6, 0, 0, 0, 1, 0], vec![8; 1_000]].concat(),
        [vec![6, 0, 0, 0, 1, 1], vec![8; 227]].concat(),
        CookieReply::emit(index, &[6; 16], &[7; 32]),
        hello(None),
        hello(Token::new(b"a token of 16 B.")),
        welcome(Status::Accepted),
        welcome(Status::StaleCounter { highest: 99 }),
        welcome(Status::TokenExpired),
    ]
}
