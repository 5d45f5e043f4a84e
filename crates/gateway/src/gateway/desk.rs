//! What the operator asks of a gateway, running or not: the same answers both ways.
//!
//! An [`Answer`] carries the reply and the [`Effect`]s on live sessions, which a running gateway
//! turns into commands for the core and an offline command drops.

use anyhow::{Context, Result, bail};
use ipnet::IpNet;
use rove_api::{
    self as api, Allowed, ClockReset, GatewayStatus, Invited, Membership, Moved, Peers, Problem,
    Revoked,
};
use rove_host::control::Request;
use rove_host::encoding::{self, KeyText};
use rove_host::invite::Token;
use rove_host::time::UnixSeconds;
use rove_host::values::{
    Destination, Endpoint, Lifetime, Misspelt, PeerName, parse_network, spelt,
};
use rove_proto::id::PeerKey;

use super::Gateway;
use crate::ledger::{
    AuditEntry, AuditEvent, Behind, InviteRecord, InviteTerms, LedgerError, Peer, RevokeError,
    Standing,
};
use crate::subnets;

/// How many audit entries status shows.
const AUDIT_SHOWN: usize = 10;

/// What came of a request.
#[derive(Debug)]
pub(crate) struct Answer {
    /// What is printed.
    pub reply: api::Answer,
    /// What it means for live sessions.
    pub effects: Vec<Effect>,
    /// Why what is true from now on could not be stored.
    pub unstored: Option<LedgerError>,
}

impl Answer {
    fn of(reply: impl Into<api::Answer>) -> Self {
        Self { reply: reply.into(), effects: Vec::new(), unstored: None }
    }

    /// The reply, where nothing is true but what is stored.
    pub(crate) fn stored(self) -> Result<api::Answer> {
        self.unstored.map_or(Ok(self.reply), |error| Err(error.into()))
    }
}

/// What a change of membership means for live sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// The peer's session ends now and no new one begins.
    Expel(PeerKey),
    /// The peer's allow-list or subnets changed.
    Permit(PeerKey),
}

impl Gateway {
    /// Answers what the ledger alone can answer.
    pub(crate) fn answer(&mut self, request: Request, now: UnixSeconds) -> Result<Answer> {
        let time = self.ledger.time(now);
        match request {
            Request::Status => Ok(Answer::of(self.status(time)?)),
            Request::Peers => Ok(Answer::of(self.peers(time))),
            Request::Invite { name, uses, expires, subnets } => {
                let lifetime: Lifetime = expires.parse()?;
                let expires = UnixSeconds(time.0.saturating_add(lifetime.seconds()));
                let subnets = all(&subnets, parse_network)?;
                let name = name.parse()?;
                let reply = self.invite(InviteTerms { name, uses, expires, subnets }, now)?;
                Ok(Answer::of(reply))
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
                let allowed = peers.chain(invites).flatten().map(ToString::to_string).collect();
                let enrolled = !change.peers.is_empty();
                self.ledger.make(change, now)?;
                let reply = Allowed { name: name.to_string(), allowed, enrolled };
                Ok(Answer { effects, ..Answer::of(reply) })
            }
            Request::Move { endpoint, record } => {
                let endpoint: Endpoint = endpoint.parse()?;
                let links = rove_os::links::snapshot().unwrap_or_default();
                let relocation = self.relocation(&endpoint, &links)?;
                self.relocate(&relocation, &endpoint, record.as_deref())?;
                Ok(Answer::of(Moved {
                    endpoint: endpoint.to_string(),
                    before: relocation.before.to_string(),
                    told: None,
                    warning: None,
                }))
            }
            Request::Log { entries } => {
                let entries = usize::try_from(entries).unwrap_or(usize::MAX);
                Ok(Answer::of(self.audit(entries)?))
            }
            Request::Snapshot => {
                let snapshot = serde_json::to_value(self.ledger.snapshot()?)?;
                Ok(Answer::of(api::Answer::Snapshot(snapshot)))
            }
            Request::Flows { .. } | Request::PeerPaths { .. } => {
                bail!("the gateway does not run: nothing goes through it")
            }
            Request::Paths
            | Request::SetMode { .. }
            | Request::Rehearse { .. }
            | Request::Rehearsed
            | Request::SetScheduler { .. }
            | Request::SetRecovery { .. }
            | Request::SetData { .. }
            | Request::SetManager { .. }
            | Request::SetSubflows { .. }
            | Request::SetLink { .. }
            | Request::Reload
            | Request::Down => {
                bail!("a gateway has no such command: see `rove gateway --help`")
            }
        }
    }

    fn invite(&mut self, terms: InviteTerms, now: UnixSeconds) -> Result<Invited> {
        let token = Token::generate()?;
        let (name, uses, expires) = (terms.name.to_string(), terms.uses, terms.expires.0);
        let subnets = terms.subnets.clone();
        let time = self.ledger.time(now);
        let change = self.ledger.registry().invite(terms, token.hash(), time)?;
        self.check_host(&subnets)?;
        // Durable before it is shown: an invite in somebody's hand is one that works.
        self.ledger.make(change, now)?;
        let invite = self.identity.invite(token).to_text();
        Ok(Invited { invite, name, uses, expires })
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
                return Ok(Answer::of(revoked(name, true, Vec::new())));
            }
            change => change?,
        };
        let effects: Vec<Effect> =
            change.peers.iter().map(|peer| Effect::Expel(peer.key.into())).collect();
        let withdrawn = change.invites.iter().map(|invite| invite.name.to_string()).collect();
        let reply = revoked(name, !effects.is_empty(), withdrawn).into();
        let unstored = self.ledger.make_in_any_case(change, now).err();
        Ok(Answer { reply, effects, unstored })
    }

    /// Accepts the clock as right, and reports which invites become usable again.
    fn reset_clock(&mut self, now: UnixSeconds) -> Result<Answer> {
        let before = self.ledger.time(now);
        self.ledger.reset_time(now)?;
        let registry = self.ledger.registry();
        let again = registry.open_invites(now).filter(|invite| !invite.is_open(before));
        let open_again = again.map(|invite| invite.name.to_string()).collect();
        Ok(Answer::of(ClockReset { before: before.0, now: now.0, open_again }))
    }

    /// The reason why invites do not expire by the wall clock, if that is so.
    fn clock_problem(&self) -> Option<Problem> {
        let Behind { by, since } = self.ledger.behind()?;
        let lifetime = Lifetime::from_seconds(by.as_secs());
        let cause = "the clock was set back, or was once ahead; invites expire by the latest time";
        let cure = "set the clock; if it is right now, run `rove gateway reset-clock`";
        Some(Problem {
            part: None,
            what: format!("the clock is {lifetime} behind the latest time that this gateway saw"),
            since: since.0,
            cause: cause.to_owned(),
            cure: cure.to_owned(),
        })
    }

    /// The last `count` entries of the audit log.
    fn audit(&self, count: usize) -> Result<Vec<api::AuditEntry>> {
        Ok(self.ledger.audit(count)?.into_iter().map(describe_entry).collect())
    }

    fn status(&self, now: UnixSeconds) -> Result<GatewayStatus> {
        let enrolled = self.ledger.registry().peers().filter(|peer| peer.is_enrolled()).count();
        let invites = self.ledger.registry().open_invites(now).count();
        Ok(GatewayStatus {
            running: false,
            operator: encoding::to_text(&self.identity.operator.0),
            gateway: encoding::to_text(&self.identity.key.public().0),
            endpoints: spelt(&self.config.endpoints),
            networks: self.config.networks.iter().map(|network| network.to_string()).collect(),
            inner: self.lease()?.addresses().collect(),
            enrolled: enrolled as u64,
            open_invites: invites as u64,
            recent: self.audit(AUDIT_SHOWN)?,
            problems: self.clock_problem().into_iter().collect(),
            sessions: None,
            host: None,
        })
    }

    fn peers(&self, now: UnixSeconds) -> Peers {
        let registry = self.ledger.registry();
        let mut peers: Vec<&Peer> = registry.peers().collect();
        peers.sort_by_key(|peer| (peer.enrolled, peer.host));
        let peers = peers.iter().map(|peer| self.peer(peer)).collect();
        let mut invites: Vec<&InviteRecord> = registry.open_invites(now).collect();
        invites.sort_by_key(|invite| (invite.issued, &invite.name));
        let invites = invites.iter().map(|invite| describe_invite(invite)).collect();
        Peers { peers, invites }
    }

    fn peer(&self, peer: &Peer) -> api::Peer {
        let lease = self.ledger.registry().lease(peer);
        let (state, revoked) = match peer.standing {
            Standing::Enrolled => (Membership::Enrolled, None),
            Standing::Revoked { at } => (Membership::Revoked, Some(at.0)),
        };
        api::Peer {
            name: peer.name.to_string(),
            key: encoding::to_text(&peer.key.0),
            state,
            inner: lease.iter().flat_map(|lease| lease.addresses()).collect(),
            subnets: spelt(&peer.subnets),
            allowed: spelt(&peer.allowed),
            enrolled: peer.enrolled.0,
            revoked,
            session: None,
        }
    }
}

/// Each of the texts as the value that it spells.
fn all<T>(
    texts: &[String],
    parse: impl Fn(&str) -> Result<T, Misspelt>,
) -> Result<Vec<T>, Misspelt> {
    texts.iter().map(|text| parse(text)).collect()
}

fn revoked(name: &PeerName, revoked: bool, invites: Vec<String>) -> Revoked {
    Revoked { name: name.to_string(), revoked, withdrawn: !invites.is_empty(), invites }
}

fn describe_invite(invite: &InviteRecord) -> api::Invite {
    api::Invite {
        name: invite.name.to_string(),
        uses: invite.uses,
        used: invite.used,
        expires: invite.expires.0,
        subnets: spelt(&invite.subnets),
        allowed: spelt(&invite.allowed),
    }
}

fn describe_entry(AuditEntry { at, event }: AuditEntry) -> api::AuditEntry {
    let of = |event: &str, name: Option<PeerName>, key: Option<KeyText>| api::AuditEntry {
        at: at.0,
        event: event.to_owned(),
        name: name.map(|name| name.to_string()),
        key: key.map(|key| encoding::to_text(&key.0)),
        ..api::AuditEntry::default()
    };
    match event {
        AuditEvent::Invited { name, uses } => {
            api::AuditEntry { uses: Some(uses), ..of("invited", Some(name), None) }
        }
        AuditEvent::Enrolled { name, key } => of("enrolled", Some(name), Some(key)),
        AuditEvent::Refused { key, why } => {
            api::AuditEntry { why: Some(why), ..of("refused", None, Some(key)) }
        }
        AuditEvent::Revoked { name, key } => of("revoked", Some(name), Some(key)),
        AuditEvent::Withdrawn { name } => of("withdrawn", Some(name), None),
        AuditEvent::Allowed { name, destinations } => {
            let destinations = Some(spelt(&destinations));
            api::AuditEntry { destinations, ..of("allowed", Some(name), None) }
        }
        AuditEvent::Restored => of("restored", None, None),
    }
}
