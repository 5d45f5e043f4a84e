//! Backups: one private file with everything of a gateway but the operator key.
//!
//! First line `rove-backup-1` and SHA-256 of the rest, then one JSON object. Restoring puts the
//! files in place; over a gateway with the same key it never gives back what was taken since.

use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::identity::parse_record;
use super::{Gateway, is_in_use, store_path};
use crate::config::GatewayConfig;
use crate::encoding;
use crate::files::{self, PRIVATE};
use crate::home::{Home, Role};
use crate::keys::StaticKey;
use crate::ledger::{Snapshot, wall_clock};
use crate::store::EmbeddedStore;

const LABEL: &str = "rove-backup-1";

/// What a backup holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Backup {
    config: String,
    key: Zeroizing<String>,
    record: String,
    ledger: Snapshot,
}

/// Writes a new file with the gateway's configuration, identity and `ledger`.
pub fn backup(home: &Home, ledger: Snapshot, to: &Path) -> Result<()> {
    let backup = Backup {
        config: files::read_text(&home.config(Role::Gateway))?,
        key: StaticKey::load(&home.key(Role::Gateway))?.file_text(),
        record: files::read_text(&home.record())?,
        ledger,
    };
    let body = Zeroizing::new(serde_json::to_string(&backup)?);
    let text = Zeroizing::new(format!("{LABEL} {}\n{}\n", checksum(&body), body.as_str()));
    Ok(files::create(to, PRIVATE, text.as_bytes())?)
}

/// Puts the backup in `from` in the place of whatever gateway is in `home`; the caller has made
/// sure that none runs.
pub fn restore(home: &Home, from: &Path) -> Result<()> {
    let secret = files::read_secret(from)?;
    let name = from.display();
    let backup = parse(&secret)
        .with_context(|| format!("{name} is damaged or no backup: take another one"))?;
    let key = StaticKey::from_file_text(&backup.key, "the backup")?;
    let (_, record) = parse_record(&backup.record)
        .with_context(|| format!("{name} holds no signed record: take another backup"))?;
    ensure!(record.record().key == key.public(), "{name} mixes two gateways: take another backup");

    let present = present_ledger(home, &key)?;
    files::make_directory(home.dir())?;
    // The configuration is checked where it will lie, so that its errors name a file one can edit.
    let config_path = home.config(Role::Gateway);
    files::replace(&config_path, PRIVATE, backup.config.as_bytes())?;
    let config = GatewayConfig::load(&config_path)?;
    let ledger = match present {
        Some(present) => backup.ledger.over(present, wall_clock()),
        None => backup.ledger.over(Snapshot::default(), wall_clock()),
    };
    replace_store(&store_path(home, &config), &ledger)?;
    files::replace(&home.record(), PRIVATE, backup.record.as_bytes())?;
    files::replace(&home.key(Role::Gateway), PRIVATE, backup.key.as_bytes())?;
    Ok(())
}

/// What the gateway that lies here knows; none when there is none, or its store cannot be read.
fn present_ledger(home: &Home, key: &StaticKey) -> Result<Option<Snapshot>> {
    let path = home.key(Role::Gateway);
    if path.exists() {
        let present = StaticKey::load(&path).map(|present| present.public());
        if present.is_ok_and(|present| present != key.public()) {
            bail!(
                "{} holds another gateway: choose another directory with --dir",
                home.dir().display()
            );
        }
    }
    match Gateway::open(home) {
        Ok(gateway) => Ok(Some(gateway.ledger.snapshot()?)),
        Err(error) if is_in_use(&error) => Err(error),
        // Damaged or missing: what backups are for.
        Err(_) => Ok(None),
    }
}

/// Builds the new store beside the old one, then puts it in its place.
fn replace_store(path: &Path, ledger: &Snapshot) -> Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(".new");
    let beside = Path::new(&beside);
    if beside.exists() {
        std::fs::remove_file(beside).with_context(|| beside.display().to_string())?;
    }
    let mut store = EmbeddedStore::create(beside, Role::Gateway.name())?;
    ledger.write_to(&mut store)?;
    drop(store);
    std::fs::rename(beside, path).with_context(|| path.display().to_string())
}

fn parse(bytes: &[u8]) -> Option<Backup> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (head, body) = text.split_once('\n')?;
    let sum = head.strip_prefix(LABEL)?.strip_prefix(' ')?;
    let body = body.strip_suffix('\n')?;
    (sum == checksum(body)).then(|| serde_json::from_str(body).ok())?
}

fn checksum(body: &str) -> String {
    encoding::to_text(digest(&SHA256, body.as_bytes()).as_ref())
}
