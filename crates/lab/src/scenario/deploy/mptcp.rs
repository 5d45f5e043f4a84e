//! The kernel's MPTCP between client and gateway, for programs that do not know it: its settings,
//! and a check that it works.

use super::super::testbed::Testbed;
use crate::netns::Host;
use anyhow::{Context as _, bail, ensure};
use std::fs;
use std::time::{Duration, Instant};

/// How long a command may take.
const COMMAND: Duration = Duration::from_secs(10);
/// The longest time until there is a sub-flow on each link, if some are lost.
const JOINING: Duration = Duration::from_secs(10);
/// The line of the kernel's counters, and the counter of accepted sub-flows.
const COUNTERS: &str = "MPTcpExt:";
const JOINED: &str = "MPJoinSynAckRx";

/// Configures both kernels so that a connection has one sub-flow on each of the client's links: the
/// first follows the routes, and the others are endpoints.
pub(super) fn spread(testbed: &Testbed) -> anyhow::Result<()> {
    let [client, gateway] = [testbed.client, testbed.gateway].map(|it| testbed.network.host(it));
    let beside = testbed.beside();
    for host in [client, gateway] {
        ip_mptcp(host, &["limits", "set", "subflows", &beside.len().to_string()])?;
    }
    for (card, address) in beside {
        ip_mptcp(client, &["endpoint", "add", &address.to_string(), "dev", &card, "subflow"])?;
    }
    Ok(())
}

/// Waits until the client has a sub-flow on each link: without them it is a plain TCP connection.
pub(super) fn await_subflows(testbed: &Testbed) -> anyhow::Result<()> {
    let client = testbed.network.host(testbed.client);
    let wanted = testbed.beside().len() as u64;
    let end = Instant::now() + JOINING;
    loop {
        let joined =
            joined(&client.inside(|| fs::read_to_string("/proc/thread-self/net/netstat"))?);
        let joined = joined.context("the kernel does not count what MPTCP does")?;
        if joined >= wanted {
            return Ok(());
        }
        ensure!(
            Instant::now() < end,
            "MPTCP has {joined} sub-flows beside the first, not {wanted}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The number of sub-flows beside the first, by the kernel's counters: a line of their names, and
/// then a line of their values.
fn joined(counters: &str) -> Option<u64> {
    let mut lines = counters.lines().filter_map(|line| line.strip_prefix(COUNTERS));
    let (names, counted) = (lines.next()?, lines.next()?);
    let mut both = names.split_whitespace().zip(counted.split_whitespace());
    both.find(|(name, _)| *name == JOINED)?.1.parse().ok()
}

fn ip_mptcp(host: &Host, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = host.command("ip")?;
    command.arg("mptcp").args(arguments);
    let output = host.spawn("ip mptcp", command)?.wait(COMMAND)?;
    if !output.status.success() {
        let said = output.errors.last().map_or("nothing", String::as_str);
        bail!("`ip mptcp {}` failed: {said}", arguments.join(" "));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::joined;

    #[test]
    fn a_counter_stands_below_its_name() {
        let counters = "TcpExt: SyncookiesSent MPJoinSynAckRx\nTcpExt: 1 2\n\
                        MPTcpExt: MPCapableSYNRX MPJoinSynAckRx MPJoinAckRx\nMPTcpExt: 3 4 5\n";
        assert_eq!(joined(counters), Some(4));
        assert_eq!(joined("MPTcpExt: MPCapableSYNRX\nMPTcpExt: 3\n"), None);
        assert_eq!(joined("TcpExt: SyncookiesSent\nTcpExt: 1\n"), None);
    }
}
