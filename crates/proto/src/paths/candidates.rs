//! The candidates: every way by which a client may reach its gateway, best first. Each is a pair of
//! an address of one of the client's links and an address where the gateway may be.
//!
//! Says in what order they come. Whether one is probed now is decided by `plan`, and by the
//! handshakes.

use std::net::{IpAddr, SocketAddr};

use super::candidate::Candidate;
use crate::context::{Link, StreamTo};
use crate::id::LinkId;

/// From which links, and to which addresses of the gateway.
#[derive(Debug)]
pub(crate) struct Candidates {
    /// The gateway's addresses, as the shell knows them.
    remotes: Vec<SocketAddr>,
    /// Where the gateway itself says that it is reached, best first.
    announced: Vec<SocketAddr>,
    /// Where it was followed to last: it may have moved there without a word.
    followed_to: Option<SocketAddr>,
    links: Vec<Link>,
    /// Where UDP is blocked: the streams that may lead to the gateway, best first.
    streams: Vec<StreamTo>,
    /// Whether the gateway is asked by them alone, never by UDP.
    streams_alone: bool,
}

impl Candidates {
    pub(super) const fn new(remotes: Vec<SocketAddr>) -> Self {
        Self {
            remotes,
            announced: Vec::new(),
            followed_to: None,
            links: Vec::new(),
            streams: Vec::new(),
            streams_alone: false,
        }
    }

    /// The usable links, best first.
    pub(crate) fn links(&self) -> &[Link] {
        &self.links
    }

    pub(super) fn set_links(&mut self, links: &[Link]) {
        self.links = links.to_vec();
    }

    /// Replaces the gateway's addresses that the shell knows. Returns whether they are others.
    pub(super) fn set_remotes(&mut self, remotes: Vec<SocketAddr>) -> bool {
        let is_news = self.remotes != remotes;
        self.remotes = remotes;
        is_news
    }

    /// Replaces those that the gateway names itself. Returns whether they are others.
    pub(super) fn announce(&mut self, announced: &[SocketAddr]) -> bool {
        let is_news = self.announced != announced;
        self.announced = announced.to_vec();
        is_news
    }

    /// The gateway answers here.
    pub(super) const fn follow(&mut self, remote: SocketAddr) {
        self.followed_to = Some(remote);
    }

    /// Replaces the streams, `alone` or beside UDP. Returns whether anything is new.
    pub(super) fn set_streams(&mut self, streams: Vec<StreamTo>, alone: bool) -> bool {
        let is_news = (&self.streams, self.streams_alone) != (&streams, alone);
        (self.streams, self.streams_alone) = (streams, alone);
        is_news
    }

    /// Whether the gateway is asked by streams alone.
    pub(super) const fn are_streams_alone(&self) -> bool {
        self.streams_alone
    }

    /// The gateway's addresses, best first: as it said itself, as it was found, then as the shell
    /// knows them.
    pub(crate) fn remotes(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        let found = self.followed_to.iter().filter(|at| !self.announced.contains(at));
        let known = self
            .remotes
            .iter()
            .filter(|&at| !self.announced.contains(at) && self.followed_to.as_ref() != Some(at));
        self.announced.iter().chain(found).chain(known).copied()
    }

    /// The place of a link in the order of the shell; the last for one that is not there.
    pub(super) fn place_of(&self, link: Option<LinkId>) -> usize {
        self.links.iter().position(|known| Some(known.id) == link).unwrap_or(usize::MAX)
    }

    /// Whether a link is for when no other carries.
    pub(super) fn stands_by(&self, link: Option<LinkId>) -> bool {
        self.links.iter().any(|known| Some(known.id) == link && known.stands_by)
    }

    /// Where the gateway wants to be reached by who reaches it at `remote` now: at the first
    /// address of that family that it announced.
    pub(super) fn announced_for(&self, remote: SocketAddr) -> Option<SocketAddr> {
        self.announced.iter().find(|at| at.is_ipv4() == remote.is_ipv4()).copied()
    }

    /// Whether the gateway itself names this address.
    pub(super) fn is_announced(&self, remote: SocketAddr) -> bool {
        self.announced.contains(&remote)
    }

    /// Whether a stream leads to this address, by this method if one is given.
    pub(super) fn has_stream_to(&self, remote: SocketAddr, method: Option<u8>) -> bool {
        let leads = |to: &StreamTo| to.remote == remote && method.is_none_or(|it| it == to.method);
        self.streams.iter().any(leads)
    }

    /// Every pair of a local and a remote address of one family, for UDP: the best of the gateway's
    /// by every link, then the next.
    pub(crate) fn udp(&self) -> impl Iterator<Item = Candidate> + '_ {
        self.remotes().filter(|_| !self.streams_alone).flat_map(move |remote| {
            self.links.iter().flat_map(move |link| {
                let fits = move |local: &&IpAddr| local.is_ipv4() == remote.is_ipv4();
                let local = link.addresses.iter().find(fits).copied();
                local.map(|local| Candidate { link: link.id, local, remote, stream: None })
            })
        })
    }

    /// The streams, each by every link of its family, best first.
    pub(crate) fn streams(&self) -> impl Iterator<Item = Candidate> + '_ {
        self.streams.iter().flat_map(move |&StreamTo { remote, method }| {
            self.links.iter().filter_map(move |link| {
                let fits = move |local: &&IpAddr| local.is_ipv4() == remote.is_ipv4();
                let local = link.addresses.iter().find(fits).copied()?;
                Some(Candidate { link: link.id, local, remote, stream: Some(method) })
            })
        })
    }

    /// How many lead from an address of this family (IPv4 or not), by UDP and by streams.
    pub(super) fn in_family(&self, v4: bool) -> (usize, usize) {
        let remotes = self.remotes().filter(|_| !self.streams_alone);
        let streams = self.streams.iter().map(|stream| stream.remote);
        let count =
            |of: &mut dyn Iterator<Item = SocketAddr>| of.filter(|at| at.is_ipv4() == v4).count();
        (count(&mut { remotes }), count(&mut { streams }))
    }
}
