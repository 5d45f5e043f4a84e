//! Rove as a person deploys it: a gateway, an invite, a client.

use super::super::addresses::{OTHER_SERVERS_NETWORK, SERVER, TUNNEL_NETWORK};
use super::super::binary::Binary;
use super::super::testbed::{Testbed, server_numbered};
use super::How;
use crate::emu::MS;
use crate::ground::{
    Assist, Call, Mode, Receiver, Reported, SCHEDULERS, Spread, TRANSPORTS, Transport,
};
use crate::netns::{Host, Process, monotonic_ns};
use crate::world;
use anyhow::{Context as _, bail};
use serde_json::Value;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

/// UDP port of the gateway.
const PORT: u16 = 51_820;
/// How long a command of the gateway may take.
const COMMAND: Duration = Duration::from_secs(10);
/// How long the gateway may take to answer its first command.
const GATEWAY_START: Duration = Duration::from_secs(10);
/// How long the tunnel may take to carry.
const TUNNEL_START: Duration = Duration::from_secs(30);
/// The client's interface that moves from network to network.
const FIRST_CARD: &str = "wlan0";
/// The client's name at the gateway.
const PEER: &str = "phone";
/// The name of the invite for further clients.
const CROWD: &str = "crowd";
/// The section of an end whose headers all travel.
const WHOLE: &str = "[saving]\nheaders = false\n";
/// How many of them enrol at a time.
const ENROL_AT_ONCE: usize = 8;

/// How a Rove is configured for networks without UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streams {
    /// The default.
    Usual,
    /// The gateway accepts streams on port 443 as well, as in the README; the client has a proxy,
    /// if one is given.
    On443(Option<SocketAddr>),
    /// The client uses none.
    Off,
}

/// How a Rove treats open connections while no path carries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hold {
    /// The default.
    #[default]
    Usual,
    /// It keeps and acknowledges outstanding data.
    Held,
    /// It keeps one segment of each connection, and sends it again.
    Reinjected,
    /// It does nothing.
    Off,
}

/// The configuration of a Rove, where it differs from the README.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Setup {
    /// For networks without UDP.
    pub streams: Streams,
    /// For networks that come and go.
    pub hold: Hold,
}

impl Default for Setup {
    fn default() -> Self {
        Self { streams: Streams::Usual, hold: Hold::Usual }
    }
}

impl Hold {
    /// The same for a core without a configuration.
    pub const fn in_core(self) -> world::Hold {
        match self {
            Self::Usual | Self::Held => world::Hold::Full,
            Self::Reinjected => world::Hold::Reinject,
            Self::Off => world::Hold::Off,
        }
    }

    /// Its value in the configuration of either end; `None` for the default.
    const fn word(self) -> Option<&'static str> {
        match self {
            Self::Usual => None,
            Self::Off => Some("off"),
            Self::Held => Some("full"),
            Self::Reinjected => Some("reinject"),
        }
    }

    /// Its section in a configuration file, with local acknowledgement, if that is set.
    fn section(self, assist: Option<Assist>) -> Option<String> {
        let hold = self.word().map(|word| format!("hold = \"{word}\"\n"));
        let assist = assist.map(|assist| match assist {
            Assist::Off => "assist = \"off\"\n".to_owned(),
            Assist::On => "assist = \"on\"\n".to_owned(),
        });
        let lines: String = hold.into_iter().chain(assist).collect();
        (!lines.is_empty()).then(|| format!("[persistence]\n{lines}"))
    }
}

/// The processes of a deployed Rove.
#[derive(Debug)]
pub struct Rove {
    /// Removed first.
    pub(super) client: Process,
    /// The clients beside the first.
    crowd: Vec<Process>,
    pub(super) gateway: Process,
    binary: Binary,
    hold: Hold,
}

impl Rove {
    /// Deploys as in the README: a gateway, an invite, a client.
    pub(super) fn start(testbed: &Testbed, binary: &Binary, setup: &Setup) -> anyhow::Result<Self> {
        let Setup { streams, hold } = setup;
        let host = testbed.network.host(testbed.gateway);
        let gateway = Commands::of(host, binary);
        let mut init = vec!["gateway", "init", "--network", TUNNEL_NETWORK];
        let endpoints = endpoints(testbed);
        endpoints.iter().for_each(|endpoint| init.extend(["--endpoint", endpoint]));
        gateway.run(&init)?;
        gateway.leave_out_nat()?;
        gateway.take_streams(streams)?;
        gateway.hold(*hold, testbed.assists())?;
        gateway.save(testbed.elides)?;
        let mut running = gateway.start(&["gateway", "run"])?;
        gateway.wait_until_answers(&mut running)?;
        let invite = gateway.invite(PEER, 1)?;

        let host = testbed.network.host(testbed.client);
        let client = Commands::of(host, binary);
        client.configure_client(setup, testbed)?;
        let server = format!("{SERVER}/32");
        let others = (!testbed.levels.is_empty()).then_some(OTHER_SERVERS_NETWORK);
        let routes: Vec<&str> = [server.as_str()].into_iter().chain(others).collect();
        let mut up = client.up(&invite, &routes)?;
        await_carrying(&mut up)?;
        // The server is on the gateway's own network, which no peer may reach unless allowed.
        for route in routes {
            gateway.run(&["gateway", "allow", PEER, route])?;
        }
        let crowd = start_crowd(testbed, &gateway, setup)?;
        Ok(Self { client: up, crowd, gateway: running, binary: binary.clone(), hold: *hold })
    }

    /// The processes of clients and gateway.
    pub(super) fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        [&mut self.gateway, &mut self.client].into_iter().chain(&mut self.crowd)
    }

    /// Moves the gateway by its command.
    pub(super) fn move_gateway(&self, testbed: &Testbed, address: IpAddr) -> anyhow::Result<()> {
        let gateway = Commands::of(testbed.network.host(testbed.gateway), &self.binary);
        let endpoint = SocketAddr::new(address, PORT).to_string();
        gateway.run(&["gateway", "move", &endpoint]).map(drop)
    }

    /// Ends the gateway's process.
    pub(super) fn end_gateway(&mut self, how: How) -> anyhow::Result<()> {
        if how == How::Asked {
            ask_to_end(&self.gateway)?;
        }
        self.gateway.kill();
        Ok(())
    }

    /// Ends the client.
    pub(super) fn end_client(&mut self) -> anyhow::Result<()> {
        ask_to_end(&self.client)?;
        self.client.kill();
        Ok(())
    }

    /// Starts the client again, without an invite. Returns when.
    pub(super) fn start_client(&mut self, testbed: &Testbed) -> anyhow::Result<u64> {
        let client = Commands::of(testbed.network.host(testbed.client), &self.binary);
        let started_ns = monotonic_ns();
        self.client = client.start(&["up", "--foreground", "--route", &format!("{SERVER}/32")])?;
        Ok(started_ns)
    }

    /// The transport that the client reports.
    pub(super) fn transport(&self, testbed: &Testbed) -> anyhow::Result<Option<Transport>> {
        let client = Commands::of(testbed.network.host(testbed.client), &self.binary);
        let paths: Value = serde_json::from_str(&client.run(&["paths", "--json"])?.concat())?;
        let mut paths = paths.as_array().map(Vec::as_slice).unwrap_or_default().iter();
        let Some(path) = paths.find(|path| path["state"] == "in use") else { return Ok(None) };
        match path["transport"].as_str() {
            Some("udp") => Ok(Some(Transport::Udp)),
            Some("tcp" | "mptcp") => Ok(Some(Transport::Tcp)),
            Some("tcp+tls" | "mptcp+tls") => Ok(Some(Transport::Tls)),
            Some(_) | None => bail!("`rove paths` names a transport that is not known: {path}"),
        }
    }

    /// The traffic that arrived at the client on each of its paths, or at the gateway on all of the
    /// client's, and the feedback about it.
    pub(super) fn reported(
        &self,
        testbed: &Testbed,
        at: Receiver,
    ) -> anyhow::Result<Vec<Reported>> {
        let (host, asked) = match at {
            Receiver::Client => (testbed.client, &["paths", "--json"][..]),
            Receiver::Server => (testbed.gateway, &["gateway", "peers", "--json"][..]),
        };
        let said = Commands::of(testbed.network.host(host), &self.binary).run(asked)?.concat();
        let said: Value = serde_json::from_str(&said)?;
        let headers = testbed.family().udp_headers() as u64;
        let of = |one: &Value| {
            let number = |key: &str| {
                one[key].as_u64().with_context(|| format!("Rove does not say `{key}`: {one}"))
            };
            Ok(Reported {
                path: one["id"].as_u64().unwrap_or_default(),
                came_bytes: number("rx_bytes")?,
                left_bytes: number("tx_bytes")?,
                left_datagrams: 0,
                // The gateway does not report it.
                left_again: one["retransmitted"].as_u64().unwrap_or_default(),
                feedback_bytes: number("feedback_bytes")? + number("feedback_datagrams")? * headers,
                fallback_ns: one["fallback"]["for_ms"].as_u64().map(|ms| ms * MS),
            })
        };
        let all = if at == Receiver::Client { &said } else { &said["peers"] };
        all.as_array().map(Vec::as_slice).unwrap_or_default().iter().map(of).collect()
    }

    /// The bytes that both ends report to keep; `None` if they keep nothing, or by default.
    pub(super) fn held_bytes(&self, testbed: &Testbed) -> anyhow::Result<Option<u64>> {
        match self.hold {
            Hold::Usual | Hold::Off => return Ok(None),
            Hold::Held | Hold::Reinjected => {}
        }
        let mut all = 0;
        for host in [testbed.client, testbed.gateway] {
            let node = Commands::of(testbed.network.host(host), &self.binary);
            let said = node.run(&["flows", "--json"])?.concat();
            let flows: Value = serde_json::from_str(&said)?;
            anyhow::ensure!(flows["node"].is_string(), "no node answers `rove flows`: {said}");
            let held = flows["held_bytes"].as_u64();
            all +=
                held.with_context(|| format!("`rove flows` does not say what is held: {said}"))?;
        }
        Ok(Some(all))
    }

    /// Starts it again, and waits until it reports that it is ready (sd_notify(3)).
    pub(super) fn start_gateway(&mut self, testbed: &Testbed) -> anyhow::Result<()> {
        let host = testbed.network.host(testbed.gateway);
        let path = host.directory().join("ready");
        // There is none yet, or it is from an earlier start.
        let _ = std::fs::remove_file(&path);
        let ready = UnixDatagram::bind(&path).context("cannot listen for the gateway")?;
        ready.set_read_timeout(Some(GATEWAY_START))?;
        let gateway = Commands::of(host, &self.binary);
        let mut command = gateway.command(&["gateway", "run"])?;
        command.env("NOTIFY_SOCKET", &path);
        self.gateway = host.spawn("rove gateway run", command)?;
        let mut said = [0; 256];
        match ready.recv(&mut said) {
            Ok(_) => Ok(()),
            Err(_) => bail!(self.gateway.failure("is not ready in time")),
        }
    }

    /// Whether the client reports that its first interface carries, in either of the commands for
    /// people.
    pub(super) fn says_carries(&self, testbed: &Testbed) -> anyhow::Result<bool> {
        let client = Commands::of(testbed.network.host(testbed.client), &self.binary);
        let status: Value = serde_json::from_str(&client.run(&["status", "--json"])?.concat())?;
        let paths: Value = serde_json::from_str(&client.run(&["paths", "--json"])?.concat())?;
        let paths = paths.as_array().map(Vec::as_slice).unwrap_or_default();
        let over_it = |path: &&Value| path["link"] == FIRST_CARD;
        let by_status =
            paths.iter().filter(over_it).any(|path| status["path_in_use"] == path["id"]);
        let by_paths = paths.iter().filter(over_it).any(|path| path["state"] == "in use");
        Ok(by_paths || (by_status && status["carrying"] == true))
    }
}

/// Enrols the clients beside the first, some at a time: a client is a process of its own here.
fn start_crowd(
    testbed: &Testbed,
    gateway: &Commands<'_>,
    setup: &Setup,
) -> anyhow::Result<Vec<Process>> {
    let hosts: Vec<_> = testbed.crowd().collect();
    if hosts.is_empty() {
        return Ok(Vec::new());
    }
    let invite = gateway.invite(CROWD, hosts.len())?;
    let server = format!("{SERVER}/32");
    gateway.run(&["gateway", "allow", CROWD, &server])?;
    let mut all = Vec::new();
    for some in hosts.chunks(ENROL_AT_ONCE) {
        let start = |host: &_| {
            let client = Commands::of(testbed.network.host(*host), gateway.binary);
            client.configure_client(setup, testbed)?;
            client.up(&invite, &[&server])
        };
        let mut started = some.iter().map(start).collect::<anyhow::Result<Vec<_>>>()?;
        started.iter_mut().try_for_each(await_carrying)?;
        all.append(&mut started);
    }
    Ok(all)
}

/// Waits for the line with which a client reports that its tunnel carries.
fn await_carrying(up: &mut Process) -> anyhow::Result<()> {
    up.line_where(TUNNEL_START, |line| (!line.trim().is_empty()).then_some(()))
        .context("the tunnel does not carry")
}

/// The section about low latency and priorities, if there is any.
fn qos_section(testbed: &Testbed) -> Option<String> {
    let early = format!("low_latency = [\"{SERVER}/32:{}\"]\n", Call::ECHO_PORT);
    let early = testbed.early.then_some(early);
    let levels = testbed.levels.iter();
    let levels =
        levels.map(|&(number, level)| format!("\"{}\" = {level}", server_numbered(number)));
    let levels: Vec<String> = levels.collect();
    let priority = format!("priority = {{ {} }}\n", levels.join(", "));
    let priority = (!levels.is_empty()).then_some(priority);
    let lines: String = early.into_iter().chain(priority).collect();
    (!lines.is_empty()).then(|| format!("[qos]\n{lines}"))
}

/// The section of a client's configuration about its links; `None` for the default.
fn section_of(mode: Mode, scheduler: &str, transport: &str, spread: Spread) -> Option<String> {
    let mode = match mode {
        Mode::Single => Some("\"single\"".to_owned()),
        Mode::Backup => Some("\"backup\"".to_owned()),
        Mode::Full => None,
    };
    let scheduler =
        Some(scheduler).filter(|&name| name != SCHEDULERS[0]).map(|name| format!("\"{name}\""));
    let transport =
        Some(transport).filter(|&name| name != TRANSPORTS[0]).map(|name| format!("\"{name}\""));
    let manager = spread.mesh.then(|| "\"full-mesh\"".to_owned());
    let subflows = Some(spread.subflows).filter(|&number| number > 1).map(|n| n.to_string());
    let values = [
        ("mode", mode),
        ("scheduler", scheduler),
        ("transport", transport),
        ("manager", manager),
        ("subflows", subflows),
    ];
    let lines: String = values
        .into_iter()
        .filter_map(|(key, value)| Some(format!("{key} = {}\n", value?)))
        .collect();
    (!lines.is_empty()).then(|| format!("[paths]\n{lines}"))
}

/// The gateway's endpoints: its name, or its addresses.
fn endpoints(testbed: &Testbed) -> Vec<String> {
    if let Some(name) = testbed.gateway_name() {
        return vec![format!("{name}:{PORT}")];
    }
    let endpoint = |address| SocketAddr::new(address, PORT).to_string();
    testbed.gateway_addresses().into_iter().map(endpoint).collect()
}

/// Asks a process to end, and waits until it has.
fn ask_to_end(process: &Process) -> anyhow::Result<()> {
    process.terminate();
    let end = Instant::now() + COMMAND;
    while process.is_running() {
        if Instant::now() > end {
            bail!(process.failure("does not end"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

/// Commands of one node.
struct Commands<'a> {
    host: &'a Host,
    binary: &'a Binary,
    directory: PathBuf,
}

impl<'a> Commands<'a> {
    /// Those of the node on a host.
    fn of(host: &'a Host, binary: &'a Binary) -> Self {
        Self { host, binary, directory: host.directory().join("rove") }
    }

    /// Starts a command that stays.
    fn start(&self, arguments: &[&str]) -> anyhow::Result<Process> {
        let command = self.command(arguments)?;
        let what = arguments.iter().take(2).copied().collect::<Vec<_>>();
        let what = if what.first() == Some(&"up") {
            "rove up".to_owned()
        } else {
            format!("rove {}", what.join(" "))
        };
        Ok(self.host.spawn(&what, command)?)
    }

    /// An invite of this name with this number of uses.
    fn invite(&self, name: &str, uses: usize) -> anyhow::Result<String> {
        let said = self.run(&["gateway", "invite", name, "--uses", &uses.to_string()])?;
        let invite = said.into_iter().find(|line| line.starts_with("rove://"));
        invite.context("`rove gateway invite` printed no invite")
    }

    /// Starts a client that stays in the foreground.
    fn up(&self, invite: &str, routes: &[&str]) -> anyhow::Result<Process> {
        let mut up = vec!["up", invite, "--foreground"];
        routes.iter().for_each(|route| up.extend(["--route", route]));
        self.start(&up)
    }

    /// A command that was not started.
    fn command(&self, arguments: &[&str]) -> anyhow::Result<Command> {
        let mut command = self.host.command(&self.binary.path)?;
        command.args(arguments).arg("--dir").arg(&self.directory);
        Ok(command)
    }

    /// The server's packets return through the gateway anyway, and the server may contact clients.
    /// So no scenario needs `nft`.
    fn leave_out_nat(&self) -> anyhow::Result<()> {
        self.edit_gateway("nat = true", "nat = false\nfirewall = false")
    }

    /// Makes the gateway accept streams on port 443 as well, as in the README.
    fn take_streams(&self, streams: &Streams) -> anyhow::Result<()> {
        let Streams::On443(_) = streams else { return Ok(()) };
        let line = format!("streams = [\"[::]:{PORT}\", \"[::]:443\"]");
        self.edit_gateway("[gateway]\n", &format!("[gateway]\n{line}\n"))
    }

    fn edit_gateway(&self, old: &str, new: &str) -> anyhow::Result<()> {
        let file = self.directory.join("gateway.toml");
        let text = std::fs::read_to_string(&file).context("no gateway.toml after init")?;
        let edited = text.replacen(old, new, 1);
        anyhow::ensure!(edited != text, "gateway.toml does not say `{}` after init", old.trim());
        std::fs::write(&file, edited).context("cannot write gateway.toml")
    }

    /// Configures how the gateway treats open connections.
    fn hold(&self, hold: Hold, assist: Option<Assist>) -> anyhow::Result<()> {
        let Some(section) = hold.section(assist) else { return Ok(()) };
        self.edit_gateway("[persistence]\n", &section)
    }

    /// Configures whether the gateway leaves out headers that the client knows.
    fn save(&self, elides: bool) -> anyhow::Result<()> {
        if elides { Ok(()) } else { self.edit_gateway("[saving]\n", WHOLE) }
    }

    /// Writes the client's configuration, if it needs one.
    fn configure_client(&self, setup: &Setup, testbed: &Testbed) -> anyhow::Result<()> {
        let streams = match setup.streams {
            Streams::Usual | Streams::On443(None) => None,
            Streams::On443(Some(proxy)) => Some(format!("proxy = \"http://{proxy}\"")),
            Streams::Off => Some("streams = false".to_owned()),
        };
        let streams = streams.map(|line| format!("[client]\n{line}\n"));
        let paths = section_of(testbed.mode, testbed.scheduler, testbed.transport, testbed.spread);
        let persistence = setup.hold.section(testbed.assists());
        let saving = (!testbed.elides).then(|| WHOLE.to_owned());
        let sections = [streams, persistence, paths, qos_section(testbed), saving];
        let sections: String = sections.into_iter().flatten().collect();
        if sections.is_empty() {
            return Ok(());
        }
        std::fs::create_dir_all(&self.directory).context("cannot make the client's directory")?;
        std::fs::write(self.directory.join("client.toml"), sections)
            .context("cannot write client.toml")
    }

    /// Runs a command to its end and returns what it printed.
    fn run(&self, arguments: &[&str]) -> anyhow::Result<Vec<String>> {
        let running = self.start(arguments)?;
        let name = running.name().to_owned();
        let mut lines = Vec::new();
        loop {
            match running.line(COMMAND) {
                Ok(Some(line)) => lines.push(line),
                Ok(None) => bail!("{name} does not end"),
                Err(_) => break,
            }
        }
        let output = running.wait(COMMAND)?;
        if !output.status.success() {
            let said = output.errors.last().map_or("nothing", String::as_str);
            bail!("{name} failed: {said}");
        }
        Ok(lines)
    }

    /// Waits until a gateway that was just started answers.
    fn wait_until_answers(&self, gateway: &mut Process) -> anyhow::Result<()> {
        let end = Instant::now() + GATEWAY_START;
        loop {
            if !gateway.is_running() {
                bail!(gateway.failure("ended"));
            }
            // Without a running gateway, status says so and succeeds. So it is asked for a value
            // that only a running one has.
            let said = self.run(&["gateway", "status", "--json"]).unwrap_or_default().concat();
            let running = serde_json::from_str::<Value>(&said)
                .is_ok_and(|status| status.get("running") == Some(&Value::Bool(true)));
            if running {
                return Ok(());
            }
            if Instant::now() > end {
                bail!(gateway.failure("does not answer"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Hold, section_of};
    use crate::ground::{Assist, Mode, Spread};

    #[test]
    fn what_is_to_be_done_is_said_unless_it_is_the_usual() {
        assert_eq!(section_of(Mode::Full, "earliest", "auto", Spread::ONE), None);
        let backup = section_of(Mode::Backup, "earliest", "auto", Spread::ONE);
        assert_eq!(backup.as_deref(), Some("[paths]\nmode = \"backup\"\n"));
        let all = "[paths]\nscheduler = \"rate\"\ntransport = \"tcp\"\n\
                   manager = \"full-mesh\"\nsubflows = 2\n";
        let mesh = Spread { mesh: true, subflows: 2 };
        assert_eq!(section_of(Mode::Full, "rate", "tcp", mesh).as_deref(), Some(all));
        assert_eq!(Hold::Usual.section(None), None);
        assert_eq!(Hold::Off.section(None).as_deref(), Some("[persistence]\nhold = \"off\"\n"));
        let held = "[persistence]\nhold = \"full\"\nassist = \"on\"\n";
        assert_eq!(Hold::Held.section(Some(Assist::On)).as_deref(), Some(held));
        let reinjected = "[persistence]\nhold = \"reinject\"\nassist = \"off\"\n";
        let section = Hold::Reinjected.section(Some(Assist::Off));
        assert_eq!(section.as_deref(), Some(reinjected));
    }
}
