//! SHA-256 and HKDF-SHA-256 (RFC 5869) in the two shapes that this crate needs. The lengths are
//! constants of the protocol, so nothing here can fail on input from outside.

use aws_lc_rs::{digest, hkdf};
use zeroize::Zeroizing;

/// A secret of 32 bytes that is erased when dropped.
pub(super) type Secret = Zeroizing<[u8; 32]>;

/// SHA-256 of the concatenation of `parts`.
pub(crate) fn sha256(parts: &[&[u8]]) -> [u8; 32] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part);
    }
    let mut out = [0; 32];
    out.copy_from_slice(context.finish().as_ref());
    out
}

/// HKDF-Extract.
pub(super) fn extract(salt: &[u8], secret: &[u8]) -> hkdf::Prk {
    hkdf::Salt::new(hkdf::HKDF_SHA256, salt).extract(secret)
}

/// HKDF-Expand to `N` bytes; `info` is the concatenation of its parts.
pub(super) fn expand<const N: usize>(prk: &hkdf::Prk, info: &[&[u8]]) -> Zeroizing<[u8; N]> {
    const { assert!(N <= 255 * 32, "RFC 5869, 2.3: at most 255 blocks") }
    let mut out = Zeroizing::new([0; N]);
    prk.expand(info, Length(N))
        .and_then(|okm| okm.fill(out.as_mut()))
        .expect("the length is within HKDF's limit");
    out
}

struct Length(usize);

impl hkdf::KeyType for Length {
    fn len(&self) -> usize {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rfc_5869_case_1() {
        let salt: Vec<u8> = (0x00..=0x0c).collect();
        let prk = extract(&salt, &[0x0b; 22]);
        let info: Vec<u8> = (0xf0..=0xf9).collect();
        let okm: Zeroizing<[u8; 42]> = expand(&prk, &[&info[..4], &info[4..]]);
        assert_eq!(okm[..8], [0x3c, 0xb2, 0x5f, 0x25, 0xfa, 0xac, 0xd5, 0x7a]);
        assert_eq!(okm[34..], [0x72, 0x08, 0xd5, 0xb8, 0x87, 0x18, 0x58, 0x65]);
    }
}
