//! What the operator signs about a gateway: its key, where it is reached, its inner networks.
//!
//! Bytes: version 1 | serial 8 | gateway key 32 | count 1 | endpoints, each text behind its length
//! in 1 byte | networks, text behind its length in 1 byte | signature 64, Ed25519 over the label
//! and everything before it. The record with the higher serial replaces the other of the same key.

use std::fmt;
use std::str::FromStr;

use rove_proto::id::PeerKey;

use super::wire::{Reader, put_short};
use crate::keys::{OperatorKey, OperatorPublic};
use crate::values::{ENDPOINTS_MAX, Endpoint, Networks};

/// No signed record is longer.
pub(super) const RECORD_BYTES_MAX: usize =
    1 + 8 + 32 + 1 + ENDPOINTS_MAX * (1 + 255) + 1 + 255 + 64;

const VERSION: u8 = 1;
const SIGNATURE_BYTES: usize = 64;
/// Separates this signature from anything else that the operator key may ever sign.
const LABEL: &[u8] = b"rove gateway record v1\0";

/// One gateway, as its operator describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayRecord {
    /// Grows with every new record about the same gateway.
    pub serial: u64,
    /// The gateway's static key.
    pub key: PeerKey,
    /// Where it is reached, best first; 1 to [`ENDPOINTS_MAX`].
    pub endpoints: Vec<Endpoint>,
    /// The inner networks that it hands out, so that a client sees an overlap before it connects.
    pub networks: Networks,
}

impl GatewayRecord {
    /// Signs the record.
    pub fn sign(self, operator: &OperatorKey) -> SignedRecord {
        let mut bytes = vec![VERSION];
        bytes.extend(self.serial.to_be_bytes());
        bytes.extend(self.key.0);
        // At most ENDPOINTS_MAX, by validation of the configuration.
        bytes.push(u8::try_from(self.endpoints.len()).unwrap_or(u8::MAX));
        for endpoint in &self.endpoints {
            put_short(&mut bytes, endpoint.to_string().as_bytes());
        }
        put_short(&mut bytes, self.networks.to_string().as_bytes());
        SignedRecord { record: self, bytes: signed(&bytes, operator) }
    }
}

/// A record's bytes and the signature over them.
pub(crate) fn signed(body: &[u8], operator: &OperatorKey) -> Vec<u8> {
    [body, &operator.sign(&labelled(body))].concat()
}

/// A [`GatewayRecord`] whose signature was made or verified.
#[derive(Clone, PartialEq, Eq)]
pub struct SignedRecord {
    record: GatewayRecord,
    bytes: Vec<u8>,
}

impl SignedRecord {
    /// The record in `bytes` if `operator` signed it.
    pub fn verify(bytes: &[u8], operator: OperatorPublic) -> Option<Self> {
        let (body, signature) =
            bytes.split_at_checked(bytes.len().checked_sub(SIGNATURE_BYTES)?)?;
        if !operator.verifies(&labelled(body), signature) {
            return None;
        }
        Some(Self { record: parse(body)?, bytes: bytes.to_vec() })
    }

    /// What it says.
    pub const fn record(&self) -> &GatewayRecord {
        &self.record
    }

    /// Its bytes, signature included.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl fmt::Debug for SignedRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.record.fmt(f)
    }
}

fn labelled(body: &[u8]) -> Vec<u8> {
    [LABEL, body].concat()
}

fn parse(body: &[u8]) -> Option<GatewayRecord> {
    let mut reader = Reader::new(body);
    if reader.byte()? != VERSION {
        return None;
    }
    let serial = u64::from_be_bytes(reader.array()?);
    let key = PeerKey(reader.array()?);
    let count = usize::from(reader.byte()?);
    if count == 0 || count > ENDPOINTS_MAX {
        return None;
    }
    let endpoints = (0..count).map(|_| text::<Endpoint>(reader.short()?));
    let endpoints = endpoints.collect::<Option<Vec<Endpoint>>>()?;
    let networks = text::<Networks>(reader.short()?)?;
    reader.is_empty().then_some(GatewayRecord { serial, key, endpoints, networks })
}

fn text<T: FromStr>(bytes: &[u8]) -> Option<T> {
    std::str::from_utf8(bytes).ok()?.parse().ok()
}
