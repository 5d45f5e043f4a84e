//! What a gateway tells its clients besides their leases: where it is, and where it leads.
//!
//! The gateway moves and says so: ahead of the move on every session, or afterwards from where it
//! is. Its clients follow (docs/spec/wire.md#moving).
//!
//! Make before break: the path in use carries until the one to the new address has answered, so a
//! move that is announced ahead loses nothing. Knows nothing of why a gateway moves or which of its
//! addresses work: the shell says the one, challenges the other.

use std::net::SocketAddr;

use super::{Context, Event, Side, Tunnel};
use crate::session::index::EpochId;
use crate::wire::control::{Control, Prefix};

impl Tunnel {
    /// Gateway: tells the client where this node is reached, if it was not told yet. One such
    /// message is under way at a time: to whom cannot be reached, only the last word is worth
    /// telling.
    pub(crate) fn announce(&mut self, cx: &mut Context<'_>) {
        let due = self.announced != cx.announced.version() && !self.control.announces();
        if !self.paths.at_gateway() || self.epochs.current.is_none() || !due {
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
        let is_news = self.manage(cx, |paths, cx| paths.take_addresses(cx, &addresses));
        if is_news {
            cx.tell(Event::Announced { peer: self.key, addresses });
        }
    }

    /// Gateway: tells the client which networks beside the Internet it may reach by now.
    pub(crate) fn tell_networks(&mut self, cx: &mut Context<'_>, networks: Vec<Prefix>) {
        let may_tell = self.paths.at_gateway() && self.epochs.current.is_some();
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
        let Side::Client(connector) = &mut self.paths.side else { return };
        let before = connector.granted.replace_networks(epoch, networks);
        if before != connector.granted.networks() {
            let networks = connector.granted.networks().to_vec();
            cx.tell(Event::Networks { peer: self.key, networks });
        }
    }

    /// Client: the gateway has said all that it says before a lease. With no networks to name, it
    /// does not say so.
    pub(crate) fn end_networks(&mut self, cx: &mut Context<'_>, epoch: EpochId) {
        let Side::Client(connector) = &self.paths.side else { return };
        if !connector.granted.are_networks_told_in(epoch) {
            self.take_networks(cx, epoch, Vec::new());
        }
    }
}
