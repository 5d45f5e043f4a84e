//! The testbed of most scenarios: a client that moves, a gateway, and a server behind it.
//!
//! ```text
//!  client            access networks                         gateway            server
//!  wlan0 --- home   198.51.100.0/24 --+                    +- eth0  192.0.2.2
//!     or --- cafe   203.0.113.0/24  --+---- Internet ------+  lan0  10.20.0.1 --- eth0 10.20.0.2
//!  wwan0 --- mobile 100.64.0.0/24 ----+-- services 198.18.0.0/24                       10.20.0.3
//!   eth0 --- beside 100.64.1.0/24 ----+
//! ```
//! The links beside the first two interfaces, up to three, exist only if a scenario asks for them.
//! The access networks are emulated. The cable between gateway and server is the kernel's (veth)
//! and costs nothing. The server has two addresses on the same links, so that one run can measure
//! both: a tunnel carries the first, and the second is always reached without it. The Internet does
//! not know the first, because a missing tunnel must not look like a fast one.

mod connections;
mod crowd;
mod services;
mod spinning;
mod travel;

use super::addresses::{
    CLIENT, Family, GATEWAY_NAME, HOME_OUTSIDE, NEAR_SERVER, OPEN_SERVER, OTHER_SERVERS, SERVER,
    SERVER_PREFIX, Site,
};
use crate::emu::{LinkConfig, NatConfig, NatKind};
use crate::ground::{
    Assist, Download, Downloader, Edge, Families, Known, Mode, Receiver, Route, Spread, Terrain,
};
use crate::netns::{AccessId, CardId, Entered, HostId, Network, Process};
use crate::programs::{EchoStats, FlowRequest, Report, report};
use crowd::Member;
use ipnet::IpNet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;
pub use travel::{Address, Move};

/// How long a program may take to be ready.
const START: Duration = Duration::from_secs(10);
/// Port of the file server.
const HTTP_PORT: u16 = 8080;
/// Port of the echo.
const ECHO_PORT: u16 = 7;
/// Port of the steady flow.
const FLOW_PORT: u16 = 9;

/// The gateway's interface towards the Internet.
const GATEWAY_CARD: &str = "eth0";
/// Metric of the default route on the first interface; that of a spare is higher.
const METRIC: u32 = 100;

/// Client, gateway and server, with the server's programs running.
#[derive(Debug)]
pub struct Testbed {
    /// Hosts and links.
    pub network: Network,
    /// The host that moves.
    pub client: HostId,
    /// The host between the Internet and the server.
    pub gateway: HostId,
    /// The host with the files.
    pub server: HostId,
    /// The client's interfaces. The first moves between home and café, the second is on the mobile
    /// network; those of the links beside follow, each on its own network for good.
    pub cards: Vec<CardId>,
    /// How it uses several links.
    pub mode: Mode,
    /// Its scheduler.
    pub scheduler: &'static str,
    /// Its transport.
    pub transport: &'static str,
    /// Whether its configuration asks for low latency for calls that are not RTP.
    pub early: bool,
    /// Whether both ends leave out headers that the other one knows.
    pub elides: bool,
    /// Its priorities of the server's addresses.
    pub levels: &'static [(u8, u8)],
    /// The paths in use.
    pub spread: Spread,
    /// Local acknowledgement of both ends.
    assist: Assist,
    /// The host with the proxy and the name server.
    services: HostId,
    /// The gateway's interface.
    pub uplink: CardId,
    /// The client's first network, with or without a NAT.
    home: AccessId,
    home_site: Site,
    /// The network that it moves to.
    cafe: AccessId,
    mobile: AccessId,
    beside: Vec<AccessId>,
    /// Further clients, which do not move.
    crowd: Vec<Member>,
    /// The gateway's network.
    hosting: AccessId,
    family: Family,
    /// The interface in use: 0 or 1.
    in_use: usize,
    /// Whether the first interface is at the café.
    away: bool,
    /// How often an interface was connected.
    plugs: u32,
    /// The gateway's announced addresses.
    gateway_addresses: Vec<IpNet>,
    /// The one that was removed last.
    gateway_before: Option<IpNet>,
    /// Its present addresses, to which its name resolves.
    gateway_now: Vec<IpNet>,
    /// Whether it has a name, and whether the name follows it.
    named: bool,
    stale: bool,
    /// How often the gateway has moved.
    gateway_moves: u32,
    /// How often the NAT was restarted.
    reboots: u8,
    /// How often connections were opened.
    connections: u16,
    /// The metrics of the interfaces' default routes.
    metrics: [u32; 2],
    /// The addresses of the connected interfaces.
    addresses: [Option<IpAddr>; 2],
    lab: PathBuf,
    servers: Vec<Process>,
    /// Those that keep the machine busy.
    spinning: Vec<Process>,
    /// The client's source of flows, once there is one.
    client_sends: Option<Process>,
}

impl Testbed {
    /// Builds hosts and links, with the client at home, and starts the server's programs.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn new(
        entered: &Entered,
        terrain: &Terrain,
        family: Family,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let family = if terrain.families == Families::Differ { Family::Either } else { family };
        let mut network = Network::new(entered, seed)?;
        let client = network.add_host("client")?;
        let gateway = network.add_host("gateway")?;
        let server = network.add_host("server")?;
        let cards = vec![network.add_card(client, "wlan0")?, network.add_card(client, "wwan0")?];
        let (home_site, nat) = home_behind(terrain.edge);
        let mut access = |site: Site, nat| {
            network.add_access(client, terrain.link.clone(), &site.subnets(family), nat)
        };
        let (home, cafe) = (access(home_site, nat)?, access(Site::Cafe, None)?);
        let mobile = access(Site::Mobile, None)?;
        let (uplink, hosting) = connect_server(&mut network, gateway, server, family)?;
        for (end, pipe) in terrain.beyond() {
            network.set_pipe(hosting, end, pipe)?;
        }
        let services = services::connect(&mut network, family)?;
        let mut testbed = Self {
            network,
            client,
            gateway,
            server,
            services,
            cards,
            mode: terrain.mode,
            scheduler: terrain.scheduler,
            transport: terrain.transport,
            early: terrain.early,
            elides: terrain.elides,
            levels: terrain.levels,
            spread: terrain.spread,
            assist: terrain.assist,
            uplink,
            home,
            home_site,
            cafe,
            mobile,
            beside: Vec::new(),
            crowd: Vec::new(),
            hosting,
            family,
            in_use: 0,
            away: false,
            plugs: 0,
            reboots: 0,
            gateway_addresses: first_address(family),
            gateway_before: None,
            gateway_now: Site::DataCentre.host(family, 0),
            named: false,
            stale: false,
            gateway_moves: 0,
            connections: 0,
            metrics: [METRIC; 2],
            addresses: [None; 2],
            lab: std::env::current_exe()?,
            servers: Vec::new(),
            spinning: Vec::new(),
            client_sends: None,
        };
        testbed.plug_at_home()?;
        testbed.plug_beside(&terrain.beside)?;
        testbed.add_crowd(terrain)?;
        testbed.start_servers()?;
        testbed.start_proxy()?;
        testbed.make_known(terrain.known).map(|()| testbed)
    }

    /// Prepares how the client finds the gateway.
    fn make_known(&mut self, known: Known) -> anyhow::Result<()> {
        match known {
            Known::ByAddress => {}
            Known::ByTwoAddresses => drop(self.add_gateway_address()?),
            Known::ByName { keep_s } => self.start_names(keep_s)?,
        }
        Ok(())
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

    /// Begins a download on the client; its content follows from `seed`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn download(&self, seed: u64, download: &Download) -> io::Result<Process> {
        let server = SocketAddr::from((server(download.route), HTTP_PORT));
        let program = match download.by {
            Downloader::Fetch => "fetch",
            Downloader::Browser => "browse",
        };
        let url = format!("http://{server}/{seed}/{}", download.length);
        self.start(self.client, program, &[&url])
    }

    /// Begins to call the server from the client, until it answers.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn reach(&self, limit_ms: u64) -> io::Result<Process> {
        let echo = SocketAddr::from((SERVER, ECHO_PORT)).to_string();
        let options = [&echo, "--limit-ms", &limit_ms.to_string()];
        let mut calling = self.start(self.client, "reach", &options)?;
        calling.line_where(START, |line| (report(line)? == Report::Ready).then_some(()))?;
        Ok(calling)
    }

    /// Begins to measure round trips from the client to the server: `count` of them, one every
    /// `interval_us` microseconds.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn ping(&self, route: Route, count: u32, interval_us: u64) -> io::Result<Pinging> {
        let echo = SocketAddr::from((server(route), ECHO_PORT)).to_string();
        let (count_text, interval) = (count.to_string(), interval_us.to_string());
        let options = [&echo, "--count", &count_text, "--interval-us", &interval];
        let process = self.start(self.client, "ping", &options)?;
        let patience = Duration::from_micros(u64::from(count) * interval_us) + START;
        Ok(Pinging { process, patience })
    }

    /// Makes one end of the tunnel send a steady flow to the other, and waits until that one has
    /// subscribed to it; `None` if nobody answered.
    ///
    /// # Errors
    /// If the program fails.
    pub fn subscribe(
        &mut self,
        to: Receiver,
        request: &FlowRequest,
    ) -> io::Result<Option<Process>> {
        let (host, sender) = match to {
            Receiver::Client => (self.client, SERVER),
            Receiver::Server => (self.server, CLIENT),
        };
        if to == Receiver::Server {
            self.let_client_send()?;
        }
        let flow = SocketAddr::from((sender, FLOW_PORT)).to_string();
        let subscriber = self.start_subscriber(host, &flow, request)?;
        accepted(subscriber)
    }

    /// Starts to subscribe to the flow of that address; [`accepted`] waits for the answer.
    fn start_subscriber(
        &self,
        host: HostId,
        flow: &str,
        request: &FlowRequest,
    ) -> io::Result<Process> {
        let FlowRequest { interval_us, size, wait_ms, begin_ns, count } = *request;
        let option = |name: &str, value: String| [format!("--{name}"), value];
        let mut options = [
            option("interval-us", interval_us.to_string()),
            option("size", size.to_string()),
            option("wait-ms", wait_ms.to_string()),
            option("count", count.to_string()),
        ]
        .concat();
        options.extend(begin_ns.into_iter().flat_map(|at| option("begin-ns", at.to_string())));
        let options: Vec<&str> =
            [flow].into_iter().chain(options.iter().map(String::as_str)).collect();
        self.start(host, "subscribe", &options)
    }

    /// Starts the client's own source of flows, unless it runs.
    fn let_client_send(&mut self) -> io::Result<()> {
        if self.client_sends.is_none() {
            let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, FLOW_PORT)).to_string();
            let mut source = self.start(self.client, "flow", &[&listen])?;
            source.line_where(START, |line| (report(line)? == Report::Ready).then_some(()))?;
            self.client_sends = Some(source);
        }
        Ok(())
    }

    /// Announces the address behind the tunnel to the Internet, for runs without a tunnel.
    ///
    /// # Errors
    /// If the emulator has died.
    pub fn expose_server(&self) -> io::Result<()> {
        self.network.route_to(IpNet::from(IpAddr::from(SERVER)), self.hosting)
    }

    /// The gateway's address on the Internet.
    pub fn gateway_address(&self) -> IpAddr {
        self.family.gateway()
    }

    /// All addresses of the gateway.
    pub fn gateway_addresses(&self) -> Vec<IpAddr> {
        let mut all = self.family.gateways();
        let others = self.gateway_addresses.iter().map(IpNet::addr);
        all.extend(others.filter(|other| *other != self.family.gateway()));
        all
    }

    /// Local acknowledgement of both ends, where it makes a difference: in mode `full`.
    pub fn assists(&self) -> Option<Assist> {
        (self.mode == Mode::Full).then_some(self.assist)
    }

    /// The gateway's name, if it has one.
    pub const fn gateway_name(&self) -> Option<&'static str> {
        if self.named { Some(GATEWAY_NAME) } else { None }
    }

    /// The family that tunnels use outside.
    pub const fn family(&self) -> Family {
        self.family
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

/// The client's first network behind such a device, and its NAT.
fn home_behind(edge: Edge) -> (Site, Option<NatConfig>) {
    let Edge::Nat { filtering, expiry_ns } = edge else { return (Site::Home, None) };
    let nat = NatConfig::new(NatKind::PortRestricted, vec![HOME_OUTSIDE.into()]);
    (Site::BehindHome, Some(NatConfig { filtering, expiry_ns, ..nat }))
}

/// Waits until a subscriber was answered; `None` if nobody answered.
fn accepted(mut subscriber: Process) -> io::Result<Option<Process>> {
    let answered = subscriber.line_where(START, |line| match report(line)? {
        Report::Ready => Some(true),
        Report::Unanswered => Some(false),
        Report::Connected { .. }
        | Report::Progress { .. }
        | Report::Downloaded(_)
        | Report::Opened { .. }
        | Report::Carried(_)
        | Report::Broken { .. }
        | Report::Echoed { .. }
        | Report::Reached { .. }
        | Report::Pinged(_)
        | Report::Flowed(_)
        | Report::Heard(_)
        | Report::Poured(_) => None,
    })?;
    Ok(answered.then_some(subscriber))
}

/// Round trips in progress.
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

/// The gateway's first addresses.
fn first_address(family: Family) -> Vec<IpNet> {
    Site::DataCentre.host(family, 0).into_iter().take(1).collect()
}

/// The server's address on this route.
const fn server(route: Route) -> Ipv4Addr {
    match route {
        Route::Tunnelled => SERVER,
        Route::Open => OPEN_SERVER,
    }
}

/// The server's address of this number behind the tunnel.
pub const fn server_numbered(number: u8) -> Ipv4Addr {
    match number {
        0 => SERVER,
        other => OTHER_SERVERS[other as usize - 1],
    }
}

/// Puts the gateway on the Internet and the server behind it.
fn connect_server(
    network: &mut Network,
    gateway: HostId,
    server: HostId,
    family: Family,
) -> anyhow::Result<(CardId, AccessId)> {
    let uplink = network.add_card(gateway, GATEWAY_CARD)?;
    let subnets = Site::DataCentre.subnets(family);
    let hosting = network.add_access(gateway, LinkConfig::ideal(), &subnets, None)?;
    network.plug(uplink, hosting, &Site::DataCentre.host(family, 0), METRIC)?;
    let inside = |address: Ipv4Addr| IpNet::new(address.into(), SERVER_PREFIX);
    let (near, far) = (inside(NEAR_SERVER)?, inside(SERVER)?);
    network.cable((gateway, "lan0", near), (server, "eth0", far))?;
    for other in OTHER_SERVERS.into_iter().chain([OPEN_SERVER]) {
        network.add_address(server, "eth0", inside(other)?)?;
    }
    network.add_host_route(server, "eth0", IpNet::default(), near.addr())?;
    network.route_to(IpNet::from(IpAddr::from(OPEN_SERVER)), hosting)?;
    network.host(gateway).enable_forwarding()?;
    Ok((uplink, hosting))
}
