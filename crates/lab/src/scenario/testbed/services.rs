//! The host that has what the Internet has for everybody: a proxy, and a name server that knows
//! where the gateway is.

use super::{START, Testbed};
use crate::emu::LinkConfig;
use crate::netns::{HostId, Network};
use crate::programs::{Report, report};
use crate::scenario::addresses::{Family, GATEWAY_NAME, Site};
use anyhow::Context as _;
use ipnet::IpNet;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The usual port of proxies.
const PROXY_PORT: u16 = 3_128;
/// The port of name servers (RFC 1035, section 4.2).
const NAMES_PORT: u16 = 53;
/// The file, in the host's directory, with the name server's records.
const ZONE: &str = "zone";

/// Puts the host on the Internet.
pub(super) fn connect(network: &mut Network, family: Family) -> anyhow::Result<HostId> {
    let host = network.add_host("services")?;
    let card = network.add_card(host, "eth0")?;
    let subnets = Site::Services.subnets(family);
    let access = network.add_access(host, LinkConfig::ideal(), &subnets, None)?;
    network.plug(card, access, &Site::Services.host(family, 0), super::METRIC)?;
    Ok(host)
}

impl Testbed {
    /// Starts the proxy.
    pub(super) fn start_proxy(&mut self) -> anyhow::Result<()> {
        let proxy = self.proxy()?;
        self.start_service("proxy", &[&proxy.to_string()])
    }

    /// Where the proxy is.
    ///
    /// # Errors
    /// When the host has no address.
    pub fn proxy(&self) -> anyhow::Result<SocketAddr> {
        Ok(SocketAddr::new(self.services_address()?, PROXY_PORT))
    }

    /// Starts the name server, which the client and the gateway ask from now on, and gives it the
    /// gateway's name. Its answers may be kept for so many seconds, and it keeps its own that long.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start_names(&mut self, keep_s: u64) -> anyhow::Result<()> {
        let address = self.services_address()?;
        self.write_zone()?;
        let listen = SocketAddr::new(address, NAMES_PORT).to_string();
        self.start_service("names", &[&listen, ZONE, "--keep-s", &keep_s.to_string()])?;
        for host in [self.client, self.gateway].into_iter().chain(self.crowd()) {
            self.network.host(host).set_name_servers(&[address])?;
        }
        self.named = true;
        Ok(())
    }

    /// The gateway's name follows it no more.
    pub const fn forget_names(&mut self) {
        self.stale = true;
    }

    /// The name server knows where the gateway is now. Nothing while it does not run.
    pub(super) fn tell_names(&self) -> io::Result<()> {
        if self.named && !self.stale { self.write_zone() } else { Ok(()) }
    }

    /// Replaces the records at once: the name server reads them with every question.
    fn write_zone(&self) -> io::Result<()> {
        let addresses = self.gateway_now.iter().map(IpNet::addr);
        let zone: String = addresses.map(|at| format!("{GATEWAY_NAME} {at}\n")).collect();
        let directory = self.network.host(self.services).directory();
        std::fs::write(directory.join("zone.new"), zone)?;
        std::fs::rename(directory.join("zone.new"), directory.join(ZONE))
    }

    fn services_address(&self) -> anyhow::Result<IpAddr> {
        let addresses = Site::Services.host(self.family, 0);
        Ok(addresses.first().context("a site has no address")?.addr())
    }

    fn start_service(&mut self, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
        let mut running = self.start(self.services, program, arguments)?;
        running.line_where(START, |line| (report(line)? == Report::Ready).then_some(()))?;
        self.servers.push(running);
        Ok(())
    }
}
