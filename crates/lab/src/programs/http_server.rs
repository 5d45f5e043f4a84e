//! A file server: HTTP/1.1 (RFC 9112), GET only, one thread a connection.

use super::content::Content;
use super::report::{Report, Reporter};
use anyhow::Context as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The longest request head that is read.
const HEAD_BYTES: u64 = 8 * 1024;
/// Connections served at once; more are closed at once.
const MAX_CONNECTIONS: usize = 256;
/// The longest file that is served.
const MAX_LENGTH: u64 = 1 << 40;

/// Serves `/SEED/LENGTH` on `listen`, for ever.
///
/// # Errors
/// When the address cannot be listened on.
pub fn serve(listen: SocketAddr, reporter: &Reporter) -> anyhow::Result<()> {
    let listener =
        TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    reporter.tell(&Report::Ready)?;
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let Ok(stream) = stream else { continue };
        if open.load(Ordering::Relaxed) >= MAX_CONNECTIONS {
            continue;
        }
        open.fetch_add(1, Ordering::Relaxed);
        let open = Arc::clone(&open);
        std::thread::spawn(move || {
            // A client that goes away is no news to the server.
            let _ = answer_all(stream);
            open.fetch_sub(1, Ordering::Relaxed);
        });
    }
    Ok(())
}

/// Answers the requests of one connection until the client closes it.
fn answer_all(stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    while let Some(head) = read_head(&mut reader)? {
        match requested(&head) {
            Ok((seed, length)) => match part(&head, length) {
                Some(None) => send_file(&mut writer, seed, length)?,
                Some(Some((from, to))) => send_part(&mut writer, seed, length, from, to)?,
                None => write!(
                    writer,
                    "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Range: bytes */{length}\r\n\
                     Content-Length: 0\r\n\r\n"
                )?,
            },
            Err(status) => {
                write!(writer, "HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")?;
                return Ok(());
            }
        }
    }
    Ok(())
}

/// One request head without its final blank line; `None` when the client is done.
pub(super) fn read_head(reader: &mut impl BufRead) -> std::io::Result<Option<String>> {
    let mut head = String::new();
    let mut limited = reader.take(HEAD_BYTES);
    loop {
        let before = head.len();
        if limited.read_line(&mut head)? == 0 {
            return Ok(None);
        }
        if matches!(&head[before..], "\r\n" | "\n") {
            return Ok(Some(head));
        }
    }
}

/// Seed and length of the file that a request asks for, or the status that refuses it.
fn requested(head: &str) -> Result<(u64, u64), &'static str> {
    let mut words = head.lines().next().unwrap_or("").split(' ');
    let (method, path) = (words.next().unwrap_or(""), words.next().unwrap_or(""));
    if !words.next().is_some_and(|version| version.starts_with("HTTP/1.")) {
        return Err("400 Bad Request");
    }
    if method != "GET" {
        return Err("405 Method Not Allowed");
    }
    let file = path.strip_prefix('/').and_then(|path| path.split_once('/'));
    let (seed, length) = file.ok_or("404 Not Found")?;
    match (seed.parse(), length.parse()) {
        (Ok(seed), Ok(length)) if length <= MAX_LENGTH => Ok((seed, length)),
        _ => Err("404 Not Found"),
    }
}

/// The part that a request asks for, by its first byte and the one after its last; the inner
/// `None` stands for the whole, the outer for what cannot be had. One range with both ends is
/// understood (RFC 9110, 14.1.2); whatever else is asked for gets the whole.
fn part(head: &str, length: u64) -> Option<Option<(u64, u64)>> {
    let range = head.lines().skip(1).find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("range").then(|| value.trim())
    });
    let ends = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let Some((Ok(first), Ok(last))) = ends.map(|(a, b)| (a.parse::<u64>(), b.parse::<u64>()))
    else {
        return Some(None);
    };
    (first <= last && last < length).then(|| Some((first, last + 1)))
}

fn send_file(writer: &mut impl Write, seed: u64, length: u64) -> std::io::Result<()> {
    write!(
        writer,
        "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n\
         Accept-Ranges: bytes\r\nContent-Length: {length}\r\n\r\n"
    )?;
    send_content(writer, Content::new(seed, length))
}

fn send_part(
    writer: &mut impl Write,
    seed: u64,
    length: u64,
    from: u64,
    to: u64,
) -> std::io::Result<()> {
    write!(
        writer,
        "HTTP/1.1 206 Partial Content\r\nContent-Type: application/octet-stream\r\n\
         Content-Range: bytes {from}-{}/{length}\r\nContent-Length: {}\r\n\r\n",
        to - 1,
        to - from
    )?;
    send_content(writer, Content::part(seed, from, to))
}

fn send_content(writer: &mut impl Write, mut content: Content) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    loop {
        let block = content.next_block(&mut buffer);
        if block.is_empty() {
            return writer.flush();
        }
        writer.write_all(block)?;
    }
}

#[cfg(test)]
mod tests {
    use super::{part, read_head, requested};

    #[test]
    fn understands_what_it_serves_and_refuses_the_rest() {
        assert_eq!(requested("GET /7/1000 HTTP/1.1\r\nHost: x\r\n\r\n"), Ok((7, 1000)));
        assert_eq!(requested("POST /7/1000 HTTP/1.1\r\n"), Err("405 Method Not Allowed"));
        for bad in ["", "GET", "GET /7/1000", "GET /7/1000 SPDY/3"] {
            assert_eq!(requested(bad), Err("400 Bad Request"), "{bad:?}");
        }
        for unknown in ["/", "/7", "/x/1", "/1/-1", "/1/99999999999999", "/../etc/passwd"] {
            let head = format!("GET {unknown} HTTP/1.1\r\n");
            assert_eq!(requested(&head), Err("404 Not Found"), "{unknown}");
        }
    }

    #[test]
    fn parts_are_understood_and_those_that_are_not_there_refused() {
        let head = |range: &str| format!("GET /1/100 HTTP/1.1\r\nHost: x\r\nRange: {range}\r\n");
        assert_eq!(part("GET /1/100 HTTP/1.1\r\n", 100), Some(None));
        assert_eq!(part(&head("bytes=0-99"), 100), Some(Some((0, 100))));
        assert_eq!(part(&head("bytes=7-7"), 100), Some(Some((7, 8))));
        for whole in ["bytes=5-", "bytes=-5", "lines=1-2", "bytes=x-y", "bytes=1-2,4-5"] {
            assert_eq!(part(&head(whole), 100), Some(None), "{whole}");
        }
        assert_eq!(part(&head("bytes=0-100"), 100), None);
        assert_eq!(part(&head("bytes=9-3"), 100), None);
    }

    #[test]
    fn an_endless_head_ends() {
        let mut endless = std::io::BufReader::new(std::io::repeat(b'a'));
        assert!(matches!(read_head(&mut endless), Ok(None)));
    }
}
