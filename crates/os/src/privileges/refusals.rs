//! Why the kernel refuses something to this process, and the cure, as text for people.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path};

use super::capabilities::may_configure;

/// The cure for a refusal of the kernel, behind "no permission to ...".
pub(crate) fn cure_of_refusal() -> &'static str {
    if may_configure() {
        ", although this process has CAP_NET_ADMIN: a container or a security module (SELinux, \
         AppArmor) forbids it"
    } else {
        ": run as root, or grant CAP_NET_ADMIN to this program"
    }
}

/// Why this process may not open a file, and the cure. A node that root started cannot open every
/// file: it has given up that right.
pub fn why_denied(path: &Path) -> String {
    // SAFETY: reads the user of the process.
    let user = unsafe { libc::geteuid() };
    if user != 0 && !may_configure() {
        return "permission denied: run as root".to_owned();
    }
    let about = fs::metadata(path);
    let path = path.display();
    match about {
        Ok(about) if about.mode() & 0o400 == 0 => format!(
            "permission denied (mode {:03o}): let its owner read it with `chmod u+rw {path}`",
            about.mode() & 0o777
        ),
        Ok(about) if ![0, user].contains(&about.uid()) => format!(
            "permission denied: it belongs to the user {}, and the node runs as the user {user}: \
             `chown root {path}`, and start again",
            about.uid()
        ),
        Ok(_) | Err(_) => format!(
            "permission denied for the user {user}: check the mode of {path} and of the \
             directories above it, and security modules (SELinux, AppArmor)"
        ),
    }
}
