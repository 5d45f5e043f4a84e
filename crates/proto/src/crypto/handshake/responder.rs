//! The end that answers: opens A, completes it with B, writes the response.

use std::fmt;

use snow::HandshakeState;
use zeroize::Zeroizing;

use super::{ExchangeId, noise_failed, put_mac1, raw_split};
use crate::crypto::kdf;
use crate::crypto::kem::{Exchange, KemPublic};
use crate::crypto::mac::Mac1Key;
use crate::crypto::noise;
use crate::crypto::rng::{Rng, draw};
use crate::crypto::schedule::{EpochKeys, Finished, Role};
use crate::crypto::x25519::StaticSecret;
use crate::error::DropReason;
use crate::id::{PeerKey, SessionIndex};
use crate::wire::handshake::{
    EK_HEAD_LEN, EK_LEN, Floor, HELLO_LEN, HeaderCipher, Hello, HelloPayload, MessageA, MessageB,
    NOISE_2_LEN, Response, Status, Welcome,
};

/// A message A that decrypted and waits for its B.
///
/// What it says is authentic except for one thing: it may be a replay. Only a counter above the
/// last one accepted from [`Self::peer`] says otherwise, and that the caller knows.
pub struct PendingA {
    link: ExchangeId,
    peer: PeerKey,
    hello: Hello,
    ek_hash: [u8; 32],
    ek_head: [u8; EK_HEAD_LEN],
    noise: Option<HandshakeState>,
}

impl PendingA {
    /// Decrypts message A, which must have passed the gate. Costs two Diffie-Hellmans. Draws 32
    /// bytes, for the ephemeral key of the response.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] or [`DropReason::BadHandshake`] when it is no A of this version,
    /// was not written for this identity, or breaks the format.
    pub fn open(
        rng: &mut dyn Rng,
        secret: &StaticSecret,
        bytes: &[u8],
    ) -> Result<Self, DropReason> {
        let a = MessageA::parse(bytes)?;
        let ephemeral = Zeroizing::new(draw(rng));
        let mut noise = noise::responder(secret, ephemeral).map_err(noise_failed)?;
        let mut payload = Zeroizing::new([0; HELLO_LEN]);
        noise.read_message(a.noise(), payload.as_mut()).map_err(noise_failed)?;
        let HelloPayload { hello, ek_hash, ek_head } = HelloPayload::parse(&payload)?;
        let peer = noise.get_remote_static().and_then(|key| key.first_chunk());
        let peer = PeerKey(*peer.ok_or(DropReason::BadHandshake)?);
        // A reflection of our own message, or a node that was given our key.
        if peer == secret.public() || hello.indices[0] != a.sender() {
            return Err(DropReason::BadHandshake);
        }
        Ok(Self { link: ExchangeId::of(a), peer, hello, ek_hash, ek_head, noise: Some(noise) })
    }

    /// The name by which B finds it.
    pub const fn link(&self) -> ExchangeId {
        self.link
    }

    /// Who asks.
    pub const fn peer(&self) -> PeerKey {
        self.peer
    }

    /// What it says.
    pub const fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Completes the KEM key with message B. A wrong B changes nothing; the true one is still
    /// accepted, once.
    ///
    /// # Errors
    /// [`DropReason::Malformed`] or [`DropReason::BadHandshake`] when `bytes` is not the B of this
    /// A, was taken already, or the key that both make up is no ML-KEM-768 key.
    pub fn complete(&mut self, bytes: &[u8]) -> Result<Complete, DropReason> {
        let b = MessageB::parse(bytes)?;
        if b.link() != self.link.0 || b.sender() != self.hello.indices[0] {
            return Err(DropReason::BadHandshake);
        }
        let mut ek = [0; EK_LEN];
        ek[..EK_HEAD_LEN].copy_from_slice(&self.ek_head);
        ek[EK_HEAD_LEN..].copy_from_slice(&b.ek_tail());
        if kdf::sha256(&[&ek]) != self.ek_hash {
            return Err(DropReason::BadHandshake);
        }
        let kem = KemPublic::new(ek).ok_or(DropReason::BadHandshake)?;
        let noise = self.noise.take().ok_or(DropReason::BadHandshake)?;
        let (peer, hello, ek_hash) = (self.peer, self.hello.clone(), self.ek_hash);
        Ok(Complete { peer, hello, ek_hash, kem, noise })
    }
}

impl fmt::Debug for PendingA {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingA")
            .field("peer", &self.peer)
            .field("link", &self.link)
            .finish_non_exhaustive()
    }
}

/// Both halves of message 1, ready to be answered.
pub struct Complete {
    peer: PeerKey,
    hello: Hello,
    ek_hash: [u8; 32],
    kem: KemPublic,
    noise: HandshakeState,
}

impl Complete {
    /// Who asks.
    pub const fn peer(&self) -> PeerKey {
        self.peer
    }

    /// What it says.
    pub const fn hello(&self) -> &Hello {
        &self.hello
    }

    /// Writes the response and derives the keys, if the status accepts. `psk` is the static
    /// pre-shared key of this pair, if it has one. Draws 32 bytes, for ML-KEM.
    ///
    /// `welcome` holds this end's own features, floor and header cipher; what is sent and used is
    /// what both ends allow: the common features, the higher floor, AES only if both have it
    /// ([`EpochKeys`] tells). A floor that no suite reaches turns an acceptance into
    /// [`Status::Unsupported`].
    ///
    /// # Errors
    /// [`DropReason::BadHandshake`] when Noise refuses; not known to happen after a valid A.
    ///
    /// # Panics
    /// When `welcome` accepts with indices that are not distinct and non-zero.
    pub fn respond(
        self,
        rng: &mut dyn Rng,
        psk: Option<&[u8; 32]>,
        welcome: &Welcome,
    ) -> Result<(Vec<u8>, Option<EpochKeys>), DropReason> {
        let welcome = agreed(&self.hello, welcome);
        self.write(rng, psk, &welcome)
    }

    /// Writes exactly this welcome.
    pub(super) fn write(
        mut self,
        rng: &mut dyn Rng,
        psk: Option<&[u8; 32]>,
        welcome: &Welcome,
    ) -> Result<(Vec<u8>, Option<EpochKeys>), DropReason> {
        let accepts = welcome.status == Status::Accepted;
        assert!(!accepts || welcome.has_issued_indices(), "indices are distinct and not zero");
        let h1 = noise::handshake_hash(&self.noise);
        let (ciphertext, kem_secret) = self.kem.encapsulate(rng);
        let sender = if accepts { welcome.indices[0] } else { SessionIndex(0) };
        let receiver = self.hello.indices[0];
        let exchange =
            Exchange { h1: &h1, ek_hash: &self.ek_hash, ciphertext: &ciphertext, sender, receiver };
        let psk = exchange.psk(psk, &kem_secret);
        self.noise.set_psk(noise::PSK_SLOT, psk.as_ref()).map_err(noise_failed)?;
        let mut noise_2 = [0; NOISE_2_LEN];
        self.noise.write_message(&welcome.emit(), &mut noise_2).map_err(noise_failed)?;

        let mut response = Response::emit(sender, receiver, &noise_2, &ciphertext);
        put_mac1(&Mac1Key::of_exchange(&h1), &mut response, 0);
        if !accepts {
            return Ok((response, None));
        }
        let finished = Finished {
            handshake_hash: &noise::handshake_hash(&self.noise),
            split: &raw_split(&mut self.noise),
            header_cipher: welcome.header_cipher,
            floor: welcome.floor,
            features: welcome.features,
        };
        Ok((response, Some(EpochKeys::derive(Role::Responder, &finished))))
    }
}

impl fmt::Debug for Complete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Complete").field("peer", &self.peer).finish_non_exhaustive()
    }
}

/// What both ends allow of what each offers.
fn agreed(hello: &Hello, own: &Welcome) -> Welcome {
    let floor = hello.floor.max(own.floor);
    let possible = own.status != Status::Accepted || floor <= Floor::HIGHEST;
    let status = if possible { own.status } else { Status::Unsupported };
    let header_cipher = if hello.has_aes { own.header_cipher } else { HeaderCipher::ChaCha20 };
    Welcome { status, floor, header_cipher, features: hello.features & own.features, ..*own }
}
