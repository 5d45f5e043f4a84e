//! The end that begins: writes A and B, reads the response.

use std::fmt;

use snow::HandshakeState;
use zeroize::Zeroizing;

use super::{ExchangeId, noise_failed, put_mac1, raw_split};
use crate::crypto::kdf::{self, Secret};
use crate::crypto::kem::{Exchange, KemSecret};
use crate::crypto::mac::{Cookie, Mac1Key, same};
use crate::crypto::noise;
use crate::crypto::rng::{Rng, draw};
use crate::crypto::schedule::{EpochKeys, Finished, Role};
use crate::crypto::x25519::StaticSecret;
use crate::error::DropReason;
use crate::id::{PeerKey, SessionIndex};
use crate::wire::features::Features;
use crate::wire::handshake::{
    A_LEN, B_LEN, CookieReply, EK_HEAD_LEN, EK_LEN, Floor, HeaderCipher, Hello, HelloPayload,
    MAC_LEN, MessageA, MessageB, NOISE_1_LEN, RESPONSE_LEN, Response, Status, WELCOME_LEN, Welcome,
};

/// Message 1, as the two datagrams that it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MessagePair {
    /// The first half: who asks, encrypted, and most of the KEM key.
    pub a: Vec<u8>,
    /// The second half: the rest of the KEM key.
    pub b: Vec<u8>,
}

/// The remote public key is a point of small order: no secret can be shared with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the peer's public key is not a usable X25519 key: copy it again from the peer")]
pub struct UnusableKey;

/// A handshake that waits for its response.
///
/// One exchange with one counter: repeating its messages is allowed (the responder accepts the
/// counter once), a new exchange needs a new `Initiator` and a higher counter.
pub struct Initiator {
    noise: HandshakeState,
    h1: [u8; 32],
    psk: Option<Secret>,
    kem: KemSecret,
    ek_hash: [u8; 32],
    remote: PeerKey,
    offer: Offer,
    messages: MessagePair,
}

/// What of the hello the answer is held against.
struct Offer {
    index: SessionIndex,
    features: Features,
    floor: Floor,
    has_aes: bool,
}

impl Initiator {
    /// Begins a handshake with `remote`. `psk` is the static pre-shared key of this pair, if it
    /// has one. Draws 32 bytes for X25519, then 64 for ML-KEM.
    ///
    /// # Errors
    /// [`UnusableKey`] when `remote` cannot be a key.
    ///
    /// # Panics
    /// When the indices of `hello` are not distinct and non-zero: the responder would refuse them.
    pub fn start(
        rng: &mut dyn Rng,
        secret: &StaticSecret,
        remote: PeerKey,
        psk: Option<&[u8; 32]>,
        hello: &Hello,
    ) -> Result<(Self, MessagePair), UnusableKey> {
        assert!(hello.has_issued_indices(), "indices are distinct and not zero");
        let ephemeral = Zeroizing::new(draw(rng));
        let kem = KemSecret::generate(rng);
        let ek = kem.encapsulation_key();
        let ek_hash = kdf::sha256(&[&ek]);
        let mut noise = noise::initiator(secret, remote, ephemeral).map_err(|_| UnusableKey)?;
        let noise_1 = write_noise_1(&mut noise, hello, &ek, ek_hash)?;
        let index = hello.indices[0];
        let messages = write_messages(index, &noise_1, &ek, &Mac1Key::of_responder(remote));
        let offer =
            Offer { index, features: hello.features, floor: hello.floor, has_aes: hello.has_aes };
        let initiator = Self {
            h1: noise::handshake_hash(&noise),
            noise,
            psk: psk.map(|psk| Zeroizing::new(*psk)),
            kem,
            ek_hash,
            remote,
            offer,
            messages: messages.clone(),
        };
        Ok((initiator, messages))
    }

    /// The index that answers to this exchange carry.
    pub const fn index(&self) -> SessionIndex {
        self.offer.index
    }

    /// The two messages as last built, to be sent again.
    pub const fn messages(&self) -> &MessagePair {
        &self.messages
    }

    /// The cookie in a reply to A or B of this exchange. It is good for later exchanges from the
    /// same address too, for two to four minutes.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] or [`DropReason::BadHandshake`] when it is no answer to this
    /// exchange; [`DropReason::BadMac`] when it does not open.
    pub fn open_cookie_reply(&self, bytes: &[u8]) -> Result<Cookie, DropReason> {
        let reply = CookieReply::parse(bytes)?;
        if reply.receiver() != self.offer.index {
            return Err(DropReason::BadHandshake);
        }
        let open = |message: &[u8]| {
            let mac1 = message.last_chunk::<{ 2 * MAC_LEN }>().and_then(|macs| macs.first_chunk());
            let mac1 = mac1.ok_or(DropReason::Malformed)?;
            Cookie::open(self.remote, &reply.nonce(), mac1, &reply.sealed())
        };
        open(&self.messages.a).or_else(|_| open(&self.messages.b))
    }

    /// Rebuilds mac2 of both messages with `cookie`; nothing else in them changes.
    pub fn add_cookie(&mut self, cookie: &Cookie) -> &MessagePair {
        for message in [&mut self.messages.a, &mut self.messages.b] {
            let at = message.len() - MAC_LEN;
            let mac = cookie.mac(&message[..at]);
            message[at..].copy_from_slice(&mac);
        }
        &self.messages
    }

    /// Reads the response: what the responder says, and keys if it accepted.
    ///
    /// A forged, corrupted or foreign response changes nothing; the true one is still accepted.
    /// After a response that is authentic, whatever it says, the exchange is over and every
    /// further one is refused.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] or [`DropReason::BadHandshake`] when it is not the answer to this
    /// exchange, does not verify, or claims what was not offered; [`DropReason::BadMac`] when
    /// mac1 is wrong.
    pub fn finish(&mut self, bytes: &[u8]) -> Result<(Welcome, Option<EpochKeys>), DropReason> {
        let response = Response::parse(bytes)?;
        if response.receiver() != self.offer.index || self.noise.is_handshake_finished() {
            return Err(DropReason::BadHandshake);
        }
        let (before_mac1, mac1) = bytes.split_at(RESPONSE_LEN - MAC_LEN);
        if !same(&Mac1Key::of_exchange(&self.h1).mac(before_mac1), mac1) {
            return Err(DropReason::BadMac);
        }
        let welcome = self.read_noise_2(response)?;
        if !self.offer.allows(&welcome) || welcome.indices[0] != response.sender() {
            return Err(DropReason::BadHandshake);
        }
        if welcome.status != Status::Accepted {
            return Ok((welcome, None));
        }
        let finished = Finished {
            handshake_hash: &noise::handshake_hash(&self.noise),
            split: &raw_split(&mut self.noise),
            header_cipher: welcome.header_cipher,
            floor: welcome.floor,
            features: welcome.features,
        };
        Ok((welcome, Some(EpochKeys::derive(Role::Initiator, &finished))))
    }

    /// On failure snow restores its symmetric state, and message 2 begins with tokens that
    /// replace everything else it touched (the remote ephemeral key, the cipher key, the psk).
    fn read_noise_2(&mut self, response: Response<'_>) -> Result<Welcome, DropReason> {
        let ciphertext = response.ciphertext();
        let kem_secret = self.kem.decapsulate(&ciphertext);
        let exchange = Exchange {
            h1: &self.h1,
            ek_hash: &self.ek_hash,
            ciphertext: &ciphertext,
            sender: response.sender(),
            receiver: response.receiver(),
        };
        let psk = exchange.psk(self.psk.as_deref(), &kem_secret);
        self.noise.set_psk(noise::PSK_SLOT, psk.as_ref()).map_err(noise_failed)?;
        let mut payload = [0; WELCOME_LEN];
        self.noise.read_message(response.noise(), &mut payload).map_err(noise_failed)?;
        Welcome::parse(&payload)
    }
}

impl Offer {
    /// Whether the responder kept to what was offered. It may raise the floor, but it cannot
    /// accept under a floor that no suite reaches, and it never lowers it.
    fn allows(&self, welcome: &Welcome) -> bool {
        let aes_ok = self.has_aes || welcome.header_cipher == HeaderCipher::ChaCha20;
        let known = self.features.has(welcome.features);
        let reached = welcome.status != Status::Accepted || welcome.floor <= Floor::HIGHEST;
        welcome.floor >= self.floor && reached && aes_ok && known
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiator")
            .field("remote", &self.remote)
            .field("index", &self.offer.index)
            .finish_non_exhaustive()
    }
}

fn write_noise_1(
    noise: &mut HandshakeState,
    hello: &Hello,
    ek: &[u8; EK_LEN],
    ek_hash: [u8; 32],
) -> Result<[u8; NOISE_1_LEN], UnusableKey> {
    let mut ek_head = [0; EK_HEAD_LEN];
    ek_head.copy_from_slice(&ek[..EK_HEAD_LEN]);
    let payload = HelloPayload { hello: hello.clone(), ek_hash, ek_head };
    let payload = Zeroizing::new(payload.emit());
    let mut message = [0; NOISE_1_LEN];
    noise.write_message(&payload, &mut message).map_err(|_| UnusableKey)?;
    Ok(message)
}

fn write_messages(
    index: SessionIndex,
    noise_1: &[u8; NOISE_1_LEN],
    ek: &[u8; EK_LEN],
    mac1: &Mac1Key,
) -> MessagePair {
    let mut a = MessageA::emit(index, noise_1);
    put_mac1(mac1, &mut a, MAC_LEN);
    let link = ExchangeId::of(MessageA::parse(&a).expect("just written"));
    let tail = ek.last_chunk().expect("B carries the end of the key");
    let mut b = MessageB::emit(index, &link.0, tail);
    put_mac1(mac1, &mut b, MAC_LEN);
    debug_assert_eq!((a.len(), b.len()), (A_LEN, B_LEN));
    MessagePair { a, b }
}

#[cfg(test)]
impl Initiator {
    /// What whoever saw A knows.
    pub(super) const fn h1(&self) -> &[u8; 32] {
        &self.h1
    }
}

/// Message 1 with a KEM key that is not ours to open: for tests of the responder.
#[cfg(test)]
pub(super) fn message_pair_with_ek(
    rng: &mut dyn Rng,
    secret: &StaticSecret,
    remote: PeerKey,
    hello: &Hello,
    ek: [u8; EK_LEN],
) -> MessagePair {
    let mut noise = noise::initiator(secret, remote, Zeroizing::new(draw(rng))).unwrap();
    let noise_1 = write_noise_1(&mut noise, hello, &ek, kdf::sha256(&[&ek])).unwrap();
    write_messages(hello.indices[0], &noise_1, &ek, &Mac1Key::of_responder(remote))
}
