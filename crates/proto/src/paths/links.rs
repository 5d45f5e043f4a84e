//! A client's links: data goes by the first that carries, in the order that the shell gives.
//!
//! A path by each of the others is proven ahead (`standby`), so that leaving a link that still
//! carries loses nothing, and being left by one costs a round trip. Knows nothing of why the shell
//! finds one link better than another; what a link did itself is remembered in `trust`.

use std::net::SocketAddr;

use super::plan::is_fresh;
use super::{PathManager, Side, Wish};
use crate::context::{Context, Link, StreamTo};
use crate::id::{SocketId, Transport};
use crate::path::probe::Probes;
use crate::path::{Path, PathId};

impl PathManager {
    /// Client: the usable links are these now. Paths whose link or address went are gone; with
    /// the active one gone the session moves at once.
    pub(crate) fn links_changed(&mut self, cx: &mut Context<'_>, links: &[Link]) {
        let Side::Client(connector) = &mut self.side else { return };
        if !connector
            .candidates
            .links()
            .iter()
            .map(|link| link.id)
            .eq(links.iter().map(|link| link.id))
        {
            // The shell's newest word on its links counts more than what they did before.
            connector.distrusted.forgive();
        }
        connector.set_links(links);
        let still = |path: &&Path| {
            let local = path.route.local;
            links.iter().any(|link| {
                Some(link.id) == path.link
                    && local.is_none_or(|local| link.addresses.contains(&local))
            })
        };
        let gone = self.list.ids(|p| !still(p));
        let shared_was_lost = gone.iter().any(|id| self.list.is_shared(*id));
        for id in gone {
            self.lose_path(id);
        }
        for path in self.list.iter_mut() {
            if path.is_silent() {
                path.probes.hurry(cx.now);
            }
        }
        if !self.indices.has_keys() {
            self.wishes.push(Wish::Reconnect);
        } else if self.list.active().is_none_or(|path| path.is_gone()) {
            let was_on_stream = self.list.is_on_stream();
            self.migrate(cx);
            if was_on_stream {
                // UDP did not work a moment ago, and perhaps does not from here.
                self.wishes.push(Wish::Reconnect);
            }
        } else {
            if shared_was_lost {
                self.say_last_words(cx);
            }
            self.wishes.push(Wish::AskAll);
            let works = |path: &Path| path.is_good();
            if !self.list.active().is_some_and(works) {
                self.try_elsewhere(cx);
            }
        }
        self.side.begin_turns();
        self.take_better(cx);
        self.stand_by(cx);
        self.forget_gone(cx);
        self.ask_new_links();
    }

    /// Client: no path works, and some link was not yet asked because no index was left for a path.
    /// Asks it with a handshake, which needs no index.
    fn ask_new_links(&mut self) {
        let Side::Client(connector) = &self.side else { return };
        let carries = self.list.active().is_some_and(Path::is_able);
        let was_asked = |link| {
            let mut by_it = connector.candidates.udp().filter(|way| way.link == link);
            by_it.any(|way| connector.unanswered.has(&way))
        };
        if !carries && connector.candidates.udp().any(|way| !was_asked(way.link)) {
            self.wishes.push(Wish::Reconnect);
        }
    }

    /// Client: takes the best candidate that is not in use already, proven path or new address.
    pub(crate) fn migrate(&mut self, cx: &mut Context<'_>) {
        if let Some(id) = self.plan().best_proven(self.list.active_id()) {
            let fresh = self.list.get(id).is_some_and(|path| is_fresh(cx.now, path));
            self.activate(cx, id);
            if !fresh {
                // A NAT may have forgotten it: the gateway needs a budget to answer with data.
                self.wishes.push(Wish::Pad(id));
            }
            return;
        }
        if let Some(id) = self.open_next_path(cx) {
            self.list.activate(id);
            self.ask(cx.now, id);
            self.wishes.push(Wish::FirstFlight(id));
            self.wishes.push(Wish::Carry);
        } else {
            // No index is left, or every way was tried: a handshake takes one of its own.
            self.wishes.push(Wish::Connect);
        }
    }

    /// Client: data goes to a better path, if there is one: at once if it was heard of lately, else
    /// when it has answered. The one in use carries until then.
    pub(crate) fn take_better(&mut self, cx: &mut Context<'_>) {
        let is_good = |path: &&Path| path.is_good();
        let better = self.plan().best_proven(None).filter(|&id| self.plan().is_better(id));
        if self.at_gateway() || self.list.active().is_none_or(|path| !is_good(&path)) {
            return;
        }
        let Some(path) = better.and_then(|id| self.list.get(id)) else { return };
        if is_fresh(cx.now, path) {
            self.activate(cx, path.id);
        } else {
            self.ask(cx.now, path.id);
        }
    }

    /// Client: the path `id`, in use, does badly. If another link carries, data goes there, and
    /// comes back after a while.
    pub(crate) fn distrust(&mut self, cx: &mut Context<'_>, id: PathId) {
        let Some(path) = self.list.get(id).filter(|_| self.list.active_id() == Some(id)) else {
            return;
        };
        let other = self.plan().best_proven(Some(id)).and_then(|id| self.list.get(id));
        let elsewhere = other
            .is_some_and(|other| other.link != path.link && other.transport() <= path.transport());
        if let Some(link) = path.link.filter(|_| elsewhere)
            && let Side::Client(connector) = &mut self.side
        {
            connector.distrusted.note(cx.now, link);
            self.take_better(cx);
        }
    }

    /// Links whose time is over may carry again.
    pub(crate) fn trust_again(&mut self, cx: &mut Context<'_>) {
        if let Side::Client(connector) = &mut self.side
            && connector.distrusted.trust_again(cx.now)
        {
            self.take_better(cx);
            self.stand_by(cx);
        }
    }

    /// A socket of this node has failed: the paths by it are gone, and attempts by it will not be
    /// answered.
    pub(crate) fn socket_failed(&mut self, cx: &mut Context<'_>, socket: SocketId) {
        let lost = self.list.ids(|path| path.route.socket == socket);
        let beside =
            self.list.iter().filter(|path| lost.contains(&path.id) && self.plan().is_spare(path));
        let beside: Vec<_> = beside
            .filter_map(|path| Some((path.link?, path.route.local?.is_ipv4())))
            .filter(|_| socket.transport() == Transport::Stream)
            .collect();
        for &id in &lost {
            self.lose_path(id);
        }
        if let Side::Client(connector) = &mut self.side {
            connector.forget_socket(cx.now, socket, cx.indices);
        }
        if !lost.is_empty() && self.list.active().is_none_or(|path| path.is_gone()) {
            self.migrate(cx);
        }
        if socket.transport() == Transport::Stream {
            // What a UDP socket could not do may pass; a stream does not come back.
            lost.iter().for_each(|&id| self.remove_path(cx, id));
        }
        // Nor does one that was to be ready: another way by that link is.
        if let (Side::Client(connector), false) = (&mut self.side, beside.is_empty()) {
            beside.into_iter().for_each(|of| connector.turns.next(of));
            self.stand_by(cx);
        }
        self.forget_gone(cx);
    }

    /// Gateway: its listening sockets can send from these addresses now. Paths from others are
    /// gone but for their remote end: the kernel chooses the source, and the client is told by a
    /// challenge from there. Where the one in use leads to the same host, a spare one is let go.
    pub(crate) fn locals_changed(&mut self, cx: &mut Context<'_>, locals: &[std::net::IpAddr]) {
        if !self.at_gateway() {
            return;
        }
        let mut moved = Vec::new();
        for path in self.list.iter_mut() {
            if path.route.local.is_some_and(|local| !locals.contains(&local)) {
                path.route.local = None;
                moved.push(path.id);
            }
        }
        let host = |path: &Path| path.route.remote.ip();
        let (active, there) = (self.list.active_id(), self.list.active().map(host));
        for id in moved {
            let spare = Some(id) != active && self.list.get(id).map(host) == there;
            if spare {
                self.remove_path(cx, id);
            } else {
                self.ask(cx.now, id);
            }
        }
    }

    /// The active path is silent: every other proven path is asked, and by a client every
    /// candidate that has none. The first to answer takes over, be it the silent one: a single
    /// datagram lost moves nothing.
    pub(crate) fn try_elsewhere(&mut self, cx: &mut Context<'_>) {
        let active = self.list.active_id();
        let spare = self.list.iter().filter(|path| path.is_able()).map(|path| path.id);
        let spare: Vec<_> = spare.filter(|&id| Some(id) != active).collect();
        for id in spare {
            self.ask(cx.now, id);
        }
        while self.list.has_room()
            && let Some(id) = self.open_next_path(cx)
        {
            self.ask(cx.now, id);
        }
    }

    /// Client: a path beside the one in use is gone that carried a share. The gateway hears of it
    /// by that one, and not by the silence that follows.
    pub(crate) fn say_last_words(&mut self, cx: &mut Context<'_>) {
        let active = self.list.active_id().and_then(|id| self.list.get_mut(id));
        if let Some(path) = active.filter(|path| path.is_good()) {
            // At once, and again until it is answered, whatever was asked before.
            path.probes = Probes::default();
            let id = path.id;
            self.ask(cx.now, id);
        }
    }

    /// Replaces the gateway's addresses.
    pub(crate) fn set_remotes(&mut self, cx: &mut Context<'_>, remotes: Vec<SocketAddr>) {
        if let Side::Client(connector) = &mut self.side
            && connector.candidates.set_remotes(remotes)
        {
            self.wishes.push(Wish::Home);
            self.side.begin_turns();
            self.stand_by(cx);
            self.try_new_ways(cx);
        }
    }

    /// Replaces the streams by which the gateway may be reached, `alone` or beside UDP.
    pub(crate) fn set_streams(
        &mut self,
        cx: &mut Context<'_>,
        streams: Vec<StreamTo>,
        alone: bool,
    ) {
        if let Side::Client(connector) = &mut self.side
            && connector.candidates.set_streams(streams, alone)
        {
            let candidates = &connector.candidates;
            connector.policing.keep_only(|stream| {
                stream.stream.is_some() && candidates.has_stream_to(stream.remote, stream.stream)
            });
            self.try_new_ways(cx);
            self.follow_by_stream(cx);
        }
    }

    /// Data goes by a stream to where the gateway is not reached any more: it is asked by the new
    /// ones at once, and the old one carries until it has answered.
    fn follow_by_stream(&mut self, cx: &mut Context<'_>) {
        let Side::Client(connector) = &mut self.side else { return };
        let stale = self.list.active().is_some_and(|path| {
            let to = path.route.remote;
            path.transport() == Transport::Stream && !connector.candidates.has_stream_to(to, None)
        });
        if !stale || connector.handshakes.is_trying() || !connector.handshakes.wanted {
            return;
        }
        connector.begin_round_by_streams(cx.now);
        self.wishes.push(Wish::Attempt);
    }

    /// There are new ways to the gateway: whoever waits for one tries them at once.
    fn try_new_ways(&mut self, cx: &mut Context<'_>) {
        if self.list.active().is_some_and(|path| path.is_good()) {
            return;
        }
        if self.indices.has_keys() {
            self.try_elsewhere(cx);
        }
        let Side::Client(connector) = &self.side else { return };
        if !self.indices.has_keys() || connector.handshakes.is_trying() {
            self.wishes.push(Wish::Reconnect);
        }
    }
}
