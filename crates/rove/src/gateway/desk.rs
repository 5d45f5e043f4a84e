//! What the operator asks of a gateway, running or not: the same answers both ways.
//!
//! An [`Answer`] carries the reply and the [`Effect`]s on live sessions, which a running gateway
//! turns into commands for the core and an offline command drops.

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::Gateway;
use crate::control::Request;
use crate::encoding;
use crate::invite::Token;
use crate::ledger::{InviteRecord, InviteTerms, Peer, Standing, UnixSeconds};
use rove_proto::id::PeerKey;

/// How many audit entries status shows.
const AUDIT_SHOWN: usize = 10;

/// What came of a request.
#[derive(Debug)]
pub struct Answer {
    /// What is printed.
    pub reply: Value,
    /// What it means for live sessions.
    pub effects: Vec<Effect>,
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
        Self { reply, effects: Vec::new() }
    }
}

impl Gateway {
    /// Answers what the ledger alone can answer.
    pub fn answer(&mut self, request: Request, now: UnixSeconds) -> Result<Answer> {
        match request {
            Request::Status => Ok(self.status(now)?.into()),
            Request::Peers => Ok(self.peers(now).into()),
            Request::Invite { name, uses, expires, subnets } => {
                let expires = UnixSeconds(now.0.saturating_add(expires.seconds()));
                let reply = self.invite(InviteTerms { name, uses, expires, subnets }, now)?;
                Ok(reply.into())
            }
            Request::Revoke { name } => {
                let change = self.ledger.registry().revoke(&name, now)?;
                let effects = change.peers.iter().map(|peer| Effect::Expel(peer.key.into()));
                let effects: Vec<Effect> = effects.collect();
                let withdrawn = !change.invites.is_empty();
                self.ledger.make(change, now)?;
                let revoked = !effects.is_empty();
                let reply = json!({ "name": name, "revoked": revoked, "withdrawn": withdrawn });
                Ok(Answer { reply, effects })
            }
            Request::Allow { name, destinations, reset } => {
                let change = self.ledger.registry().allow(&name, &destinations, reset)?;
                let effects = change.peers.iter().map(|peer| Effect::Permit(peer.key.into()));
                let effects = effects.collect();
                let allowed: Vec<_> =
                    change.peers.iter().flat_map(|peer| peer.allowed.clone()).collect();
                self.ledger.make(change, now)?;
                Ok(Answer { reply: json!({ "name": name, "allowed": allowed }), effects })
            }
            Request::Snapshot => Ok(serde_json::to_value(self.ledger.snapshot()?)?.into()),
            Request::Paths | Request::Reload | Request::Down => {
                bail!("a gateway has no such command: see `rove gateway --help`")
            }
        }
    }

    fn invite(&mut self, terms: InviteTerms, now: UnixSeconds) -> Result<Value> {
        let token = Token::generate()?;
        let (name, uses, expires) = (terms.name.clone(), terms.uses, terms.expires);
        let change = self.ledger.registry().invite(terms, token.hash(), now)?;
        // Durable before it is shown: an invite in somebody's hand is one that works.
        self.ledger.make(change, now)?;
        let invite = self.identity.invite(token).to_text();
        Ok(json!({ "invite": invite, "name": name, "uses": uses, "expires": expires }))
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

fn describe_invite(invite: &InviteRecord) -> Value {
    json!({
        "name": invite.name,
        "uses": invite.uses,
        "used": invite.used,
        "expires": invite.expires,
        "subnets": invite.subnets,
    })
}
