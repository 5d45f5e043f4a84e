//! A running program that ends with its owner.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

/// How often, and how many times, it is looked whether a program has ended as it was asked.
const LOOK_EVERY: Duration = Duration::from_millis(10);
const LOOKS: u32 = 300;

/// A started program whose output is read line by line.
pub(super) struct Program {
    child: Child,
    out: BufReader<ChildStdout>,
    shown: String,
}

impl Program {
    /// Starts it, its input closed.
    pub(super) fn start(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::null());
        Self::start_with_input(command)
    }

    /// Starts it with the input that the command has.
    pub(super) fn start_with_input(mut command: Command) -> Result<Self, String> {
        let words = command.get_args().map(|word| word.to_string_lossy().into_owned());
        let shown = words.skip(3).collect::<Vec<_>>().join(" ");
        command.stdout(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| format!("cannot start {shown}: {error}"))?;
        let out = child.stdout.take().ok_or("a program without output")?;
        Ok(Self { child, out: BufReader::new(out), shown })
    }

    /// Its process number; `ip netns exec` becomes the program, so it is the program's own.
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its next line of output, without the end; an error when it ends before that.
    pub(super) fn line(&mut self) -> Result<String, String> {
        let mut line = String::new();
        let read = self.out.read_line(&mut line);
        match read.map_err(|error| format!("reading from {}: {error}", self.shown))? {
            0 => Err(format!("{} ended early", self.shown)),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// Waits for a line that holds `text`.
    pub(super) fn wait_for(&mut self, text: &str) -> Result<String, String> {
        loop {
            let line = self.line()?;
            if line.contains(text) {
                return Ok(line);
            }
        }
    }

    /// Waits for its end and gives the rest of its output.
    pub(super) fn finish(mut self) -> Result<String, String> {
        let mut rest = String::new();
        let read = self.out.read_to_string(&mut rest);
        read.map_err(|error| format!("reading from {}: {error}", self.shown))?;
        let status = self.child.wait();
        match status.map_err(|error| format!("waiting for {}: {error}", self.shown))? {
            status if status.success() => Ok(rest),
            status => Err(format!("{} ended with {status}", self.shown)),
        }
    }

    /// Its standard input, if it was piped.
    pub(super) fn input(&mut self) -> Option<std::process::ChildStdin> {
        self.child.stdin.take()
    }
}

/// Ends many programs together: each is asked before the first is waited for.
pub(super) fn end_all(programs: Vec<Program>) {
    let numbers = programs.iter().map(|program| program.pid().to_string());
    // One that ended by itself makes this fail, and loses nothing.
    let _ = Command::new("kill").args(numbers).stderr(Stdio::null()).status();
    drop(programs);
}

impl Drop for Program {
    /// Asks it to end, so that it can put its host back in order, and makes it end if it does not.
    fn drop(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // It may end by itself just now: then all of this fails, and nothing is lost.
        let _ = Command::new("kill").arg(self.pid().to_string()).stderr(Stdio::null()).status();
        for _ in 0..LOOKS {
            match self.child.try_wait() {
                Ok(None) => sleep(LOOK_EVERY),
                Ok(Some(_)) | Err(_) => return,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
