//! Shows `bonding` the paths before it chooses among them: which may carry a share now, how they
//! are, and what left by them.

use crate::bonding::Bonding;
use crate::bonding::snapshots::Carrier;
use crate::multipath::snapshot::PathSnapshot;
use crate::path::{Path, PathId};
use crate::paths::list::ALL;
use crate::paths::plan::is_fresh;
use crate::time::Instant;
use crate::tunnel::{Departure, Tunnel};

/// Whether packets go through `bonding`: some path has a share and may be used now.
pub(super) fn are_shared(bonding: &mut Bonding, tunnel: &mut Tunnel, now: Instant) -> bool {
    bonding.is_shared && {
        look(bonding, tunnel, now);
        !bonding.ways().is_empty()
    }
}

/// The path whose place is chosen; `None` where nothing is shared among paths.
pub(super) fn chosen(
    bonding: &mut Bonding,
    tunnel: &mut Tunnel,
    now: Instant,
    choose: impl FnOnce(&[PathSnapshot]) -> Option<usize>,
) -> Option<PathId> {
    if !bonding.is_shared {
        return None;
    }
    look(bonding, tunnel, now);
    let place = choose(bonding.ways())?;
    Some(bonding.ways()[place].path)
}

/// Has `bonding` look which paths carry and how they are, if that may have changed.
pub(super) fn look(bonding: &mut Bonding, tunnel: &mut Tunnel, now: Instant) {
    book(bonding, tunnel);
    let Some(are_all) = bonding.begin_look(now, tunnel.paths.list.changes()) else { return };
    let changed = tunnel.paths.list.take_changed();
    let changed = if are_all { ALL } else { changed };
    let tunnel = &*tunnel;
    let places = tunnel.paths.list.iter().enumerate();
    let carriers = places.filter(|(_, path)| may_carry(tunnel, now, path));
    let carriers = carriers.filter_map(|(place, path)| {
        let controller = path.congestion.as_deref()?;
        Some(Carrier { path, controller, is_changed: changed & 1 << place != 0 })
    });
    let counted = |id| {
        let loss = tunnel.sent_on(id).map_or(0.0, |sent| sent.loss().share());
        (loss, tunnel.recovery.in_flight(id))
    };
    bonding.look(now, carriers, counted, tunnel.changes.replaced_at());
}

/// Has `bonding` book what has left by the paths.
pub(super) fn book(bonding: &mut Bonding, tunnel: &mut Tunnel) {
    for Departure { path, next_at, bytes } in tunnel.departures.take() {
        bonding.note_left(path, next_at, bytes);
    }
}

/// Whether a path may get a share now: beside the one in use none that nobody has heard of for a
/// while. A NAT may have forgotten it, and the client asks it when anybody speaks again.
fn may_carry(tunnel: &Tunnel, now: Instant, path: &Path) -> bool {
    let list = &tunnel.paths.list;
    path.has_share()
        && (list.active_id() == Some(path.id) || is_fresh(now, path))
        && tunnel.epochs.has_lane(path, list.len())
}
