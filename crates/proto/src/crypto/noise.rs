//! `Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s` (the Noise Protocol Framework, revision 34) in snow,
//! with two of its parts replaced: X25519 comes from aws-lc, which refuses points of small order,
//! and the one random value of each side, its ephemeral secret, is drawn beforehand.
//!
//! Limit: snow does not erase its chaining key when dropped. Ephemeral secrets are erased.

use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};
use zeroize::Zeroizing;

use super::kdf::Secret;
use super::x25519::{KeyPair, StaticSecret};
use crate::id::PeerKey;
use crate::wire::handshake::VERSION;

/// The name that Noise hashes first.
const PROTOCOL: &str = "Noise_IKpsk2_25519_ChaChaPoly_BLAKE2s";
/// Agreed before the first byte: a message of one version does not decrypt under another.
const PROLOGUE: [u8; 15] = {
    let mut prologue = *b"rove handshake ";
    prologue[14] = VERSION;
    prologue
};
/// Where the pre-shared key enters: at the end of message 2.
pub(super) const PSK_SLOT: usize = 2;

/// The initiator's side, about to write message 1 with this ephemeral secret.
pub(super) fn initiator(
    secret: &StaticSecret,
    remote: PeerKey,
    ephemeral: Secret,
) -> Result<HandshakeState, Error> {
    builder(ephemeral)?
        .prologue(&PROLOGUE)?
        .local_private_key(secret.as_bytes())?
        .remote_public_key(&remote.0)?
        .build_initiator()
}

/// The responder's side, about to read message 1; `ephemeral` is for message 2.
pub(super) fn responder(secret: &StaticSecret, ephemeral: Secret) -> Result<HandshakeState, Error> {
    builder(ephemeral)?.prologue(&PROLOGUE)?.local_private_key(secret.as_bytes())?.build_responder()
}

/// The handshake hash so far. BLAKE2s gives 32 bytes.
pub(super) fn handshake_hash(state: &HandshakeState) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(state.get_handshake_hash());
    hash
}

fn builder<'a>(ephemeral: Secret) -> Result<Builder<'a>, Error> {
    let params: NoiseParams = PROTOCOL.parse()?;
    Ok(Builder::with_resolver(params, Box::new(Resolver { ephemeral })))
}

struct Resolver {
    ephemeral: Secret,
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Once(Some(self.ephemeral.clone()))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        match choice {
            DHChoice::Curve25519 => Some(Box::new(AwsLcX25519(KeyPair::new(&[0; 32])))),
            DHChoice::Curve448 => None,
        }
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        DefaultResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        DefaultResolver.resolve_cipher(choice)
    }
}

/// Gives its 32 bytes once: a second ephemeral key from the same bytes would be a reuse.
struct Once(Option<Secret>);

impl Random for Once {
    fn try_fill_bytes(&mut self, dest: &mut [u8]) -> Result<(), Error> {
        let bytes = self.0.take().ok_or(Error::Rng)?;
        if dest.len() != bytes.len() {
            return Err(Error::Rng);
        }
        dest.copy_from_slice(bytes.as_ref());
        Ok(())
    }
}

struct AwsLcX25519(KeyPair);

impl Dh for AwsLcX25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        32
    }

    fn set(&mut self, privkey: &[u8]) {
        let mut secret = Zeroizing::new([0; 32]);
        secret.copy_from_slice(privkey);
        self.0 = KeyPair::new(&secret);
    }

    fn generate(&mut self, rng: &mut dyn Random) -> Result<(), Error> {
        let mut secret = Zeroizing::new([0; 32]);
        rng.try_fill_bytes(secret.as_mut())?;
        self.0 = KeyPair::new(&secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        self.0.public()
    }

    fn privkey(&self) -> &[u8] {
        self.0.secret()
    }

    fn dh(&self, pubkey: &[u8], out: &mut [u8]) -> Result<(), Error> {
        // snow hands over its largest public key's buffer, of which X25519 uses the first half.
        let public = pubkey.first_chunk().ok_or(Error::Dh)?;
        let shared = self.0.agree(public).ok_or(Error::Dh)?;
        out.get_mut(..shared.len()).ok_or(Error::Dh)?.copy_from_slice(shared.as_ref());
        Ok(())
    }
}
