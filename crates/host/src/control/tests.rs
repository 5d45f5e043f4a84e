//! The socket answers, whatever other clients do.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use proptest::prelude::*;
use rove_api::Answer;
use serde_json::{Value, json};

use super::client::{Patience, ask_within};
use super::server::Server;
use super::*;

/// More than a socket buffers for somebody who does not read, in bytes.
const LONG: usize = 2 << 20;

/// A node that answers every request with its own name, and one with much.
struct Node {
    server: Option<Server>,
    path: PathBuf,
    _dir: tempfile::TempDir,
    thread: Option<thread::JoinHandle<()>>,
}

impl Node {
    fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sock");
        let (to, requests) = sync_channel::<Asked>(4);
        let server = Listener::bind(&path).unwrap().serve(to, |asked| asked).unwrap();
        let thread = thread::spawn(move || {
            for asked in requests {
                let reply = if asked.request == Request::Reload {
                    Reply::Error("cannot: do this".to_owned())
                } else if asked.request == Request::Paths {
                    Reply::Ok(Answer::Snapshot("x".repeat(LONG).into()))
                } else {
                    Reply::Ok(Answer::Snapshot(serde_json::to_value(asked.request).unwrap()))
                };
                let _ = asked.reply.send(reply);
            }
        });
        Self { server: Some(server), path, _dir: dir, thread: Some(thread) }
    }

    fn lines(&self, request: &[u8]) -> Vec<String> {
        let mut stream = UnixStream::connect(&self.path).unwrap();
        stream.write_all(request).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        BufReader::new(stream).lines().map_while(Result::ok).collect()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        drop(self.server.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_request_gets_its_reply() {
    let node = Node::start();
    assert_eq!(ask::<Value>(&node.path, &Request::Status).unwrap(), json!({"do": "status"}));
    let refused = ask::<Value>(&node.path, &Request::Reload);
    assert!(matches!(refused, Err(AskError::Refused(line)) if line == "cannot: do this"));
    assert_eq!(node.lines(b"{\"do\":\"status\"}\n{\"do\":\"paths\"}\n").len(), 2);
}

#[test]
fn an_answer_of_another_version_is_told_apart() {
    let node = Node::start();
    let answer = ask::<rove_api::Reloaded>(&node.path, &Request::Status);
    let Err(AskError::OtherVersion(cause)) = answer else { panic!("{answer:?}") };
    assert!(cause.to_string().contains("missing field `restart`"), "{cause}");
}

#[test]
fn a_node_of_before_understands_a_rehearsal_that_is_not_forced() {
    let line = r#"{"do":"rehearse","unplug":"eth1","lasts":"10s"}"#;
    let request: Request = serde_json::from_str(line).unwrap();
    assert!(matches!(request, Request::Rehearse { force: false, .. }));
    assert_eq!(serde_json::to_value(&request).unwrap().get("force"), None);
    let forced: Request = serde_json::from_str(&line.replace('}', r#","force":true}"#)).unwrap();
    assert_eq!(serde_json::to_value(&forced).unwrap()["force"], true);
}

#[test]
fn nobody_there_is_told_apart() {
    let node = Node::start();
    let path = node.path.clone();
    assert!(matches!(
        ask::<Value>(&path.with_extension("no"), &Request::Down),
        Err(AskError::NotRunning)
    ));
    drop(node);
    assert!(!path.exists(), "the socket is removed");
    assert!(matches!(ask::<Value>(&path, &Request::Down), Err(AskError::NotRunning)));
}

#[test]
fn a_socket_that_a_crash_left_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    assert!(path.exists());
    let (to, _requests) = sync_channel::<Asked>(1);
    let _server = Listener::bind(&path).unwrap().serve(to, |asked| asked).unwrap();
    assert!(UnixStream::connect(&path).is_ok());
}

#[test]
fn garbage_gets_an_error_and_the_next_request_an_answer() {
    let node = Node::start();
    let replies = node.lines(b"nonsense\n\n{\"do\":\"fly\"}\n\xff\xfe\n{\"do\":\"status\"}\n");
    assert_eq!(replies.len(), 5);
    for reply in &replies[..4] {
        assert!(reply.starts_with("{\"error\":\"not a request"), "{reply}");
    }
    assert_eq!(replies[4], "{\"ok\":{\"do\":\"status\"}}");
}

#[test]
fn a_line_without_end_is_cut_off() {
    let node = Node::start();
    let mut stream = UnixStream::connect(&node.path).unwrap();
    // The node may hang up before everything is written.
    let _ = stream.write_all(&vec![b'x'; REQUEST_BYTES_MAX * 4]);
    let mut reply = String::new();
    let _ = BufReader::new(&stream).read_line(&mut reply);
    assert!(reply.is_empty() || reply.contains("too long"), "{reply}");
    assert!(ask::<Value>(&node.path, &Request::Status).is_ok());
}

#[test]
fn silent_clients_do_not_keep_others_out() {
    let node = Node::start();
    let silent: Vec<UnixStream> = (0..CLIENTS_MAX + OWNERS_MAX - 1)
        .map(|_| UnixStream::connect(&node.path).unwrap())
        .collect();
    assert!(ask::<Value>(&node.path, &Request::Status).is_ok());
    let more: Vec<UnixStream> = (0..4).map(|_| UnixStream::connect(&node.path).unwrap()).collect();
    let mut line = String::new();
    BufReader::new(more.last().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("too many control connections"), "{line}");
    drop((silent, more));
    // Their threads notice within moments.
    let answered = (0..100).any(|_| {
        thread::sleep(std::time::Duration::from_millis(20));
        ask::<Value>(&node.path, &Request::Status).is_ok()
    });
    assert!(answered);
}

#[test]
fn who_never_reads_a_reply_keeps_nobody_else_waiting() {
    let mut node = Node::start();
    let mut deaf = Vec::new();
    for _ in 0..CLIENTS_MAX / 2 {
        let mut stream = UnixStream::connect(&node.path).unwrap();
        stream.write_all(b"{\"do\":\"paths\"}\n").unwrap();
        // The reply has begun, and the rest of it fits nowhere.
        stream.read_exact(&mut [0]).unwrap();
        deaf.push(stream);
    }
    for _ in 0..4 {
        assert_eq!(ask::<Value>(&node.path, &Request::Status).unwrap(), json!({"do": "status"}));
    }
    // Nor does it keep the node from ending.
    drop(node.server.take());
    for mut stream in deaf {
        stream.shutdown(std::net::Shutdown::Both).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        assert!(rest.len() < LONG, "it was written before anybody read");
    }
}

proptest! {
    #[test]
    fn no_bytes_are_a_request_by_accident(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(request) = serde_json::from_slice::<Request>(&bytes) {
            let text = serde_json::to_vec(&request).unwrap();
            prop_assert_eq!(serde_json::from_slice::<Request>(&text).unwrap(), request);
        }
    }
}

/// Listens at a path of its own, and does what it is told with the first connection.
fn listen(
    act: impl FnOnce(UnixStream) + Send + 'static,
) -> (tempfile::TempDir, PathBuf, thread::JoinHandle<()>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    let listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    let thread = thread::spawn(move || act(listener.accept().unwrap().0));
    (dir, path, thread)
}

const SHORT: Patience =
    Patience { silent: Duration::from_millis(50), whole: Duration::from_millis(300) };

#[test]
fn an_answer_has_no_control_characters() {
    let hostile = r#"{"ok":{"a\u001b[2J":["\u009b1m",{"b":"\u0007\r\n\u202e"}]}}"#;
    let (_dir, path, thread) = listen(move |mut stream| {
        stream.write_all(format!("{hostile}\n").as_bytes()).unwrap();
    });
    let answer: Value = ask(&path, &Request::Status).unwrap();
    let text = answer.to_string();
    assert!(text.contains("u001b") && text.contains("u202e"), "{text}");
    let texts = format!("{answer:?}");
    assert!(answer["a\\u001b[2J"][0] == "\\u009b1m", "{texts}");
    assert!(answer["a\\u001b[2J"][1]["b"] == "\\u0007\\u000d\\u000a\\u202e", "{texts}");
    thread.join().unwrap();
}

#[test]
fn who_never_ends_an_answer_is_named() {
    // The first says nothing. The second goes on and on.
    for speaks in [false, true] {
        let (_dir, path, thread) = listen(move |mut stream| {
            while stream.write_all(if speaks { b" " } else { b"" }).is_ok() {
                thread::sleep(Duration::from_millis(10));
                let hung_up = rustix::event::PollFlags::HUP;
                let mut poll = [rustix::event::PollFd::new(&stream, hung_up)];
                let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
                if rustix::event::poll(&mut poll, Some(&now)).unwrap() > 0 {
                    return;
                }
            }
        });
        let error = ask_within::<Value>(&path, &Request::Status, SHORT).unwrap_err();
        let own = std::process::id();
        assert!(matches!(error, AskError::Silent { process: Some(of) } if of as u32 == own));
        assert!(error.to_string().contains(&format!("kill -KILL {own}")), "{error}");
        thread.join().unwrap();
    }
}

#[test]
fn a_node_that_takes_no_connection_is_not_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sock");
    let (family, kind) = (rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM);
    let socket = rustix::net::socket(family, kind, None).unwrap();
    let at = rustix::net::SocketAddrUnix::new(&path).unwrap();
    rustix::net::bind(&socket, &at).unwrap();
    rustix::net::listen(&socket, 0).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let error = ask_within::<Value>(&path, &Request::Status, SHORT).unwrap_err();
    assert!(matches!(error, AskError::Silent { process: None }), "{error}");
}
