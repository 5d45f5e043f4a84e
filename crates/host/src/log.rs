//! Logs: to standard error, as text or JSON; of a background process to a file that is bounded.
//! Addresses and names appear at `debug`, secrets never.
//!
//! No process ends or stops because of a log line. A line that cannot be written is lost: the disk
//! is full, the terminal is closed, nobody reads the pipe. The next line that can be written says
//! how many were lost.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use rove_os::plain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use tracing::level_filters::LevelFilter;

use crate::config::{LogConfig, LogFormat, LogLevel};

/// A log file is set aside, in the place of the last one that was, when it would become larger.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// How long a line waits for a reader that is slow. While nobody reads, only the first line waits.
/// A pipe holds 64 KiB, so half of this would still do; twice as long would delay what logs.
const READER_WITHIN: Duration = Duration::from_millis(50);

/// Starts logging to standard error, once per process.
pub fn start(config: LogConfig, format: Option<LogFormat>) {
    start_on(io::stderr(), config, format);
}

/// Starts logging to `file`, which takes the place of standard error.
pub fn start_in(file: LogFile, config: LogConfig, format: Option<LogFormat>) {
    start_on(file, config, format);
}

fn start_on<W>(to: W, config: LogConfig, format: Option<LogFormat>)
where
    W: Write + AsFd + Send + 'static,
{
    let format = format.unwrap_or(config.format);
    let lines = Mutex::new(Lines { to, format, lost: 0 });
    let builder = tracing_subscriber::fmt().with_max_level(level(config)).with_target(false);
    let builder = builder.with_writer(lines).with_ansi(false);
    let started = match format {
        LogFormat::Text => builder.compact().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // A second start changes nothing, which is what a second start should do.
    drop(started);
}

/// Prints a line for people on standard output or standard error, unless nobody reads it.
///
/// # Errors
/// Why the line is not printed.
pub fn print(mut to: impl Write + AsFd, line: &str) -> io::Result<()> {
    if !takes_line(to.as_fd(), READER_WITHIN) {
        return Err(io::Error::other("nobody reads what is printed"));
    }
    writeln!(to, "{line}")?;
    to.flush()
}

/// The text with its control characters escaped, except those in `kept`: a terminal obeys them. So
/// are characters that change the direction or the line of a text (Unicode UAX #9, U+2028).
pub fn printable(text: &str, kept: &str) -> String {
    let obeyed = |c: char| {
        let turns = ['\u{200e}', '\u{200f}', '\u{2028}', '\u{2029}'].contains(&c)
            || ('\u{202a}'..='\u{202e}').contains(&c)
            || ('\u{2066}'..='\u{2069}').contains(&c);
        (c.is_control() || turns) && !kept.contains(c)
    };
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        if obeyed(c) {
            printable.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            printable.push(c);
        }
    }
    printable
}

/// Log lines, some of which may be lost. Writing never fails: `tracing_subscriber` would report
/// the failure with `eprintln!`, which panics if that fails, too.
struct Lines<W> {
    to: W,
    format: LogFormat,
    /// Lines lost since the last one that was written.
    lost: u64,
}

impl<W: Write + AsFd> Lines<W> {
    /// Writes one line, or counts it as lost.
    fn put(&mut self, line: &[u8]) {
        let patience = if self.lost == 0 { READER_WITHIN } else { Duration::ZERO };
        if !takes_line(self.to.as_fd(), patience) || self.try_put(line).is_err() {
            self.lost = self.lost.saturating_add(1);
        }
    }

    fn try_put(&mut self, line: &[u8]) -> io::Result<()> {
        if self.lost > 0 {
            let note = format!("{} log lines before this one could not be written", self.lost);
            match self.format {
                LogFormat::Text => writeln!(self.to, "({note})")?,
                LogFormat::Json => {
                    writeln!(self.to, "{{\"level\":\"WARN\",\"message\":\"{note}\"}}")?
                }
            }
            self.lost = 0;
        }
        self.to.write_all(line)
    }
}

/// `tracing_subscriber` writes each line at once.
impl<W: Write + AsFd> Write for Lines<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Whether a write would not wait: for the reader of a pipe, or for a terminal that Ctrl-S stopped.
fn takes_line(to: BorrowedFd<'_>, patience: Duration) -> bool {
    let patience = Timespec::try_from(patience).unwrap_or_default();
    // A signal, such as SIGHUP, ends the wait early and says nothing about the reader.
    match retry_on_intr(|| poll(&mut [PollFd::new(&to, PollFlags::OUT)], Some(&patience))) {
        Ok(ready) => ready > 0,
        // A write tells what is wrong.
        Err(_) => true,
    }
}

const fn level(config: LogConfig) -> LevelFilter {
    match config.level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

/// A file that is set aside before it becomes too large, so that with the one before there are
/// never more than twice `FILE_BYTES_MAX`.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: File,
    bytes: u64,
    limit: u64,
    /// Whether it is this process's standard error, too.
    is_stderr: bool,
}

impl LogFile {
    /// Goes on in the file at `path`, or begins one.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { is_stderr: true, ..Self::with_limit(path, FILE_BYTES_MAX)? })
    }

    fn with_limit(path: &Path, limit: u64) -> io::Result<Self> {
        let file = append(path)?;
        let bytes = file.metadata()?.len();
        Ok(Self { path: path.to_owned(), file, bytes, limit, is_stderr: false })
    }

    /// The file itself, for another process to write to until it takes over.
    pub fn into_file(self) -> File {
        self.file
    }

    fn begin_anew(&mut self) -> io::Result<()> {
        let mut old = self.path.clone().into_os_string();
        old.push(".old");
        fs::rename(&self.path, old)?;
        self.file = append(&self.path)?;
        self.bytes = 0;
        if self.is_stderr {
            // Panics follow; if they cannot, they are in the old file.
            let _ = rustix::stdio::dup2_stderr(&self.file);
        }
        Ok(())
    }
}

fn append(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    plain::open(path, options.create(true).append(true).mode(crate::files::PRIVATE))
}

impl AsFd for LogFile {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if self.bytes > 0 && self.bytes.saturating_add(length) > self.limit {
            // A file that cannot be set aside is emptied: a full disk is worse than no log.
            self.begin_anew().or_else(|_| self.file.set_len(0))?;
            self.bytes = 0;
        }
        let written = self.file.write(bytes)?;
        self.bytes += u64::try_from(written).unwrap_or(u64::MAX);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_line_that_nobody_reads_is_lost_and_counted() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut lines = Lines { to: writer, format: LogFormat::Text, lost: 0 };
        let line = [b'x'; 1_023].iter().chain(b"\n").copied().collect::<Vec<u8>>();
        let began = Instant::now();
        for _ in 0..1_000 {
            lines.write_all(&line).unwrap();
        }
        // A thousand waits would take 50 s, and without a limit the first would not end.
        assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
        let lost = lines.lost;
        assert!((900..1_000).contains(&lost), "{lost}");
        let mut read = vec![0; 32 << 10];
        reader.read_exact(&mut read).unwrap();
        lines.write_all(b"last\n").unwrap();
        drop(lines);
        let mut rest = String::new();
        reader.read_to_string(&mut rest).unwrap();
        let said = format!("({lost} log lines before this one could not be written)\nlast\n");
        assert!(rest.ends_with(&said), "{}", &rest[rest.len() - 200..]);
    }

    #[test]
    fn a_line_that_cannot_be_written_is_no_error() {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let (reader, unread) = io::pipe().unwrap();
        drop(reader);
        for mut to in [full, File::from(std::os::fd::OwnedFd::from(unread))] {
            assert!(to.write_all(b"line\n").is_err());
            let mut lines = Lines { to, format: LogFormat::Json, lost: 0 };
            lines.write_all(b"line\n").unwrap();
            lines.write_all(b"line\n").unwrap();
            assert_eq!(lines.lost, 2);
        }
    }

    #[test]
    fn a_log_file_is_set_aside_before_it_is_too_large() {
        let dir = tempfile::tempdir().unwrap();
        let (path, old) = (dir.path().join("log"), dir.path().join("log.old"));
        let mut log = LogFile::with_limit(&path, 100).unwrap();
        let line = |n: u32| format!("line {n:04} ........................\n");
        for n in 0..1_000 {
            log.write_all(line(n).as_bytes()).unwrap();
            for file in [&path, &old] {
                assert!(fs::metadata(file).map_or(0, |about| about.len()) <= 100);
            }
        }
        let text = fs::read_to_string(&old).unwrap() + &fs::read_to_string(&path).unwrap();
        assert!(text.ends_with(&(line(998) + &line(999))), "{text}");
        // The next one goes on where this one ended.
        let bytes = log.bytes;
        drop(log);
        assert_eq!(LogFile::with_limit(&path, 100).unwrap().bytes, bytes);
    }
}
