//! The command's end of the control socket.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rove_api::{Reply, Request};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with, sockopt,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::REPLY_BYTES_MAX;
use crate::log;

/// How long an answer is waited for.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// Then the person is told for which process.
    pub(super) silent: Duration,
    /// In all, also if an answer comes byte by byte.
    pub(super) whole: Duration,
}

/// Longer than the node itself takes to give up on an answer.
const PATIENCE: Patience =
    Patience { silent: Duration::from_secs(5), whole: Duration::from_secs(30) };
/// Bytes that are read at once.
const PART: usize = 1 << 16;

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
    /// The node is there, and says nothing.
    #[error("the node does not answer: {}", cure(*process))]
    Silent {
        /// The process that listens, as the kernel knows it.
        process: Option<i32>,
    },
    /// The node answered, and not as this version expects.
    #[error("the running node is of another version: restart it with this one ({0})")]
    OtherVersion(serde_json::Error),
}

/// Asks the node that listens at `path`. `T` is the type of the answer to this request. The answer
/// has no control characters: whoever took over a node must not reach the terminal of root.
pub fn ask<T: DeserializeOwned>(path: &Path, request: &Request) -> Result<T, AskError> {
    ask_within(path, request, PATIENCE)
}

pub(super) fn ask_within<T: DeserializeOwned>(
    path: &Path,
    request: &Request,
    patience: Patience,
) -> Result<T, AskError> {
    let broken = |cause| AskError::Broken { path: path.to_owned(), cause };
    let nobody = [io::ErrorKind::NotFound, io::ErrorKind::ConnectionRefused];
    let stream = match open(path, patience) {
        Err(cause) if nobody.contains(&cause.kind()) => return Err(AskError::NotRunning),
        // Its queue is full, and it takes nobody from it (unix(7), SO_SNDTIMEO).
        Err(cause) if cause.kind() == io::ErrorKind::WouldBlock => {
            return Err(AskError::Silent { process: None });
        }
        opened => opened.map_err(broken)?,
    };
    let process = sockopt::socket_peercred(&stream).ok().map(|peer| peer.pid.as_raw_pid());
    let reply = exchange(&stream, request, patience, process).map_err(|cause| {
        let is_silent = cause.kind() == io::ErrorKind::TimedOut;
        if is_silent { AskError::Silent { process } } else { broken(cause) }
    })?;
    let mut reply: Value = serde_json::from_slice(&reply).map_err(|error| broken(error.into()))?;
    make_printable(&mut reply);
    match serde_json::from_value(reply) {
        Ok(Reply::Ok(answer)) => Ok(answer),
        Ok(Reply::Error(line)) => Err(AskError::Refused(line)),
        Err(error) => Err(AskError::OtherVersion(error)),
    }
}

fn open(path: &Path, patience: Patience) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(patience.silent))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket.into())
}

/// The line that comes back.
fn exchange(
    mut stream: &UnixStream,
    request: &Request,
    patience: Patience,
    process: Option<i32>,
) -> io::Result<Vec<u8>> {
    let begun = Instant::now();
    let mut line = serde_json::to_vec(request)?;
    line.push(b'\n');
    // Somebody who may not ask is told so before the request is read.
    let written = stream.write_all(&line);
    let (mut reply, mut part, mut told) = (Vec::new(), vec![0; PART], false);
    let read = loop {
        let until = if told { patience.whole } else { patience.silent };
        let left = until.saturating_sub(begun.elapsed());
        if left.is_zero() && told {
            return Err(io::ErrorKind::TimedOut.into());
        } else if left.is_zero() {
            told = true;
            tell_silence(process, patience);
            continue;
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part) {
            Ok(0) => break Ok(()),
            Ok(got) => {
                let part = part.get(..got).unwrap_or_default();
                let end = part.iter().position(|byte| *byte == b'\n');
                reply.extend_from_slice(part.get(..end.unwrap_or(got)).unwrap_or_default());
                if reply.len() as u64 >= REPLY_BYTES_MAX {
                    let what = format!("the answer has more than {} MiB", REPLY_BYTES_MAX >> 20);
                    return Err(io::Error::new(io::ErrorKind::FileTooLarge, what));
                } else if end.is_some() {
                    return Ok(reply);
                }
            }
            Err(error) if is_wait(&error) => {}
            Err(error) => break Err(error),
        }
    };
    if reply.is_empty() {
        written?;
        read?;
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(reply)
}

fn is_wait(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

/// Says for whom a command waits.
fn tell_silence(process: Option<i32>, patience: Patience) {
    let (silent, whole) = (patience.silent.as_secs(), patience.whole.as_secs());
    let line = format!(
        "rove: no answer from the node for {silent} s (waiting for {whole} s at most): {}",
        cure(process)
    );
    // With standard error gone nobody is left to tell.
    let _ = log::print(io::stderr(), &line);
}

/// What to do about a process that does not answer.
fn cure(process: Option<i32>) -> String {
    let Some(process) = process else {
        return "find its process with `pgrep -x rove`, and end it with `kill -KILL`".to_owned();
    };
    if is_stopped(process) {
        return format!(
            "its process {process} is stopped; let it go on with `kill -CONT {process}`"
        );
    }
    format!(
        "if its process {process} hangs, end it with `kill -KILL {process}`, then run `rove down`"
    )
}

/// Whether a signal stopped the process (proc_pid_stat(5)).
fn is_stopped(process: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'))
}

/// Escapes the control characters in all texts of an answer.
fn make_printable(value: &mut Value) {
    match value {
        Value::String(text) => *text = log::printable(text, ""),
        Value::Array(values) => values.iter_mut().for_each(make_printable),
        Value::Object(fields) => {
            let each = std::mem::take(fields).into_iter().map(|(key, mut value)| {
                make_printable(&mut value);
                (log::printable(&key, ""), value)
            });
            *fields = each.collect();
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}
