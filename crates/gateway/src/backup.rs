//! Backups: one private file with everything of a gateway but the operator key.
//!
//! First line `rove-backup-1` and SHA-256 of the rest, then one JSON object. Restoring checks all
//! of it first and then puts the files in place; over a gateway with the same key it never gives
//! back what was taken since. Limit: only that gateway's store knows what was taken. Without it
//! everything is as at the time of the backup, and the operator is told so.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail, ensure};
use aws_lc_rs::digest::{SHA256, digest};
use rove_host::files::{self, PRIVATE};
use rove_host::home::{Home, Role};
use rove_host::keys::StaticKey;
use rove_host::store::{EmbeddedStore, StoreError};
use rove_host::time::{UnixSeconds, wall_clock};
use rove_host::{confine, encoding};
use rove_os::lock::Lock;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::config::Config;
use crate::gateway::store_path;
use crate::identity::parse_record;
use crate::ledger::{Dropped, Ledger, LedgerError, LedgerSnapshot};

const LABEL: &str = "rove-backup-1";

/// What a backup holds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Backup {
    config: String,
    key: Zeroizing<String>,
    record: String,
    ledger: LedgerSnapshot,
    /// When it was written; 0.1 did not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    written: Option<UnixSeconds>,
}

/// What the operator has to know after a restore.
#[derive(Debug, Default)]
pub struct Restored {
    /// What the gateway in this place had, and has no more.
    pub dropped: Dropped,
    /// Why what it had is not known, so that revocations since the backup do not hold.
    pub lost: Option<String>,
    /// When the backup was written, in seconds since 1970, if it says so.
    pub written: Option<u64>,
}

/// The text of a backup with the gateway's configuration, identity and `ledger`.
pub(crate) fn write(home: &Home, ledger: LedgerSnapshot) -> Result<Zeroizing<String>> {
    let backup = Backup {
        config: files::read_text(&home.config(Role::Gateway))?,
        key: StaticKey::load(&home.key(Role::Gateway))?.file_text(),
        record: files::read_text(&home.record())?,
        ledger,
        written: Some(wall_clock()),
    };
    let body = Zeroizing::new(serde_json::to_string(&backup)?);
    let text = Zeroizing::new(format!("{LABEL} {}\n{}\n", checksum(&body), body.as_str()));
    ensure!(
        text.len() as u64 <= files::BYTES_MAX,
        "the backup would have {} MiB, more than could be restored: shorten allow-lists",
        text.len() >> 20
    );
    Ok(text)
}

/// Puts the backup in `from` in the place of whatever gateway is in `home`.
pub fn restore(home: &Home, from: &Path) -> Result<Restored> {
    let secret = files::read_secret(from)?;
    let name = from.display();
    let backup = parse(&secret)
        .with_context(|| format!("{name} is damaged or no backup: take another one"))?;
    let key = StaticKey::from_file_text(&backup.key, "the backup")?;
    let (_, record) = parse_record(&backup.record)
        .with_context(|| format!("{name} holds no signed record: take another backup"))?;
    ensure!(record.record().key == key.public(), "{name} mixes two gateways: take another backup");
    let config = Config::from_text(&backup.config, &from.join("gateway.toml"))?;

    confine::make_home(home)?;
    confine::as_owner(home, || put_in_place(home, backup, &key, &config))?
}

fn put_in_place(home: &Home, backup: Backup, key: &StaticKey, config: &Config) -> Result<Restored> {
    let _lock = lock(home)?;
    check_same_gateway(home, key)?;
    // It stays open, so that no command writes to it any more, until the new one is in its place.
    let (present, lost) = match present_ledger(home, config)? {
        Present::Lost(why) => (None, Some(why)),
        Present::Found(ledger) => (Some(ledger), None),
    };
    let before = present.as_ref().map(|ledger| ledger.snapshot()).transpose()?;
    let written = backup.written.map(|at| at.0);
    let (ledger, dropped) = backup.ledger.over(before.unwrap_or_default(), wall_clock());
    replace_store(&store_path(home, config), &ledger)?;
    files::replace(&home.config(Role::Gateway), PRIVATE, backup.config.as_bytes())?;
    files::replace(&home.record(), PRIVATE, backup.record.as_bytes())?;
    files::replace(&home.key(Role::Gateway), PRIVATE, backup.key.as_bytes())?;
    Ok(Restored { dropped, lost, written })
}

/// Keeps a gateway from running in `home` meanwhile.
fn lock(home: &Home) -> Result<Lock> {
    let state = home.state(Role::Gateway);
    files::make_directory(&state)?;
    match Lock::take(&state) {
        Err(rove_os::error::Error::SecondInstance { .. }) => {
            bail!("the gateway runs: stop it before you restore a backup")
        }
        taken => Ok(taken?),
    }
}

/// A restore over somebody else would mix two gateways. What does not read names nobody.
fn check_same_gateway(home: &Home, key: &StaticKey) -> Result<()> {
    let by_key = StaticKey::load(&home.key(Role::Gateway)).ok().map(|key| key.public());
    let by_record = || {
        let (_, signed) = parse_record(&files::read_text(&home.record()).ok()?)?;
        Some(signed.record().key)
    };
    let present = by_key.or_else(by_record);
    ensure!(
        present.is_none_or(|present| present == key.public()),
        "{} holds another gateway: choose another directory with --dir",
        home.dir().display()
    );
    Ok(())
}

/// What the gateway knows that lies in this place.
enum Present {
    /// Nobody can tell: there is no store, or it cannot be read. That is what backups are for.
    Lost(String),
    /// Who belongs to it.
    Found(Box<Ledger>),
}

/// Opens the present store, however damaged the files beside it are: it alone knows who was
/// revoked. Where the present configuration does not read, the backup's says where the store is.
fn present_ledger(home: &Home, restored: &Config) -> Result<Present> {
    let configured = home.config(Role::Gateway);
    let present = Config::load(&configured);
    let path = store_path(home, present.as_ref().unwrap_or(restored));
    let opened = EmbeddedStore::open(&path, Role::Gateway.name()).map_err(LedgerError::from);
    let ledger = opened.and_then(|store| Ledger::open(Box::new(store), restored.networks));
    match ledger {
        Ok(ledger) => Ok(Present::Found(Box::new(ledger))),
        Err(LedgerError::Store(StoreError::Missing(_))) if !configured.exists() => {
            Ok(Present::Lost(format!("{} held no gateway", home.dir().display())))
        }
        Err(LedgerError::Store(StoreError::Missing(_))) => {
            Ok(Present::Lost(format!("{} did not exist", path.display())))
        }
        Err(LedgerError::Store(StoreError::Foreign(_))) => {
            Ok(Present::Lost(format!("{} was no store of Rove", path.display())))
        }
        Err(LedgerError::Store(StoreError::Damaged { .. }) | LedgerError::Record(_)) => {
            Ok(Present::Lost(format!("{} was damaged", path.display())))
        }
        Err(LedgerError::Store(
            error @ (StoreError::InUse(_) | StoreError::Newer(_) | StoreError::System { .. }),
        )) => Err(anyhow!(error)),
    }
}

/// Builds the new store beside the old one, then puts it in its place.
fn replace_store(path: &Path, ledger: &LedgerSnapshot) -> Result<()> {
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
