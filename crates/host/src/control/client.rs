//! The command's end of the control socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rove_api::{Reply, Request};
use serde::de::DeserializeOwned;

use super::REPLY_BYTES_MAX;

/// Longer than the node itself takes to give up on an answer.
const REPLY_WITHIN: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError {
    /// Nobody listens: the node does not run.
    #[error("it is not running")]
    NotRunning,
    /// The node answered with an error: its one line.
    #[error("{0}")]
    Refused(String),
    /// The connection failed.
    #[error("{}: {cause}: see whether the node still runs", .path.display())]
    Broken {
        /// The socket.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
    /// The node answered, and not as this version expects.
    #[error("the running node is of another version: restart it with this one ({0})")]
    OtherVersion(serde_json::Error),
}

/// Asks the node that listens at `path`. `T` is the type of the answer to this request.
pub fn ask<T: DeserializeOwned>(path: &Path, request: &Request) -> Result<T, AskError> {
    let broken = |cause| AskError::Broken { path: path.to_owned(), cause };
    let nobody = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
    let stream = match UnixStream::connect(path) {
        Err(cause) if nobody.contains(&cause.kind()) => return Err(AskError::NotRunning),
        connected => connected.map_err(broken)?,
    };
    let reply = exchange(&stream, request).map_err(broken)?;
    match serde_json::from_slice(&reply) {
        Ok(Reply::Ok(answer)) => Ok(answer),
        Ok(Reply::Error(line)) => Err(AskError::Refused(line)),
        Err(error) if error.is_data() => Err(AskError::OtherVersion(error)),
        Err(error) => Err(broken(error.into())),
    }
}

/// The line that comes back.
fn exchange(mut stream: &UnixStream, request: &Request) -> io::Result<Vec<u8>> {
    stream.set_read_timeout(Some(REPLY_WITHIN))?;
    stream.set_write_timeout(Some(REPLY_WITHIN))?;
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    // Somebody who may not ask is told so before the request is read.
    let written = stream.write_all(&line);
    let mut reply = Vec::new();
    let read = BufReader::new(stream).take(REPLY_BYTES_MAX).read_until(b'\n', &mut reply);
    if reply.len() as u64 == REPLY_BYTES_MAX {
        let what = format!("the answer has more than {} MiB", REPLY_BYTES_MAX >> 20);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
    }
    if reply.is_empty() {
        written?;
        read?;
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(reply)
}
