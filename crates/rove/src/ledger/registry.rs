//! The rules of membership, pure: state, request and time in, a change or a refusal out.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use rove_proto::id::PeerKey;

use super::records::{AuditEntry, AuditEvent, InviteRecord, Peer, Standing, UnixSeconds};
use super::snapshot::Snapshot;
use crate::invite::TokenHash;
use crate::values::{DESTINATIONS_MAX, Destination, HostIndex, Lease, Networks, PeerName};

/// How many peers one gateway remembers, revoked ones included.
pub const PEERS_MAX: usize = 65_536;
/// How many invites it remembers; spent and expired ones make room first.
pub const INVITES_MAX: usize = 16_384;
/// How many peers one invite may enrol.
pub const USES_MAX: u32 = 10_000;

/// Everything that the rules look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registry {
    networks: Networks,
    peers: BTreeMap<PeerKey, Peer>,
    invites: BTreeMap<TokenHash, InviteRecord>,
}

/// What is to become true, all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Peers as they will be.
    pub peers: Vec<Peer>,
    /// Invites as they will be.
    pub invites: Vec<InviteRecord>,
    /// Invites to forget: closed long ago, and in the way of new ones.
    pub forgotten: Vec<TokenHash>,
    /// What to write down about it.
    pub audit: Vec<AuditEvent>,
}

/// What an invite grants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InviteTerms {
    /// The name of the first peer; further ones get a number.
    pub name: PeerName,
    /// How many peers it may enrol: 1 to [`USES_MAX`].
    pub uses: u32,
    /// When it expires.
    pub expires: UnixSeconds,
    /// The subnets that its peers may advertise.
    pub subnets: Vec<IpNet>,
}

/// What came of a request to enrol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enrolment {
    /// A new member: make the change durable, then admit it.
    New(Change),
    /// It enrolled before, and repeats itself since it did not hear so: admit it.
    Known,
}

/// Why a peer may not enrol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// It has no token and is not known.
    #[error("not enrolled")]
    NotEnrolled,
    /// Its invite has no use left.
    #[error("invite used")]
    Used,
    /// Its invite has expired.
    #[error("invite expired")]
    Expired,
    /// No such invite was issued, or it was withdrawn.
    #[error("invite unknown")]
    Unknown,
    /// It was revoked.
    #[error("revoked")]
    Revoked,
    /// The inner networks, or the tables, have no room.
    #[error("no address free")]
    Full,
}

/// Why no invite can be issued.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NewInviteError {
    /// The name is in use.
    #[error("{0} is a peer already: choose another name, or `rove gateway revoke {0}` first")]
    NameTaken(PeerName),
    /// The name has an open invite.
    #[error("{0} has an open invite: choose another name, or `rove gateway revoke {0}` first")]
    NameInvited(PeerName),
    /// Nonsense number of uses.
    #[error("an invite has 1 to {USES_MAX} uses: write for example --uses 5")]
    Uses,
    /// A subnet lies behind one peer, so its invite has one use.
    #[error("an invite with subnets has one use: leave out --uses")]
    SharedSubnet,
    /// The table is full of invites that can still be used.
    #[error("{INVITES_MAX} invites are open: revoke some, or let them expire")]
    Full,
    /// A subnet belongs to somebody else.
    #[error("subnet {0} overlaps {1}: subnets behind peers must not overlap")]
    Subnet(IpNet, String),
}

/// Why nobody can be revoked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevokeError {
    /// No peer and no open invite has the name.
    #[error("no peer or open invite is called {0}: `rove gateway peers` lists them")]
    Unknown(PeerName),
    /// It is revoked already.
    #[error("{0} is revoked already")]
    Already(PeerName),
}

/// Why an allow-list cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AllowError {
    /// No enrolled peer has the name.
    #[error("no enrolled peer is called {0}: `rove gateway peers` lists them")]
    Unknown(PeerName),
    /// The list would be too long.
    #[error("{0} would have more than {DESTINATIONS_MAX} destinations: allow wider networks")]
    TooMany(PeerName),
}

impl Registry {
    /// The state that these records describe.
    pub fn new(networks: Networks, peers: Vec<Peer>, invites: Vec<InviteRecord>) -> Self {
        let peers = peers.into_iter().map(|peer| (peer.key.into(), peer)).collect();
        let invites = invites.into_iter().map(|invite| (invite.token, invite)).collect();
        Self { networks, peers, invites }
    }

    /// Every peer, revoked ones included, by key.
    pub fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.values()
    }

    /// The peer with this key.
    pub fn peer(&self, key: PeerKey) -> Option<&Peer> {
        self.peers.get(&key)
    }

    /// Invites that can still be used at `now`.
    pub fn open_invites(&self, now: UnixSeconds) -> impl Iterator<Item = &InviteRecord> {
        self.invites.values().filter(move |invite| is_open(invite, now))
    }

    /// The peer's inner addresses; none when the networks became too small for it.
    pub fn lease(&self, peer: &Peer) -> Option<Lease> {
        self.networks.lease(peer.host)
    }

    /// Issues an invite whose token has the hash `token`.
    pub fn invite(
        &self,
        terms: InviteTerms,
        token: TokenHash,
        now: UnixSeconds,
    ) -> Result<Change, NewInviteError> {
        let InviteTerms { name, uses, expires, subnets } = terms;
        if uses == 0 || uses > USES_MAX {
            return Err(NewInviteError::Uses);
        }
        if uses > 1 && !subnets.is_empty() {
            return Err(NewInviteError::SharedSubnet);
        }
        if self.peers.values().any(|peer| peer.is_enrolled() && peer.name == name) {
            return Err(NewInviteError::NameTaken(name));
        }
        if self.open_invites(now).any(|invite| invite.name == name) {
            return Err(NewInviteError::NameInvited(name));
        }
        if self.open_invites(now).count() >= INVITES_MAX {
            return Err(NewInviteError::Full);
        }
        self.check_subnets(&subnets, now)?;
        let audit = vec![AuditEvent::Invited { name: name.clone(), uses }];
        let invite = InviteRecord { token, name, uses, used: 0, issued: now, expires, subnets };
        let forgotten = self.oldest_closed_invites(now);
        Ok(Change { invites: vec![invite], forgotten, audit, ..Change::default() })
    }

    /// Closed invites are kept so that their holders hear what became of them, until the table is
    /// full.
    fn oldest_closed_invites(&self, now: UnixSeconds) -> Vec<TokenHash> {
        let surplus = (self.invites.len() + 1).saturating_sub(INVITES_MAX);
        let closed = self.invites.values().filter(|invite| !is_open(invite, now));
        let mut closed: Vec<&InviteRecord> = closed.collect();
        closed.sort_by_key(|invite| (invite.issued, invite.token));
        closed.iter().take(surplus).map(|invite| invite.token).collect()
    }

    /// A packet's destination must lie behind one peer only.
    fn check_subnets(&self, subnets: &[IpNet], now: UnixSeconds) -> Result<(), NewInviteError> {
        let overlap = |a: &IpNet, b: &IpNet| a.contains(b) || b.contains(a);
        let enrolled = self.peers.values().filter(|peer| peer.is_enrolled());
        let taken = enrolled.map(|peer| (&peer.name, &peer.subnets));
        let taken = taken.chain(self.open_invites(now).map(|open| (&open.name, &open.subnets)));
        let taken: Vec<(&PeerName, &IpNet)> =
            taken.flat_map(|(name, nets)| nets.iter().map(move |net| (name, net))).collect();
        for (position, subnet) in subnets.iter().enumerate() {
            let refuse = |whose: String| Err(NewInviteError::Subnet(*subnet, whose));
            if let Some(net) = self.networks.iter().find(|net| overlap(subnet, net)) {
                return refuse(format!("the inner network {net}"));
            }
            if let Some((name, net)) = taken.iter().find(|(_, net)| overlap(subnet, net)) {
                return refuse(format!("{net} behind {name}"));
            }
            if let Some(net) = subnets[..position].iter().find(|net| overlap(subnet, net)) {
                return refuse(net.to_string());
            }
        }
        Ok(())
    }

    /// Lets the holder of `key` in on the strength of a token, if it sent one.
    pub fn enrol(
        &self,
        key: PeerKey,
        token: Option<TokenHash>,
        now: UnixSeconds,
    ) -> Result<Enrolment, Refusal> {
        let before = self.peers.get(&key);
        if before.is_some_and(Peer::is_enrolled) {
            return Ok(Enrolment::Known);
        }
        // A revoked key comes back by a fresh invite only: the operator's word, twice.
        let refused = |refusal| if before.is_some() { Refusal::Revoked } else { refusal };
        let token = token.ok_or_else(|| refused(Refusal::NotEnrolled))?;
        let invite = self.invites.get(&token).ok_or_else(|| refused(Refusal::Unknown))?;
        if invite.used >= invite.uses {
            return Err(refused(Refusal::Used));
        }
        if invite.expires <= now {
            return Err(refused(Refusal::Expired));
        }
        if before.is_none() && self.peers.len() >= PEERS_MAX {
            return Err(Refusal::Full);
        }
        let host = self.free_host().ok_or(Refusal::Full)?;
        let used = invite.used + 1;
        let peer = Peer {
            key: key.into(),
            name: self.free_name(&invite.name, used),
            host,
            subnets: invite.subnets.clone(),
            allowed: Vec::new(),
            enrolled: now,
            invite: token,
            standing: Standing::Enrolled,
        };
        let audit = vec![AuditEvent::Enrolled { name: peer.name.clone(), key: peer.key }];
        let invite = InviteRecord { used, ..invite.clone() };
        Ok(Enrolment::New(Change {
            peers: vec![peer],
            invites: vec![invite],
            audit,
            ..Change::default()
        }))
    }

    /// The position after the highest ever given, so that an address is not soon another's; when
    /// those are spent, the lowest that no enrolled peer holds.
    fn free_host(&self) -> Option<HostIndex> {
        let last = self.networks.last_host();
        let highest = self.peers.values().map(|peer| peer.host).max();
        let next =
            highest.map_or(HostIndex::FIRST_CLIENT, |host| HostIndex(host.0.saturating_add(1)));
        if next <= last && next >= HostIndex::FIRST_CLIENT {
            return Some(next);
        }
        let enrolled = self.peers.values().filter(|peer| peer.is_enrolled());
        let held: BTreeSet<HostIndex> = enrolled.map(|peer| peer.host).collect();
        (HostIndex::FIRST_CLIENT.0..=last.0).map(HostIndex).find(|host| !held.contains(host))
    }

    /// The invite's name with the number of its use, or the next number that nobody bears.
    fn free_name(&self, name: &PeerName, used: u32) -> PeerName {
        let enrolled = self.peers.values().filter(|peer| peer.is_enrolled());
        let borne: BTreeSet<&PeerName> = enrolled.map(|peer| &peer.name).collect();
        let numbers = (used..).take(borne.len() + 1);
        let mut names = numbers.map(|number| name.numbered(number));
        names.find(|name| !borne.contains(name)).unwrap_or_else(|| name.clone())
    }

    /// Ends the membership of the peer called `name`, and withdraws an open invite of that name.
    pub fn revoke(&self, name: &PeerName, now: UnixSeconds) -> Result<Change, RevokeError> {
        let mut change = Change::default();
        let named = |peer: &&Peer| peer.name == *name;
        if let Some(peer) = self.peers.values().filter(named).find(|peer| peer.is_enrolled()) {
            let standing = Standing::Revoked { at: now };
            change.audit.push(AuditEvent::Revoked { name: name.clone(), key: peer.key });
            change.peers.push(Peer { standing, ..peer.clone() });
        }
        if let Some(invite) = self.open_invites(now).find(|invite| invite.name == *name) {
            change.audit.push(AuditEvent::Withdrawn { name: name.clone() });
            change.invites.push(InviteRecord { expires: now, ..invite.clone() });
        }
        if !change.audit.is_empty() {
            return Ok(change);
        }
        match self.peers.values().any(|peer| named(&peer)) {
            true => Err(RevokeError::Already(name.clone())),
            false => Err(RevokeError::Unknown(name.clone())),
        }
    }

    /// Adds `destinations` to what the peer called `name` may reach; to nothing when `reset`.
    pub fn allow(
        &self,
        name: &PeerName,
        destinations: &[Destination],
        reset: bool,
    ) -> Result<Change, AllowError> {
        let mut enrolled = self.peers.values().filter(|peer| peer.is_enrolled());
        let peer = enrolled.find(|peer| peer.name == *name);
        let peer = peer.ok_or_else(|| AllowError::Unknown(name.clone()))?;
        let kept = if reset { &[][..] } else { &peer.allowed };
        let allowed: BTreeSet<Destination> = kept.iter().chain(destinations).copied().collect();
        if allowed.len() > DESTINATIONS_MAX {
            return Err(AllowError::TooMany(name.clone()));
        }
        let allowed: Vec<Destination> = allowed.into_iter().collect();
        let event = AuditEvent::Allowed { name: name.clone(), destinations: allowed.clone() };
        let peer = Peer { allowed, ..peer.clone() };
        Ok(Change { peers: vec![peer], audit: vec![event], ..Change::default() })
    }

    /// Everything, with the log that the store keeps.
    pub(super) fn snapshot(&self, audit: Vec<AuditEntry>) -> Snapshot {
        Snapshot {
            peers: self.peers.values().cloned().collect(),
            invites: self.invites.values().cloned().collect(),
            audit,
        }
    }

    /// Makes a change true in memory.
    pub(super) fn apply(&mut self, change: Change) {
        let Change { peers, invites, forgotten, audit: _ } = change;
        for token in forgotten {
            self.invites.remove(&token);
        }
        self.peers.extend(peers.into_iter().map(|peer| (peer.key.into(), peer)));
        self.invites.extend(invites.into_iter().map(|invite| (invite.token, invite)));
    }
}

fn is_open(invite: &InviteRecord, now: UnixSeconds) -> bool {
    invite.used < invite.uses && invite.expires > now
}
