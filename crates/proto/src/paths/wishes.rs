//! What the path manager wants to be done, in order. The tunnel carries it out: sending needs keys.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::path::{Path, PathId};
use crate::time::Duration;
use crate::wire::data::BASE_DATAGRAM;

/// UDP payload of the first flight's datagrams, and of the challenges that prove an address (RFC
/// 9000, 8.2.1). A path that carries less is unusable.
pub(crate) const FLIGHT_SIZE: usize = BASE_DATAGRAM;

/// What the path manager wants to be done.
#[derive(Debug)]
pub(crate) enum Wish {
    /// Send the challenge of this path that is due. What leaves first may prove its address first.
    Ask(PathId),
    /// Send all challenges that are due.
    AskAll,
    /// Send this path one challenge of so many bytes.
    Challenge(PathId, usize),
    /// Send the rest of a first flight, by a path that was just asked for the first time.
    FirstFlight(PathId),
    /// Send padding: the gateway's budget to answer with.
    Pad(PathId),
    /// Search the path's MTU.
    SearchMtu(PathId),
    /// Waiting packets may leave.
    Carry,
    /// Data goes by another path, proven after so much time.
    Activated { remote: SocketAddr, took: Duration },
    /// The path leads elsewhere: what it owes is forgiven.
    Forgive(PathId),
    /// The path does not carry any more: what arrived by it is to be told.
    Lost(PathId),
    /// The path was removed: what is on its way by it is lost, and its number space is free.
    Removed(Box<Path>),
    /// Tell which of the gateway's indices are used, if few are left.
    TellTaken,
    /// The gateway is sought elsewhere first.
    Home,
    /// Ask for a session, unless that is under way.
    Connect,
    /// Ask for a session at once, as if for the first time.
    Reconnect,
    /// Make the handshake attempts that are due.
    Attempt,
}

/// The wishes that nobody has carried out.
#[derive(Debug, Default)]
pub(crate) struct Wishes(VecDeque<Wish>);

impl Wishes {
    /// Adds a wish. Each link is asked for a session once, whatever the reasons.
    pub(super) fn push(&mut self, wish: Wish) {
        if matches!(wish, Wish::Connect | Wish::Reconnect) {
            if self.0.iter().any(|it| matches!(it, Wish::Reconnect)) {
                return;
            }
            self.0.retain(|it| !matches!(it, Wish::Connect));
        }
        self.0.push_back(wish);
    }

    /// The next wish that is to be carried out.
    pub(crate) fn pop(&mut self) -> Option<Wish> {
        self.0.pop_front()
    }

    /// The paths are forgotten, and what was wished of them.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
