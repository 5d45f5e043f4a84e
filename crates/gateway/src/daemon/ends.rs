//! Where packets of clients end on this host, and since when, as problems of the gateway.
//!
//! This module decides which ends are problems, and dates them. [`rove_os::probe`] finds them.

use std::net::IpAddr;

use rove_host::problems::Finding;
use rove_os::probe::{End, Refused};

/// Where packets from inner addresses end.
pub(super) type Ends = Vec<(IpAddr, End)>;

/// Since when packets of each family end where they end, in seconds since 1970.
#[derive(Debug, Default)]
pub(super) struct Ended(Vec<(IpAddr, End, u64)>);

impl Ended {
    /// Dates these ends. A family without a route is dated even while it is no problem.
    pub(super) fn date(&mut self, ends: &Ends, present: u64) -> Vec<(IpAddr, End, u64)> {
        let dated = ends.iter().map(|(source, end)| {
            let is_same = |known: &&(IpAddr, End, u64)| {
                known.0.is_ipv6() == source.is_ipv6() && known.1 == *end
            };
            let since = self.0.iter().find(is_same).map_or(present, |known| known.2);
            (*source, end.clone(), since)
        });
        self.0 = dated.collect();
        self.0.clone()
    }
}

/// One problem for each place where packets end, and for each time since when they do. Many hosts
/// have no IPv6: clients hear at once that it leads nowhere, and use IPv4.
pub(super) fn of_ends(ends: &[(IpAddr, End, u64)], device: &str) -> Vec<(Finding, u64)> {
    let works = ends.iter().any(|(_, end, _)| *end == End::Left);
    let mut seen: Vec<(&End, u64)> = Vec::new();
    let mut findings = Vec::new();
    for (source, end, since) in ends {
        let is_usual = works && source.is_ipv6() && *end == End::Routing(Refused::NoRoute);
        if is_usual || seen.contains(&(end, *since)) {
            continue;
        }
        seen.push((end, *since));
        let same = ends.iter().filter(|(_, other, at)| (other, at) == (end, since));
        let families: Vec<&str> =
            same.map(|(source, ..)| if source.is_ipv4() { "IPv4" } else { "IPv6" }).collect();
        let finding = Finding::of_probe(end, &families.join(" and "), device);
        findings.extend(finding.map(|finding| (finding, *since)));
    }
    findings
}

#[cfg(test)]
mod tests {
    use rove_os::probe::Hook;

    use super::*;

    #[test]
    fn a_host_without_a_route_for_ipv6_has_no_problem_if_ipv4_works() {
        let end = |v4: &End, v6: &End| -> Ends {
            vec![
                ("10.77.0.254".parse().unwrap(), v4.clone()),
                ("fd77::1".parse().unwrap(), v6.clone()),
            ]
        };
        let none = End::Routing(Refused::NoRoute);
        let filter = End::Filter(Hook::Forward, vec!["inet filter forward".to_owned()]);
        let whats = |ends: &Ends| -> Vec<String> {
            let dated = Ended::default().date(ends, 7);
            of_ends(&dated, "rove0").into_iter().map(|(finding, _)| finding.what).collect()
        };
        assert_eq!(whats(&end(&End::Left, &none)), [""; 0]);
        assert_eq!(whats(&end(&none, &End::Left)).len(), 1);
        let both = whats(&end(&none, &none));
        assert!(both.len() == 1 && both[0].contains("IPv4 and IPv6"), "{both:?}");
        assert_eq!(whats(&end(&filter, &none)).len(), 2);
        let chain = whats(&end(&filter, &End::Left));
        assert!(chain[0].contains("IPv4 packets") && chain[0].ends_with("inet filter forward"));

        // IPv6 never worked; IPv4 ended at 20, and works again at 40.
        let mut ended = Ended::default();
        let mut problems = |ends: &Ends, now| -> Vec<(String, u64)> {
            let found = of_ends(&ended.date(ends, now), "rove0").into_iter();
            let family = |what: &str| ["IPv4", "IPv6"].map(|name| what.contains(name));
            found.map(|(finding, since)| (format!("{:?}", family(&finding.what)), since)).collect()
        };
        let [v4, v6] = [[true, false], [false, true]].map(|family| format!("{family:?}"));
        assert_eq!(problems(&end(&End::Left, &none), 10), []);
        for now in [20, 30] {
            assert_eq!(problems(&end(&none, &none), now), [(v4.clone(), 20), (v6.clone(), 10)]);
        }
        assert_eq!(problems(&end(&End::Left, &filter), 40), [(v6, 40)]);
    }
}
