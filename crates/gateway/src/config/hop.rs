//! `[gateway.hop]`: addresses between which a gateway hops, so that who attacks one aims at where
//! it was.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ipnet::IpNet;
use rove_host::config::{ConfigError, Source};
use rove_host::values::{Lifetime, Networks};
use serde::Deserialize;
use toml::Spanned;

/// How many addresses a list may have.
const ADDRESSES_MAX: usize = 64;
const INTERVAL: Lifetime = Lifetime::from_seconds(5);
/// Addresses that a prefix must have: the one in use, those before it, and some to choose from.
const HOST_BITS_MIN: u8 = 3;
/// IFNAMSIZ of `linux/if.h`, less the final zero.
const LINK_BYTES_MAX: usize = 15;

/// The port that clients without UDP try at every address, beside the one that they were told.
const HTTPS: u16 = 443;

/// How a gateway hops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HopConfig {
    /// From where the addresses come. All of them must lead to this host, and to nobody else.
    pub source: HopSource,
    /// How long one address is the one that clients are told first; at least a second.
    pub interval: Lifetime,
    /// The link that gets them; none for that of the default route.
    pub link: Option<String>,
}

/// From where the addresses come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum HopSource {
    /// These, round and round; those of each family in their order.
    List(Vec<IpAddr>),
    /// Random ones of this network.
    Prefix(IpNet),
}

/// Where the rest of a gateway's configuration says that it listens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places<'a> {
    /// The port of the first endpoint.
    pub(super) first: Option<u16>,
    /// For datagrams; at least one.
    pub(super) listen: &'a [SocketAddr],
    /// For streams; none if it takes none.
    pub(super) streams: &'a [SocketAddr],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawHop {
    addresses: Option<Spanned<Vec<Spanned<String>>>>,
    prefix: Option<Spanned<String>>,
    interval: Option<Spanned<String>>,
    link: Option<Spanned<String>>,
}

impl HopConfig {
    /// Every network that its addresses may come from.
    pub(crate) fn networks(&self) -> Vec<IpNet> {
        match &self.source {
            HopSource::List(addresses) => addresses.iter().map(|&ip| IpNet::from(ip)).collect(),
            HopSource::Prefix(prefix) => vec![*prefix],
        }
    }

    /// Whether it may hop to `address`.
    pub(crate) fn covers(&self, address: IpAddr) -> bool {
        match &self.source {
            HopSource::List(addresses) => addresses.contains(&address),
            HopSource::Prefix(prefix) => prefix.contains(&address),
        }
    }
}

impl RawHop {
    pub(super) fn validate(
        &self,
        source: &Source,
        places: Places<'_>,
        networks: &Networks,
    ) -> Result<HopConfig, ConfigError> {
        let (span, config_source) = match (&self.addresses, &self.prefix) {
            (Some(list), None) => {
                let key = "gateway.hop.addresses";
                let addresses = source.list::<IpAddr>(key, list, ADDRESSES_MAX)?;
                if addresses.len() < 2 {
                    let what = "needs at least two addresses: with one there is nowhere to hop";
                    return Err(source.invalid(&list.span(), key, what));
                }
                (list.span(), HopSource::List(addresses))
            }
            (None, Some(prefix)) => {
                let key = "gateway.hop.prefix";
                let parsed: IpNet = source.value(key, prefix)?;
                let room = parsed.max_prefix_len() - parsed.prefix_len();
                if room < HOST_BITS_MIN || parsed.prefix_len() == 0 {
                    let what = format!("{parsed} is no network with at least eight addresses");
                    return Err(source.invalid(&prefix.span(), key, what));
                }
                (prefix.span(), HopSource::Prefix(parsed.trunc()))
            }
            (list, _) => {
                let what = "needs either addresses = [...] or prefix = \"CIDR\"";
                let span = list.as_ref().map_or(0..0, Spanned::span);
                return Err(source.invalid(&span, "gateway.hop", what));
            }
        };
        let config = HopConfig {
            source: config_source,
            interval: match &self.interval {
                Some(interval) => source.value("gateway.hop.interval", interval)?,
                None => INTERVAL,
            },
            link: self.link.as_ref().map(|link| parse_link(source, link)).transpose()?,
        };
        let wrong = config.networks().iter().find_map(|net| objection(net, places, networks));
        match wrong {
            Some(what) => Err(source.invalid(&span, "gateway.hop", what)),
            None => Ok(config),
        }
    }
}

/// Why a gateway that listens at `places` and gives out `networks` cannot hop to `net`.
fn objection(net: &IpNet, places: Places<'_>, networks: &Networks) -> Option<String> {
    let ip = net.addr();
    if ip.is_loopback() || ip.is_multicast() || ip.is_unspecified() {
        return Some(format!("{net} is nothing that clients could reach"));
    }
    let overlaps = |inner: IpNet| inner.contains(net) || net.contains(&inner);
    if networks.iter().any(overlaps) {
        return Some(format!("{net} is part of the tunnel's own networks: choose another"));
    }
    let every = |at: &&SocketAddr| match at.ip() {
        IpAddr::V4(v4) => v4 == Ipv4Addr::UNSPECIFIED && ip.is_ipv4(),
        IpAddr::V6(v6) => v6 == Ipv6Addr::UNSPECIFIED,
    };
    let told = places.told()?;
    if !places.listen.iter().filter(every).any(|at| at.port() == told) {
        return Some(format!(
            "{net} would not be listened at: leave out gateway.listen, or name [::]:{told} there"
        ));
    }
    let tried = |at: &SocketAddr| at.port() == told || at.port() == HTTPS;
    if !places.streams.is_empty() && !places.streams.iter().filter(every).any(tried) {
        return Some(format!(
            "{net} would take no streams, which clients without UDP need: leave out \
             gateway.streams, name [::]:{told} or [::]:{HTTPS} there, or set it to [] for none \
             anywhere"
        ));
    }
    None
}

impl Places<'_> {
    /// The port that clients are told with an address between which the gateway hops: that of the
    /// first endpoint, unless something in front of the gateway translates it.
    fn told(self) -> Option<u16> {
        let is_listened_at = |port: &u16| self.listen.iter().any(|at| at.port() == *port);
        self.first.filter(is_listened_at).or_else(|| self.listen.first().map(SocketAddr::port))
    }
}

fn parse_link(source: &Source, raw: &Spanned<String>) -> Result<String, ConfigError> {
    let text = raw.get_ref();
    let plain = |b: u8| b.is_ascii_graphic() && b != b'/' && b != b':';
    if !text.is_empty() && text.len() <= LINK_BYTES_MAX && text.bytes().all(plain) {
        return Ok(text.clone());
    }
    let what = format!("{text:?} is no name of a link: see `ip link`");
    Err(source.invalid(&raw.span(), "gateway.hop.link", what))
}
