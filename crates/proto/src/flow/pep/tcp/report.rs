//! What is told of a connection for people: how far it is, what is kept of it, and why no more.
//! Changes nothing.

use super::room::Room;
use super::{Connection, Phase};
use crate::flow::overrides::Decided;
use crate::flow::pep::memory::NoRoom;
use crate::flow::priority::Level;
use crate::flow::report::{Because, FlowReport, FlowState, Stage, Why};
use crate::flow::rules::Hold;
use crate::time::Instant;

impl Connection {
    /// Whether there is nothing to tell of it.
    pub(crate) const fn is_over(&self) -> bool {
        matches!((&self.phase, self.tracker.stage), (Phase::Normal, Stage::Closed))
    }

    pub(crate) fn report(&self, now: Instant, is_up: bool) -> FlowReport {
        let owed = self.tracker.promise.to().map_or(0, |to| to.beyond(self.tracker.local.acked));
        FlowReport {
            tuple: self.tracker.tuple,
            class: self.class,
            level: self.room().map_or_else(Level::default, Room::level),
            decided: Decided::default(),
            narrowed_to: self.room().and_then(Room::window),
            queue: None,
            state: match &self.phase {
                Phase::Normal => FlowState::Normal,
                Phase::Held(_) => FlowState::Suspended,
                Phase::Resumed(_) if self.is_assisted() => FlowState::Assisted,
                Phase::Resumed(_) => FlowState::Resuming,
                Phase::Broken(_) => FlowState::Broken,
            },
            stage: self.tracker.stage,
            held_bytes: self.tracker.kept_bytes(),
            owed_bytes: owed,
            idle: now.saturating_since(self.tracker.used_at),
            sent: self.tracker.local.acked.0,
            received: self.tracker.remote.acked.0,
            path: None,
            why: self.why(is_up),
        }
    }

    fn why(&self, is_up: bool) -> Why {
        let tracker = &self.tracker;
        let is_owed = tracker.promise.to().is_some();
        match &self.phase {
            Phase::Broken(_) => Why::Lost,
            Phase::Resumed(_) if self.is_assisted() => Why::Assisted,
            Phase::Resumed(_) if is_owed => Why::Delivering,
            Phase::Resumed(_) => Why::SentAgain,
            Phase::Held(_) if tracker.stage == Stage::Closed => Why::Ended,
            Phase::Held(_) if is_owed => Why::Acknowledged,
            Phase::Held(_) if tracker.promise.is_awaited() => Why::Recording,
            Phase::Held(_) if tracker.outstanding() == 0 && self.tracker.heads.is_empty() => {
                Why::Quiet
            }
            Phase::Held(_) => self.in_part().map_or(Why::Kept, Why::KeptInPart),
            Phase::Normal if self.choice.hold == Hold::Off => Why::LeftAlone(self.choice.by),
            Phase::Normal if !is_up => Why::Quiet,
            Phase::Normal => self.excluded().map_or(Why::Carried, Why::CarriedInPart),
        }
    }

    /// Why not all that is on its way is kept; `None` where all is.
    fn in_part(&self) -> Option<Because> {
        self.excluded().or_else(|| match (self.tracker.covered(), self.tracker.cache.no_room()) {
            (Some(_), _) => None,
            (None, Some(NoRoom::InShare)) => Some(Because::Share),
            (None, Some(NoRoom::ForPeer)) => Some(Because::PeerShare),
            (None, Some(NoRoom::AtAll)) => Some(Because::Memory),
            (None, Some(NoRoom::ForThis)) => Some(Because::Worth),
            (None, None) => Some(Because::Missing),
        })
    }

    /// Why it cannot be spoken for, whatever room there is; `None` where it can.
    fn excluded(&self) -> Option<Because> {
        if self.is_kept() {
            return None;
        }
        Some(match (self.choice.hold, self.tracker.is_closed_to_others()) {
            (Hold::Reinject | Hold::Off, _) => Because::Chosen(self.choice.by),
            (Hold::Full, None) if self.tracker.stage == Stage::Opening => Because::Opening,
            (Hold::Full, None) => Because::Midst,
            (Hold::Full, Some(true)) => Because::ClosedToOthers,
            (Hold::Full, Some(false)) => Because::Opening,
        })
    }
}
