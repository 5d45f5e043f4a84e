//! A small internet for the real binary: `client`, `phone`, `gateway` and `server` around a
//! router, each a network namespace. Nothing outside is touched and nothing is left: the
//! test runs itself again inside fresh user, network and mount namespaces.
//!
//! ```text
//! client 203.0.113.2 --+          +-- 192.0.2.1 gateway
//!                      +- router -+
//! phone  203.0.114.2 --+          +-- 198.51.100.80 server
//! ```
//! IPv6: 2001:db8:c::2, 2001:db8:d::2, 2001:db8:a::2, 2001:db8:b::2. The documentation networks
//! stand for the public Internet (RFC 5737, RFC 3849); nobody else has them.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{Ran, binary};

const INSIDE: &str = "ROVE_TEST_INSIDE";
const EXIT_SKIPPED: i32 = 77;
/// Nothing here takes longer unless it is broken.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// Prints why a test cannot run here; fails it where everything must run.
pub(crate) fn skip(what: &str, why: &str) {
    tell(&format!("SKIP {what}: {why}"));
    assert!(
        std::env::var("ROVE_TEST_REQUIRE").as_deref() != Ok("all"),
        "{what} was skipped although ROVE_TEST_REQUIRE=all: {why}"
    );
}

/// Says something past the test runner's capture, which hides what a passing test prints.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Skips from inside the namespaces if a program is not installed.
pub(crate) fn need_program(what: &str, program: &str) {
    if find(program).is_none() {
        skip_inside(what, &format!("the program {program} is not installed"));
    }
}

/// Skips from inside the namespaces, before a lab is built.
pub(crate) fn skip_inside(what: &str, why: &str) -> ! {
    skip(what, why);
    std::process::exit(EXIT_SKIPPED);
}

pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let usual = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    let candidates = std::env::split_paths(&path).chain(usual);
    candidates.map(|dir| dir.join(program)).find(|path| path.is_file())
}

/// Runs `body` as root of namespaces of its own. `name` is the calling test's.
pub(crate) fn in_namespace(name: &str, body: fn()) {
    run_in(name, &["--user", "--map-root-user", "--net", "--mount"], body);
}

/// The same, with all users there are: for a test of who may do what. Skipped without root.
pub(crate) fn in_namespace_of_root(name: &str, body: fn()) {
    if !rustix::process::geteuid().is_root() {
        return skip(name, "other users can be played by root only");
    }
    run_in(name, &["--net", "--mount"], body);
}

fn run_in(name: &str, namespaces: &[&str], body: fn()) {
    if std::env::var(INSIDE).as_deref() == Ok(name) {
        sh("mount -t tmpfs none /run && mkdir /run/netns");
        body();
        return;
    }
    for program in ["unshare", "nsenter", "ip", "mount", "sh"] {
        if find(program).is_none() {
            return skip(name, &format!("the program {program} is not installed"));
        }
    }
    let mut command = Command::new("unshare");
    command.args(namespaces).arg("--").arg(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(INSIDE, name);
    let output = command.stdin(Stdio::null()).output().unwrap();
    let ran = Ran::of(output);
    // What its own harness says is said again outside, and would be counted twice.
    let of_harness = ["running 1 test", "test result: ", &format!("test {name} ... ")];
    for line in ran.out.lines().chain(ran.err.lines()) {
        match line.find("SKIP ") {
            Some(at) => tell(&line[at..]),
            None if of_harness.iter().any(|known| line.starts_with(known)) => {}
            None => eprintln!("{line}"),
        }
    }
    if ran.err.contains("unshare failed") || ran.err.contains("write failed /proc/self") {
        return skip(name, "namespaces are refused");
    }
    if ran.code == Some(EXIT_SKIPPED) {
        return;
    }
    assert_eq!(ran.code, Some(0), "{name} failed inside its namespace");
    assert!(ran.out.contains("1 passed"), "{name} ran no test inside its namespace");
}

/// Runs a line of shell, which must succeed.
#[track_caller]
pub(crate) fn sh(line: &str) -> String {
    let output = Command::new("sh").args(["-e", "-c", line]).stdin(Stdio::null()).output().unwrap();
    let ran = Ran::of(output);
    assert_eq!(ran.code, Some(0), "{line}: {}", ran.err);
    ran.out
}

/// The hosts, and the directory with their files.
pub(crate) struct Lab {
    pub(crate) dir: tempfile::TempDir,
}

/// A program that runs in the background; killed when dropped.
pub(crate) struct Running {
    pub(crate) child: Child,
}

impl Lab {
    /// Builds the hosts. Skips the test where a TUN cannot be opened.
    pub(crate) fn new(what: &str) -> Self {
        if let Err(error) = File::options().read(true).write(true).open("/dev/net/tun") {
            skip(what, &format!("no TUN device: {error}"));
            std::process::exit(EXIT_SKIPPED);
        }
        for host in ["client", "phone", "router", "gateway", "server"] {
            sh(&format!("ip netns add {host} && ip -n {host} link set lo up"));
            // A router whose link-local address is still checked asks for no neighbour: it lost a
            // visitor's first packets for up to 2 s.
            for of in ["all", "default"] {
                set(host, &format!("ipv6/conf/{of}/accept_dad"), 0);
            }
        }
        wire("client", "203.0.113.", 2, "2001:db8:c::");
        wire("phone", "203.0.114.", 2, "2001:db8:d::");
        wire("gateway", "192.0.2.", 1, "2001:db8:a::");
        wire("server", "198.51.100.", 80, "2001:db8:b::");
        // The world knows the tunnel's networks, so that most tests need no NAT.
        sh("ip -n router route add 10.77.0.0/24 via 192.0.2.1
            ip -n router route add fd77::/64 via 2001:db8:a::2");
        for setting in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            set("router", setting, 1);
        }
        Self { dir: tempfile::tempdir().unwrap() }
    }

    /// A host's directory.
    pub(crate) fn home(&self, host: &str) -> PathBuf {
        self.dir.path().join(host)
    }

    /// Runs `rove ... --dir HOME` on a host, the arguments separated by spaces.
    pub(crate) fn rove(&self, host: &str, line: &str) -> Ran {
        Ran::of(self.command(host, line).stdin(Stdio::null()).output().unwrap())
    }

    /// Starts `rove ... --dir HOME` on a host; its output goes to `HOME.log`.
    pub(crate) fn start(&self, host: &str, line: &str) -> Running {
        let log = File::create(self.log_path(host)).unwrap();
        let mut command = self.command(host, line);
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        Running { child: command.spawn().unwrap() }
    }

    fn log_path(&self, host: &str) -> PathBuf {
        self.dir.path().join(format!("{host}.log"))
    }

    /// What a started program printed so far.
    pub(crate) fn log(&self, host: &str) -> String {
        std::fs::read_to_string(self.log_path(host)).unwrap_or_default()
    }

    /// `rove ... --dir HOME` on a host, to be started.
    pub(crate) fn command(&self, host: &str, line: &str) -> Command {
        let mut command = on(host, binary());
        command.args(line.split_whitespace()).arg("--dir").arg(self.home(host));
        command.env_remove("NOTIFY_SOCKET").env_remove("COLUMNS");
        command
    }

    /// Makes and starts the gateway, without NAT, and waits until it runs.
    pub(crate) fn gateway(&self) -> Running {
        need_program("a gateway", "nft");
        let home = self.home("gateway");
        if !home.join("gateway.toml").exists() {
            let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
            self.rove("gateway", line).ok();
            edit(&home.join("gateway.toml"), "nat = true", "nat = false");
        }
        let running = self.start("gateway", "gateway run");
        wait_until("the gateway runs", || {
            let status = self.rove("gateway", "gateway status");
            assert!(!self.log("gateway").contains("rove: "), "{}", self.log("gateway"));
            status.out.contains("state         running")
        });
        running
    }

    /// A gateway whose own networks are no part of the Internet: clients reach what is allowed by
    /// name.
    pub(crate) fn secluded_gateway(&self) -> Running {
        assert_eq!(self.gateway().terminate(), Some(0));
        let config = self.home("gateway").join("gateway.toml");
        edit(&config, "# neighbours = \"ipv4\"", "neighbours = \"none\"");
        self.gateway()
    }

    /// An invite for a peer, with further options.
    pub(crate) fn invite(&self, line: &str) -> String {
        self.rove("gateway", &format!("gateway invite {line}")).ok().trim().to_owned()
    }

    /// Everything that a tunnel could change about a host, line by line; without what the kernel
    /// changes by itself: lifetimes, and link-local addresses that it has just checked.
    pub(crate) fn state_of(&self, host: &str) -> Vec<String> {
        let mut state = String::new();
        for what in
            ["addr", "-4 route show table all", "-6 route show table all", "rule", "-6 rule"]
        {
            state.push_str(&sh(&format!("ip -n {host} {what}")));
        }
        let settings = "*/forwarding */rp_filter */accept_ra */disable_ipv6 */accept_redirects";
        let settings = settings.replace("*/", "ipv?/conf/*/");
        let settings = format!("cd /proc/sys/net && grep -s . {settings} || true");
        state.push_str(&sh(&format!("nsenter --net=/run/netns/{host} sh -c '{settings}'")));
        state.push_str(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default());
        if find("nft").is_some() {
            state.push_str(&sh(&format!("nsenter --net=/run/netns/{host} nft list ruleset")));
        }
        let passing = ["fe80:", "valid_lft", "ff00::/8"];
        let lines = state.lines().filter(|line| !passing.iter().any(|word| line.contains(word)));
        // A TUN says UP after its first loss of carrier, and UNKNOWN before it.
        let lines = lines.map(|line| line.trim_end().replace("state UNKNOWN", "state UP"));
        // An interface that is made again has another number.
        let unnumbered = |line: String| match line.split_once(": ") {
            Some((number, rest)) if number.parse::<u32>().is_ok() => rest.to_owned(),
            Some(_) | None => line,
        };
        lines.map(unnumbered).collect()
    }
}

impl Lab {
    /// Waits until a host's state is as expected, else shows where it differs.
    #[track_caller]
    pub(crate) fn becomes(&self, host: &str, expected: &[String]) {
        let give_up = Instant::now() + Duration::from_secs(3);
        loop {
            let state = self.state_of(host);
            if state == expected {
                return;
            }
            let differs = |one: &[String], other: &[String]| -> Vec<String> {
                one.iter().filter(|line| !other.contains(line)).cloned().collect()
            };
            let (more, less) = (differs(&state, expected), differs(expected, &state));
            assert!(Instant::now() < give_up, "too much: {more:#?}\nmissing: {less:#?}");
            thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Background clients are no children of the test, and would outlive one that failed.
impl Drop for Lab {
    fn drop(&mut self) {
        for host in ["client", "phone"] {
            let lock = self.home(host).join("client.state/lock");
            let pid = std::fs::read_to_string(lock).unwrap_or_default();
            let program = std::fs::read_link(format!("/proc/{}/exe", pid.trim()));
            if program.is_ok_and(|program| program == Path::new(binary())) {
                let _ = Command::new("kill").args(["-KILL", pid.trim()]).status();
            }
        }
    }
}

impl Running {
    /// Ends it at once, as a crash would.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it as systemd would; returns its exit code.
    pub(crate) fn terminate(mut self) -> Option<i32> {
        sh(&format!("kill -TERM {}", self.child.id()));
        wait_until("it ends", || self.child.try_wait().unwrap().is_some());
        self.child.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sets one of a host's kernel settings.
fn set(host: &str, setting: &str, value: u8) {
    let file = format!("/proc/sys/net/{setting}");
    sh(&format!("nsenter --net=/run/netns/{host} sh -c 'echo {value} > {file}'"));
}

/// A cable from a host to the router: addresses NET.HOST and NET.254, V6::2 and V6::1; and the way
/// to everybody else.
fn wire(host: &str, net: &str, number: u8, v6: &str) {
    let at = format!("to-{host}");
    sh(&format!(
        "ip link add to-router netns {host} type veth peer name {at} netns router
         ip -n {host} addr add {net}{number}/24 dev to-router
         ip -n router addr add {net}254/24 dev {at}
         ip -n {host} addr add {v6}2/64 dev to-router nodad
         ip -n router addr add {v6}1/64 dev {at} nodad
         ip -n {host} link set to-router up
         ip -n router link set {at} up
         ip -n {host} route add default via {net}254
         ip -n {host} route add default via {v6}1"
    ));
}

/// A second cable of the client's, which the kernel likes less.
pub(crate) fn second_cable() {
    sh("ip link add second netns client type veth peer name to-second netns router
        ip -n client addr add 203.0.115.2/24 dev second
        ip -n router addr add 203.0.115.254/24 dev to-second
        ip -n client link set second up
        ip -n router link set to-second up
        ip -n client route add default via 203.0.115.254 metric 600");
}

/// Gives this test an /etc of its own, which it may change.
pub(crate) fn own_etc() {
    sh("cp -r /etc /run/etc 2>/dev/null || true; mount --bind /run/etc /etc");
    std::fs::write("/etc/resolv.conf", "nameserver 192.0.2.53\n").unwrap();
    std::fs::write("/etc/nsswitch.conf", "hosts: files dns\n").unwrap();
}

/// Takes nft away from what is started later, in this namespace alone: /usr/sbin without it.
pub(crate) fn hide_nft() {
    sh("mkdir /run/sbin
        cp -r /usr/sbin/. /run/sbin/
        rm -f /run/sbin/nft
        mount --bind /run/sbin /usr/sbin");
    assert!(find("nft").is_none(), "nft is still there");
}

/// A command on a host.
pub(crate) fn on(host: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new("nsenter");
    command.arg(format!("--net=/run/netns/{host}")).arg("--").arg(program);
    command
}

/// Runs `body` in a thread on a host.
pub(crate) fn inside<T: Send + 'static>(
    host: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    let namespace = File::open(Path::new("/run/netns").join(host)).unwrap();
    thread::spawn(move || {
        use std::os::fd::AsFd;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        body()
    })
}

/// Answers every datagram that comes to `address` on a host with itself.
pub(crate) fn echo(host: &str, address: &'static str) {
    let socket = inside(host, move || UdpSocket::bind(address).unwrap()).join().unwrap();
    thread::spawn(move || {
        let mut datagram = [0; 100];
        while let Ok((len, from)) = socket.recv_from(&mut datagram) {
            let _ = socket.send_to(&datagram[..len], from);
        }
    });
}

/// Asks such a server from the client, so often, until it is told to stop. A tunnel that carries
/// nothing may refuse.
pub(crate) fn ask_until(
    enough: &Arc<AtomicBool>,
    address: &'static str,
    every: Duration,
) -> thread::JoinHandle<()> {
    let told = Arc::clone(enough);
    inside("client", move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        while !told.load(Ordering::Acquire) {
            let _ = socket.send_to(b"anybody there?", address);
            thread::sleep(every);
        }
    })
}

/// Waits until something is true, but not for ever.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let give_up = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < give_up, "not within {SOON:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Replaces text in a file, where it must be.
#[track_caller]
pub(crate) fn edit(path: &Path, old: &str, new: &str) {
    let text = std::fs::read_to_string(path).unwrap();
    assert!(text.contains(old), "{old:?} is not in {}", path.display());
    std::fs::write(path, text.replace(old, new)).unwrap();
}

/// From where a server's clients came, in order.
#[derive(Clone, Default)]
pub(crate) struct Callers(Arc<Mutex<Vec<IpAddr>>>);

impl Callers {
    /// The last one.
    pub(crate) fn last(&self) -> String {
        self.0.lock().unwrap().last().map(IpAddr::to_string).unwrap_or_default()
    }
}

/// A server on a host that sends every connection `bytes` bytes of a known pattern, then closes.
pub(crate) fn serve_pattern(host: &str, address: &str, bytes: usize) -> Callers {
    let address: SocketAddr = address.parse().unwrap();
    let (ready, is_ready) = std::sync::mpsc::channel();
    let callers = Callers::default();
    let seen = callers.clone();
    inside(host, move || {
        let listener = TcpListener::bind(address).unwrap();
        ready.send(()).unwrap();
        loop {
            let (mut stream, caller) = listener.accept().unwrap();
            seen.0.lock().unwrap().push(caller.ip());
            thread::spawn(move || {
                // A client that hangs up has seen enough.
                let _ = stream.write_all(&pattern(bytes));
            });
        }
    });
    is_ready.recv_timeout(SOON).unwrap();
    callers
}

/// Bytes that do not repeat within a packet.
pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

/// Downloads from a host; what came, or why nothing did.
pub(crate) fn download(host: &str, address: &str) -> io::Result<Vec<u8>> {
    let address: SocketAddr = address.parse().unwrap();
    let fetch = move || {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(3))?;
        stream.set_read_timeout(Some(SOON))?;
        let mut content = Vec::new();
        stream.read_to_end(&mut content)?;
        Ok(content)
    };
    inside(host, fetch).join().unwrap()
}

/// Whether a connection to `address` can be made from a host.
pub(crate) fn reaches(host: &str, address: &str) -> bool {
    let address: SocketAddr = address.parse().unwrap();
    let connect = move || TcpStream::connect_timeout(&address, Duration::from_millis(800)).is_ok();
    inside(host, connect).join().unwrap()
}

/// Output of a command that has no time limit of its own.
pub(crate) fn output(mut command: Command) -> Output {
    command.stdin(Stdio::null()).output().unwrap()
}
