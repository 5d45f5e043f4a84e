//! The rules of membership, pure: state, request and time in, a change or a refusal out.

use std::collections::{BTreeMap, BTreeSet};

use ipnet::IpNet;
use rove_host::invite::TokenHash;
use rove_host::time::UnixSeconds;
use rove_host::values::{
    DESTINATIONS_MAX, Destination, HostIndex, Lease, Networks, PeerName, SUBNETS_MAX,
};
use rove_proto::id::PeerKey;

use super::records::{AuditEvent, InviteRecord, Peer, Standing};

/// How many peers one gateway remembers, revoked ones included.
pub(super) const PEERS_MAX: usize = 65_536;
/// How many invites it remembers; spent and expired ones make room first.
pub(super) const INVITES_MAX: usize = 16_384;
/// How many peers one invite may enrol.
pub(super) const USES_MAX: u32 = 10_000;
/// How many subnets may lie behind all peers together: each is a route on the gateway's host, and
/// a plan has so many.
pub(crate) const SUBNETS_IN_ALL_MAX: usize = rove_os::plan::LIST_MAX;

/// Everything that the rules look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Registry {
    networks: Networks,
    peers: BTreeMap<PeerKey, Peer>,
    invites: BTreeMap<TokenHash, InviteRecord>,
}

/// What is to become true, all of it or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Change {
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
pub(crate) struct InviteTerms {
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
pub(crate) enum Enrolment {
    /// A new member: make the change durable, then admit it.
    New(Change),
    /// It enrolled before, and repeats itself since it did not hear so: admit it.
    Known,
}

/// Why a peer may not enrol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
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
pub(crate) enum NewInviteError {
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
    /// Whoever came by it would find no address free.
    #[error(
        "of {room} client addresses in {networks} {taken} are given or promised: revoke some, let \
         invites expire, or invite fewer"
    )]
    NoAddress {
        /// The inner networks.
        networks: Networks,
        /// How many clients have an address in them.
        room: u32,
        /// How many of these are given or promised.
        taken: u64,
    },
    /// One peer would have too many subnets.
    #[error("an invite may have {SUBNETS_MAX} subnets: name wider ones")]
    ManySubnets,
    /// All peers together would have too many.
    #[error("{SUBNETS_IN_ALL_MAX} subnets lie behind peers: revoke some, or name wider ones")]
    SubnetsFull,
    /// A subnet belongs to somebody else.
    #[error("subnet {0} overlaps {1}: subnets behind peers must not overlap")]
    Subnet(IpNet, String),
}

/// Why nobody can be revoked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RevokeError {
    /// No peer and no open invite has the name.
    #[error("no peer or open invite is called {0}: `rove gateway peers` lists them")]
    Unknown(PeerName),
    /// It is revoked already.
    #[error("{0} is revoked already")]
    Already(PeerName),
}

/// Why an allow-list cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AllowError {
    /// No enrolled peer and no open invite has the name.
    #[error("no enrolled peer or open invite is called {0}: `rove gateway peers` lists them")]
    Unknown(PeerName),
    /// The list would be too long.
    #[error("{0} would have more than {DESTINATIONS_MAX} destinations: allow wider networks")]
    TooMany(PeerName),
}

impl Registry {
    /// The state that these records describe.
    pub(crate) fn new(networks: Networks, peers: Vec<Peer>, invites: Vec<InviteRecord>) -> Self {
        let peers = peers.into_iter().map(|peer| (peer.key.into(), peer)).collect();
        let invites = invites.into_iter().map(|invite| (invite.token, invite)).collect();
        Self { networks, peers, invites }
    }

    /// Every peer, revoked ones included, by key.
    pub(crate) fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.values()
    }

    /// The peer with this key.
    pub(crate) fn peer(&self, key: PeerKey) -> Option<&Peer> {
        self.peers.get(&key)
    }

    /// Every invite that is remembered, by the hash of its token.
    pub(crate) fn invites(&self) -> impl Iterator<Item = &InviteRecord> {
        self.invites.values()
    }

    /// Invites that can still be used at `now`.
    pub(crate) fn open_invites(&self, now: UnixSeconds) -> impl Iterator<Item = &InviteRecord> {
        self.invites.values().filter(move |invite| invite.is_open(now))
    }

    /// The peer's inner addresses; none when the networks became too small for it.
    pub(crate) fn lease(&self, peer: &Peer) -> Option<Lease> {
        self.networks.lease(peer.host)
    }

    /// Issues an invite whose token has the hash `token`.
    pub(crate) fn invite(
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
        self.check_room(uses, now)?;
        self.check_subnets(&subnets, now)?;
        let audit = vec![AuditEvent::Invited { name: name.clone(), uses }];
        let (used, issued, allowed) = (0, now, Vec::new());
        let invite = InviteRecord { token, name, uses, used, issued, expires, subnets, allowed };
        let forgotten = self.oldest_closed_invites(now);
        Ok(Change { invites: vec![invite], forgotten, audit, ..Change::default() })
    }

    /// Closed invites are kept so that their holders hear what became of them, until the table is
    /// full.
    fn oldest_closed_invites(&self, now: UnixSeconds) -> Vec<TokenHash> {
        let surplus = (self.invites.len() + 1).saturating_sub(INVITES_MAX);
        let closed = self.invites.values().filter(|invite| !invite.is_open(now));
        let mut closed: Vec<&InviteRecord> = closed.collect();
        closed.sort_by_key(|invite| (invite.issued, invite.token));
        closed.iter().take(surplus).map(|invite| invite.token).collect()
    }

    /// An invite is a promise: everybody who holds an open one must find an address.
    fn check_room(&self, uses: u32, now: UnixSeconds) -> Result<(), NewInviteError> {
        let last = self.networks.last_host();
        let room = last.0.saturating_sub(HostIndex::GATEWAY.0);
        let enrolled = self.peers.values().filter(|peer| peer.is_enrolled() && peer.host <= last);
        let promised = self.open_invites(now).map(|open| u64::from(open.uses - open.used));
        let taken = enrolled.count() as u64 + promised.sum::<u64>();
        if taken + u64::from(uses) > u64::from(room) {
            return Err(NewInviteError::NoAddress { networks: self.networks, room, taken });
        }
        Ok(())
    }

    /// A packet's destination must lie behind one peer only.
    fn check_subnets(&self, subnets: &[IpNet], now: UnixSeconds) -> Result<(), NewInviteError> {
        let overlap = |a: &IpNet, b: &IpNet| a.contains(b) || b.contains(a);
        let enrolled = self.peers.values().filter(|peer| peer.is_enrolled());
        let taken = enrolled.map(|peer| (&peer.name, &peer.subnets));
        let taken = taken.chain(self.open_invites(now).map(|open| (&open.name, &open.subnets)));
        let taken: Vec<(&PeerName, &IpNet)> =
            taken.flat_map(|(name, nets)| nets.iter().map(move |net| (name, net))).collect();
        if subnets.len() > SUBNETS_MAX {
            return Err(NewInviteError::ManySubnets);
        }
        if taken.len() + subnets.len() > SUBNETS_IN_ALL_MAX {
            return Err(NewInviteError::SubnetsFull);
        }
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
    pub(crate) fn enrol(
        &self,
        key: PeerKey,
        token: Option<TokenHash>,
        now: UnixSeconds,
    ) -> Result<Enrolment, Refusal> {
        match self.peers.get(&key).map(|peer| peer.standing) {
            Some(Standing::Enrolled) => return Ok(Enrolment::Known),
            // For ever: a new invite makes a new key, and the core refuses this one by itself.
            Some(Standing::Revoked { .. }) => return Err(Refusal::Revoked),
            None => {}
        }
        let token = token.ok_or(Refusal::NotEnrolled)?;
        let invite = self.invites.get(&token).ok_or(Refusal::Unknown)?;
        if invite.used >= invite.uses {
            return Err(Refusal::Used);
        }
        if invite.expires <= now {
            return Err(Refusal::Expired);
        }
        if self.peers.len() >= PEERS_MAX {
            return Err(Refusal::Full);
        }
        let host = self.free_host().ok_or(Refusal::Full)?;
        let used = invite.used + 1;
        let peer = Peer {
            key: key.into(),
            name: self.free_name(&invite.name, used),
            host,
            subnets: invite.subnets.clone(),
            allowed: invite.allowed.clone(),
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

    /// Ends the membership of the peer called `name`, and withdraws the open invites of that name
    /// and of that peer: who was let in once by a line must not come back by it.
    pub(crate) fn revoke(&self, name: &PeerName, now: UnixSeconds) -> Result<Change, RevokeError> {
        let mut change = Change::default();
        let named = |peer: &&Peer| peer.name == *name;
        let peer = self.peers.values().filter(named).find(|peer| peer.is_enrolled());
        if let Some(peer) = peer {
            let standing = Standing::Revoked { at: now };
            change.audit.push(AuditEvent::Revoked { name: name.clone(), key: peer.key });
            change.peers.push(Peer { standing, ..peer.clone() });
        }
        let came_by = peer.map(|peer| peer.invite);
        let concerns = |open: &&InviteRecord| open.name == *name || came_by == Some(open.token);
        for invite in self.open_invites(now).filter(concerns) {
            change.audit.push(AuditEvent::Withdrawn { name: invite.name.clone() });
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
    /// Before anybody enrolled under that name, the open invite keeps the list for its peers.
    pub(crate) fn allow(
        &self,
        name: &PeerName,
        destinations: &[Destination],
        reset: bool,
        now: UnixSeconds,
    ) -> Result<Change, AllowError> {
        let peer = self.peers.values().find(|peer| peer.is_enrolled() && peer.name == *name);
        let invite = self.open_invites(now).find(|invite| invite.name == *name);
        let present = peer.map(|peer| &peer.allowed).or_else(|| Some(&invite?.allowed));
        let present = present.ok_or_else(|| AllowError::Unknown(name.clone()))?;
        let kept = if reset { &[][..] } else { present };
        let allowed: BTreeSet<Destination> = kept.iter().chain(destinations).copied().collect();
        if allowed.len() > DESTINATIONS_MAX {
            return Err(AllowError::TooMany(name.clone()));
        }
        let allowed: Vec<Destination> = allowed.into_iter().collect();
        let event = AuditEvent::Allowed { name: name.clone(), destinations: allowed.clone() };
        let mut change = Change { audit: vec![event], ..Change::default() };
        match (peer, invite) {
            (Some(peer), _) => change.peers.push(Peer { allowed, ..peer.clone() }),
            (None, invite) => {
                let kept = invite.map(|invite| InviteRecord { allowed, ..invite.clone() });
                change.invites.extend(kept);
            }
        }
        Ok(change)
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
