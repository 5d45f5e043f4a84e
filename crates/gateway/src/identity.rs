//! Who a gateway is: its static key, its operator, and what the operator signed about it.

use anyhow::{Context, Result, bail};
use rove_host::encoding;
use rove_host::files::{self, PRIVATE};
use rove_host::home::{Home, Role};
use rove_host::invite::{GatewayRecord, Invite, SignedRecord, Token};
use rove_host::keys::{KeyError, OperatorKey, OperatorPublic, StaticKey};

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

    /// Reads keys and record; signs a new record when the configuration changed and the operator
    /// key is at hand.
    pub(crate) fn load(home: &Home, config: &Config) -> Result<Self> {
        Self::load_with(home, config, None)
    }

    /// The same; `signed` is a record that the operator signed elsewhere for this configuration.
    pub(crate) fn load_with(home: &Home, config: &Config, signed: Option<&str>) -> Result<Self> {
        let brought = signed;
        let key = StaticKey::load(&home.key(Role::Gateway))?;
        let path = home.record();
        let text = files::read_text(&path)?;
        let (operator, record) = parse_record(&text).with_context(|| {
            format!("{} holds no signed record: restore it from a backup", path.display())
        })?;
        let signed = record.record();
        if signed.key != key.public() {
            bail!(
                "{} is about another gateway's key: restore both from one backup",
                path.display()
            );
        }
        if *signed == describe(&key, config, signed.serial) {
            return Ok(Self { key, operator, record });
        }
        let record = match brought {
            None => sign_again(home, config, &key, operator, signed.serial)?,
            Some(text) => {
                let next = describe(&key, config, signed.serial.saturating_add(1));
                let bytes = encoding::from_text(text);
                let record = bytes.and_then(|bytes| SignedRecord::verify(&bytes, operator));
                record.filter(|record| *record.record() == next).context(
                    "what the operator signed is not what the gateway would say: its files \
                     changed meanwhile, so repeat the command",
                )?
            }
        };
        files::replace(&path, PRIVATE, record_text(operator, &record).as_bytes())?;
        Ok(Self { key, operator, record })
    }

    /// What the operator signs before a gateway with the files in `home` gets that configuration.
    pub(crate) fn sign_for(home: &Home, config: &Config) -> Result<String> {
        let key = StaticKey::load(&home.key(Role::Gateway))?;
        let text = files::read_text(&home.record())?;
        let (operator, record) = parse_record(&text).context("the record is damaged")?;
        let signed = sign_again(home, config, &key, operator, record.record().serial)?;
        Ok(encoding::to_text(signed.as_bytes()))
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

fn sign_again(
    home: &Home,
    config: &Config,
    key: &StaticKey,
    operator: OperatorPublic,
    serial: u64,
) -> Result<SignedRecord> {
    let path = home.operator_key();
    let signer = match home.opened_operator_key() {
        Some(opened) => OperatorKey::load_from(opened, &path),
        None => OperatorKey::load(&path),
    };
    let signer = match signer {
        Ok(signer) => signer,
        Err(KeyError::File(files::FileError::Missing(_))) => bail!(
            "gateway.toml names endpoints or networks that the operator did not sign: put \
             operator.key back into {} for one start, or undo the change",
            home.dir().display()
        ),
        Err(error) => return Err(error.into()),
    };
    if signer.public() != operator {
        bail!("{} is another operator's key: put the right one there", path.display());
    }
    Ok(describe(key, config, serial.saturating_add(1)).sign(&signer))
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
