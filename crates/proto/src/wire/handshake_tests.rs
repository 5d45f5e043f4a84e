use proptest::prelude::*;

use super::*;

fn indices(first: u32) -> [SessionIndex; INDEX_COUNT] {
    std::array::from_fn(|at| SessionIndex(first + at as u32))
}

fn payload() -> HelloPayload {
    let hello = Hello {
        counter: 0x0102_0304_0506_0708,
        features: Features::from_bits(0x8000_0001),
        floor: Floor(1),
        has_aes: true,
        token: Token::new(b"token"),
        indices: indices(0xfffe_0000),
    };
    HelloPayload { hello, ek_hash: [0xaa; 32], ek_head: [0xbb; EK_HEAD_LEN] }
}

fn welcome() -> Welcome {
    Welcome {
        status: Status::Accepted,
        features: Features::from_bits(0x8000_0001),
        floor: Floor(1),
        header_cipher: HeaderCipher::Aes,
        observed: "192.0.2.1:51820".parse().unwrap(),
        indices: indices(7),
    }
}

fn parse_hello(bytes: &[u8]) -> Result<HelloPayload, DropReason> {
    HelloPayload::parse(bytes.try_into().unwrap())
}

fn parse_welcome(bytes: &[u8]) -> Result<Welcome, DropReason> {
    Welcome::parse(bytes.try_into().unwrap())
}

#[test]
fn lengths_are_those_of_the_specification() {
    assert_eq!((A_LEN, B_LEN, RESPONSE_LEN, COOKIE_REPLY_LEN), (1_096, 386, 1_227, 53));
    assert_eq!((HELLO_LEN, WELCOME_LEN), (962, 66));
    assert_eq!((EK_HEAD_LEN, EK_TAIL_LEN), (851, 333));
}

/// Field by field, written out: a vector of the layout.
#[test]
fn hello_lies_as_specified() {
    let bytes = payload().emit();
    assert_eq!(bytes[..8], [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(bytes[8..40], [0xaa; 32]);
    assert_eq!(bytes[40..46], [0x80, 0, 0, 1, 1, 1]);
    assert_eq!(bytes[46..52], *b"\x05token");
    assert_eq!(bytes[52..79], [0; 27]);
    assert_eq!(bytes[79..83], [0xff, 0xfe, 0, 0]);
    assert_eq!(bytes[107..111], [0xff, 0xfe, 0, 7]);
    assert_eq!(bytes[111..], [0xbb; EK_HEAD_LEN]);
    assert_eq!(parse_hello(&bytes), Ok(payload()));
}

#[test]
fn welcome_lies_as_specified() {
    let bytes = welcome().emit();
    assert_eq!(bytes[..15], [0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0x80, 0, 0, 1, 1]);
    assert_eq!(bytes[15..20], [4, 192, 0, 2, 1]);
    assert_eq!(bytes[20..32], [0; 12]);
    assert_eq!(bytes[32..34], 51_820u16.to_be_bytes());
    assert_eq!(bytes[34..38], [0, 0, 0, 7]);
    assert_eq!(bytes[62..], [0, 0, 0, 14]);
    assert_eq!(parse_welcome(&bytes), Ok(welcome()));
}

#[test]
fn every_status_comes_back() {
    let others = (9..=255).map(Status::Other);
    let named = [
        Status::NotEnrolled,
        Status::TokenUsed,
        Status::TokenExpired,
        Status::TokenUnknown,
        Status::Revoked,
        Status::StaleCounter { highest: u64::MAX },
        Status::Busy,
        Status::Unsupported,
    ];
    for (code, status) in (1u8..=255).zip(named.into_iter().chain(others)) {
        let bytes = Welcome { status, ..welcome() }.emit();
        assert_eq!(bytes[0], code);
        let refused = Welcome { status, indices: NO_INDICES, ..welcome() };
        assert_eq!(parse_welcome(&bytes), Ok(refused), "a refusal carries no index");
    }
}

#[test]
fn broken_payloads_are_refused() {
    let broken = |at: usize, value: u8| {
        let mut bytes = payload().emit();
        bytes[at] = value;
        parse_hello(&bytes)
    };
    assert_eq!(broken(46, 33), Err(DropReason::BadHandshake), "token too long");
    assert_eq!(broken(46, 4), Err(DropReason::BadHandshake), "token with a tail");
    assert_eq!(broken(78, 1), Err(DropReason::BadHandshake), "padding not zero");
    assert_eq!(broken(86, 0), Err(DropReason::BadHandshake), "an index twice");
    let mut zero = payload();
    zero.hello.indices[3] = SessionIndex(0);
    assert_eq!(parse_hello(&zero.emit()), Err(DropReason::BadHandshake), "index zero");
    assert!(!zero.hello.has_issued_indices() && payload().hello.has_issued_indices());
    // Bits that this version does not know are let through.
    assert!(broken(45, 0xff).is_ok_and(|payload| payload.hello.has_aes));
    assert!(broken(45, 0xfe).is_ok_and(|payload| !payload.hello.has_aes));
    assert!(broken(44, 9).is_ok_and(|payload| payload.hello.floor == Floor(9)));

    let broken = |at: usize, value: u8| {
        let mut bytes = welcome().emit();
        bytes[at] = value;
        parse_welcome(&bytes)
    };
    assert_eq!(broken(9, 2), Err(DropReason::BadHandshake), "unknown header cipher");
    assert_eq!(broken(15, 5), Err(DropReason::BadHandshake), "unknown family");
    assert_eq!(broken(37, 8), Err(DropReason::BadHandshake), "an index twice");
    assert_eq!(broken(0, 7), Err(DropReason::BadHandshake), "a refusal with indices");
}

#[test]
fn views_name_the_fields_that_emit_wrote() {
    let a = MessageA::emit(SessionIndex(0x0a0b_0c0d), &[0x11; NOISE_1_LEN]);
    let view = MessageA::parse(&a).unwrap();
    assert_eq!(a[..6], [1, 0x0a, 0x0b, 0x0c, 0x0d, VERSION]);
    assert_eq!((view.sender(), view.noise()), (SessionIndex(0x0a0b_0c0d), &a[6..1_064]));
    assert_eq!(view.linked(), &a[..A_LEN - MAC_LEN]);

    let b = MessageB::emit(SessionIndex(9), &[0x22; LINK_LEN], &[0x33; EK_TAIL_LEN]);
    let view = MessageB::parse(&b).unwrap();
    assert_eq!((view.sender(), view.link()), (SessionIndex(9), [0x22; LINK_LEN]));
    assert_eq!(view.ek_tail(), [0x33; EK_TAIL_LEN]);

    let (noise, ciphertext) = ([0x44; NOISE_2_LEN], [0x55; CT_LEN]);
    let response = Response::emit(SessionIndex(1), SessionIndex(2), &noise, &ciphertext);
    let view = Response::parse(&response).unwrap();
    assert_eq!((view.sender(), view.receiver()), (SessionIndex(1), SessionIndex(2)));
    assert_eq!((view.noise(), view.ciphertext()), (&noise[..], ciphertext));

    let reply = CookieReply::emit(SessionIndex(3), &[0x66; 16], &[0x77; 32]);
    let view = CookieReply::parse(&reply).unwrap();
    assert_eq!((view.receiver(), view.nonce()), (SessionIndex(3), [0x66; 16]));
    assert_eq!(view.sealed(), [0x77; 32]);
}

#[test]
fn tokens_have_1_to_32_bytes() {
    assert_eq!(Token::new(&[]), None);
    assert_eq!(Token::new(&[0; 33]), None);
    assert_eq!(Token::new(&[7; 32]).unwrap().as_bytes(), [7; 32]);
    assert_eq!(format!("{:?}", Token::new(b"hush")), "Some(Token(..))");
}

proptest! {
    #[test]
    fn views_take_any_bytes(
        mut bytes in proptest::collection::vec(any::<u8>(), 0..1_500),
        kind in 1u8..5,
        exact: bool,
    ) {
        if exact {
            bytes.resize([A_LEN, B_LEN, RESPONSE_LEN, COOKIE_REPLY_LEN][usize::from(kind) - 1], 0);
            bytes[0] = kind;
            bytes[5] = VERSION;
        }
        let a = MessageA::parse(&bytes).map(|v| (v.sender(), v.noise(), v.linked()));
        let b = MessageB::parse(&bytes).map(|v| (v.sender(), v.link(), v.ek_tail()));
        let response = Response::parse(&bytes).map(|v| (v.sender(), v.receiver(), v.ciphertext()));
        let cookie = CookieReply::parse(&bytes).map(|v| (v.receiver(), v.nonce(), v.sealed()));
        let taken = [a.is_ok(), b.is_ok(), response.is_ok(), cookie.is_ok()];
        let count = taken.iter().filter(|&&ok| ok).count();
        prop_assert_eq!(count, usize::from(exact), "{:?}", taken);
    }

    #[test]
    fn payloads_take_any_bytes(fill in proptest::collection::vec(any::<u8>(), HELLO_LEN)) {
        if let Ok(payload) = parse_hello(&fill) {
            prop_assert!(payload.hello.has_issued_indices());
            prop_assert_eq!(parse_hello(&payload.emit()), Ok(payload));
        }
        if let Ok(welcome) = parse_welcome(&fill[..WELCOME_LEN]) {
            prop_assert_eq!(parse_welcome(&welcome.emit()), Ok(welcome));
        }
    }
}
