//! The connections for which bytes are owed to somebody: acknowledged in another's place, and not
//! delivered yet. A small file of its own, so that the next process knows after a crash whom it
//! must tell that nobody has them any more.
//!
//! A line for each connection, `+` when something is owed and `-` when nothing is any more, its
//! peer and its two ends. What begins is on the disk before the core hears of it; those of a few
//! milliseconds share one write. What ended may be lost: then a connection is broken off that need
//! not be. The file is emptied when nothing is owed. A line that is not whole was never
//! acknowledged to anybody.
//!
//! When it cannot be written, nothing is acknowledged: connections then live as long as they do
//! without this.

use std::collections::BTreeSet;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Result;
use rove_os::plain;
use rove_proto::flow::rules::{Assist, Rules};
use rove_proto::flow::tuple::Tuple;
use rove_proto::id::PeerKey;
use rove_proto::node::Command;
use rove_proto::wire::inner::TCP;

use crate::data::Handle;
use crate::files::{self, FileError};

/// The file's name in the node's state.
const NAME: &str = "owed";
/// How long the first waits for others that are written along with it.
const TOGETHER: Duration = Duration::from_millis(2);
/// How long a process that is to end delivers what it owes: where a path carries, that takes a
/// round trip or two.
const WOUND_UP: Duration = Duration::from_secs(1);
/// A longer file is none of ours: 16,384 connections of some sessions, and as many ends of them.
const BYTES_MAX: u64 = 64 << 20;

/// The connections for which bytes are owed.
#[derive(Debug)]
pub struct Owed {
    file: File,
    all: BTreeSet<(PeerKey, Tuple)>,
    /// Not on the disk yet.
    new: Vec<(PeerKey, Tuple)>,
    write_at: Option<Instant>,
    /// When the process ends, whatever it owes then.
    ends_by: Option<Instant>,
}

impl Owed {
    /// Reads what the process before this one owed, and takes up its file.
    pub fn open(state: &Path) -> Result<Self> {
        let path = state.join(NAME);
        let open = || {
            let mut options = OpenOptions::new();
            options.read(true).append(true).create(true).mode(files::PRIVATE);
            let mut file = plain::open(&path, &mut options)?;
            let mut text = Vec::new();
            Read::by_ref(&mut file).take(BYTES_MAX).read_to_end(&mut text)?;
            Ok::<_, io::Error>((file, text))
        };
        let (file, text) = open().map_err(|cause| FileError::system(&path, cause))?;
        let all = read(&String::from_utf8_lossy(&text));
        Ok(Self { file, all, new: Vec::new(), write_at: None, ends_by: None })
    }

    /// What is to be broken off, since nobody can deliver it: with a peer that is not known any
    /// more nothing is.
    pub fn inherited(&mut self, is_known: impl Fn(PeerKey) -> bool) -> Vec<Command> {
        let strangers = self.all.iter().filter(|(peer, _)| !is_known(*peer)).copied();
        for (peer, tuple) in strangers.collect::<Vec<_>>() {
            self.ends(peer, tuple);
        }
        let break_off = |&(peer, tuple): &(PeerKey, Tuple)| Command::BreakOff { peer, tuple };
        self.all.iter().map(break_off).collect()
    }

    /// Something will be owed: it is written down soon, and the core told.
    pub fn begins(&mut self, peer: PeerKey, tuple: Tuple) {
        self.new.push((peer, tuple));
        self.write_at.get_or_insert_with(|| Instant::now() + TOGETHER);
    }

    /// Nothing is owed any more.
    pub fn ends(&mut self, peer: PeerKey, tuple: Tuple) {
        self.new.retain(|other| *other != (peer, tuple));
        if !self.all.remove(&(peer, tuple)) {
            return;
        }
        let written = if self.all.is_empty() {
            self.file.set_len(0)
        } else {
            self.file.write_all(line('-', peer, &tuple).as_bytes())
        };
        if let Err(error) = written {
            tracing::debug!(%error, "that nothing is owed any more cannot be written down");
        }
    }

    /// When something is to be done.
    pub fn due(&self) -> Option<Instant> {
        [self.write_at, self.ends_by].into_iter().flatten().min()
    }

    /// The process is to end: while a path carries nobody is promised anything more, as `rules` say
    /// beside, and what is owed is delivered first. Whoever asks again does not wait for that.
    pub fn wind_up(&mut self, rules: Rules, data: &Handle) {
        data.command(Command::SetHold(rules.assisting(Assist::Off)));
        let now = Instant::now();
        self.ends_by = Some(self.ends_by.map_or(now + WOUND_UP, |_| now));
    }

    /// Whether the process may end now.
    pub fn is_wound_up(&self) -> bool {
        let is_settled = self.all.is_empty() && self.new.is_empty();
        self.ends_by.is_some_and(|by| is_settled || by <= Instant::now())
    }

    /// Writes what is due, and tells the core.
    pub fn write_due(&mut self, now: Instant, data: &Handle) {
        if self.write_at.is_none_or(|due| due > now) {
            return;
        }
        self.write_at = None;
        let new = std::mem::take(&mut self.new);
        let lines: String = new.iter().map(|(peer, tuple)| line('+', *peer, tuple)).collect();
        let written = self.file.write_all(lines.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(error) = written {
            tracing::warn!(
                %error,
                "open connections are not held through this outage, since that cannot be written \
                 down: make room on the disk"
            );
            return;
        }
        for (peer, tuple) in new {
            self.all.insert((peer, tuple));
            data.command(Command::Recorded { peer, tuple });
        }
    }
}

fn line(sign: char, peer: PeerKey, tuple: &Tuple) -> String {
    let Tuple { local, remote, .. } = tuple;
    let (local, remote) = (SocketAddr::from(*local), SocketAddr::from(*remote));
    let peer: String = peer.0.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{sign} {peer} {local} {remote}\n")
}

/// What was owed in the end.
fn read(text: &str) -> BTreeSet<(PeerKey, Tuple)> {
    let mut all = BTreeSet::new();
    for line in text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')) {
        match parse(line) {
            Some(('+', owed)) => drop(all.insert(owed)),
            Some((_, owed)) => drop(all.remove(&owed)),
            None => {}
        }
    }
    all
}

fn parse(line: &str) -> Option<(char, (PeerKey, Tuple))> {
    let mut words = line.split(' ');
    let sign = words.next()?.parse().ok().filter(|sign| "+-".contains(*sign))?;
    let hex = words.next().filter(|hex| hex.is_ascii())?;
    let mut key = [0; 32];
    for (place, byte) in key.iter_mut().enumerate() {
        *byte = u8::from_str_radix(hex.get(place * 2..place * 2 + 2)?, 16).ok()?;
    }
    let mut end = || words.next()?.parse::<SocketAddr>().ok();
    let (local, remote) = (end()?, end()?);
    let end = |address: SocketAddr| (address.ip(), address.port());
    let tuple = Tuple { local: end(local), remote: end(remote), protocol: TCP };
    (local.is_ipv4() == remote.is_ipv4()).then_some((sign, (PeerKey(key), tuple)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owed(number: u8) -> (PeerKey, Tuple) {
        let local = ([10, 77, 0, number].into(), 40_000);
        let remote = if number.is_multiple_of(2) {
            ([192, 0, 2, 1].into(), 443)
        } else {
            return (
                PeerKey([number; 32]),
                Tuple {
                    local: ([0xfd00, 0, 0, 0, 0, 0, 0, number.into()].into(), 1),
                    remote: ([0x2001, 0xdb8, 0, 0, 0, 0, 0, 2].into(), 2),
                    protocol: TCP,
                },
            );
        };
        (PeerKey([number; 32]), Tuple { local, remote, protocol: TCP })
    }

    #[test]
    fn what_is_written_is_read_and_what_is_torn_was_never_owed() {
        let mut text = String::new();
        for number in 0..4 {
            let (peer, tuple) = owed(number);
            text += &line('+', peer, &tuple);
        }
        let (peer, tuple) = owed(2);
        text += &line('-', peer, &tuple);
        let (peer, tuple) = owed(5);
        let torn = line('+', peer, &tuple);
        text += "nonsense\n+ zz 1 2\n";
        for cut in 0..torn.len() {
            let read = read(&format!("{text}{}", &torn[..cut]));
            assert_eq!(read.into_iter().collect::<Vec<_>>(), [owed(0), owed(1), owed(3)]);
        }
    }

    #[test]
    fn what_is_owed_outlives_the_process_and_what_is_settled_does_not() {
        let place = tempfile::tempdir().unwrap();
        let mut book = Owed::open(place.path()).unwrap();
        assert!(book.inherited(|_| true).is_empty());
        for number in 0..3 {
            let (peer, tuple) = owed(number);
            book.begins(peer, tuple);
        }
        let before = Owed::open(place.path()).unwrap().inherited(|_| true);
        assert!(before.is_empty(), "not written yet");
        let lines: String =
            std::mem::take(&mut book.new).iter().map(|(p, t)| line('+', *p, t)).collect();
        book.file.write_all(lines.as_bytes()).unwrap();
        book.all = (0..3).map(owed).collect();
        book.ends(owed(1).0, owed(1).1);
        let mut next = Owed::open(place.path()).unwrap();
        assert_eq!(next.inherited(|_| true).len(), 2);
        book.ends(owed(0).0, owed(0).1);
        book.ends(owed(2).0, owed(2).1);
        assert_eq!(std::fs::metadata(place.path().join(NAME)).unwrap().len(), 0);
    }
}
