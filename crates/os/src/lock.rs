//! One process per directory.

use std::{
    fs::{File, OpenOptions, TryLockError},
    io::{Read as _, Seek as _, Write as _},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::Duration,
};

use crate::{error::Error, plain};

const FILE: &str = "lock";
/// How often, and how long apart, a lock is tried again that another process holds.
const DYING_TRIES: u32 = 20;
const DYING_PAUSE: Duration = Duration::from_millis(20);
/// Bytes of a process number and a line end, generously.
const PID_LEN_MAX: u64 = 16;

/// The right to be the one process that uses a directory; it ends when dropped, or with the
/// process, however that ends (flock(2)). The file itself stays.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Lock {
    /// Takes the lock of `dir`, which must exist.
    ///
    /// # Errors
    /// [`Error::SecondInstance`] when another process has it, with its number; [`Error::Os`].
    pub fn take(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(FILE);
        let failed = |error| Error::os(format!("lock {}", path.display()), error);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = match plain::open(&path, &mut options) {
            // A lock needs no writing, and what a node left has to go from such a host, too.
            Err(error) if error.raw_os_error() == Some(libc::EROFS) => {
                plain::open(&path, OpenOptions::new().read(true)).map_err(|_| failed(error))?
            }
            opened => opened.map_err(failed)?,
        };
        // A process that was killed keeps its lock until the kernel has taken it apart, and so does
        // a child that it was just starting.
        let mut locked = file.try_lock();
        for _ in 0..DYING_TRIES {
            if !matches!(locked, Err(TryLockError::WouldBlock)) {
                break;
            }
            std::thread::sleep(DYING_PAUSE);
            locked = file.try_lock();
        }
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(Error::SecondInstance { dir: dir.to_owned(), pid: holder(&file) });
            }
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let write = |file: &mut File| {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())
        };
        // The number is only for people, and a full disk takes none: the lock holds without it.
        let _ = write(&mut file);
        Ok(Self { _file: file })
    }
}

/// The process that wrote itself into the file.
fn holder(file: &File) -> String {
    let mut text = String::new();
    let read = file.take(PID_LEN_MAX).read_to_string(&mut text);
    match text.trim() {
        pid if read.is_ok() && !pid.is_empty() && pid.bytes().all(|b| b.is_ascii_digit()) => {
            pid.to_owned()
        }
        _ => "unknown".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::Lock;
    use crate::error::Error;

    #[test]
    fn the_second_is_told_who_is_the_first_and_may_follow_it() {
        let dir = tempfile::tempdir().unwrap();
        let first = Lock::take(dir.path()).unwrap();
        let error = Lock::take(dir.path()).unwrap_err();
        let own = std::process::id().to_string();
        assert!(matches!(error, Error::SecondInstance { ref pid, .. } if *pid == own), "{error}");
        assert!(error.to_string().contains("--dir"));
        drop(first);
        Lock::take(dir.path()).unwrap();
    }

    #[test]
    fn a_strange_file_names_nobody() {
        let dir = tempfile::tempdir().unwrap();
        let first = Lock::take(dir.path()).unwrap();
        std::fs::write(dir.path().join("lock"), "rm -rf /\n\u{1b}[2J").unwrap();
        let error = Lock::take(dir.path()).unwrap_err();
        assert!(matches!(error, Error::SecondInstance { ref pid, .. } if pid == "unknown"));
        drop(first);
    }
}
