//! Problems of a node and its host, for people: the problem, since when, the cause, and the cure.
//!
//! This module contains the texts. It does not examine the host itself; [`crate::reconcile`] does.

use std::collections::BTreeSet;

use rove_api::Problem;
use rove_os::plan::{
    Deviation, ForeignRule, MarkRule, Obstacle, Outcome, Part, Standing, TABLE, Users,
};
use rove_os::probe::{End, Hook, Refused};

use crate::data::Forbidden;
use crate::time::ago;

/// The number of the main routing table (rtnetlink(7), `RT_TABLE_MAIN`).
const TABLE_MAIN: u32 = 254;

/// A problem without the time since when it exists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Finding {
    /// One of the names that `part` gives, `leak`, `firewall`, `internet`, `connections`,
    /// `session`, `transport`, `link`, `offload` or `other`.
    pub part: &'static str,
    /// The problem.
    pub what: String,
    /// Its cause.
    pub cause: String,
    /// What a person can do.
    pub cure: String,
}

impl Finding {
    /// A difference between plan and host. `by` is the last program that changed this kind of item.
    pub(crate) fn of_deviation(deviation: &Deviation, by: Option<&str>) -> Self {
        let who = by.unwrap_or("another program");
        let cause = match &deviation.outcome {
            Outcome::Failed(why) if deviation.standing == Standing::Unknown => why.clone(),
            Outcome::Failed(why) => format!("it cannot be put back: {why}"),
            Outcome::Waits(_) => format!("{who} keeps changing it"),
            Outcome::Found | Outcome::PutBack => format!("{who} changed it"),
        };
        let cure = match (&deviation.outcome, deviation.part) {
            (Outcome::Failed(_), _) => "remove the cause named; Rove tries again by itself",
            (_, Part::Device) => "Rove makes it again; keep other programs from this interface",
            (_, Part::KillSwitch | Part::Filter) => {
                "Rove puts it back; let the other program leave nftables tables named rove_ alone"
            }
            (_, Part::Routing) => {
                "Rove puts it back; let the other program leave foreign routes and rules alone \
                 (systemd-networkd: ManageForeignRoutes=no, ManageForeignRoutingPolicyRules=no)"
            }
            (_, Part::Setting) => "Rove sets it again; take it out of the other program's settings",
            (_, Part::Dns) => "Rove writes it again; let the other program leave resolv.conf alone",
            (_, Part::Subflow) => "Rove sets it again",
        };
        let what = deviation.to_string();
        Self { part: part(deviation.part), what, cause, cure: cure.to_owned() }
    }

    /// The parts of a line for people: problem, cause and cure, with colons between them.
    pub fn of_line(part: &'static str, line: &str) -> Self {
        let (what, rest) = line.split_once(": ").unwrap_or((line, ""));
        let (cause, cure) = rest.rsplit_once(": ").unwrap_or((rest, rest));
        let [what, cause, cure] = [what, cause, cure].map(str::to_owned);
        Self { part, what, cause, cure }
    }

    /// An obstacle by another program. `device` is the tunnel's interface.
    pub(crate) fn of_obstacle(obstacle: &Obstacle, device: &str) -> Self {
        match obstacle {
            Obstacle::Bypass { to, link, rules, is_blocked, users } => {
                let (cause, cure) = match rules.first() {
                    Some(rule) => of_rule(*rule, to.iter().any(|net| net.addr().is_ipv6())),
                    None => (
                        format!(
                            "a route of another program in Rove's table {TABLE} may lead there, or \
                             a rule by another property of the packets"
                        ),
                        format!(
                            "look at `ip route show table {TABLE}` and `ip rule`, and remove it"
                        ),
                    ),
                };
                let is_part = to.iter().all(|net| net.prefix_len() > 0);
                let to: Vec<String> = to.iter().map(ToString::to_string).collect();
                let cure = match (is_part, to.first()) {
                    (true, Some(net)) => format!(
                        "{cure}; or let these packets pass by the tunnel: `rove down`, then `rove \
                         up --exclude {net}`"
                    ),
                    (_, _) => cure,
                };
                let to = to.join(", ");
                let end =
                    if *is_blocked { "Rove blocks them there" } else { "they leave in clear" };
                let of = match users {
                    None => String::new(),
                    Some(Users { first, last }) if first == last => format!(" of user {first}"),
                    Some(Users { first, last }) => format!(" of users {first} to {last}"),
                };
                let what = format!(
                    "routing sends packets{of} for {to} to {link}, not to the tunnel; {end}"
                );
                Self { part: "leak", what, cause, cure }
            }
            Obstacle::Refusal { to, priority, action } => {
                let family = if to.iter().any(|net| net.addr().is_ipv6()) { "-6 " } else { "" };
                let to: Vec<String> = to.iter().map(ToString::to_string).collect();
                Self {
                    part: "routing",
                    what: format!("routing refuses packets for {}", to.join(", ")),
                    cause: format!(
                        "another program's rule at priority {priority} comes first ({action})"
                    ),
                    cure: format!(
                        "remove it (`ip {family}rule del priority {priority}`) or move it behind \
                         5191"
                    ),
                }
            }
            Obstacle::Marked { rules, packets } => of_marked(rules, *packets),
            Obstacle::Forward { chain, .. } => Self {
                part: "firewall",
                what: format!("forwarded packets of clients may be dropped by the chain {chain}"),
                cause: "another program's packet filter drops by default (Docker and firewalls do)"
                    .to_owned(),
                cure: accept(chain, device),
            },
            Obstacle::NoShares => Self {
                part: "connections",
                what: "one client can fill the host's table of connections".to_owned(),
                cause: "the kernel refuses `ct count` in nftables rules".to_owned(),
                cure: "load or install the kernel module nft_connlimit, then restart the gateway"
                    .to_owned(),
            },
        }
    }

    /// Where a client's packets of these families end; none if they leave.
    pub fn of_probe(end: &End, families: &str, device: &str) -> Option<Self> {
        let (part, what, cause, cure) = match end {
            End::Left => return None,
            End::Device => (
                "firewall",
                format!("{families} packets of clients do not come out of {device}"),
                "the kernel dropped a test packet before the first packet filter".to_owned(),
                format!(
                    "look for filters at this interface: `tc filter show dev {device} ingress`"
                ),
            ),
            End::Filter(hook, chains) => {
                let (what, cause, cure) = of_filter(*hook, chains, families, device);
                ("firewall", what, cause, cure)
            }
            End::Routing(refused) => {
                let (cause, cure) = of_routing(refused, device);
                let what = format!("this host does not forward {families} packets of clients");
                ("internet", what, cause, cure)
            }
        };
        Some(Self { part, what, cause, cure })
    }

    /// The table of tracked connections is nearly full.
    pub fn of_connections(connections: u64, max: u64) -> Self {
        Self {
            part: "connections",
            what: "the host's table of connections is nearly full".to_owned(),
            cause: format!(
                "the kernel tracks {connections} of at most {max} connections, and refuses new \
                 ones if the table is full"
            ),
            cure: format!(
                "look for the source of many connections (`conntrack -L`), or allow more: `sysctl \
                 -w net.netfilter.nf_conntrack_max={}`",
                max.saturating_mul(4)
            ),
        }
    }
}

/// The problem that this host does not let datagrams out, while that lasts.
pub fn forbidden(found: Option<Forbidden>, part: &str) -> Option<Problem> {
    let found = found.filter(Forbidden::lasts)?;
    let remote = found.remote;
    Some(Problem {
        part: Some(part.to_owned()),
        what: format!("this host does not let UDP datagrams out to {remote}"),
        since: ago(found.since.elapsed()).0,
        cause: "a packet filter of this host drops them: the kernel answers EPERM".to_owned(),
        cure: format!(
            "let UDP to port {} out: look for chains at the output hook (`nft list ruleset`, \
             `iptables -S OUTPUT`)",
            remote.port()
        ),
    })
}

/// The name of a part of a plan.
const fn part(part: Part) -> &'static str {
    match part {
        Part::Device => "interface",
        Part::KillSwitch => "kill-switch",
        Part::Filter => "filter",
        Part::Routing => "routing",
        Part::Setting => "setting",
        Part::Dns => "dns",
        Part::Subflow => "other",
    }
}

/// Marked packets that are blocked, because these rules lead them past the tunnel. The count is
/// only in the cause: a problem keeps its date as long as the rest stays.
fn of_marked(rules: &[MarkRule], packets: u64) -> Finding {
    let names = rules.iter().map(|rule| {
        let MarkRule { priority, mark, mask, .. } = rule;
        let mask = if *mask == u32::MAX { String::new() } else { format!("/{mask:#x}") };
        let table = name_of(rule.table);
        format!("priority {priority} (fwmark {mark:#x}{mask} lookup {table})")
    });
    let names: BTreeSet<String> = names.collect();
    let names = names.into_iter().collect::<Vec<_>>().join(" and ");
    let removal = rules.iter().map(|rule| {
        let family = if rule.v6 { "-6 " } else { "" };
        format!("`ip {family}rule del priority {}`", rule.priority)
    });
    let removal = removal.collect::<Vec<_>>().join(" and ");
    Finding {
        part: "leak",
        what: "routing sends packets that a program marks past the tunnel; Rove blocks them \
               (EPERM)"
            .to_owned(),
        cause: format!(
            "another program's rule at {names} comes first; {packets} marked packets were blocked \
             since the filter was set"
        ),
        cure: format!(
            "remove it ({removal}) or move it behind 5191; or let the destinations of these \
             packets pass by the tunnel: `rove down`, then `rove up --exclude NETWORK`"
        ),
    }
}

/// The table as ip-rule(8) shows it.
fn name_of(table: u32) -> String {
    match table {
        TABLE_MAIN => "main".to_owned(),
        table => table.to_string(),
    }
}

fn of_rule(rule: ForeignRule, v6: bool) -> (String, String) {
    let table = name_of(rule.table);
    let ForeignRule { priority, .. } = rule;
    let family = if v6 { "-6 " } else { "" };
    (
        format!("another program's rule at priority {priority} comes first (lookup {table})"),
        format!("remove it (`ip {family}rule del priority {priority}`) or move it behind 5191"),
    )
}

fn of_filter(
    hook: Hook,
    chains: &[String],
    families: &str,
    device: &str,
) -> (String, String, String) {
    let hook = hook.word();
    let Some(first) = chains.first() else {
        return (
            format!("{families} packets of clients are dropped at the {hook} hook"),
            "a packet filter that nftables does not list drops a test packet".to_owned(),
            format!(
                "look at `iptables-legacy-save` and `ip6tables-legacy-save`, and accept packets \
                 from and to {device} there"
            ),
        );
    };
    let named = chains.join(" or ");
    (
        format!("{families} packets of clients are dropped by the chain {named}"),
        format!("a test packet did not pass this chain at the {hook} hook"),
        accept(first, device),
    )
}

fn of_routing(refused: &Refused, device: &str) -> (String, String) {
    let (cause, cure) = match refused {
        Refused::NoRoute => ("it has no route to the Internet", "add a default route".to_owned()),
        Refused::ReversePath => (
            "its reverse path filter refuses inner addresses",
            format!("`sysctl -w net.ipv4.conf.{device}.rp_filter=2`"),
        ),
        Refused::Forbidden => (
            "a route or a routing rule refuses them",
            "look at `ip rule` and `ip route show table all`".to_owned(),
        ),
        Refused::LeadsTo(link) if link == "lo" => (
            "a route or a routing rule leads them to this host itself",
            "look at `ip rule` and `ip route show table all`".to_owned(),
        ),
        Refused::LeadsTo(_) => (
            "the route to the Internet leads back into the tunnel",
            format!("remove routes by {device} that Rove did not make"),
        ),
        Refused::Unknown => (
            "a test packet ended between the prerouting and the forward hook",
            "look at `sysctl -a | grep forwarding`, `ip rule` and `ip xfrm policy`".to_owned(),
        ),
    };
    (cause.to_owned(), cure)
}

/// A command that makes a chain accept the tunnel's packets. Chains of iptables have names in
/// capitals.
fn accept(chain: &str, device: &str) -> String {
    let iptables = match chain {
        "ip filter FORWARD" => Some("iptables"),
        "ip6 filter FORWARD" => Some("ip6tables"),
        _ => None,
    };
    match iptables {
        Some(tool) => format!(
            "`{tool} -I FORWARD -i {device} -j ACCEPT` and `{tool} -I FORWARD -o {device} -j \
             ACCEPT`"
        ),
        None => format!(
            "`nft insert rule {chain} iifname {device} accept` and `nft insert rule {chain} \
             oifname {device} accept`"
        ),
    }
}

#[cfg(test)]
mod tests {
    use rove_os::plan::Standing;

    use super::*;

    #[test]
    fn every_finding_names_a_cause_and_a_cure() {
        let parts = [
            Part::Device,
            Part::KillSwitch,
            Part::Filter,
            Part::Routing,
            Part::Setting,
            Part::Dns,
            Part::Subflow,
        ];
        for part in parts {
            for outcome in [Outcome::Found, Outcome::Failed("no room".to_owned())] {
                let what = "the thing".to_owned();
                let deviation = Deviation { part, what, standing: Standing::Missing, outcome };
                let finding = Finding::of_deviation(&deviation, Some("nft (process 8)"));
                assert_eq!(finding.what, "the thing is missing");
                assert!(!finding.cause.is_empty() && !finding.cure.is_empty());
            }
        }
    }

    #[test]
    fn an_obstacle_is_cured_by_a_command_that_fits_it() {
        let rules = vec![ForeignRule { priority: 100, table: TABLE_MAIN }];
        let to = vec!["::/0".parse().unwrap()];
        let (link, is_blocked) = ("eth0".to_owned(), true);
        let bypass = Obstacle::Bypass { to, link, rules: rules.clone(), is_blocked, users: None };
        let finding = Finding::of_obstacle(&bypass, "rove0");
        assert!(finding.what.contains("eth0") && finding.cause.contains("priority 100"));
        assert!(finding.cure.contains("ip -6 rule del priority 100"), "{}", finding.cure);
        assert!(finding.what.ends_with("not to the tunnel; Rove blocks them there"));
        let (to, link) = (vec!["203.0.113.0/24".parse().unwrap()], "eth0".to_owned());
        let bypass = Obstacle::Bypass { to, link, rules, is_blocked: false, users: None };
        let finding = Finding::of_obstacle(&bypass, "rove0");
        assert!(finding.what.contains("203.0.113.0/24 to eth0") && finding.what.contains("clear"));
        assert!(
            finding.cure.ends_with("`rove down`, then `rove up --exclude 203.0.113.0/24`"),
            "{}",
            finding.cure
        );
        for (chain, cure) in [
            ("ip filter FORWARD", "iptables -I FORWARD -i rove0 -j ACCEPT"),
            ("inet mine forward", "nft insert rule inet mine forward iifname rove0 accept"),
        ] {
            let obstacle = Obstacle::Forward { chain: chain.to_owned(), is_stateful: false };
            let finding = Finding::of_obstacle(&obstacle, "rove0");
            assert!(finding.cure.contains(cure), "{}", finding.cure);
        }
    }

    #[test]
    fn blocked_marked_packets_name_the_rule_for_their_mark() {
        let (table, mark) = (TABLE_MAIN, 0x10);
        let rule = |v6, mask| MarkRule { v6, priority: 100, table, mark, mask };
        let rules = vec![rule(false, 0xff), rule(true, 0xff)];
        let finding = Finding::of_obstacle(&Obstacle::Marked { rules, packets: 12 }, "rove0");
        let cause = "another program's rule at priority 100 (fwmark 0x10/0xff lookup main) comes";
        assert!(finding.cause.starts_with(cause) && finding.cause.contains("; 12 marked"));
        assert!(finding.cure.contains("`ip rule del priority 100` and `ip -6 rule del"));
        let rules = vec![rule(false, u32::MAX)];
        let later = Finding::of_obstacle(&Obstacle::Marked { rules, packets: 13 }, "rove0");
        assert!(later.cause.contains("(fwmark 0x10 lookup main)"), "{later:?}");
        assert_eq!(later.what, finding.what, "the same problem");
    }

    #[test]
    fn every_end_of_a_probe_names_a_cause_and_a_cure() {
        let chains = vec!["ip filter FORWARD".to_owned(), "inet mine f".to_owned()];
        let mut ends = vec![
            End::Device,
            End::Filter(Hook::Forward, chains),
            End::Filter(Hook::Postrouting, Vec::new()),
        ];
        let link = |name: &str| Refused::LeadsTo(name.to_owned());
        ends.extend(
            [
                Refused::NoRoute,
                Refused::ReversePath,
                Refused::Forbidden,
                Refused::Unknown,
                link("lo"),
                link("rove0"),
            ]
            .map(End::Routing),
        );
        for end in &ends {
            let finding = Finding::of_probe(end, "IPv4", "rove0").unwrap();
            assert!(finding.what.contains("IPv4"), "{finding:?}");
            assert!(!finding.cause.is_empty() && !finding.cure.is_empty());
        }
        let named = Finding::of_probe(&ends[1], "IPv4", "rove0").unwrap();
        assert!(named.what.ends_with("ip filter FORWARD or inet mine f"), "{named:?}");
        assert!(named.cure.contains("iptables -I FORWARD -i rove0 -j ACCEPT"), "{named:?}");
        assert_eq!(Finding::of_probe(&End::Left, "IPv4", "rove0"), None);
    }
}
