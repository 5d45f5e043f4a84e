//! `client.toml`: what `rove up` does unless the command line says otherwise.
//!
//! A missing file means the defaults.

mod dns;
mod link;
mod paths;
mod proxy;
mod qos;

use std::path::Path;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use rove_host::config::{
    ConfigError, FlowRules, InterfaceName, LogConfig, Persistence, RawDevice, RawLog,
    RawPersistence, RawRule, RawSaving, RawSecurity, Saving, Security, Source,
};
use rove_host::files::read_text;
use rove_host::values::{
    DOMAINS_MAX, Domain, Lifetime, Misspelt, SUBNETS_MAX, parse_network, spelt,
};
use rove_os::plan::{Connection, EXCLUDED_MAX};
use serde::Deserialize;
use toml::Spanned;

use link::RawLink;
use paths::RawPaths;
use qos::RawQos;

pub use dns::DnsChoice;
pub use link::LinkSetting;
pub(crate) use link::{LinkRules, LinkSeen, LinkTerms, LinkUse, UsedBy, kind_of};
pub(crate) use paths::{LinkMode, PathManager, TransportChoice};
pub use paths::{LinkScheduler, PathsConfig, Subflows};
pub(crate) use proxy::{ProxyChoice, ProxyUrl};
pub(crate) use qos::QosConfig;

/// How many networks may be routed into the tunnel. Each is one rule of the packet filter.
pub(crate) const ROUTES_MAX: usize = 256;
const TIMEOUT: Lifetime = Lifetime::from_seconds(30);

/// What a client is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The tunnel's interface.
    pub(crate) interface: InterfaceName,
    /// What goes through the tunnel; empty means everything, IPv6 included.
    pub route: Vec<IpNet>,
    /// What does not, although `route` covers it.
    pub exclude: Vec<IpNet>,
    /// Whether nothing may leave by another way, from now until `rove down`.
    pub kill_switch: bool,
    /// Whether the local network stays reachable.
    pub allow_lan: bool,
    /// Connections from before the tunnel that continue outside it. Never set by the file.
    pub kept: Vec<Connection>,
    /// Whether TCP connections that came in before the tunnel do too. Never set by the file.
    pub keep_incoming: bool,
    /// The subnets behind this client; the invite must allow them.
    pub advertise: Vec<IpNet>,
    /// Domains that the gateway's name servers know. With `route` only their names are asked
    /// there, and without these none; else all names are, and these are tried for short names.
    pub(crate) domains: Vec<Domain>,
    /// Whether Rove changes this host's name servers.
    pub dns: DnsChoice,
    /// Whether TCP and TLS are tried where UDP is blocked.
    pub(crate) streams: bool,
    /// Whether a link that carries nothing is asked for a captive portal.
    pub(crate) portal_check: bool,
    /// The HTTP proxy that they go by as well.
    pub(crate) proxy: ProxyChoice,
    /// How long `rove up` waits for the first round trip through the tunnel.
    pub timeout: Lifetime,
    /// What is made of its links.
    pub paths: PathsConfig,
    /// What it wants early.
    pub(crate) qos: QosConfig,
    /// Which links it uses, and which it prefers.
    pub(crate) links: LinkRules,
    /// How long the session is kept.
    pub(crate) persistence: Persistence,
    /// How bytes are saved on the links.
    pub(crate) saving: Saving,
    /// How strong the cipher is.
    pub(crate) security: Security,
    /// What the user wants for some flows, and for the devices behind this client.
    pub(crate) rules: FlowRules,
    /// What is logged.
    pub log: LogConfig,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    #[serde(default)]
    client: RawClient,
    #[serde(default)]
    paths: RawPaths,
    #[serde(default)]
    qos: RawQos,
    #[serde(default)]
    link: Vec<RawLink>,
    #[serde(default)]
    persistence: RawPersistence,
    #[serde(default)]
    saving: RawSaving,
    #[serde(default)]
    security: RawSecurity,
    #[serde(default)]
    rule: Vec<Spanned<RawRule>>,
    #[serde(default)]
    device: Vec<Spanned<RawDevice>>,
    #[serde(default)]
    log: RawLog,
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawClient {
    interface: Option<Spanned<String>>,
    route: Option<Spanned<Vec<Spanned<String>>>>,
    exclude: Option<Spanned<Vec<Spanned<String>>>>,
    exclude_file: Option<Spanned<String>>,
    kill_switch: Option<bool>,
    allow_lan: Option<bool>,
    advertise: Option<Spanned<Vec<Spanned<String>>>>,
    domains: Option<Spanned<Vec<Spanned<String>>>>,
    dns: Option<Spanned<String>>,
    streams: Option<bool>,
    portal_check: Option<bool>,
    proxy: Option<Spanned<String>>,
    timeout: Option<Spanned<String>>,
}

impl Config {
    /// Reads and checks the file at `path`; the defaults when there is none.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        match Source::read(path) {
            Ok(source) => Self::parse(&source),
            Err(ConfigError::File(rove_host::files::FileError::Missing(_))) => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    fn parse(source: &Source) -> Result<Self, ConfigError> {
        let file: RawFile = source.parse()?;
        let rules = FlowRules::validate(&file.rule, &file.device, source)?;
        let RawFile { client: raw, paths, qos, link, persistence, saving, security, log, .. } =
            file;
        let (log, persistence) = (log.validate(source)?, persistence.validate(source)?);
        let (saving, security) = (saving.validate(source)?, security.validate(source)?);
        let (paths, qos) = (paths.validate(source)?, qos.validate(source)?);
        let links = LinkRules::validate(&link, source)?;
        let usual = Self::default();
        let mut config =
            Self { log, paths, qos, links, persistence, saving, security, rules, ..usual };
        if let Some(interface) = &raw.interface {
            config.interface = source.value("client.interface", interface)?;
        }
        if let Some(proxy) = &raw.proxy {
            config.proxy = source.value("client.proxy", proxy)?;
        }
        if let Some(timeout) = &raw.timeout {
            config.timeout = source.value("client.timeout", timeout)?;
        }
        if let Some(domains) = &raw.domains {
            config.domains = source.list("client.domains", domains, DOMAINS_MAX)?;
        }
        if let Some(dns) = &raw.dns {
            config.dns = source.value("client.dns", dns)?;
        }
        config.kill_switch = raw.kill_switch.unwrap_or(false);
        config.allow_lan = raw.allow_lan.unwrap_or(false);
        config.streams = raw.streams.unwrap_or(true);
        config.portal_check = raw.portal_check.unwrap_or(true);
        let networks = |key: &str, list: &Option<Spanned<Vec<Spanned<String>>>>, max| match list {
            None => Ok(Vec::new()),
            Some(list) => parse_networks(source, key, list, max),
        };
        config.route = networks("client.route", &raw.route, ROUTES_MAX)?;
        config.exclude = networks("client.exclude", &raw.exclude, EXCLUDED_MAX)?;
        if let Some(file) = &raw.exclude_file {
            config.exclude.extend(excluded_in(source, file)?);
        }
        config.advertise = networks("client.advertise", &raw.advertise, SUBNETS_MAX)?;
        config.check().map_err(|error| source.invalid(&(0..0), "client", error))?;
        Ok(config)
    }

    /// Checks what no single value shows.
    pub fn check(&self) -> Result<(), Misspelt> {
        if self.kill_switch && !self.route.is_empty() {
            return Err(Misspelt::new(
                "a kill switch lets nothing out but the tunnel, which only some routes use: leave \
                 out route or kill-switch",
            ));
        }
        if self.kill_switch
            && let Some(family) = excludes_all(&self.exclude)
        {
            return Err(Misspelt::new(format!(
                "exclude covers all {family} addresses, so the kill switch would let everything \
                 out: exclude smaller networks, or leave out kill-switch"
            )));
        }
        if !self.streams && !self.paths.transport.has_udp() {
            return Err(Misspelt::new(
                "a transport of tcp or mptcp needs streams: leave out one of the two",
            ));
        }
        Ok(())
    }
}

impl Config {
    /// Settings without effect, or with less than their name suggests, and what to do.
    pub fn idle(&self) -> Vec<String> {
        let (mode, full) = (self.paths.mode, LinkMode::Full);
        let early = (mode != full && !self.qos.low_latency.is_empty()).then(|| {
            format!(
                "[qos] low_latency does nothing with mode {mode}: `rove set mode {full}`, or leave \
                 it out"
            )
        });
        let domains = (self.dns == DnsChoice::Leave && !self.domains.is_empty()).then(|| {
            "domains does nothing with dns = \"leave\": leave out one of the two".to_owned()
        });
        let advertised = spelt(&self.advertise).join(", ");
        let advertise = (!self.advertise.is_empty()).then(|| {
            format!(
                "other peers reach {advertised} only if the gateway allows it: `rove gateway \
                 peers` lists it below SUBNETS"
            )
        });
        let strength = self.security.strength.max(self.security.floor);
        let rules = self.rules.idle(strength);
        self.paths.all_idle().chain(early).chain(domains).chain(advertise).chain(rules).collect()
    }
}

/// The family whose public addresses the networks cover: alone, or put together.
fn excludes_all(exclude: &[IpNet]) -> Option<&'static str> {
    let merged = IpNet::aggregate(&exclude.iter().map(IpNet::trunc).collect());
    let covers = |net: IpNet| merged.iter().any(|other| other.contains(&net));
    // Private addresses and the loopback are no part of the Internet (RFC 1918, RFC 1122). The
    // public rest of 172.0.0.0/8 and 192.0.0.0/8 is small.
    let mut public = (1..=223).filter(|first| ![10, 127, 172, 192].contains(first));
    if public.all(|first| covers(Ipv4Net::new_assert([first, 0, 0, 0].into(), 8).into())) {
        return Some("IPv4");
    }
    // Global unicast addresses (RFC 4291 section 2.4, IANA).
    covers(Ipv6Net::new_assert([0x2000, 0, 0, 0, 0, 0, 0, 0].into(), 3).into()).then_some("IPv6")
}

/// The networks of a file with one on each line, as lists of countries' prefixes are published.
/// Empty lines do not count, nor does anything behind a `#`.
fn excluded_in(source: &Source, file: &Spanned<String>) -> Result<Vec<IpNet>, ConfigError> {
    let key = "client.exclude-file";
    let invalid = |what: String| source.invalid(&file.span(), key, what);
    let path = source.beside(Path::new(file.get_ref()));
    let text = read_text(&path).map_err(|error| invalid(error.to_string()))?;
    let content = |line: &'_ str| line.split('#').next().unwrap_or_default().trim().to_owned();
    let lines = text.lines().map(content).enumerate().filter(|(_, line)| !line.is_empty());
    let parse = |(number, line): (usize, String)| {
        parse_network(&line)
            .map_err(|error| invalid(format!("{}:{}: {error}", path.display(), number + 1)))
    };
    let nets: Vec<IpNet> = lines.take(EXCLUDED_MAX + 1).map(parse).collect::<Result<_, _>>()?;
    if nets.len() > EXCLUDED_MAX {
        return Err(invalid(format!("has more than {EXCLUDED_MAX} networks: leave some out")));
    }
    Ok(nets)
}

fn parse_networks(
    source: &Source,
    key: &str,
    list: &Spanned<Vec<Spanned<String>>>,
    max: usize,
) -> Result<Vec<IpNet>, ConfigError> {
    if list.get_ref().len() > max {
        let message = format!("has more than {max} entries: leave some out");
        return Err(source.invalid(&list.span(), key, message));
    }
    let parse = |entry: &Spanned<String>| {
        let parsed = parse_network(entry.get_ref());
        parsed.map_err(|error| source.invalid(&entry.span(), key, error))
    };
    list.get_ref().iter().map(parse).collect()
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interface: InterfaceName::client_default(),
            route: Vec::new(),
            exclude: Vec::new(),
            kill_switch: false,
            allow_lan: false,
            kept: Vec::new(),
            keep_incoming: true,
            advertise: Vec::new(),
            domains: Vec::new(),
            dns: DnsChoice::default(),
            streams: true,
            portal_check: true,
            proxy: ProxyChoice::default(),
            timeout: TIMEOUT,
            paths: PathsConfig::default(),
            qos: QosConfig::default(),
            links: LinkRules::default(),
            persistence: Persistence::default(),
            saving: Saving::default(),
            security: Security::default(),
            rules: FlowRules::default(),
            log: LogConfig::default(),
        }
    }
}

#[cfg(test)]
mod tests;
