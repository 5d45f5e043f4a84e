//! Open connections while there is no way to their other end.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use support::netns::{Lab, Running, SOON, edit, in_namespace, inside, pattern, sh, wait_until};

const WEB: &str = "198.51.100.80:80";
/// What the server sends at once.
const PIECE: usize = 100_000;

#[test]
fn what_was_acknowledged_for_another_is_delivered() {
    in_namespace("what_was_acknowledged_for_another_is_delivered", || {
        let lab = Lab::new("a held connection");
        let gateway = held(&lab);
        let (send, sent) = pieces();
        let fetched = read_everything();
        send.send(()).unwrap();
        sent.recv_timeout(SOON).unwrap().unwrap();
        for _ in 0..2 {
            swallow(true);
            send.send(()).unwrap();
            // The server takes what the gateway says for what the client says.
            wait_until("the gateway owes", || owed(&lab) > 0);
            std::thread::sleep(Duration::from_secs(1));
            swallow(false);
            wait_until("nothing is owed", || owed(&lab) == 0);
            sent.recv_timeout(SOON).unwrap().unwrap();
        }
        drop(send);
        let (content, ended) = fetched.join().unwrap();
        ended.unwrap();
        assert!(content == pattern(3 * PIECE), "it came whole: {} bytes", content.len());
        lab.rove("client", "down").ok();
        assert_eq!(gateway.terminate(), Some(0));
    });
}

#[test]
fn what_a_crash_made_undeliverable_is_told_to_both_ends() {
    in_namespace("what_a_crash_made_undeliverable_is_told_to_both_ends", || {
        let lab = Lab::new("a crash");
        let gateway = held(&lab);
        // Where the client is reached is written down within two seconds.
        std::thread::sleep(Duration::from_secs(3));
        let (send, sent) = pieces();
        let fetched = read_everything();
        send.send(()).unwrap();
        sent.recv_timeout(SOON).unwrap().unwrap();
        swallow(true);
        send.send(()).unwrap();
        wait_until("the gateway owes", || owed(&lab) > 0);
        sent.recv_timeout(SOON).unwrap().unwrap();
        gateway.kill();
        swallow(false);
        let _gateway = lab.start("gateway", "gateway run");
        let (content, ended) = fetched.join().unwrap();
        assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
        assert!(content == pattern(content.len()) && content.len() < 2 * PIECE);
        wait_until("nothing is owed", || owed(&lab) == 0);
        // The server learns it, too.
        send.send(()).unwrap();
        let error = sent.recv_timeout(SOON).unwrap().unwrap_err();
        let expected = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
        assert!(expected.contains(&error.kind()), "{error}");
        lab.rove("client", "down").ok();
    });
}

/// A gateway and a client that hold connections in full.
fn held(lab: &Lab) -> Running {
    let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
    lab.rove("gateway", line).ok();
    let config = lab.home("gateway").join("gateway.toml");
    edit(&config, "nat = true", "nat = false");
    edit(&config, "# hold = \"reinject\"", "hold = \"full\"");
    let gateway = lab.gateway();
    let invite = lab.invite("laptop");
    std::fs::create_dir_all(lab.home("client")).unwrap();
    let config = lab.home("client").join("client.toml");
    std::fs::write(config, "[persistence]\nhold = \"full\"\n").unwrap();
    lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
    gateway
}

/// The router swallows everything between the two from now on, or nothing any more.
fn swallow(swallows: bool) {
    let verb = if swallows { "add" } else { "del" };
    for end in ["192.0.2.1/32", "203.0.113.2/32"] {
        sh(&format!("ip -n router route {verb} blackhole {end}"));
    }
    for end in ["2001:db8:a::2/128", "2001:db8:c::2/128"] {
        sh(&format!("ip -n router -6 route {verb} blackhole {end}"));
    }
}

/// Lines of the book in which the gateway says what it owes.
fn owed(lab: &Lab) -> usize {
    let book = lab.home("gateway").join("gateway.state").join("owed");
    std::fs::read_to_string(book).map_or(0, |text| text.lines().count())
}

/// A server that sends its only caller another piece of the pattern whenever it is told to, says
/// how that went, and ends when nobody can tell it any more.
fn pieces() -> (Sender<()>, Receiver<std::io::Result<()>>) {
    let (send, told) = channel();
    let (say, said) = channel();
    let (ready, is_ready) = channel();
    inside("server", move || {
        let listener = TcpListener::bind(WEB).unwrap();
        ready.send(()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        for (number, ()) in told.into_iter().enumerate() {
            let content = pattern((number + 1) * PIECE);
            if say.send(stream.write_all(&content[number * PIECE..])).is_err() {
                return;
            }
        }
    });
    is_ready.recv_timeout(SOON).unwrap();
    (send, said)
}

/// Everything that comes over one connection from the client, and how it ended.
fn read_everything() -> JoinHandle<(Vec<u8>, std::io::Result<usize>)> {
    inside("client", || {
        let mut stream = TcpStream::connect(WEB).unwrap();
        stream.set_read_timeout(Some(SOON + Duration::from_secs(20))).unwrap();
        let mut content = Vec::new();
        let ended = stream.read_to_end(&mut content);
        (content, ended)
    })
}
