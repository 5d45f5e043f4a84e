//! Programs that run in hosts, and never longer than the lab.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a program may take to end after a polite request.
const GRACE: Duration = Duration::from_secs(3);
/// The most lines of a program's error output that are kept to show when it fails.
const KEPT_LINES: usize = 200;

/// The lines that a message quotes.
const QUOTED_LINES: usize = 5;

/// A running program; it is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    lines: Receiver<String>,
    readers: Vec<JoinHandle<()>>,
    errors: Receiver<String>,
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
        let (sender, lines) = channel();
        let (error_sender, errors) = channel();
        let mut readers = Vec::new();
        if let Some(out) = child.stdout.take() {
            readers.push(read_lines(out, sender));
        }
        if let Some(err) = child.stderr.take() {
            readers.push(read_lines(err, error_sender));
        }
        let unwanted = VecDeque::new();
        Ok(Self { name: name.to_owned(), child, lines, readers, errors, unwanted })
    }

    /// Its name in messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// The next line of its output; `None` when none came within `timeout`.
    ///
    /// # Errors
    /// `UnexpectedEof` when its output has ended.
    pub fn line(&self, timeout: Duration) -> io::Result<Option<String>> {
        match self.lines.recv_timeout(timeout) {
            Ok(line) => Ok(Some(line)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
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
            if let Some(status) = self.child.try_wait()? {
                return Ok(ProcessOutput { status, errors: self.drain_errors() });
            }
            if Instant::now() >= end {
                return Err(self.failure("did not end in time"));
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// True while it runs.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(rustix::process::Signal::TERM);
    }

    /// Sends SIGKILL, as a crash would end it.
    pub fn kill(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// An error about this program that quotes the last it said.
    pub fn failure(&mut self, what: &str) -> io::Error {
        let errors = self.drain_errors();
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

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            // An error means that it has ended already; it is not reaped yet, so the ID is its.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    fn drain_errors(&mut self) -> Vec<String> {
        if !self.is_running() {
            // Let the readers finish, so that the last words are not lost.
            for reader in self.readers.drain(..) {
                let _ = reader.join();
            }
        }
        let all: Vec<String> = self.errors.try_iter().collect();
        let skip = all.len().saturating_sub(KEPT_LINES);
        all.into_iter().skip(skip).collect()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn read_lines(
    stream: impl io::Read + Send + 'static,
    lines: std::sync::mpsc::Sender<String>,
) -> JoinHandle<()> {
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines() {
            let Ok(line) = line else { return };
            if lines.send(line).is_err() {
                return;
            }
        }
    })
}
