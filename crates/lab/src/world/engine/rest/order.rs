//! Two links in an order, and what is promised of them: data goes by the first that carries; a
//! departure that is announced takes no packet along; after one that is not, nothing comes twice
//! (which is asked of every packet at any time) and the other link carries soon; the first one is
//! gone back to when it is there again, and that costs nothing either.
//!
//! Not asked of a client that has not been told where the gateway is over IPv4, the family that
//! every network has: it left its addresses without a word, and was found over the other.
//!
//! What tells a shell that a link is about to go is the shell's affair: here it puts the link last,
//! as the daemon does (docs/decisions/0019).

use super::{Rest, ends};
use crate::emu::{Carrier, MS, SECOND};
use crate::world::agenda::Task;
use crate::world::host_id::HostId;
use crate::world::inner::Body;
use crate::world::laws::{Breach, Law};
use crate::world::op::{ACCESSES, FIRST, SECOND_BEST, Way};

/// Bytes of the packets that flow meanwhile: what any path carries whole.
const LEN: u16 = 600;
/// Time between two of them each way, in nanoseconds.
const EVERY_NS: u64 = 20 * MS;
/// How long they flow before anything is judged: time to prove a link, and to go back to the first.
pub(super) const PROVEN_NS: u64 = 5 * SECOND;
/// How long ahead a departure is announced, in nanoseconds.
const AHEAD_NS: u64 = 300 * MS;
/// How long the other link may take to carry after a cut without a word: three round trips and
/// 200 ms until the silence is noticed, as much to ask, and as much again for the other end.
pub(super) const CUT_NS: u64 = 2 * SECOND;
/// How long a link that fell silent or lost much is distrusted at most, and time to go back to it.
pub(super) const TRUSTED_NS: u64 = 305 * SECOND;
/// Time in which what was under way arrives.
const UNDER_WAY_NS: u64 = SECOND;

impl Rest<'_> {
    /// Plays a departure that is announced, a return, and a cut, while packets flow both ways.
    pub(in crate::world) fn links_in_order(&mut self, client: usize) -> Result<(), Breach> {
        if !self.knows_the_way(client) {
            return Ok(());
        }
        let before = self.plug_both(client)?;
        let Some(access) = self.world.hosts[HostId::Client(client)].access_of(FIRST) else {
            return Ok(());
        };
        self.world.rank(client, FIRST)?;
        self.is_trusted_again(client, "two links that carry")?;

        let from = self.mark();
        self.flow(client, SECOND / 2)?;
        self.world.rank(client, SECOND_BEST)?;
        self.flow(client, AHEAD_NS)?;
        self.world.plug(client, FIRST, None)?;
        self.flow(client, SECOND)?;
        self.all_came(from, client, "over a departure that was announced")?;
        self.goes_by(client, SECOND_BEST, "a departure")?;

        let from = self.mark();
        self.world.plug(client, FIRST, Some(access))?;
        self.world.rank(client, FIRST)?;
        self.comes_by(client, "a return")?;
        self.all_came(from, client, "while the first link came back")?;

        self.world.place.set_carrier(self.world.now_ns, client, access, Carrier::BlackHole);
        self.flow(client, CUT_NS)?;
        self.goes_by(client, SECOND_BEST, "a cut")?;
        let from = self.mark();
        self.flow(client, SECOND)?;
        self.all_came(from, client, "by the other link, after a cut")?;
        self.world.place.set_carrier(self.world.now_ns, client, access, Carrier::Up);
        self.is_trusted_again(client, "the end of a cut")?;
        if before[SECOND_BEST].is_none() {
            self.world.plug(client, SECOND_BEST, None)?;
        }
        Ok(())
    }

    pub(in crate::world) fn knows_the_way(&self, client: usize) -> bool {
        let known = self.world.clients[client].directory.remotes();
        let gateway = self.world.gateways.serving(client).host;
        let at = self.world.gateway_addresses(gateway);
        at.iter().any(|at| at.is_ipv4() && known.contains(at))
    }

    /// Plugs in what is missing of two links. Returns the networks that they were in before.
    pub(super) fn plug_both(&mut self, client: usize) -> Result<[Option<usize>; 2], Breach> {
        let before = [FIRST, SECOND_BEST]
            .map(|card| self.world.hosts[HostId::Client(client)].access_of(card));
        for (card, access) in [FIRST, SECOND_BEST].into_iter().zip(before) {
            if access.is_none() {
                let free = self.free_access(client);
                self.world.plug(client, card, Some(free))?;
            }
        }
        Ok(before)
    }

    /// Packets flow for long enough, and then by the first link.
    fn comes_by(&mut self, client: usize, after: &str) -> Result<(), Breach> {
        self.flow(client, PROVEN_NS)?;
        self.goes_by(client, FIRST, after)
    }

    /// The first link, which may have fallen silent or lost much, is trusted again: the later the
    /// more often it did so.
    fn is_trusted_again(&mut self, client: usize, after: &str) -> Result<(), Breach> {
        for _ in 0..TRUSTED_NS / PROVEN_NS {
            self.flow(client, PROVEN_NS)?;
            if self.goes_by(client, FIRST, "").is_ok() {
                return Ok(());
            }
        }
        self.goes_by(client, FIRST, after)
    }

    /// Packets flow both ways for so long.
    pub(in crate::world) fn flow(&mut self, client: usize, length_ns: u64) -> Result<(), Breach> {
        for after_ns in (0..length_ns).step_by(EVERY_NS as usize) {
            for way in [Way::Up, Way::Down] {
                self.world.schedule(after_ns, Task::Send { client, way, body: Body::Data(LEN) });
            }
        }
        self.world.advance(length_ns)
    }

    /// The number of the next packet.
    pub(in crate::world) fn mark(&self) -> u32 {
        self.world.delivery.totals().0 + 1
    }

    /// Every packet since `from` arrives.
    pub(in crate::world) fn all_came(
        &mut self,
        from: u32,
        client: usize,
        when: &str,
    ) -> Result<(), Breach> {
        let last = self.world.delivery.totals().0;
        self.flow(client, UNDER_WAY_NS)?;
        let mut lost = (from..=last).filter(|&id| !self.world.delivery.has_arrived(id));
        let Some(first) = lost.next().and_then(|id| self.world.delivery.sent(id)) else {
            return Ok(());
        };
        let (lost, all) = (1 + lost.count(), last + 1 - from);
        let portrait = self.world.portrait(client);
        let what = format!(
            "client {client}: {lost} of {all} packets lost {when}, the first {first:?}\n{portrait}"
        );
        Err(Breach::new(Law::Order, what))
    }

    /// Both ends send by the link of `card`.
    pub(in crate::world) fn goes_by(
        &self,
        client: usize,
        card: usize,
        after: &str,
    ) -> Result<(), Breach> {
        let access = self.world.hosts[HostId::Client(client)].access_of(card);
        let used = |(host, peer)| {
            let status = self.world.hosts[host].node().status(peer)?;
            status.paths.into_iter().find(|path| path.in_use)
        };
        let [up, down] = ends(self.world, client).map(used);
        let (up, down) = (up.and_then(|path| path.link), down.map(|path| path.remote().ip()));
        let down = down.map(|at| access.is_some_and(|a| self.world.place.is_of(client, a, at)));
        if up.is_some_and(|link| link.0 as usize == card + 1) && down == Some(true) {
            return Ok(());
        }
        let portrait = self.world.portrait(client);
        let what = format!("client {client}: not by card {card} after {after}\n{portrait}");
        Err(Breach::new(Law::Order, what))
    }

    /// A network in which no card of the client's is.
    pub(in crate::world) fn free_access(&self, client: usize) -> usize {
        let cards = &self.world.hosts[HostId::Client(client)].cards;
        let taken = |access: &usize| cards.iter().flatten().any(|card| card.access == *access);
        (0..usize::from(ACCESSES)).find(|access| !taken(access)).unwrap_or(0)
    }
}
