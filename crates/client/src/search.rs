//! How a client looks for its gateway while no path carries: by which links, at which addresses,
//! and why that is not possible. This module only has the words; the core asks.

use std::net::SocketAddr;

use rove_os::links::{Link, LinkKind};
use rove_proto::id::Transport;
use rove_proto::node::PathStatus;

/// Where the gateway is looked for.
#[derive(Default)]
pub(crate) struct Search<'a> {
    /// Links that a path could start from.
    pub(crate) links: usize,
    /// Addresses that are tried.
    pub(crate) addresses: usize,
    /// The name that is being resolved.
    pub(crate) resolving: Option<&'a str>,
    /// Why none of them is reachable from here, if the reason is a missing address family.
    pub(crate) want: Option<String>,
    /// Where the gateway says that it is reached, best first.
    pub(crate) announced: &'a [SocketAddr],
    /// Links that cannot be used, each with the reason.
    pub(crate) down: Vec<String>,
    /// Links that must not be used.
    pub(crate) unused: Vec<Unused>,
    /// The names of the links that a path could start from, if no route leads to the gateway.
    pub(crate) no_route: Vec<String>,
}

/// A link that must not be used.
pub(crate) struct Unused {
    pub(crate) name: String,
    /// Its cap is reached. Otherwise a rule or `rove set` excludes it.
    pub(crate) is_capped: bool,
}

impl Search<'_> {
    /// Why no link can be used, if none can.
    pub(crate) fn no_link(&self) -> Option<String> {
        if self.links > 0 {
            return None;
        }
        Some(match (self.unused.as_slice(), self.down.as_slice()) {
            ([], []) => "this host has no link to a network".to_owned(),
            ([], down) => format!("no link can be used: {}", down.join(", ")),
            (unused, _) => {
                let why = unused.iter().map(|Unused { name, is_capped }| {
                    if *is_capped {
                        format!("the cap of {name} is reached")
                    } else {
                        format!("a rule or `rove set` excludes {name}")
                    }
                });
                format!("no link may be used: {}", why.collect::<Vec<_>>().join(", "))
            }
        })
    }

    /// How a person gets a usable link.
    pub(crate) fn cure_of_no_link(&self) -> String {
        match self.unused.first() {
            None => "connect this host to a network; the session then goes on".to_owned(),
            Some(Unused { name, is_capped }) => {
                let setting = if *is_capped { "cap none" } else { "use always" };
                format!(
                    "`rove set link.{name}.{setting}`, or connect this host to another network; \
                     the session then goes on"
                )
            }
        }
    }

    /// The client's present activity, for people.
    pub(crate) fn says(&self) -> String {
        if let Some(why) = self.no_link() {
            return why;
        }
        let resolving = self.resolving.map(|name| format!("resolving {name}"));
        match (self.addresses, resolving) {
            (0, Some(resolving)) => resolving,
            (0, None) => "waiting until the gateway's name resolves".to_owned(),
            (count, resolving) => {
                let plural = if count == 1 { "" } else { "es" };
                let also = resolving.map_or_else(String::new, |what| format!(", and {what}"));
                let want = self.want.as_ref().map_or_else(String::new, |why| format!("; {why}"));
                format!("asking the gateway at {count} address{plural}{also}{want}")
            }
        }
    }

    /// Where the gateway wants to be reached, if that is elsewhere.
    pub(crate) fn target(&self, path: Option<&PathStatus>) -> Option<SocketAddr> {
        let remote = path.filter(|p| p.route.socket.transport() == Transport::Udp)?.route.remote;
        let family = |at: &&SocketAddr| at.is_ipv4() == remote.is_ipv4();
        self.announced.iter().find(family).copied().filter(|wanted| *wanted != remote)
    }
}

/// The names of `links` if none has a default route, nor leads to one of the `remotes`.
pub(crate) fn no_route<'a>(
    links: impl Iterator<Item = &'a Link> + Clone,
    remotes: &[SocketAddr],
) -> Vec<String> {
    let leads = |link: &Link| {
        let mut remotes = remotes.iter().map(|remote| remote.ip());
        link.leads_out(true) || link.leads_out(false) || remotes.any(|at| link.reaches(at))
    };
    if links.clone().any(leads) {
        return Vec::new();
    }
    links.map(|link| link.name.clone()).collect()
}

/// Links that cannot be used, each with the reason; at most `max`.
pub(crate) fn down(links: &[Link], tunnel: &str, max: usize) -> Vec<String> {
    let is_outside = |kind| !matches!(kind, LinkKind::Loopback | LinkKind::Tunnel);
    let unusable =
        links.iter().filter(|link| is_outside(link.kind) && !link.usable() && link.name != tunnel);
    let told = unusable.map(|link| {
        let why = match (link.up, link.carrier && !link.dormant) {
            (false, _) => "is down",
            (true, false) => "has no carrier",
            (true, true) => "has no address",
        };
        format!("{} {why}", link.name)
    });
    told.take(max).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_without_a_route_to_the_gateway_are_known() {
        let link = |default_v4, routes: &[&str]| Link {
            index: 2,
            name: "wlan0".to_owned(),
            kind: LinkKind::Wireless,
            up: true,
            carrier: true,
            carrier_ups: 0,
            dormant: false,
            mtu: 1_500,
            addresses: vec!["192.168.1.9/24".parse().unwrap()],
            deprecated: false,
            default_v4,
            default_v6: None,
            routes: routes.iter().map(|net| net.parse().unwrap()).collect(),
            attached: Vec::new(),
        };
        let at = |remote: &str| [remote.parse().unwrap()];
        let (far, near) = (at("192.0.2.1:4500"), at("192.168.1.1:4500"));
        let shut = link(None, &[]);
        assert_eq!(no_route([&shut, &shut].into_iter(), &far), ["wlan0", "wlan0"]);
        assert_eq!(no_route([&shut].into_iter(), &[]), ["wlan0"]);
        assert_eq!(no_route([&shut].into_iter(), &near), [""; 0]);
        for open in [link(Some(100), &[]), link(None, &["192.0.2.0/24"])] {
            assert_eq!(no_route([&shut, &open].into_iter(), &far), [""; 0], "{open:?}");
        }
    }
}
