//! What a client does about captive portals: asks by links that carry nothing, says where to sign
//! in, and goes on at once when somebody has.

use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::thread;
use std::time::Instant;

use rove_os::links::Link;
use rove_os::plan::MARK;
use rove_os::portal::{self, Answer, Question};
use rove_proto::node::{PathStatus, PeerState, PeerStatus};
use rove_proto::path::{Health, Trust};

use super::Client;
use crate::daemon::message::Message;
use crate::daemon::portals::Change;
use crate::daemon::ranking::Standing;
use crate::daemon::{resolve, status};

impl Client<'_> {
    /// Something about links or session changed.
    pub(super) fn suspect_portals(&mut self) {
        if self.config.portal_check {
            self.portals.changed(Instant::now());
        }
    }

    /// Asks by the links that carry nothing, if it is time.
    pub(super) fn look_for_portals(&mut self) {
        let now = Instant::now();
        if self.portals.due().is_none_or(|due| due > now) {
            return;
        }
        let snapshot = self.data.status(Some(vec![self.gateway]));
        let session = snapshot.as_ref().and_then(|snapshot| snapshot.peers.first());
        let silent = session.map_or_else(Vec::new, |session| self.silent_links(session));
        for index in self.portals.look(&silent, now) {
            let asked = self.ranked.iter().find(|ranked| ranked.link.index == index);
            let started = asked.is_some_and(|ranked| self.ask_by(&ranked.link));
            if !started {
                self.portals.answered(index, Answer::Nothing, now);
            }
        }
    }

    /// The links with a way out by which nothing of the gateway's comes; none where it said no.
    fn silent_links(&self, session: &PeerStatus) -> Vec<u32> {
        if session.refused.is_some() || matches!(session.state, PeerState::Down(_)) {
            return Vec::new();
        }
        let carries = |path: &&PathStatus| {
            path.trust == Trust::Proven && path.health == Health::Good && path.heard_at.is_some()
        };
        let carrying = session.paths.iter().filter(carries).filter_map(|path| path.link);
        let carrying: Vec<u32> = carrying.map(|link| link.0).collect();
        let ways_out = self.ranked.iter().filter(|ranked| ranked.standing != Standing::NoRoute);
        ways_out.map(|ranked| ranked.link.index).filter(|link| !carrying.contains(link)).collect()
    }

    /// Asks by one link, in a thread of its own; whether that is under way.
    fn ask_by(&self, link: &Link) -> bool {
        let has = |v4: bool| link.addresses.iter().any(|net| net.addr().is_ipv4() == v4);
        let mut reached = self.remotes.iter().map(|at| at.ip()).filter(|ip| has(ip.is_ipv4()));
        // Portals that intercept IPv4 alone are many; those of IPv6 alone are none.
        let Some(gateway) = reached.clone().find(IpAddr::is_ipv4).or_else(|| reached.next()) else {
            return false;
        };
        let host = resolve::first_name(&self.endpoints);
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
        let name = |index: u32| self.links.iter().find(|link| link.index == index);
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

fn ask(link: Link, gateway: IpAddr, host: String, to: SyncSender<Message>) -> bool {
    let spawned = thread::Builder::new().name("rove-portal".to_owned()).spawn(move || {
        let (interface, mark) = (link.name.as_str(), Some(MARK));
        let answer = portal::ask(Question { interface, mark, gateway, host: &host });
        let answer = answer.unwrap_or_else(|error| {
            tracing::debug!(%error, "a captive portal cannot be looked for");
            Answer::Nothing
        });
        // The node may have ended meanwhile.
        drop(to.send(Message::Portal { link: link.index, answer }));
    });
    spawned.is_ok()
}
