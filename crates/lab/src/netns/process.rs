//! Programs that run in hosts, and never longer than the lab.

use super::lines::{Lines, Next};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use std::collections::VecDeque;
use std::io;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// How long a program may take to end after a polite request.
const GRACE: Duration = Duration::from_secs(3);
/// The most lines of a program's error output that are kept to show when it fails.
const KEPT_ERRORS: usize = 200;
/// The most lines of its output that are kept for who may ask: a download tells its progress 20
/// times a second, and nobody looks away for three minutes.
const KEPT_LINES: usize = 4_096;
/// How long the last words of a program that has ended are waited for.
const LAST_WORDS: Duration = Duration::from_millis(200);
/// The lines that a message quotes.
const QUOTED_LINES: usize = 5;

/// A running program; it is killed when this is dropped, and with it whatever it has started in
/// its process group.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    /// Its ID may be another's by now.
    reaped: bool,
    lines: Lines,
    errors: Lines,
    /// The latest lines of output that nobody wanted, for messages.
    unwanted: VecDeque<String>,
}

/// What a program left behind.
#[derive(Debug)]
pub struct ProcessOutput {
    /// How it ended.
    pub status: ExitStatus,
    /// The last lines of its error output.
    pub errors: Vec<String>,
}

impl Process {
    /// Starts a program whose output is read line by line. `name` stands in messages.
    pub(super) fn spawn(name: &str, mut command: Command) -> io::Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn()?;
        let (Some(out), Some(err)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(io::Error::other("it has no output"));
        };
        Ok(Self {
            name: name.to_owned(),
            child,
            reaped: false,
            lines: Lines::read(out, KEPT_LINES),
            errors: Lines::read(err, KEPT_ERRORS),
            unwanted: VecDeque::new(),
        })
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Processor time that all its threads have taken so far, in nanoseconds (`schedstat` of
    /// proc(5)).
    ///
    /// # Errors
    /// When it has ended.
    pub fn cpu_ns(&self) -> io::Result<u64> {
        let mut all = 0;
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.id()))? {
            // A thread may end meanwhile.
            let Ok(said) = std::fs::read_to_string(thread?.path().join("schedstat")) else {
                continue;
            };
            let on_cpu_ns = said.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok());
            all += on_cpu_ns.unwrap_or_default();
        }
        Ok(all)
    }

    /// The next line of its output; `None` when none came within `timeout`.
    ///
    /// # Errors
    /// `UnexpectedEof` when its output has ended.
    pub fn line(&self, timeout: Duration) -> io::Result<Option<String>> {
        match self.lines.next(timeout) {
            Next::Line(line) => Ok(Some(line)),
            Next::Late => Ok(None),
            Next::Ended => {
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, "its output has ended"))
            }
        }
    }

    /// The first line that `wanted` accepts, within `timeout`.
    ///
    /// # Errors
    /// Says what the program wrote instead.
    pub fn line_where<T>(
        &mut self,
        timeout: Duration,
        mut wanted: impl FnMut(&str) -> Option<T>,
    ) -> io::Result<T> {
        let end = Instant::now() + timeout;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match self.line(left) {
                Ok(Some(line)) => {
                    if let Some(found) = wanted(&line) {
                        return Ok(found);
                    }
                    if self.unwanted.len() == QUOTED_LINES {
                        self.unwanted.pop_front();
                    }
                    self.unwanted.push_back(line);
                }
                Ok(None) => return Err(self.failure("did not say in time what it should")),
                Err(_) => return Err(self.failure("ended early")),
            }
        }
    }

    /// Asks it to end (SIGTERM), kills it if it does not, and returns what it left behind.
    pub fn stop(self) -> io::Result<ProcessOutput> {
        self.terminate();
        self.wait(GRACE)
    }

    /// Waits for it to end by itself; kills it after `timeout`.
    ///
    /// # Errors
    /// `TimedOut` when it had to be killed.
    pub fn wait(mut self, timeout: Duration) -> io::Result<ProcessOutput> {
        let end = Instant::now() + timeout;
        loop {
            if !self.is_running() {
                let errors = self.errors.take_all(LAST_WORDS);
                return Ok(ProcessOutput { status: self.reap()?, errors });
            }
            if Instant::now() >= end {
                return Err(self.failure("did not end in time"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// True while it runs. It is not reaped when it has ended, so that its ID, which is that of its
    /// group as well, stays its own.
    pub fn is_running(&self) -> bool {
        let Some(id) = self.pid() else { return false };
        let look = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        matches!(rustix::process::waitid(WaitId::Pid(id), look), Ok(None))
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        if let Some(id) = self.pid() {
            // An error means that it has ended already.
            let _ = rustix::process::kill_process(id, Signal::TERM);
        }
    }

    /// Stops it, and what it has started, as a machine that goes to sleep does; or lets it go on.
    pub fn pause(&self, paused: bool) {
        if let Some(group) = self.pid() {
            let signal = if paused { Signal::STOP } else { Signal::CONT };
            // An error means that all of it has ended already.
            let _ = rustix::process::kill_process_group(group, signal);
        }
    }

    /// Sends SIGKILL, as a crash would end it, to it and to what it has started.
    pub fn kill(&mut self) {
        // An error means that it was reaped already.
        let _ = self.reap();
    }

    /// An error about this program that quotes the last it said.
    pub fn failure(&self, what: &str) -> io::Error {
        let patience = if self.is_running() { Duration::ZERO } else { LAST_WORDS };
        let errors = self.errors.take_all(patience);
        let said: Vec<&str> = if errors.is_empty() {
            self.unwanted.iter().map(String::as_str).collect()
        } else {
            let skip = errors.len().saturating_sub(QUOTED_LINES);
            errors.iter().skip(skip).map(String::as_str).collect()
        };
        let said = said.join(" | ");
        let said = if said.is_empty() { said } else { format!("; it said: {said}") };
        io::Error::other(format!("{} {what}{said}", self.name))
    }

    /// Ends what is left of its process group, and takes its status.
    fn reap(&mut self) -> io::Result<ExitStatus> {
        if let Some(group) = self.pid() {
            // An error means that all of it has ended already.
            let _ = rustix::process::kill_process_group(group, Signal::KILL);
        }
        self.reaped = true;
        self.child.wait()
    }

    /// Its ID, which is that of its group as well; none when it was reaped.
    fn pid(&self) -> Option<Pid> {
        if self.reaped { None } else { Pid::from_raw(self.child.id().cast_signed()) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}
