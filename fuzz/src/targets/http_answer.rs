//! HTTP answers from unknown hosts: from a proxy that was asked for a tunnel, and from the host
//! that answers a captive portal probe.
//!
//! The input is `bytes that arrive at once 1 | answer`; zero means all at once.

use rove_os::fuzz::{PORTAL_HOST, http_answer, portal_answer, proxy_answer};
use rove_os::portal::{Answer, PAGE_LEN_MAX};

use super::in_pieces;
use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "http_answer", run, seeds, mutations: 5_000 };

/// The longest head of an answer that is waited for.
const HEAD_MAX: usize = 8_192;
/// Characters of a server's reason phrase that people see.
const REASON_MAX: usize = 60;

fn run(data: &[u8]) {
    let (answer, pieces) = in_pieces(data);
    let whole = http_answer(answer);
    if let Ok(Some((status, reason, length))) = &whole {
        assert!((100..600).contains(status), "status {status}");
        assert!(reason.len() <= REASON_MAX && reason.bytes().all(is_printable), "{reason:?}");
        assert!(*length <= answer.len().min(HEAD_MAX));
        assert!(answer[..*length].ends_with(b"\r\n\r\n"), "a head ends with an empty line");
    }
    let mut seen = 0;
    for piece in &pieces {
        seen += piece.len();
        let part = http_answer(&answer[..seen]);
        assert!(part == Ok(None) || part == whole, "what was clear has changed");
    }

    match proxy_answer(&pieces) {
        Ok(made) => {
            assert!(made, "it waits for a proxy that has closed");
            assert!(matches!(whole, Ok(Some((200..=299, _, _)))), "a tunnel out of nothing");
        }
        Err(line) => assert!(!line.contains(char::is_control), "{line:?}"),
    }
    if let Some(Answer::Portal { page }) = portal_answer(answer) {
        let scheme = page.split(':').next().unwrap_or_default().to_ascii_lowercase();
        assert!(scheme == "http" || scheme == "https", "{page}");
        assert!(page.len() <= PAGE_LEN_MAX && page.bytes().all(|byte| byte > b' '), "{page:?}");
        assert!(page.bytes().all(is_printable) && !page.contains('@'), "{page:?}");
        let own = format!("{scheme}://{PORTAL_HOST}/");
        assert!(!page.to_ascii_lowercase().starts_with(&own), "a portal at the gateway: {page}");
    }
}

fn is_printable(byte: u8) -> bool {
    (b' '..=b'~').contains(&byte)
}

fn seeds() -> Vec<Vec<u8>> {
    let page = "x".repeat(PAGE_LEN_MAX - 20);
    let answers = [
        "HTTP/1.1 200 Connection established\r\n\r\n".to_owned(),
        "HTTP/1.0 200 OK\r\nProxy-Agent: x/1\r\nVia: 1.1 y\r\n\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\n\r\nbytes of a tunnel that nobody asked for".to_owned(),
        "HTTP/1.1 407 Proxy Authentication Required\r\nProxy-Authenticate: Basic\r\n\r\n"
            .to_owned(),
        "HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\n\r\nno.".to_owned(),
        "HTTP/1.1 302 Found\r\nLocation: http://login.hotel.example/?to=x\r\n\r\n".to_owned(),
        "HTTP/1.1 302 Found\r\nlocation:\thttps://[2001:db8::1]:8443/in\r\n\r\n".to_owned(),
        "HTTP/1.1 302 Found\r\nLocation: http://vpn.example.org@evil.example/\r\n\r\n".to_owned(),
        format!("HTTP/1.1 302 Found\r\nLocation: http://vpn.example.org/{page}\r\n\r\n"),
        format!("HTTP/1.1 303 See Other\r\nLocation: http://a.example/{page}\r\n\r\n"),
        "HTTP/1.1 301 Moved Permanently\r\nLocation: https://vpn.example.org/\r\n\r\n".to_owned(),
        "HTTP/1.1 511 Network Authentication Required\r\n\r\n<a href=\"http://x\">".to_owned(),
        "SSH-2.0-OpenSSH_9.9\r\n".to_owned(),
        "HTTP/1.1 200".to_owned(),
    ];
    let seed = |(number, answer): (usize, &String)| {
        let at_once = if number.is_multiple_of(2) { 0 } else { 7 };
        [&[at_once], answer.as_bytes()].concat()
    };
    answers.iter().enumerate().map(seed).collect()
}
