//! The path manager alone, against the table of docs/spec/paths.md#path-selection: events go in,
//! the path in use and the wishes come out. No session, no keys, no datagrams.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use super::candidate::Candidate;
use super::connector::Connector;
use super::{PathManager, Side, Wish};
use crate::codec::compression::Coder;
use crate::context::Announced;
use crate::context::{Config, Context, Event, Link};
use crate::crypto::{RestartKey, SeededRng, StaticSecret};
use crate::error::Drops;
use crate::flow::Memory;
use crate::id::{LinkId, SocketId};
use crate::multipath::Mode;
use crate::outbox::{Outbox, Route};
use crate::path::{Path, PathId, Trust};
use crate::peer::pair;
use crate::session::index::IndexTable;
use crate::time::{Duration, Instant};

const PAGE: &str = include_str!("../../../../docs/spec/paths.md");
const A: PathId = PathId(1);
const B: PathId = PathId(2);
/// Long after the paths were proven, and heard of just now.
const NOW: Duration = Duration::from_secs(100);
/// Room for all paths.
const INDICES: usize = 16;

/// A path manager, and what its context borrows.
struct Scene {
    paths: PathManager,
    config: Config,
    announced: Announced,
    restart_key: RestartKey,
    rng: SeededRng,
    indices: IndexTable,
    next_socket: u32,
    out: Outbox,
    events: VecDeque<Event>,
    drops: Drops,
    memory: Memory,
    coder: Coder,
    now: Instant,
}

fn gateway(host: u8) -> SocketAddr {
    SocketAddr::from(([198, 51, 100, host], 443))
}

fn link(id: u8) -> Link {
    let addresses = vec![IpAddr::from([192, 0, 2, id])];
    Link { id: LinkId(id.into()), addresses, stands_by: false }
}

fn way(id: u8) -> Candidate {
    let Link { id, addresses, .. } = link(id);
    Candidate { link: id, local: addresses[0], remote: gateway(1), stream: None }
}

impl Scene {
    fn new(side: Side) -> Self {
        let mut rng = SeededRng::new(1);
        let secret = StaticSecret::generate(&mut rng);
        let mut config = pair::config(&secret);
        config.mode = Mode::Backup;
        Self {
            paths: PathManager::new(side),
            config,
            announced: Announced::default(),
            restart_key: RestartKey::of(&secret),
            rng,
            indices: IndexTable::default(),
            next_socket: 0,
            out: Outbox::new(),
            events: VecDeque::new(),
            drops: Drops::default(),
            memory: Memory::new(1 << 20),
            coder: Coder::default(),
            now: Instant::ZERO + NOW,
        }
    }

    /// A client with path A by its first link, in use, and path B by its second one. Both are
    /// proven, and were heard of just now.
    fn client() -> Self {
        let connector = Connector::new(vec![gateway(1)], 1, None, Vec::new(), 7);
        let mut scene = Self::new(Side::Client(Box::new(connector)));
        scene.act(|paths, cx| paths.links_changed(cx, &[link(1), link(2)]));
        scene.act(|paths, _| paths.indices.are(INDICES, std::iter::empty(), std::iter::empty()));
        for id in [1, 2] {
            scene.act(|paths, cx| assert!(paths.open_path(cx, way(id)).is_some()));
        }
        scene.prove(A);
        scene.prove(B);
        scene.act(|paths, cx| paths.activate(cx, A));
        scene
    }

    /// A gateway whose client is reached by path A, in use, and by path B. Both are proven.
    fn gateway() -> Self {
        let mut scene = Self::new(Side::Gateway { lease: pair::lease() });
        for id in [1, 2] {
            scene.act(|paths, cx| {
                let local = Some(gateway(1).ip());
                let remote = SocketAddr::new(way(id).local, 40_000);
                let route = Route { socket: SocketId(0), local, remote };
                let name = paths.list.next_id();
                paths.add_path(cx, Path::new(name, route, None, cx.now, Trust::Proven));
            });
        }
        scene.prove(A);
        scene.prove(B);
        scene.act(|paths, cx| paths.activate(cx, A));
        scene
    }

    /// Something happens. Returns what follows, in words.
    fn act(&mut self, event: impl FnOnce(&mut PathManager, &mut Context<'_>)) -> String {
        let mut cx = Context {
            now: self.now,
            config: &self.config,
            announced: &self.announced,
            restart_key: &self.restart_key,
            rng: &mut self.rng,
            indices: &mut self.indices,
            next_socket: &mut self.next_socket,
            out: &mut self.out,
            events: &mut self.events,
            drops: &mut self.drops,
            memory: &mut self.memory,
            coder: &mut self.coder,
        };
        event(&mut self.paths, &mut cx);
        assert!(self.out.is_empty(), "the path manager sends nothing");
        let mut words = Vec::new();
        while let Some(wish) = self.paths.wishes.pop() {
            words.extend(word(&wish));
        }
        if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
    }

    fn path(&mut self, id: PathId) -> &mut Path {
        self.paths.list.get_mut(id).unwrap()
    }

    /// The path answered just now.
    fn prove(&mut self, id: PathId) {
        let now = self.now;
        let path = self.path(id);
        path.note_handshake(now, now);
        let (link, local) = (path.link, path.route.local);
        if let Some(connector) = self.paths.side.client_mut() {
            connector.unanswered.note_answer(link, local);
        }
    }

    /// What a row says of the paths before its event.
    fn prepare(&mut self, before: &str) {
        let now = self.now;
        match before {
            "" | "at a gateway" => {}
            "B has a share" => self.path(B).set_shared(now, true),
            "A is silent" => self.path(A).move_to_silent(now),
            "B is silent" => self.path(B).move_to_silent(now),
            "there is no B" => drop(self.act(|paths, cx| paths.remove_path(cx, B))),
            "A was distrusted" => drop(self.act(|paths, cx| paths.distrust(cx, A))),
            other => panic!("nothing is prepared for \"{other}\""),
        }
    }

    /// The event of a row.
    fn happen(&mut self, event: &str) -> String {
        let socket = |scene: &Self, id| scene.paths.list.get(id).unwrap().route.socket;
        match event {
            "A is overdue" => self.act(|paths, cx| paths.take_overdue(cx, vec![A])),
            "B is overdue" => self.act(|paths, cx| paths.take_overdue(cx, vec![B])),
            "the link of A is gone" => self.act(|paths, cx| paths.links_changed(cx, &[link(2)])),
            "the link of B is gone" => self.act(|paths, cx| paths.links_changed(cx, &[link(1)])),
            "a third link appears" => {
                let links = [link(1), link(2), link(3)];
                self.act(|paths, cx| paths.links_changed(cx, &links))
            }
            "the link of B becomes the best" => {
                self.act(|paths, cx| paths.links_changed(cx, &[link(2), link(1)]))
            }
            "the socket of A fails" => {
                let socket = socket(self, A);
                self.act(|paths, cx| paths.socket_failed(cx, socket))
            }
            "A loses much" => self.act(|paths, cx| paths.distrust(cx, A)),
            "time to trust A again" => {
                self.now = self.paths.connector().unwrap().distrusted.due().unwrap();
                self.prove(A);
                self.act(PathManager::trust_again)
            }
            "the gateway announces another address" => {
                self.act(|paths, cx| assert!(paths.take_addresses(cx, &[gateway(2)])))
            }
            "a packet is to leave by A" => self.act(|paths, cx| paths.ask_if_silent(cx.now, A)),
            "the client prefers B" => self.act(|paths, cx| paths.activate(cx, B)),
            "the gateway's local address is gone" => {
                self.act(|paths, cx| paths.locals_changed(cx, &[gateway(9).ip()]))
            }
            other => panic!("no event is called \"{other}\""),
        }
    }
}

fn name(id: PathId) -> char {
    ['?', 'A', 'B', 'C', 'D', 'E'][id.0 as usize]
}

/// A wish as the table words it. Reports about the gateway's addresses and indices are left out.
fn word(wish: &Wish) -> Option<String> {
    Some(match wish {
        Wish::Ask(id) => format!("challenge {}", name(*id)),
        Wish::AskAll => "send due challenges".to_owned(),
        Wish::Challenge(id, size) => format!("challenge {} with {size} bytes", name(*id)),
        Wish::FirstFlight(id) => format!("first flight on {}", name(*id)),
        Wish::Pad(id) => format!("pad {}", name(*id)),
        Wish::SearchMtu(id) => format!("probe MTU of {}", name(*id)),
        Wish::Carry => "send waiting packets".to_owned(),
        Wish::Activated { .. } => "report move".to_owned(),
        Wish::Forgive(id) => format!("forgive {}", name(*id)),
        Wish::Lost(id) => format!("last feedback about {}", name(*id)),
        Wish::Removed(path) => format!("remove {}", name(path.id)),
        Wish::Connect => "handshake".to_owned(),
        Wish::Reconnect => "handshake at once".to_owned(),
        Wish::Attempt => "attempt".to_owned(),
        Wish::TellTaken | Wish::Home => return None,
    })
}

/// The rows under a heading, without its head.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let part = PAGE.split("\n## ").find_map(|part| part.strip_prefix(heading)).unwrap();
    let lines = part.lines().filter(|line| line.starts_with('|')).skip(2);
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn each_row_of_the_table_is_what_the_path_manager_does() {
    let rows = rows("Path selection\n");
    assert!(rows.len() >= 20, "{} rows", rows.len());
    let mut wrong = Vec::new();
    for row in rows {
        let [number, event, before, in_use, follows] = row[..] else { panic!("{row:?}") };
        let mut scene =
            if before.ends_with("at a gateway") { Scene::gateway() } else { Scene::client() };
        scene.prepare(before);
        let followed = scene.happen(event);
        let now_in_use = scene.paths.list.active_id().map(name);
        let now_in_use = now_in_use.map_or_else(|| "none".to_owned(), String::from);
        if (now_in_use.as_str(), followed.as_str()) != (in_use, follows) {
            wrong.push(format!("| {number} | {event} | {before} | {now_in_use} | {followed} |"));
        }
    }
    assert!(wrong.is_empty(), "the path manager does this instead:\n{}", wrong.join("\n"));
}
