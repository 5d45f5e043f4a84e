//! Bytes that are saved between client and gateway: what they carry comes out as it went in, and
//! only flows that the user named are compressed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use serde_json::Value;
use support::netns::{Lab, Running, SOON, edit, in_namespace, inside, sh};

/// A port that a rule names,
const NAMED: &str = "198.51.100.80:7001";
/// one that none does,
const OTHER: &str = "198.51.100.80:7002";
/// telemetry,
const TELEMETRY: &str = "198.51.100.80:7003";
/// and two ports of an address that a rule names as a whole.
const WHOLE: &str = "198.51.100.81:7001";
const WEB: &str = "198.51.100.81:443";
/// Bytes of one transfer.
const LEN: usize = 400_000;
/// Datagrams of telemetry.
const REPORTS: usize = 300;
const RULES: &str = "compress = [{ to = \"198.51.100.80:7001\" }, { to = \"198.51.100.81\" }, \
                     { to = \"198.51.100.80:7003\", with = \"meters\" }]\n";
/// What telemetry begins and ends with: a dictionary of the operator's has both.
const REPORT: [&str; 2] = [
    "[{\"bn\":\"urn:dev:mac:0024befffe804ff1\",\"bt\":",
    "},{\"n\":\"meter-reading\",\"u\":\"kWh\",\"v\":21.5},{\"n\":\"phase\",\"vb\":true}]",
];

#[test]
fn bytes_are_saved_where_the_user_said_so() {
    in_namespace("bytes_are_saved_where_the_user_said_so", || {
        let lab = Lab::new("saved bytes");
        sh("nsenter --net=/run/netns/server ip addr add 198.51.100.81/32 dev lo");
        let (gateway, dictionary) = made(&lab);
        let invite = lab.invite("laptop");
        configure(&lab, true, &dictionary);
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        let received = servers();

        for (address, is_compressed) in [(NAMED, true), (OTHER, false), (WHOLE, true), (WEB, false)]
        {
            let grown = transfer(&lab, &received, address);
            assert_eq!(grown.compression > 0, is_compressed, "{address}: {grown:?}");
            if is_compressed {
                assert!(grown.compression > LEN as u64 / 2, "{address}: {grown:?}");
            } else {
                assert!(grown.elision > 1_000, "{address}: {grown:?}");
            }
        }
        let before = saved(&lab);
        report();
        let grown = saved(&lab).since(before);
        assert!(grown.aggregation > 1_000, "{grown:?}");
        // Most of each report lies in the dictionary. Without one a tenth of that is saved.
        let is_by_dictionary = grown.compression > (REPORTS * REPORT.concat().len()) as u64 / 2;
        assert!(is_by_dictionary, "{grown:?}");

        is_told(&lab);
        is_changed_while_it_runs(&lab);
        lab.rove("client", "down").ok();
        a_strangers_dictionary_is_refused(&lab);
        headers_stay_whole_unless_both_want_it(&lab, gateway, (&received, &dictionary));
    });
}

/// Whichever end does without, all headers travel. Nor is a dictionary used that only one end has.
fn headers_stay_whole_unless_both_want_it(
    lab: &Lab,
    gateway: Running,
    (received, dictionary): (&Receiver<Vec<u8>>, &str),
) {
    configure(lab, false, dictionary);
    lab.rove("client", "up --route 198.51.100.0/24").ok();
    let before = saved_by_gateway(lab);
    assert_eq!(transfer(lab, received, OTHER).elision, 0);
    assert_eq!(saved_by_gateway(lab).since(before).elision, 0);
    lab.rove("client", "down").ok();

    assert_eq!(gateway.terminate(), Some(0));
    let config = lab.home("gateway").join("gateway.toml");
    edit(&config, "# headers = true", "headers = false");
    edit(&config, &format!("dictionaries = [\"{dictionary}\"]"), "");
    let gateway = lab.gateway();
    configure(lab, true, dictionary);
    lab.rove("client", "up --route 198.51.100.0/24").ok();
    assert_eq!(transfer(lab, received, OTHER), Saved::default());
    assert_eq!(saved_by_gateway(lab).elision, 0);
    let text = lab.rove("client", "status").ok();
    assert!(text.contains("client and gateway do not have the same dictionary meters"), "{text}");
    lab.rove("client", "down").ok();
    assert_eq!(gateway.terminate(), Some(0));
}

/// People and programs are told what was saved, at both ends.
fn is_told(lab: &Lab) {
    let by_gateway = saved_by_gateway(lab);
    assert!(by_gateway.elision > 0, "headers of acknowledgements: {by_gateway:?}");
    let status = lab.rove("client", "status").ok();
    let line = status.lines().find(|line| line.starts_with("saved")).unwrap();
    for what in ["headers", "compression", "shared datagrams"] {
        assert!(line.contains(what), "{line}");
    }
    let peers = lab.rove("gateway", "gateway peers").ok();
    assert!(peers.lines().any(|line| line.starts_with("saved on packets to laptop: ")), "{peers}");
    let status = lab.rove("gateway", "gateway status").ok();
    assert!(status.lines().any(|line| line.starts_with("saved ")), "{status}");
}

/// The user says when data is saved; the session goes on.
fn is_changed_while_it_runs(lab: &Lab) {
    let before = status(lab);
    assert_eq!((&before["data"], &before["saves_data"]), (&"auto".into(), &false.into()));
    for (data, saves) in [("save", true), ("normal", false), ("save", true), ("auto", false)] {
        let done = lab.rove("client", &format!("set data {data}")).ok();
        assert_eq!(done, format!("data {data}\n"));
        let now = status(lab);
        assert_eq!((&now["data"], &now["saves_data"]), (&data.into(), &saves.into()));
    }
    let link = before["link"].as_str().unwrap();
    lab.rove("client", &format!("set link.{link}.metered yes")).ok();
    assert_eq!(status(lab)["saves_data"], true);
    let text = lab.rove("client", "status").ok();
    assert!(text.contains("saving, since the link in use is metered"), "{text}");
    // Each answer rounds to a second.
    let [before, now] = [&before, &status(lab)].map(|status| status["since"].as_u64().unwrap());
    assert!(now.abs_diff(before) <= 1, "another session: since {now}, not {before}");
}

fn status(lab: &Lab) -> Value {
    serde_json::from_str(&lab.rove("client", "status --json").ok()).unwrap()
}

/// Bytes saved, as JSON tells them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Saved {
    elision: u64,
    compression: u64,
    aggregation: u64,
}

impl Saved {
    fn of(told: &Value) -> Self {
        let number = |key: &str| told[key].as_u64().unwrap();
        let [elision, compression, aggregation] =
            ["elision", "compression", "aggregation"].map(number);
        Self { elision, compression, aggregation }
    }

    fn since(self, before: Self) -> Self {
        Self {
            elision: self.elision - before.elision,
            compression: self.compression - before.compression,
            aggregation: self.aggregation - before.aggregation,
        }
    }
}

/// What the client saved on what it sent.
fn saved(lab: &Lab) -> Saved {
    Saved::of(&status(lab)["saved"])
}

/// What the gateway saved on what it sent to the client.
fn saved_by_gateway(lab: &Lab) -> Saved {
    let told = lab.rove("gateway", "gateway peers --json").ok();
    let told: Value = serde_json::from_str(&told).unwrap();
    Saved::of(&told["peers"][0]["saved"])
}

/// A gateway as it is made, with a dictionary, and the line of a dictionary that it has.
fn made(lab: &Lab) -> (Running, String) {
    let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
    lab.rove("gateway", line).ok();
    let dictionary = signed_by(lab, "gateway");
    let config = lab.home("gateway").join("gateway.toml");
    edit(&config, "nat = true", "nat = false");
    edit(&config, "# dictionaries = []", &format!("dictionaries = [\"{dictionary}\"]"));
    (lab.gateway(), dictionary)
}

/// A dictionary that the operator of the gateway on that host signs.
fn signed_by(lab: &Lab, host: &str) -> String {
    let content = lab.dir.path().join("meters");
    std::fs::write(&content, REPORT.concat()).unwrap();
    let line = format!("gateway dictionary meters {}", content.display());
    lab.rove(host, &line).ok().trim().to_owned()
}

/// A client takes dictionaries of its gateway's operator, and of nobody else.
fn a_strangers_dictionary_is_refused(lab: &Lab) {
    lab.rove("phone", "gateway init --endpoint 192.0.2.9:4500 --network 10.78.0.0/24").ok();
    configure(lab, true, &signed_by(lab, "phone"));
    let error = lab.rove("client", "up").fails();
    assert!(error.contains("meters is not signed by the operator of this gateway"), "{error}");
}

fn configure(lab: &Lab, headers: bool, dictionary: &str) {
    std::fs::create_dir_all(lab.home("client")).unwrap();
    let text = format!("[saving]\ndictionaries = [\"{dictionary}\"]\nheaders = {headers}\n{RULES}");
    std::fs::write(lab.home("client").join("client.toml"), text).unwrap();
}

/// Servers that tell what they received over each connection, when it has ended.
fn servers() -> Receiver<Vec<u8>> {
    let (tell, told) = channel();
    for address in [NAMED, OTHER, WHOLE, WEB] {
        let listener = inside("server", move || TcpListener::bind(address).unwrap());
        let (listener, tell) = (listener.join().unwrap(), tell.clone());
        std::thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                let mut content = Vec::new();
                let _ = stream.read_to_end(&mut content);
                let _ = tell.send(content);
            }
        });
    }
    told
}

/// Sends text, which arrives as it was. Returns what that saved.
fn transfer(lab: &Lab, received: &Receiver<Vec<u8>>, address: &'static str) -> Saved {
    let text: String = (0..LEN / 50).map(|n| format!("{n:06} {:42}\n", "all is well")).collect();
    let (before, sent) = (saved(lab), text.clone());
    let send = move || {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(sent.as_bytes()).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "the server has all");
    };
    inside("client", send).join().unwrap();
    assert!(received.recv_timeout(SOON).unwrap() == text.as_bytes(), "to {address}");
    saved(lab).since(before)
}

/// Sends telemetry, which arrives as it was.
fn report() {
    let report = |n: usize| format!("{}{n}{}", REPORT[0], REPORT[1]);
    let server = inside("server", || UdpSocket::bind(TELEMETRY).unwrap()).join().unwrap();
    server.set_read_timeout(Some(SOON)).unwrap();
    // Its buffer has no room for all of them.
    let receives = std::thread::spawn(move || {
        let mut buffer = [0; 1_500];
        let receive = |_| {
            let (len, _) = server.recv_from(&mut buffer).unwrap();
            String::from_utf8_lossy(&buffer[..len]).into_owned()
        };
        (0..REPORTS).map(receive).collect::<Vec<String>>()
    });
    let send = move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        for n in 0..REPORTS {
            socket.send_to(report(n).as_bytes(), TELEMETRY).unwrap();
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    inside("client", send).join().unwrap();
    let mut arrived = receives.join().unwrap();
    let mut sent: Vec<String> = (0..REPORTS).map(report).collect();
    arrived.sort();
    sent.sort();
    assert!(arrived == sent, "something arrived otherwise than it was sent");
}
