//! An HTTP proxy that makes tunnels, and nothing else (CONNECT, RFC 9110, section 9.3.6), to the
//! one port that such proxies allow.

use super::http_server::read_head;
use super::report::{Report, Reporter};
use anyhow::Context as _;
use std::io::{BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// The port to which tunnels are made: that of HTTPS.
const ALLOWED_PORT: u16 = 443;
/// Tunnels at once.
const MAX_TUNNELS: usize = 64;
/// How long the other side may take to be reached.
const REACH: Duration = Duration::from_secs(5);
/// How long a client may take until it has said what it wants.
const ASKING: Duration = Duration::from_secs(10);

/// Makes tunnels for ever.
///
/// # Errors
/// When the address cannot be bound.
pub fn serve_tunnels(listen: SocketAddr, reporter: &Reporter) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    reporter.tell(&Report::Ready)?;
    let open = Arc::new(AtomicUsize::new(0));
    for client in listener.incoming() {
        let Ok(client) = client else { continue };
        if open.load(Ordering::Relaxed) >= MAX_TUNNELS {
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let open = Arc::clone(&open);
        std::thread::spawn(move || {
            // Who goes away is no news to a proxy.
            let _ = make_tunnel(client);
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
    Ok(())
}

/// Answers one client, and passes on what it and the other side say until both are done.
fn make_tunnel(mut client: TcpStream) -> std::io::Result<()> {
    client.set_nodelay(true)?;
    client.set_read_timeout(Some(ASKING))?;
    let mut reader = BufReader::new(client.try_clone()?);
    let Some(head) = read_head(&mut reader)? else { return Ok(()) };
    client.set_read_timeout(None)?;
    let reached = wanted(&head).and_then(|target| {
        TcpStream::connect_timeout(&target, REACH).map_err(|_| "502 Bad Gateway")
    });
    let other = match reached {
        Ok(other) => other,
        Err(status) => return write!(client, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"),
    };
    other.set_nodelay(true)?;
    client.write_all(b"HTTP/1.1 200 OK\r\n\r\n")?;
    let (to_client, from_other) = (client, other.try_clone()?);
    std::thread::scope(|both| {
        both.spawn(move || pass_on(from_other, to_client));
        // What the client said behind its question is in the reader.
        pass_on(reader, other);
    });
    Ok(())
}

/// Where a tunnel is wanted to, or the status that refuses it.
fn wanted(head: &str) -> Result<SocketAddr, &'static str> {
    let mut words = head.lines().next().unwrap_or("").split(' ');
    let (method, target) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    if !words.next().is_some_and(|version| version.starts_with("HTTP/1.")) {
        return Err("400 Bad Request");
    }
    if method != "CONNECT" {
        return Err("405 Method Not Allowed");
    }
    let target: SocketAddr = target.parse().map_err(|_| "400 Bad Request")?;
    if target.port() == ALLOWED_PORT { Ok(target) } else { Err("403 Forbidden") }
}

/// Passes on what one side says until it is done.
fn pass_on(mut from: impl Read, mut to: TcpStream) {
    let _ = std::io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use super::wanted;

    #[test]
    fn tunnels_lead_to_one_port_and_nothing_else_is_served() {
        let head = |line: &str| format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(wanted(&head("CONNECT 192.0.2.1:443")), Ok("192.0.2.1:443".parse().unwrap()));
        assert_eq!(wanted(&head("CONNECT 192.0.2.1:22")), Err("403 Forbidden"));
        assert_eq!(wanted(&head("CONNECT 192.0.2.1")), Err("400 Bad Request"));
        assert_eq!(wanted(&head("GET /")), Err("405 Method Not Allowed"));
        assert_eq!(wanted("CONNECT 192.0.2.1:443"), Err("400 Bad Request"));
        assert_eq!(wanted(""), Err("400 Bad Request"));
    }
}
