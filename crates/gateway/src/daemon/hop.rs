//! Hopping: the gateway is somewhere else every few seconds, and its clients with it
//! (`[gateway.hop]`).
//!
//! An address is on the link before anybody is told of it, and stays for two intervals after it was
//! the newest: a client that missed one announcement hears the next. Limits: who was away for
//! longer finds the gateway by its endpoints, which stay what they are.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use ipnet::IpNet;
use rove_host::keys;
use rove_os::links::Link;
use rove_proto::id::PeerKey;
use rove_proto::node::Command;

use super::{Daemon, Replanned};
use crate::config::{HopConfig, HopSource};
use crate::ledger::Reach;

/// Addresses of one family that the link has at once: the newest, and those of the last two
/// intervals.
const HELD: usize = 3;

/// Where the gateway is, and when it hops next.
#[derive(Debug)]
pub(super) struct Hop {
    config: HopConfig,
    /// One for each family that there are addresses of.
    tracks: Vec<Track>,
    next_at: Instant,
}

/// The addresses of one family.
#[derive(Debug)]
struct Track {
    choice: Choice,
    /// Those that the link has, the newest first.
    held: VecDeque<IpAddr>,
}

#[derive(Debug)]
enum Choice {
    /// The next one first.
    List(VecDeque<IpAddr>),
    Prefix(IpNet),
}

impl Hop {
    /// Begins with the address at which most clients were reached by an earlier process, so that
    /// they can be called back from there.
    pub(super) fn begin(
        config: &HopConfig,
        reaches: &BTreeMap<PeerKey, Reach>,
        links: &[Link],
    ) -> Result<Self> {
        if let Some(name) = &config.link {
            ensure!(
                links.iter().any(|link| link.name == *name),
                "there is no link {name}, which gateway.hop.link names: see `ip link`"
            );
        }
        let mut counts: BTreeMap<IpAddr, usize> = BTreeMap::new();
        for reach in reaches.values().filter(|reach| config.covers(reach.local.ip())) {
            *counts.entry(reach.local.ip()).or_default() += 1;
        }
        let of_family = |v4: bool| counts.iter().filter(move |(ip, _)| ip.is_ipv4() == v4);
        let mut tracks = Vec::new();
        for v4 in [true, false] {
            let choice = match &config.source {
                HopSource::List(list) => {
                    let list: VecDeque<_> =
                        list.iter().copied().filter(|ip| ip.is_ipv4() == v4).collect();
                    if list.is_empty() {
                        continue;
                    }
                    Choice::List(list)
                }
                HopSource::Prefix(prefix) if prefix.addr().is_ipv4() == v4 => {
                    Choice::Prefix(*prefix)
                }
                HopSource::Prefix(_) => continue,
            };
            let most = of_family(v4).max_by_key(|(_, count)| **count).map(|(ip, _)| *ip);
            tracks.push(Track { choice, held: most.into_iter().collect() });
        }
        let mut hop = Self { config: config.clone(), tracks, next_at: Instant::now() };
        for track in hop.tracks.iter_mut().filter(|track| track.held.is_empty()) {
            track.step()?;
        }
        hop.next_at += hop.config.interval.duration();
        Ok(hop)
    }

    /// Goes on to the next address of each family.
    fn step(&mut self, now: Instant) -> Result<()> {
        self.next_at = now + self.config.interval.duration();
        self.tracks.iter_mut().try_for_each(Track::step)
    }

    pub(super) const fn due(&self) -> Instant {
        self.next_at
    }

    /// The addresses that clients are told of: the newest of each family, then those before.
    pub(super) fn told(&self) -> Vec<IpAddr> {
        let nth = |n| self.tracks.iter().filter_map(move |track| track.held.get(n));
        nth(0).chain(nth(1)).copied().collect()
    }

    /// Leaves out what the links have from a hop: that is no news of them.
    pub(super) fn leave_out(hop: Option<&Self>, links: &mut [Link]) {
        let Some(hop) = hop else { return };
        let single = |net: &IpNet| net.prefix_len() == net.max_prefix_len();
        for link in links {
            link.addresses.retain(|net| !(single(net) && hop.config.covers(net.addr())));
        }
    }

    /// What the links are to have: each address on the link that was named, or on that of its
    /// family's default route. Without such a link it has to wait.
    pub(super) fn addresses(&self, links: &[Link]) -> Vec<(String, IpNet)> {
        let of = |ip: &IpAddr| {
            let metric =
                |link: &&Link| if ip.is_ipv4() { link.default_v4 } else { link.default_v6 };
            let usable = links.iter().filter(|link| link.usable());
            let link = match &self.config.link {
                Some(name) => links.iter().find(|link| link.name == *name)?,
                None => usable.filter(|l| metric(l).is_some()).min_by_key(metric)?,
            };
            Some((link.name.clone(), IpNet::from(*ip)))
        };
        self.tracks.iter().flat_map(|track| &track.held).filter_map(of).collect()
    }
}

impl Track {
    fn step(&mut self) -> Result<()> {
        let next = match &mut self.choice {
            Choice::List(list) => {
                let next = list.pop_front().context("a list without addresses")?;
                list.push_back(next);
                next
            }
            Choice::Prefix(prefix) => draw(prefix, &self.held)?,
        };
        self.held.retain(|held| *held != next);
        self.held.push_front(next);
        self.held.truncate(HELD);
        Ok(())
    }
}

/// A random address of `prefix` that is none of `held`, nor one that means the whole network.
fn draw(prefix: &IpNet, held: &VecDeque<IpAddr>) -> Result<IpAddr> {
    loop {
        let random = u128::from_be_bytes(keys::random::<16>()?);
        let address: IpAddr = match prefix {
            IpNet::V4(net) => {
                let bits = random as u32 & !u32::from(net.netmask());
                Ipv4Addr::from(u32::from(net.network()) | bits).into()
            }
            IpNet::V6(net) => {
                let bits = random & !u128::from(net.netmask());
                Ipv6Addr::from(u128::from(net.network()) | bits).into()
            }
        };
        let whole = address == prefix.network() || address == prefix.broadcast();
        if !whole && !held.contains(&address) {
            return Ok(address);
        }
    }
}

impl Daemon {
    /// Goes on to the next address, if it is time.
    pub(super) fn hop_if_due(&mut self, now: Instant) {
        let Some(hop) = self.hop.as_mut().filter(|hop| hop.due() <= now) else { return };
        if let Err(error) = hop.step(now) {
            return tracing::error!("the gateway stays where it is: {error:#}");
        }
        if self.replan() == Replanned::Other {
            self.data.command(Command::SetLocals(self.locals()));
            self.announce_known();
        }
    }

    /// Leaves the addresses between which it hopped: nobody is there until the next process is.
    pub(super) fn stop_hopping(&mut self) {
        if self.hop.take().is_some() {
            self.replan();
        }
    }
}

#[cfg(test)]
mod tests {
    use rove_os::links::LinkKind;

    use super::*;

    fn config(source: HopSource) -> HopConfig {
        HopConfig { source, interval: rove_host::values::Lifetime::from_seconds(5), link: None }
    }

    fn list(addresses: &[&str]) -> HopConfig {
        config(HopSource::List(addresses.iter().map(|ip| ip.parse().unwrap()).collect()))
    }

    fn told(hop: &Hop) -> Vec<String> {
        hop.told().iter().map(IpAddr::to_string).collect()
    }

    fn link(name: &str, v4: Option<u32>, v6: Option<u32>) -> Link {
        Link {
            index: 2,
            name: name.to_owned(),
            kind: LinkKind::Ethernet,
            up: true,
            carrier: true,
            carrier_ups: 0,
            dormant: false,
            mtu: 1_500,
            addresses: vec!["192.0.2.1/24".parse().unwrap()],
            deprecated: false,
            default_v4: v4,
            default_v6: v6,
            routes: Vec::new(),
            attached: Vec::new(),
        }
    }

    #[test]
    fn a_list_goes_round_in_each_family_and_two_intervals_pass_until_one_is_left() {
        let config = list(&["192.0.2.1", "2001:db8::1", "192.0.2.2", "192.0.2.3", "192.0.2.4"]);
        let mut hop = Hop::begin(&config, &BTreeMap::new(), &[]).unwrap();
        assert_eq!(told(&hop), ["192.0.2.1", "2001:db8::1"]);
        let links = [link("eth0", Some(10), None), link("eth1", Some(5), Some(0))];
        for _ in 0..3 {
            hop.step(Instant::now()).unwrap();
        }
        assert_eq!(told(&hop), ["192.0.2.4", "2001:db8::1", "192.0.2.3"]);
        let held = hop.addresses(&links);
        let held: Vec<String> = held.iter().map(|(name, net)| format!("{name} {net}")).collect();
        let expected = ["192.0.2.4/32", "192.0.2.3/32", "192.0.2.2/32", "2001:db8::1/128"];
        assert_eq!(held, expected.map(|net| format!("eth1 {net}")));
        assert_eq!(hop.addresses(&links[..1]).len(), 3, "no link for IPv6");
        let mut seen = links.clone();
        let hopped = ["192.0.2.4/32", "2001:db8::1/128"].map(|net| net.parse::<IpNet>().unwrap());
        seen[0].addresses.extend(hopped);
        Hop::leave_out(Some(&hop), &mut seen);
        assert_eq!(seen, links, "and 192.0.2.1/24 is the link's own");
    }

    #[test]
    fn a_prefix_gives_other_addresses_every_time_and_never_those_of_the_whole() {
        let prefix: IpNet = "192.0.2.8/29".parse().unwrap();
        let mut hop =
            Hop::begin(&config(HopSource::Prefix(prefix)), &BTreeMap::new(), &[]).unwrap();
        for _ in 0..200 {
            let before = hop.told();
            hop.step(Instant::now()).unwrap();
            let now = hop.told()[0];
            assert!(prefix.contains(&now) && !before.contains(&now), "{now}");
            assert!(now != prefix.network() && now != prefix.broadcast());
        }
    }

    #[test]
    fn it_begins_where_most_clients_were() {
        let reach = |n: u8, local: &str| {
            let (local, remote) = (local.parse().unwrap(), "203.0.113.2:9".parse().unwrap());
            (PeerKey([n; 32]), Reach { local, remote, index: 1 })
        };
        let reaches = [
            reach(1, "192.0.2.2:4500"),
            reach(2, "192.0.2.3:4500"),
            reach(3, "192.0.2.3:4500"),
            reach(4, "198.51.100.1:4500"),
            reach(5, "198.51.100.1:4500"),
            reach(6, "198.51.100.1:4500"),
        ];
        let config = list(&["192.0.2.1", "192.0.2.2", "192.0.2.3"]);
        let hop = Hop::begin(&config, &reaches.into_iter().collect(), &[]).unwrap();
        assert_eq!(told(&hop), ["192.0.2.3"]);
        let missing = HopConfig { link: Some("eth9".to_owned()), ..config };
        let error = Hop::begin(&missing, &BTreeMap::new(), &[]).unwrap_err().to_string();
        assert!(error.contains("there is no link eth9"), "{error}");
    }
}
