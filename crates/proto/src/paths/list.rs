//! The paths of one session and which of them carries: the active one, and while the peer moves,
//! the claimed one that gets copies.

use crate::context::PeerState;
use crate::id::{LinkId, SocketId, Transport};
use crate::outbox::Route;
use crate::path::probe::{Answer, URGENT};
use crate::path::{Health, PATHS_MAX, Path, PathId, Trust};
use crate::recovery::rtt::Rtt;
use crate::recovery::segmented::Evidence;
use crate::time::Instant;

/// Paths that are asked more often at once: the questions of more fill a slow link by themselves.
const URGENT_PATHS: usize = 3;
/// All places of [`Paths::take_changed`].
pub(crate) const ALL: u16 = u16::MAX;

/// The paths of one session.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    list: Vec<Path>,
    active: Option<PathId>,
    /// How often another path was taken.
    moves: u32,
    next: u32,
    /// How often any of them may have changed,
    changes: u64,
    /// and in which places they are that may have since it was asked last, a bit each.
    changed: u16,
}

const _: () = assert!(PATHS_MAX <= u16::BITS as usize);

/// Where the next inner packet goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Choice {
    /// The path that carries it.
    pub(crate) original: PathId,
    /// The unproven path that gets a copy, within its budget.
    pub(crate) copy: Option<PathId>,
}

impl Paths {
    /// The path named `id`.
    pub(crate) fn get(&self, id: PathId) -> Option<&Path> {
        self.list.iter().find(|path| path.id == id)
    }

    /// The path named `id`, to change.
    pub(crate) fn get_mut(&mut self, id: PathId) -> Option<&mut Path> {
        let place = self.list.iter().position(|path| path.id == id)?;
        self.changes += 1;
        self.changed |= 1 << place;
        self.list.get_mut(place)
    }

    /// The same, for what leaves by it: that is no change that the choice among paths would not
    /// know of.
    pub(crate) fn get_to_send(&mut self, id: PathId) -> Option<&mut Path> {
        self.list.iter_mut().find(|path| path.id == id)
    }

    /// All of them, for the same.
    pub(crate) fn iter_to_send(&mut self) -> impl Iterator<Item = &mut Path> {
        self.list.iter_mut()
    }

    /// A number that grows whenever one of them may have changed.
    pub(crate) const fn changes(&self) -> u64 {
        self.changes
    }

    /// The places in the order of [`Self::iter`] of those that may have changed since it was asked
    /// last, a bit each; all if there are others now.
    pub(crate) const fn take_changed(&mut self) -> u16 {
        std::mem::replace(&mut self.changed, 0)
    }

    const fn change_all(&mut self) {
        self.changes += 1;
        self.changed = ALL;
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Path> + Clone {
        self.list.iter()
    }

    /// The names of those for which this holds.
    pub(crate) fn ids(&self, holds: impl FnMut(&&Path) -> bool) -> Vec<PathId> {
        self.list.iter().filter(holds).map(|path| path.id).collect()
    }

    /// The state of a session with keys: that of its path in use.
    pub(crate) fn state(&self) -> PeerState {
        match self.active().filter(|path| path.is_good()).map(Path::trust) {
            Some(Trust::Proven) => PeerState::Up,
            Some(Trust::Chosen | Trust::Claimed { .. }) => PeerState::Moving,
            None => PeerState::Suspended,
        }
    }

    /// The first moment at which something is due about any path.
    pub(crate) fn first_due(&self, due: impl Fn(&Path) -> Option<Instant>) -> Option<Instant> {
        self.iter().filter_map(due).min()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Path> {
        self.change_all();
        self.list.iter_mut()
    }

    /// The path by which datagrams from `route` come: same socket, same remote address.
    pub(crate) fn by_route(&self, route: &Route) -> Option<&Path> {
        self.list.iter().find(|p| p.route.socket == route.socket && p.route.remote == route.remote)
    }

    /// The same, to change.
    pub(crate) fn by_route_mut(&mut self, route: &Route) -> Option<&mut Path> {
        let id = self.by_route(route)?.id;
        self.get_mut(id)
    }

    pub(crate) const fn active_id(&self) -> Option<PathId> {
        self.active
    }

    pub(crate) fn active(&self) -> Option<&Path> {
        self.active.and_then(|id| self.get(id))
    }

    /// Data goes by `id` from now on.
    pub(crate) fn activate(&mut self, id: PathId) {
        self.change_all();
        if self.active != Some(id) {
            self.moves = self.moves.wrapping_add(1);
        }
        self.active = Some(id);
    }

    /// How often another path was taken so far.
    pub(crate) const fn moves(&self) -> u32 {
        self.moves
    }

    /// Addresses that are claimed and not proven.
    pub(crate) fn claims(&self) -> usize {
        self.list.iter().filter(|path| path.is_claimed()).count()
    }

    /// A name for a new path.
    pub(crate) const fn next_id(&mut self) -> PathId {
        self.next += 1;
        PathId(self.next)
    }

    /// How many there are.
    pub(crate) const fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether a path can be added without giving one up.
    pub(crate) const fn has_room(&self) -> bool {
        self.list.len() < PATHS_MAX
    }

    /// Adds a path. Returns one that had to make room, the least of those not in use: one that is
    /// gone, else silent, else what was not heard of for longest. A claim, which was heard of just
    /// now, is kept: else two of them push each other out for ever.
    pub(crate) fn add(&mut self, path: Path) -> Option<Path> {
        self.change_all();
        let given_up = if self.list.len() >= PATHS_MAX {
            let rank = |p: &Path| (liveliness(p.health()), p.heard_at());
            let spare = self.list.iter().enumerate().filter(|(_, p)| Some(p.id) != self.active);
            let place = spare.min_by_key(|(_, path)| rank(path)).map(|(place, _)| place);
            place.map(|place| self.list.remove(place))
        } else {
            None
        };
        self.list.push(path);
        given_up
    }

    /// Removes a path.
    pub(crate) fn remove(&mut self, id: PathId) -> Option<Path> {
        self.change_all();
        if self.active == Some(id) {
            self.active = None;
        }
        let place = self.list.iter().position(|path| path.id == id)?;
        Some(self.list.remove(place))
    }

    /// Whether any path sends from `socket`.
    pub(crate) fn uses(&self, socket: SocketId) -> bool {
        self.list.iter().any(|path| path.route.socket == socket)
    }

    /// Where the next inner packet goes; `None` while there is no path at all.
    ///
    /// A claimed address gets copies only; the last proven path keeps the originals until the
    /// challenge succeeds or it is known dead (docs/spec/wire.md#addresses).
    pub(crate) fn choose(&self) -> Option<Choice> {
        let claimed = self
            .list
            .iter()
            .rev()
            .find(|path| {
                let rebound = matches!(path.trust(), Trust::Claimed { instead_of: Some(_), .. });
                let claimed = path.is_claimed();
                claimed && !path.is_gone() && (rebound || path.is_preferred())
            })
            .map(|path| path.id);
        let carries = |path: &&Path| !path.is_gone();
        match (self.active().filter(carries), claimed) {
            (Some(active), copy) => Some(Choice { original: active.id, copy }),
            (None, Some(claimed)) => Some(Choice { original: claimed, copy: None }),
            (None, None) => None,
        }
    }

    /// The path that everything goes by: the one in use, if its address was not only claimed.
    pub(crate) fn only(&self) -> Option<PathId> {
        let path = self.get(self.choose()?.original)?;
        (path.is_good() && !path.is_claimed()).then_some(path.id)
    }

    /// The link of the paths by `socket`.
    pub(crate) fn link_of(&self, socket: SocketId) -> Option<LinkId> {
        self.list.iter().find(|path| path.route.socket == socket).and_then(|path| path.link)
    }

    /// Notes that the path of an authentic datagram works in this direction. Returns whether it was
    /// known to work in both.
    pub(crate) fn note_arrival(
        &mut self,
        now: Instant,
        path: Option<PathId>,
        came_at: Instant,
        len: usize,
    ) -> bool {
        let Some(path) = path.and_then(|id| self.get_mut(id)) else { return false };
        path.note_return(now);
        path.heard(now, came_at, len);
        if path.is_silent() {
            // The peer gets through: perhaps this end does again.
            path.probes.start(now, &path.rtt.clone());
            path.probes.hurry(now);
        }
        path.is_good() && path.is_proven()
    }

    /// These paths are not asked any more.
    pub(crate) fn stop_asking(&mut self, ids: &[PathId]) {
        for &id in ids {
            if let Some(path) = self.get_mut(id) {
                path.probes.stop();
            }
        }
    }

    /// The size of the next probe of a path's MTU, if one is wanted. It is lost after two timeouts.
    pub(crate) fn probe_mtu(&mut self, now: Instant, id: PathId) -> Option<usize> {
        let path = self.get_mut(id)?;
        let size = path.mtu.probe(now)?;
        path.set_mtu_due(Some(now + path.rtt.timeout() * 2));
        Some(size)
    }

    /// Whether a path has a share, carrying or not: a congestion controller of its own.
    pub(crate) fn is_shared(&self, id: PathId) -> bool {
        self.get(id).is_some_and(|path| path.congestion.is_some())
    }

    /// Whether a path is there and owes no answer.
    pub(crate) fn is_good(&self, id: PathId) -> bool {
        self.get(id).is_some_and(Path::is_good)
    }

    /// The round trip of a path whose losses are repaired: one that carries a share.
    pub(crate) fn repaired(&self, id: PathId) -> Option<&Rtt> {
        self.get(id).filter(|path| path.has_share()).map(|path| &path.rtt)
    }

    /// So many bytes of a path arrived and were lost, and this is what its runs say. If segmented
    /// sends are to blame, all paths fall back that send by the same interface.
    pub(crate) fn judge_offload(
        &mut self,
        now: Instant,
        id: PathId,
        bytes: (u64, u64),
        evidence: Option<Evidence>,
    ) {
        let Some(path) = self.get_to_send(id) else { return };
        let is_judged = path.transport() == Transport::Udp;
        if !is_judged || !path.offload.told(now, bytes, evidence) {
            return;
        }
        let (interface, offload) = (path.interface(), path.offload.clone());
        let others = self.iter_to_send();
        for other in others.filter(|other| other.id != id && other.interface() == interface) {
            other.offload.adopt(&offload);
        }
    }

    /// Whether somebody else fills the queue of a path.
    pub(crate) fn compete(&self) -> bool {
        let controller = |path: &Path| path.congestion.as_ref().is_some_and(|it| it.competes());
        self.list.iter().any(controller)
    }

    /// When the pace of a path that carries a share lets the next datagram leave.
    pub(crate) fn paces_at(&self, id: PathId) -> Option<Instant> {
        let controller = self.get(id)?.congestion.as_deref()?;
        Some(controller.next_at())
    }

    /// A copy of `len` bytes left by this path.
    pub(crate) fn note_copied(&mut self, id: PathId, len: usize) {
        if let Some(path) = self.get_mut(id) {
            path.note_copied(len);
        }
    }

    /// Until when a path that is heard again after a silence is taken to carry without an answer.
    pub(crate) fn return_due(&self) -> Option<Instant> {
        let path = self.active()?;
        let is_silent = path.is_silent();
        path.returned_at().filter(|_| is_silent).map(|at| at + path.patience())
    }

    /// Whether the path in use was silent in both directions and is heard again: that it carries
    /// the other way as well is not proven, and likely enough for what is sent again if not.
    pub(crate) fn returns(&mut self, now: Instant) -> bool {
        let Some(due) = self.return_due() else { return false };
        if due <= now
            && let Some(id) = self.active_id()
            && let Some(path) = self.get_mut(id)
        {
            path.forget_return();
        }
        now < due
    }

    /// Gateway: where the peer says that it is, if it left every other place: what is said there
    /// before that is proven is bounded, and saves a round trip.
    pub(crate) fn claimed(&self) -> Option<&Path> {
        let path = self.get(self.choose()?.original)?;
        path.is_claimed().then_some(path)
    }

    /// While connections wait for a path it is asked more often, in the first minute: who asks
    /// again for what is held later does so in passing, whenever its programs try again. Of many
    /// paths, those that are likely to return first.
    pub(crate) fn ask_urgently(&mut self, now: Instant, flows_wait: bool) {
        let active = self.active_id();
        let is_wanted = |path: &Path| {
            let since = match path.health() {
                Health::Silent { since } => Some(since),
                Health::Gone => Some(path.heard_at().unwrap_or_else(|| path.since())),
                Health::Good => None,
            };
            flows_wait && since.is_none_or(|since| now.saturating_since(since) < URGENT)
        };
        let likely =
            |path: &&Path| (Some(path.id) == active, path.heard_at().max(Some(path.since())));
        let mut chosen = [None; URGENT_PATHS];
        for place in 0..URGENT_PATHS {
            let rest = |path: &&Path| is_wanted(path) && !chosen.contains(&Some(path.id));
            chosen[place] = self.iter().filter(rest).max_by_key(likely).map(|path| path.id);
        }
        for path in self.iter_mut() {
            path.probes.set_urgent(now, chosen.contains(&Some(path.id)));
        }
    }

    /// Addresses that were claimed in the place of `id`, which answers what it was asked since: it
    /// was never left, and they are forged.
    pub(crate) fn forged_by(&self, id: PathId, answer: Answer) -> Vec<PathId> {
        self.ids(|path| match path.trust() {
            Trust::Claimed { instead_of, .. } => {
                instead_of == Some(id) && answer.asked_at >= path.since()
            }
            Trust::Proven | Trust::Chosen => false,
        })
    }

    /// The others between the same two addresses as `id`.
    pub(crate) fn twins_of(&self, id: PathId) -> Vec<PathId> {
        let Some(of) = self.get(id) else { return Vec::new() };
        let place =
            |path: &Path| (path.link, path.route.local, path.route.remote, path.transport());
        self.ids(|path| path.id != id && place(path) == place(of))
    }

    /// Whether data goes by a stream, for want of anything better.
    pub(crate) fn is_on_stream(&self) -> bool {
        self.active().is_some_and(|path| path.transport() == Transport::Stream)
    }
}

/// What silent paths are worth beside others: nothing alive may make room for them, else two that
/// are new push each other out for ever.
const fn liveliness(health: Health) -> u8 {
    match health {
        Health::Gone => 0,
        Health::Silent { .. } => 1,
        Health::Good => 2,
    }
}
