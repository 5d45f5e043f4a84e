//! Bytes as text: lower-case base32 without padding (RFC 4648 section 6), read in any case.
//!
//! Base32, because keys and invites are read aloud, typed, and printed as QR codes, whose
//! alphanumeric mode makes them smaller than base64 would.

use data_encoding::{Encoding, Specification};
use rove_proto::id::PeerKey;
use serde::{Deserialize, Serialize};
use std::sync::LazyLock;

static BASE32: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = Specification::new();
    specification.symbols.push_str("abcdefghijklmnopqrstuvwxyz234567");
    specification.translate.from.push_str("ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    specification.translate.to.push_str("abcdefghijklmnopqrstuvwxyz");
    // The alphabet above is fixed and valid, which the tests of this module show.
    specification.encoding().unwrap_or(data_encoding::BASE32_NOPAD)
});

/// `bytes` as text.
pub fn to_text(bytes: &[u8]) -> String {
    BASE32.encode(bytes)
}

/// The bytes that `text` stands for.
pub fn from_text(text: &str) -> Option<Vec<u8>> {
    BASE32.decode(text.as_bytes()).ok()
}

/// The whole bytes that the beginning of `text` encodes. Any text may follow.
pub(crate) fn beginning_from_text(text: &str) -> Vec<u8> {
    // Eight characters encode five bytes. Leftover bits after the last whole byte are dropped.
    let mut bytes = Vec::with_capacity(text.len() * 5 / 8);
    let (mut bits, mut value) = (0, 0u32);
    for symbol in text.bytes().map_while(value_of) {
        (value, bits) = ((value << 5 | u32::from(symbol)) & 0xfff, bits + 5);
        if bits >= 8 {
            bits -= 8;
            bytes.extend(u8::try_from(value >> bits & 0xff));
        }
    }
    bytes
}

const fn value_of(symbol: u8) -> Option<u8> {
    match symbol {
        b'a'..=b'z' => Some(symbol - b'a'),
        b'2'..=b'7' => Some(symbol - b'2' + 26),
        _ => None,
    }
}

/// A peer's public key as records spell it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeyText(#[serde(with = "bytes")] pub [u8; 32]);

impl From<PeerKey> for KeyText {
    fn from(key: PeerKey) -> Self {
        Self(key.0)
    }
}

impl From<KeyText> for PeerKey {
    fn from(key: KeyText) -> Self {
        Self(key.0)
    }
}

/// Serialises a fixed number of bytes as text: `#[serde(with = "encoding::bytes")]`.
pub(crate) mod bytes {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes the text.
    pub(crate) fn serialize<const N: usize, S: Serializer>(
        bytes: &[u8; N],
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.serialize_str(&super::to_text(bytes))
    }

    /// Reads the text, which must stand for exactly `N` bytes.
    pub(crate) fn deserialize<'de, const N: usize, D: Deserializer<'de>>(
        from: D,
    ) -> Result<[u8; N], D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(from)?;
        let bytes = super::from_text(&text).ok_or_else(|| D::Error::custom("not base32"))?;
        bytes.try_into().map_err(|_| D::Error::custom("wrong length"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base32_is_lower_case_and_reads_either() {
        assert_eq!(to_text(b"foobar"), "mzxw6ytboi");
        assert_eq!(from_text("MZXW6YTBOI").as_deref(), Some(&b"foobar"[..]));
        assert_eq!(from_text("mzxw6ytbo1"), None);
        assert_eq!(from_text("mzxw6ytboi======"), None);
        assert_eq!(beginning_from_text("mzxw6ytboi"), b"foobar");
        assert_eq!(beginning_from_text("mzxw6ytboi=anything"), b"foobar");
        assert_eq!(beginning_from_text("mzxw6ytb777"), b"fooba\xff");
    }
}
