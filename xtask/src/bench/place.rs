//! Two hosts and the link between them: `client` and `gateway`, each a network namespace.
//!
//! Runs inside mount, network and process namespaces of its own (see [`super::run_bench`]), which
//! take everything with them when the last process ends.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use super::programs::Program;
use crate::report;
use crate::run::root;

/// A host of the bench.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Host {
    /// Where flows begin.
    Client,
    /// Where they end, and where every tunnel's gateway runs.
    Gateway,
}

impl Host {
    /// Its network namespace.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Gateway => "gateway",
        }
    }

    /// Its address on the bare link.
    pub(super) const fn outer(self) -> &'static str {
        match self {
            Self::Client => "10.0.0.2",
            Self::Gateway => "10.0.0.1",
        }
    }

    /// Its end of the link.
    const fn interface(self) -> &'static str {
        match self {
            Self::Client => "veth-c",
            Self::Gateway => "veth-g",
        }
    }
}

/// The two hosts.
pub(super) struct Place {
    /// This program, which also holds the traffic programs.
    own: PathBuf,
}

/// On which processors a program runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Processors {
    /// Where the kernel likes.
    All,
    /// The first: what hands over to another program there wakes no sleeping processor.
    One,
}

impl Processors {
    /// As taskset(1) wants it.
    fn list(self) -> String {
        let last = std::thread::available_parallelism().map_or(0, |all| all.get() - 1);
        match self {
            Self::All => format!("0-{last}"),
            Self::One => "0".to_owned(),
        }
    }

    /// Moves every thread of a running program there.
    pub(super) fn confine(self, pid: u32) -> Result<(), String> {
        command(&format!("taskset --all-tasks --cpu-list --pid {} {pid}", self.list()))
    }
}

/// What went over the link so far, both directions.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counters {
    /// Bytes with Ethernet headers.
    pub(super) bytes: u64,
    /// Packets.
    pub(super) packets: u64,
}

impl Place {
    /// Makes room for any number of places: names of hosts and control sockets live below /run,
    /// and ours hides the machine's.
    pub(super) fn prepare() -> Result<(), String> {
        command("mount -t tmpfs none /run")
    }

    /// Makes the hosts and the link.
    pub(super) fn new() -> Result<Self, String> {
        command("ip netns add client")?;
        command("ip netns add gateway")?;
        command("ip link add veth-c netns client type veth peer name veth-g netns gateway")?;
        for host in [Host::Client, Host::Gateway] {
            let (name, interface) = (host.name(), host.interface());
            command(&format!("ip -n {name} addr add {}/24 dev {interface}", host.outer()))?;
            command(&format!("ip -n {name} link set lo up"))?;
            command(&format!("ip -n {name} link set {interface} up"))?;
        }
        let own = std::env::current_exe().map_err(|error| format!("own path: {error}"))?;
        Ok(Self { own })
    }

    /// Hosts for a crowd of clients, on a switch of their own with one cable to the gateway; gives
    /// the gateway's address there.
    pub(super) fn crowd(&self, clients: usize) -> Result<&'static str, String> {
        const GATEWAY: &str = "10.1.0.1";
        let mut lines = format!(
            "netns add switch\n\
             link add crowd netns switch type bridge\n\
             -n switch link set crowd up\n\
             link add trunk netns switch type veth peer name crowd netns gateway\n\
             -n switch link set trunk master crowd up\n\
             -n gateway addr add {GATEWAY}/16 dev crowd\n\
             -n gateway link set crowd up\n"
        );
        for number in 0..clients {
            let name = crowd_host(number);
            let (high, low) = ((number + 2) / 256, (number + 2) % 256);
            lines += &format!(
                "netns add {name}\n\
                 link add v-{name} netns switch type veth peer name uplink netns {name}\n\
                 -n switch link set v-{name} master crowd up\n\
                 -n {name} addr add 10.1.{high}.{low}/16 dev uplink\n\
                 -n {name} link set lo up\n\
                 -n {name} link set uplink up\n"
            );
        }
        for line in lines.lines() {
            command(&format!("ip {line}"))?;
        }
        Ok(GATEWAY)
    }

    /// A program on one of the two hosts, its words after it.
    pub(super) fn on(&self, host: Host, program: &str, words: &[&str]) -> Command {
        self.on_host(host.name(), program, words)
    }

    /// A program on the host of that name, its words after it.
    pub(super) fn on_host(&self, host: &str, program: &str, words: &[&str]) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", host, program]).args(words).current_dir(root());
        command
    }

    /// One of our own traffic programs on a host.
    pub(super) fn traffic(&self, host: Host, words: &[&str]) -> Result<Program, String> {
        self.traffic_on(host, Processors::All, words)
    }

    /// One of our own traffic programs on a host, on those processors from its start.
    pub(super) fn traffic_on(
        &self,
        host: Host,
        on: Processors,
        words: &[&str],
    ) -> Result<Program, String> {
        let own = self.own.to_string_lossy();
        let mut command = self.on(host, "taskset", &["-c", &on.list(), &own, "bench-program"]);
        command.args(words);
        Program::start(command)
    }

    /// What the client's end of the link counted.
    pub(super) fn counters(&self) -> Result<Counters, String> {
        let output = self.on(Host::Client, "cat", &["/proc/net/dev"]).output();
        let output = output.map_err(|error| format!("counters of the link: {error}"))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let interface = format!("{}:", Host::Client.interface());
        let line = text.lines().find_map(|line| line.trim().strip_prefix(&interface));
        let numbers: Vec<u64> = line
            .unwrap_or_default()
            .split_whitespace()
            .filter_map(|number| number.parse().ok())
            .collect();
        match numbers.as_slice() {
            // Received bytes and packets, six more, then the same of what was sent (proc(5)).
            [in_bytes, in_packets, _, _, _, _, _, _, out_bytes, out_packets, ..] => {
                Ok(Counters { bytes: in_bytes + out_bytes, packets: in_packets + out_packets })
            }
            _ => Err("the link has no counters".to_owned()),
        }
    }
}

impl Drop for Place {
    /// Its hosts go, and with them their ends of every link.
    fn drop(&mut self) {
        for host in [Host::Client, Host::Gateway] {
            if let Err(error) = command(&format!("ip netns del {}", host.name())) {
                report::line(format_args!("a host is left behind until the run ends: {error}"));
            }
        }
    }
}

/// The name of a host of the crowd.
pub(super) fn crowd_host(number: usize) -> String {
    format!("crowd-{number}")
}

/// Runs a short command to its end.
pub(super) fn command(words: &str) -> Result<(), String> {
    let mut split = words.split_whitespace();
    let program = split.next().unwrap_or_default();
    let output = Command::new(program).args(split).output();
    let output = output.map_err(|error| format!("cannot start `{program}`: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("`{words}`: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// Resident memory of a process now, in kB (proc(5), `VmRSS`).
pub(super) fn resident_kb(pid: u32) -> Result<u64, String> {
    let text = read(&format!("/proc/{pid}/status"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|rest| rest.trim().trim_end_matches(" kB").parse().ok());
    number.ok_or_else(|| format!("process {pid} shows no resident memory"))
}

/// Processor time a process has used, user and system, in seconds (proc(5), `stat`).
pub(super) fn cpu_seconds(pid: u32) -> Result<f64, String> {
    /// Clock ticks per second: fixed at 100 in the kernel's interface to programs.
    const TICKS: f64 = 100.0;
    let text = read(&format!("/proc/{pid}/stat"))?;
    // The name, in brackets, may hold spaces; after it come the state and ten numbers.
    let after = text.rsplit_once(") ").map_or("", |(_, after)| after);
    let ticks =
        |field: usize| after.split(' ').nth(field).and_then(|text| text.parse::<f64>().ok());
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => Ok((user + system) / TICKS),
        _ => Err(format!("process {pid} shows no processor time")),
    }
}

fn read(path: &str) -> Result<String, String> {
    fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}
