//! Answers of portals, of web servers, and of whoever means harm.

use proptest::prelude::*;

use super::*;

const QUESTION: Question<'_> = Question {
    interface: "lo",
    mark: None,
    gateway: IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)),
    host: "vpn.example.org",
};

fn judged(answer: &str) -> Option<Answer> {
    judge(answer.as_bytes(), QUESTION)
}

fn portal(page: &str) -> Option<Answer> {
    Some(Answer::Portal { page: page.to_owned() })
}

#[test]
fn a_portal_sends_elsewhere_or_says_what_it_is() {
    let page = "http://10.0.0.1:8080/login?to=vpn.example.org";
    let answer = format!("HTTP/1.1 302 Found\r\nlocation:  {page} \r\nServer: x\r\n\r\n<html>");
    assert_eq!(judged(&answer), portal(page));
    for cut in 0..answer.len() - "<html>".len() {
        assert_eq!(judged(&answer[..cut]), None, "more has to come: {cut}");
    }
    let required = "HTTP/1.1 511 Network Authentication Required\r\n\r\n";
    assert_eq!(judged(required), portal("http://192.0.2.1/"));
    let located = "HTTP/1.0 511 x\r\nLocation: https://login.example/\r\n\r\n";
    assert_eq!(judged(located), portal("https://login.example/"));
}

#[test]
fn the_gateways_own_web_server_is_none() {
    for answer in [
        "HTTP/1.1 200 OK\r\nLocation: http://10.0.0.1/\r\n\r\n",
        "HTTP/1.1 404 Not Found\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: https://VPN.example.org/\r\n\r\n",
        "HTTP/1.1 307 x\r\nLocation: https://192.0.2.1:8443/x\r\n\r\n",
        "HTTP/1.1 301 Moved\r\nLocation: https://www.example.org/\r\n\r\n",
        "HTTP/1.1 308 x\r\nLocation: https://www.example.org/\r\n\r\n",
        "HTTP/1.1 302 Found\r\nLocation: /login\r\n\r\n",
        "HTTP/1.1 302 Found\r\n\r\n",
        "SSH-2.0-OpenSSH\r\n",
    ] {
        assert_eq!(judged(answer), Some(Answer::Other), "{answer}");
    }
}

#[test]
fn a_page_that_is_not_plain_is_not_shown() {
    let long = format!("http://x/{}", "a".repeat(PAGE_LEN_MAX));
    for page in [
        "javascript:alert(1)",
        "file:///etc/passwd",
        "http://",
        "http:///x",
        "http://a b/",
        "http://a/\u{1b}[2J",
        "http://[::1",
        "http://\u{e9}/",
        long.as_str(),
    ] {
        let answer = format!("HTTP/1.1 302 Found\r\nLocation: {page}\r\n\r\n");
        assert_eq!(judged(&answer), Some(Answer::Other), "{page}");
    }
    let deceived = "HTTP/1.1 302 x\r\nLocation: http://vpn.example.org@evil.example/\r\n\r\n";
    assert_eq!(judged(deceived), portal("http://192.0.2.1/"), "which leads there too");
}

#[test]
fn nothing_in_the_request_begins_another_line() {
    let text = request(Question { host: "a\r\nX: y", ..QUESTION });
    assert_eq!(text, "GET / HTTP/1.1\r\nHost: aX:y\r\nConnection: close\r\n\r\n");
}

proptest! {
    #[test]
    fn hostile_answers_show_only_plain_pages(
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
        location in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let head = [b"HTTP/1.1 302 x\r\nLocation: http://".as_slice(), &location, b"\r\n\r\n"];
        for answer in [bytes, head.concat()] {
            if let Some(Answer::Portal { page }) = judge(&answer, QUESTION) {
                prop_assert!(page.len() <= PAGE_LEN_MAX);
                prop_assert!(page.bytes().all(|byte| byte.is_ascii_graphic()));
                prop_assert!(page.to_ascii_lowercase().starts_with("http"));
            }
        }
    }
}
