//! Logs: to standard error, as text or JSON; of a background process to a file that is bounded.
//! Addresses and names appear at `debug`, secrets never.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rove_os::plain;
use tracing::level_filters::LevelFilter;

use crate::config::{LogConfig, LogFormat, LogLevel};

/// A log file is set aside, in the place of the last one that was, when it would become larger.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Starts logging to standard error, once per process.
pub fn start(config: LogConfig, format: Option<LogFormat>) {
    let ansi = io::stderr().is_terminal();
    let builder = tracing_subscriber::fmt().with_max_level(level(config)).with_target(false);
    let builder = builder.with_writer(io::stderr).with_ansi(ansi);
    let started = match format.unwrap_or(config.format) {
        LogFormat::Text => builder.compact().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    // A second start changes nothing, which is what a second start should do.
    drop(started);
}

/// Starts logging to `file`, which takes the place of standard error.
pub fn start_in(file: LogFile, config: LogConfig, format: Option<LogFormat>) {
    let builder = tracing_subscriber::fmt().with_max_level(level(config)).with_target(false);
    let builder = builder.with_writer(Mutex::new(file)).with_ansi(false);
    let started = match format.unwrap_or(config.format) {
        LogFormat::Text => builder.compact().try_init(),
        LogFormat::Json => builder.json().flatten_event(true).try_init(),
    };
    drop(started);
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
    use super::*;

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
