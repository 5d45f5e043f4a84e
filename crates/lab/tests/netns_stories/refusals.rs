//! What the lab says where something is refused, and what it does without.

use crate::support::{LAB, skip, text, turn};
use std::path::Path;
use std::process::{Command, Output};

/// Runs a command of the lab where the device is there and may not be opened.
fn without_the_device(command: &str) -> std::io::Result<Output> {
    let forbidden = std::env::temp_dir().join(format!("rove-lab-test-{}", std::process::id()));
    std::fs::create_dir(&forbidden)?;
    // The user nobody may not be able to reach the binary where it was built.
    let copy = forbidden.join("rove-lab");
    std::fs::copy(LAB, &copy)?;
    // To root of the machine everything opens, so root becomes nobody. Whoever else makes a
    // namespace is root in it, but not over what is root's outside.
    let (unshare, hide, run) = if rustix::process::getuid().is_root() {
        let file = forbidden.join("tun");
        std::fs::write(&file, "")?;
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        (&["-m"][..], file, "exec setpriv --reuid=65534 --clear-groups \"$2\" \"$3\"")
    } else {
        (&["-U", "-r", "-m"][..], Path::new("/etc/shadow").into(), "exec \"$2\" \"$3\"")
    };
    let script = format!("mount --bind \"$1\" /dev/net/tun && {run}");
    let output = Command::new("unshare")
        .args(unshare)
        .args(["sh", "-c", &script, "sh"])
        .args([&hide, &copy])
        .arg(command)
        .output();
    std::fs::remove_dir_all(&forbidden)?;
    output
}

#[test]
fn a_refused_device_is_named_with_its_cure() {
    let Some(_turn) = turn() else { return };
    let output = match without_the_device("probe") {
        Ok(output) => output,
        Err(error) => return skip("unshare", &format!("the program cannot be used: {error}")),
    };
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("/dev/net/tun may not be opened"), "{said}");
    assert!(said.contains("sudo chmod 666 /dev/net/tun"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

/// Refuses the lab its namespaces in a session of its own: nobody may make a user namespace whose
/// root directory is not the machine's (user_namespaces(7)). Says what the session's weight in the
/// scheduler was, before and after.
fn refuse_in_a_session_of_its_own() -> std::io::Result<Output> {
    const SCRIPT: &str = "cat /proc/self/autogroup
        mount --rbind / \"$1\" && chroot \"$1\" \"$2\" probe
        echo $?
        cat /proc/self/autogroup";
    let root = std::env::temp_dir().join(format!("rove-lab-root-{}", std::process::id()));
    std::fs::create_dir(&root)?;
    let as_root: &[&str] =
        if rustix::process::getuid().is_root() { &["-m"] } else { &["-U", "-r", "-m"] };
    let output = Command::new("setsid")
        .args(["-w", "unshare"])
        .args(as_root)
        .args(["sh", "-c", SCRIPT, "sh"])
        .args([&root, Path::new(LAB)])
        .output();
    std::fs::remove_dir(&root)?;
    output
}

#[test]
fn a_refusal_gives_the_sessions_weight_back() {
    let Some(_turn) = turn() else { return };
    let output = match refuse_in_a_session_of_its_own() {
        Ok(output) => output,
        Err(error) => return skip("setsid", &format!("the program cannot be used: {error}")),
    };
    let said = text(&output.stdout);
    assert!(text(&output.stderr).contains("refuses user namespaces"), "{output:?}");
    let lines: Vec<&str> = said.lines().collect();
    // A kernel without autogroups has no weight to lose, and says nothing of it.
    match lines.as_slice() {
        [before, status, after] => assert_eq!((*status, before), ("3", after)),
        other => assert_eq!(other, ["3"], "{output:?}"),
    }
}

#[test]
fn without_namespaces_the_demonstration_is_simulated() {
    let Some(_turn) = turn() else { return };
    let output = match without_the_device("demo") {
        Ok(output) => output,
        Err(error) => return skip("unshare", &format!("the program cannot be used: {error}")),
    };
    assert!(text(&output.stderr).contains("/dev/net/tun may not be opened"), "{output:?}");
    let shown = text(&output.stdout);
    assert!(output.status.success(), "{shown}");
    for part in ["(simulated)", "of 30.0 MB", "leaves home for the cafe", "never noticed"] {
        assert!(shown.contains(part), "{part} is missing:\n{shown}");
    }
    // Nothing is shown that is not there.
    for part in ["192.0.2.2", "sha-256"] {
        assert!(!shown.contains(part), "{part}:\n{shown}");
    }
}
