//! The real binary where UDP is blocked: TCP, TLS on 443, a proxy, a port shared with a web server,
//! and back to UDP as soon as that works.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use support::netns::{
    Lab, Running, download, edit, in_namespace, inside, need_program, pattern, serve_pattern, sh,
    wait_until,
};

const WEB: &str = "198.51.100.80:80";
const UP: &str = "up: 10.77.0.2 and fd77::2 on rove0\n";

/// UDP, and IPv6, so that it is known which addresses are used.
const NO_UDP: &[&str] = &["meta l4proto udp drop", "meta nfproto ipv6 drop"];

/// What the network between lets pass: everything that no rule names.
fn block(rules: &[&str]) {
    let table = "add table inet block; flush table inet block; \
                 add chain inet block way { type filter hook forward priority 0; }";
    let rules = rules.iter().map(|rule| format!("; add rule inet block way {rule}"));
    let text = format!("{table}{}", rules.collect::<String>());
    sh(&format!("nsenter --net=/run/netns/router nft '{text}'"));
}

/// A gateway whose file has a line more in its main table.
fn gateway_with(lab: &Lab, line: &str) -> Running {
    let home = lab.home("gateway");
    let init = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
    lab.rove("gateway", init).ok();
    let file = home.join("gateway.toml");
    edit(&file, "nat = true", "nat = false");
    edit(&file, "[gateway]\n", &format!("[gateway]\n{line}\n"));
    lab.gateway()
}

fn transport(lab: &Lab) -> String {
    let told: Value = serde_json::from_str(&lab.rove("client", "status --json").ok()).unwrap();
    told["transport"].as_str().unwrap_or_default().to_owned()
}

fn is_carried(lab: &Lab, by: &[&str]) {
    let transport = transport(lab);
    assert!(by.contains(&transport.as_str()), "{transport}");
    assert_eq!(download("client", WEB).unwrap(), pattern(300_000));
}

#[test]
fn without_udp_it_goes_by_tcp_and_back_when_udp_works() {
    in_namespace("without_udp_it_goes_by_tcp_and_back_when_udp_works", || {
        need_program("blocked UDP", "nft");
        let lab = Lab::new("blocked UDP");
        let gateway = lab.gateway();
        serve_pattern("server", WEB, 300_000);
        block(NO_UDP);
        let invite = lab.invite("laptop");
        assert_eq!(lab.rove("client", &format!("up {invite}")).ok(), UP);
        is_carried(&lab, &["tcp", "mptcp"]);
        let paths: Value = serde_json::from_str(&lab.rove("client", "paths --json").ok()).unwrap();
        assert_eq!(paths[0]["transport"], transport(&lab));
        assert_eq!(paths[0]["remote"], "192.0.2.1:4500");

        block(&[]);
        wait_until("UDP carries again", || transport(&lab) == "udp");
        is_carried(&lab, &["udp"]);

        // And once more in the midst of it.
        block(NO_UDP);
        wait_until("a stream stands in", || {
            let _ = download("client", WEB);
            transport(&lab).ends_with("tcp")
        });
        is_carried(&lab, &["tcp", "mptcp"]);
        lab.rove("client", "down").ok();
        assert_eq!(gateway.terminate(), Some(0));
    });
}

#[test]
fn where_a_network_limits_udp_tcp_takes_over() {
    in_namespace("where_a_network_limits_udp_tcp_takes_over", || {
        need_program("limited UDP", "nft");
        let lab = Lab::new("limited UDP");
        let _gateway = lab.gateway();
        // Large enough that it lasts for a trial, once TCP carries.
        let (large, len) = ("198.51.100.80:81", 150_000_000);
        serve_pattern("server", large, len);
        block(&[
            "meta l4proto udp limit rate over 125 kbytes/second burst 30 kbytes drop",
            "meta nfproto ipv6 drop",
        ]);
        let invite = lab.invite("laptop");
        assert_eq!(lab.rove("client", &format!("up {invite}")).ok(), UP);
        assert_eq!(transport(&lab), "udp");
        let began = std::time::Instant::now();
        assert_eq!(download("client", large).unwrap().len(), len);
        let took = began.elapsed();
        let by = transport(&lab);
        assert!(["tcp", "mptcp"].contains(&by.as_str()), "{by} after {took:?}");
        // It is twenty minutes by UDP.
        assert!(took < Duration::from_secs(300), "{took:?}");
        let told = lab.rove("client", "status").ok();
        let limited = ["UDP has seemed limited to ", " on to-router; TCP carries more there"];
        assert!(limited.iter().all(|part| told.contains(part)), "{told}");
        let told = lab.rove("client", "paths").ok();
        assert!(told.contains("limits UDP"), "{told}");
    });
}

#[test]
fn where_only_443_is_open_it_goes_by_tls() {
    in_namespace("where_only_443_is_open_it_goes_by_tls", || {
        need_program("one open port", "nft");
        let lab = Lab::new("one open port");
        let _gateway = gateway_with(&lab, "streams = [\"[::]:443\"]");
        serve_pattern("server", WEB, 300_000);
        let rule = "ip saddr 203.0.113.2 ip daddr 192.0.2.1 tcp dport != 443 drop";
        block(&[rule, "ip saddr 203.0.113.2 meta l4proto != tcp drop", "meta nfproto ipv6 drop"]);
        let invite = lab.invite("laptop");
        assert_eq!(lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok(), UP);
        is_carried(&lab, &["tcp+tls", "mptcp+tls"]);
        lab.rove("client", "down").ok();
    });
}

#[test]
fn where_only_a_proxy_is_reached_it_goes_by_that() {
    in_namespace("where_only_a_proxy_is_reached_it_goes_by_that", || {
        need_program("a proxy", "nft");
        let lab = Lab::new("a proxy");
        let _gateway = gateway_with(&lab, "streams = [\"0.0.0.0:443\"]");
        serve_pattern("server", WEB, 300_000);
        serve_proxy("server", "198.51.100.80:3128");
        block(&["ip saddr 203.0.113.2 ip daddr != 198.51.100.80 drop", "meta nfproto ipv6 drop"]);
        std::fs::create_dir_all(lab.home("client")).unwrap();
        let file = lab.home("client").join("client.toml");
        std::fs::write(&file, "[client]\nproxy = \"http://ann:s%20cret@198.51.100.80:3128\"\n")
            .unwrap();
        let invite = lab.invite("laptop");
        assert_eq!(lab.rove("client", &format!("up {invite}")).ok(), UP);
        is_carried(&lab, &["tcp+tls", "mptcp+tls"]);
        let paths: Value = serde_json::from_str(&lab.rove("client", "paths --json").ok()).unwrap();
        assert_eq!(paths[0]["remote"], "198.51.100.80:3128");
        assert!(!lab.log("client").contains("cret"), "{}", lab.log("client"));
        lab.rove("client", "down").ok();
    });
}

/// A proxy that lets Ann through to the gateway's port 443 and nobody anywhere else.
fn serve_proxy(host: &str, address: &'static str) {
    let listener = inside(host, move || TcpListener::bind(address).unwrap()).join().unwrap();
    inside(host, move || {
        for mut client in listener.incoming().flatten() {
            let (mut head, mut byte) = (Vec::new(), [0]);
            while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).is_ok_and(|n| n == 1) {
                head.push(byte[0]);
            }
            // RFC 7617: base64 of "ann:s cret".
            let expected = "CONNECT 192.0.2.1:443 HTTP/1.1\r\nHost: 192.0.2.1:443\r\n\
                            Proxy-Authorization: Basic YW5uOnMgY3JldA==\r\n\r\n";
            assert_eq!(String::from_utf8(head).unwrap(), expected);
            let gateway = TcpStream::connect("192.0.2.1:443").unwrap();
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            let (from, to) = (client.try_clone().unwrap(), gateway.try_clone().unwrap());
            thread::spawn(move || copy(from, to));
            thread::spawn(move || copy(gateway, client));
        }
    });
}

fn copy(mut from: TcpStream, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

#[test]
fn a_web_server_shares_the_port() {
    in_namespace("a_web_server_shares_the_port", || {
        need_program("a shared port", "nft");
        let lab = Lab::new("a shared port");
        let web = inside("gateway", || TcpListener::bind("127.0.0.1:8080").unwrap());
        let web = web.join().unwrap();
        inside("gateway", move || {
            for mut browser in web.incoming().flatten() {
                let mut request = [0; 18];
                browser.read_exact(&mut request).unwrap();
                assert_eq!(&request, b"GET / HTTP/1.0\r\n\r\n");
                browser.write_all(b"HTTP/1.0 200 OK\r\n\r\nwelcome").unwrap();
            }
        });
        let lines = "streams = [\"0.0.0.0:443\"]\nweb-server = \"127.0.0.1:8080\"";
        let _gateway = gateway_with(&lab, lines);
        serve_pattern("server", WEB, 300_000);
        block(NO_UDP);
        let invite = lab.invite("laptop");
        assert_eq!(lab.rove("client", &format!("up {invite} --exclude 192.0.2.0/24")).ok(), UP);
        is_carried(&lab, &["tcp+tls", "mptcp+tls"]);
        let page = inside("phone", || {
            let mut browser = TcpStream::connect("192.0.2.1:443").unwrap();
            browser.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            browser.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
            let mut page = String::new();
            browser.read_to_string(&mut page).unwrap();
            page
        });
        assert_eq!(page.join().unwrap(), "HTTP/1.0 200 OK\r\n\r\nwelcome");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn who_wants_no_streams_gets_none() {
    in_namespace("who_wants_no_streams_gets_none", || {
        need_program("no streams", "nft");
        let lab = Lab::new("no streams");
        let _gateway = lab.gateway();
        block(NO_UDP);
        std::fs::create_dir_all(lab.home("client")).unwrap();
        let file = lab.home("client").join("client.toml");
        std::fs::write(&file, "[client]\nstreams = false\ntimeout = \"3s\"\n").unwrap();
        let invite = lab.invite("laptop");
        let error = lab.rove("client", &format!("up {invite}")).fails();
        assert!(error.contains("no answer from 192.0.2.1:4500 within 3s"), "{error}");
    });
}

#[test]
fn a_connection_survives_a_move_and_a_restart_of_the_gateway_without_udp() {
    in_namespace("a_connection_survives_a_move_and_a_restart_of_the_gateway_without_udp", || {
        need_program("a move by streams", "nft");
        let lab = Lab::new("a move by streams");
        let mut gateway = lab.gateway();
        let echo = inside("server", || TcpListener::bind(WEB).unwrap()).join().unwrap();
        inside("server", move || {
            let (mut caller, _) = echo.accept().unwrap();
            caller.set_nodelay(true).unwrap();
            let mut line = [0; 8];
            while caller.read_exact(&mut line).is_ok() && caller.write_all(&line).is_ok() {}
        });
        block(NO_UDP);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        let mut connection = inside("client", || TcpStream::connect(WEB).unwrap()).join().unwrap();
        connection.set_nodelay(true).unwrap();
        connection.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let mut speak = |number: u64| {
            connection.write_all(&number.to_be_bytes()).unwrap();
            let mut answer = [0; 8];
            connection.read_exact(&mut answer).unwrap();
            assert_eq!(answer, number.to_be_bytes());
        };
        speak(1);
        sh("ip -n client addr del 203.0.113.2/24 dev to-router
            ip -n client addr add 203.0.113.77/24 dev to-router
            ip -n client route replace default via 203.0.113.254 dev to-router");
        speak(2);
        assert!(transport(&lab).ends_with("tcp"));
        gateway.kill();
        gateway = lab.gateway();
        speak(3);
        gateway.terminate();
        let _gateway = lab.gateway();
        speak(4);
        assert!(transport(&lab).ends_with("tcp"));
        let paths: Value = serde_json::from_str(&lab.rove("client", "paths --json").ok()).unwrap();
        assert_eq!(paths[0]["local"], "203.0.113.77");
        lab.rove("client", "down").ok();
    });
}

#[test]
fn streams_move_with_the_gateway() {
    in_namespace("streams_move_with_the_gateway", || {
        need_program("a moving port for streams", "nft");
        let lab = Lab::new("a moving port for streams");
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 20_000_000);
        block(NO_UDP);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        let fetched = thread::spawn(|| download("client", WEB).unwrap());
        thread::sleep(Duration::from_millis(100));
        lab.rove("gateway", "gateway move 192.0.2.1:4600").ok();
        assert!(fetched.join().unwrap() == pattern(20_000_000), "nothing is missing");
        // Whoever comes anew knows the new port alone, and comes in there.
        let fresh = lab.invite("tablet");
        lab.rove("client", "down").ok();
        let by = "ip saddr 203.0.113.2 ip daddr 192.0.2.1 tcp dport != 4600 drop";
        block(&[NO_UDP[0], NO_UDP[1], by]);
        lab.rove("client", &format!("up {fresh} --route 198.51.100.0/24")).ok();
        let paths: Value = serde_json::from_str(&lab.rove("client", "paths --json").ok()).unwrap();
        assert_eq!(paths[0]["remote"], "192.0.2.1:4600");
        // And the old port stays as long as that of UDP does.
        let old = inside("phone", || TcpStream::connect("192.0.2.1:4500").is_ok());
        assert!(old.join().unwrap());
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_port_that_streams_cannot_have_is_told_of() {
    in_namespace("a_port_that_streams_cannot_have_is_told_of", || {
        let lab = Lab::new("a taken port for streams");
        let gateway = lab.gateway();
        let bind = |at: &'static str| inside("gateway", move || TcpListener::bind(at).unwrap());
        let taken = bind("[::]:4600").join().unwrap();
        let moved = lab.rove("gateway", "gateway move 192.0.2.1:4600");
        assert!(moved.err.contains("clients on networks that block UDP cannot"), "{}", moved.err);
        assert!(moved.err.contains("4600"), "{}", moved.err);
        moved.ok();
        assert_eq!(gateway.terminate(), Some(0));
        drop(taken);

        // Where the operator named the places, it is no move.
        let file = lab.home("gateway").join("gateway.toml");
        edit(&file, "[gateway]\n", "[gateway]\nstreams = [\"[::]:443\", \"[::]:4600\"]\n");
        let _gateway = lab.gateway();
        let before = std::fs::read(&file).unwrap();
        let taken = bind("[::]:4700").join().unwrap();
        let error = lab.rove("gateway", "gateway move 192.0.2.1:4700").fails();
        assert!(error.contains("4700"), "{error}");
        assert!(std::fs::read(&file).unwrap() == before, "nothing was written");
        drop(taken);
        lab.rove("gateway", "gateway move 192.0.2.1:4700").ok();
        assert!(support::netns::reaches("phone", "192.0.2.1:4700"));
    });
}
