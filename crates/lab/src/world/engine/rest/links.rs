//! What is promised of links that carry together. Bulk data arrives in sequence where the links
//! lose nothing. A link that dies or is unplugged takes no packet along. When it returns, it
//! carries its share.
//!
//! What carries together may be one path of each link or several, and a link may be for when no
//! other carries: then nothing that is much goes by it while another does. Only packets that are
//! longer than a question are asked to be in sequence: shorter ones overtake what waits.

use std::collections::BTreeSet;
use std::net::IpAddr;

use rove_proto::node::PathStatus;
use rove_proto::path::Health;
use rove_proto::time::Duration;

use super::order::{CUT_NS, PROVEN_NS, TRUSTED_NS};
use super::{Rest, ends};
use crate::emu::{Carrier, MS, SECOND};
use crate::world::agenda::Task;
use crate::world::host_id::HostId;
use crate::world::inner::{Body, LEN_MAX};
use crate::world::laws::{Breach, Law};
use crate::world::op::{FIRST, SECOND_BEST, Way};
use crate::world::standby::Standby;

/// Packets of each way that leave as fast as a device hands them over.
const BURST: u64 = 60;
/// Time between two of them: 3 times what one network carries.
const BURST_GAP_NS: u64 = 200_000;
/// Time between two bursts, in which all of the first arrives.
const BURST_EVERY_NS: u64 = 500 * MS;
/// How many there are.
const BURSTS: u64 = 6;
/// What goes by a link that stands by while the other carries [`BURSTS`], in layer-3 bytes both
/// ways: questions and probes of its largest datagram, a fiftieth of what is carried.
const STANDBY_BYTES_MAX: u64 = 16_000;
/// A path that nobody heard of for so long gets nothing, whatever it got before: what a NAT
/// remembers of it is not known.
const FRESH_NS: u64 = 20 * SECOND;

impl Rest<'_> {
    /// Plays bursts by two links, a cut without a word, a return, and a departure without a word.
    pub(super) fn links_together(&mut self, client: usize) -> Result<(), Breach> {
        if !self.knows_the_way(client) {
            return Ok(());
        }
        let before = self.plug_both(client)?;
        let Some(access) = self.world.hosts[HostId::Client(client)].access_of(FIRST) else {
            return Ok(());
        };
        self.come_together(client, "two links that carry")?;
        self.bursts(client)?; // it is not known before what the links carry
        let from = self.mark();
        self.bursts(client)?;
        self.all_came(from, client, "by two links")?;
        self.in_sequence(from, client)?;

        self.one_stands_by(client)?;

        let from = self.mark();
        self.flow(client, SECOND / 2)?;
        self.world.place.set_carrier(self.world.now_ns, client, access, Carrier::BlackHole);
        self.flow(client, CUT_NS)?;
        self.all_came(from, client, "over a cut of one of two links")?;
        self.world.place.set_carrier(self.world.now_ns, client, access, Carrier::Up);
        self.come_together(client, "the end of a cut")?;

        let from = self.mark();
        self.flow(client, SECOND / 2)?;
        self.world.plug(client, FIRST, None)?;
        self.flow(client, SECOND)?;
        self.all_came(from, client, "when one of two links was unplugged")?;
        self.world.plug(client, FIRST, Some(access))?;
        self.come_together(client, "a return")?;
        if before[SECOND_BEST].is_none() {
            self.world.plug(client, SECOND_BEST, None)?;
        }
        Ok(())
    }

    /// One of two links stands by, and the other carries alone; until it stands by no more.
    fn one_stands_by(&mut self, client: usize) -> Result<(), Breach> {
        let host = HostId::Client(client);
        self.world.hosts[host].set_standing_by(SECOND_BEST, true);
        self.world.tell_links(client)?;
        self.flow(client, PROVEN_NS)?; // until both ends have been told
        self.bursts(client)?; // most of it went by the other: it is not known what this one carries
        let from = self.mark();
        let access = self.world.hosts[HostId::Client(client)].access_of(SECOND_BEST);
        self.world.by_standby = access.map(|access| Standby::new(client, access));
        self.bursts(client)?;
        let bytes = self.world.by_standby.take().map_or(0, |counted| counted.bytes());
        self.all_came(from, client, "by one of two links, while the other stood by")?;
        self.in_sequence(from, client)?;
        // Of a proxy's address the gateway cannot tell whose link is behind it: bytes can.
        let carrying = self.carrying(client);
        if carrying[0] != 1 || bytes > STANDBY_BYTES_MAX {
            let portrait = self.world.portrait(client);
            let what = format!(
                "client {client}: a link that stands by carries {bytes} bytes; by {carrying:?} \
                 links\n{portrait}"
            );
            return Err(Breach::new(Law::Order, what));
        }
        self.world.hosts[host].set_standing_by(SECOND_BEST, false);
        self.world.tell_links(client)?;
        self.come_together(client, "one of them stood by")
    }

    /// By how many of the client's links data goes, as each end has it.
    fn carrying(&self, client: usize) -> [usize; 2] {
        ends(self.world, client).map(|(host, peer)| {
            let status = self.world.hosts[host].node().status(peer);
            let now = self.world.hosts[host].clock(self.world.now_ns);
            let is_fresh = |path: &PathStatus| {
                let heard = path.heard_at.map(|at| now.saturating_since(at));
                heard.is_some_and(|ago| ago < Duration::from_nanos(FRESH_NS))
            };
            let paths = status.into_iter().flat_map(|status| status.paths);
            let shared = paths.filter(|path| path.is_shared && path.health == Health::Good);
            let shared = shared.filter(is_fresh);
            let from = shared.map(|path| match path.link {
                // Of its addresses the gateway may have several.
                Some(link) => Ok(link.0 as usize - 1),
                None => self.card_at(client, path.remote().ip()).ok_or_else(|| path.remote()),
            });
            from.collect::<BTreeSet<_>>().len()
        })
    }

    /// The card of the client whose network has this address, in one family or the other.
    fn card_at(&self, client: usize, at: IpAddr) -> Option<usize> {
        let is_there = |access| self.world.place.is_of(client, access, at);
        let mut cards = 0..self.world.hosts[HostId::Client(client)].cards.len();
        cards.find(|&card| {
            self.world.hosts[HostId::Client(client)].access_of(card).is_some_and(is_there)
        })
    }

    /// Data goes by both links before long: a link that did badly is distrusted for a while.
    fn come_together(&mut self, client: usize, after: &str) -> Result<(), Breach> {
        for _ in 0..TRUSTED_NS / PROVEN_NS {
            self.flow(client, PROVEN_NS)?;
            if self.carrying(client).iter().all(|&carrying| carrying > 1) {
                return Ok(());
            }
        }
        let portrait = self.world.portrait(client);
        let what = format!("client {client}: not by both links after {after}\n{portrait}");
        Err(Breach::new(Law::Order, what))
    }

    /// Packets of several flows, both ways, more at once than one link carries.
    fn bursts(&mut self, client: usize) -> Result<(), Breach> {
        for number in 0..BURSTS * BURST {
            let (burst, place) = (number / BURST, number % BURST);
            let after_ns = burst * BURST_EVERY_NS + place * BURST_GAP_NS;
            let len = [600, 1_200, LEN_MAX][number as usize % 3];
            for way in [Way::Up, Way::Down] {
                self.world.schedule(after_ns, Task::Send { client, way, body: Body::Data(len) });
            }
        }
        self.world.advance(BURSTS * BURST_EVERY_NS)
    }

    /// What was sent since `from` came in sequence, flow by flow.
    fn in_sequence(&self, from: u32, client: usize) -> Result<(), Breach> {
        let Some(early) = self.world.delivery.first_early(from) else { return Ok(()) };
        let portrait = self.world.portrait(client);
        let what = format!("{early:?} came before its turn\n{portrait}");
        Err(Breach::new(Law::Order, what))
    }
}
