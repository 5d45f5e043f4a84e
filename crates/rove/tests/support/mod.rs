//! What the integration tests share: running the real binary, and comparing with golden files.

#![allow(dead_code, reason = "each test program uses its own part")]

pub(crate) mod capture;
pub(crate) mod managers;
pub(crate) mod names;
pub(crate) mod netns;

use std::ffi::OsStr;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// What a command printed and how it ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// What it printed, having succeeded.
    #[track_caller]
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "stdout: {}stderr: {}", self.out, self.err);
        self.out
    }

    /// Its one line of error, having failed.
    #[track_caller]
    pub(crate) fn fails(self) -> String {
        assert_eq!(self.code, Some(1), "stdout: {}stderr: {}", self.out, self.err);
        assert_eq!(self.err.lines().count(), 1, "one line names cause and cure: {}", self.err);
        assert!(self.err.starts_with("rove: "), "{}", self.err);
        self.err.trim_end().to_owned()
    }
}

/// The binary under test.
pub(crate) fn binary() -> &'static str {
    env!("CARGO_BIN_EXE_rove")
}

/// Runs the binary.
pub(crate) fn rove<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    let mut command = Command::new(binary());
    command.args(arguments).stdin(Stdio::null()).env_remove("NOTIFY_SOCKET").env_remove("COLUMNS");
    Ran::of(command.output().unwrap())
}

/// Runs `rove ... --dir DIR`, the arguments separated by spaces.
pub(crate) fn rove_in(dir: &Path, line: &str) -> Ran {
    let arguments = line.split_whitespace().map(OsStr::new);
    rove(arguments.chain([OsStr::new("--dir"), dir.as_os_str()]))
}

/// The same, with something on its standard input.
pub(crate) fn rove_with(dir: &Path, line: &str, input: impl AsRef<[u8]>) -> Ran {
    let mut command = Command::new(binary());
    command.args(line.split_whitespace()).arg("--dir").arg(dir).stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // One that needs none may have ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_ref());
    Ran::of(child.wait_with_output().unwrap())
}

/// Makes a gateway in `dir`.
pub(crate) fn init(dir: &Path) {
    let line = "gateway init --endpoint vpn.example.org:4500 --network 10.77.0.0/24,fd77::/64";
    rove_in(dir, line).ok();
}

/// Compares with `tests/golden/NAME`. `ROVE_BLESS=1` writes it instead.
#[track_caller]
pub(crate) fn golden(name: &str, text: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    if std::env::var_os("ROVE_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name} differs: look at it, then run with ROVE_BLESS=1");
}
