//! A network that wants a signature before it lets anything through.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::netns::{
    Lab, download, in_namespace, inside, need_program, pattern, second_cable, serve_pattern, sh,
    wait_until,
};

const WEB: &str = "198.51.100.80:80";
const PAGE: &str = "http://203.0.113.254:8080/sign-in";
/// What a person would call at once.
const AT_ONCE: Duration = Duration::from_secs(5);

/// The router lets nothing of the client's cable through, and answers HTTP in everybody's name.
fn close(cable: &str) {
    let portal = inside("router", || TcpListener::bind("0.0.0.0:8080").unwrap()).join().unwrap();
    inside("router", move || {
        for mut browser in portal.incoming().flatten() {
            let mut request = [0; 4];
            let _ = browser.read_exact(&mut request);
            assert_eq!(&request, b"GET ");
            let answer = format!("HTTP/1.1 302 Found\r\nLocation: {PAGE}\r\n\r\n");
            let _ = browser.write_all(answer.as_bytes());
        }
    });
    sh(&format!(
        "nsenter --net=/run/netns/router nft 'add table inet portal; \
         add chain inet portal web {{ type nat hook prerouting priority -100; }}; \
         add rule inet portal web iifname {cable} tcp dport 80 redirect to :8080; \
         add chain inet portal way {{ type filter hook forward priority 0; }}; \
         add rule inet portal way iifname {cable} drop; \
         add rule inet portal way oifname {cable} drop'"
    ));
}

fn sign_in() {
    sh("nsenter --net=/run/netns/router nft delete table inet portal");
}

fn status(lab: &Lab) -> Value {
    serde_json::from_str(&lab.rove("client", "status --json").ok()).unwrap()
}

fn page(lab: &Lab) -> String {
    status(lab)["portals"][0]["page"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_portal_is_told_of_and_the_session_is_up_a_moment_after_the_signature() {
    in_namespace("a_portal_is_told_of_and_the_session_is_up_a_moment_after_the_signature", || {
        need_program("a captive portal", "nft");
        let lab = Lab::new("a captive portal");
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 300_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        // Later, on a network that has one.
        close("to-client");
        let began = Instant::now();
        let _ = download("client", WEB);
        wait_until("the portal is told of", || page(&lab) == PAGE);
        assert!(began.elapsed() < 2 * AT_ONCE, "{:?}", began.elapsed());
        let doing = status(&lab)["doing"].as_str().unwrap().to_owned();
        let expected = format!("captive portal on to-router: sign in at {PAGE} after `rove down`");
        assert!(doing.starts_with(&expected), "{doing}");
        let text = lab.rove("client", "status").ok();
        let what = "the network of to-router lets nothing through before a sign-in (since ";
        let problem = text.lines().find(|line| line.contains(what)).unwrap_or(&text);
        assert!(problem.starts_with("problem") && problem.contains("captive portal"), "{problem}");
        let cure = format!("Sign in at {PAGE} with a browser, then run `rove up`");
        assert!(problem.contains("run `rove down`") && problem.contains(&cure), "{problem}");
        let text = lab.rove("client", "paths").ok();
        let line = format!("\ncaptive portal on to-router: sign in at {PAGE}\n");
        assert!(text.contains(&line), "{text}");
        sign_in();
        let began = Instant::now();
        wait_until("it carries", || status(&lab)["carrying"] == true && page(&lab).is_empty());
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
        let text = lab.rove("client", "status").ok();
        assert!(!text.contains("sign-in"), "{text}");
        assert_eq!(download("client", WEB).unwrap(), pattern(300_000));
        lab.rove("client", "down").ok();
    });
}

#[test]
fn a_start_behind_a_portal_says_so() {
    in_namespace("a_start_behind_a_portal_says_so", || {
        need_program("a start behind a portal", "nft");
        let lab = Lab::new("a start behind a portal");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        close("to-client");
        let error = lab.rove("client", &format!("up {invite} --timeout 6s")).fails();
        let expected =
            format!("captive portal on to-router: sign in at {PAGE}, then connect again");
        assert!(error.contains(&expected), "{error}");
        let error = lab.rove("client", &format!("up {invite} --timeout 6s --kill-switch")).fails();
        assert!(error.contains("sign in at"), "{error}");
        assert!(error.contains("`rove down`"), "{error}");
        lab.rove("client", "down").ok();
        // Whoever waits sees it work.
        let waiting = lab.start("client", &format!("up {invite} --foreground"));
        wait_until("the portal is told of", || page(&lab) == PAGE);
        sign_in();
        let began = Instant::now();
        wait_until("it carries", || status(&lab)["carrying"] == true);
        assert!(began.elapsed() < AT_ONCE, "{:?}", began.elapsed());
        wait_until("it says so", || lab.log("client").contains("up: 10.77.0.2"));
        assert_eq!(waiting.terminate(), Some(0));
    });
}

#[test]
fn data_stays_on_the_link_that_carries_and_who_asks_for_nothing_is_told_of_nothing() {
    let name = "data_stays_on_the_link_that_carries_and_who_asks_for_nothing_is_told_of_nothing";
    in_namespace(name, || {
        need_program("a portal beside a link", "nft");
        let lab = Lab::new("a portal beside a link");
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 300_000);
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite} --route 198.51.100.0/24")).ok();
        close("to-second");
        second_cable();
        wait_until("the portal is told of", || page(&lab) == PAGE);
        assert_eq!(status(&lab)["portals"][0]["link"], "second");
        assert_eq!(status(&lab)["carrying"], true);
        assert_eq!(download("client", WEB).unwrap(), pattern(300_000));

        std::fs::write(lab.home("client").join("client.toml"), "[client]\nportal-check = false\n")
            .unwrap();
        lab.rove("client", "reload").ok();
        assert_eq!(page(&lab), "", "what was known is forgotten");
        lab.rove("client", "down").ok();
        lab.rove("client", "up --route 198.51.100.0/24").ok();
        std::thread::sleep(Duration::from_secs(3));
        assert_eq!(page(&lab), "");
        lab.rove("client", "down").ok();
    });
}
