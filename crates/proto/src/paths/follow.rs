//! A client follows its gateway to where that wants to be reached (docs/spec/wire.md#moving).
//!
//! Make before break: the path in use carries until the one to the new address has answered, so a
//! move that is announced ahead loses nothing.

use std::net::SocketAddr;

use super::{PathManager, Side, Wish};
use crate::context::Context;
use crate::id::Transport;
use crate::path::Path;

impl PathManager {
    /// Client: the gateway is reached at these from now on. Returns whether that is news.
    pub(crate) fn take_addresses(
        &mut self,
        cx: &mut Context<'_>,
        addresses: &[SocketAddr],
    ) -> bool {
        let Side::Client(connector) = &mut self.side else { return false };
        let is_news = connector.candidates.announce(addresses);
        self.wishes.push(Wish::Home);
        self.follow(cx);
        // A path to an address that the gateway has left for good is of no more use.
        let active = self.list.active_id();
        if let Some(connector) = self.connector() {
            let known: Vec<_> = connector.candidates.remotes().collect();
            let is_known = |path: &Path| known.contains(&path.route.remote);
            let retired = self.list.ids(|path| Some(path.id) != active && !is_known(path));
            self.remove_paths(cx, retired);
        }
        self.side.begin_turns();
        self.stand_by(cx);
        is_news
    }

    /// Client: goes to where the gateway wants to be reached, unless it is there.
    fn follow(&mut self, cx: &mut Context<'_>) {
        let Some(target) = self.plan().target() else { return };
        let to_it = |path: &&Path| {
            path.route.remote == target.remote
                && path.link == Some(target.link)
                && path.route.local == Some(target.local)
                && !path.is_gone()
                && path.transport() == Transport::Udp
        };
        let there = self.list.iter().find(to_it).map(|path| (path.id, path.is_able()));
        match there {
            Some((id, true)) => self.activate(cx, id),
            // It has not answered yet, or not of late: when it does, data goes by it.
            Some((id, false)) => self.ask(cx.now, id),
            None => {
                if let Some(id) = self.open_path(cx, target) {
                    self.ask(cx.now, id);
                }
            }
        }
    }
}
