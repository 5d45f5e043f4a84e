//! `gateway.toml`.

mod hop;
mod relocation;

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use rove_host::config::{
    ConfigError, FlowRules, InterfaceName, LogConfig, Persistence, RawDevice, RawLog,
    RawPersistence, RawRule, RawSaving, RawSecurity, Saving, Security, Source,
};
use rove_host::values::{ENDPOINTS_MAX, Endpoint, Misspelt, Networks};
use serde::Deserialize;
use toml::Spanned;

use hop::{Places, RawHop};

pub(crate) use hop::{HopConfig, HopSource};
pub(crate) use relocation::Relocation;

/// How many sockets a gateway listens on.
const LISTEN_MAX: usize = 16;
/// How many DNS servers clients are told of.
const DNS_MAX: usize = 4;

/// What a gateway is to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Where clients reach it, best first.
    pub endpoints: Vec<Endpoint>,
    /// The local addresses and ports that it listens on.
    pub listen: Vec<SocketAddr>,
    /// The local addresses and TCP ports where it takes streams; may be none.
    pub(crate) streams: Vec<SocketAddr>,
    /// The web server that gets what comes to such a port and is none of Rove's.
    pub(crate) web_server: Option<SocketAddr>,
    /// The inner networks.
    pub(crate) networks: Networks,
    /// The DNS servers that clients are to use.
    pub dns: Vec<IpAddr>,
    /// The tunnel's interface.
    pub(crate) interface: InterfaceName,
    /// Whether clients reach the Internet under the gateway's own address.
    pub nat: bool,
    /// Whether Rove filters what passes between the tunnel and other networks; always with NAT.
    pub firewall: bool,
    /// Which hosts on the gateway's own links belong to the Internet.
    pub(crate) neighbours: Neighbours,
    /// Where peers are remembered.
    pub(crate) store: StoreUrl,
    /// Between which addresses it hops, if it does.
    pub(crate) hop: Option<HopConfig>,
    /// How long sessions are kept.
    pub(crate) persistence: Persistence,
    /// How bytes are saved on the links.
    pub(crate) saving: Saving,
    /// How strong the cipher is.
    pub(crate) security: Security,
    /// What the operator wants for some flows, as far as this end sends them.
    pub(crate) rules: FlowRules,
    /// What is logged.
    pub(crate) log: LogConfig,
}

/// Which hosts with public addresses, on the links that lead the gateway to the Internet, clients
/// may contact like the rest of the Internet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) enum Neighbours {
    /// None.
    None,
    /// Those with IPv4 addresses. A home network has private ones.
    #[default]
    Ipv4,
    /// All. A home network has public IPv6 addresses, and its router's firewall protects them from
    /// the Internet, but not from the gateway.
    All,
}

/// Where a gateway remembers its peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `redb:FILE`: a file of the embedded database, relative to the gateway's directory.
    Embedded(PathBuf),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct RawFile {
    gateway: RawGateway,
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

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RawGateway {
    endpoints: Spanned<Vec<Spanned<String>>>,
    listen: Option<Spanned<Vec<Spanned<String>>>>,
    streams: Option<Spanned<Vec<Spanned<String>>>>,
    web_server: Option<Spanned<String>>,
    networks: Spanned<Vec<Spanned<String>>>,
    dns: Option<Spanned<Vec<Spanned<String>>>>,
    interface: Option<Spanned<String>>,
    nat: Option<bool>,
    firewall: Option<Spanned<bool>>,
    neighbours: Option<Spanned<String>>,
    store: Option<Spanned<String>>,
    hop: Option<RawHop>,
}

impl Config {
    /// Reads and checks the file at `path`.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        Self::parse(&Source::read(path)?)
    }

    /// Checks the text of such a file; errors call it `name`.
    pub(crate) fn from_text(text: &str, name: &Path) -> Result<Self, ConfigError> {
        Self::parse(&Source::new(name, text))
    }

    fn parse(source: &Source) -> Result<Self, ConfigError> {
        let RawFile { gateway: raw, persistence, saving, security, rule, device, log } =
            source.parse()?;
        let endpoints: Vec<Endpoint> =
            source.list("gateway.endpoints", &raw.endpoints, ENDPOINTS_MAX)?;
        if endpoints.is_empty() {
            let message = "is empty: name at least one HOST:PORT where clients reach this gateway";
            return Err(source.invalid(&raw.endpoints.span(), "gateway.endpoints", message));
        }
        let listen = match &raw.listen {
            Some(listen) => parse_listen(source, "gateway.listen", listen, 1)?,
            None => Self::default_listen(&endpoints),
        };
        let streams = match &raw.streams {
            Some(streams) => parse_listen(source, "gateway.streams", streams, 0)?,
            None => listen.clone(),
        };
        let web_server = match raw.web_server.as_ref().filter(|text| !text.get_ref().is_empty()) {
            Some(text) => Some(parse_place(source, "gateway.web-server", text)?),
            None => None,
        };
        let interface = match &raw.interface {
            Some(interface) => source.value("gateway.interface", interface)?,
            None => InterfaceName::gateway_default(),
        };
        let dns = raw.dns.as_ref().map(|dns| parse_dns(source, dns)).transpose()?;
        let store = raw.store.as_ref().map(|store| source.value("gateway.store", store));
        let networks = parse_networks(source, &raw.networks)?;
        let first = endpoints.first().map(|endpoint| endpoint.port);
        let places = Places { first, listen: &listen, streams: &streams };
        let nat = raw.nat.unwrap_or(true);
        let firewall = raw.firewall.as_ref().is_none_or(|firewall| *firewall.get_ref());
        if let Some(key) = raw.firewall.as_ref().filter(|_| nat && !firewall) {
            let message = "cannot be false with nat = true: set nat = false, too";
            return Err(source.invalid(&key.span(), "gateway.firewall", message));
        }
        let neighbours = raw.neighbours.as_ref();
        let neighbours = neighbours.map(|word| source.value("gateway.neighbours", word));
        let hop =
            raw.hop.as_ref().map(|hop| hop.validate(source, places, &networks)).transpose()?;
        Ok(Self {
            listen,
            streams,
            web_server,
            networks,
            hop,
            persistence: persistence.validate(source)?,
            saving: saving.validate_gateway(source)?,
            security: security.validate(source)?,
            rules: FlowRules::validate_gateway(&rule, &device, source)?,
            dns: dns.unwrap_or_default(),
            interface,
            nat,
            firewall,
            neighbours: neighbours.transpose()?.unwrap_or_default(),
            store: store.transpose()?.unwrap_or_default(),
            log: log.validate(source)?,
            endpoints,
        })
    }

    /// The configuration of a new gateway: these values, and defaults for the rest.
    pub fn new(
        endpoints: Vec<Endpoint>,
        networks: Networks,
        dns: Vec<IpAddr>,
        store: StoreUrl,
    ) -> Result<Self, Misspelt> {
        let many =
            |what: &str, max| Misspelt::new(format!("more than {max} {what}: leave some out"));
        if endpoints.len() > ENDPOINTS_MAX {
            return Err(many("endpoints", ENDPOINTS_MAX));
        }
        if dns.len() > DNS_MAX {
            return Err(many("DNS servers", DNS_MAX));
        }
        endpoints.iter().try_for_each(Endpoint::check_reachable)?;
        networks.check_usable()?;
        let listen = Self::default_listen(&endpoints);
        let (streams, web_server) = (listen.clone(), None);
        let (interface, log) = (InterfaceName::gateway_default(), LogConfig::default());
        let (nat, firewall) = (true, true);
        Ok(Self {
            endpoints,
            listen,
            streams,
            web_server,
            networks,
            dns,
            interface,
            nat,
            firewall,
            neighbours: Neighbours::default(),
            store,
            hop: None,
            persistence: Persistence::default(),
            saving: Saving::default(),
            security: Security::default(),
            rules: FlowRules::default(),
            log,
        })
    }

    /// Settings that are valid but probably not intended, for the log or the terminal.
    pub fn doubts(&self) -> Vec<String> {
        let unreachable = self.endpoints.iter().filter_map(|e| e.check_reachable().err());
        let public = self.networks.public().map(|net| {
            format!(
                "clients can no longer reach the real owner of {net}, because it is a public \
                 network: unless it is yours, use a private network, for example \
                 10.77.0.0/24,fd77::/64"
            )
        });
        let open = (!self.firewall).then(|| {
            "firewall = false: hosts around this gateway can contact every client, and a client \
             can send packets of no connection; filter what is forwarded with another firewall"
                .to_owned()
        });
        unreachable.map(|error| error.to_string()).chain(public).chain(open).collect()
    }

    /// Every address of the host, at the ports that clients are told.
    fn default_listen(endpoints: &[Endpoint]) -> Vec<SocketAddr> {
        let mut ports: Vec<u16> = endpoints.iter().map(|endpoint| endpoint.port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports.into_iter().map(|port| (Ipv6Addr::UNSPECIFIED, port).into()).collect()
    }

    /// The text of a new file with these values and a word about every key.
    pub(crate) fn to_text(&self) -> String {
        let list = |items: &mut dyn Iterator<Item = String>| {
            let quoted: Vec<String> = items.map(|item| format!("\"{item}\"")).collect();
            format!("[{}]", quoted.join(", "))
        };
        let Self { endpoints, listen, streams, networks, dns, interface, nat, store, .. } = self;
        let endpoints = list(&mut endpoints.iter().map(Endpoint::to_string));
        let listen = list(&mut listen.iter().map(SocketAddr::to_string));
        let streams = list(&mut streams.iter().map(SocketAddr::to_string));
        let web_server = self.web_server.map_or_else(String::new, |at| at.to_string());
        let networks = list(&mut networks.iter().map(|net| net.to_string()));
        let persistence = self.persistence.timeout;
        let dns = list(&mut dns.iter().map(IpAddr::to_string));
        format!(
            r#"# A Rove gateway. It reads and checks this file when it starts. `rove reload` applies
# nat, hold, assist, aggregate and all rules. A key behind # shows its default.

[gateway]
# Where clients reach this gateway, best first: HOST:PORT. If you change these or the networks, put
# operator.key into this directory and run `rove gateway sign`.
endpoints = {endpoints}

# Local addresses and ports to listen on. [::] takes IPv4 too.
# listen = {listen}

# The inner networks: one IPv4, one IPv6, or both. The gateway has the first host address of each.
networks = {networks}

# DNS servers that clients use while the tunnel is up.
dns = {dns}

# The tunnel's interface.
# interface = "{interface}"

# Translate clients' addresses to this gateway's (NAT). With false, packets leave with inner
# addresses, and the networks around must route these back to this host.
nat = {nat}

# Drop packets that belong to no connection, and let only clients open connections into the tunnel.
# It needs nft. Without nat it can be false, if another firewall filters forwarded packets.
# firewall = true

# Which hosts with public addresses in this gateway's own networks clients may reach, like the rest
# of the Internet: "ipv4", "all" or "none". With "all", clients reach devices of a home network over
# IPv6, past its router's firewall.
# neighbours = "ipv4"

# The store of peers, relative to this directory.
store = "{store}"

# Local addresses and TCP ports for clients on networks that block UDP. Clients try the ports of the
# endpoints, and 443, which is open nearly everywhere. [] listens on none.
# streams = {streams}

# A web server that shares these ports: it gets all connections that are not Rove's.
# web-server = "{web_server}"

# A table [gateway.hop] changes the gateway's address all the time, against attacks on one address.
# Keys: addresses (a list) or prefix (random addresses of it), all of which must lead to this host
# and to no other; interval (default 5s); link (default: that of the default route). It needs [::]
# or 0.0.0.0 in listen, which is the default, and in streams, unless that is [].

[persistence]
# timeout = "{persistence}"         # how long a silent session is kept
# hold = "full"          # open TCP connections while a client is unreachable: full (acknowledge and
#                        # keep their data), reinject (send it again afterwards), off
# assist = "on"          # local acknowledgement of bulk connections, for clients with several links
#                        # in use: on, off
# memory_mb = 64         # memory for kept data
# Tables [[persistence.rules]] set hold for some connections; the first that matches counts. Keys:
# hold, and either to (CIDR or CIDR:PORT of either end) or class (interactive, names, bulk).

[saving]
# headers = true         # headers that stay the same travel once
# aggregate = true       # packets that wait for the same path share datagrams
# dictionaries = []      # lines of `rove gateway dictionary`, which clients have as well

{SECURITY}
{RULES}
[log]
# level = "info"          # error, warn, info, debug, trace; addresses and names appear at debug
# format = "text"         # text or json
"#
        )
    }
}

/// The words about rules of a new gateway's file.
const RULES: &str = "\
# Tables [[rule]] say what flows have that this gateway sends. Each property comes from the first
# rule that matches a flow and has the property. Conditions: to (CIDR or CIDR:PORT behind this
# gateway), port, protocol (tcp, udp, icmp, icmpv6, gre, esp), class (interactive, names, bulk,
# real-time), device (CIDR behind a client, or the name of a [[device]]). Properties: strength
# (128, 256; never below [security]), priority (1 to 3), goal (throughput, latency, data, power),
# copies (never, always).
# Tables [[device]] have a name, an address (CIDR) and the same properties.
";

/// The table `[security]` of a new gateway's file.
const SECURITY: &str = "\
[security]
# floor = 128            # least key length of the cipher in bits, both ways: 128 or 256. The higher
#                        # floor of gateway and client holds
# strength = 256         # key length that this gateway seals with, unless the floor is higher
# profiles = false       # new profile IDs for every datagram, which say nothing about its cipher;
#                        # client.toml must say so as well
# change = false         # use another cipher for each datagram, at or above the floor
# pad = false            # fill datagrams up to a multiple of 128 bytes
";

fn parse_listen(
    source: &Source,
    key: &str,
    raw: &Spanned<Vec<Spanned<String>>>,
    min: usize,
) -> Result<Vec<SocketAddr>, ConfigError> {
    if !(min..=LISTEN_MAX).contains(&raw.get_ref().len()) {
        let message = format!("needs {min} to {LISTEN_MAX} entries: leave it out for the default");
        return Err(source.invalid(&raw.span(), key, message));
    }
    raw.get_ref().iter().map(|entry| parse_place(source, key, entry)).collect()
}

fn parse_place(
    source: &Source,
    key: &str,
    entry: &Spanned<String>,
) -> Result<SocketAddr, ConfigError> {
    let text = entry.get_ref();
    let address = text.parse::<SocketAddr>().ok().filter(|address| address.port() > 0);
    address.ok_or_else(|| {
        let message = format!(
            "{text:?} is no ADDRESS:PORT: write for example \"[::]:4500\" or \"0.0.0.0:4500\""
        );
        source.invalid(&entry.span(), key, message)
    })
}

fn parse_dns(
    source: &Source,
    raw: &Spanned<Vec<Spanned<String>>>,
) -> Result<Vec<IpAddr>, ConfigError> {
    let key = "gateway.dns";
    if raw.get_ref().len() > DNS_MAX {
        let message = format!("has more than {DNS_MAX} entries: leave some out");
        return Err(source.invalid(&raw.span(), key, message));
    }
    let parse = |entry: &Spanned<String>| {
        entry.get_ref().parse().map_err(|_| {
            let text = entry.get_ref();
            let message = format!("{text:?} is no address: write for example \"9.9.9.9\"");
            source.invalid(&entry.span(), key, message)
        })
    };
    raw.get_ref().iter().map(parse).collect()
}

fn parse_networks(
    source: &Source,
    raw: &Spanned<Vec<Spanned<String>>>,
) -> Result<Networks, ConfigError> {
    let joined: Vec<&str> = raw.get_ref().iter().map(|entry| entry.get_ref().as_str()).collect();
    let parsed = joined.join(",").parse::<Networks>();
    parsed.map_err(|error| source.invalid(&raw.span(), "gateway.networks", error))
}

impl Default for StoreUrl {
    fn default() -> Self {
        Self::Embedded(PathBuf::from("gateway.redb"))
    }
}

impl FromStr for StoreUrl {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        let file = text.strip_prefix("redb:").map(Path::new);
        match file {
            Some(file) if file.file_name().is_some() && !text.contains(['"', '\\', '\n']) => {
                Ok(Self::Embedded(file.to_owned()))
            }
            Some(_) | None => Err(Misspelt::new(format!(
                "{text:?} is no store of this version: write redb:FILE, for example \
                 redb:gateway.redb"
            ))),
        }
    }
}

impl FromStr for Neighbours {
    type Err = Misspelt;

    fn from_str(text: &str) -> Result<Self, Misspelt> {
        match text {
            "none" => Ok(Self::None),
            "ipv4" => Ok(Self::Ipv4),
            "all" => Ok(Self::All),
            _ => Err(Misspelt::new(format!("{text:?} is not \"ipv4\", \"all\" or \"none\""))),
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Embedded(file) = self;
        write!(f, "redb:{}", file.display())
    }
}

#[cfg(test)]
mod tests;
