//! What a gateway tells its clients besides their leases: where it is, and where it leads.
//!
//! The gateway moves and says so: ahead of the move on every session, or afterwards from where it
//! is. Its clients follow (docs/spec/wire.md, section 6).
//!
//! Make before break: the path in use carries until the one to the new address has answered, so a
//! move that is announced ahead loses nothing. Knows nothing of why a gateway moves or which of its
//! addresses work: the shell says the one, challenges the other.

use std::net::SocketAddr;

use super::paths::candidate::Candidate;
use super::{Context, Event, Side, Tunnel};
use crate::id::Transport;
use crate::outbox::Route;
use crate::path::Path;
use crate::session::index::EpochId;
use crate::wire::control::{Control, Prefix};

impl Tunnel {
    /// Gateway: tells the client where this node is reached, if it was not told yet. One such
    /// message is under way at a time: to whom cannot be reached, only the last word is worth
    /// telling.
    pub(crate) fn announce(&mut self, cx: &mut Context<'_>) {
        let due = self.announced != cx.announced.version() && !self.control.announces();
        if !self.at_gateway() || self.epochs.current.is_none() || !due {
            return;
        }
        if self.control.push(cx.now, &Control::Addresses(cx.announced.addresses().to_vec())) {
            self.announced = cx.announced.version();
            self.send_control(cx);
        }
    }

    /// Gateway: tells it in any case, because it may be another process that listens now.
    pub(crate) fn announce_anew(&mut self, cx: &mut Context<'_>) {
        self.announced = 0;
        self.announce(cx);
    }

    /// Client: the gateway is reached at these from now on.
    pub(crate) fn take_addresses(&mut self, cx: &mut Context<'_>, addresses: Vec<SocketAddr>) {
        let Side::Client(connector) = &mut self.side else { return };
        if connector.announced != addresses {
            connector.announced.clone_from(&addresses);
            cx.tell(Event::Announced { peer: self.key, addresses });
        }
        self.note_home();
        self.follow(cx);
        self.leave_retired(cx);
        self.begin_turns();
        self.stand_by(cx);
    }

    /// Gateway: tells the client which networks beside the Internet it may reach by now.
    pub(crate) fn tell_networks(&mut self, cx: &mut Context<'_>, networks: Vec<Prefix>) {
        let may_tell = self.at_gateway() && self.epochs.current.is_some();
        if may_tell && self.control.push(cx.now, &Control::Networks(networks)) {
            self.send_control(cx);
        }
    }

    /// Client: these are the gateway's networks from now on.
    pub(crate) fn take_networks(
        &mut self,
        cx: &mut Context<'_>,
        epoch: EpochId,
        networks: Vec<Prefix>,
    ) {
        let Side::Client(connector) = &mut self.side else { return };
        let before = connector.networks.replace(epoch, networks);
        if before != connector.networks.known() {
            let networks = connector.networks.known().to_vec();
            cx.tell(Event::Networks { peer: self.key, networks });
        }
    }

    /// Client: the gateway has said all that it says before a lease. With no networks to name, it
    /// does not say so.
    pub(crate) fn end_networks(&mut self, cx: &mut Context<'_>, epoch: EpochId) {
        let Side::Client(connector) = &self.side else { return };
        if !connector.networks.is_told_in(epoch) {
            self.take_networks(cx, epoch, Vec::new());
        }
    }

    /// Client: goes to where the gateway wants to be reached, unless it is there.
    fn follow(&mut self, cx: &mut Context<'_>) {
        let Some(target) = self.target() else { return };
        let to_it = |path: &&Path| {
            path.route.remote == target.remote
                && path.link == Some(target.link)
                && path.route.local == Some(target.local)
                && !path.is_gone()
                && path.transport() == Transport::Udp
        };
        let there = self.paths.iter().find(to_it).map(|path| (path.id, path.is_able()));
        match there {
            Some((id, true)) => self.activate(cx, id),
            // It has not answered yet, or not of late: when it does, data goes by it.
            Some((id, false)) => self.ask(cx, id),
            None => {
                if let Some(id) = self.open_path(cx, target) {
                    self.ask(cx, id);
                }
            }
        }
    }

    /// Client: the way that the gateway asks for, by the link in use; `None` if that is in use.
    fn target(&self) -> Option<Candidate> {
        let Side::Client(connector) = &self.side else { return None };
        let path = self.paths.active().filter(|path| path.transport() == Transport::Udp)?;
        let Route { local, remote, .. } = path.route;
        let wanted = connector.announced_for(remote)?;
        let candidate = Candidate { link: path.link?, local: local?, remote: wanted, stream: None };
        (wanted != remote).then_some(candidate)
    }

    /// Client: a path to an address that the gateway has left for good is of no more use.
    fn leave_retired(&mut self, cx: &mut Context<'_>) {
        let Side::Client(connector) = &self.side else { return };
        let active = self.paths.active_id();
        let known: Vec<_> = connector.remotes().collect();
        let retired = |path: &&Path| Some(path.id) != active && !known.contains(&path.route.remote);
        let retired: Vec<_> = self.paths.iter().filter(retired).map(|path| path.id).collect();
        for id in retired {
            self.remove_path(cx, id);
        }
    }
}
