//! Firewall tables, through the program `nft`: the ruleset of a gateway and the kill switch.
//!
//! Each is one table of ours. It is replaced as a whole within one transaction, so there is no
//! moment without it, and connection tracking is not touched: what is established stays so.
//! Tables of others are never changed; a base chain elsewhere that drops still drops.
//!
//! Only [`crate::plan`] uses it. Why a program and not netlink: nftables' wire format is the
//! business of its library, and `nft` is on every host that filters packets at all.

mod client;
mod gateway;
mod ruleset;

use std::{
    io::{self, Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::{
    error::Error,
    plan::{GATEWAY_TABLE, GATEWAY_TABLE_BEFORE, Gate, Opening},
};

/// How long a transaction may take. A busy machine needs some 10 ms.
const TIME_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(2);
/// Bytes that are kept of what nft says; its errors repeat our whole ruleset.
const SAID_MAX: usize = 200;
/// Where nft is, if not in PATH: a service's PATH often has no sbin.
const PROGRAMS: [&str; 3] = ["nft", "/usr/sbin/nft", "/sbin/nft"];

const GATEWAY: &str = "the gateway's firewall";
const KILL_SWITCH: &str = "the kill switch";

/// Puts the ruleset of a gateway in place of an earlier one, also of one that an earlier version
/// called otherwise.
pub(crate) fn install_gateway(gate: &Gate) -> Result<(), Error> {
    let mut commands = ruleset::remove(GATEWAY_TABLE_BEFORE);
    commands.extend(gateway::gateway(gate));
    run(GATEWAY, commands)?;
    unless_unknown(run(GATEWAY, gateway::arp(gate)))
}

/// Removes the ruleset of a gateway, if there is one.
pub(crate) fn remove_gateway() -> Result<(), Error> {
    unless_unknown(run(GATEWAY, gateway::remove_arp()))?;
    remove(GATEWAY, GATEWAY_TABLE_BEFORE)?;
    remove(GATEWAY, GATEWAY_TABLE)
}

/// A kernel may be without a filter for ARP: then it has no such table, and answers.
fn unless_unknown(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(Error::NftRefused { .. } | Error::NftMissing { .. }) => Ok(()),
        result => result,
    }
}

/// Puts the kill switch in place of an earlier one.
pub(crate) fn install_kill_switch(opening: &Opening) -> Result<(), Error> {
    run(KILL_SWITCH, client::kill_switch(opening))
}

/// Removes the kill switch, if there is one.
pub(crate) fn remove_kill_switch() -> Result<(), Error> {
    remove(KILL_SWITCH, crate::plan::KILL_SWITCH_TABLE)
}

fn remove(what: &'static str, table: &str) -> Result<(), Error> {
    match run(what, ruleset::remove(table)) {
        // Without nft there is no table of ours either, unless it was uninstalled since; a
        // kill switch, which would cut off the host, is worth an error then.
        Err(Error::NftMissing { .. }) if what == GATEWAY => Ok(()),
        result => result,
    }
}

fn run(what: &'static str, commands: Vec<Value>) -> Result<(), Error> {
    let text = serde_json::json!({ "nftables": commands }).to_string();
    let mut child = start(what)?;
    let fed = feed(&mut child, text);
    let said = drain(&mut child);
    let status = wait(&mut child).map_err(|error| Error::os(format!("run nft for {what}"), error));
    let said = said.join().unwrap_or_default();
    let _ = fed.join();
    match status? {
        Some(status) if status.success() => Ok(()),
        Some(_) => Err(Error::NftRefused { what, said: first_line(&said) }),
        None => Err(Error::NftSilent { what, seconds: TIME_MAX.as_secs() }),
    }
}

fn start(what: &'static str) -> Result<Child, Error> {
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command
            .args(["-j", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        die_with_us(&mut command);
        match command.spawn() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            result => return result.map_err(|error| Error::os(format!("start {program}"), error)),
        }
    }
    Err(Error::NftMissing { what })
}

/// Lets the kernel end nft when this thread ends: what a killed process had begun must not come
/// into force after the next one has swept.
fn die_with_us(command: &mut Command) {
    let parent = std::process::id();
    // SAFETY: between fork and exec only system calls are made, and no memory is touched.
    unsafe {
        command.pre_exec(move || {
            let kill = libc::SIGKILL as libc::c_ulong;
            if libc::prctl(libc::PR_SET_PDEATHSIG, kill) != 0 {
                return Err(io::Error::last_os_error());
            }
            // We may have died before the kernel was asked.
            let orphaned = libc::getppid().cast_unsigned() != parent;
            if orphaned { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) }
        });
    }
}

/// Writes the ruleset from a thread, as nft may stop reading it and start to complain.
fn feed(child: &mut Child, text: String) -> thread::JoinHandle<()> {
    let stdin = child.stdin.take();
    thread::spawn(move || {
        if let Some(mut stdin) = stdin {
            // When nft went away its exit status tells why.
            let _ = stdin.write_all(text.as_bytes());
        }
    })
}

fn drain(child: &mut Child) -> thread::JoinHandle<String> {
    let stderr = child.stderr.take();
    thread::spawn(move || {
        let mut said = Vec::new();
        if let Some(mut stderr) = stderr {
            let _ = stderr.by_ref().take(SAID_MAX as u64).read_to_end(&mut said);
            let _ = io::copy(&mut stderr, &mut io::sink());
        }
        String::from_utf8_lossy(&said).into_owned()
    })
}

/// Waits for the end; `None` if it did not come in time and was brought about.
fn wait(child: &mut Child) -> io::Result<Option<std::process::ExitStatus>> {
    let started = Instant::now();
    while started.elapsed() < TIME_MAX {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        thread::sleep(POLL);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

fn first_line(said: &str) -> String {
    let line = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("no reason");
    line.trim_start_matches("internal:0:0-0: ").trim_start_matches("Error: ").to_owned()
}
