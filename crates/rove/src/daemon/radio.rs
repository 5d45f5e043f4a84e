//! The radios of Wi-Fi links, asked every second while somebody wants to know.
//!
//! A thread of its own, because a driver may ask its card and take its time; it begins with the
//! first question. With nothing to ask for it sleeps.

use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use super::message::Message;

/// The time between two questions. In it one walks a metre or two, which is a decibel or two near
/// the edge of what an access point reaches.
const EVERY: Duration = Duration::from_secs(1);
/// Changes of what is asked that wait: the newest counts.
const CHANGES_MAX: usize = 4;

/// Asks radios.
pub(super) struct Radios {
    to: SyncSender<Message>,
    /// Those that are asked, by the index of their link.
    asked: Vec<u32>,
    /// The thread, once there was something to ask.
    thread: Option<SyncSender<Vec<u32>>>,
}

impl Radios {
    /// Answers go to `to`.
    pub(super) const fn new(to: SyncSender<Message>) -> Self {
        Self { to, asked: Vec::new(), thread: None }
    }

    /// Asks these from now on, at once for the first time.
    pub(super) fn ask(&mut self, links: Vec<u32>) {
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

fn start(to: SyncSender<Message>) -> Option<SyncSender<Vec<u32>>> {
    let (changes, changed) = sync_channel(CHANGES_MAX);
    let spawned = thread::Builder::new().name("rove-radio".to_owned()).spawn(move || {
        let mut radio = None;
        serve(&changed, |links| {
            let told = links.iter().map(|&link| (link, signal(&mut radio, link))).collect();
            to.send(Message::Signals(told)).is_ok()
        });
    });
    match spawned {
        Ok(_) => Some(changes),
        Err(error) => {
            tracing::warn!(%error, "the strength of Wi-Fi is not known");
            None
        }
    }
}

/// Calls `ask` with what is to be asked until it returns false, or nobody wants to know.
fn serve(changed: &Receiver<Vec<u32>>, mut ask: impl FnMut(&[u32]) -> bool) {
    let mut links = Vec::new();
    loop {
        let change = if links.is_empty() {
            changed.recv().map_err(|_| RecvTimeoutError::Disconnected)
        } else {
            changed.recv_timeout(EVERY)
        };
        match change {
            Ok(newest) => links = newest,
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if !links.is_empty() && !ask(&links) {
            return;
        }
    }
}

/// The strength of a link's signal, in dBm; opens the way to the radios if need be.
fn signal(radio: &mut Option<rove_os::wireless::Radio>, link: u32) -> Option<i8> {
    let asked = match radio {
        Some(open) => open.signal(link),
        None => match rove_os::wireless::Radio::open() {
            Ok(opened) => {
                *radio = opened;
                radio.as_mut()?.signal(link)
            }
            Err(error) => Err(error),
        },
    };
    asked.unwrap_or_else(|error| {
        tracing::debug!(%error, "the strength of Wi-Fi is not known");
        // What answers late would answer the next question.
        *radio = None;
        None
    })
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
            asked.len() < 3
        });
        assert_eq!(asked, [vec![3], vec![4, 5], vec![4, 5]]);
        drop(changes);
        serve(&changed, |_| panic!("nobody wants to know"));
    }
}
