//! `rove check` and `rove gateway check`: tests of the tunnel and the host for a person who looks
//! for a fault. Each test prints one line.
//!
//! The running node reports on itself and its host. This process tests the rest as any program on
//! this host would: it resolves a name, sends a large packet, and checks an endpoint. It changes
//! nothing. An idle client does not know whether its gateway still answers, so the packets that
//! this process sends through the tunnel come first. Limits: it cannot test whether a gateway is
//! reachable from outside.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::thread;
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use rove_api::{
    Beside, Check, CheckState, ClientStatus, GatewayHost, GatewayStatus, Peers, Problem,
    RunningClient, RunningGateway,
};
use rove_client::WayOut;
use rove_host::control::{self, AskError, Request};
use rove_host::home::{Home, Role};
use rove_host::values::{Endpoint, Host};
use rove_os::names;
use rustix::io::Errno;
use serde::de::DeserializeOwned;

use super::{client, gateway, output};
use crate::cli::OutputArgs;

/// How long an answer from the other end of the tunnel may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// Bytes of a packet that every path carries (RFC 8200 section 5 asks for 1,280).
const SMALL_PACKET: u16 = 576;
/// Public addresses, to which packets with a hop limit of one are sent: they end at the gateway.
const SOMEWHERE_V4: IpAddr = IpAddr::V4(Ipv4Addr::new(9, 9, 9, 9));
const SOMEWHERE_V6: IpAddr = IpAddr::V6(Ipv6Addr::new(0x2620, 0xfe, 0, 0, 0, 0, 0, 0xfe));
/// A name that is reserved for examples (RFC 2606), so the query reveals nothing about the user.
const ASKED_NAME: &str = "example.com";
/// The port of name servers (RFC 1035 section 4.2).
const DNS_PORT: u16 = 53;
/// A clock that is further behind one of the node's own files is wrong.
const CLOCK_SLACK: Duration = Duration::from_secs(120);

/// The names of checks that say what was measured.
const INTERNET: &str = "internet";
const CONNECTIONS: &str = "connections";
const SESSION: &str = "session";
const TRANSPORT: &str = "transport";

/// The cure for name servers that do not answer, on either end.
const BEHIND_TUNNEL: &str = "run `rove gateway check` on the gateway, which names a filter or a \
                             route that stops these packets; or name another server there (`dns` \
                             in gateway.toml)";
const AT_GATEWAY: &str = "name another server (`dns` in gateway.toml), or let the firewalls on the \
                          way pass UDP port 53 to it";

/// The result of one check.
enum Found {
    Good(String),
    /// The fault, with cause and cure.
    Bad(String),
    /// The reason why the check could not be made.
    Unknown(String),
}

/// The checks of one node, by name, in the order in which they depend on each other.
type Checks = Vec<(&'static str, Found)>;

/// `rove check`.
pub(super) fn of_client(home: &Home, args: OutputArgs) -> Result<()> {
    let ask_client = || -> Result<(ClientStatus, RunningClient)> {
        let not_running = || client::not_running(home).doing;
        let mut status: ClientStatus = ask(home, Role::Client, not_running)?;
        // Without this part no problem would be known, and every check of the host would pass.
        let running = status.running.take();
        let running = running
            .context("the running client is of another version: restart it with this one")?;
        Ok((status, running))
    };
    let (mut status, mut running) = ask_client()?;
    let through = (!has_failed(&running)).then(|| Through::ask(&status, &running));
    if through.is_some() {
        // These packets may have shown the client that nobody answers.
        (status, running) = ask_client()?;
    }
    let mut checks = host(&running.problems, &CLIENT_PARTS);
    // The gateway was set up so: nothing is broken.
    let families = running.not_carried.iter().cloned();
    checks.extend(families.map(|line| ("families", Found::Good(line))));
    let through = through.filter(|_| !has_failed(&running));
    let nothing_comes = through.as_ref().is_some_and(|through| through.comes == Some(false));
    let cause = NAMED_CAUSES
        .into_iter()
        .find(|cause| checks.iter().any(|(name, found)| name == cause && found.is_bad()));
    for (name, found) in &mut checks {
        match *name {
            SESSION if nothing_comes => *found = Found::Bad(nothing(cause, device(&status))),
            SESSION if !found.is_bad() => *found = Found::Good(status.doing.clone()),
            TRANSPORT if !found.is_bad() => *found = transport(&status),
            LEAKS if !found.is_bad() => *found = beside(running.beside),
            _ => {}
        }
    }
    // Without a tunnel these tests would blame the gateway for what another line explains.
    let down = || Found::Unknown("not tested, because the tunnel does not carry".to_owned());
    let silent = || Found::Unknown("not asked: nothing comes through the tunnel".to_owned());
    let tests = match through {
        None => [down(), down(), down()],
        Some(_) if nothing_comes => [silent(), silent(), silent()],
        Some(Through { names, internet, .. }) => {
            let inner = running.inner_gateway.as_deref().unwrap_or_default();
            [
                unless_led_away(names, cause, &status.dns, &status),
                unless_led_away(mtu(&running), cause, inner, &status),
                internet,
            ]
        }
    };
    checks.extend(["names", "mtu", INTERNET].into_iter().zip(tests));
    checks.push(("clock", clock(home, Role::Client)));
    tell(checks, args)
}

/// Whether the client itself knows that its session does not carry.
fn has_failed(running: &RunningClient) -> bool {
    running.problems.iter().any(|problem| problem.part.as_deref() == Some(SESSION))
}

/// What came back through the tunnel.
struct Through {
    names: Found,
    internet: Found,
    /// Whether anything came. `None` if nothing could be asked.
    comes: Option<bool>,
}

impl Through {
    /// Asks at all places at once, since each may be silent.
    fn ask(status: &ClientStatus, running: &RunningClient) -> Self {
        let gateways = running.inner_gateway.as_deref().unwrap_or_default();
        let device = device(status);
        let echo = |gateway| match rove_client::echo(gateway, SMALL_PACKET, ANSWER_WITHIN) {
            // This process may not ping.
            Err(error) if error.raw_os_error() == Some(Errno::PERM.raw_os_error()) => None,
            answered => Some(answered.unwrap_or(false)),
        };
        let (pings, names, internet) = thread::scope(|scope| {
            let pings: Vec<_> =
                gateways.iter().map(|&gateway| scope.spawn(move || echo(gateway))).collect();
            let names = scope.spawn(|| servers(&status.dns, "through the tunnel", BEHIND_TUNNEL));
            let internet = internet(status, device.as_deref());
            let pings = pings.into_iter().filter_map(|ping| ping.join().ok()?);
            let unknown = || Found::Unknown("the test ended early".to_owned());
            (pings.collect::<Vec<bool>>(), names.join().unwrap_or_else(|_| unknown()), internet)
        });
        // A server that another link leads to says nothing about the tunnel.
        let is_inside = |server: &IpAddr| device.is_some() && leads_to(*server) == device;
        let is_named = matches!(names, Found::Good(_)) && status.dns.iter().any(is_inside);
        let is_led = !matches!(internet, Found::Unknown(_));
        let comes = match &*pings {
            _ if is_named || is_led => Some(true),
            [] => None,
            pings => Some(pings.contains(&true)),
        };
        Self { names, internet, comes }
    }
}

/// The test, unless it failed because packets to one of these addresses do not use the tunnel, for
/// which another check names the `cause`.
fn unless_led_away(
    found: Found,
    cause: Option<&str>,
    addresses: &[IpAddr],
    status: &ClientStatus,
) -> Found {
    let device = device(status);
    let is_outside = || addresses.iter().any(|&address| leads_to(address) != device);
    match cause.filter(|_| found.is_bad() && is_outside()) {
        Some(cause) => Found::Unknown(format!("not tested: see the line `{cause}`")),
        None => found,
    }
}

/// The interface with the tunnel's addresses.
fn device(status: &ClientStatus) -> Option<String> {
    let links = rove_os::links::snapshot().unwrap_or_default();
    let is_inner = |net: &ipnet::IpNet| status.inner.contains(&net.addr());
    links.into_iter().find(|link| link.addresses.iter().any(is_inner)).map(|link| link.name)
}

fn leads_to(address: IpAddr) -> Option<String> {
    rove_os::plan::link_to(address, rove_os::plan::own_user()).ok().flatten()
}

/// Checks that name why nothing comes back, in the order in which they depend on each other.
const NAMED_CAUSES: [&str; 4] = ["interface", "routes", LEAKS, "others"];

/// The session answers, as far as the client knows, and no packet that a program sends comes back.
fn nothing(cause: Option<&str>, device: Option<String>) -> String {
    let cure = match (cause, device) {
        (Some(cause), _) => format!("first that of the line `{cause}`"),
        (None, device) => format!(
            "look for a filter on {} of this host (`nft list ruleset`, `iptables -S`); if there \
             is none, run `rove gateway check` on the gateway",
            device.as_deref().unwrap_or("the tunnel's interface")
        ),
    };
    format!("nothing comes through the tunnel. Cure: {cure}")
}

/// `rove gateway check`.
pub(super) fn of_gateway(home: &Home, args: OutputArgs) -> Result<()> {
    let not_running = || "the gateway does not run: start it, then check again".to_owned();
    let status: GatewayStatus = ask(home, Role::Gateway, not_running)?;
    let config = rove_gateway::Config::load(&home.config(Role::Gateway))?;
    let mut checks = host(&status.problems, &GATEWAY_PARTS);
    measured(&mut checks, status.host);
    if !config.nat {
        checks.retain(|(name, _)| *name != "nat");
        let off = match config.firewall {
            true => "off: clients keep their inner addresses",
            false => "off, and so is the firewall: clients keep their inner addresses",
        };
        checks.push(("nat", Found::Good(off.to_owned())));
    }
    let heard = status.sessions.as_ref().map(|sessions| heard(home, sessions, &config));
    checks.extend(heard.map(|heard| ("clients", heard)));
    checks.push(("names", servers(&config.dns, "for clients", AT_GATEWAY)));
    checks.extend(config.endpoints.iter().map(|endpoint| ("endpoint", reached_at(endpoint))));
    checks.push(("clock", clock(home, Role::Gateway)));
    tell(checks, args)
}

fn ask<T: DeserializeOwned>(
    home: &Home,
    role: Role,
    not_running: impl FnOnce() -> String,
) -> Result<T> {
    control::ask(&home.socket(role)?, &Request::Status).map_err(|error| match error {
        AskError::NotRunning => anyhow!(not_running()),
        error @ (AskError::Refused(_)
        | AskError::Broken { .. }
        | AskError::Silent { .. }
        | AskError::OtherVersion(_)) => error.into(),
    })
}

/// Prints the checks. Returns an error if one failed.
fn tell(checks: Checks, args: OutputArgs) -> Result<()> {
    let bad = checks.iter().filter(|(_, found)| matches!(found, Found::Bad(_))).count();
    let count = checks.len();
    if args.json {
        let told = checks.iter().map(|(name, found)| {
            let (state, says) = found.parts();
            Check { check: (*name).to_owned(), state, says: says.to_owned() }
        });
        output::json(&told.collect::<Vec<_>>())?;
    } else {
        let mut text = String::new();
        for (name, found) in &checks {
            let (state, says) = found.parts();
            text.push_str(&format!("{state:8}{name:13}{says}\n"));
        }
        output::print(&text)?;
    }
    if bad > 0 {
        bail!("{bad} of {count} checks failed: each line above names the cause and the cure");
    }
    Ok(())
}

impl Found {
    fn parts(&self) -> (CheckState, &str) {
        match self {
            Self::Good(says) => (CheckState::Ok, says),
            Self::Bad(says) => (CheckState::Failed, says),
            Self::Unknown(says) => (CheckState::Unknown, says),
        }
    }

    const fn is_bad(&self) -> bool {
        matches!(self, Self::Bad(_))
    }
}

/// The transport in use, if the client reports no problem with it.
fn transport(status: &ClientStatus) -> Found {
    match status.transport.as_deref() {
        Some(transport) => Found::Good(transport.to_owned()),
        None => Found::Unknown("not tested, because no path is in use".to_owned()),
    }
}

/// The check for what passes by the tunnel.
const LEAKS: &str = "leaks";
const NOTHING_PASSES: &str = "no route and no connection leads past the tunnel";

/// The connections beside the tunnel. They are no fault: each is let through on purpose.
fn beside(beside: Option<Beside>) -> Found {
    let Some(Beside { incoming, kept }) = beside else {
        return Found::Unknown("this host's connections cannot be listed".to_owned());
    };
    let some = |count: usize, which: &str| match count {
        0 => None,
        1 => Some(format!("1 connection {which}")),
        count => Some(format!("{count} connections {which}")),
    };
    let told = [some(incoming, "from outside"), some(kept, "kept for SSH")];
    let told: Vec<String> = told.into_iter().flatten().collect();
    if told.is_empty() {
        return Found::Good(NOTHING_PASSES.to_owned());
    }
    Found::Good(format!("in clear beside the tunnel: {}", told.join(", ")))
}

/// Parts of the host: the name of the check, the part, and the text for a good result.
const CLIENT_PARTS: [(&str, &str, &str); 12] = [
    (SESSION, "session", ""),
    (TRANSPORT, "transport", ""),
    ("links", "link", "no link is silent while another carries"),
    ("interface", "interface", "up, with its addresses"),
    ("routes", "routing", "in place"),
    (LEAKS, "leak", NOTHING_PASSES),
    ("filters", "filter", "in place"),
    ("kill switch", "kill-switch", "as wanted"),
    ("settings", "setting", "in place"),
    ("resolver", "dns", "as wanted"),
    ("offload", rove_host::offload::PART, "no segmented send is known to lose packets"),
    ("others", "other", "nothing else is wrong"),
];
const GATEWAY_PARTS: [(&str, &str, &str); 9] = [
    ("interface", "interface", "up, with its addresses"),
    ("routes", "routing", "in place"),
    ("nat", "filter", "in place"),
    ("forwarding", "setting", "on"),
    ("firewall", "firewall", "no other program's filter drops what is forwarded"),
    ("offload", rove_host::offload::PART, "no segmented send is known to lose packets"),
    (INTERNET, "internet", ""),
    (CONNECTIONS, "connections", ""),
    ("others", "other", "nothing else is wrong"),
];

/// The node's report on its host: one line for each part, or one for each of its problems.
fn host(problems: &[Problem], parts: &[(&'static str, &str, &str)]) -> Checks {
    let mut checks = Checks::new();
    for (name, part, good) in parts {
        let of_part = problems.iter().filter(|problem| problem.part.as_deref() == Some(*part));
        let bad = of_part.map(|problem| (*name, Found::Bad(output::problem(problem))));
        let before = checks.len();
        checks.extend(bad);
        if checks.len() == before {
            checks.push((name, Found::Good((*good).to_owned())));
        }
    }
    checks
}

/// Says what was measured where nothing is wrong.
fn measured(checks: &mut Checks, host: Option<GatewayHost>) {
    let leaves = host.and_then(|host| host.leaves).map(gateway::internet);
    let connections = host.and_then(|host| host.connections).map(gateway::connections);
    let unknown = || Found::Unknown("no test packet could be sent: nft is missing".to_owned());
    let none = || Found::Good("the kernel tracks no connections".to_owned());
    for (name, found) in checks {
        let is_good = matches!(found, Found::Good(_));
        if is_good && *name == INTERNET {
            let said = leaves.as_ref().map(|said| format!("a test packet would leave: {said}"));
            *found = said.map_or_else(unknown, Found::Good);
        }
        if is_good && *name == CONNECTIONS {
            *found = connections.clone().map_or_else(none, Found::Good);
        }
    }
}

/// Whether name servers answer.
fn servers(servers: &[IpAddr], whom: &str, cure: &str) -> Found {
    if servers.is_empty() {
        return Found::Good(format!("no name server is set {whom}"));
    }
    let deaf: Vec<String> = servers
        .iter()
        .filter(|&&server| {
            let asked =
                names::resolve(ASKED_NAME, &[(server, DNS_PORT).into()], None, ANSWER_WITHIN);
            matches!(asked, Err(rove_os::error::Error::NameUnanswered { .. }))
        })
        .map(IpAddr::to_string)
        .collect();
    let within = ANSWER_WITHIN.as_secs();
    if deaf.is_empty() {
        let all: Vec<String> = servers.iter().map(IpAddr::to_string).collect();
        return Found::Good(format!("{} answered", all.join(", ")));
    }
    let deaf = deaf.join(", ");
    Found::Bad(format!("no answer from the name server {deaf} within {within} s. Cure: {cure}"))
}

/// Whether the largest packet comes through and back.
fn mtu(running: &RunningClient) -> Found {
    let gateways = running.inner_gateway.as_deref().unwrap_or_default();
    let mtu = u16::try_from(running.mtu).ok();
    let Some(mtu) = mtu.filter(|_| !gateways.is_empty()) else {
        return Found::Unknown("there is no lease yet".to_owned());
    };
    for &gateway in gateways {
        match rove_client::echo(gateway, mtu, ANSWER_WITHIN) {
            Ok(true) => {}
            Ok(false) => {
                let small = rove_client::echo(gateway, SMALL_PACKET, ANSWER_WITHIN);
                return Found::Bad(unanswered(gateway, mtu, small.unwrap_or(false)));
            }
            Err(error) => {
                return Found::Unknown(format!("no ping can be sent ({error}): run as root"));
            }
        }
    }
    Found::Good(format!("packets of {mtu} bytes come through"))
}

/// When a client was heard. Whether a filter drops what comes in is not known to the gateway.
fn heard(home: &Home, sessions: &RunningGateway, config: &rove_gateway::Config) -> Found {
    let (heard, within) = (sessions.heard, sessions.heard_within_s);
    if heard > 0 {
        return Found::Good(format!("{heard} heard in the last {within} s"));
    }
    let peers: Peers = match rove_gateway::ask(home, &Request::Peers) {
        Ok(peers) => peers,
        Err(error) => return Found::Unknown(format!("not known: {error:#}")),
    };
    let last = peers.peers.iter().filter_map(|peer| peer.session.as_ref()?.last_heard_s).min();
    let since = last.map_or_else(
        || "no client has been heard since the gateway started".to_owned(),
        |last| format!("no client has been heard for {last} s"),
    );
    let ports: BTreeSet<u16> = config.listen.iter().map(SocketAddr::port).collect();
    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
    Found::Unknown(format!(
        "{since}. If clients cannot connect, let this host's firewall, and those in front of it, \
         accept UDP port {}",
        ports.join(", ")
    ))
}

/// Whether the gateway's host has routes to the Internet, for what uses the tunnel.
fn internet(status: &ClientStatus, tunnel: Option<&str>) -> Found {
    let families = [("IPv4", SOMEWHERE_V4), ("IPv6", SOMEWHERE_V6)].map(|(name, address)| {
        let is_inner = status.inner.iter().any(|own| own.is_ipv4() == address.is_ipv4());
        let is_tested = is_inner && tunnel.is_some() && leads_to(address).as_deref() == tunnel;
        let said = is_tested.then(|| rove_client::way_out(address, ANSWER_WITHIN));
        (name, said.and_then(Result::ok))
    });
    let with = |wanted: WayOut| {
        let found = families.iter().filter(|(_, said)| *said == Some(wanted));
        found.map(|(name, _)| *name).collect::<Vec<_>>().join(" and ")
    };
    let (works, none) = (with(WayOut::Exists), with(WayOut::NoRoute));
    match (works.is_empty(), none.is_empty()) {
        (false, true) => Found::Good(format!("the gateway's host has a route for {works}")),
        (false, false) => Found::Good(format!(
            "the gateway's host has a route for {works} and none for {none}: programs use {works}"
        )),
        (true, false) => Found::Bad(format!(
            "the gateway's host has no route for {none}. Cure: `rove gateway check` on the gateway"
        )),
        (true, true) => Found::Unknown(
            "not tested, because the Internet is not reached through the tunnel, or the gateway's \
             host does not answer"
                .to_owned(),
        ),
    }
}

/// What was measured if a large ping is not answered, and what that may mean.
fn unanswered(gateway: IpAddr, mtu: u16, is_small_answered: bool) -> String {
    let within = ANSWER_WITHIN.as_secs();
    if is_small_answered {
        return format!(
            "{gateway} answers a ping of {SMALL_PACKET} bytes and not one of {mtu} bytes within \
             {within} s. Cure: try another network; a router on the path may drop large packets"
        );
    }
    format!(
        "{gateway} answers no ping through the tunnel within {within} s, and other packets come \
         back. Cure: look for a filter on the tunnel's interface of this host; if there is none, \
         let the gateway's firewall answer pings from its tunnel"
    )
}

/// Whether the clock is behind the node's own files. With such a clock, invites and signatures seem
/// to come from the future, or never expire.
fn clock(home: &Home, role: Role) -> Found {
    let files = fs::read_dir(home.state(role)).into_iter().flatten().flatten();
    let written = files.filter_map(|file| file.metadata().ok()?.modified().ok()).max();
    let Some(ahead) = written.and_then(|at| at.duration_since(SystemTime::now()).ok()) else {
        return Found::Good("not behind the node's own files".to_owned());
    };
    if ahead <= CLOCK_SLACK {
        return Found::Good("not behind the node's own files".to_owned());
    }
    Found::Bad(format!(
        "this host's clock is {} s behind files that this node wrote. Cure: set the clock (NTP)",
        ahead.as_secs()
    ))
}

/// Whether an endpoint leads to this host, as far as this host can know.
fn reached_at(endpoint: &Endpoint) -> Found {
    let found: Vec<IpAddr> = match &endpoint.host {
        Host::Address(address) => vec![*address],
        Host::Name(name) => match (name.to_string(), endpoint.port).to_socket_addrs() {
            Ok(addresses) => addresses.map(|address| address.ip()).collect(),
            Err(error) => {
                return Found::Bad(format!(
                    "{endpoint}: the name does not resolve here ({error}). Cure: make its DNS \
                     records, or this host's DNS work"
                ));
            }
        },
    };
    let own = rove_os::links::snapshot().unwrap_or_default();
    let own: Vec<IpAddr> =
        own.iter().flat_map(|link| &link.addresses).map(|net| net.addr()).collect();
    if found.iter().any(|address| own.contains(address)) {
        return Found::Good(format!("{endpoint} is an address of this host"));
    }
    Found::Unknown(format!(
        "{endpoint} is no address of this host: what is in front of it must forward UDP port {}",
        endpoint.port
    ))
}
