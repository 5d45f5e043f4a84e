//! By which paths a connection goes, and why by those: what follows from the mode, from the
//! scheduler and from what the connection is. What each path thinks of itself stands in `status`.

use std::collections::BTreeMap;

use rove_api::LinkMode;
use rove_proto::flow::classify::Class;
use rove_proto::flow::report::FlowReport;
use rove_proto::id::SocketId;
use rove_proto::multipath::scheduler::Scheduler;
use rove_proto::node::{PathStatus, PeerStatus};
use rove_proto::path::Health;
use rove_proto::wire::inner::UDP;

use crate::data::Carried;
use crate::sessions::carries_data;

/// The way of one connection.
pub(crate) struct Way<'a> {
    /// The paths by which it goes, the one in use first.
    pub(crate) paths: Vec<&'a PathStatus>,
    choice: Choice,
}

/// What made it that.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Choice {
    /// A path was chosen for it alone, since it is of no use late.
    Early,
    /// A question for a name, by all that carry together.
    Raced,
    /// Several carry together, and the scheduler gives each packet to one of them, or to all.
    Scheduled(Scheduler),
    /// One carries, as the client makes it of its links, where that is known.
    Alone(Option<LinkMode>),
    /// One carries, by MPTCP: its subflows may go by other links.
    Kernel,
    /// None carries.
    Nothing,
}

impl<'a> Way<'a> {
    /// That of the connection `report` tells of, with a client whose links are used by `mode`, or
    /// at a gateway.
    pub(crate) fn of(
        report: &FlowReport,
        session: &'a PeerStatus,
        mode: Option<LinkMode>,
        streams: &BTreeMap<SocketId, Carried>,
    ) -> Self {
        let carrying: Vec<_> = session.paths.iter().filter(|path| carries_data(path)).collect();
        let shared = carrying.iter().filter(|path| path.is_shared).count();
        // A path that was chosen once and carries nothing any more is none to name.
        let own = carrying.iter().find(|path| report.path.is_some_and(|own| own.0 == path.id));
        let is_question = report.class == Class::Names && report.tuple.protocol == UDP;
        let carried = |path: &&PathStatus| streams.get(&path.route.socket);
        let has_subflows = carrying.iter().filter_map(carried).any(|one| one.subflows.len() > 1);
        let choice = match own {
            _ if carrying.iter().all(|path| path.health == Health::Gone) => Choice::Nothing,
            Some(_) => Choice::Early,
            None if shared < 2 && has_subflows => Choice::Kernel,
            None if shared < 2 => Choice::Alone(mode),
            None if is_question => Choice::Raced,
            None => Choice::Scheduled(session.scheduler),
        };
        let paths = match (choice, own) {
            (Choice::Early, Some(own)) => vec![*own],
            (Choice::Scheduled(Scheduler::Latency), _) => nearest(&carrying).into_iter().collect(),
            (_, _) => carrying,
        };
        Self { paths, choice }
    }

    /// Why it is that, in a sentence.
    pub(crate) fn why(&self) -> &'static str {
        match self.choice {
            Choice::Early => "the path that has it there first, whatever the scheduler",
            Choice::Raced => "every path, whatever the scheduler: the first answer counts",
            Choice::Scheduled(scheduler) => scheduled(scheduler),
            Choice::Kernel => {
                "MPTCP: the kernel chooses among the subflows that `rove paths` lists"
            }
            Choice::Alone(Some(LinkMode::Full)) => "mode full, and this path alone carries now",
            Choice::Alone(Some(LinkMode::Backup)) => {
                "mode backup: the best link carries, and others stand by"
            }
            Choice::Alone(Some(LinkMode::Single)) => "mode single: one link carries",
            Choice::Alone(None) => "the path by which the client sends",
            Choice::Nothing => "no path carries",
        }
    }
}

/// The path with the shortest round trip, of those that carry.
fn nearest<'a>(carrying: &[&'a PathStatus]) -> Option<&'a PathStatus> {
    let rank = |path: &&&PathStatus| {
        (path.health != Health::Good, path.rtt.is_none(), path.rtt.unwrap_or_default())
    };
    carrying.iter().min_by_key(rank).copied()
}

/// How a scheduler gives packets to paths; of what somebody waits for it is not asked.
const fn scheduled(scheduler: Scheduler) -> &'static str {
    match scheduler {
        Scheduler::Earliest => "scheduler earliest: each packet goes where it arrives first",
        Scheduler::Rtt => {
            "scheduler rtt: the shortest round trip while there is room, then the next"
        }
        Scheduler::RoundRobin => "scheduler round-robin: by each path in its turn",
        Scheduler::Redundant => "scheduler redundant: by every path that has room",
        Scheduler::Loss => "scheduler loss: in proportion to the part that arrives by each",
        Scheduler::Rate => "scheduler rate: the fastest up to what it carries, then the next",
        Scheduler::Latency => "scheduler latency: the shortest round trip only",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rove_os::stream::Subflow;
    use rove_proto::flow::report::Why;
    use rove_proto::flow::tuple::Tuple;
    use rove_proto::node::PeerState;
    use rove_proto::path::PathId;
    use rove_proto::wire::inner::TCP;

    use super::*;
    use crate::samples::report;
    use crate::samples::{path, peer};

    fn session(scheduler: Scheduler, shared: &[(u32, u64)]) -> PeerStatus {
        let path = |&(id, rtt_ms): &(u32, u64)| PathStatus {
            id,
            rtt: Some(Duration::from_millis(rtt_ms)),
            in_use: id == 1,
            is_shared: true,
            ..path(Health::Good, None, None)
        };
        let paths = shared.iter().map(path).collect();
        PeerStatus { scheduler, ..peer(PeerState::Up, paths) }
    }

    fn told(report: &FlowReport, session: &PeerStatus, mode: LinkMode) -> (Vec<u32>, &'static str) {
        let way = Way::of(report, session, Some(mode), &BTreeMap::new());
        (way.paths.iter().map(|path| path.id).collect(), way.why())
    }

    fn of(protocol: u8, class: Class, path: Option<u32>) -> FlowReport {
        let usual = report(9);
        let tuple = Tuple { protocol, ..usual.tuple };
        FlowReport { tuple, class, path: path.map(PathId), why: Why::InTurn, ..usual }
    }

    #[test]
    fn with_several_paths_the_scheduler_says_it() {
        for protocol in [TCP, UDP] {
            let bulk = of(protocol, Class::Bulk, None);
            for scheduler in Scheduler::ALL {
                let session = session(scheduler, &[(1, 40), (2, 10), (3, 20)]);
                let (paths, why) = told(&bulk, &session, LinkMode::Full);
                let named = format!("scheduler {}: ", scheduler.name());
                assert!(why.starts_with(&named), "{why}");
                let expected: &[u32] =
                    if scheduler == Scheduler::Latency { &[2] } else { &[1, 2, 3] };
                assert_eq!(paths, expected, "{named}");
            }
        }
    }

    #[test]
    fn the_nearest_path_is_one_that_carries() {
        let mut session = session(Scheduler::Latency, &[(1, 40), (2, 10)]);
        session.paths[1].health = Health::Gone;
        let bulk = of(TCP, Class::Bulk, None);
        assert_eq!(told(&bulk, &session, LinkMode::Full).0, [1]);
    }

    #[test]
    fn what_is_early_or_a_question_does_not_go_by_the_scheduler() {
        let session = session(Scheduler::Latency, &[(1, 40), (2, 10)]);
        let told = |report| told(&report, &session, LinkMode::Full);
        let (paths, why) = told(of(UDP, Class::RealTime, Some(1)));
        assert_eq!((paths, why.contains("there first")), (vec![1], true), "{why}");
        let (paths, why) = told(of(UDP, Class::Names, None));
        assert_eq!((paths, why.contains("every path")), (vec![1, 2], true), "{why}");
        let (paths, why) = told(of(TCP, Class::Names, None));
        assert_eq!((paths, why.contains("latency")), (vec![2], true), "{why}");
        let (paths, why) = told(of(UDP, Class::RealTime, Some(7)));
        assert_eq!((paths, why.contains("latency")), (vec![2], true), "its path is gone: {why}");
    }

    #[test]
    fn with_one_path_the_mode_says_it() {
        let bulk = of(TCP, Class::Bulk, None);
        let mut session = session(Scheduler::Latency, &[(1, 40)]);
        for (mode, named) in [
            (LinkMode::Full, "mode full"),
            (LinkMode::Backup, "mode backup"),
            (LinkMode::Single, "mode single"),
        ] {
            let (paths, why) = told(&bulk, &session, mode);
            assert!(paths == [1] && why.starts_with(named), "{why}");
        }
        let at_gateway = Way::of(&bulk, &session, None, &BTreeMap::new());
        assert_eq!(at_gateway.why(), "the path by which the client sends");
        let subflow = |port: u16| Subflow {
            local: ([192, 0, 2, 7], port).into(),
            remote: ([203, 0, 113, 1], 4_500).into(),
            tx_bytes: 0,
            rx_bytes: 0,
            rtt: Duration::ZERO,
        };
        let carried = Carried { transport: "mptcp", subflows: vec![subflow(1), subflow(2)] };
        let streams = [(session.paths[0].route.socket, carried)].into();
        let by_kernel = Way::of(&bulk, &session, Some(LinkMode::Full), &streams);
        assert!(by_kernel.why().starts_with("MPTCP"), "{}", by_kernel.why());
        session.paths.clear();
        assert_eq!(told(&bulk, &session, LinkMode::Full), (vec![], "no path carries"));
    }
}
