//! Rules for flows, and devices behind a client: shown, and changed while connections go on.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use support::netns::{Lab, edit, in_namespace, inside, sh, wait_until};

/// A server that answers one connection with what it gets.
const ECHO: &str = "198.51.100.80:7";
const DEVICE: &str = "192.168.7.10:7";

const RULES: &str = r#"
[[device]]
name = "office"
address = "192.168.7.0/24"
priority = 3

[[rule]]
user = "0"
protocol = "tcp"
to = "198.51.100.0/24"
goal = "latency"
"#;

/// Echoes one connection at `address`.
fn echo_stream(host: &str, address: &'static str) {
    let server = inside(host, move || TcpListener::bind(address).unwrap()).join().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = server.accept().unwrap();
        let mut piece = [0; 64];
        while let Ok(len @ 1..) = stream.read(&mut piece) {
            stream.write_all(&piece[..len]).unwrap();
        }
    });
}

fn connect(host: &str, address: &'static str) -> TcpStream {
    inside(host, move || TcpStream::connect(address).unwrap()).join().unwrap()
}

/// A question and its answer.
fn ask(stream: &mut TcpStream) {
    stream.write_all(b"once more").unwrap();
    let mut answer = [0; 9];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"once more");
}

#[test]
fn rules_and_devices_are_shown_and_change_while_connections_go_on() {
    in_namespace("rules_and_devices_are_shown_and_change_while_connections_go_on", || {
        let lab = Lab::new("rules");
        let _gateway = lab.gateway();
        sh("ip netns add office && ip -n office link set lo up
            ip link add eth0 netns office type veth peer name to-office netns client
            ip -n office addr add 192.168.7.10/24 dev eth0 && ip -n office link set eth0 up
            ip -n client addr add 192.168.7.1/24 dev to-office && ip -n client link set to-office up
            ip -n office route add default via 192.168.7.1");
        echo_stream("office", DEVICE);
        echo_stream("server", ECHO);
        let config = lab.home("client").join("client.toml");
        std::fs::create_dir_all(lab.home("client")).unwrap();
        std::fs::write(&config, RULES).unwrap();
        let invite = lab.invite("office --subnet 192.168.7.0/24");
        let up = format!("up {invite} --advertise 192.168.7.0/24 --allow-lan");
        lab.rove("client", &up).ok();
        let invite = lab.invite("phone");
        lab.rove("phone", &format!("up {invite}")).ok();
        lab.rove("gateway", "gateway allow phone 192.168.7.0/24:7").ok();

        let status = lab.rove("client", "status").ok();
        let line = "\ndevice       office (192.168.7.0/24): priority 3\n";
        assert!(status.contains(line), "{status}");

        let explain = |word: &str| lab.rove("client", &format!("explain tcp {word}")).ok();
        let mut own = connect("client", ECHO);
        ask(&mut own);
        wait_until("the user of the connection is known", || {
            explain("198.51.100.80").contains("\n  goal       latency, as rule 1 says\n")
        });
        let mut of_device = connect("phone", DEVICE);
        ask(&mut of_device);
        let told = explain("192.168.7.10");
        assert!(told.contains("\n  device     office\n"), "{told}");
        assert!(told.contains("\n  priority   3, as device office says\n"), "{told}");
        assert!(!told.contains("goal"), "it is no connection of this host: {told}");

        edit(&config, "goal = \"latency\"", "goal = \"data\"");
        edit(&config, "priority = 3", "priority = 1");
        lab.rove("client", "reload").ok();
        wait_until("the open connection has another goal", || {
            explain("198.51.100.80").contains("\n  goal       data, as rule 1 says\n")
        });
        let told = explain("192.168.7.10");
        assert!(told.contains("\n  priority   1, as device office says\n"), "{told}");
        ask(&mut own);
        ask(&mut of_device);
        lab.rove("phone", "down").ok();
        lab.rove("client", "down").ok();
    });
}
