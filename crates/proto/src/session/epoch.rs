//! An epoch: the keys of one handshake, the indices both ends issued for them, their lanes. Which
//! of them a session has is in `epochs`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::index::{EpochId, IndexTable, Lead, Slot};
use crate::codec::contexts::Known;
use crate::codec::header::Template;
use crate::crypto::{EpochKeys, RestartKey, Rng};
use crate::error::DropReason;
use crate::id::{LinkId, PathSerial, SessionIndex, Transport};
use crate::multipath::Numbers;
use crate::multipath::reorder::Reorder;
use crate::outbox::{Route, RunSeal};
use crate::pack::fragment::Reassembly;
use crate::path::{Path, PathId, Trust};
use crate::policy::{Profiles, Sealing};
use crate::session::control::ControlReceiver;
use crate::session::space::{RxSpace, TxSpace};
use crate::time::{Duration, Instant};
use crate::wire::control::{Control, INDICES_MAX};
use crate::wire::data::expand_number;
use crate::wire::features::Features;
use crate::wire::frame::{CompactHead, Framing};
use crate::wire::inner::Pieces;
use crate::wire::keepalive::{Keepalive, KeepaliveProof};
use crate::wire::restart::{RestartNotice, RestartToken};

/// Indices issued ahead of those in use.
pub const INDICES_AHEAD: u32 = 8;
/// How far beyond the next serial an index of the peer's is taken, and so how many are kept.
const SERIALS_AHEAD_MAX: u32 = 2 * INDICES_MAX as u32;
/// So many of the peer's indices are kept for paths that answer. Silent paths, which may be many
/// and all dead, take none of them.
pub(crate) const INDICES_FOR_HEARD: usize = 4;
/// A silent path may take all indices but this one if it leads to the host that answered the
/// handshake, since the peer is there. If a stream carried the handshake, which may end at a proxy,
/// that is where the gateway is sought first. At a gateway only the port that asked counts: a
/// client's NAT may have mapped any other.
const INDICES_BESIDE_ORIGIN: usize = 1;
/// So many are kept for packet number spaces that a client takes up. Addresses that are claimed for
/// one of its spaces may all be forged, and packets to them bring no further index. The end that
/// asks for keys needs none kept.
const INDICES_FOR_NEW_LANES: usize = 2;
/// Lanes in use that are kept for receiving; the oldest is given up for a new one.
pub const LANES_MAX: usize = 16;
/// Lanes of given up paths that are kept; the serial of an older one is never used again.
const PARKED_MAX: usize = 24;
/// Age at which an epoch is replaced, if traffic flows.
pub(crate) const REKEY_TIME: Duration = Duration::from_secs(120);
/// Age at which one is replaced that has no index left for another path. Challenges to addresses
/// where the peer is not may have used them up, and the next link would have to wait for keys.
pub(crate) const REKEY_TIME_WITHOUT_INDICES: Duration = Duration::from_secs(30);
/// Datagrams over all paths and suites at which an epoch is replaced.
pub(crate) const REKEY_DATAGRAMS: u64 = 1 << 28;
/// Datagrams at which sealing stops.
pub(crate) const SEAL_DATAGRAMS_MAX: u64 = 1 << 30;

/// Datagrams that failed to verify, after which an epoch opens nothing more: the integrity limit
/// of ChaCha20-Poly1305 (RFC 9001, 6.6), the lowest of the suites.
pub(crate) const FORGERIES_MAX: u64 = 1 << 36;

/// One epoch.
#[derive(Debug)]
pub(crate) struct Epoch {
    pub(crate) id: EpochId,
    keys: EpochKeys,
    /// Those of what this end sends.
    pub(crate) profiles: Profiles,
    /// Whether this node asked for it; only then does it ask for the next one.
    initiator: bool,
    /// What both ends understand.
    features: Features,
    pub(crate) since: Instant,
    /// Where the handshake's answer went to or came from.
    pub(crate) origin: Route,
    /// Where a client seeks the gateway first, in each family.
    home: [Option<IpAddr>; 2],
    /// What this end calls it where it says how long a sequence was, and what the peer does: the
    /// low bits of the first index that the other one issued.
    names: (u16, u16),
    theirs: BTreeMap<PathSerial, SessionIndex>,
    /// What proves that the peer lost the session, by the serial of the index that it would name.
    restart_tokens: BTreeMap<PathSerial, RestartToken>,
    next_tx: PathSerial,
    pub(crate) tx: Vec<TxSpace>,
    /// Lanes of paths that were given up, for when the same place is a path again.
    parked: Vec<Parked>,
    /// The serial below which this client reported the gateway's indices as used.
    told_taken: PathSerial,
    /// The serial below which the peer reported that it has used indices.
    peer_took: PathSerial,
    pub(crate) rx: BTreeMap<PathSerial, RxSpace>,
    /// The serial of the next index to issue.
    next_rx: PathSerial,
    pub(crate) control: ControlReceiver,
    /// Counted anew in every epoch: a peer that was restarted begins at 0 as well.
    pub(crate) numbers: Numbers,
    pub(crate) reorder: Reorder,
    pub(crate) reassembly: Reassembly,
    /// The contexts that the peer has defined.
    contexts: Known,
    next_fragment: u32,
    sealed: u64,
    opened: u64,
    forged: u64,
}

/// The lane (packet number space) of a path that was given up.
#[derive(Debug)]
struct Parked {
    /// The route of the path.
    route: Route,
    /// The network that the path used, if no packet ever arrived on it. Another path on that
    /// network may reuse the lane. No other network may, because that would link the two.
    unheard: Option<(LinkId, IpAddr)>,
    lane: TxSpace,
}

/// A datagram that was opened.
pub(crate) struct Opened<'d> {
    pub(crate) plaintext: &'d [u8],
    /// Whether it is the newest of its lane.
    pub(crate) newest: bool,
    /// Whether the inner packets in it were delivered by another path already.
    pub(crate) delivered: bool,
}

/// What both ends agreed on, to build an epoch from.
pub(crate) struct Agreed {
    pub(crate) id: EpochId,
    pub(crate) keys: EpochKeys,
    pub(crate) initiator: bool,
    pub(crate) origin: Route,
    pub(crate) features: Features,
    /// How this end wants to seal.
    pub(crate) sealing: Sealing,
    pub(crate) ours: Vec<SessionIndex>,
    pub(crate) theirs: Vec<SessionIndex>,
}

impl Epoch {
    pub(crate) fn new(now: Instant, agreed: Agreed) -> Self {
        let serials = || (0..).map(PathSerial);
        let Agreed { id, keys, initiator, origin, features, sealing, ours, theirs } = agreed;
        let next_rx = PathSerial(u32::try_from(ours.len()).unwrap_or(u32::MAX));
        #[expect(clippy::cast_possible_truncation, reason = "the low bits")]
        let name = |indices: &[SessionIndex]| indices.first().map_or(0, |index| index.0 as u16);
        let names = (name(&theirs), name(&ours));
        Self {
            id,
            profiles: Profiles::new(&keys.seal, sealing),
            keys,
            initiator,
            features,
            since: now,
            origin,
            home: [None; 2],
            names,
            theirs: serials().zip(theirs).collect(),
            restart_tokens: BTreeMap::new(),
            next_tx: PathSerial(0),
            tx: Vec::new(),
            parked: Vec::new(),
            told_taken: PathSerial(0),
            peer_took: PathSerial(0),
            rx: serials().zip(ours).map(|(s, index)| (s, RxSpace::new(index, s))).collect(),
            next_rx,
            control: ControlReceiver::default(),
            numbers: Numbers::default(),
            reorder: Reorder::default(),
            reassembly: Reassembly::default(),
            contexts: Known::default(),
            next_fragment: 0,
            sealed: 0,
            opened: 0,
            forged: 0,
        }
    }

    /// The lane that sends on `path`, made from the next unused index if need be; `None` when no
    /// index is left or the keys are used up.
    ///
    /// The first index stood in clear in the handshake, so it is for the path that the handshake
    /// took: on another one, by another network, it would link the two.
    pub(crate) fn lane(&mut self, path: &Path) -> Option<&mut TxSpace> {
        if self.sealed >= SEAL_DATAGRAMS_MAX {
            return None;
        }
        self.sealed += 1;
        if let Some(place) = self.tx.iter().position(|lane| lane.path == path.id) {
            return self.tx.get_mut(place);
        }
        let route = &path.route;
        if let Some(place) = self.parked_for(path) {
            let Parked { mut lane, .. } = self.parked.remove(place);
            lane.path = path.id;
            self.tx.push(lane);
            return self.tx.last_mut();
        }
        let of_handshake = (route.socket, route.remote) == (self.origin.socket, self.origin.remote);
        if !of_handshake {
            self.next_tx = self.next_tx.max(PathSerial(1));
        }
        let (&serial, &index) = self.theirs.range(self.next_tx..).next()?;
        self.theirs.remove(&serial);
        self.next_tx = PathSerial(serial.0 + 1);
        let seal = RunSeal { key: Arc::clone(&self.keys.seal), index, serial };
        self.tx.push(TxSpace::new(path.id, seal));
        self.tx.last_mut()
    }

    /// What both ends understand.
    pub(crate) const fn features(&self) -> Features {
        self.features
    }

    /// Whether it has the lane of this serial, in use or parked.
    pub(crate) fn has_lane(&self, serial: PathSerial) -> bool {
        let parked = self.parked.iter().map(|parked| &parked.lane);
        self.tx.iter().chain(parked).any(|lane| lane.seal.serial == serial)
    }

    /// A name for the next packet that is split.
    pub(crate) const fn next_fragment(&mut self) -> u32 {
        self.next_fragment = self.next_fragment.wrapping_add(1);
        self.next_fragment
    }

    /// Whether an unused index of the peer is left.
    fn has_spare_index(&self) -> bool {
        self.spare_indices() > 0
    }

    /// How many unused indices of the peer are left.
    pub(crate) fn spare_indices(&self) -> usize {
        self.theirs.range(self.next_tx..).count()
    }

    /// The networks on which another path may reuse the lane of one that was given up.
    pub(crate) fn unheard_networks(&self) -> impl Iterator<Item = (LinkId, IpAddr)> + '_ {
        self.parked.iter().filter_map(|parked| parked.unheard)
    }

    /// The serial below which indices are used, if few are left and the peer was not told.
    pub(crate) fn taken_to_tell(&self) -> Option<PathSerial> {
        let is_news = self.told_taken < self.next_tx;
        (is_news && self.spare_indices() <= INDICES_FOR_HEARD).then_some(self.next_tx)
    }

    /// Notes that the peer was told of the indices below `next`.
    pub(crate) const fn note_told_taken(&mut self, next: PathSerial) {
        self.told_taken = next;
    }

    /// Client: the gateway is sought first at these addresses.
    pub(super) const fn set_home(&mut self, home: [Option<IpAddr>; 2]) {
        self.home = home;
    }

    /// By which name the peer knows this epoch, and how many numbers its sequence of `bucket` has,
    /// if it has any.
    pub(super) fn end_of(&self, bucket: u8) -> Option<(u16, u16)> {
        let taken = self.numbers.taken(bucket);
        #[expect(clippy::cast_possible_truncation, reason = "the low bits travel")]
        let end = taken as u16;
        (taken != 0).then_some((self.names.0, end))
    }

    /// Whether the peer calls it so.
    pub(super) const fn is_called(&self, name: u16) -> bool {
        self.names.1 == name
    }

    /// Notes the peer's report that it used the indices below this serial. Only issued indices
    /// count.
    pub(crate) fn note_taken(&mut self, next: PathSerial) {
        self.peer_took = self.peer_took.max(next.min(self.next_rx));
    }

    /// Whether `path` has a lane, or could get one and leave what others will need.
    pub(crate) fn has_lane_for(&self, path: &Path) -> bool {
        self.tx.iter().any(|lane| lane.path == path.id)
            || self.parked_for(path).is_some()
            || self.spare_indices() > self.kept_from(path)
    }

    /// How many indices `path` must leave.
    fn kept_from(&self, path: &Path) -> usize {
        let (to, origin) = (path.route.remote, self.origin);
        if path.is_good() {
            let is_rebound = matches!(path.trust(), Trust::Claimed { instead_of: Some(_), .. });
            return if is_rebound && !self.initiator { INDICES_FOR_NEW_LANES } else { 0 };
        }
        if path.trust() == Trust::Chosen {
            return INDICES_FOR_HEARD; // it may lead there, but by a link that never answered
        }
        let by_stream = origin.socket.transport() == Transport::Stream;
        let is_there = to == origin.remote
            || (self.initiator && to.ip() == origin.remote.ip())
            || (by_stream && self.home.contains(&Some(to.ip())));
        if is_there { INDICES_BESIDE_ORIGIN } else { INDICES_FOR_HEARD }
    }

    /// The parked lane that `path` may reuse: one with the same route, or one on the same network
    /// from which no packet ever arrived.
    fn parked_for(&self, path: &Path) -> Option<usize> {
        let place = (path.route.socket, path.route.remote);
        let same = |parked: &Parked| (parked.route.socket, parked.route.remote) == place;
        let network = path.link.zip(path.route.local);
        let unheard = |parked: &Parked| network.is_some() && parked.unheard == network;
        self.parked.iter().position(same).or_else(|| self.parked.iter().position(unheard))
    }

    /// Opens a datagram in place.
    pub(crate) fn open<'d>(
        &mut self,
        now: Instant,
        serial: PathSerial,
        datagram: &'d mut [u8],
    ) -> Result<Opened<'d>, DropReason> {
        let lane = self.rx.get_mut(&serial).ok_or(DropReason::UnknownIndex)?;
        let unmasked = self.keys.open.unmask(datagram)?;
        let number = expand_number(lane.window.highest(), unmasked.number);
        lane.window.check(number)?;
        if self.forged >= FORGERIES_MAX {
            return Err(DropReason::BadTag);
        }
        let opened = self.keys.open.open(serial, number, &unmasked, datagram);
        let plaintext = opened.inspect_err(|reason| {
            self.forged += u64::from(*reason == DropReason::BadTag);
        })?;
        let newest = lane.window.commit(now, number);
        self.opened += 1;
        Ok(Opened { plaintext, newest, delivered: lane.was_retransmitted(number) })
    }

    /// A packet that was lost as `number` on the lane of `serial` came by another path. Returns
    /// whether it is to be delivered: it has not arrived before.
    pub(crate) fn take_retransmitted(
        &mut self,
        now: Instant,
        serial: PathSerial,
        number: u32,
    ) -> Result<bool, DropReason> {
        let lane = self.rx.get_mut(&serial).ok_or(DropReason::UnknownIndex)?;
        Ok(lane.take_retransmitted(now, number))
    }

    /// The peer has defined a context; one that it may not use is `None`.
    pub(crate) fn define_context(
        &mut self,
        id: u16,
        template: Option<Template>,
    ) -> Result<(), DropReason> {
        if !self.features.has(Features::COMPACT) {
            return Err(DropReason::BadFrame);
        }
        self.contexts.define(id, template)
    }

    /// The packet that travelled without the fields of its context, and how it is numbered. Its
    /// headers are put into `headers`.
    pub(crate) fn restore<'p>(
        &self,
        head: CompactHead,
        body: &'p [u8],
        headers: &'p mut Vec<u8>,
    ) -> Result<(Framing, Pieces<'p>), DropReason> {
        let packet = self.contexts.restore(head.context, body, headers)?;
        Ok((self.reorder.expanded(head.framing), packet))
    }

    /// The path that arrives on the lane of `serial`, if there is one.
    pub(crate) fn arrives_by(&self, serial: PathSerial) -> Option<PathId> {
        self.rx.get(&serial)?.path
    }

    /// Takes indices that the peer issued.
    pub(crate) fn take_indices(&mut self, first: PathSerial, indices: &[SessionIndex]) {
        let furthest = self.next_tx.0.saturating_add(SERIALS_AHEAD_MAX);
        for (offset, &index) in (0..).zip(indices) {
            let serial = PathSerial(first.0.saturating_add(offset));
            if (self.next_tx.0..furthest).contains(&serial.0) && index.0 != 0 {
                self.theirs.entry(serial).or_insert(index);
            }
        }
    }

    /// Takes what will prove a restart of the peer, for its indices from the serial `first` on.
    pub(crate) fn take_restart_tokens(&mut self, first: PathSerial, tokens: &[RestartToken]) {
        let furthest = self.next_tx.0.saturating_add(SERIALS_AHEAD_MAX);
        for (offset, &token) in (0..).zip(tokens) {
            let serial = PathSerial(first.0.saturating_add(offset));
            if serial.0 < furthest {
                self.restart_tokens.insert(serial, token);
            }
        }
        let mut tokens = std::mem::take(&mut self.restart_tokens);
        tokens.retain(|&serial, _| serial >= self.next_tx || self.has_lane(serial));
        self.restart_tokens = tokens;
    }

    /// What would prove that the peer knows nothing of the lane on `path` any more.
    pub(crate) fn restart_proof(&self, path: PathId) -> Option<RestartNotice> {
        let lane = self.tx.iter().find(|lane| lane.path == path)?;
        let token = *self.restart_tokens.get(&lane.seal.serial)?;
        Some(RestartNotice { index: lane.seal.index, token })
    }

    /// The peer's index of a path, by which a keepalive is sent.
    pub(crate) fn keepalive_index(&self, path: PathId) -> Option<SessionIndex> {
        self.tx.iter().find(|lane| lane.path == path).map(|lane| lane.seal.index)
    }

    /// What answers this keepalive.
    pub(crate) fn answer(&self, keepalive: Keepalive) -> KeepaliveProof {
        self.keys.keepalive.answer(keepalive)
    }

    /// Gateway: what will prove a restart, for the indices that it issued last, from the serial
    /// `first` on.
    pub(crate) fn restart_tokens(&self, key: &RestartKey, first: PathSerial) -> Control {
        let issued = self.rx.range(first..).take(INDICES_MAX);
        let tokens = issued.map(|(_, lane)| key.token(lane.index)).collect();
        Control::RestartTokens { first, tokens }
    }

    /// Issues indices until enough lie ahead of the newest in use, and gives up lanes long out of
    /// use. Returns what the peer must be told: the new indices, from the serial of the first on.
    pub(crate) fn replenish(
        &mut self,
        rng: &mut dyn Rng,
        table: &mut IndexTable,
        slot: Slot,
        in_use: Option<PathId>,
    ) -> Option<(PathSerial, Vec<SessionIndex>)> {
        let used = |lane: &RxSpace| lane.path.is_some();
        let heard = self.rx.values().filter(|lane| used(lane)).map(|lane| lane.serial).max()?;
        let newest = heard.max(PathSerial(self.peer_took.0.saturating_sub(1)));
        let first = self.next_rx;
        let mut indices = Vec::new();
        while self.next_rx.0 <= newest.0.saturating_add(INDICES_AHEAD)
            && indices.len() < INDICES_MAX
        {
            let lead = Lead { slot, epoch: self.id, serial: self.next_rx };
            let index = table.issue(rng, lead);
            self.rx.insert(self.next_rx, RxSpace::new(index, self.next_rx));
            self.next_rx.0 += 1;
            indices.push(index);
        }
        while self.rx.range(..=newest).count() > LANES_MAX
            && let Some(serial) = self.least_lane(newest, in_use)
            && let Some(lane) = self.rx.remove(&serial)
        {
            table.revoke([lane.index]);
        }
        (!indices.is_empty()).then_some((first, indices))
    }

    /// The lane up to `newest` that is missed least: the oldest that another one of its path has
    /// followed, or that was passed over (serials only grow: what lies unused below the newest
    /// stays so, or arrives late); if there is none, the oldest whose path is not in use.
    fn least_lane(&self, newest: PathSerial, in_use: Option<PathId>) -> Option<PathSerial> {
        let lanes = || self.rx.range(..newest).map(|(_, lane)| lane);
        let followed =
            |lane: &&RxSpace| lane.path.is_none_or(|path| self.rx_serial(path) > Some(lane.serial));
        let spare = |lane: &&RxSpace| in_use.is_none() || lane.path != in_use;
        let least = lanes().find(followed).or_else(|| lanes().find(spare))?;
        Some(least.serial)
    }

    /// Whether a new epoch should be asked for, now that traffic flows.
    pub(crate) fn wants_rekey(&self, now: Instant) -> bool {
        let age = now.saturating_since(self.since);
        self.initiator
            && (age >= REKEY_TIME
                || (age >= REKEY_TIME_WITHOUT_INDICES && !self.has_spare_index())
                || self.sealed.max(self.opened) >= REKEY_DATAGRAMS
                || self.forged >= FORGERIES_MAX / 2)
    }

    /// Whether no datagram may be sealed any more.
    pub(crate) const fn is_exhausted(&self) -> bool {
        self.sealed >= SEAL_DATAGRAMS_MAX
    }

    /// The newest serial that arrives by `path`.
    pub(crate) fn rx_serial(&self, path: PathId) -> Option<PathSerial> {
        let lanes = self.rx.values().filter(|lane| lane.path == Some(path));
        lanes.map(|lane| lane.serial).max()
    }

    /// Whether another lane arrives by the same path as the one of this serial.
    pub(crate) fn shares_path(&self, serial: PathSerial) -> bool {
        let path = self.rx.get(&serial).and_then(|lane| lane.path);
        let same = |lane: &RxSpace| lane.serial != serial && lane.path == path;
        path.is_some() && self.rx.values().any(same)
    }

    /// Whether the peer has taken up a lane since the one of this serial.
    pub(crate) fn has_newer_lane(&self, serial: PathSerial) -> bool {
        let next = PathSerial(serial.0.saturating_add(1));
        self.rx.range(next..).any(|(_, lane)| lane.path.is_some())
    }

    /// Every index that this node issued for the epoch.
    pub(crate) fn own_indices(&self) -> impl Iterator<Item = SessionIndex> + '_ {
        self.rx.values().map(|lane| lane.index)
    }

    /// Stops the reuse of lanes whose networks are gone.
    pub(crate) fn leave_networks(&mut self, is_there: impl Fn(LinkId, IpAddr) -> bool) {
        for parked in &mut self.parked {
            parked.unheard = parked.unheard.filter(|&(link, local)| is_there(link, local));
        }
    }

    /// A path is given up: its lane is kept for another path to the same place, so that addresses
    /// that are claimed again and again do not use up the peer's indices.
    pub(crate) fn park(&mut self, path: &Path) {
        let Some(place) = self.tx.iter().position(|lane| lane.path == path.id) else { return };
        let lane = self.tx.remove(place);
        if self.parked.len() >= PARKED_MAX {
            self.parked.remove(0);
        }
        self.parked.push(Parked { route: path.route, unheard: path.unheard_network(), lane });
    }
}

#[cfg(test)]
#[path = "epoch_tests.rs"]
mod tests;
