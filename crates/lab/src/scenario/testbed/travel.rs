//! Where the client is, and how it gets elsewhere.

use super::{GATEWAY_CARD, METRIC, Testbed};
use crate::emu::{Carrier, End, Filter, LinkConfig, PipeConfig};
use crate::ground::{Blockade, FIRST_LINK, Terrain};
use crate::netns::{AccessId, CardId, monotonic_ns};
use crate::scenario::addresses::{HOME_OUTSIDE, Site};
use anyhow::{Context as _, ensure};
use ipnet::IpNet;
use std::io;
use std::net::IpAddr;

/// Restarts of the NAT box after which its outside addresses begin again.
const REBOOTS_MAX: u8 = 100;

/// Metric of the default route over the first link beside: above those of all moves.
const BESIDE_METRIC: u32 = 10_000;

/// The port that networks leave open when they leave nothing else open.
const HTTPS_PORT: u16 = 443;

/// What a move does to the client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Address {
    /// Another network, another address: what happens to a host.
    Changes,
    /// The whole Internet learns in no time that the old address is reached through the other
    /// network: what no network does, and the least that a move can cost.
    Follows,
}

/// A move of the client.
#[derive(Clone, Copy, Debug)]
pub struct Move {
    /// When the new address was usable, in nanoseconds on the shared clock.
    pub usable_ns: u64,
    /// The address after it.
    pub address: IpAddr,
}

impl Testbed {
    /// Moves the client's first card between home and the café.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn relocate(&mut self, address: Address) -> anyhow::Result<Move> {
        self.away = !self.away;
        self.plugs += 1;
        let (access, site) = self.first_network();
        let (usable_ns, addresses) = match address {
            Address::Changes => {
                let addresses = site.host(self.family, self.plugs);
                (self.network.plug(self.cards[0], access, &addresses, METRIC)?, addresses)
            }
            Address::Follows => {
                let kept = Site::Home.host(self.family, 0);
                (self.network.hand_over(self.cards[0], access)?, kept)
            }
        };
        self.arrived(0, usable_ns, &addresses)
    }

    /// The client's first network from the start.
    pub(super) fn plug_at_home(&mut self) -> io::Result<()> {
        let addresses = self.home_site.host(self.family, 0);
        self.network.plug(self.cards[0], self.home, &addresses, METRIC)?;
        self.addresses[0] = addresses.first().map(IpNet::addr);
        Ok(())
    }

    /// The links beside the first: each a cable of its own, behind it in the kernel's order.
    pub(super) fn plug_beside(&mut self, links: &[LinkConfig]) -> anyhow::Result<()> {
        ensure!(links.len() <= Terrain::BESIDE_MAX, "so many links are not told of");
        for (number, link) in (0..).zip(links) {
            let site = Site::Beside(number);
            let subnets = site.subnets(self.family);
            let access = self.network.add_access(self.client, link.clone(), &subnets, None)?;
            let card = self.network.add_card(self.client, &card_beside(number))?;
            let metric = BESIDE_METRIC + u32::from(number);
            self.network.plug(card, access, &site.host(self.family, 0), metric)?;
            self.cards.push(card);
            self.beside.push(access);
        }
        Ok(())
    }

    /// The links beside the first: the card of each, and its address of the tunnel's family.
    pub fn beside(&self) -> Vec<(String, IpAddr)> {
        let numbers = (0..).take(self.beside.len());
        let first = |number| Site::Beside(number).host(self.family, 0).first().map(IpNet::addr);
        numbers.filter_map(|number| Some((card_beside(number), first(number)?))).collect()
    }

    /// Plugs the card in that is not in use, with a new address, as a spare: its default route has
    /// a higher metric.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn plug_spare(&mut self) -> anyhow::Result<Move> {
        let spare = 1 - self.in_use;
        let access = self.network_of(spare).0;
        // It may have been cut when the client left it.
        self.network.set_access(access, Carrier::Up)?;
        self.plug(spare)
    }

    /// Pulls the cable of the card in use, then plugs the other one in: the first one into the
    /// other of its two networks.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn change_card(&mut self) -> anyhow::Result<Move> {
        self.depart()?;
        if self.in_use == 0 {
            self.away = !self.away;
        }
        self.plug(self.in_use)
    }

    fn plug(&mut self, card: usize) -> anyhow::Result<Move> {
        self.plugs += 1;
        let (access, site) = self.network_of(card);
        let addresses = site.host(self.family, self.plugs);
        let metric = METRIC + self.plugs;
        let usable_ns = self.network.plug(self.cards[card], access, &addresses, metric)?;
        self.metrics[card] = metric;
        self.arrived(card, usable_ns, &addresses)
    }

    /// The client's link in use is about to go: its default routes are taken away, it still
    /// carries.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn announce_departure(&mut self) -> io::Result<()> {
        self.network.withdraw_routes(self.cards[self.in_use], self.metrics[self.in_use])
    }

    /// The cable of the link in use is pulled out; the spare one is in use. Returns when the
    /// client's kernel knew it.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn depart(&mut self) -> io::Result<u64> {
        let known_ns = self.network.pull(self.cards[self.in_use])?;
        self.in_use = 1 - self.in_use;
        Ok(known_ns)
    }

    /// The cable of the link of this number is pulled out, and nothing else changes. Returns when
    /// the client's kernel knew it.
    ///
    /// # Errors
    /// What the kernel refused, or that there is no such link.
    pub fn unplug(&mut self, link: usize) -> anyhow::Result<u64> {
        Ok(self.network.pull(self.card_of(link)?)?)
    }

    /// It is put back into the same network. Returns when the client's kernel knew it.
    ///
    /// # Errors
    /// As above.
    pub fn replug(&mut self, link: usize) -> anyhow::Result<u64> {
        Ok(self.network.put_back(self.card_of(link)?)?)
    }

    /// The cable of the spare link is pulled out.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn unplug_spare(&self) -> io::Result<()> {
        self.network.set_carrier(self.cards[1 - self.in_use], false)
    }

    /// Cuts, blackholes or restores the network that the link of this number leads to, unseen by
    /// the client.
    ///
    /// # Errors
    /// When the emulator has died, or there is no such link.
    pub fn set_network(&self, link: usize, carrier: Carrier) -> anyhow::Result<()> {
        let access = match link.checked_sub(1) {
            None => self.first_network().0,
            Some(beside) => *self.beside.get(beside).with_context(|| no_link(link))?,
        };
        Ok(self.network.set_access(access, carrier)?)
    }

    /// The same for the network that the first card will be in next.
    ///
    /// # Errors
    /// When the emulator has died.
    pub fn set_next_network(&self, carrier: Carrier) -> io::Result<()> {
        self.network.set_access(if self.away { self.home } else { self.cafe }, carrier)
    }

    /// Gives the gateway another address in its network and takes the old one away; its name, if it
    /// has one, leads there already. Returns when the new one was usable.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn move_gateway(&mut self) -> io::Result<u64> {
        self.gateway_moves += 1;
        self.gateway_now = Site::DataCentre.host(self.family, self.gateway_moves);
        self.tell_names()?;
        self.network.plug(self.uplink, self.hosting, &self.gateway_now, METRIC)
    }

    /// Gives the gateway another address beside the one that it has, and returns it.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn add_gateway_address(&mut self) -> anyhow::Result<IpAddr> {
        self.gateway_moves += 1;
        let addresses = Site::DataCentre.host(self.family, self.gateway_moves);
        let new = addresses.first().context("a site has no address")?.addr();
        // Alone in its prefix: it would be gone with the first of a common one.
        self.network.add_address(self.gateway, GATEWAY_CARD, new.into())?;
        self.gateway_addresses.push(new.into());
        Ok(new)
    }

    /// Takes every address from the gateway but the one that was added last.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn retire_gateway_address(&mut self) -> io::Result<()> {
        let old = self.gateway_addresses.len().saturating_sub(1);
        for address in self.gateway_addresses.drain(..old) {
            self.network.remove_address(self.gateway, GATEWAY_CARD, address)?;
            self.gateway_before = Some(address);
        }
        Ok(())
    }

    /// Gives the gateway the address back that was retired last; nothing where none was.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn revive_gateway_address(&mut self) -> io::Result<()> {
        let Some(before) = self.gateway_before.take() else { return Ok(()) };
        self.network.add_address(self.gateway, GATEWAY_CARD, before)?;
        self.gateway_addresses.insert(0, before);
        Ok(())
    }

    /// The same, and takes the others away. Returns when it was usable.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn return_gateway(&mut self) -> io::Result<u64> {
        self.revive_gateway_address()?;
        let usable_ns = monotonic_ns();
        self.gateway_addresses.rotate_left(1);
        self.retire_gateway_address()?;
        Ok(usable_ns)
    }

    /// Puts a middlebox before the client's networks, or takes it away.
    ///
    /// # Errors
    /// When the emulator has died.
    pub fn block(&self, blockade: Option<Blockade>) -> anyhow::Result<()> {
        let filter = match blockade {
            None => None,
            Some(Blockade::NoUdp) => Some(Filter::NoUdp),
            Some(Blockade::Only443) => Some(Filter::Port(HTTPS_PORT)),
            Some(Blockade::OnlyTls) => Some(Filter::TlsPort(HTTPS_PORT)),
            Some(Blockade::OnlyProxy) => Some(Filter::End(self.proxy()?)),
        };
        for access in [self.home, self.cafe, self.mobile].iter().chain(&self.beside) {
            self.network.set_filter(*access, filter)?;
        }
        Ok(())
    }

    /// Gives the NAT box at home new ports; nothing without a box.
    ///
    /// # Errors
    /// When the emulator has died.
    pub fn rebind_nat(&self) -> io::Result<()> {
        self.network.rebind_nat(self.home)
    }

    /// Makes the NAT box at home forget everything, with its next outside address.
    ///
    /// # Errors
    /// When the emulator has died.
    pub fn reboot_nat(&mut self) -> io::Result<()> {
        self.reboots = self.reboots % REBOOTS_MAX + 1;
        let [a, b, c, d] = HOME_OUTSIDE.octets();
        self.network.reboot_nat(self.home, [a, b, c, d + self.reboots].into())
    }

    /// Packets that have passed the gateway's card so far, both ways.
    ///
    /// # Errors
    /// When the emulator has died.
    pub fn gateway_packets(&self) -> io::Result<u64> {
        let from = self.network.stats(self.hosting, End::A)?.pushed;
        Ok(from + self.network.stats(self.hosting, End::B)?.delivered)
    }

    /// Changes one direction of the home network's link; [`End::A`] is the uplink.
    ///
    /// # Errors
    /// When the emulator has died.
    pub fn set_home_pipe(&self, end: End, pipe: PipeConfig) -> io::Result<()> {
        self.network.set_pipe(self.home, end, pipe)
    }

    /// The present address of a card of the client's.
    pub fn address(&self, card: usize) -> Option<IpAddr> {
        self.addresses.get(card).copied().flatten()
    }

    /// The same for the network that the second card knows.
    ///
    /// # Errors
    /// When the emulator has died.
    pub fn set_mobile_network(&self, carrier: Carrier) -> io::Result<()> {
        self.network.set_access(self.mobile, carrier)
    }

    /// The card of the link of this number: those beside the first come behind the spare one.
    fn card_of(&self, link: usize) -> anyhow::Result<CardId> {
        let card = if link == FIRST_LINK { 0 } else { link + 1 };
        self.cards.get(card).copied().with_context(|| no_link(link))
    }

    const fn network_of(&self, card: usize) -> (AccessId, Site) {
        if card == 0 { self.first_network() } else { (self.mobile, Site::Mobile) }
    }

    const fn first_network(&self) -> (AccessId, Site) {
        if self.away { (self.cafe, Site::Cafe) } else { (self.home, self.home_site) }
    }

    fn arrived(
        &mut self,
        card: usize,
        usable_ns: u64,
        addresses: &[IpNet],
    ) -> anyhow::Result<Move> {
        let address = addresses.first().context("a site has no address")?.addr();
        self.addresses[card] = Some(address);
        Ok(Move { usable_ns, address })
    }
}

fn no_link(link: usize) -> String {
    format!("the client has no link {link}")
}

/// What the card of this link beside the first is called.
fn card_beside(number: u8) -> String {
    format!("eth{number}")
}
