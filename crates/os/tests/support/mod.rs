//! A namespace for every test: each test of a `netns_*` file runs its body in a copy of the test
//! program that was started inside fresh user, network and mount namespaces. So the tests need no
//! root, see an empty network, and leave nothing behind.

#![allow(dead_code)]

pub(crate) mod capture;
pub(crate) mod net;
pub(crate) mod streams;

use std::{
    ffi::CString,
    io::{self, Write as _},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
};

/// Says which test the copy is to run.
const INSIDE: &str = "ROVE_OS_TEST_INSIDE";
/// What a copy exits with when it had to skip.
const EXIT_SKIPPED: i32 = 77;

/// Prints why a test cannot run here; fails it where everything must run.
pub(crate) fn skip(what: &str, why: &str) {
    tell(&format!("SKIP {what}: {why}"));
    assert!(
        std::env::var("ROVE_TEST_REQUIRE").as_deref() != Ok("all"),
        "{what} was skipped although ROVE_TEST_REQUIRE=all: {why}"
    );
}

/// Says something past the test runner's capture, which hides what a passing test prints.
fn tell(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Skips from inside a namespace.
pub(crate) fn skip_inside(what: &str, why: &str) -> ! {
    skip(what, why);
    std::process::exit(EXIT_SKIPPED);
}

/// Runs `body` in namespaces of its own. `name` is the name of the calling test.
pub(crate) fn in_namespace(name: &str, body: fn()) {
    run_in(name, enter_namespaces, body);
}

/// Runs `body` as root in a network of its own, with all users there are. Skipped without root.
pub(crate) fn in_network_of_root(name: &str, body: fn()) {
    // SAFETY: the call has no arguments and cannot fail.
    if unsafe { libc::getuid() } != 0 {
        return skip(name, "other users can be played by root only");
    }
    run_in(name, enter_network, body);
}

fn run_in(name: &str, enter: fn(&mut Command), body: fn()) {
    if std::env::var(INSIDE).as_deref() == Ok(name) {
        net::up("lo");
        body();
        return;
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]).env(INSIDE, name);
    enter(&mut command);
    let output = match command.stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) => return skip(name, &format!("namespaces are refused: {error}")),
    };
    let said =
        [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    // What its own harness says is said again outside, and would be counted twice.
    let of_harness = ["running 1 test", "test result: ", &format!("test {name} ... ")];
    for line in said.iter().flat_map(|text| text.lines()) {
        match line.find("SKIP ") {
            Some(at) => tell(&line[at..]),
            None if of_harness.iter().any(|known| line.starts_with(known)) => {}
            None => eprintln!("{line}"),
        }
    }
    if output.status.code() == Some(EXIT_SKIPPED) {
        return;
    }
    assert!(output.status.success(), "{name} failed inside its namespace: {}", output.status);
    assert!(said[0].contains("1 passed"), "{name} ran no test inside its namespace");
}

/// Makes the command start in fresh user, network and mount namespaces, as root of them.
pub(crate) fn enter_namespaces(command: &mut Command) {
    // SAFETY: both only read the ids of the process.
    let (user, group) = unsafe { (libc::getuid(), libc::getgid()) };
    let maps = [
        ("/proc/self/setgroups", "deny".to_owned()),
        ("/proc/self/uid_map", format!("0 {user} 1")),
        ("/proc/self/gid_map", format!("0 {group} 1")),
    ]
    .map(|(path, text)| (CString::new(path).unwrap(), text));
    // SAFETY: between fork and exec only system calls are made, on memory allocated before.
    unsafe {
        command.pre_exec(move || {
            let flags = libc::CLONE_NEWUSER | libc::CLONE_NEWNET | libc::CLONE_NEWNS;
            check(libc::unshare(flags))?;
            for (path, text) in &maps {
                let fd = libc::open(path.as_ptr(), libc::O_WRONLY | libc::O_CLOEXEC);
                check(fd)?;
                check(libc::write(fd, text.as_ptr().cast(), text.len()) as libc::c_int)?;
                check(libc::close(fd))?;
            }
            Ok(())
        });
    }
}

fn enter_network(command: &mut Command) {
    // SAFETY: between fork and exec only a system call is made.
    unsafe { command.pre_exec(|| check(libc::unshare(libc::CLONE_NEWNET))) };
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether a program is installed.
pub(crate) fn has_program(name: &str) -> bool {
    let system = ["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from);
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(system).any(|dir| dir.join(name).is_file())
}

/// Opens a TUN for a test, or skips it where the device cannot be opened.
pub(crate) fn tun(what: &str, options: rove_os::tun::TunOptions<'_>) -> rove_os::tun::Tun {
    use rove_os::error::Error;
    match rove_os::tun::Tun::open(options) {
        Ok(tun) => tun,
        Err(
            error @ (Error::NoTunDevice | Error::FileDenied { .. } | Error::NoPrivilege { .. }),
        ) => skip_inside(what, &error.to_string()),
        Err(error) => panic!("{error}"),
    }
}

/// Puts an empty file system over a directory, in this namespace alone.
pub(crate) fn hide(dir: &str) {
    let dir = CString::new(dir).unwrap();
    // SAFETY: all arguments are strings that end with NUL, or null, and live through the call.
    let result = unsafe {
        libc::mount(c"none".as_ptr(), dir.as_ptr(), c"tmpfs".as_ptr(), 0, std::ptr::null())
    };
    assert_eq!(result, 0, "{}", io::Error::last_os_error());
}

/// Runs `body` in a copy of this process that has one thread, which a test by itself never has.
pub(crate) fn in_fork(body: fn()) {
    // SAFETY: the other threads of the process wait; none holds a lock that the copy needs.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "{}", io::Error::last_os_error());
    if pid == 0 {
        let failed = std::panic::catch_unwind(body).is_err();
        // SAFETY: ends the copy without running what belongs to the original.
        unsafe { libc::_exit(libc::c_int::from(failed)) };
    }
    let mut status = 0;
    // SAFETY: the status lives through the call.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    if libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == EXIT_SKIPPED {
        std::process::exit(EXIT_SKIPPED);
    }
    assert_eq!(status, 0, "failed in the copy of the process");
}
