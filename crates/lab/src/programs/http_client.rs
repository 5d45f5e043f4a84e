//! A download as a person would make it: one connection, a checksum at the end.

use super::content::hex;
use super::report::{Download, Report, Reporter};
use crate::arrivals::Arrivals;
use crate::netns::monotonic_ns;
use anyhow::{Context as _, bail};
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// The longest response head that is read.
const HEAD_BYTES: u64 = 8 * 1024;
/// How often progress is told, in nanoseconds.
const REPORT_NS: u64 = 50_000_000;
/// Bytes taken from the socket at once.
const READ_BYTES: usize = 64 * 1024;

/// Downloads `http://ADDRESS:PORT/PATH`, telling progress on the way.
///
/// # Errors
/// When the server cannot be reached, answers otherwise than 200, or ends early.
pub fn fetch(url: &str, reporter: &Reporter) -> anyhow::Result<()> {
    let (server, path) = split_url(url)?;
    let stream =
        TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
    write!(&stream, "GET {path} HTTP/1.1\r\nHost: {server}\r\n\r\n")?;
    let start_ns = monotonic_ns();
    reporter.tell(&Report::Connected { at_ns: start_ns })?;
    let mut reader = BufReader::with_capacity(READ_BYTES, stream);
    let length = read_response_head(&mut reader, "200")?;
    let mut body = Body { reader, length, bytes: 0, hash: Sha256::new() };
    let mut arrivals = Arrivals::default();
    arrivals.note(monotonic_ns());
    let mut told_ns = start_ns;
    while body.bytes < length {
        body.take().with_context(|| format!("after {} of {length} bytes", body.bytes))?;
        let at_ns = monotonic_ns();
        arrivals.note(at_ns);
        if at_ns - told_ns >= REPORT_NS {
            told_ns = at_ns;
            let (bytes, latest_ns, gaps) = (body.bytes, at_ns, arrivals.take_gaps());
            reporter.tell(&Report::Progress { at_ns, bytes, latest_ns, gaps })?;
        }
    }
    reporter.tell(&Report::Downloaded(Download {
        end_ns: arrivals.latest_ns(),
        bytes: body.bytes,
        sha256: hex(&body.hash.finalize()),
        gaps: arrivals.take_gaps(),
    }))
}

struct Body {
    reader: BufReader<TcpStream>,
    length: u64,
    bytes: u64,
    hash: Sha256,
}

impl Body {
    /// Takes what has arrived, waiting if it is nothing.
    fn take(&mut self) -> anyhow::Result<()> {
        let arrived = self.reader.fill_buf()?;
        if arrived.is_empty() {
            bail!("the server closed the connection");
        }
        let wanted = (self.length - self.bytes).min(arrived.len() as u64) as usize;
        self.hash.update(&arrived[..wanted]);
        self.reader.consume(wanted);
        self.bytes += wanted as u64;
        Ok(())
    }
}

pub(super) fn split_url(url: &str) -> anyhow::Result<(SocketAddr, &str)> {
    let rest = url.strip_prefix("http://").context("the address must begin with http://")?;
    let slash = rest.find('/').context("the address has no path")?;
    let (server, path) = rest.split_at(slash);
    let server = server.parse().with_context(|| format!("{server:?} is no ADDRESS:PORT"))?;
    Ok((server, path))
}

/// Reads headers after a status of `expected`; returns the length of the content.
pub(super) fn read_response_head(reader: &mut impl BufRead, expected: &str) -> anyhow::Result<u64> {
    let mut limited = reader.take(HEAD_BYTES);
    let mut line = String::new();
    limited.read_line(&mut line)?;
    let status = line.split(' ').nth(1).unwrap_or("").to_owned();
    if !line.starts_with("HTTP/1.1 ") || status != expected {
        bail!("the server answered {:?}", line.trim());
    }
    let mut length = None;
    loop {
        line.clear();
        if limited.read_line(&mut line)? == 0 {
            bail!("the server's answer has no end");
        }
        if line.trim().is_empty() {
            return length.context("the server named no length");
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = Some(value.trim().parse().context("the server named no sensible length")?);
        }
    }
}
