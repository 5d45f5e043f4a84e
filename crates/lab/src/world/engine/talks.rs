//! Opens connections in a world of random operations.

use super::World;
use crate::emu::{MS, SECOND};
use crate::ground::Pace;
use crate::tcp::{Config, KeepAlive};
use crate::world::connections::{self, Party, Program, Reading, Saying};
use crate::world::host::Power;
use crate::world::host_id::HostId;
use crate::world::talk::{SERVERS, Talk};

/// Connections that are opened in one world.
const OPENED_MAX: u32 = 6;
/// Bytes of a piece where it is not all said at once.
const PIECE: u32 = 1_000;
/// What reads slowly: so many bytes, so often, from a buffer of that size.
const SIP: (usize, u64, u64) = (4_000, 20 * MS, 64 << 10);
/// How an end asks whether the other one is there.
const KEEP_ALIVE: KeepAlive =
    KeepAlive { idle_ns: 60 * SECOND, interval_ns: 10 * SECOND, probes: 5 };

impl World {
    /// A client opens a connection to the server, unless there were many.
    pub(in crate::world) fn connect(&mut self, client: usize, talk: Talk) {
        let number = self.connections.opened();
        if number >= OPENED_MAX || self.hosts[HostId::Client(client)].power != Power::On {
            return;
        }
        let seed = u64::from(number) << 1;
        let (up, down) = ((seed, talk.up), (seed + 1, talk.down));
        #[expect(clippy::cast_possible_truncation, reason = "less than SERVERS")]
        let server = (number % u32::from(SERVERS)) as u8;
        self.open_connection((client, server), |[of_client, of_server]| {
            [party(&talk, of_client, up, down), party(&talk, of_server, down, up)]
        });
    }
}

/// An end, whose program says the stream of a seed and expects that of another.
fn party(talk: &Talk, config: Config, says: (u64, u32), expects: (u64, u32)) -> Party {
    let keep_alive = talk.keeps_alive.then_some(KEEP_ALIVE);
    let mut config = Config { congestion: talk.congestion, keep_alive, ..config };
    let saying = (says.1 > 0).then(|| Saying::new(says.0, says.1.into(), pace(talk)));
    let expected = (expects.1 > 0).then(|| (expects.0, expects.1.into()));
    let mut carrier = connections::Carrier::new(saying, expected);
    if talk.sips {
        let (most, every_ns, buffer) = SIP;
        config.receive_buffer = buffer;
        carrier = carrier.reading(Reading::sips(most, every_ns));
    }
    Party { config, program: Program::Carrier(carrier) }
}

const fn pace(talk: &Talk) -> Pace {
    match talk.every_ms {
        0 => Pace::Full,
        ms => Pace::Pieces { bytes: PIECE, every_ns: ms as u64 * MS },
    }
}
