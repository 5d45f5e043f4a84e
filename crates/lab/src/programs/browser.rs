//! A download as a browser makes one: several connections that are kept alive, a range request for
//! one part after the other on each, a checksum over the whole.
//!
//! As with a browser, a connection that breaks ends it: nothing is tried again. Its limit: the
//! whole is kept in memory until it has been hashed.

use super::content::hex;
use super::http_client::{read_response_head, split_url};
use super::report::{Download, Report, Reporter};
use crate::arrivals::Arrivals;
use crate::netns::monotonic_ns;
use anyhow::{Context as _, bail};
use sha2::{Digest, Sha256};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Connections to one server at once: those of today's browsers.
const CONNECTIONS: usize = 6;
/// Bytes of one request.
const PART_BYTES: usize = 256 * 1024;
/// The longest download.
const LENGTH_MAX: usize = 1 << 30;
/// How often progress is told, in nanoseconds.
const REPORT_NS: u64 = 50_000_000;
/// Pieces that may wait to be put in their places.
const PIECES: usize = 64;
/// Bytes taken from a socket at once.
const READ_BYTES: usize = 64 * 1024;

/// Bytes that arrived, or why a connection is of no more use.
type Piece = anyhow::Result<(usize, Vec<u8>)>;

/// Downloads `http://ADDRESS:PORT/SEED/LENGTH` in parts, telling progress on the way.
///
/// # Errors
/// When the server cannot be reached, answers otherwise than 206, or a connection breaks.
pub fn browse(url: &str, reporter: &Reporter) -> anyhow::Result<()> {
    let (server, path) = split_url(url)?;
    let length = path.rsplit('/').next().and_then(|length| length.parse().ok());
    let length: usize = length.context("the address does not end with a length")?;
    if length == 0 || length > LENGTH_MAX {
        bail!("a length must be from 1 to {LENGTH_MAX}");
    }
    let (pieces, arriving) = sync_channel(PIECES);
    let next = Arc::new(AtomicUsize::new(0));
    reporter.tell(&Report::Connected { at_ns: monotonic_ns() })?;
    for _ in 0..CONNECTIONS.min(length.div_ceil(PART_BYTES)) {
        let (path, pieces, next) = (path.to_owned(), pieces.clone(), Arc::clone(&next));
        std::thread::spawn(move || {
            if let Err(error) = take_parts(server, &path, length, &next, &pieces) {
                // Nobody hears it when another connection has broken first.
                let _ = pieces.send(Err(error));
            }
        });
    }
    drop(pieces);
    put_together(length, &arriving, reporter)
}

/// One connection: part after part, until there is none left.
fn take_parts(
    server: SocketAddr,
    path: &str,
    length: usize,
    next: &AtomicUsize,
    pieces: &SyncSender<Piece>,
) -> anyhow::Result<()> {
    let stream =
        TcpStream::connect(server).with_context(|| format!("cannot connect to {server}"))?;
    let mut reader = BufReader::with_capacity(READ_BYTES, stream.try_clone()?);
    loop {
        let from = next.fetch_add(PART_BYTES, Ordering::Relaxed);
        if from >= length {
            return Ok(());
        }
        let to = length.min(from + PART_BYTES);
        let range = format!("bytes={from}-{}", to - 1);
        write!(&stream, "GET {path} HTTP/1.1\r\nHost: {server}\r\nRange: {range}\r\n\r\n")?;
        if read_response_head(&mut reader, "206")? != (to - from) as u64 {
            bail!("the server sends another part than {range}");
        }
        let mut at = from;
        while at < to {
            let mut bytes = vec![0; READ_BYTES.min(to - at)];
            let count = reader.read(&mut bytes)?;
            if count == 0 {
                bail!("the server closed a connection");
            }
            bytes.truncate(count);
            if pieces.send(Ok((at, bytes))).is_err() {
                return Ok(()); // another connection has broken
            }
            at += count;
        }
    }
}

/// Puts what arrives in its place.
fn put_together(
    length: usize,
    arriving: &Receiver<Piece>,
    reporter: &Reporter,
) -> anyhow::Result<()> {
    let mut whole = vec![0; length];
    let mut bytes = 0;
    let mut arrivals = Arrivals::default();
    let mut told_ns = monotonic_ns();
    while bytes < length {
        let (at, piece) = arriving.recv().context("all connections ended early")??;
        let place = whole.get_mut(at..at + piece.len()).context("a part is too long")?;
        place.copy_from_slice(&piece);
        bytes += piece.len();
        let at_ns = monotonic_ns();
        arrivals.note(at_ns);
        if at_ns - told_ns >= REPORT_NS {
            told_ns = at_ns;
            let (bytes, latest_ns, gaps) = (bytes as u64, at_ns, arrivals.take_gaps());
            reporter.tell(&Report::Progress { at_ns, bytes, latest_ns, gaps })?;
        }
    }
    reporter.tell(&Report::Downloaded(Download {
        end_ns: arrivals.latest_ns(),
        bytes: bytes as u64,
        sha256: hex(&Sha256::digest(&whole)),
        gaps: arrivals.take_gaps(),
    }))
}
