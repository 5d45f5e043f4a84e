//! Turns: where the gateway has several addresses, a spare link asks them one after the other.

use crate::id::LinkId;
use crate::time::Duration;

/// How long one of the gateway's addresses is asked by a spare link before the next one; twice as
/// long when each has had its turn.
pub(crate) const TURN: Duration = Duration::from_secs(1);
/// How often the turns become longer: to about a minute.
const TURN_DOUBLED: u32 = 6;

/// Which of the gateway's addresses is asked by which spare link.
#[derive(Debug, Default)]
pub(crate) struct Turns(Vec<Turn>);

/// Which of the gateway's addresses has its turn by a spare link, in one family (IPv4 or not).
#[derive(Clone, Copy, Debug)]
struct Turn {
    of: (LinkId, bool),
    number: u32,
}

impl Turns {
    /// How many of the gateway's addresses have had their turn by a link in a family.
    pub(crate) fn number(&self, of: (LinkId, bool)) -> u32 {
        self.0.iter().find(|turn| turn.of == of).map_or(0, |turn| turn.number)
    }

    /// The next address has its turn.
    pub(crate) fn next(&mut self, of: (LinkId, bool)) {
        match self.0.iter_mut().find(|turn| turn.of == of) {
            Some(turn) => turn.number = turn.number.saturating_add(1),
            None => self.0.push(Turn { of, number: 1 }),
        }
    }

    /// The first address has its turn again, by every link.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// How long the `number`th turn of a link lasts that has so many `ways`.
pub(crate) fn turn_time(number: u32, ways: usize) -> Duration {
    let rounds = number / u32::try_from(ways).unwrap_or(u32::MAX).max(1);
    TURN * (1 << rounds.min(TURN_DOUBLED))
}
