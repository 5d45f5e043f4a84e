//! Links that never answer. Whatever their number, they delay neither a new link nor a good one
//! that returns.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::pair::{self, Pair, packet};
use rove_proto::id::LinkId;
use rove_proto::multipath::Mode;
use rove_proto::node::{Command, Link, StreamTo};
use rove_proto::time::{Duration, Instant};

const WIFI: [u8; 4] = [203, 0, 113, 5];
const CABLE: [u8; 4] = [192, 0, 2, 9];
/// Two round trips and 50 ms.
const SOON: Duration = Duration::from_millis(130);
/// Time between the packets of a flow.
const PACE: Duration = Duration::from_millis(5);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A client with links that do not work.
struct Beside {
    pair: Pair,
    dead: u8,
}

fn is_dead(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V4(ip) if ip.octets()[..2] == [10, 200])
}

fn dead_address(number: u8) -> [u8; 4] {
    [10, 200, number, 1]
}

impl Beside {
    /// A session on Wi-Fi beside `dead` dead links, which the kernel prefers.
    fn up(dead: u8, mode: Mode, has_streams: bool) -> Self {
        let mut pair = Pair::new(None);
        pair.admit_client();
        pair.tell_client(Command::SetMode(mode));
        if has_streams {
            let remote = pair::GATEWAY.parse().unwrap();
            let streams = (0..3).map(|method| StreamTo { remote, method }).collect();
            pair.tell_client(Command::SetStreams { peer: pair.gateway_key, streams, alone: false });
        }
        pair.filter =
            Box::new(|datagram| !is_dead(datagram.from.ip()) && !is_dead(datagram.to.ip()));
        let mut beside = Self { pair, dead };
        beside.links(&[WIFI]);
        let key = beside.pair.gateway_key;
        beside.pair.tell_client(Command::Connect(key));
        beside.flow(ms(500));
        beside
    }

    /// The client has its dead links and these behind them.
    fn links(&mut self, alive: &[[u8; 4]]) {
        let dead = (0..self.dead).map(|number| (100 + u32::from(number), dead_address(number)));
        let alive = alive.iter().map(|&address| (u32::from(address[0]), address));
        let link = |(id, address): (u32, [u8; 4])| Link {
            id: LinkId(id),
            addresses: vec![address.into()],
            stands_by: false,
        };
        self.pair.tell_client(Command::SetLinks(dead.chain(alive).map(link).collect()));
    }

    /// Packets in both directions for a while.
    fn flow(&mut self, time: Duration) {
        let pace = PACE.max(time / 500);
        let end = self.pair.now + time;
        while self.pair.now < end {
            self.pair.send(&packet(200, false));
            self.pair.send_back(&packet(200, true));
            self.pair.run(pace);
        }
    }

    /// How long after `since` a link carries data in both directions.
    fn carries_after(&mut self, since: Instant, link: [u8; 4]) -> Option<Duration> {
        let link = Some(LinkId(u32::from(link[0])));
        for _ in 0..400 {
            let before = self.pair.now;
            let counts = (self.pair.gateway_inner.len(), self.pair.client_inner.len());
            self.flow(PACE);
            let paths = self.pair.client.status(self.pair.gateway_key).unwrap().paths;
            let carries =
                paths.iter().any(|path| path.link == link && (path.in_use || path.is_shared));
            let arrived =
                self.pair.gateway_inner.len() > counts.0 && self.pair.client_inner.len() > counts.1;
            if carries && arrived {
                return Some(before.saturating_since(since));
            }
        }
        None
    }
}

/// Other addresses that the client can probe. Fewer make fewer paths, more make more turns.
const KINDS: [(Mode, bool); 3] = [(Mode::Backup, false), (Mode::Full, false), (Mode::Full, true)];

/// Data flows in both directions within [`SOON`] after `change`, beside any number of dead links,
/// however long these were probed.
fn carries_soon(name: &str, link: [u8; 4], change: fn(&mut Beside)) {
    for (mode, has_streams) in KINDS {
        for dead in [0, 2, 14] {
            for waited in [ms(3_000), ms(70_000), ms(600_000)] {
                let mut beside = Beside::up(dead, mode, has_streams);
                beside.flow(waited);
                change(&mut beside);
                let took = beside.carries_after(beside.pair.now, link);
                let what = format!("{name}: {mode:?}, streams {has_streams}, {dead} dead links");
                assert!(took.is_some_and(|took| took <= SOON), "{what} for {waited:?}: {took:?}");
            }
        }
    }
}

#[test]
fn a_link_that_comes_carries_at_once() {
    carries_soon("comes", CABLE, |beside| beside.links(&[CABLE, WIFI]));
}

#[test]
fn a_move_beside_dead_links_takes_as_long_as_without() {
    carries_soon("moves", CABLE, |beside| {
        beside.links(&[CABLE]);
        beside.pair.cut(WIFI);
    });
}

#[test]
fn a_good_link_that_returns_carries_at_once() {
    carries_soon("returns", WIFI, |beside| {
        beside.links(&[]);
        beside.pair.cut(WIFI);
        beside.flow(ms(5_000));
        beside.links(&[WIFI]);
    });
}

#[test]
fn a_second_return_is_as_quick() {
    carries_soon("returns again", WIFI, |beside| {
        for (links, other) in [([CABLE], WIFI), ([WIFI], CABLE), ([CABLE], WIFI)] {
            beside.links(&links);
            beside.pair.cut(other);
            beside.flow(ms(20_000));
        }
        beside.links(&[WIFI]);
        beside.pair.cut(CABLE);
    });
}

#[test]
fn each_of_many_dead_links_is_asked_again_and_one_that_wakes_up_is_found() {
    let mut beside = Beside::up(14, Mode::Full, false);
    beside.flow(ms(120_000));
    let before = beside.pair.sent_from.clone();
    beside.flow(ms(300_000));
    for number in 0..14 {
        let count = |from: &BTreeMap<IpAddr, usize>| {
            from.get(&IpAddr::from(dead_address(number))).copied().unwrap_or(0)
        };
        let asked = count(&beside.pair.sent_from) - count(&before);
        assert!((1..=300).contains(&asked), "link {number} was asked {asked} times");
    }
    beside.pair.filter = Box::new(|datagram| {
        let is_other = |ip| is_dead(ip) && ip != IpAddr::from(dead_address(9));
        !is_other(datagram.from.ip()) && !is_other(datagram.to.ip())
    });
    let link = Some(LinkId(109));
    let mut waited = 0;
    loop {
        let paths = beside.pair.client.status(beside.pair.gateway_key).unwrap().paths;
        if paths.iter().any(|path| path.link == link && (path.in_use || path.is_shared)) {
            break;
        }
        assert!(waited < 300, "a link that works was not found within {waited} s");
        beside.flow(ms(1_000));
        waited += 1;
    }
}
