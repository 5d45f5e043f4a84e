//! The contenders, and how each is set up: as its own documentation says, with nothing tuned.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use super::place::{Host, Place, command, crowd_host, resident_kb};
use super::programs::{Program, end_all};
use crate::run::root;

/// Where built programs are kept between runs.
pub(super) const CACHE: &str = "target/bench";
/// Rove, as it is unless it is told otherwise.
pub(super) const OWN: &str = "rove";
/// The same, doing nothing for open connections.
pub(super) const HOLDING_NOTHING: &str = "rove, hold = off";
/// The other tunnel.
pub(super) const RIVAL: &str = "wireguard-go";
/// An earlier Rove.
pub(super) const BEFORE: &str = "rove before";
/// No tunnel.
pub(super) const BARE: &str = "bare link";
/// The port of every gateway.
const PORT: u16 = 51_820;
/// The port of the forwarder that times the first answer.
const FORWARD_PORT: u16 = 5_203;
/// Inner addresses, alike for every contender.
const GATEWAY_INNER: &str = "10.9.0.1";
const CLIENT_INNER: &str = "10.9.0.2";
/// What WireGuard's own tools choose on a link of 1,500 bytes.
const WIREGUARD_MTU: u16 = 1_420;
/// How often and how long one looks whether a program answers.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOKS: u32 = 500;
/// Where Rove's client keeps what it knows.
const ROVE_CLIENT_DIR: &str = "/run/rove-client";
/// Clients of a crowd that start at one time.
const CROWD_BATCH: usize = 16;
/// How long a crowd is left alone before the gateway's memory is read.
const CROWD_IDLE: Duration = Duration::from_secs(5);
/// How long a gateway runs before its handshake is timed.
const SETTLED: Duration = Duration::from_secs(1);

/// One way to join the two hosts.
pub(super) trait Tunnel {
    /// The name in the table.
    fn name(&self) -> &'static str;

    /// Sets it up; it has carried nothing yet.
    fn start(&self, place: &Place) -> Result<Running, String>;

    /// Microseconds from a client's first datagram to the gateway's first answer, on a tunnel made
    /// for it; nothing where there is no handshake.
    fn first_reply_us(&self, place: &Place) -> Result<Option<f64>, String>;

    /// Resident memory, in kB, of a gateway with `clients` that have shaken hands and are idle;
    /// nothing where that cannot be measured.
    fn crowd(&self, place: &Place, clients: usize) -> Result<Option<u64>, String>;
}

/// A tunnel that is set up; it goes when this is dropped.
pub(super) struct Running {
    gateway: Option<Program>,
    client: Option<Program>,
    /// The gateway's address inside.
    pub(super) gateway_inner: String,
    /// The client's address inside.
    pub(super) client_inner: String,
}

impl Running {
    /// The gateway's process.
    pub(super) fn gateway_pid(&self) -> Option<u32> {
        self.gateway.as_ref().map(Program::pid)
    }

    /// The client's process.
    pub(super) fn client_pid(&self) -> Option<u32> {
        self.client.as_ref().map(Program::pid)
    }

    fn tunnel(gateway: Program, client: Program) -> Self {
        Self {
            gateway: Some(gateway),
            client: Some(client),
            gateway_inner: GATEWAY_INNER.to_owned(),
            client_inner: CLIENT_INNER.to_owned(),
        }
    }
}

/// The link itself.
pub(super) struct Bare;

impl Tunnel for Bare {
    fn name(&self) -> &'static str {
        BARE
    }

    fn start(&self, _: &Place) -> Result<Running, String> {
        let (gateway_inner, client_inner) =
            (Host::Gateway.outer().to_owned(), Host::Client.outer().to_owned());
        Ok(Running { gateway: None, client: None, gateway_inner, client_inner })
    }

    fn first_reply_us(&self, _: &Place) -> Result<Option<f64>, String> {
        Ok(None)
    }

    fn crowd(&self, _: &Place, _: usize) -> Result<Option<u64>, String> {
        Ok(None)
    }
}

/// wireguard-go, at the version that `bench/wireguard-go/go.mod` pins.
pub(super) struct WireguardGo;

impl Tunnel for WireguardGo {
    fn name(&self) -> &'static str {
        RIVAL
    }

    fn start(&self, place: &Place) -> Result<Running, String> {
        let keys = wireguard_keys(2)?;
        let gateway = wireguard_gateway(place, &keys[0].private, &keys[1..])?;
        let endpoint = format!("{}:{PORT}", Host::Gateway.outer());
        let client = wireguard_client(place, &keys[1].private, &keys[0].public, &endpoint, "")?;
        Ok(Running::tunnel(gateway, client))
    }

    fn first_reply_us(&self, place: &Place) -> Result<Option<f64>, String> {
        let keys = wireguard_keys(2)?;
        let _gateway = wireguard_gateway(place, &keys[0].private, &keys[1..])?;
        let (mut forwarder, endpoint) = forwarder(place)?;
        // With a keepalive the client speaks as soon as it is set up.
        let keepalive = "persistent_keepalive_interval=25\n";
        let (own, gateway) = (&keys[1].private, &keys[0].public);
        let _client = wireguard_client(place, own, gateway, &endpoint, keepalive)?;
        forwarder.line()?.parse().map(Some).map_err(|_| "the forwarder timed nothing".to_owned())
    }

    fn crowd(&self, place: &Place, clients: usize) -> Result<Option<u64>, String> {
        let keys = wireguard_keys(clients + 1)?;
        let gateway = wireguard_gateway(place, &keys[0].private, &keys[1..])?;
        let endpoint = format!("{}:{PORT}", Host::Gateway.outer());
        let words = ["clients", &keys[0].public, &endpoint];
        let mut command = place.on(Host::Client, &cached("crowd"), &words);
        command.stdin(Stdio::piped());
        let mut crowd = Program::start_with_input(command)?;
        if let Some(mut input) = crowd.input() {
            for key in &keys[1..] {
                writeln!(input, "{}", key.private).map_err(|error| format!("crowd: {error}"))?;
            }
        }
        crowd.wait_for("ready")?;
        sleep(CROWD_IDLE);
        resident_kb(gateway.pid()).map(Some)
    }
}

/// Rove, as `README.md` sets it up, but for what it does for open connections.
#[derive(Clone, Debug)]
pub(super) struct Rove {
    /// The name in the table.
    pub(super) name: &'static str,
    /// `persistence.hold` of both ends.
    pub(super) hold: &'static str,
    /// The binary.
    pub(super) program: String,
}

impl Rove {
    /// A fresh gateway that names `endpoint` in its invites, and an invite for so many clients.
    fn gateway(
        &self,
        place: &Place,
        endpoint: &str,
        uses: usize,
    ) -> Result<(Program, String), String> {
        for folder in ["/run/rove-gateway", ROVE_CLIENT_DIR] {
            match fs::remove_dir_all(folder) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(format!("{folder}: {error}"));
                }
                Ok(()) | Err(_) => {}
            }
        }
        let dir = ["--dir", "/run/rove-gateway"];
        let init = ["gateway", "init", "--endpoint", endpoint, "--network", "10.9.0.0/16"];
        finished(place.on(Host::Gateway, &self.program, &[&init[..], &dir].concat()))?;
        configure("/run/rove-gateway/gateway.toml", self.hold)?;
        let uses = uses.to_string();
        let invite = ["gateway", "invite", "bench", "--uses", &uses];
        let invite =
            finished(place.on(Host::Gateway, &self.program, &[&invite[..], &dir].concat()))?;
        let mut run =
            place.on(Host::Gateway, &self.program, &[&["gateway", "run"][..], &dir].concat());
        run.stderr(log("rove-gateway")?);
        let gateway = Program::start(run)?;
        // What a gateway takes for an answer is not what it takes to start.
        let status = [&["gateway", "status", "--json"][..], &dir].concat();
        for _ in 0..LOOKS {
            let said =
                finished(place.on(Host::Gateway, &self.program, &status)).unwrap_or_default();
            if said.replace(' ', "").contains("\"running\":true") {
                return Ok((gateway, invite.trim().to_owned()));
            }
            sleep(LOOK_EVERY);
        }
        Err(format!("the gateway does not start; see {CACHE}/rove-gateway.log"))
    }

    fn client(
        &self,
        place: &Place,
        host: &str,
        invite: &str,
        dir: &str,
    ) -> Result<Program, String> {
        let words = ["up", invite, "--dir", dir, "--foreground", "--route", "10.9.0.0/16"];
        let mut up = place.on_host(host, &self.program, &words);
        up.stderr(log("rove-client")?);
        Program::start(up)
    }
}

impl Tunnel for Rove {
    fn name(&self) -> &'static str {
        self.name
    }

    fn start(&self, place: &Place) -> Result<Running, String> {
        let endpoint = format!("{}:{PORT}", Host::Gateway.outer());
        let (gateway, invite) = self.gateway(place, &endpoint, 1)?;
        let config = format!("{ROVE_CLIENT_DIR}/client.toml");
        fs::create_dir_all(ROVE_CLIENT_DIR)
            .and_then(|()| fs::write(&config, holding(self.hold)))
            .map_err(|error| format!("{config}: {error}"))?;
        let mut client = self.client(place, Host::Client.name(), &invite, ROVE_CLIENT_DIR)?;
        client.line().map_err(|error| format!("{error}; see {CACHE}/rove-client.log"))?;
        // By itself a gateway serves pings and name queries only; here it is the other end.
        let allow = ["gateway", "allow", "bench", GATEWAY_INNER, "--dir", "/run/rove-gateway"];
        finished(place.on(Host::Gateway, &self.program, &allow))?;
        Ok(Running::tunnel(gateway, client))
    }

    fn first_reply_us(&self, place: &Place) -> Result<Option<f64>, String> {
        let endpoint = format!("{}:{FORWARD_PORT}", Host::Gateway.outer());
        let (_gateway, invite) = self.gateway(place, &endpoint, 1)?;
        let (mut forwarder, _) = forwarder(place)?;
        // The thread that enrols also looks at the host once after the start, which takes 30 ms.
        sleep(SETTLED);
        let _client = self.client(place, Host::Client.name(), &invite, ROVE_CLIENT_DIR)?;
        forwarder.line()?.parse().map(Some).map_err(|_| "the forwarder timed nothing".to_owned())
    }

    fn crowd(&self, place: &Place, clients: usize) -> Result<Option<u64>, String> {
        let address = place.crowd(clients)?;
        let (gateway, invite) = self.gateway(place, &format!("{address}:{PORT}"), clients)?;
        let numbers: Vec<usize> = (0..clients).collect();
        let mut crowd = Vec::with_capacity(clients);
        for batch in numbers.chunks(CROWD_BATCH) {
            for number in batch {
                let dir = format!("/run/rove-crowd/{number}");
                crowd.push(self.client(place, &crowd_host(*number), &invite, &dir)?);
            }
            let started = crowd.len() - batch.len();
            for client in &mut crowd[started..] {
                client.line().map_err(|error| format!("{error}; see {CACHE}/rove-client.log"))?;
            }
        }
        sleep(CROWD_IDLE);
        let kilobytes = resident_kb(gateway.pid())?;
        end_all(crowd);
        Ok(Some(kilobytes))
    }
}

/// A key pair as the crowd program prints it, in hexadecimal.
struct Keys {
    private: String,
    public: String,
}

fn wireguard_keys(count: usize) -> Result<Vec<Keys>, String> {
    let output = Command::new(cached("crowd")).args(["keys", &count.to_string()]).output();
    let output = output.map_err(|error| format!("cannot start crowd: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let pair = |line: &str| {
        let (private, public) = line.split_once(' ')?;
        Some(Keys { private: private.to_owned(), public: public.to_owned() })
    };
    let keys: Vec<Keys> = text.lines().filter_map(pair).collect();
    if keys.len() == count { Ok(keys) } else { Err("crowd made no keys".to_owned()) }
}

/// A gateway with these peers; the first has the client's inner address.
fn wireguard_gateway(place: &Place, private: &str, peers: &[Keys]) -> Result<Program, String> {
    let mut config = format!("private_key={private}\nlisten_port={PORT}\n");
    for (number, peer) in (2..).zip(peers) {
        let (high, low) = (number / 256, number % 256);
        let public = &peer.public;
        config += &format!("public_key={public}\nallowed_ip=10.9.{high}.{low}/32\n");
    }
    wireguard(place, Host::Gateway, "wg-gateway", GATEWAY_INNER, &config)
}

fn wireguard_client(
    place: &Place,
    private: &str,
    gateway: &str,
    endpoint: &str,
    more: &str,
) -> Result<Program, String> {
    let config = format!(
        "private_key={private}\npublic_key={gateway}\nendpoint={endpoint}\n\
         allowed_ip=10.9.0.0/16\n{more}"
    );
    wireguard(place, Host::Client, "wg-client", CLIENT_INNER, &config)
}

/// One wireguard-go: started, given its addresses, then configured through its own socket (the
/// "cross-platform userspace implementation" protocol of wireguard.com/xplatform).
fn wireguard(
    place: &Place,
    host: Host,
    interface: &str,
    inner: &str,
    config: &str,
) -> Result<Program, String> {
    let mut start = place.on(host, &cached("wireguard-go"), &["-f", interface]);
    start.stderr(log("wireguard-go")?);
    let program = Program::start(start)?;
    let mut socket = connect(&format!("/run/wireguard/{interface}.sock"))?;
    let name = host.name();
    command(&format!("ip -n {name} addr add {inner}/16 dev {interface}"))?;
    command(&format!("ip -n {name} link set {interface} mtu {WIREGUARD_MTU} up"))?;
    let ask = |error: std::io::Error| format!("{interface}: control socket: {error}");
    write!(socket, "set=1\n{config}\n").map_err(ask)?;
    socket.shutdown(std::net::Shutdown::Write).map_err(ask)?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).map_err(ask)?;
    match answer.trim() {
        "errno=0" => Ok(program),
        refusal => Err(format!("{interface} refused its configuration: {refusal}")),
    }
}

fn connect(path: &str) -> Result<UnixStream, String> {
    for _ in 0..LOOKS {
        if let Ok(socket) = UnixStream::connect(path) {
            return Ok(socket);
        }
        sleep(LOOK_EVERY);
    }
    Err(format!("{path} did not appear; see {CACHE}/wireguard-go.log"))
}

/// Makes the gateway listen on [`PORT`] whatever its endpoint says, as behind a port forwarding,
/// and hold connections in this way.
fn configure(config: &str, hold: &str) -> Result<(), String> {
    let mut text = fs::read_to_string(config).map_err(|error| format!("{config}: {error}"))?;
    let listen = format!("\nlisten = [\"[::]:{PORT}\"]\n# listen = ");
    for (before, after) in [("\n# listen = ", &listen), ("[persistence]\n", &holding(hold))] {
        if !text.contains(before) {
            return Err(format!("{config} has no {} to set", before.trim()));
        }
        text = text.replacen(before, after, 1);
    }
    fs::write(config, text).map_err(|error| format!("{config}: {error}"))
}

fn holding(hold: &str) -> String {
    format!("[persistence]\nhold = \"{hold}\"\n")
}

/// Runs a command to its end and gives what it printed.
fn finished(mut command: Command) -> Result<String, String> {
    let output = command.output().map_err(|error| format!("cannot start rove: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("rove: {}", String::from_utf8_lossy(&output.stderr).trim()))
}

/// The forwarder in front of the gateway, and where it listens: on the gateway's host, because a
/// client that binds its socket to a link does not reach its own host.
fn forwarder(place: &Place) -> Result<(Program, String), String> {
    let listen = format!("{}:{FORWARD_PORT}", Host::Gateway.outer());
    let to = format!("{}:{PORT}", Host::Gateway.outer());
    let mut forwarder = place.traffic(Host::Gateway, &["forward", &listen, &to])?;
    forwarder.wait_for("ready")?;
    Ok((forwarder, listen))
}

/// A program that bench built.
fn cached(name: &str) -> String {
    root().join(CACHE).join(name).to_string_lossy().into_owned()
}

/// The binary that bench built, wherever cargo puts it.
pub(super) fn rove() -> String {
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    root().join(target).join("release/rove").to_string_lossy().into_owned()
}

/// What a contender says to standard error, kept for the case that it fails.
fn log(name: &str) -> Result<File, String> {
    let path = root().join(CACHE).join(format!("{name}.log"));
    File::create(&path).map_err(|error| format!("{}: {error}", path.display()))
}
