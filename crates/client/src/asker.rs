//! A thread that asks about links what takes its time to answer, and goes on asking while there is
//! something to know. It begins with the first question; with nothing to ask it sleeps. Knows
//! nothing of what is asked, nor of what becomes of the answers.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Changes of what is asked that wait: the newest counts.
const CHANGES_MAX: usize = 4;

/// When the same is asked again, without a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Again {
    /// After so long.
    After(Duration),
    /// Not at all.
    Never,
    /// Nobody wants to know any more.
    End,
}

/// Asks about links, each named by a `T`.
pub(crate) struct Asker<T> {
    asked: Vec<T>,
    thread: Option<SyncSender<Vec<T>>>,
}

impl<T: Clone + PartialEq + Send + 'static> Asker<T> {
    /// One that asks about nothing yet.
    pub(crate) const fn new() -> Self {
        Self { asked: Vec::new(), thread: None }
    }

    /// Asks about these from now on, at once for the first time. `start` is called for the thread
    /// ([`begin`]) when there is none.
    pub(crate) fn ask(
        &mut self,
        links: Vec<T>,
        start: impl FnOnce() -> Option<SyncSender<Vec<T>>>,
    ) {
        if links == self.asked {
            return;
        }
        if self.thread.is_none() {
            self.thread = start();
        }
        let told = self.thread.as_ref().map(|thread| thread.try_send(links.clone()));
        // With no room left, or without a thread, it is tried again with the next change.
        if matches!(told, Some(Ok(()))) {
            self.asked = links;
        }
    }
}

/// Starts a thread called `name` that calls what `make` returns with what is to be asked. Where no
/// thread can be had the log says so by `unknown`, what is not known then.
pub(crate) fn begin<T: Send + 'static, F: FnMut(&[T]) -> Again>(
    name: &str,
    unknown: &'static str,
    make: impl FnOnce() -> F + Send + 'static,
) -> Option<SyncSender<Vec<T>>> {
    let (changes, changed) = sync_channel(CHANGES_MAX);
    let thread = thread::Builder::new().name(name.to_owned());
    match thread.spawn(move || serve(&changed, make())) {
        Ok(_) => Some(changes),
        Err(error) => {
            tracing::warn!(%error, "{unknown}");
            None
        }
    }
}

/// Calls `ask` with the newest that is to be asked, and again as it says.
fn serve<T>(changed: &Receiver<Vec<T>>, mut ask: impl FnMut(&[T]) -> Again) {
    let (mut links, mut again) = (Vec::new(), Again::Never);
    loop {
        let change = match again {
            Again::After(time) => changed.recv_timeout(time),
            Again::Never => changed.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Again::End => return,
        };
        match change {
            Ok(newest) => links = newest,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while let Ok(newest) = changed.try_recv() {
            links = newest;
        }
        again = if links.is_empty() { Again::Never } else { ask(&links) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_wish_counts_and_with_none_nothing_is_asked() {
        let (changes, changed) = sync_channel(CHANGES_MAX);
        for links in [vec![3], vec![], vec![4, 5]] {
            changes.send(links).unwrap();
        }
        let mut asked = Vec::new();
        serve(&changed, |links| {
            asked.push(links.to_vec());
            if asked.len() < 3 { Again::After(Duration::from_millis(1)) } else { Again::End }
        });
        assert_eq!(asked, [[4, 5]; 3]);
        changes.send(vec![]).unwrap();
        drop(changes);
        serve(&changed, |_| panic!("there is nothing to ask"));
    }

    #[test]
    fn where_nothing_is_known_it_is_asked_once() {
        let (changes, changed) = sync_channel(CHANGES_MAX);
        changes.send(vec!["a"]).unwrap();
        drop(changes);
        let mut asked = Vec::new();
        serve(&changed, |links| {
            asked.push(links.to_vec());
            Again::Never
        });
        assert_eq!(asked, [["a"]]);
    }

    #[test]
    fn it_asks_by_a_thread_that_begins_with_the_first_question() {
        let (told, heard) = sync_channel(1);
        let mut asker = Asker::new();
        asker.ask(vec![], || -> Option<SyncSender<Vec<u32>>> { panic!("nothing is asked") });
        let start = || {
            begin("asker", "nothing is known", move || {
                move |links: &[u32]| {
                    told.send(links.to_vec()).unwrap();
                    Again::Never
                }
            })
        };
        asker.ask(vec![7], start);
        assert_eq!(heard.recv().unwrap(), [7]);
        asker.ask(vec![7], || panic!("it runs"));
    }
}
