//! Files that must be whole, private or both.
//!
//! Decides how a file comes to exist (new, or replaced as a whole, in both cases durable before the
//! call returns) and who may read a secret. Refuses to know what is inside. A reader never sees
//! half a file: a replacement is written beside it and renamed.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rove_os::error::plainly;
use rove_os::plain;
use zeroize::Zeroizing;

/// Mode of a file that only its owner may read.
pub const PRIVATE: u32 = 0o600;
/// Mode of a node's directory: others may pass through it to the control socket, which then tells
/// them that it is not for them, and can neither list nor change anything.
pub const DIRECTORY: u32 = 0o711;

/// The largest file that is read into memory: a backup with many thousand peers is smaller.
pub const BYTES_MAX: u64 = 64 << 20;

/// What went wrong with a file; the message names the file and the cure.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// It is there already and would have been overwritten.
    #[error("{} exists already: remove it, or choose another directory with --dir", .0.display())]
    Exists(PathBuf),
    /// It is not there.
    #[error("{} does not exist", .0.display())]
    Missing(PathBuf),
    /// Somebody else can read or change a secret.
    #[error("{} can be read by others (mode {mode:04o}): chmod 600 {}", .path.display(),
        .path.display())]
    Exposed {
        /// The file with the secret.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is larger than anything that belongs here.
    #[error("{} is larger than {} MiB: it is no file of Rove", .0.display(), BYTES_MAX >> 20)]
    TooLarge(PathBuf),
    /// It is not text.
    #[error("{} is not UTF-8 text: it is no file of this kind", .0.display())]
    NotText(PathBuf),
    /// The user may not.
    #[error("{}: {}", .0.display(), rove_os::privileges::why_denied(.0))]
    Denied(PathBuf),
    /// The system refused.
    #[error("{}: {}", .path.display(), plainly(.cause))]
    System {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        cause: io::Error,
    },
}

impl FileError {
    /// The error of a file at `path` for which the system gave `cause`.
    pub fn system(path: &Path, cause: io::Error) -> Self {
        let path = path.to_owned();
        let kind = cause.kind();
        if kind == io::ErrorKind::AlreadyExists {
            Self::Exists(path)
        } else if kind == io::ErrorKind::NotFound {
            Self::Missing(path)
        } else if kind == io::ErrorKind::PermissionDenied {
            Self::Denied(path)
        } else {
            Self::System { path, cause }
        }
    }
}

/// Makes a node's directory, or takes one that is there.
pub fn make_directory(dir: &Path) -> Result<(), FileError> {
    let made = fs::DirBuilder::new().recursive(true).mode(DIRECTORY).create(dir);
    made.map_err(|cause| FileError::system(dir, cause))
}

/// Writes a file that must not exist yet; durable on return.
pub fn create(path: &Path, mode: u32, content: &[u8]) -> Result<(), FileError> {
    write_exclusively(path, mode, content)?;
    sync_parent(path)
}

/// Puts `content` in the place of whatever is at `path`, as a whole; durable on return. Of several
/// who do so at once the last one wins.
pub fn replace(path: &Path, mode: u32, content: &[u8]) -> Result<(), FileError> {
    /// Tells the files of one process apart; its number tells processes apart.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut beside = path.as_os_str().to_owned();
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    beside.push(format!(".new-{}-{number}", std::process::id()));
    let beside = PathBuf::from(beside);
    // A crash of one with the same number may have left it behind; nobody reads it.
    match fs::remove_file(&beside) {
        Err(cause) if cause.kind() != io::ErrorKind::NotFound => {
            return Err(FileError::system(&beside, cause));
        }
        Ok(()) | Err(_) => {}
    }
    write_exclusively(&beside, mode, content)?;
    fs::rename(&beside, path).map_err(|cause| FileError::system(path, cause))?;
    sync_parent(path)
}

fn write_exclusively(path: &Path, mode: u32, content: &[u8]) -> Result<(), FileError> {
    let failed = |cause| FileError::system(path, cause);
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = opened.map_err(failed)?;
    let written = file.write_all(content).and_then(|()| file.sync_all());
    if written.is_err() {
        // Half a file, for example on a full disk, would be taken for a damaged one.
        let _ = fs::remove_file(path);
    }
    written.map_err(failed)
}

/// Makes a change of the directory durable in which `path` lies.
pub(crate) fn sync_parent(path: &Path) -> Result<(), FileError> {
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        Some(_) | None => Path::new("."),
    };
    let sync = || File::open(parent)?.sync_all();
    sync().map_err(|cause| FileError::system(parent, cause))
}

/// Reads a whole text file.
pub fn read_text(path: &Path) -> Result<String, FileError> {
    let file = plain::open_followed(path, OpenOptions::new().read(true));
    let text = read_bounded(path, file.map_err(|cause| FileError::system(path, cause))?)?;
    String::from_utf8(text.to_vec()).map_err(|_| FileError::NotText(path.to_owned()))
}

/// Reads a secret, wiped when dropped, unless anybody but its owner could read it too.
pub fn read_secret(path: &Path) -> Result<Zeroizing<Vec<u8>>, FileError> {
    let file = plain::open(path, OpenOptions::new().read(true));
    read_open_secret(path, file.map_err(|cause| FileError::system(path, cause))?)
}

/// Opens a file that root owns, if this process is root and the file is there.
pub fn open_root_s(path: &Path) -> Result<Option<File>, FileError> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let file = match plain::open(path, OpenOptions::new().read(true)) {
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened.map_err(|cause| FileError::system(path, cause))?,
    };
    let metadata = file.metadata().map_err(|cause| FileError::system(path, cause))?;
    Ok((metadata.uid() == 0).then_some(file))
}

/// The same of a file that was opened at `path`.
pub fn read_open_secret(path: &Path, file: File) -> Result<Zeroizing<Vec<u8>>, FileError> {
    let metadata = file.metadata().map_err(|cause| FileError::system(path, cause))?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(FileError::Exposed { path: path.to_owned(), mode });
    }
    read_bounded(path, file)
}

fn read_bounded(path: &Path, file: File) -> Result<Zeroizing<Vec<u8>>, FileError> {
    let mut content = Zeroizing::new(Vec::new());
    let read = file.take(BYTES_MAX + 1).read_to_end(&mut content);
    read.map_err(|cause| FileError::system(path, cause))?;
    if content.len() as u64 > BYTES_MAX {
        return Err(FileError::TooLarge(path.to_owned()));
    }
    Ok(content)
}

#[cfg(test)]
#[path = "files_tests.rs"]
mod tests;
