//! The place where most stories happen: a client that moves, a gateway, and a server behind it.
//!
//! ```text
//!  client            access networks                         gateway            server
//!  wlan0 --- home  198.51.100.0/24 ---+                    +- eth0  192.0.2.2
//!     or --- cafe  203.0.113.0/24  ---+---- Internet ------+  lan0  10.20.0.1 --- eth0 10.20.0.2
//!  wwan0 --- mobile 100.64.0.0/24 ----+
//! ```
//! Every network has IPv6 as well, from 2001:db8::/32 (RFC 3849) and fd00::/8. The access networks
//! are emulated; the cable between gateway and server is the kernel's (veth) and costs nothing, so
//! a download without a tunnel takes the very same way and differs in nothing else.

use crate::emu::LinkConfig;
use crate::netns::{AccessId, CardId, Entered, HostId, Network, Process};
use crate::programs::Report;
use ipnet::IpNet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// How long a program may take to be ready.
const START: Duration = Duration::from_secs(10);
/// Port of the file server.
const HTTP_PORT: u16 = 8080;
/// Port of the echo.
const ECHO_PORT: u16 = 7;
/// Port of the steady flow.
const FLOW_PORT: u16 = 9;

/// Address of the gateway on the Internet.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
/// Address of the server.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 2);
/// Network inside the tunnel.
pub const TUNNEL_NETWORK: &str = "10.77.0.0/24";
/// The client's address in each of its access networks.
pub const CLIENT_HOME: &str = "198.51.100.2/24";
/// See [`CLIENT_HOME`].
pub const CLIENT_CAFE: &str = "203.0.113.2/24";
/// See [`CLIENT_HOME`].
pub const CLIENT_MOBILE: &str = "100.64.0.2/24";

/// Metric of the default route over the first card; the second card's is higher.
const METRIC: u32 = 100;

/// Client, gateway and server, with their programs running.
#[derive(Debug)]
pub struct Testbed {
    /// Hosts and links.
    pub network: Network,
    /// The one that moves.
    pub client: HostId,
    /// The one between the Internet and the server.
    pub gateway: HostId,
    /// The one with the files.
    pub server: HostId,
    /// The client's first card.
    pub wlan: CardId,
    /// The gateway's card on the Internet.
    pub uplink: CardId,
    /// Where the client begins.
    pub home: AccessId,
    /// Where it goes.
    pub cafe: AccessId,
    lab: PathBuf,
    servers: Vec<Process>,
}

impl Testbed {
    /// Builds hosts and links, with the client at home, and starts the server's programs.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn new(entered: &Entered, link: &LinkConfig, seed: u64) -> io::Result<Self> {
        let mut network = Network::new(entered, seed)?;
        let client = network.add_host("client")?;
        let gateway = network.add_host("gateway")?;
        let server = network.add_host("server")?;
        let wlan = network.add_card(client, "wlan0")?;
        let uplink = network.add_card(gateway, "eth0")?;
        let at_home = net(CLIENT_HOME);
        let home = network.add_access(client, link.clone(), &[at_home.trunc()], None)?;
        let at_cafe = net(CLIENT_CAFE);
        let cafe = network.add_access(client, link.clone(), &[at_cafe.trunc()], None)?;
        let data_centre = net("192.0.2.2/24");
        let hosting =
            network.add_access(gateway, LinkConfig::ideal(), &[data_centre.trunc()], None)?;
        network.plug(uplink, hosting, &[data_centre], METRIC)?;
        network.plug(wlan, home, &[at_home], METRIC)?;
        let (near, far) = (net("10.20.0.1/24"), net("10.20.0.2/24"));
        network.cable((gateway, "lan0", near), (server, "eth0", far))?;
        network.add_host_route(server, "eth0", IpNet::default(), near.addr())?;
        network.route_to(near.trunc(), hosting)?;
        network.host(gateway).enable_forwarding()?;
        let lab = std::env::current_exe()?;
        let servers = Vec::new();
        let mut testbed =
            Self { network, client, gateway, server, wlan, uplink, home, cafe, lab, servers };
        for (program, port) in [("serve", HTTP_PORT), ("echo", ECHO_PORT), ("flow", FLOW_PORT)] {
            let listen = SocketAddr::from((SERVER, port)).to_string();
            let running = testbed.start(server, program, &[&listen])?;
            testbed.servers.push(running);
        }
        for running in &mut testbed.servers {
            running.line_where(START, |line| (report(line)? == Report::Ready).then_some(()))?;
        }
        Ok(testbed)
    }

    /// Starts one of the lab's own programs on a host.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(&self, host: HostId, program: &str, arguments: &[&str]) -> io::Result<Process> {
        let host = self.network.host(host);
        let mut command = host.command(&self.lab)?;
        command.arg("program").arg(program).args(arguments);
        host.spawn(program, command)
    }

    /// Begins a download of `length` bytes, whose content follows from `seed`, on the client.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn download(&self, seed: u64, length: u64) -> io::Result<Process> {
        let url = format!("http://{SERVER}:{HTTP_PORT}/{seed}/{length}");
        self.start(self.client, "fetch", &[&url])
    }

    /// The address of the echo on the server.
    pub fn echo(&self) -> SocketAddr {
        SocketAddr::from((SERVER, ECHO_PORT))
    }

    /// The address of the steady flow on the server.
    pub fn flow(&self) -> SocketAddr {
        SocketAddr::from((SERVER, FLOW_PORT))
    }

    /// The client goes to the café: same card, another network, another address. Returns when
    /// that became usable, in nanoseconds on the shared clock.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn move_to_cafe(&mut self) -> io::Result<u64> {
        self.network.plug(self.wlan, self.cafe, &[net(CLIENT_CAFE)], METRIC)
    }

    /// The client goes home again.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn move_home(&mut self) -> io::Result<u64> {
        self.network.plug(self.wlan, self.home, &[net(CLIENT_HOME)], METRIC)
    }
}

/// What a program said, if the line is a report.
pub fn report(line: &str) -> Option<Report> {
    serde_json::from_str(line).ok()
}

/// A prefix or an address with its prefix, as constants above have it.
///
/// # Panics
/// Never for those.
pub fn net(text: &str) -> IpNet {
    text.parse().unwrap_or_else(|_| IpNet::from(IpAddr::V4(Ipv4Addr::UNSPECIFIED)))
}
