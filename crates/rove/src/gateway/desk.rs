//! What the operator asks of a gateway, running or not: the same answers both ways.
//!
//! An [`Answer`] carries the reply and the [`Effect`]s on live sessions, which a running gateway
//! turns into commands for the core and an offline command drops.

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use rove_proto::id::PeerKey;
use serde_json::{Value, json};

use super::{Gateway, subnets};
use crate::control::Request;
use crate::encoding;
use crate::invite::Token;
use crate::ledger::{
    Behind, InviteRecord, InviteTerms, LedgerError, Peer, RevokeError, Standing, UnixSeconds,
};
use crate::values::{Destination, Endpoint, Lifetime, Misspelt, PeerName, parse_network};

/// How many audit entries status shows.
const AUDIT_SHOWN: usize = 10;

/// What came of a request.
#[derive(Debug)]
pub struct Answer {
    /// What is printed.
    pub reply: Value,
    /// What it means for live sessions.
    pub effects: Vec<Effect>,
    /// Why what is true from now on could not be stored.
    pub unstored: Option<LedgerError>,
}

impl Answer {
    /// The reply, where nothing is true but what is stored.
    pub fn stored(self) -> Result<Value> {
        self.unstored.map_or(Ok(self.reply), |error| Err(error.into()))
    }
}

/// What a change of membership means for live sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The peer's session ends now and no new one begins.
    Expel(PeerKey),
    /// The peer's allow-list or subnets changed.
    Permit(PeerKey),
}

impl From<Value> for Answer {
    fn from(reply: Value) -> Self {
        Self { reply, effects: Vec::new(), unstored: None }
    }
}

impl Gateway {
    /// Answers what the ledger alone can answer.
    pub fn answer(&mut self, request: Request, now: UnixSeconds) -> Result<Answer> {
        let time = self.ledger.time(now);
        match request {
            Request::Status => Ok(self.status(time)?.into()),
            Request::Peers => Ok(self.peers(time).into()),
            Request::Invite { name, uses, expires, subnets } => {
                let lifetime: Lifetime = expires.parse()?;
                let expires = UnixSeconds(time.0.saturating_add(lifetime.seconds()));
                let subnets = all(&subnets, parse_network)?;
                let name = name.parse()?;
                let reply = self.invite(InviteTerms { name, uses, expires, subnets }, now)?;
                Ok(reply.into())
            }
            Request::Revoke { name } => self.revoke(&name.parse()?, now),
            Request::ResetClock => self.reset_clock(now),
            Request::Allow { name, destinations, reset } => {
                let name: PeerName = name.parse()?;
                let destinations: Vec<Destination> = all(&destinations, |text| text.parse())?;
                let change = self.ledger.registry().allow(&name, &destinations, reset, time)?;
                let effects = change.peers.iter().map(|peer| Effect::Permit(peer.key.into()));
                let effects = effects.collect();
                let peers = change.peers.iter().map(|peer| &peer.allowed);
                let invites = change.invites.iter().map(|invite| &invite.allowed);
                let allowed: Vec<_> = peers.chain(invites).flatten().copied().collect();
                let enrolled = !change.peers.is_empty();
                self.ledger.make(change, now)?;
                let reply = json!({ "name": name, "allowed": allowed, "enrolled": enrolled });
                Ok(Answer { effects, ..reply.into() })
            }
            Request::Move { endpoint } => {
                let endpoint: Endpoint = endpoint.parse()?;
                let links = rove_os::links::snapshot().unwrap_or_default();
                let relocation = self.relocation(&endpoint, &links)?;
                self.relocate(&relocation)?;
                Ok(json!({ "endpoint": endpoint, "before": relocation.before }).into())
            }
            Request::Log { entries } => {
                let entries = usize::try_from(entries).unwrap_or(usize::MAX);
                Ok(serde_json::to_value(self.ledger.audit(entries)?)?.into())
            }
            Request::Snapshot => Ok(serde_json::to_value(self.ledger.snapshot()?)?.into()),
            Request::Flows { .. } | Request::PeerPaths { .. } => {
                bail!("the gateway does not run: nothing goes through it")
            }
            Request::Paths
            | Request::SetMode { .. }
            | Request::Rehearse { .. }
            | Request::Rehearsed
            | Request::SetScheduler { .. }
            | Request::SetRecovery { .. }
            | Request::SetManager { .. }
            | Request::SetSubflows { .. }
            | Request::SetLink { .. }
            | Request::Reload
            | Request::Down => {
                bail!("a gateway has no such command: see `rove gateway --help`")
            }
        }
    }

    fn invite(&mut self, terms: InviteTerms, now: UnixSeconds) -> Result<Value> {
        let token = Token::generate()?;
        let (name, uses, expires) = (terms.name.clone(), terms.uses, terms.expires);
        let subnets = terms.subnets.clone();
        let time = self.ledger.time(now);
        let change = self.ledger.registry().invite(terms, token.hash(), time)?;
        self.check_host(&subnets)?;
        // Durable before it is shown: an invite in somebody's hand is one that works.
        self.ledger.make(change, now)?;
        let invite = self.identity.invite(token).to_text();
        Ok(json!({ "invite": invite, "name": name, "uses": uses, "expires": expires }))
    }

    /// Subnets that this host is itself a part of cannot lie behind a peer. Where its links cannot
    /// be listed that shows when the gateway starts, which then leaves them out.
    fn check_host(&self, subnets: &[IpNet]) -> Result<()> {
        if subnets.is_empty() {
            return Ok(());
        }
        let links = rove_os::links::snapshot().unwrap_or_default();
        for subnet in subnets {
            let clash = subnets::clash(subnet, &links, self.config.interface.as_str());
            if let Some((local, link)) = clash {
                bail!(
                    "subnet {subnet} overlaps {local} on {link}, a network of the gateway's own: \
                     renumber one of the two"
                );
            }
        }
        Ok(())
    }

    /// Takes effect even if it cannot be stored: a stolen device must not wait for a disk.
    fn revoke(&mut self, name: &PeerName, now: UnixSeconds) -> Result<Answer> {
        let time = self.ledger.time(now);
        let change = match self.ledger.registry().revoke(name, time) {
            Err(RevokeError::Already(_)) if self.ledger.is_in_debt() => {
                self.ledger.settle().context("it is still not stored")?;
                return Ok(revoked(name, true, &[]).into());
            }
            change => change?,
        };
        let effects: Vec<Effect> =
            change.peers.iter().map(|peer| Effect::Expel(peer.key.into())).collect();
        let withdrawn: Vec<PeerName> =
            change.invites.iter().map(|invite| invite.name.clone()).collect();
        let reply = revoked(name, !effects.is_empty(), &withdrawn);
        let unstored = self.ledger.make_in_any_case(change, now).err();
        Ok(Answer { reply, effects, unstored })
    }

    /// Accepts the clock as right, and reports which invites become usable again.
    fn reset_clock(&mut self, now: UnixSeconds) -> Result<Answer> {
        let before = self.ledger.time(now);
        self.ledger.reset_time(now)?;
        let registry = self.ledger.registry();
        let again = registry.open_invites(now).filter(|invite| !invite.is_open(before));
        let again: Vec<_> = again.map(|invite| &invite.name).collect();
        Ok(json!({ "before": before, "now": now, "open_again": again }).into())
    }

    /// The reason why invites do not expire by the wall clock, if that is so.
    fn clock_problem(&self) -> Option<Value> {
        let Behind { by, since } = self.ledger.behind()?;
        let lifetime = Lifetime::from_seconds(by.as_secs());
        Some(json!({
            "what": format!("the clock is {lifetime} behind the latest time that this gateway saw"),
            "since": since,
            "cause": "the clock was set back, or was once ahead; invites expire by the latest time",
            "cure": "set the clock; if it is right now, run `rove gateway reset-clock`",
        }))
    }

    fn status(&self, now: UnixSeconds) -> Result<Value> {
        let enrolled = self.ledger.registry().peers().filter(|peer| peer.is_enrolled()).count();
        let invites = self.ledger.registry().open_invites(now).count();
        Ok(json!({
            "running": false,
            "operator": encoding::to_text(&self.identity.operator.0),
            "gateway": encoding::to_text(&self.identity.key.public().0),
            "endpoints": self.config.endpoints,
            "networks": self.config.networks.iter().collect::<Vec<_>>(),
            "inner": self.lease()?.addresses().collect::<Vec<_>>(),
            "enrolled": enrolled,
            "open_invites": invites,
            "recent": self.ledger.audit(AUDIT_SHOWN)?,
            "problems": self.clock_problem().into_iter().collect::<Vec<_>>(),
        }))
    }

    fn peers(&self, now: UnixSeconds) -> Value {
        let registry = self.ledger.registry();
        let mut peers: Vec<&Peer> = registry.peers().collect();
        peers.sort_by_key(|peer| (peer.enrolled, peer.host));
        let peers: Vec<Value> = peers.iter().map(|peer| self.peer(peer)).collect();
        let mut invites: Vec<&InviteRecord> = registry.open_invites(now).collect();
        invites.sort_by_key(|invite| (invite.issued, &invite.name));
        let invites: Vec<Value> = invites.iter().map(|invite| describe_invite(invite)).collect();
        json!({ "peers": peers, "invites": invites })
    }

    fn peer(&self, peer: &Peer) -> Value {
        let lease = self.ledger.registry().lease(peer);
        let inner: Vec<_> = lease.iter().flat_map(|lease| lease.addresses()).collect();
        let (state, revoked) = match peer.standing {
            Standing::Enrolled => ("enrolled", None),
            Standing::Revoked { at } => ("revoked", Some(at)),
        };
        json!({
            "name": peer.name,
            "key": peer.key,
            "state": state,
            "inner": inner,
            "subnets": peer.subnets,
            "allowed": peer.allowed,
            "enrolled": peer.enrolled,
            "revoked": revoked,
        })
    }
}

/// Each of the texts as the value that it spells.
fn all<T>(
    texts: &[String],
    parse: impl Fn(&str) -> Result<T, Misspelt>,
) -> Result<Vec<T>, Misspelt> {
    texts.iter().map(|text| parse(text)).collect()
}

fn revoked(name: &PeerName, revoked: bool, withdrawn: &[PeerName]) -> Value {
    let any = !withdrawn.is_empty();
    json!({ "name": name, "revoked": revoked, "withdrawn": any, "invites": withdrawn })
}

fn describe_invite(invite: &InviteRecord) -> Value {
    json!({
        "name": invite.name,
        "uses": invite.uses,
        "used": invite.used,
        "expires": invite.expires,
        "subnets": invite.subnets,
        "allowed": invite.allowed,
    })
}
