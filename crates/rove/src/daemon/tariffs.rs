//! What the host's network manager knows of links, asked in a thread of its own: a bus and the
//! programs behind it take their time.
//!
//! Asked when the links change, and every minute while there is one of which something is known:
//! that a modem roams changes without a change of links.

use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use rove_os::tariff::{self, Tariff};

use super::message::Message;

/// The time between two questions without news.
const EVERY: Duration = Duration::from_secs(60);
/// Changes of what is asked that wait: the newest counts.
const CHANGES_MAX: usize = 4;
/// Links that are asked about.
const LINKS_MAX: usize = 64;

/// Asks what is known of links.
pub(super) struct Tariffs {
    to: SyncSender<Message>,
    asked: Vec<String>,
    thread: Option<SyncSender<Vec<String>>>,
}

impl Tariffs {
    /// Answers go to `to`.
    pub(super) const fn new(to: SyncSender<Message>) -> Self {
        Self { to, asked: Vec::new(), thread: None }
    }

    /// Asks about these from now on, at once for the first time.
    pub(super) fn ask(&mut self, mut links: Vec<String>) {
        links.truncate(LINKS_MAX);
        if links == self.asked {
            return;
        }
        if self.thread.is_none() {
            self.thread = start(self.to.clone());
        }
        let told = self.thread.as_ref().map(|thread| thread.try_send(links.clone()));
        // With no room left, or without a thread, it is tried again with the next change.
        if matches!(told, Some(Ok(()))) {
            self.asked = links;
        }
    }
}

fn start(to: SyncSender<Message>) -> Option<SyncSender<Vec<String>>> {
    let (changes, changed) = sync_channel(CHANGES_MAX);
    let spawned = thread::Builder::new().name("rove-tariff".to_owned()).spawn(move || {
        let mut known = BTreeMap::new();
        serve(&changed, |links| {
            let is_known = |tariff: &Tariff| *tariff != Tariff::default();
            let told = links.iter().map(|link| (link.clone(), tariff::of(link)));
            let told: BTreeMap<String, Tariff> = told.filter(|(_, t)| is_known(t)).collect();
            if told != known && to.send(Message::Tariffs(told.clone())).is_err() {
                return None;
            }
            known = told;
            Some(!known.is_empty())
        });
    });
    match spawned {
        Ok(_) => Some(changes),
        Err(error) => {
            tracing::warn!(%error, "whether links are metered is known from the rules alone");
            None
        }
    }
}

/// Calls `ask` with what is to be asked, again if there was anything to know, until it returns
/// none, or nobody wants to know.
fn serve(changed: &Receiver<Vec<String>>, mut ask: impl FnMut(&[String]) -> Option<bool>) {
    let (mut links, mut again) = (Vec::new(), false);
    loop {
        let change = if again {
            changed.recv_timeout(EVERY)
        } else {
            changed.recv().map_err(|_| RecvTimeoutError::Disconnected)
        };
        match change {
            Ok(newest) => links = newest,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while let Ok(newest) = changed.try_recv() {
            links = newest;
        }
        let Some(known) = ask(&links) else { return };
        again = known;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::sync_channel;

    use super::serve;

    #[test]
    fn the_newest_links_are_asked_about_and_none_again_where_nothing_is_known() {
        let (changes, changed) = sync_channel(4);
        for links in [vec!["a".to_owned()], vec!["b".to_owned()]] {
            changes.send(links).unwrap();
        }
        drop(changes);
        let mut asked = Vec::new();
        serve(&changed, |links| {
            asked.push(links.to_vec());
            Some(false)
        });
        assert_eq!(asked, [["b".to_owned()]]);
    }
}
