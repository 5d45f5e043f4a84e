//! A process that changes the resolver's settings for a node that is no longer root.
//!
//! resolv.conf lies in a directory of root, and systemd-resolved obeys only root (or a polkit
//! policy that few hosts have). While the node is still root, [`start`] forks a process that stays
//! root and gives up everything else. It has no capability, and Landlock limits its writing to the
//! resolver's files. It does two things on one host: it installs the name servers of a plan, and it
//! restores the old ones. It trusts no request: it checks the values of each as [`crate::plan`]
//! checks them, and restores only what it finds in a file that root alone may write. If the node
//! dies while resolv.conf names its forwarder, which died with it, the process restores the file.
//!
//! Limits: each node process has one, because the user is a property of the process. It ends with
//! the node. If somebody kills it, it cannot be started again, as nobody but root could, and a
//! stopped one answers nothing: [`fault`] tells, and root's `rove down` restores the settings with
//! a process of its own.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    os::{fd::AsRawFd, unix::net::UnixStream},
    path::PathBuf,
    sync::{Mutex, OnceLock, PoisonError},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use super::{
    file::Replaced,
    way::{Way, install_here, remove_here},
};
use crate::{
    error::Error,
    plan::{Dns, Places},
    privileges::{self, Writable},
};

/// Bytes of a request or an answer: 64 servers and 64 domains of 253 bytes, escaped; or an error.
const MESSAGE_LEN_MAX: u32 = 128 << 10;
/// How long a change may take: a few calls to resolved, each with its own timeout. Less than a
/// command waits for the node.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);
/// How often a process that has not answered yet is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The failed action in the error if the process does not answer.
const ASKING: &str = "change the resolver's settings (the process rove-resolver)";
/// How an exchange fails if the process has ended.
const ENDED: [io::ErrorKind; 3] =
    [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset, io::ErrorKind::UnexpectedEof];
/// The name that `ps` shows.
const NAME: &std::ffi::CStr = c"rove-resolver";

static KEEPER: OnceLock<Keeper> = OnceLock::new();

/// The process, as the node knows it.
struct Keeper {
    process: libc::pid_t,
    line: Mutex<Line>,
}

/// The way to the process. Requests are numbered: an answer that was given up may come later.
struct Line {
    stream: UnixStream,
    number: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Request {
    Install { device: String, dns: Dns, way: Way },
    Remove { device: String, way: Way },
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
enum Reply {
    Done,
    NoPrivilege { what: String },
    Resolved { said: String },
    ResolverFile { what: String, path: PathBuf, why: String },
    Os { what: String, code: Option<i32>, said: String },
}

/// Forks the process. Called once, as root, before the first thread.
pub(crate) fn start(places: &Places) -> io::Result<()> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(ANSWER_TIME_MAX))?;
    ours.set_write_timeout(Some(ANSWER_TIME_MAX))?;
    // SAFETY: this process has one thread, so that the copy holds no lock of another.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            drop(ours);
            let served = confine(places).and_then(|()| serve(&theirs, places));
            // SAFETY: ends the copy without running what belongs to the original.
            unsafe { libc::_exit(libc::c_int::from(served.is_err())) }
        }
        process => {
            let line = Mutex::new(Line { stream: ours, number: 0 });
            let _ = KEEPER.set(Keeper { process, line });
            Ok(())
        }
    }
}

/// Installs the settings through the process, if there is one.
pub(super) fn install(device: &str, dns: &Dns, way: Way) -> Option<Result<(), Error>> {
    ask(|| Request::Install { device: device.to_owned(), dns: dns.clone(), way })
}

/// Restores the old settings through the process, if there is one.
pub(super) fn remove(device: &str, way: Way) -> Option<Result<(), Error>> {
    ask(|| Request::Remove { device: device.to_owned(), way })
}

/// Sends a request; `None` if there is no such process.
fn ask(request: impl FnOnce() -> Request) -> Option<Result<(), Error>> {
    let keeper = KEEPER.get()?;
    let mut line = keeper.line.lock().unwrap_or_else(PoisonError::into_inner);
    Some(match line.exchange(&request(), keeper.process) {
        Ok(Reply::Done) => Ok(()),
        Ok(Reply::NoPrivilege { what }) => Err(Error::NoPrivilege { what }),
        Ok(Reply::Resolved { said }) => Err(Error::Resolved { said }),
        Ok(Reply::ResolverFile { what, path, why }) => {
            let known = ["read", "write", "restore"];
            let what = known.into_iter().find(|known| *known == what).unwrap_or("change");
            Err(Error::ResolverFile { what, path, why })
        }
        Ok(Reply::Os { what, code, said }) => {
            let cause = code.map_or_else(|| io::Error::other(said), io::Error::from_raw_os_error);
            Err(Error::Os { what, cause })
        }
        Err(error) if ENDED.contains(&error.kind()) => Err(Error::ResolverEnded),
        Err(_) if is_stopped(keeper.process) => {
            Err(Error::ResolverStopped { process: keeper.process })
        }
        Err(error) => Err(Error::os(ASKING, error)),
    })
}

impl Line {
    /// Waits for the answer as long as the process may take, and no longer than it runs.
    fn exchange(&mut self, request: &Request, process: libc::pid_t) -> io::Result<Reply> {
        let give_up = Instant::now() + ANSWER_TIME_MAX;
        if is_stopped(process) {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.number = self.number.wrapping_add(1);
        send(&self.stream, &(self.number, request))?;
        loop {
            while !self.has(libc::POLLIN, LOOK_EVERY) {
                if is_stopped(process) || Instant::now() >= give_up {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            let (number, reply): (u64, Reply) = receive(&self.stream)?;
            if number == self.number {
                return Ok(reply);
            }
        }
    }

    /// Whether one of the events, or a hang-up, comes within this time (poll(2)).
    fn has(&self, events: libc::c_short, within: Duration) -> bool {
        let mut polled = libc::pollfd { fd: self.stream.as_raw_fd(), events, revents: 0 };
        let within = libc::c_int::try_from(within.as_millis()).unwrap_or(libc::c_int::MAX);
        // SAFETY: one entry, which lives through the call.
        unsafe { libc::poll(&raw mut polled, 1, within) > 0 }
    }
}

/// Why the settings cannot be changed now, if there was such a process. If it has ended, its end of
/// the socket is closed. Only root could start it again, and this process gave up root's rights.
pub(super) fn fault() -> Option<Error> {
    let keeper = KEEPER.get()?;
    // Without any event asked for, poll reports the hang-up alone.
    let has_ended = || {
        let line = keeper.line.lock().unwrap_or_else(PoisonError::into_inner);
        line.has(0, Duration::ZERO)
    };
    if is_stopped(keeper.process) {
        return Some(Error::ResolverStopped { process: keeper.process });
    }
    has_ended().then_some(Error::ResolverEnded)
}

/// Whether a signal or a debugger stopped the process (proc_pid_stat(5)).
fn is_stopped(process: libc::pid_t) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let state = stat.rsplit(')').next().unwrap_or_default().trim_start();
    state.starts_with(['T', 't'])
}

/// Limits this process to the resolver's files. It ends when the node closes its end of the socket,
/// and ignores signals meant for the node, because the node restores the settings after such a
/// signal.
fn confine(places: &Places) -> io::Result<()> {
    let null = File::options().read(true).write(true).open("/dev/null")?;
    // SAFETY: takes numbers, and a string that ends with NUL and lives as long as the process.
    unsafe {
        libc::setsid();
        libc::prctl(libc::PR_SET_NAME, NAME.as_ptr());
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            libc::signal(signal, libc::SIG_IGN);
        }
        for standard in 0..3 {
            libc::dup2(null.as_raw_fd(), standard);
        }
    }
    let files = places.resolver_files();
    let writable: Vec<Writable<'_>> = files.iter().map(|path| Writable::Replaced(path)).collect();
    privileges::drop_all(&writable).map_err(io::Error::other)
}

fn serve(stream: &UnixStream, places: &Places) -> io::Result<()> {
    let (mut split, mut replaced) = (None, Replaced::default());
    let ended = loop {
        let received: io::Result<(u64, Request)> = receive(stream);
        let (number, request) = match received {
            Ok(received) => received,
            Err(error) => break error,
        };
        let done = match request {
            Request::Install { device, dns, way } => check(&device)
                .and_then(|()| dns.check())
                .and_then(|()| way.check())
                .inspect(|()| split = way.names_forwarder().then(|| (device.clone(), way)))
                .and_then(|()| install_here((&device, &dns), way, places, &mut replaced)),
            Request::Remove { device, way } => {
                split = None;
                check(&device).and_then(|()| remove_here(&device, way, places, &replaced))
            }
        };
        let reply = done.map_or_else(tell, |()| Reply::Done);
        if let Err(error) = send(stream, &(number, reply)) {
            break error;
        }
    };
    if let Some((device, way)) = split {
        // Nobody is left to hear of a failure.
        let _ = remove_here(&device, way, places, &replaced);
    }
    Err(ended)
}

fn check(device: &str) -> Result<(), Error> {
    crate::tun::check_name(device)
}

fn tell(error: Error) -> Reply {
    if let Error::NoPrivilege { what } = error {
        Reply::NoPrivilege { what }
    } else if let Error::Resolved { said } = error {
        Reply::Resolved { said }
    } else if let Error::ResolverFile { what, path, why } = error {
        Reply::ResolverFile { what: what.to_owned(), path, why }
    } else if let Error::Os { what, cause } = error {
        Reply::Os { what, code: cause.raw_os_error(), said: cause.to_string() }
    } else {
        let what = "change the resolver's settings".to_owned();
        Reply::Os { what, code: None, said: error.to_string() }
    }
}

fn send(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
    if length > MESSAGE_LEN_MAX {
        return Err(io::Error::other("the settings are too long"));
    }
    stream.write_all(&[&length.to_ne_bytes()[..], &text].concat())
}

fn receive<T: for<'a> Deserialize<'a>>(mut stream: &UnixStream) -> io::Result<T> {
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let length = u32::from_ne_bytes(length);
    if length > MESSAGE_LEN_MAX {
        return Err(io::Error::other("the message is too long"));
    }
    let mut text = Vec::new();
    stream.take(length.into()).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}
