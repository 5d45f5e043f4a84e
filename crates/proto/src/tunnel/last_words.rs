//! The last feedback about paths that are gone. A client sends it on the path that carries, so that
//! the gateway need not find out by silence what arrived.

use crate::path::PathId;
use crate::session::epoch::Epoch;
use crate::time::Instant;
use crate::wire::frame::Feedback;

/// Paths whose end is reported at once. For earlier ones the gateway waits until they are silent.
const LAST_WORDS_MAX: usize = 4;

/// The last feedback about paths that are gone.
#[derive(Debug, Default)]
pub(crate) struct LastWords {
    since: Instant,
    words: Vec<Feedback>,
}

impl LastWords {
    /// Takes the last feedback under the keys of `epoch` about the path `id`, which is gone now.
    pub(crate) fn take(&mut self, now: Instant, epoch: &mut Epoch, id: PathId) {
        let lanes = epoch.rx.values_mut().filter(|lane| lane.path == Some(id));
        let words = lanes.filter_map(|lane| lane.owed.last_report(now, lane.serial, &lane.window));
        self.words.extend(words);
        let excess = self.words.len().saturating_sub(LAST_WORDS_MAX);
        self.words.drain(..excess);
        self.since = now;
    }

    /// What is to be sent beside each challenge of the path in use.
    pub(crate) fn words(&self) -> &[Feedback] {
        &self.words
    }

    /// The gateway has answered a challenge that was sent at `asked_at`.
    pub(crate) fn heard(&mut self, asked_at: Instant) {
        if asked_at >= self.since {
            self.words.clear();
        }
    }
}
