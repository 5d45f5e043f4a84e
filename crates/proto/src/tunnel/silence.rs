//! Which paths are silent: what the peer owes is known under the keys that it is owed under
//! (docs/spec/wire.md#silence).

use super::{Context, Tunnel};
use crate::ablation::Ablation;
use crate::path::{Path, PathId};
use crate::time::Instant;

impl Tunnel {
    /// When a path that owes an answer counts as silent.
    pub(crate) fn silence_due(&self, ablation: Ablation, path: &Path) -> Option<Instant> {
        let debt = || self.epochs.debt(path, self.sent_on(path.id));
        self.paths.plan().silence_due(ablation, path, debt)
    }

    /// Does what is due about silent paths. Returns whether anything was.
    pub(crate) fn notice_silence(&mut self, cx: &mut Context<'_>) -> bool {
        let due = |path: &&Path| {
            self.silence_due(cx.config.ablation, path).is_some_and(|due| due <= cx.now)
        };
        let overdue = self.paths.list.ids(due);
        let any = !overdue.is_empty();
        if any {
            self.manage(cx, |paths, cx| paths.take_overdue(cx, overdue));
        }
        any
    }

    /// The path that everything goes by.
    pub(crate) fn only_path(&self) -> Option<PathId> {
        let path =
            self.paths.list.choose().and_then(|choice| self.paths.list.get(choice.original))?;
        let claimed = path.is_claimed();
        (path.is_good() && !claimed && self.epochs.current.is_some()).then_some(path.id)
    }
}
