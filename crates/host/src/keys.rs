//! The keys of a node: made, kept in files of their own, never shown.
//!
//! The **operator key** (Ed25519, RFC 8032) signs gateways and may be moved offline once they are
//! signed. The **static key** (X25519, RFC 7748) is a node's identity in the handshake. Both files
//! are one line of text, readable by their owner alone, else they are refused.

use std::fmt;
use std::fs::File;
use std::io::Seek;
use std::path::Path;

use aws_lc_rs::agreement::{self, PrivateKey};
use aws_lc_rs::rand::{SecureRandom, SystemRandom};
use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair, UnparsedPublicKey};
use rove_proto::id::PeerKey;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::encoding;
use crate::files::{self, FileError};

const SECRET_BYTES: usize = 32;
const OPERATOR_LABEL: &str = "rove-operator-key-1";
const STATIC_LABEL: &str = "rove-static-key-1";

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// Its file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// Its file holds something else.
    #[error("{path} holds no {label}: restore it from a backup")]
    Damaged {
        /// The file.
        path: String,
        /// What its first word should be.
        label: &'static str,
    },
    /// The system gave no randomness, or the library refused the key.
    #[error("the cryptographic library refused: {0}")]
    Library(&'static str),
}

/// The operator's public key: the name of a service.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperatorPublic(#[serde(with = "encoding::bytes")] pub [u8; 32]);

impl OperatorPublic {
    /// Whether `signature` is the operator's over `message`.
    pub fn verifies(&self, message: &[u8], signature: &[u8]) -> bool {
        UnparsedPublicKey::new(&ED25519, self.0).verify(message, signature).is_ok()
    }
}

impl fmt::Debug for OperatorPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "operator:{}", &encoding::to_text(&self.0)[..8])
    }
}

/// The operator's signing key.
pub struct OperatorKey {
    pair: Ed25519KeyPair,
    seed: Zeroizing<[u8; SECRET_BYTES]>,
}

impl OperatorKey {
    /// A new key.
    pub fn generate() -> Result<Self, KeyError> {
        Self::from_seed(random_secret()?)
    }

    /// The key in the file at `path`.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        Self::from_seed(load_secret(path, OPERATOR_LABEL)?)
    }

    /// The key in the open `file`, which an error calls `path`.
    pub fn load_from(mut file: &File, path: &Path) -> Result<Self, KeyError> {
        let system = |cause| FileError::System { path: path.to_owned(), cause };
        file.rewind().map_err(system)?;
        let content = files::read_open_secret(path, file.try_clone().map_err(system)?)?;
        Self::from_seed(parse_secret(&content, OPERATOR_LABEL, &path.display().to_string())?)
    }

    /// Writes the key to a new file at `path`.
    pub fn create(&self, path: &Path) -> Result<(), KeyError> {
        create_secret(path, OPERATOR_LABEL, &self.seed)
    }

    fn from_seed(seed: Zeroizing<[u8; SECRET_BYTES]>) -> Result<Self, KeyError> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed.as_slice())
            .map_err(|_| KeyError::Library("no Ed25519 key"))?;
        Ok(Self { pair, seed })
    }

    /// The public half.
    pub fn public(&self) -> OperatorPublic {
        let mut public = [0; 32];
        public.copy_from_slice(self.pair.public_key().as_ref());
        OperatorPublic(public)
    }

    /// The signature over `message`, 64 bytes.
    pub fn sign(&self, message: &[u8]) -> [u8; 64] {
        let mut signature = [0; 64];
        signature.copy_from_slice(self.pair.sign(message).as_ref());
        signature
    }
}

impl fmt::Debug for OperatorKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OperatorKey({:?})", self.public())
    }
}

/// A node's X25519 key.
pub struct StaticKey {
    secret: Zeroizing<[u8; SECRET_BYTES]>,
    public: PeerKey,
}

impl StaticKey {
    /// A new key.
    pub fn generate() -> Result<Self, KeyError> {
        Self::from_secret(random_secret()?)
    }

    /// The key in the file at `path`.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        Self::from_secret(load_secret(path, STATIC_LABEL)?)
    }

    /// Writes the key to a new file at `path`.
    pub fn create(&self, path: &Path) -> Result<(), KeyError> {
        create_secret(path, STATIC_LABEL, &self.secret)
    }

    /// The text that the key's file holds.
    pub fn file_text(&self) -> Zeroizing<String> {
        secret_text(STATIC_LABEL, &self.secret)
    }

    /// The key that the text of such a file holds; `name` is what an error calls it.
    pub fn from_file_text(text: &str, name: &str) -> Result<Self, KeyError> {
        Self::from_secret(parse_secret(text.as_bytes(), STATIC_LABEL, name)?)
    }

    fn from_secret(secret: Zeroizing<[u8; SECRET_BYTES]>) -> Result<Self, KeyError> {
        let refused = || KeyError::Library("no X25519 key");
        let private = PrivateKey::from_private_key(&agreement::X25519, secret.as_slice());
        let private = private.map_err(|_| refused())?;
        let computed = private.compute_public_key().map_err(|_| refused())?;
        let mut public = [0; 32];
        public.copy_from_slice(computed.as_ref());
        Ok(Self { secret, public: PeerKey(public) })
    }

    /// The public half: the node's identity.
    pub const fn public(&self) -> PeerKey {
        self.public
    }

    /// The secret half, for the core.
    pub fn secret(&self) -> &[u8; SECRET_BYTES] {
        &self.secret
    }
}

impl fmt::Debug for StaticKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StaticKey({:?})", self.public)
    }
}

/// Fresh bytes from the system's generator.
pub fn random<const N: usize>() -> Result<[u8; N], KeyError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| KeyError::Library("no randomness"))?;
    Ok(bytes)
}

fn random_secret() -> Result<Zeroizing<[u8; SECRET_BYTES]>, KeyError> {
    Ok(Zeroizing::new(random()?))
}

fn secret_text(label: &str, secret: &[u8; SECRET_BYTES]) -> Zeroizing<String> {
    let encoded = Zeroizing::new(encoding::to_text(secret));
    Zeroizing::new(format!("{label} {}\n", encoded.as_str()))
}

fn create_secret(path: &Path, label: &str, secret: &[u8; SECRET_BYTES]) -> Result<(), KeyError> {
    Ok(files::create(path, files::PRIVATE, secret_text(label, secret).as_bytes())?)
}

fn load_secret(
    path: &Path,
    label: &'static str,
) -> Result<Zeroizing<[u8; SECRET_BYTES]>, KeyError> {
    parse_secret(&files::read_secret(path)?, label, &path.display().to_string())
}

fn parse_secret(
    content: &[u8],
    label: &'static str,
    name: &str,
) -> Result<Zeroizing<[u8; SECRET_BYTES]>, KeyError> {
    let parse = || {
        let text = std::str::from_utf8(content).ok()?;
        let encoded = text.strip_prefix(label)?.strip_prefix(' ')?.strip_suffix('\n')?;
        let bytes = Zeroizing::new(encoding::from_text(encoded)?);
        let secret: [u8; SECRET_BYTES] = bytes.as_slice().try_into().ok()?;
        Some(Zeroizing::new(secret))
    };
    parse().ok_or_else(|| KeyError::Damaged { path: name.to_owned(), label })
}

#[cfg(test)]
#[path = "keys_tests.rs"]
mod tests;
