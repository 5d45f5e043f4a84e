//! Changes of links, as messages.
//!
//! One plugged cable makes eight netlink messages. The first is acted upon at once, since a roaming
//! client waits for it; then there is a short rest before the next look, and only a state that
//! differs is told.

use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use rove_os::links::{self, Link, Monitor};
use rustix::event::{PollFd, PollFlags, poll};

use super::message::Message;

/// The rest between two looks: a burst of changes costs one look per rest.
const REST: Duration = Duration::from_millis(10);

/// Looks at the links now, and sends `to` every later state that differs. The thread lives as long
/// as the process.
pub(super) fn watch(to: SyncSender<Message>) -> Result<Vec<Link>> {
    let mut monitor = Monitor::open()?;
    let first = links::snapshot()?;
    let mut known = first.clone();
    let spawned = thread::Builder::new().name("rove-links".to_owned()).spawn(move || {
        while let Some(links) = next_change(&mut monitor, &known) {
            known.clone_from(&links);
            if to.send(Message::Links(links)).is_err() {
                return;
            }
        }
    });
    spawned.context("cannot start a thread for links")?;
    Ok(first)
}

/// Waits until the links are not as `known`; none when the kernel does not tell any more.
fn next_change(monitor: &mut Monitor, known: &[Link]) -> Option<Vec<Link>> {
    loop {
        let mut watched = [PollFd::new(&*monitor, PollFlags::IN)];
        match poll(&mut watched, None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return None,
        }
        if let Err(error) = monitor.drain() {
            tracing::warn!(%error, "changes of links are not heard any more");
            return None;
        }
        match links::snapshot() {
            Ok(links) if links != known => return Some(links),
            Ok(_) => {}
            Err(error) => tracing::warn!(%error, "the links cannot be read"),
        }
        thread::sleep(REST);
    }
}

/// The links that can carry a path, best first: those with a default route by its metric, then the
/// others, which may still reach a gateway nearby.
pub(super) fn usable(links: &[Link], tunnel: &str) -> Vec<Link> {
    let mut usable: Vec<Link> =
        links.iter().filter(|link| link.usable() && link.name != tunnel).cloned().collect();
    usable.sort_by_key(|link| {
        let metric = link.default_v4.into_iter().chain(link.default_v6).min();
        (metric.is_none(), metric, link.index)
    });
    usable
}
