//! The place where most stories happen: a client that moves, a gateway, and a server behind it.
//!
//! ```text
//!  client            access networks                         gateway            server
//!  wlan0 --- home   198.51.100.0/24 --+                    +- eth0  192.0.2.2
//!     or --- cafe   203.0.113.0/24  --+---- Internet ------+  lan0  10.20.0.1 --- eth0 10.20.0.2
//!  wwan0 --- mobile 100.64.0.0/24 ----+                                                10.20.0.3
//! ```
//! The access networks are emulated; the cable between gateway and server is the kernel's (veth)
//! and costs nothing. The server has two addresses: a tunnel carries the first, the second is
//! always reached without it, over the very same links, so both can be measured in one run.

use crate::emu::{LinkConfig, MS};
use crate::netns::{AccessId, CardId, Entered, HostId, Network, Process};
use crate::programs::{EchoStats, FlowRequest, Report};
use ipnet::{IpNet, Ipv4Net};
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
/// Address of the server, which tunnels carry.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 2);
/// The server's other address, which no tunnel carries.
pub const OPEN_SERVER: Ipv4Addr = Ipv4Addr::new(10, 20, 0, 3);
/// Network inside the tunnel.
pub const TUNNEL_NETWORK: &str = "10.77.0.0/24";
/// Where the gateway is on the Internet.
const DATA_CENTRE: &str = "192.0.2.2/24";
/// The client's access networks. Its address in them grows with every move.
const HOME: &str = "198.51.100.0/24";
/// See [`HOME`].
const CAFE: &str = "203.0.113.0/24";
/// See [`HOME`].
const MOBILE: &str = "100.64.0.0/24";
/// First address of the client in a network; the one before is the network's gateway.
const FIRST_ADDRESS: u32 = 2;
/// Moves after which addresses begin again.
const ADDRESSES: u32 = 250;

/// Metric of the default route over the first card; the second card's is higher.
const METRIC: u32 = 100;

/// Client, gateway and server, with the server's programs running.
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
    /// Where the client begins.
    pub home: AccessId,
    /// Where it goes.
    pub cafe: AccessId,
    mobile: AccessId,
    moves: u32,
    lab: PathBuf,
    servers: Vec<Process>,
}

/// Which of the server's addresses a program talks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// The one that tunnels carry.
    Tunnelled,
    /// The one that they do not.
    Open,
}

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
    /// Builds hosts and links, with the client at home, and starts the server's programs.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn new(entered: &Entered, link: &LinkConfig, seed: u64) -> anyhow::Result<Self> {
        let mut network = Network::new(entered, seed)?;
        let client = network.add_host("client")?;
        let gateway = network.add_host("gateway")?;
        let server = network.add_host("server")?;
        let wlan = network.add_card(client, "wlan0")?;
        let mut access = |subnet: &str| -> anyhow::Result<AccessId> {
            Ok(network.add_access(client, link.clone(), &[net(subnet)?], None)?)
        };
        let (home, cafe, mobile) = (access(HOME)?, access(CAFE)?, access(MOBILE)?);
        connect_server(&mut network, gateway, server)?;
        let lab = std::env::current_exe()?;
        let (moves, servers) = (0, Vec::new());
        let mut testbed = Self {
            network,
            client,
            gateway,
            server,
            wlan,
            home,
            cafe,
            mobile,
            moves,
            lab,
            servers,
        };
        let at_home = address_in(HOME, 0)?;
        testbed.network.plug(wlan, home, &[at_home], METRIC)?;
        testbed.start_servers()?;
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
    pub fn download(&self, route: Route, seed: u64, length: u64) -> io::Result<Process> {
        let server = SocketAddr::from((route.server(), HTTP_PORT));
        self.start(self.client, "fetch", &[&format!("http://{server}/{seed}/{length}")])
    }

    /// Begins to measure round trips from the client to the server: `count` of them, one every
    /// `interval_us` microseconds.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn ping(&self, route: Route, count: u32, interval_us: u64) -> io::Result<Pinging> {
        let echo = SocketAddr::from((route.server(), ECHO_PORT)).to_string();
        let (count_text, interval) = (count.to_string(), interval_us.to_string());
        let options = [&echo, "--count", &count_text, "--interval-us", &interval];
        let process = self.start(self.client, "ping", &options)?;
        let patience = Duration::from_micros(u64::from(count) * interval_us) + START;
        Ok(Pinging { process, patience })
    }

    /// Lets the server send a steady flow to the client, and waits until the client has
    /// subscribed to it.
    ///
    /// # Errors
    /// When the program fails, or the server cannot be reached.
    pub fn subscribe(&self, route: Route, request: &FlowRequest) -> io::Result<Process> {
        let flow = SocketAddr::from((route.server(), FLOW_PORT)).to_string();
        let FlowRequest { interval_us, size, wait_ms, count } = *request;
        let [interval, size] = [interval_us.to_string(), size.to_string()];
        let [wait, count] = [wait_ms.to_string(), count.to_string()];
        let options = [
            &flow,
            "--interval-us",
            &interval,
            "--size",
            &size,
            "--wait-ms",
            &wait,
            "--count",
            &count,
        ];
        let mut subscriber = self.start(self.client, "subscribe", &options)?;
        subscriber.line_where(START, |line| (report(line)? == Report::Ready).then_some(()))?;
        Ok(subscriber)
    }

    /// Moves the client between home and the café.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn relocate(&mut self, address: Address) -> anyhow::Result<Move> {
        self.moves += 1;
        let (access, subnet) =
            if self.moves % 2 == 1 { (self.cafe, CAFE) } else { (self.home, HOME) };
        match address {
            Address::Changes => {
                let address = address_in(subnet, self.moves)?;
                let usable_ns = self.network.plug(self.wlan, access, &[address], METRIC)?;
                Ok(Move { usable_ns, address: address.addr() })
            }
            Address::Follows => {
                let usable_ns = self.network.hand_over(self.wlan, access)?;
                let address = address_in(HOME, 0)?.addr();
                Ok(Move { usable_ns, address })
            }
        }
    }

    /// The access network to which the client will move next.
    pub const fn next_access(&self) -> AccessId {
        if self.moves.is_multiple_of(2) { self.cafe } else { self.home }
    }

    /// Gives the client a second card, on the mobile network, as a spare: its default route has a
    /// higher metric.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn add_spare(&mut self) -> anyhow::Result<CardId> {
        let card = self.network.add_card(self.client, "wwan0")?;
        self.network.plug(card, self.mobile, &[address_in(MOBILE, 0)?], METRIC * 2)?;
        Ok(card)
    }

    /// The client's first link is about to go: its default routes are taken away, it still carries.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn announce_departure(&mut self) -> io::Result<()> {
        self.network.withdraw_routes(self.wlan, METRIC)
    }

    fn start_servers(&mut self) -> io::Result<()> {
        for server in [SERVER, OPEN_SERVER] {
            for (program, port) in [("serve", HTTP_PORT), ("echo", ECHO_PORT), ("flow", FLOW_PORT)]
            {
                let listen = SocketAddr::from((server, port)).to_string();
                self.servers.push(self.start(self.server, program, &[&listen])?);
            }
        }
        for running in &mut self.servers {
            running.line_where(START, |line| (report(line)? == Report::Ready).then_some(()))?;
        }
        Ok(())
    }
}

/// Round trips that are being measured.
#[derive(Debug)]
pub struct Pinging {
    process: Process,
    patience: Duration,
}

impl Pinging {
    /// Waits for the result.
    ///
    /// # Errors
    /// When the program fails; losses are no failure.
    pub fn finish(mut self) -> io::Result<EchoStats> {
        self.process.line_where(self.patience, |line| {
            if let Report::Pinged(stats) = report(line)? { Some(stats) } else { None }
        })
    }
}

impl EchoStats {
    /// The round trips in milliseconds, in the order of sending.
    pub fn round_trips_ms(&self) -> Vec<f64> {
        self.round_trips_ns.iter().map(|ns| *ns as f64 / MS as f64).collect()
    }
}

impl Route {
    /// The server's address.
    pub const fn server(self) -> Ipv4Addr {
        match self {
            Self::Tunnelled => SERVER,
            Self::Open => OPEN_SERVER,
        }
    }
}

/// Puts the gateway on the Internet and the server behind it.
fn connect_server(network: &mut Network, gateway: HostId, server: HostId) -> anyhow::Result<()> {
    let uplink = network.add_card(gateway, "eth0")?;
    let address = net(DATA_CENTRE)?;
    let hosting = network.add_access(gateway, LinkConfig::ideal(), &[address.trunc()], None)?;
    network.plug(uplink, hosting, &[address], METRIC)?;
    let (near, far) = (net("10.20.0.1/24")?, IpNet::new(SERVER.into(), 24)?);
    network.cable((gateway, "lan0", near), (server, "eth0", far))?;
    network.add_address(server, "eth0", IpNet::new(OPEN_SERVER.into(), 24)?)?;
    network.add_host_route(server, "eth0", IpNet::default(), near.addr())?;
    network.route_to(near.trunc(), hosting)?;
    network.host(gateway).enable_forwarding()?;
    Ok(())
}

/// What a program said, if the line is a report.
pub fn report(line: &str) -> Option<Report> {
    serde_json::from_str(line).ok()
}

/// The client's address in a network after so many moves.
fn address_in(subnet: &str, moves: u32) -> anyhow::Result<IpNet> {
    let subnet: Ipv4Net = subnet.parse()?;
    let host = u32::from(subnet.network()) + FIRST_ADDRESS + moves % ADDRESSES;
    Ok(IpNet::V4(Ipv4Net::new(Ipv4Addr::from(host), subnet.prefix_len())?))
}

fn net(text: &str) -> anyhow::Result<IpNet> {
    Ok(text.parse()?)
}
