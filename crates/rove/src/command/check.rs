//! `rove check` and `rove gateway check`: tests of the tunnel and the host for a person who looks
//! for a fault. Each test prints one line.
//!
//! The running node reports on itself and its host. This process tests the rest as any program on
//! this host would: it resolves a name, sends a large packet, and checks an endpoint. It changes
//! nothing. Limits: it cannot test whether a gateway is reachable from outside.

use std::fs;
use std::net::{IpAddr, ToSocketAddrs};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result, anyhow, bail};
use rove_api::{
    Beside, Check, CheckState, ClientStatus, GatewayHost, GatewayStatus, Problem, RunningClient,
    TransportChoice,
};
use rove_host::control::{self, AskError, Request};
use rove_host::home::{Home, Role};
use rove_host::values::{Endpoint, Host};
use rove_os::names;
use serde::de::DeserializeOwned;

use super::{gateway, output};
use crate::cli::OutputArgs;

/// How long an answer from the other end of the tunnel may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(3);
/// A name that is reserved for examples (RFC 2606), so the query reveals nothing about the user.
const ASKED_NAME: &str = "example.com";
/// The port of name servers (RFC 1035 section 4.2).
const DNS_PORT: u16 = 53;
/// A clock that is further behind one of the node's own files is wrong.
const CLOCK_SLACK: Duration = Duration::from_secs(120);

/// The names of checks that say what was measured.
const INTERNET: &str = "internet";
const CONNECTIONS: &str = "connections";

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
pub(super) fn client(home: &Home, args: OutputArgs) -> Result<()> {
    let status: ClientStatus = ask(home, Role::Client, "not up: connect with `rove up`")?;
    // Without this part no problem would be known, and every check of the host would pass.
    let running = status.running.as_ref();
    let running =
        running.context("the running client is of another version: restart it with this one")?;
    let mut checks = vec![("session", session(&status)), ("transport", transport(&status))];
    checks.extend(host(&running.problems, &CLIENT_PARTS));
    for (name, found) in &mut checks {
        if *name == LEAKS && matches!(found, Found::Good(_)) {
            *found = beside(running.beside);
        }
    }
    checks.push(("names", servers(&status.dns, "through the tunnel")));
    checks.push(("mtu", mtu(running)));
    checks.push(("clock", clock(home, Role::Client)));
    tell(checks, args)
}

/// `rove gateway check`.
pub(super) fn gateway(home: &Home, args: OutputArgs) -> Result<()> {
    let not_running = "the gateway does not run: start it, then check again";
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
    checks.push(("names", servers(&config.dns, "for clients")));
    checks.extend(config.endpoints.iter().map(|endpoint| ("endpoint", reached_at(endpoint))));
    checks.push(("clock", clock(home, Role::Gateway)));
    tell(checks, args)
}

fn ask<T: DeserializeOwned>(home: &Home, role: Role, not_running: &'static str) -> Result<T> {
    control::ask(&home.socket(role)?, &Request::Status).map_err(|error| match error {
        AskError::NotRunning => anyhow!(not_running),
        error @ (AskError::Refused(_) | AskError::Broken { .. } | AskError::OtherVersion(_)) => {
            error.into()
        }
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
}

fn session(status: &ClientStatus) -> Found {
    let doing = status.doing.clone();
    if status.carrying { Found::Good(doing) } else { Found::Bad(doing) }
}

fn transport(status: &ClientStatus) -> Found {
    match status.transport.as_deref() {
        Some("udp") => Found::Good("udp".to_owned()),
        None => Found::Unknown("no path is in use".to_owned()),
        Some(other) if status.transport_wanted != Some(TransportChoice::Auto) => {
            Found::Good(other.to_owned())
        }
        Some(other) => Found::Bad(format!(
            "{other} stands in, since UDP gets no answer: this network blocks it. Cure: another \
             network, or let its firewall pass UDP to the gateway"
        )),
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
const CLIENT_PARTS: [(&str, &str, &str); 8] = [
    ("interface", "interface", "up, with its addresses"),
    ("routes", "routing", "in place"),
    (LEAKS, "leak", NOTHING_PASSES),
    ("filters", "filter", "in place"),
    ("kill switch", "kill-switch", "as wanted"),
    ("settings", "setting", "in place"),
    ("resolver", "dns", "as wanted"),
    ("offload", rove_host::offload::PART, "no segmented send is known to lose packets"),
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
fn servers(servers: &[IpAddr], whom: &str) -> Found {
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
    Found::Bad(format!(
        "no answer from the name server {} within {within} s. Cure: name one that is reached from \
         the gateway (`dns` in gateway.toml), or let its firewall answer",
        deaf.join(", ")
    ))
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
                return Found::Bad(format!(
                    "a packet of {mtu} bytes to {gateway} was not answered within {} s. Cure: let \
                     the gateway's firewall answer pings from its tunnel; if small ones are \
                     answered, tell `rove paths` to whoever can mend the path's MTU",
                    ANSWER_WITHIN.as_secs()
                ));
            }
            Err(error) => {
                return Found::Unknown(format!("no ping can be sent ({error}): run as root"));
            }
        }
    }
    Found::Good(format!("packets of {mtu} bytes come through"))
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
