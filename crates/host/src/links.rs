//! Changes of links, as messages.
//!
//! One plugged cable makes eight netlink messages. The first is acted upon at once, since a roaming
//! client waits for it. It may have come too early: the change that matters is often in the next.
//! So the rests between looks are short at first, and longer while messages go on that change
//! nothing; only a state that differs is told.

use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rove_os::links::{self, Link, Monitor};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::message::Message;

/// The first rest between two looks,
const REST_FIRST: Duration = Duration::from_millis(1);
/// and the longest in a burst of some messages, as one plugged cable makes.
const REST_MAX: Duration = Duration::from_millis(10);
/// While messages go on and on, as with hundreds of router advertisements a second, each rest is
/// this much longer,
const REST_STEP: Duration = Duration::from_millis(1);
/// up to this one. A look takes 1 to 3 ms. Twice as long would delay a client that moves in such a
/// network noticeably.
const REST_LONG: Duration = Duration::from_millis(100);
/// A burst is over when nothing was heard for this long.
const QUIET: Duration = Duration::from_millis(100);
/// After a failure the kernel is asked this often, whether it told of a change or not.
const RETRY: Duration = Duration::from_secs(1);

/// Looks at the links now, and sends `to` every later state that differs. The thread lives as long
/// as the process, and does not give up: a kernel that cannot be heard is asked.
pub(crate) fn watch<O: Send + 'static>(to: SyncSender<Message<O>>) -> Result<Vec<Link>> {
    let mut kernel = Kernel { monitor: Some(Monitor::open()?) };
    let first = kernel.look()?;
    let mut known = first.clone();
    let spawned = thread::Builder::new().name("rove-links".to_owned()).spawn(move || {
        let mut rest = REST_FIRST;
        loop {
            let links = next_change(&mut kernel, &known, &mut rest);
            let between = between(&known, &links).map(Message::Links);
            known.clone_from(&links);
            for message in between.into_iter().chain([Message::Links(links)]) {
                if to.send(message).is_err() {
                    return;
                }
            }
            if rest > REST_MAX {
                thread::sleep(rest);
            }
        }
    });
    spawned.context("cannot start a thread for links")?;
    Ok(first)
}

/// Where changes are heard of and links are seen.
trait Source {
    /// Waits for a change, but not longer than `patience`.
    fn wait(&mut self, patience: Option<Duration>) -> Result<()>;
    /// The links as they are.
    fn look(&mut self) -> Result<Vec<Link>>;
}

struct Kernel {
    /// None after it failed, until it can be opened again.
    monitor: Option<Monitor>,
}

impl Source for Kernel {
    fn wait(&mut self, patience: Option<Duration>) -> Result<()> {
        let mut monitor = match self.monitor.take() {
            Some(monitor) => monitor,
            None => {
                thread::sleep(RETRY);
                Monitor::open()?
            }
        };
        let patience = patience.and_then(|patience| Timespec::try_from(patience).ok());
        match poll(&mut [PollFd::new(&monitor, PollFlags::IN)], patience.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        monitor.drain()?;
        self.monitor = Some(monitor);
        Ok(())
    }

    fn look(&mut self) -> Result<Vec<Link>> {
        Ok(links::snapshot()?)
    }
}

/// Waits until the links are not as `known`.
fn next_change(source: &mut impl Source, known: &[Link], rest: &mut Duration) -> Vec<Link> {
    let mut patience = None;
    loop {
        let since = Instant::now();
        let heard = source.wait(patience);
        let waited = since.elapsed();
        let seen = source.look();
        for error in heard.as_ref().err().into_iter().chain(seen.as_ref().err()) {
            if patience.is_none() {
                tracing::warn!("links are asked for every {RETRY:?}: {error:#}");
            }
        }
        patience = (heard.is_err() || seen.is_err()).then_some(RETRY);
        *rest = rest_after(*rest, waited);
        match seen {
            Ok(links) if links != known => return links,
            Ok(_) | Err(_) => thread::sleep(*rest),
        }
    }
}

/// What there was between two looks, if a link lost its carrier and has it again: whoever slept,
/// or was slow, is to know that the network behind it may be another, and its paths gone.
fn between(known: &[Link], links: &[Link]) -> Option<Vec<Link>> {
    let had = |link: &Link| known.iter().find(|had| had.index == link.index && had.carrier);
    let was_gone = |link: &Link| had(link).is_some_and(|had| had.carrier_ups != link.carrier_ups);
    let was_gone = |link: &Link| link.carrier && was_gone(link);
    links.iter().any(was_gone).then(|| {
        let as_was =
            |link: &Link| Link { carrier: !was_gone(link) && link.carrier, ..link.clone() };
        links.iter().map(as_was).collect()
    })
}

/// How long to rest after a look, when the rest before it was `last` and the next message took so
/// long.
fn rest_after(last: Duration, waited: Duration) -> Duration {
    if waited >= QUIET {
        REST_FIRST
    } else if last < REST_MAX {
        (last * 2).min(REST_MAX)
    } else {
        (last + REST_STEP).min(REST_LONG)
    }
}

#[cfg(test)]
mod tests {
    use rove_os::links::LinkKind;

    use super::*;

    /// What happens, in order; each look takes one.
    struct Script {
        looks: Vec<Result<Vec<Link>>>,
        waits: Vec<Option<Duration>>,
        deaf: bool,
    }

    impl Source for Script {
        fn wait(&mut self, patience: Option<Duration>) -> Result<()> {
            self.waits.push(patience);
            if self.deaf { Err(anyhow::anyhow!("deaf")) } else { Ok(()) }
        }

        fn look(&mut self) -> Result<Vec<Link>> {
            self.looks.remove(0)
        }
    }

    fn link() -> Link {
        Link {
            index: 2,
            name: "eth0".to_owned(),
            kind: LinkKind::Ethernet,
            up: true,
            carrier: true,
            carrier_ups: 0,
            dormant: false,
            mtu: 1_500,
            addresses: Vec::new(),
            deprecated: false,
            default_v4: None,
            default_v6: None,
            routes: Vec::new(),
            attached: Vec::new(),
        }
    }

    #[test]
    fn a_look_that_failed_is_taken_again_without_waiting_for_news() {
        let looks = vec![Err(anyhow::anyhow!("no")), Ok(Vec::new()), Ok(vec![link()])];
        let mut script = Script { looks, waits: Vec::new(), deaf: false };
        assert_eq!(next_change(&mut script, &[], &mut REST_FIRST.clone()), [link()]);
        assert_eq!(script.waits, [None, Some(RETRY), None]);
    }

    #[test]
    fn what_went_and_came_back_between_two_looks_is_told_as_both() {
        let again = Link { carrier_ups: 1, ..link() };
        assert_eq!(between(&[link()], &[link()]), None);
        let gone = Link { carrier: false, ..again.clone() };
        assert_eq!(between(&[link()], std::slice::from_ref(&again)), Some(vec![gone.clone()]));
        // What is seen to be gone, to be there or to be new is told as it is.
        assert_eq!(between(&[link()], std::slice::from_ref(&gone)), None);
        assert_eq!(between(std::slice::from_ref(&gone), std::slice::from_ref(&again)), None);
        assert_eq!(between(&[], &[again]), None);
    }

    #[test]
    fn changes_are_found_by_a_monitor_that_hears_nothing_any_more() {
        let looks = vec![Ok(Vec::new()), Ok(vec![link()])];
        let mut script = Script { looks, waits: Vec::new(), deaf: true };
        assert_eq!(next_change(&mut script, &[], &mut REST_FIRST.clone()), [link()]);
        assert_eq!(script.waits, [None, Some(RETRY)]);
    }

    #[test]
    fn rests_are_short_until_a_burst_lasts() {
        let rest = |last, waited| {
            rest_after(Duration::from_millis(last), Duration::from_millis(waited)).as_millis()
        };
        assert_eq!((rest(1, 0), rest(2, 3), rest(8, 99), rest(10, 0)), (2, 4, 10, 11));
        assert_eq!((rest(99, 0), rest(100, 0)), (100, 100));
        assert_eq!((rest(10, 100), rest(100, 100), rest(1, 60_000)), (1, 1, 1));
    }

    #[test]
    fn a_monitor_that_was_lost_is_opened_again() {
        let mut kernel = Kernel { monitor: None };
        kernel.wait(Some(Duration::ZERO)).unwrap();
        assert!(kernel.monitor.is_some());
    }
}
