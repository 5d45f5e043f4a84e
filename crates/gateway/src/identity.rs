//! Who a gateway is: its static key, its operator, and what the operator signed about it.
//!
//! The operator signs only in `rove gateway sign`, `rove gateway move` and
//! `rove gateway dictionary`. No other command signs, and no start does: whoever has taken over the
//! node can change the configuration and restart it.

use anyhow::{Context, Result, bail};
use rove_host::dictionary::{DictionaryName, SignedDictionary};
use rove_host::encoding;
use rove_host::files::{self, PRIVATE};
use rove_host::home::{Home, Role};
use rove_host::invite::{GatewayRecord, Invite, SignedRecord, Token};
use rove_host::keys::{KeyError, OperatorKey, OperatorPublic, StaticKey};
use rove_host::values::Endpoint;

use crate::config::Config;

const RECORD_LABEL: &str = "rove-gateway-record-1";
const OPERATOR_BYTES: usize = 32;

/// A gateway's key and what its operator signed.
#[derive(Debug)]
pub(crate) struct Identity {
    /// The gateway's key.
    pub key: StaticKey,
    /// The service that it belongs to.
    pub operator: OperatorPublic,
    /// What clients are told about it.
    pub record: SignedRecord,
}

impl Identity {
    /// Makes key and record of a new gateway.
    pub(crate) fn create(home: &Home, config: &Config, operator: &OperatorKey) -> Result<()> {
        let key = StaticKey::generate()?;
        key.create(&home.key(Role::Gateway))?;
        let record = describe(&key, config, 1).sign(operator);
        let text = record_text(operator.public(), &record);
        Ok(files::create(&home.record(), PRIVATE, text.as_bytes())?)
    }

    /// Reads key and record. The configuration must be what the operator signed: nothing is signed
    /// here, because the node's user can change the configuration.
    pub(crate) fn load(home: &Home, config: &Config) -> Result<Self> {
        let identity = Self::read(home)?;
        if !identity.is_about(config) {
            bail!(
                "gateway.toml names endpoints or networks that the operator did not sign: with \
                 operator.key in {}, run `rove gateway sign`, or undo the change",
                home.dir().display()
            );
        }
        Ok(identity)
    }

    fn read(home: &Home) -> Result<Self> {
        let key = StaticKey::load(&home.key(Role::Gateway))?;
        let path = home.record();
        let text = files::read_text(&path)?;
        let (operator, record) = parse_record(&text).with_context(|| {
            format!("{} holds no signed record: restore it from a backup", path.display())
        })?;
        if record.record().key != key.public() {
            bail!(
                "{} is about another gateway's key: restore both from one backup",
                path.display()
            );
        }
        Ok(Self { key, operator, record })
    }

    /// Whether the operator signed the endpoints and networks of this configuration.
    fn is_about(&self, config: &Config) -> bool {
        let signed = self.record.record();
        *signed == describe(&self.key, config, signed.serial)
    }

    /// The record about a gateway with the files in `home` after its move to `to`, which leads to
    /// the configuration `moved`. Signs no other endpoint and no network that is new.
    pub(crate) fn sign_move(home: &Home, moved: &Config, to: &Endpoint) -> Result<SignedRecord> {
        let identity = Self::read(home)?;
        let signed = identity.record.record();
        let is_known = |endpoint: &Endpoint| endpoint == to || signed.endpoints.contains(endpoint);
        if moved.networks != signed.networks || !moved.endpoints.iter().all(is_known) {
            bail!(
                "gateway.toml names other endpoints or networks that the operator did not sign: \
                 run `rove gateway sign` first, or undo the change"
            );
        }
        identity.sign(home, moved)
    }

    /// Signs the configuration and stores the record. Returns whether it was not signed before.
    pub(crate) fn sign_config(home: &Home, config: &Config) -> Result<bool> {
        let identity = Self::read(home)?;
        if identity.is_about(config) {
            return Ok(false);
        }
        let record = identity.sign(home, config)?;
        identity.replace(home, record)?;
        Ok(true)
    }

    /// Stores a record about `config` that the operator signed elsewhere, as text.
    pub(crate) fn take(home: &Home, config: &Config, signed: &str) -> Result<Self> {
        let identity = Self::read(home)?;
        let serial = identity.record.record().serial.saturating_add(1);
        let next = describe(&identity.key, config, serial);
        let record = encoding::from_text(signed)
            .and_then(|bytes| SignedRecord::verify(&bytes, identity.operator))
            .filter(|record| *record.record() == next)
            .context(
                "what the operator signed is not what the gateway would say: its files changed \
                 meanwhile, so repeat the command",
            )?;
        identity.replace(home, record)
    }

    /// Stores this record again, after a change that failed.
    pub(crate) fn put_back(&self, home: &Home) -> Result<()> {
        self.store(home, &self.record)
    }

    fn replace(self, home: &Home, record: SignedRecord) -> Result<Self> {
        self.store(home, &record)?;
        Ok(Self { record, ..self })
    }

    fn store(&self, home: &Home, record: &SignedRecord) -> Result<()> {
        let text = record_text(self.operator, record);
        Ok(files::replace(&home.record(), PRIVATE, text.as_bytes())?)
    }

    /// A record about `config`, signed with the operator's key.
    fn sign(&self, home: &Home, config: &Config) -> Result<SignedRecord> {
        let signer = self.signer(home)?;
        let serial = self.record.record().serial.saturating_add(1);
        Ok(describe(&self.key, config, serial).sign(&signer))
    }

    /// A dictionary, signed with the operator's key.
    pub(crate) fn sign_dictionary(
        home: &Home,
        (number, name): (u8, &DictionaryName),
        content: &[u8],
    ) -> Result<SignedDictionary> {
        let signer = Self::read(home)?.signer(home)?;
        Ok(SignedDictionary::sign(&signer, number, name, content)?)
    }

    /// The key of this service's operator.
    fn signer(&self, home: &Home) -> Result<OperatorKey> {
        let path = home.operator_key();
        let signer = match home.opened_operator_key() {
            Some(opened) => OperatorKey::load_from(opened, &path),
            None => OperatorKey::load(&path),
        };
        let signer = match signer {
            Ok(signer) => signer,
            Err(KeyError::File(files::FileError::Missing(_))) => bail!(
                "operator.key is not in {}: put it there for this command",
                home.dir().display()
            ),
            Err(error) => return Err(error.into()),
        };
        if signer.public() != self.operator {
            bail!("{} is another operator's key: put the right one there", path.display());
        }
        Ok(signer)
    }

    /// An invite that lets a client in by `token`.
    pub(crate) fn invite(&self, token: Token) -> Invite {
        Invite { operator: self.operator, gateways: vec![self.record.clone()], token }
    }
}

fn describe(key: &StaticKey, config: &Config, serial: u64) -> GatewayRecord {
    GatewayRecord {
        serial,
        key: key.public(),
        endpoints: config.endpoints.clone(),
        networks: config.networks,
    }
}

fn record_text(operator: OperatorPublic, record: &SignedRecord) -> String {
    let bytes = [&operator.0[..], record.as_bytes()].concat();
    format!("{RECORD_LABEL} {}\n", encoding::to_text(&bytes))
}

/// The operator and the record that it signed, if the text is a record file.
pub(crate) fn parse_record(text: &str) -> Option<(OperatorPublic, SignedRecord)> {
    let encoded = text.strip_prefix(RECORD_LABEL)?.strip_prefix(' ')?.strip_suffix('\n')?;
    let bytes = encoding::from_text(encoded)?;
    let (operator, signed) = bytes.split_at_checked(OPERATOR_BYTES)?;
    let operator = OperatorPublic(operator.try_into().ok()?);
    Some((operator, SignedRecord::verify(signed, operator)?))
}
