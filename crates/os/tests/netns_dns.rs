//! DNS through systemd-resolved: a real bus daemon, which checks every message, and behind it a
//! stand-in for resolved that writes down what it is told.

#![allow(clippy::unwrap_used)] // a test that cannot go on fails

mod support;

use std::{
    collections::BTreeMap,
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::IpAddr,
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc::{Receiver, Sender, channel},
    thread,
    time::Duration,
};

use rove_os::{
    error::Error,
    plan::{Applier, Dns, Places, Plan},
    tun::TunOptions,
};
use support::{has_program, in_namespace, net, skip_inside};

const PATIENCE: Duration = Duration::from_secs(5);

/// A method call as it arrived.
#[derive(Debug, PartialEq, Eq)]
struct Call {
    member: String,
    signature: String,
    body: Vec<u8>,
}

/// A bus daemon with a stand-in for resolved. Both end with it.
struct Bus {
    daemon: Child,
    calls: Receiver<Call>,
}

impl Drop for Bus {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

impl Bus {
    /// Starts both; the stand-in refuses methods whose name is `refused`.
    fn start(dir: &Path, refused: &'static str) -> Self {
        if !has_program("dbus-daemon") {
            skip_inside("systemd-resolved", "the program dbus-daemon is missing (package dbus)");
        }
        let socket = dir.join("bus");
        let config = dir.join("bus.conf");
        let text = format!(
            "<busconfig><listen>unix:path={}</listen><auth>EXTERNAL</auth>\
             <policy context=\"default\"><allow send_destination=\"*\"/><allow own=\"*\"/>\
             <allow receive_sender=\"*\"/></policy></busconfig>",
            socket.display()
        );
        fs::write(&config, text).unwrap();
        let mut daemon = Command::new("dbus-daemon")
            .args(["--nofork", "--print-address=1", "--config-file"])
            .arg(&config)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(daemon.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.starts_with("unix:path="), "the bus did not start: {line}");
        let (tell, calls) = channel();
        let mut service = Service::connect(&socket);
        thread::spawn(move || while service.serve(&tell, refused).is_some() {});
        let address = format!("unix:path={}", socket.display());
        // SAFETY: no other thread of this process reads or changes the environment now.
        unsafe { std::env::set_var("DBUS_SYSTEM_BUS_ADDRESS", address) };
        Self { daemon, calls }
    }

    fn next(&self) -> Call {
        self.calls.recv_timeout(PATIENCE).unwrap()
    }

    /// The next calls' members, until there are so many.
    fn members(&self, count: usize) -> Vec<String> {
        (0..count).map(|_| self.next().member).collect()
    }
}

/// A message as it arrived, its header's fields by their code.
struct Message {
    kind: u8,
    serial: u32,
    fields: BTreeMap<u8, String>,
    body: Vec<u8>,
}

/// The stand-in's connection. It shares no code with what it tests.
struct Service {
    stream: UnixStream,
    serial: u32,
}

fn padded(bytes: &mut Vec<u8>, to: usize) {
    bytes.resize(bytes.len().next_multiple_of(to), 0);
}

fn word(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

impl Service {
    fn connect(socket: &Path) -> Self {
        let mut stream = UnixStream::connect(socket).unwrap();
        stream.write_all(b"\0AUTH EXTERNAL 30\r\n").unwrap();
        let mut answer = [0; 256];
        let got = stream.read(&mut answer).unwrap();
        assert!(answer[..got].starts_with(b"OK "));
        stream.write_all(b"BEGIN\r\n").unwrap();
        let mut service = Self { stream, serial: 0 };
        let mut name = 24u32.to_le_bytes().to_vec();
        name.extend(b"org.freedesktop.resolve1\0");
        padded(&mut name, 4);
        name.extend(4u32.to_le_bytes());
        for (member, signature, body) in [("Hello", "", vec![]), ("RequestName", "su", name)] {
            let bus = "org.freedesktop.DBus";
            let fields = [
                (1, "o", "/org/freedesktop/DBus"),
                (2, "s", bus),
                (3, "s", member),
                (6, "s", bus),
                (8, "g", signature),
            ];
            service.send(1, &fields, None, &body);
            // Answers and the signal that a name was acquired: 2 is a method's return.
            while service.receive().unwrap().kind != 2 {}
        }
        service
    }

    fn send(&mut self, kind: u8, fields: &[(u8, &str, &str)], reply: Option<u32>, body: &[u8]) {
        self.serial += 1;
        let mut head = vec![b'l', kind, 0, 1];
        head.extend((body.len() as u32).to_le_bytes());
        head.extend(self.serial.to_le_bytes());
        let mut array = Vec::new();
        for &(code, signature, value) in fields.iter().filter(|field| !field.2.is_empty()) {
            padded(&mut array, 8);
            array.extend([code, 1, signature.as_bytes()[0], 0]);
            if signature == "g" {
                array.push(value.len() as u8);
            } else {
                array.extend((value.len() as u32).to_le_bytes());
            }
            array.extend(value.as_bytes());
            array.push(0);
        }
        if let Some(reply) = reply {
            padded(&mut array, 8);
            array.extend([5, 1, b'u', 0]);
            array.extend(reply.to_le_bytes());
        }
        head.extend((array.len() as u32).to_le_bytes());
        head.extend(array);
        padded(&mut head, 8);
        head.extend(body);
        self.stream.write_all(&head).unwrap();
    }

    fn receive(&mut self) -> Option<Message> {
        let mut head = [0; 16];
        self.stream.read_exact(&mut head).ok()?;
        let mut fields = vec![0; word(&head, 12).next_multiple_of(8)];
        self.stream.read_exact(&mut fields).ok()?;
        let mut body = vec![0; word(&head, 4)];
        self.stream.read_exact(&mut body).ok()?;
        let mut found = BTreeMap::new();
        let mut at = 0usize;
        while at + 8 <= word(&head, 12) {
            let (code, kind) = (fields[at], fields[at + 2]);
            let (start, length, next) = match kind {
                b'g' => (at + 5, usize::from(fields[at + 4]), at + 6 + usize::from(fields[at + 4])),
                b'u' => (at + 4, 0, at + 8),
                _ => (at + 8, word(&fields, at + 4), at + 9 + word(&fields, at + 4)),
            };
            let text = String::from_utf8(fields[start..start + length].to_vec()).unwrap();
            found.insert(code, text);
            at = next.next_multiple_of(8);
        }
        Some(Message { kind: head[1], serial: word(&head, 8) as u32, fields: found, body })
    }

    fn serve(&mut self, tell: &Sender<Call>, refused: &str) -> Option<()> {
        let Message { kind, serial, mut fields, body } = self.receive()?;
        if kind != 1 {
            return Some(());
        }
        let sender = fields.remove(&7)?;
        let member = fields.remove(&3)?;
        assert_eq!(fields[&1], "/org/freedesktop/resolve1");
        assert_eq!(fields[&2], "org.freedesktop.resolve1.Manager");
        let signature = fields.remove(&8).unwrap_or_default();
        if member == refused {
            let mut reason = 9u32.to_le_bytes().to_vec();
            reason.extend(b"Too tired\0");
            let error = "org.freedesktop.resolve1.Tired";
            self.send(
                3,
                &[(4, "s", error), (6, "s", &sender), (8, "g", "s")],
                Some(serial),
                &reason,
            );
        } else {
            self.send(2, &[(6, "s", &sender)], Some(serial), &[]);
        }
        tell.send(Call { member, signature, body }).ok()
    }
}

fn plan(all: bool, domains: &[&str]) -> Plan {
    let servers: [IpAddr; 2] = ["10.7.0.1".parse().unwrap(), "fd07::1".parse().unwrap()];
    Plan {
        device: "rove0".to_owned(),
        mtu: 1_400,
        addresses: vec!["10.7.0.2/24".parse().unwrap()],
        dns: Some(Dns {
            servers: servers.to_vec(),
            domains: domains.iter().map(|&domain| domain.to_owned()).collect(),
            all,
        }),
        ..Plan::default()
    }
}

fn places(dir: &Path) -> Places {
    let resolv_conf = dir.join("resolv.conf");
    fs::write(&resolv_conf, "nameserver 127.0.0.53\noptions edns0\n").unwrap();
    Places { state: dir.to_owned(), resolv_conf, resolved: true }
}

fn options() -> TunOptions<'static> {
    TunOptions { name: "rove0", persistent: false, offload: false }
}

#[test]
fn resolved_is_told_servers_domains_and_whether_all() {
    in_namespace("resolved_is_told_servers_domains_and_whether_all", || {
        let dir = tempfile::tempdir().unwrap();
        let bus = Bus::start(dir.path(), "");
        let _tun = support::tun("TUN", options());
        let index = (net::index("rove0") as u8, 0);
        let mut applier = Applier::open(places(dir.path())).unwrap();
        applier.apply(&plan(true, &["corp.example"])).unwrap();

        let servers = bus.next();
        assert_eq!((&*servers.member, &*servers.signature), ("SetLinkDNS", "ia(iay)"));
        let mut expected = vec![index.0, 0, 0, 0, 0, 0, 0, 0];
        expected.extend([2, 0, 0, 0, 4, 0, 0, 0, 10, 7, 0, 1, 0, 0, 0, 0]);
        expected.extend([10, 0, 0, 0, 16, 0, 0, 0, 0xfd, 7, 0, 0, 0, 0, 0, 0]);
        expected.extend([0, 0, 0, 0, 0, 0, 0, 1]);
        expected[4] = (expected.len() - 8) as u8;
        assert_eq!(servers.body, expected);

        let domains = bus.next();
        assert_eq!((&*domains.member, &*domains.signature), ("SetLinkDomains", "ia(sb)"));
        let text = String::from_utf8_lossy(&domains.body).into_owned();
        assert!(text.contains("corp.example"));
        // The last structure is ".", for routing only.
        assert_eq!(
            domains.body[domains.body.len() - 12..],
            [1, 0, 0, 0, b'.', 0, 0, 0, 1, 0, 0, 0]
        );
        let default = bus.next();
        assert_eq!((&*default.member, &*default.signature), ("SetLinkDefaultRoute", "ib"));
        assert_eq!(default.body, [index.0, 0, 0, 0, 1, 0, 0, 0]);
        assert_eq!(bus.next().member, "FlushCaches");
        // The file is resolved's business.
        let text = fs::read_to_string(dir.path().join("resolv.conf")).unwrap();
        assert!(text.starts_with("nameserver 127.0.0.53"));

        // Split: only the domain, not for short names, and not the default.
        applier.apply(&plan(false, &["corp.example"])).unwrap();
        assert_eq!(bus.next().member, "SetLinkDNS");
        let domains = bus.next();
        assert_eq!(domains.body[domains.body.len() - 4..], [1, 0, 0, 0]);
        assert_eq!(bus.next().body, [index.0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(bus.next().member, "FlushCaches");

        applier.undo().unwrap();
        let revert = bus.next();
        assert_eq!((&*revert.member, &*revert.signature), ("RevertLink", "i"));
        assert_eq!(revert.body, [index.0, 0, 0, 0]);
    });
}

#[test]
fn a_refusal_is_told_in_its_own_words() {
    in_namespace("a_refusal_is_told_in_its_own_words", || {
        let dir = tempfile::tempdir().unwrap();
        let bus = Bus::start(dir.path(), "SetLinkDomains");
        let _tun = support::tun("TUN", options());
        let mut applier = Applier::open(places(dir.path())).unwrap();
        applier.apply(&plan(true, &[])).unwrap();
        let why = applier.dns_refused();
        assert!(matches!(why, Some(Error::Resolved { said }) if said == "Too tired"), "{why:?}");
        assert_eq!(bus.members(2), ["SetLinkDNS", "SetLinkDomains"]);
    });
}

#[test]
fn a_bus_that_is_silent_or_speaks_nonsense_is_given_up() {
    in_namespace("a_bus_that_is_silent_or_speaks_nonsense_is_given_up", || {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("bus");
        let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let address = format!("unix:path={}", socket.display());
        // SAFETY: no other thread of this process reads or changes the environment now.
        unsafe { std::env::set_var("DBUS_SYSTEM_BUS_ADDRESS", address) };
        thread::spawn(move || {
            for (at, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let nonsense: &[u8] = [&b"OK x\r\nl\x02\0\x01\xff\xff\xff\xff"[..], b"\n"][at % 2];
                stream.write_all(&nonsense.repeat(8)).unwrap();
                let mut drain = Vec::new();
                let _ = stream.read_to_end(&mut drain);
            }
        });
        let _tun = support::tun("TUN", options());
        let started = std::time::Instant::now();
        // Without a resolved to be understood, the file is what is left.
        for _ in 0..2 {
            let mut applier = Applier::open(places(dir.path())).unwrap();
            applier.apply(&plan(true, &[])).unwrap();
            let text = fs::read_to_string(dir.path().join("resolv.conf")).unwrap();
            assert!(text.contains("nameserver 10.7.0.1"));
            applier.undo().unwrap();
        }
        assert!(started.elapsed() < 3 * PATIENCE);
    });
}
