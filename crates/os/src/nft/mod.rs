//! Firewall tables, through the program `nft`: the ruleset of a gateway, the guard and the kill
//! switch of a client.
//!
//! Each has its own table, and the guard has a second one for ARP. A table is replaced as a whole
//! in one transaction, so it is never missing. The guard's sets that packets fill stay. Connection
//! tracking is not changed, so established connections stay established. Rove never changes tables
//! of other programs; a base chain of theirs that drops packets still drops them.
//!
//! Only [`crate::plan`], [`crate::probe`] and [`crate::conntrack`] use this module. It runs the
//! program and does not speak netlink because only nftables' own library defines the wire format,
//! and every host that filters packets has `nft`.

mod begun;
mod client;
mod gateway;
mod listing;
mod marks;
mod packets;
mod ruleset;

use std::{
    collections::BTreeMap,
    env, fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io::{self, Read, Write as _},
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

pub(crate) use self::listing::{entries, has_key, text};
pub(crate) use self::marks::Marked;
pub(crate) use self::ruleset::{Table, drop, equals, meta, payload, remove as remove_table};
use self::{gateway::Counts, packets::Sockets, ruleset::FilledSet};
use crate::{
    error::Error,
    plan::{
        Flows, GATEWAY_TABLE, GATEWAY_TABLE_BEFORE, GUARD_TABLE, Gate, GuardRules, Opening,
        PROBE_TABLE,
    },
};

/// How long a transaction may take. A busy machine needs some 10 ms.
const TIME_MAX: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(2);
/// Bytes that are kept of what nft says; its errors repeat our whole ruleset.
const SAID_MAX: u64 = 200;
/// Bytes of a table's listing. A table with as many networks as a plan may have stays below.
const LISTING_MAX: u64 = 4 << 20;
/// Networks of a set in one transaction, where the kernel refuses more. Each takes 64 bytes (IPv4)
/// or 88 bytes (IPv6) of a socket's usual send buffer of 208 KiB (`net.core.wmem_default`). Half as
/// many would double the time, as nft reads the whole set for each part.
const SET_PART_MAX: usize = 2_000;
/// Where nft is, if not in PATH: a service's PATH often has no sbin.
const PROGRAMS: [&str; 3] = ["nft", "/usr/sbin/nft", "/sbin/nft"];

const GATEWAY: &str = "the gateway's firewall";
const KILL_SWITCH: &str = "the kill switch";
pub(crate) const GUARD: &str = "the guard";

/// Installs the ruleset of a gateway in place of an earlier one, also if an earlier version gave it
/// another name.
pub(crate) fn install_gateway(gate: &Gate) -> Result<(), Error> {
    let install = |gate: &Gate, counts| {
        let commands = ruleset::remove(GATEWAY_TABLE_BEFORE);
        run(GATEWAY, [commands, marked(gateway::gateway(gate, counts))].concat())
    };
    let mut installed = install(gate, Counts::InParts);
    if gate.share.is_some() && matches!(installed, Err(Error::NftRefused { .. })) {
        installed = install(gate, Counts::Whole);
    }
    match installed {
        // A kernel without `ct count`. The gateway's status says that the limits are missing.
        Err(Error::NftRefused { .. }) if gate.share.is_some() => {
            install(&Gate { share: None, ..gate.clone() }, Counts::Whole)?;
        }
        result => result?,
    }
    unless_unknown(run(GATEWAY, gateway::arp(gate)))
}

/// Removes the ruleset of a gateway, if there is one.
pub(crate) fn remove_gateway() -> Result<(), Error> {
    // A process that died during a probe left its table.
    remove(GATEWAY, PROBE_TABLE)?;
    unless_unknown(run(GATEWAY, gateway::remove_arp()))?;
    remove(GATEWAY, GATEWAY_TABLE_BEFORE)?;
    remove(GATEWAY, GATEWAY_TABLE)
}

/// Accepts that a kernel has no ARP filter: then there is no such table, and the kernel answers
/// ARP.
fn unless_unknown(result: Result<(), Error>) -> Result<(), Error> {
    match result {
        Err(error) if error.is_of_packet_filter() => Ok(()),
        result => result,
    }
}

/// Puts the kill switch in place of an earlier one.
pub(crate) fn install_kill_switch(opening: &Opening) -> Result<(), Error> {
    with_sockets(|sockets| {
        let (commands, sets) = client::kill_switch(opening, sockets);
        run_with_sets(KILL_SWITCH, commands, &sets)
    })
}

/// Installs rules that look up sockets, or else, on a kernel that cannot do that, those without.
fn with_sockets(install: impl Fn(Sockets) -> Result<(), Error>) -> Result<(), Error> {
    match install(Sockets::Matched) {
        Err(Error::NftRefused { .. }) => install(Sockets::Unknown),
        result => result,
    }
}

/// Removes the kill switch, if there is one.
pub(crate) fn remove_kill_switch() -> Result<(), Error> {
    remove(KILL_SWITCH, crate::plan::KILL_SWITCH_TABLE)
}

/// Installs the guard in place of an earlier one, whose sets that packets fill stay. `flows` are
/// those from before it.
pub(crate) fn install_guard(guard: &GuardRules, flows: Option<&Flows>) -> Result<(), Error> {
    let standing = list("inet", GUARD_TABLE, Sets::Left).unwrap_or_default();
    let install = |standing: &Value| {
        with_sockets(|sockets| {
            let (commands, sets) = client::guard(guard, flows, sockets);
            run_with_sets(GUARD, ruleset::keep_filled(commands, standing), &sets)
        })
    };
    match install(&standing) {
        // Another program has changed it meanwhile, or in a way that only a new table undoes.
        Err(Error::NftRefused { .. }) if !standing.is_null() => install(&Value::Null)?,
        result => result?,
    }
    unless_unknown(run(GUARD, client::arp(guard)))
}

/// Lets packets to the tunnel's destinations leave on other links. The rest of the guard stays, so
/// none leaves with the tunnel's own addresses.
pub(crate) fn ease_guard() -> Result<(), Error> {
    run(GUARD, client::ease_guard())
}

/// Removes the guard, if there is one.
pub(crate) fn remove_guard() -> Result<(), Error> {
    unless_unknown(run(GUARD, client::remove_arp()))?;
    remove(GUARD, GUARD_TABLE)
}

/// Checks that the program `nft` exists and may be executed, without starting it.
///
/// # Errors
/// [`Error::NftMissing`] or [`Error::NftUnusable`].
pub(crate) fn check(what: &'static str) -> Result<(), Error> {
    let path = env::var_os("PATH").unwrap_or_default();
    let in_path = env::split_paths(&path).map(|dir| dir.join(PROGRAMS[0]));
    let known = in_path.chain(PROGRAMS[1..].iter().map(PathBuf::from));
    find(what, known, |program| fs::metadata(program))
}

/// Looks for an nft that may be executed. A file that nobody can see, as in a directory that may
/// not be entered, is none to name: PATH often has such directories.
fn find(
    what: &'static str,
    known: impl Iterator<Item = PathBuf>,
    about: impl Fn(&Path) -> io::Result<fs::Metadata>,
) -> Result<(), Error> {
    let mut unusable = None;
    for program in known {
        match about(&program) {
            Ok(about) if about.is_file() && about.mode() & 0o111 != 0 => return Ok(()),
            Ok(about) if about.is_file() => unusable = unusable.or(Some(program)),
            Ok(_) | Err(_) => {}
        }
    }
    let Some(program) = unusable else { return Err(Error::NftMissing { what }) };
    let (program, why) = (program.display().to_string(), "it is not executable".to_owned());
    Err(Error::NftUnusable { what, program, why })
}

fn remove(what: &'static str, table: &str) -> Result<(), Error> {
    match run(what, ruleset::remove(table)) {
        // Without nft there is no table of ours either, unless it was uninstalled since; a
        // kill switch, which would cut off the host, is worth an error then.
        Err(Error::NftMissing { .. }) if what == GATEWAY => Ok(()),
        result => result,
    }
}

/// Writes a mark of the whole ruleset into the comment of its first rule.
fn marked(mut commands: Vec<Value>) -> Vec<Value> {
    let mark = mark(&commands);
    let rule = commands.iter_mut().find_map(|command| command.pointer_mut("/add/rule"));
    if let Some(Value::Object(rule)) = rule {
        rule.insert("comment".to_owned(), mark.into());
    }
    commands
}

/// A text that another ruleset does not have, nor that of another version of this program.
fn mark(commands: &[Value]) -> String {
    let mut hasher = DefaultHasher::new();
    commands.iter().for_each(|command| command.to_string().hash(&mut hasher));
    format!("rove {:016x}", hasher.finish())
}

/// Whether the kernel has the ruleset that [`install_gateway`] sets for `gate`: its mark, as many
/// rules, and no ruleset of an earlier version. Single rules are not compared, because the kernel
/// lists them in another form.
pub(crate) fn has_gateway(gate: &Gate) -> bool {
    let gateway = gateway::gateway(gate, Counts::InParts);
    let mark = Value::from(mark(&gateway));
    let commands = [gateway, gateway::arp(gate)].concat();
    let set = commands.iter().filter(|command| command["add"]["rule"].is_object()).count();
    let tables = [("inet", GATEWAY_TABLE), ("arp", GATEWAY_TABLE)];
    let listed = |(family, table)| list(family, table, Sets::Left).ok();
    let listed: Vec<Value> = tables.into_iter().filter_map(listed).collect();
    let mut rules = listed.iter().flat_map(|table| entries(table, "rule"));
    let count = rules.clone().count();
    let before = list("inet", GATEWAY_TABLE_BEFORE, Sets::Left);
    let is_alone = before.is_ok_and(|before| before.is_null());
    is_alone && count == set && rules.any(|rule| rule.get("comment") == Some(&mark))
}

/// The kernel's listing of these tables of Rove, by family and name, for comparison with an earlier
/// listing. It leaves out handles, which change with every transaction. `None` if the first table
/// is missing.
pub(crate) fn listing(
    tables: &[(&'static str, &'static str)],
    sets: Sets,
) -> Result<Option<Value>, Error> {
    let listed = tables.iter().map(|&(family, table)| list(family, table, sets));
    let listed = listed.collect::<Result<Vec<_>, _>>()?;
    Ok(listed.first().is_some_and(|first| !first.is_null()).then_some(Value::Array(listed)))
}

/// What a listing has of the contents of sets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sets {
    /// Everything.
    Shown,
    /// Nothing: with thousands of networks a listing would take seconds and tens of megabytes.
    /// A program that changes a set of Rove, and no rule, is then not noticed.
    Left,
}

/// One table; null if it is missing. The listing has no counters, and of a gateway no sets, which
/// packets fill.
fn list(family: &str, table: &'static str, sets: Sets) -> Result<Value, Error> {
    let command = ["-j", "-s", "-t", "list", "table", family, table];
    let is_terse = sets == Sets::Left || table == GATEWAY_TABLE;
    let arguments: Vec<&str> =
        command.into_iter().filter(|word| is_terse || *word != "-t").collect();
    let output = nft(table, &arguments, String::new())?;
    if output.status.success() {
        let mut listing: Value = serde_json::from_slice(&output.stdout)
            .map_err(|error| Error::NftRefused { what: table, said: error.to_string() })?;
        remove_handles(&mut listing);
        return Ok(listing);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    // A family that the kernel does not know has no tables.
    if ["No such file", "not supported"].iter().any(|word| said.contains(word)) {
        return Ok(Value::Null);
    }
    Err(Error::NftRefused { what: table, said: first_line(&said) })
}

/// The packets that the named counters of a table (family inet) have counted.
pub(crate) fn counters(table: &'static str) -> Result<BTreeMap<String, u64>, Error> {
    let output = nft(table, &["-j", "list", "counters", "table", "inet", table], String::new())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Error::NftRefused { what: table, said: first_line(&said) });
    }
    let listing: Value = serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::NftRefused { what: table, said: error.to_string() })?;
    let entries = listing.get("nftables").and_then(Value::as_array);
    let counters = entries.into_iter().flatten().filter_map(|entry| entry.get("counter"));
    let counted = counters.filter_map(|counter| {
        Some((counter.get("name")?.as_str()?.to_owned(), counter.get("packets")?.as_u64()?))
    });
    Ok(counted.collect())
}

/// The marked packets that a filter of Rove (family inet) refused. None if it is missing.
pub(crate) fn refused_marks(table: &'static str) -> Result<Marked, Error> {
    let list = |arguments: &[&str]| -> Result<Value, Error> {
        let output = nft(table, arguments, String::new())?;
        let listed = output.status.success().then(|| serde_json::from_slice(&output.stdout));
        let listed = listed.transpose();
        let listed =
            listed.map_err(|error| Error::NftRefused { what: table, said: error.to_string() })?;
        Ok(listed.unwrap_or_default())
    };
    let marks = marks::marks_in(&list(&["-j", "list", "set", "inet", table, marks::MARKED])?);
    if marks.is_empty() {
        return Ok(Marked::default());
    }
    let packets = marks::packets_in(&list(&["-j", "-t", "list", "table", "inet", table])?);
    Ok(Marked { marks, packets })
}

/// The whole nftables ruleset of this network namespace, of all programs.
pub(crate) fn ruleset() -> Result<Value, Error> {
    let what = "the packet filters";
    let output = nft(what, &["-j", "list", "ruleset"], String::new())?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(Error::NftRefused { what, said: first_line(&said) });
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|error| Error::NftRefused { what, said: error.to_string() })
}

fn remove_handles(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.remove("handle");
            fields.remove("metainfo");
            fields.values_mut().for_each(remove_handles);
        }
        Value::Array(values) => values.iter_mut().for_each(remove_handles),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

pub(crate) fn run(what: &'static str, commands: Vec<Value>) -> Result<(), Error> {
    run_with_sets(what, commands, &[])
}

/// Runs one transaction, which also fills sets of its tables. In a container with its own users,
/// the kernel refuses a transaction with thousands of networks: nft may not enlarge its socket's
/// buffer there. Then the sets are filled in parts. Until they are full, packets to some excluded
/// networks are refused.
fn run_with_sets(
    what: &'static str,
    commands: Vec<Value>,
    sets: &[FilledSet],
) -> Result<(), Error> {
    let whole = run_text(what, ruleset::text(&commands, sets));
    let is_large = sets.iter().map(FilledSet::len).sum::<usize>() > SET_PART_MAX;
    if !is_large || !matches!(whole, Err(Error::NftRefused { .. })) {
        return whole;
    }
    run_text(what, ruleset::text(&commands, &[]))?;
    let mut parts = sets.iter().flat_map(|set| set.parts(SET_PART_MAX));
    parts.try_for_each(|part| run_text(what, ruleset::text(&[], &[part])))
}

fn run_text(what: &'static str, text: String) -> Result<(), Error> {
    let output = nft(what, &["-j", "-f", "-"], text)?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::NftRefused { what, said: first_line(&said) })
}

/// Runs nft to its end, and kills it if it takes too long.
fn nft(what: &'static str, arguments: &[&str], input: String) -> Result<Output, Error> {
    let mut child = start(what, arguments)?;
    let fed = feed(&mut child, input);
    let stdout = drain(child.stdout.take(), LISTING_MAX);
    let stderr = drain(child.stderr.take(), SAID_MAX);
    let status = wait(&mut child).map_err(|error| Error::os(format!("run nft for {what}"), error));
    let (stdout, stderr) = (stdout.join(), stderr.join());
    let _ = fed.join();
    let status = status?.ok_or(Error::NftSilent { what, seconds: TIME_MAX.as_secs() })?;
    let (stdout, stderr) = (stdout.unwrap_or_default(), stderr.unwrap_or_default());
    Ok(Output { status, stdout, stderr })
}

fn start(what: &'static str, arguments: &[&str]) -> Result<Child, Error> {
    let mut unusable = None;
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        die_with_us(&mut command);
        match command.spawn() {
            // execve(2): also if the program is there and its loader or its libraries are missing.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let why = || io::Error::other("its loader is missing");
                let is_there = Path::new(program).exists();
                unusable = unusable.or_else(|| is_there.then(|| (program, why())));
            }
            Err(error) if is_of_program(&error) => unusable = unusable.or(Some((program, error))),
            result => return result.map_err(|error| Error::os(format!("start {program}"), error)),
        }
    }
    let Some((program, error)) = unusable else { return Err(Error::NftMissing { what }) };
    // The search through PATH gives the file's whole name.
    check(what)?;
    let (program, why) = (program.to_owned(), error.to_string());
    Err(Error::NftUnusable { what, program, why })
}

/// Whether a file cannot be executed: its mode, a file system mounted with `noexec`, a security
/// module, or a program for another machine (execve(2)).
fn is_of_program(error: &io::Error) -> bool {
    let codes = [libc::EACCES, libc::EPERM, libc::ENOEXEC, libc::ELIBBAD, libc::ELOOP];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
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

/// Reads to the end of the stream and keeps the first `kept` bytes.
fn drain(from: Option<impl Read + Send + 'static>, kept: u64) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut read = Vec::new();
        if let Some(mut from) = from {
            let _ = from.by_ref().take(kept).read_to_end(&mut read);
            let _ = io::copy(&mut from, &mut io::sink());
        }
        read
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_an_nft_that_exists_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let (shut, plain) = (dir.path().join("shut"), dir.path().join("nft"));
        fs::write(&plain, "").unwrap();
        let set_mode = |mode| fs::set_permissions(&plain, fs::Permissions::from_mode(mode));
        let about = |program: &Path| {
            let is_shut = program.starts_with(&shut);
            if is_shut {
                Err(io::ErrorKind::PermissionDenied.into())
            } else {
                fs::metadata(program)
            }
        };
        let find =
            |known: &[&Path]| find(GUARD, known.iter().map(|program| program.to_path_buf()), about);
        let hidden = shut.join("nft");
        assert!(matches!(find(&[&hidden, dir.path()]), Err(Error::NftMissing { .. })));
        set_mode(0o644).unwrap();
        let found = find(&[&hidden, &plain]).unwrap_err().to_string();
        assert!(found.contains(&format!("`chmod 755 {}`", plain.display())), "{found}");
        set_mode(0o755).unwrap();
        find(&[&hidden, &plain]).unwrap();
    }
}
