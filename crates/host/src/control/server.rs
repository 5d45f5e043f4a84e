//! The node's end of the control socket.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rove_api::{Answer, Reply, Request};

use super::asker::{self, Asker};
use super::{CLIENTS_MAX, OWNERS_MAX, REQUEST_BYTES_MAX};
use crate::files::FileError;

/// How long a connection may be silent, or refuse to read.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long the node may take to answer: committing to a slow disk, applying a plan.
const ANSWER_WITHIN: Duration = Duration::from_secs(20);
/// How long an ending node waits for its replies to be written.
const LINGER: Duration = Duration::from_millis(200);
/// Anyone may connect, so that anyone can be told that it is not for them.
const SOCKET_MODE: u32 = 0o666;

/// A request on its way to the thread that answers, with the way back. If nothing is sent back the
/// asker hears that the node is ending.
pub struct Asked {
    /// What is asked.
    pub request: Request,
    /// Where the reply goes; holds one.
    pub reply: SyncSender<Reply<Answer>>,
}

/// A socket that listens and is not served yet: made while the process still may, served when it
/// has dropped what it does not need.
pub struct Listener {
    path: PathBuf,
    listener: UnixListener,
}

/// The thread that serves a [`Listener`]. Removes the socket when dropped.
pub struct Server {
    path: PathBuf,
    ending: Arc<AtomicBool>,
    serving: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Listens at `path`, in the place of a socket that a crash left there: whoever calls holds the
    /// node's lock.
    pub fn bind(path: &Path) -> Result<Self, FileError> {
        let failed = |cause| FileError::System { path: path.to_owned(), cause };
        match fs::remove_file(path) {
            Err(cause) if cause.kind() != io::ErrorKind::NotFound => return Err(failed(cause)),
            Ok(()) | Err(_) => {}
        }
        let listener = UnixListener::bind(path).map_err(failed)?;
        fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE)).map_err(failed)?;
        Ok(Self { path: path.to_owned(), listener })
    }

    /// Passes requests on to `to` from now on.
    pub fn serve<T: Send + 'static>(
        self,
        to: SyncSender<T>,
        wrap: impl Fn(Asked) -> T + Clone + Send + 'static,
    ) -> Result<Server, FileError> {
        let Self { path, listener } = self;
        let (ending, serving) = (Arc::<AtomicBool>::default(), Arc::<AtomicUsize>::default());
        let (flag, count) = (Arc::clone(&ending), Arc::clone(&serving));
        let pass_on = move |asked| to.send(wrap(asked)).is_ok();
        let spawned = thread::Builder::new()
            .name("rove-control".to_owned())
            .spawn(move || accept(&listener, &flag, &count, &pass_on));
        match spawned {
            Ok(thread) => Ok(Server { path, ending, serving, thread: Some(thread) }),
            Err(cause) => Err(FileError::System { path, cause }),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.ending.store(true, Ordering::Release);
        // Wakes the thread out of accept; if that fails it ends with the process.
        let woken = UnixStream::connect(&self.path).is_ok();
        if let Some(thread) = self.thread.take()
            && woken
        {
            // It holds nothing that could be lost: a panic in it was printed already.
            let _ = thread.join();
        }
        // Replies that were given are written before the process ends.
        let give_up = Instant::now() + LINGER;
        while self.serving.load(Ordering::Acquire) > 0 && Instant::now() < give_up {
            thread::sleep(Duration::from_millis(5));
        }
        // Gone already means somebody cleaned up.
        let _ = fs::remove_file(&self.path);
    }
}

fn accept<F>(listener: &UnixListener, ending: &AtomicBool, serving: &Arc<AtomicUsize>, pass_on: &F)
where
    F: Fn(Asked) -> bool + Clone + Send + 'static,
{
    for stream in listener.incoming() {
        if ending.load(Ordering::Acquire) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of descriptors, most likely: connections that end give some back.
            thread::sleep(Duration::from_millis(100));
            continue;
        };
        // Before anything is counted: others must not take the places of those who may ask.
        let room = match asker::of(&stream) {
            Asker::Owner => CLIENTS_MAX + OWNERS_MAX,
            Asker::Member => CLIENTS_MAX,
            Asker::Other => {
                refuse(&stream, "only root and members of the group `rove` may ask: use sudo");
                continue;
            }
        };
        if serving.fetch_add(1, Ordering::AcqRel) >= room {
            serving.fetch_sub(1, Ordering::AcqRel);
            refuse(&stream, "too many control connections: try again in a moment");
            continue;
        }
        let slot = Slot(Arc::clone(serving));
        let pass_on = pass_on.clone();
        let spawned = thread::Builder::new().name("rove-asker".to_owned()).spawn(move || {
            let _slot = slot;
            // What a client did wrong concerns nobody but itself.
            let _ = serve(&stream, &pass_on);
        });
        drop(spawned);
    }
}

/// Counts a connection for as long as it lives.
struct Slot(Arc<AtomicUsize>);

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

fn serve(stream: &UnixStream, pass_on: &impl Fn(Asked) -> bool) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut lines = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        // One byte more than allowed, to tell the longest line from one too long.
        let limit = REQUEST_BYTES_MAX as u64 + 1;
        let length = lines.by_ref().take(limit).read_until(b'\n', &mut line)?;
        if length == 0 {
            return Ok(());
        }
        if length > REQUEST_BYTES_MAX {
            refuse(stream, "the request is too long");
            return Ok(());
        }
        write_reply(stream, &answer(&line, pass_on))?;
    }
}

pub(crate) fn answer(line: &[u8], pass_on: &impl Fn(Asked) -> bool) -> Reply<Answer> {
    let request = match serde_json::from_slice::<Request>(line) {
        Ok(request) => request,
        Err(error) => return Reply::Error(format!("not a request of this version: {error}")),
    };
    let (reply, replied) = sync_channel(1);
    let ending = || Reply::Error("the node is ending: try again when it is back".to_owned());
    if !pass_on(Asked { request, reply }) {
        return ending();
    }
    match replied.recv_timeout(ANSWER_WITHIN) {
        Ok(reply) => reply,
        Err(RecvTimeoutError::Timeout) => {
            let seconds = ANSWER_WITHIN.as_secs();
            Reply::Error(format!("the node did not answer within {seconds} s: see its log"))
        }
        Err(RecvTimeoutError::Disconnected) => ending(),
    }
}

fn refuse(stream: &UnixStream, why: &str) {
    // The client may be gone, or never read: it loses its line, nobody else anything. Nothing was
    // sent before, so that the line has room and nobody waits.
    let _ = stream.set_nonblocking(true);
    let _ = write_reply(stream, &Reply::Error(why.to_owned()));
}

fn write_reply(mut stream: &UnixStream, reply: &Reply<Answer>) -> io::Result<()> {
    let mut line = serde_json::to_vec(reply)?;
    line.push(b'\n');
    stream.write_all(&line)
}
