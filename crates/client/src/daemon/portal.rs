//! What a client does about captive portals: asks by links by which the core wants a path that does
//! not come, says where to sign in, and goes on at once when somebody has.

use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Instant;

use rove_host::problems::Finding;
use rove_host::resolve;
use rove_os::links::Link;
use rove_os::plan::MARK;
use rove_os::portal::{self, Answer, Question};
use rove_proto::node::{PathStatus, PeerState, PeerStatus};
use rove_proto::path::{Health, Trust};

use super::Client;
use crate::config::{LinkMode, PathsConfig, TransportChoice};
use crate::message::{Message, Own};
use crate::portals::{Change, Portals};
use crate::ranking::Standing;
use crate::status;

impl Client<'_> {
    /// Something about links, session or configuration changed.
    pub(super) fn suspect_portals(&mut self) {
        suspect(&mut self.portals, self.config.portal_check, Instant::now());
    }

    /// Asks by the links by which no path comes, if it is time.
    pub(super) fn look_for_portals(&mut self) {
        let now = Instant::now();
        if self.portals.due().is_none_or(|due| due > now) {
            return;
        }
        let snapshot = self.data.status(Some(vec![self.gateway]));
        let session = snapshot.as_ref().and_then(|snapshot| snapshot.peers.first());
        // Neither one that is away on purpose, nor one that leads nowhere.
        let ways_out = self.there().filter(|ranked| ranked.standing != Standing::NoRoute);
        let ways_out: Vec<u32> = ways_out.map(|ranked| ranked.link.index).collect();
        let wanted =
            session.map_or_else(Vec::new, |s| wanted_in_vain(s, self.config.paths, &ways_out));
        for index in self.portals.look(&wanted, now) {
            let asked = self.links.ranked().iter().find(|ranked| ranked.link.index == index);
            let started = asked.is_some_and(|ranked| self.ask_by(&ranked.link));
            if !started {
                self.portals.answered(index, Answer::Nothing, now);
            }
        }
    }

    /// Asks by one link, in a thread of its own; whether that is under way.
    fn ask_by(&self, link: &Link) -> bool {
        let has = |v4: bool| link.addresses.iter().any(|net| net.addr().is_ipv4() == v4);
        let mut reached =
            self.gateway_at.remotes().iter().map(|at| at.ip()).filter(|ip| has(ip.is_ipv4()));
        // Portals that intercept IPv4 alone are many; those of IPv6 alone are none.
        let Some(gateway) = reached.clone().find(IpAddr::is_ipv4).or_else(|| reached.next()) else {
            return false;
        };
        let host = resolve::first_name(self.gateway_at.endpoints());
        let host = host.map_or_else(|| gateway.to_string(), str::to_owned);
        ask(link.clone(), gateway, host, self.inbox.clone())
    }

    /// A question was answered.
    pub(super) fn take_portal(&mut self, link: u32, answer: Answer) {
        match self.portals.answered(link, answer, Instant::now()) {
            Change::Found => {
                for portal in self.portals_told() {
                    tracing::warn!("{portal}");
                }
            }
            Change::Gone => {
                tracing::info!("a captive portal is gone");
                // Told of the links again, the core asks by them at once.
                self.tell_links();
            }
            Change::None => {}
        }
    }

    /// The portals that hold links now.
    pub(super) fn portals_told(&self) -> Vec<status::Portal> {
        let name = |index: u32| self.links.all().iter().find(|link| link.index == index);
        let told = self.portals.pages().filter_map(|(index, page)| {
            let link = name(index)?.name.clone();
            Some(status::Portal { index, link, page: page.to_owned() })
        });
        told.collect()
    }

    /// Whether this client itself keeps a browser from the page of a portal.
    pub(super) fn keeps_browsers_in(&self) -> bool {
        let everything = self.lease.is_some() && self.config.route.is_empty();
        everything || self.applier.kill_switch_stands()
    }
}

/// A portal as a problem: what a person can do about it. `keeps_browsers_in` is whether this client
/// itself keeps a browser from its page, `kill_switch` whether the kill switch stands.
pub(super) fn finding(
    portal: &status::Portal,
    keeps_browsers_in: bool,
    kill_switch: bool,
) -> Finding {
    let page = &portal.page;
    let cure = if keeps_browsers_in {
        let lifted = if kill_switch { ", which also lifts the kill switch" } else { "" };
        format!(
            "run `rove down`{lifted}: from then on this host is on the network without a tunnel. \
             Sign in at {page} with a browser, then run `rove up`. Or use another network: the \
             session goes on there, and open connections with it"
        )
    } else {
        format!("sign in at {page} with a browser; then the session goes on by itself")
    };
    Finding {
        part: "other",
        what: format!("the network of {} lets nothing through before a sign-in", portal.link),
        cause: "it has a captive portal".to_owned(),
        cure,
    }
}

/// Looks again soon, or knows of no portal any more if nobody is to look.
fn suspect(portals: &mut Portals, is_looked_for: bool, now: Instant) {
    if is_looked_for {
        portals.changed(now);
    } else {
        *portals = Portals::default();
    }
}

/// Whether something proved that the path carries, and nothing speaks against it.
pub(super) fn carries(path: &PathStatus) -> bool {
    path.trust == Trust::Proven && path.health == Health::Good && path.heard_at.is_some()
}

/// Of the links with a way out those by which the core wants a path that does not come; none where
/// the gateway said no, and while a session rests. Where one link carries, in mode `single` and by
/// MPTCP, nothing is wanted of the others as long as there is one.
fn wanted_in_vain(session: &PeerStatus, paths: PathsConfig, ways_out: &[u32]) -> Vec<u32> {
    let is_over = matches!(session.state, PeerState::Resting | PeerState::Down(_));
    if session.refused.is_some() || is_over {
        return Vec::new();
    }
    let link_of = |path: &PathStatus| path.link.map(|link| link.0);
    let carrying = session.paths.iter().filter(|path| carries(path)).filter_map(link_of);
    let carrying: Vec<u32> = carrying.collect();
    let is_alone = paths.mode == LinkMode::Single || paths.transport == TransportChoice::Mptcp;
    let in_use = session.paths.iter().find(|path| path.in_use).and_then(link_of);
    // Without one that is still there the core asks by all of them.
    let only = in_use.filter(|link| is_alone && ways_out.contains(link));
    let is_wanted = |link: &u32| only.is_none_or(|only| only == *link);
    let wanted = ways_out.iter().copied().filter(is_wanted);
    wanted.filter(|link| !carrying.contains(link)).collect()
}

fn ask(link: Link, gateway: IpAddr, host: String, to: SyncSender<Message>) -> bool {
    let spawned = thread::Builder::new().name("rove-portal".to_owned()).spawn(move || {
        let (interface, mark) = (link.name.as_str(), Some(MARK));
        let answer = portal::ask(Question { interface, mark, gateway, host: &host });
        let answer = answer.unwrap_or_else(|error| {
            tracing::debug!(%error, "a captive portal cannot be looked for");
            Answer::Nothing
        });
        // The node may have ended meanwhile.
        drop(to.send(Message::Own(Own::Portal { link: link.index, answer })));
    });
    spawned.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    use rove_host::samples::{NOW, path, peer};
    use rove_proto::id::LinkId;

    const CABLE: u32 = 2;
    const WIFI: u32 = 3;
    const MODEM: u32 = 4;
    const ALL: [u32; 3] = [CABLE, WIFI, MODEM];
    const SILENT: Health = Health::Silent { since: NOW };

    fn by(link: u32, in_use: bool, health: Health) -> PathStatus {
        PathStatus { link: Some(LinkId(link)), in_use, ..path(health, Some(5), None) }
    }

    fn with(mode: LinkMode, transport: TransportChoice) -> PathsConfig {
        PathsConfig { mode, transport, ..PathsConfig::default() }
    }

    fn alone() -> [PathsConfig; 2] {
        [
            with(LinkMode::Single, TransportChoice::Auto),
            with(LinkMode::Full, TransportChoice::Mptcp),
        ]
    }

    fn together() -> [PathsConfig; 2] {
        [LinkMode::Full, LinkMode::Backup].map(|mode| with(mode, TransportChoice::Auto))
    }

    #[test]
    fn where_each_link_is_to_have_a_path_those_without_are_asked() {
        for paths in together() {
            let up = peer(PeerState::Up, vec![by(CABLE, true, Health::Good)]);
            assert_eq!(wanted_in_vain(&up, paths, &ALL), [WIFI, MODEM]);
            let one_is_dead = vec![by(CABLE, true, Health::Good), by(WIFI, false, SILENT)];
            let one_is_dead = peer(PeerState::Up, one_is_dead);
            assert_eq!(wanted_in_vain(&one_is_dead, paths, &[CABLE, WIFI]), [WIFI]);
        }
    }

    #[test]
    fn where_one_link_carries_nothing_is_asked_by_others() {
        for paths in alone() {
            let up = peer(PeerState::Up, vec![by(CABLE, true, Health::Good)]);
            assert_eq!(wanted_in_vain(&up, paths, &ALL), [0; 0]);
            let dead = peer(PeerState::Suspended, vec![by(CABLE, true, SILENT)]);
            assert_eq!(wanted_in_vain(&dead, paths, &ALL), [CABLE], "the one in use");
        }
    }

    #[test]
    fn where_none_is_in_use_the_core_asks_by_all() {
        for paths in alone().into_iter().chain(together()) {
            let new = peer(PeerState::Unestablished, Vec::new());
            assert_eq!(wanted_in_vain(&new, paths, &ALL), ALL);
            let gone = peer(PeerState::Suspended, vec![by(CABLE, true, SILENT)]);
            assert_eq!(wanted_in_vain(&gone, paths, &[WIFI]), [WIFI], "it was pulled out");
        }
    }

    #[test]
    fn who_rests_or_was_told_no_asks_nothing() {
        use rove_proto::crypto::Status;
        use rove_proto::error::CloseCode;
        for paths in alone().into_iter().chain(together()) {
            for state in [PeerState::Resting, PeerState::Down(CloseCode::Requested)] {
                assert_eq!(wanted_in_vain(&peer(state, Vec::new()), paths, &ALL), [0; 0]);
            }
            let refused = Some(Status::Revoked);
            let refused = PeerStatus { refused, ..peer(PeerState::Unestablished, Vec::new()) };
            assert_eq!(wanted_in_vain(&refused, paths, &ALL), [0; 0]);
        }
    }

    #[test]
    fn who_does_not_look_any_more_forgets_what_was_under_way() {
        let (mut portals, now) = (Portals::default(), Instant::now());
        suspect(&mut portals, true, now);
        let later = now + Duration::from_secs(5);
        assert_eq!(portals.look(&ALL, later), ALL);
        let page = "http://192.0.2.1/".to_owned();
        portals.answered(WIFI, Answer::Portal { page: page.clone() }, later);
        suspect(&mut portals, false, later);
        assert_eq!((portals.due(), portals.pages().count()), (None, 0));
        assert_eq!(portals.answered(MODEM, Answer::Portal { page }, later), Change::None);
        suspect(&mut portals, true, later);
        assert!(portals.due().is_some());
    }
}
