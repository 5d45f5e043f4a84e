//! The binary under test, and proof of which one it was.

use anyhow::{Context as _, bail};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// How many directories above the lab's own binary, or a test's, a cargo profile's directory may
/// be.
const PROFILE_DEPTH: usize = 4;
/// The file that cargo keeps in the directory of every profile that it builds. `CACHEDIR.TAG` would
/// not do, because cargo writes it only if it creates the target directory itself.
const PROFILE_MARK: &str = ".cargo-lock";

/// A `rove` binary.
#[derive(Clone, Debug)]
pub struct Binary {
    /// Where it lies.
    pub path: PathBuf,
    /// What it calls itself.
    pub version: String,
    /// SHA-256 of the file, in lowercase hexadecimal.
    pub sha256: String,
}

/// How it is built from a checkout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// Optimised: for every figure of a scenario.
    Lab,
    /// Quickly: for tests of the lab itself, which judge no figure.
    Dev,
}

impl Binary {
    /// The binary that belongs to this lab: in a checkout it is built, so that it is that of the
    /// sources at hand; an installed lab takes the one beside itself.
    ///
    /// # Errors
    /// When it cannot be built or is not there.
    pub fn of_this_lab(profile: Profile) -> anyhow::Result<Self> {
        let lab = std::env::current_exe().context("cannot find out where this lab lies")?;
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let built = lab.ancestors().take(PROFILE_DEPTH).any(|dir| dir.join(PROFILE_MARK).exists());
        if built && checkout.join("crates/rove/Cargo.toml").exists() {
            return Self::at(&build(&checkout, profile)?);
        }
        let beside = lab.with_file_name("rove");
        if !beside.exists() {
            bail!("there is no rove beside {}; install it there", lab.display());
        }
        Self::at(&beside)
    }

    /// The binary at a path.
    ///
    /// # Errors
    /// When it cannot be read or run.
    pub fn at(path: &Path) -> anyhow::Result<Self> {
        let path = path.canonicalize().with_context(|| format!("no rove at {}", path.display()))?;
        let sha256 = sha256(&path)?;
        let said = Command::new(&path)
            .arg("--version")
            .output()
            .with_context(|| format!("cannot run {}", path.display()))?;
        // "rove 0.1.0"
        let version = String::from_utf8_lossy(&said.stdout);
        let version = version.split_whitespace().last().unwrap_or("unknown").to_owned();
        Ok(Self { path, version, sha256 })
    }
}

/// SHA-256 of a file, in lowercase hexadecimal.
///
/// # Errors
/// When it cannot be read.
pub(super) fn sha256(path: &Path) -> anyhow::Result<String> {
    let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    let mut hash = Sha256::new();
    std::io::copy(&mut file, &mut hash)?;
    Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Builds the binary and asks cargo where it lies.
fn build(checkout: &Path, profile: Profile) -> anyhow::Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(checkout)
        .args(["build", "--bin", "rove", "--message-format=json-render-diagnostics"])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit());
    // Where this is a test: there are build scripts that ask for these, and run again for others.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(name);
        }
    }
    if profile == Profile::Lab {
        command.args(["--profile", "lab"]);
    }
    let output = command.output().context("cannot run cargo; install a Rust toolchain")?;
    if !output.status.success() {
        bail!("rove does not build; see above");
    }
    let messages = String::from_utf8_lossy(&output.stdout);
    let executable = messages.lines().find_map(|line| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_rove = message.get("target")?.get("name")? == "rove";
        let path = message.get("executable")?.as_str()?;
        is_rove.then(|| PathBuf::from(path))
    });
    executable.context("cargo built rove but did not say where")
}
