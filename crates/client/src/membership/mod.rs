//! What a client remembers of the service that it belongs to, so that the next `rove up` needs no
//! invite: the operator, the signed gateways, its own key, where the gateway was last reached.
//!
//! A new invite is first a *pending* membership with a key of its own and replaces the present one
//! only when the gateway has accepted it: an invite that turns out to be used or expired costs
//! nothing. Store and key file cannot change at once, so the store names the key that belongs to
//! the membership, and a crash between the two is made good at the next start. The handshake
//! counter is reserved ahead in the store, so that no crash repeats one.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rove_host::confine;
use rove_host::encoding;
use rove_host::files::{self, FileError};
use rove_host::home::{Home, Role};
use rove_host::invite::{Invite, SignedRecord, Token, TokenHash};
use rove_host::keys::{KeyError, OperatorPublic, StaticKey};
use rove_host::store::{EmbeddedStore, Store, StoreError, Table, Write};
use rove_proto::id::PeerKey;
use serde::{Deserialize, Serialize};

/// Handshake counters reserved at once; a handshake attempt uses one.
const COUNTERS_RESERVED: u64 = 1_024;
/// When so few are left, more are reserved.
const COUNTERS_LOW: u64 = 256;
/// Addresses remembered of a gateway.
const ADDRESSES_MAX: usize = 8;
/// How often another address of it is stored.
const STORED_EVERY: Duration = Duration::from_secs(60);

const PRESENT: &[u8] = b"service";
const PENDING: &[u8] = b"pending-service";

/// A service, as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Service {
    operator: OperatorPublic,
    /// Signed records, base32.
    gateways: Vec<String>,
    /// The public half of the key that the gateway accepted, base32. Not there while it is pending,
    /// nor in what 0.1.0 wrote.
    #[serde(default)]
    key: Option<String>,
    /// The hash of the token by which the client enrolled, or will.
    invite: TokenHash,
    /// The token itself, until the gateway has accepted it.
    #[serde(default)]
    token: Option<Token>,
    /// Where the gateway answered last, newest first.
    #[serde(default)]
    answered: Vec<SocketAddr>,
    /// Where it says itself that it is reached, best first.
    #[serde(default)]
    announced: Vec<SocketAddr>,
}

/// The membership with which a client runs, and the store that remembers it.
pub(crate) struct Membership {
    /// The client's identity towards this service.
    pub key: StaticKey,
    /// The gateway to connect to.
    pub gateway: SignedRecord,
    home: Home,
    store: EmbeddedStore,
    service: Service,
    /// As it lies in the store.
    stored: Service,
    /// When the addresses in it were last stored.
    stored_at: Option<Instant>,
    acceptance: Acceptance,
    counter: CounterRange,
}

/// Whether the gateway has accepted this membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Acceptance {
    Pending,
    Present,
}

/// Handshake counters that the store has reserved and the core may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CounterRange {
    next: u64,
    reserved: u64,
}

impl Membership {
    /// Who signs for this service.
    pub(crate) const fn operator(&self) -> OperatorPublic {
        self.service.operator
    }

    /// The membership that `invite` gives, else the one that is remembered.
    pub(crate) fn open(home: &Home, invite: Option<&Invite>) -> Result<Self> {
        confine::make_home(home)?;
        let path = home.client_store();
        let store = match EmbeddedStore::open(&path, Role::Client.name()) {
            Err(StoreError::Missing(_)) => EmbeddedStore::create(&path, Role::Client.name())?,
            opened => opened.map_err(|error| useless(error, &path))?,
        };
        let present = read_service(&store, PRESENT)?;
        if let Some(present) = &present {
            place_key(home, present)?;
        }
        let pending = read_service(&store, PENDING)?;
        let (service, acceptance) = match (invite, present, pending) {
            (None, Some(present), _) => (present, Acceptance::Present),
            (None, None, Some(pending)) => (pending, Acceptance::Pending),
            (None, None, None) => bail!(
                "no gateway is known here: run `rove up INVITE` with the invite that the gateway's \
                 operator gave you"
            ),
            (Some(invite), Some(present), _) if present.invite == invite.token.hash() => {
                (present, Acceptance::Present)
            }
            (Some(invite), _, Some(pending)) if pending.invite == invite.token.hash() => {
                (pending, Acceptance::Pending)
            }
            (Some(invite), _, _) => (Service::of(invite), Acceptance::Pending),
        };
        Self::with(home, store, service, acceptance)
    }

    fn with(
        home: &Home,
        mut store: EmbeddedStore,
        service: Service,
        acceptance: Acceptance,
    ) -> Result<Self> {
        let key = match acceptance {
            Acceptance::Present => present_key(home, &service)?,
            Acceptance::Pending => pending_key(home, &mut store, &service)?,
        };
        let gateway = service.first_gateway().with_context(|| {
            format!(
                "{} holds no signed gateway: ask for a new invite",
                home.client_store().display()
            )
        })?;
        let next = read_counter(&store, gateway.record().key)?;
        let counter = CounterRange { next, reserved: next };
        let home = home.clone();
        let (stored, stored_at) = (service.clone(), None);
        let mut membership =
            Self { key, gateway, home, store, service, stored, stored_at, acceptance, counter };
        membership.reserve_counters()?;
        Ok(membership)
    }

    /// The token to show, while the gateway has not accepted this client.
    pub(crate) fn token(&self) -> Option<Token> {
        self.service.token
    }

    /// The first handshake counter that was never used.
    pub(crate) const fn counter(&self) -> u64 {
        self.counter.next
    }

    /// Where the gateway answered before, newest first.
    pub(crate) fn answered(&self) -> &[SocketAddr] {
        &self.service.answered
    }

    /// Where the gateway said last that it is reached, best first.
    pub(crate) fn announced(&self) -> &[SocketAddr] {
        &self.service.announced
    }

    /// The gateway says that it is reached at `addresses`, in place of what it said before.
    pub(crate) fn note_announced(&mut self, addresses: &[SocketAddr]) -> Result<()> {
        let announced = addresses.iter().copied().take(ADDRESSES_MAX).collect();
        self.remember(Service { announced, ..self.service.clone() })
    }

    /// The gateway is reached at `remote`: that is where it will be asked first.
    pub(crate) fn note_answered(&mut self, remote: SocketAddr) -> Result<()> {
        let mut service = self.service.clone();
        service.answered(remote);
        self.remember(service)
    }

    /// Stores what changed and was not stored yet, if the gateway has accepted this client.
    pub(crate) fn settle(&mut self) -> Result<()> {
        if self.acceptance == Acceptance::Present && self.service != self.stored {
            let text = serde_json::to_vec(&self.service)?;
            self.store.commit(&[Write::put(Table::Facts, PRESENT, text)])?;
            self.stored = self.service.clone();
            self.stored_at = Some(Instant::now());
        }
        Ok(())
    }

    /// Keeps what changed. Where a gateway is changes every few seconds if it hops, and a phone's
    /// memory wears out, so it is stored now and then, and at the end.
    fn remember(&mut self, service: Service) -> Result<()> {
        self.service = service;
        match self.stored_at {
            Some(at) if at.elapsed() < STORED_EVERY => Ok(()),
            Some(_) | None => self.settle(),
        }
    }

    /// The core used `counter`: reserves more before the reserve runs out.
    pub(crate) fn note_counter(&mut self, counter: u64) -> Result<()> {
        self.counter.next = self.counter.next.max(counter.saturating_add(1));
        if self.counter.next + COUNTERS_LOW > self.counter.reserved {
            self.reserve_counters()?;
        }
        Ok(())
    }

    fn reserve_counters(&mut self) -> Result<()> {
        let reserved = self.counter.next.saturating_add(COUNTERS_RESERVED);
        let key = self.gateway.record().key.0;
        self.store.commit(&[Write::put(Table::Counters, key, reserved.to_be_bytes())])?;
        self.counter.reserved = reserved;
        Ok(())
    }

    /// The gateway answered from `remote`, so this client belongs to it: the membership becomes the
    /// present one, and the token is forgotten.
    pub(crate) fn note_accepted(&mut self, remote: Option<SocketAddr>) -> Result<()> {
        let key = Some(encoding::to_text(&self.key.public().0));
        let mut service = Service { token: None, key, ..self.service.clone() };
        if let Some(remote) = remote {
            service.answered(remote);
        }
        if service == self.stored && self.acceptance == Acceptance::Present {
            return Ok(());
        }
        let text = serde_json::to_vec(&service)?;
        let mut writes = vec![Write::put(Table::Facts, PRESENT, text)];
        if self.acceptance == Acceptance::Pending {
            writes.push(Write::remove(Table::Facts, PENDING));
        }
        self.store.commit(&writes)?;
        if self.acceptance == Acceptance::Pending {
            // After the store: the pending key is there until it is in its place.
            place_key(&self.home, &service)?;
        }
        self.stored.clone_from(&service);
        (self.service, self.acceptance) = (service, Acceptance::Present);
        Ok(())
    }
}

impl Service {
    fn of(invite: &Invite) -> Self {
        Self {
            operator: invite.operator,
            key: None,
            gateways: invite.gateways.iter().map(|g| encoding::to_text(g.as_bytes())).collect(),
            invite: invite.token.hash(),
            token: Some(invite.token),
            answered: Vec::new(),
            announced: Vec::new(),
        }
    }

    fn answered(&mut self, remote: SocketAddr) {
        self.answered.retain(|known| *known != remote);
        self.answered.insert(0, remote);
        self.answered.truncate(ADDRESSES_MAX);
    }

    /// The first gateway whose signature still verifies.
    fn first_gateway(&self) -> Option<SignedRecord> {
        let verify =
            |text: &String| SignedRecord::verify(&encoding::from_text(text)?, self.operator);
        self.gateways.iter().find_map(verify)
    }
}

/// The key of a pending membership: the one made when this invite was first tried, else a new one.
fn pending_key(home: &Home, store: &mut EmbeddedStore, service: &Service) -> Result<StaticKey> {
    let path = pending_key_path(home);
    let known = read_service(store, PENDING)?.is_some_and(|known| known.invite == service.invite);
    if known && path.exists() {
        return Ok(StaticKey::load(&path)?);
    }
    let key = StaticKey::generate()?;
    files::replace(&path, files::PRIVATE, key.file_text().as_bytes())?;
    store.commit(&[Write::put(Table::Facts, PENDING, serde_json::to_vec(service)?)])?;
    Ok(key)
}

/// A client has no backups: what its store held comes with another invite.
fn useless(error: StoreError, path: &Path) -> anyhow::Error {
    let what = match &error {
        StoreError::Foreign(_) => "is no store of Rove",
        StoreError::Damaged { .. } => "is damaged",
        StoreError::Missing(_)
        | StoreError::InUse(_)
        | StoreError::Newer(_)
        | StoreError::System { .. } => return error.into(),
    };
    anyhow::anyhow!(
        "{} {what}: remove it, and run `rove up INVITE` with a new invite from the gateway's \
         operator",
        path.display()
    )
}

/// Puts the key of an accepted membership in its place, if it still lies where it was pending.
fn place_key(home: &Home, service: &Service) -> Result<()> {
    let pending = pending_key_path(home);
    // Another key, or one that does not read, is that of a later invite.
    let Ok(key) = StaticKey::load(&pending) else { return Ok(()) };
    if service.key.as_ref() == Some(&encoding::to_text(&key.public().0)) {
        files::replace(&home.key(Role::Client), files::PRIVATE, key.file_text().as_bytes())?;
        // Nobody reads it any more; the next pending key takes its place.
        let _ = std::fs::remove_file(pending);
    }
    Ok(())
}

/// The key of the present membership.
fn present_key(home: &Home, service: &Service) -> Result<StaticKey> {
    let path = home.key(Role::Client);
    let key = match StaticKey::load(&path) {
        Err(KeyError::File(FileError::Missing(_))) => bail!(
            "{} does not exist: restore it, or ask the gateway's operator for a new invite",
            path.display()
        ),
        Err(KeyError::Damaged { .. }) => bail!(
            "{} holds no key: restore it, or ask the gateway's operator for a new invite",
            path.display()
        ),
        loaded => loaded?,
    };
    let fits = |accepted: &String| *accepted == encoding::to_text(&key.public().0);
    anyhow::ensure!(
        service.key.as_ref().is_none_or(fits),
        "{} is not the key that the gateway knows: restore it, or ask for a new invite",
        path.display()
    );
    Ok(key)
}

fn pending_key_path(home: &Home) -> PathBuf {
    home.key(Role::Client).with_extension("key.pending")
}

fn read_service(store: &EmbeddedStore, name: &[u8]) -> Result<Option<Service>> {
    let facts = store.read(Table::Facts)?;
    let service = facts.get(name).map(|bytes| serde_json::from_slice(bytes)).transpose();
    service.context("the client's store holds a service that does not read: ask for a new invite")
}

fn read_counter(store: &EmbeddedStore, gateway: PeerKey) -> Result<u64> {
    let counters = store.read(Table::Counters)?;
    let Some(bytes) = counters.get(&gateway.0[..]) else { return Ok(1) };
    let bytes: Result<[u8; 8], _> = bytes.as_slice().try_into();
    bytes.map(u64::from_be_bytes).ok().context("the client's store holds a damaged counter")
}

#[cfg(test)]
mod tests;
