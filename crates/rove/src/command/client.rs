//! `rove up`, `down`, `status`, `set`, `reload`.

use std::cell::Cell;
use std::env;
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Seek, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};

use anyhow::{Context, Result, anyhow, bail};
use rove_api::{Changed, ClientStatus, DataUse, Device, Link, LinkUse, Portal};
use rove_client::{Carries, Config, KillSwitch, Left, Wishes, left_behind};
use rove_host::config::LogFormat;
use rove_host::control::{self, AskError, Request};
use rove_host::files::{self, FileError};
use rove_host::home::{Home, Role};
use rove_host::invite::Invite;
use rove_host::log::LogFile;
use rove_host::{confine, log};
use rove_os::plan::{Connection, Places};
use rustix::fs::{MemfdFlags, memfd_create};
use serde::de::IgnoredAny;

use super::output::{self, list, moment};
use super::ssh;
use crate::cli::{self, OutputArgs, Pasted, UpArgs};

/// Bytes that are read in search of an invite.
const INPUT_MAX: u64 = 64 << 10;
/// What the background process writes to its parent, before each line.
const CARRIES: &str = "carries ";
const WARNING: &str = "warning ";
const FAILED: &str = "failed ";
/// Bytes of all that it writes, generously.
const SAID_MAX: u64 = 64 << 10;

pub(super) fn up(home: &Home, mut args: UpArgs, format: Option<LogFormat>) -> Result<()> {
    if args.detached {
        // The directory that the caller was in may be unmounted while the tunnel is up.
        env::set_current_dir("/").context("cannot change to /")?;
        rustix::process::setsid().context("cannot leave the terminal")?;
        args.invite = read_invite()?;
        return run_detached(home, &args, format);
    }
    args.invite = given_invite(&args.pasted)?;
    if let Some(invite) = args.invite.as_ref().filter(|_| !args.pasted.iter().any(is_dash)) {
        // Does not return, unless this program cannot be started again.
        let error = start_without_invite(&args.pasted, invite);
        output::warning(&format!(
            "the invite stays in the list of processes until this one ends: {error:#}"
        ));
    }
    tell_ssh(&args);
    if args.foreground {
        return run(home, &args, format, &mut |carries| {
            notify(&[sd_notify::NotifyState::Ready]);
            carries.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
            if let Err(error) = log::print(io::stdout(), &carries.line) {
                tracing::warn!("cannot print that the tunnel carries: {error}");
            }
            Ok(())
        });
    }
    let mut child = start_detached(home, &args)?;
    let said = hear(&mut child)?;
    let line = |kind| said.lines().find_map(|line| line.strip_prefix(kind));
    said.lines().filter_map(|line| line.strip_prefix(WARNING)).for_each(output::warning);
    match (line(CARRIES), line(FAILED)) {
        (Some(line), _) => output::line(line),
        (None, Some(why)) => Err(anyhow!("{why}")),
        (None, None) => bail!(
            "the background process ended without a word: see {}",
            home.client_log().display()
        ),
    }
}

/// Runs the client in this process; `carries` is told when it carries.
fn run(
    home: &Home,
    args: &UpArgs,
    format: Option<LogFormat>,
    carries: &mut dyn FnMut(&Carries) -> Result<()>,
) -> Result<()> {
    let kept: Vec<Connection> = kept(args).into_iter().collect();
    let configure = || {
        let mut config = configure(home, args)?;
        config.kept.clone_from(&kept);
        config.keep_incoming = !args.no_keep_ssh;
        Ok(config)
    };
    let log_file = args.detached.then(|| home.client_log());
    let mut run = || {
        let state = home.state(Role::Client);
        confine::make_home(home)?;
        let left = confine::leave_root(home, &[], Some(&Places::usual(&state)))?;
        files::make_directory(&state)?;
        let log = configure()?.log;
        match &log_file {
            Some(path) => match LogFile::open(path) {
                Ok(file) => log::start_in(file, log, format),
                // The starting process has said why. Standard error leads nowhere then.
                Err(_) => log::start(log, format),
            },
            None => log::start(log, format),
        }
        let invite = args.invite.as_ref();
        let carries = &mut |carried: &Carries| {
            confine::tell(&left);
            carries(carried)
        };
        let ended = rove_client::run(home, Wishes { configure: &configure, invite, carries });
        notify(&[sd_notify::NotifyState::Stopping]);
        ended
    };
    run().map_err(|error| match left_behind(home).map(|left| left.kill_switch) {
        // Else nobody would know why the network is gone.
        Ok(KillSwitch::Stands | KillSwitch::Unseen) => {
            anyhow!("{error:#}; the kill switch stands: `rove down` lifts it")
        }
        Ok(KillSwitch::None | KillSwitch::Gone) | Err(_) => error,
    })
}

/// The SSH connection that continues outside the tunnel.
fn kept(args: &UpArgs) -> Option<Connection> {
    if args.no_keep_ssh { None } else { ssh::connection() }
}

/// Prints whether the SSH connection over which the command was typed stays outside the tunnel.
fn tell_ssh(args: &UpArgs) {
    if let Some(connection) = kept(args) {
        output::warning(&format!(
            "typed over SSH: the connection from {} goes on beside the tunnel; new ones are \
             answered where they come in, but with --kill-switch refused (--no-keep-ssh keeps \
             nothing)",
            connection.remote.ip()
        ));
    }
}

/// The file's values, overruled by the command line's.
fn configure(home: &Home, args: &UpArgs) -> Result<Config> {
    let mut config = Config::load(&home.config(Role::Client))?;
    for (typed, configured) in [
        (&args.route, &mut config.route),
        (&args.exclude, &mut config.exclude),
        (&args.advertise, &mut config.advertise),
    ] {
        if !typed.is_empty() {
            configured.clone_from(typed);
        }
    }
    config.kill_switch |= args.kill_switch;
    config.allow_lan |= args.allow_lan;
    config.dns = args.dns.unwrap_or(config.dns);
    config.paths.mode = args.mode.unwrap_or(config.paths.mode);
    config.paths.scheduler = args.scheduler.unwrap_or(config.paths.scheduler);
    config.paths.is_scheduler_set |= args.scheduler.is_some();
    config.paths.transport = args.transport.unwrap_or(config.paths.transport);
    config.timeout = args.timeout.unwrap_or(config.timeout);
    config.check()?;
    Ok(config)
}

/// The background half: tells its parent how it went, then lets go of it.
fn run_detached(home: &Home, args: &UpArgs, format: Option<LogFormat>) -> Result<()> {
    let told = Cell::new(false);
    let ended = run(home, args, format, &mut |carries| {
        // A parent that is gone was interrupted: nobody wants the tunnel any more.
        let gone = "the starting process is gone";
        for warning in &carries.warnings {
            write_line(WARNING, warning).context(gone)?;
        }
        write_line(CARRIES, &carries.line).context(gone)?;
        told.set(true);
        let null = OpenOptions::new().write(true).open("/dev/null")?;
        Ok(rustix::stdio::dup2_stdout(&null)?)
    });
    if !told.get() {
        let why = match &ended {
            Ok(()) => "taken down by `rove down` before the tunnel carried".to_owned(),
            Err(error) => format!("{error:#}").replace('\n', " "),
        };
        // A parent that is gone needs no answer.
        let _ = write_line(FAILED, &why);
    }
    ended
}

/// The word for an invite on the standard input.
fn is_dash(word: &Pasted) -> bool {
    word.0 == "-"
}

/// The arguments of this process without those that are words of an invite.
fn arguments_without(pasted: &[Pasted]) -> impl Iterator<Item = OsString> + '_ {
    let is_kept =
        |text: &OsString| text != "--" && !pasted.iter().any(|word| text == word.0.as_str());
    env::args_os().skip(1).filter(is_kept)
}

/// Becomes this program anew, with the invite on standard input: everybody can read the arguments
/// of a process for as long as it runs. Returns only an error.
fn start_without_invite(pasted: &[Pasted], invite: &Invite) -> anyhow::Error {
    let start = || -> Result<io::Error> {
        let memory = memfd_create("invite", MemfdFlags::CLOEXEC).map_err(io::Error::from)?;
        let mut input = File::from(memory);
        input.write_all(invite.to_text().as_bytes())?;
        input.rewind()?;
        let mut command = std::process::Command::new(env::current_exe()?);
        command.args(arguments_without(pasted)).arg("-").stdin(input);
        Ok(command.exec())
    };
    start().map_or_else(|error| error, anyhow::Error::from)
}

/// The invite in the words of the command line, or in the source that they name.
fn given_invite(pasted: &[Pasted]) -> Result<Option<Invite>> {
    let words: Vec<&str> = pasted.iter().map(|word| word.0.as_str()).collect();
    match words[..] {
        [] => Ok(None),
        ["-"] => {
            let read = read_invite()?;
            read.context("no invite on the standard input: give one line").map(Some)
        }
        _ => match words.join(" ").parse() {
            Ok(invite) => Ok(Some(invite)),
            Err(error) => cli::refuse_invite(&error),
        },
    }
}

/// The invite from standard input, as soon as it is complete; `None` if the input is empty. A
/// person who types ends an incomplete invite with an empty line.
fn read_invite() -> Result<Option<Invite>> {
    let mut text = Vec::new();
    let mut input = BufReader::new(io::stdin().lock().take(INPUT_MAX));
    loop {
        let before = text.len();
        input.read_until(b'\n', &mut text).context("cannot read the standard input")?;
        let is_blank = |bytes: &[u8]| !bytes.iter().any(u8::is_ascii_graphic);
        let is_over = text.len() == before || is_blank(&text[before..]) && !is_blank(&text);
        let is_read = input.buffer().is_empty();
        // Any encoding will do: an invite is ASCII, and the search skips other bytes.
        match String::from_utf8_lossy(&text).parse::<Invite>() {
            Ok(invite) if is_over || is_read => return Ok(Some(invite)),
            Err(_) if is_over && is_blank(&text) => return Ok(None),
            Err(error) if is_over => return Err(error.into()),
            Ok(_) | Err(_) => {}
        }
    }
}

fn write_line(kind: &str, line: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{kind}{line}")?;
    out.flush()
}

/// Starts this program again, without a terminal. The invite goes by a pipe: arguments can be read
/// by everybody.
fn start_detached(home: &Home, args: &UpArgs) -> Result<Child> {
    confine::make_home(home)?;
    let path = home.client_log();
    // A tunnel without a log is better than none.
    let log = match confine::as_owner(home, || LogFile::open(&path))? {
        Ok(log) => log.into_file(),
        Err(cause) => {
            let why = FileError::system(&path, cause);
            output::warning(&format!("the client writes no log: {why}"));
            OpenOptions::new().write(true).open("/dev/null")?
        }
    };
    let program = env::current_exe().context("cannot find this program's own file")?;
    let start = |program: &Path| {
        let mut command = std::process::Command::new(program);
        command.args(arguments_without(&args.pasted)).arg("--detached");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log.try_clone()?);
        command.spawn()
    };
    let child = start(&program).or_else(|error| {
        // The file is just being replaced by that of another version; this one is still open.
        let is_gone = error.kind() == io::ErrorKind::NotFound;
        if is_gone { start(Path::new("/proc/self/exe")) } else { Err(error) }
    });
    let mut child = child.context("cannot start the background process")?;
    if let Some(mut pipe) = child.stdin.take() {
        let text = args.invite.as_ref().map(Invite::to_text).unwrap_or_default();
        // A child that ended already says so on the other pipe.
        let _ = pipe.write_all(text.as_bytes());
    }
    Ok(child)
}

/// What the background process says until it lets go of this one, or ends.
fn hear(child: &mut Child) -> Result<String> {
    let mut said = String::new();
    let pipe = child.stdout.take().context("no pipe to the background process")?;
    let read = pipe.take(SAID_MAX).read_to_string(&mut said);
    read.context("cannot hear the background process")?;
    Ok(said)
}

fn notify(state: &[sd_notify::NotifyState<'_>]) {
    // Not started by systemd, or it does not listen: nobody waits.
    let _ = sd_notify::notify(state);
}

pub(super) fn down(home: &Home) -> Result<()> {
    let taken = rove_client::down(home)?;
    taken.warning.as_deref().into_iter().for_each(output::warning);
    if taken.was_up {
        return output::line("down");
    }
    match home.other() {
        Some(other) => output::line(&format!("not up here: {other}")),
        None => output::line("not up"),
    }
}

pub(super) fn status(home: &Home, args: OutputArgs) -> Result<()> {
    let status = match control::ask(&home.socket(Role::Client)?, &Request::Status) {
        Ok(status) => status,
        Err(AskError::NotRunning) => not_running(home),
        Err(error) => return Err(error.into()),
    };
    if args.json {
        return output::json(&status);
    }
    output::print(&told(&status))
}

/// What people read of it: a line for each thing that there is.
fn told(status: &ClientStatus) -> String {
    let yes = |truth| match truth {
        Some(true) => "yes".to_owned(),
        Some(false) => "no".to_owned(),
        None => "unknown".to_owned(),
    };
    let mut text = String::new();
    for (name, value) in [
        ("state", status.state.to_string()),
        ("carrying", yes(Some(status.carrying))),
        ("doing", status.doing.clone()),
        ("rehearsal", status.rehearsal.clone().unwrap_or_default()),
        ("portal", status.portals.iter().map(portal).collect::<Vec<_>>().join(", ")),
        ("link", status.link.clone().unwrap_or_default()),
        ("transport", status.transport.clone().unwrap_or_default()),
        ("mode", status.mode.map(|mode| mode.to_string()).unwrap_or_default()),
        ("links", status.links.iter().map(link).collect::<Vec<_>>().join(", ")),
        ("traffic", traffic(status)),
        ("since", status.since.map(moment).unwrap_or_default()),
        ("inner", list(&status.inner)),
        ("gateway", status.gateway.clone().unwrap_or_default()),
        ("kill switch", yes(status.kill_switch)),
        ("dns", list(&status.dns)),
        ("domains", list(&status.dns_domains)),
        ("data", saving(status)),
        ("saved", output::saved(&status.saved).unwrap_or_default()),
    ] {
        if !value.is_empty() {
            text.push_str(&format!("{name:13}{value}\n"));
        }
    }
    for device in &status.devices {
        text.push_str(&format!("{:13}{}\n", "device", of_device(device)));
    }
    let problems = status.running.iter().flat_map(|running| output::problems(&running.problems));
    for problem in problems {
        text.push_str(&format!("{:13}{problem}\n", "problem"));
    }
    text
}

/// A device of the configuration, and what its flows are to have.
fn of_device(device: &Device) -> String {
    let Device { name, address, strength, priority, goal, copies } = device;
    let said = [
        strength.map(|bits| format!("strength {bits}")),
        priority.map(|level| format!("priority {level}")),
        goal.as_ref().map(|goal| format!("goal {goal}")),
        copies.as_ref().map(|copies| format!("copies {copies}")),
    ];
    let said: Vec<String> = said.into_iter().flatten().collect();
    let said = if said.is_empty() { String::new() } else { format!(": {}", said.join(", ")) };
    format!("{name} ({address}){said}")
}

/// That as little data as possible is used, and why.
fn saving(status: &ClientStatus) -> String {
    match status.data {
        Some(DataUse::Auto) if status.saves_data => "saving, since the link in use is metered",
        Some(_) if status.saves_data => "saving",
        Some(_) | None => "",
    }
    .to_owned()
}

/// Which traffic uses a tunnel that is split.
fn traffic(status: &ClientStatus) -> String {
    let ClientStatus { route, exclude, excluded, allow_lan, .. } = status;
    let lan = allow_lan.then(|| "the local network".to_owned());
    let more = match excluded.saturating_sub(exclude.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let without: Vec<String> = lan.into_iter().chain(exclude.iter().cloned()).collect();
    let is_whole = without.is_empty();
    let without = format!("{}{more}", without.join(", "));
    match (route.is_empty(), is_whole) {
        (true, true) => String::new(),
        (false, true) => format!("only {} uses the tunnel", route.join(", ")),
        (true, false) => format!("everything but {without} uses the tunnel"),
        (false, false) => {
            format!("only {} uses the tunnel, without {without}", route.join(", "))
        }
    }
}

/// A link, and what is not as usual.
fn link(link: &Link) -> String {
    let usage = Some(link.usage).filter(|usage| *usage != LinkUse::Always);
    let used = link.used_bytes.zip(link.cap.as_ref());
    let used = used.map(|(used, cap)| format!("{:.1} MB of {cap}", used as f64 / 1e6));
    let said = [usage.map(|usage| usage.to_string()), used, link.why.clone()];
    let said = said.into_iter().flatten().collect::<Vec<_>>().join(", ");
    if said.is_empty() { link.name.clone() } else { format!("{} ({said})", link.name) }
}

/// Where to sign in on a link.
fn portal(portal: &Portal) -> String {
    format!("{}: {}", portal.link, portal.page)
}

/// The status of a client that does not run.
pub(super) fn not_running(home: &Home) -> ClientStatus {
    let left = left_behind(home);
    let stands = left.as_ref().map(|left| left.kill_switch);
    let doing = match (&left, home.other()) {
        (Ok(left), other) => match (after(*left), other) {
            (Some((found, cure)), _) => format!("down; {found}: {cure}"),
            (None, Some(other)) => format!("down: connect with `rove up`; {other}"),
            (None, None) => "down: connect with `rove up`".to_owned(),
        },
        (Err(error), _) => format!("down; whether a kill switch stands is not known: {error:#}"),
    };
    let stands = stands.map(|stands| stands != KillSwitch::None && stands != KillSwitch::Gone);
    ClientStatus { doing, kill_switch: stands.ok(), ..ClientStatus::default() }
}

/// What a client left on this host, what that does to traffic, and the commands that end it.
fn after(left: Left) -> Option<(&'static str, &'static str)> {
    let found = match left {
        Left { kill_switch: KillSwitch::Stands, .. } => "the kill switch lets nothing out",
        Left { kill_switch: KillSwitch::Gone, guard: Some(true), .. }
        | Left { kill_switch: KillSwitch::Gone, barrier: true, .. } => {
            return Some((
                "the kill switch's table is missing; leftover routes still block most traffic",
                "`rove up` puts it back, `rove down` opens this host",
            ));
        }
        Left { kill_switch: KillSwitch::Gone, .. } => {
            "a kill switch is on record but not in place, so packets leave in clear"
        }
        Left { kill_switch: KillSwitch::Unseen, .. } => {
            "a kill switch was set, and whether it is in place cannot be seen"
        }
        Left { guard: Some(true), rest: true, .. } => {
            "a client that was killed left routes, rules and a packet filter. Traffic that belongs \
             in the tunnel is blocked"
        }
        Left { barrier: true, .. } => {
            "a client that was killed left routes and rules. Traffic that belongs in the tunnel is \
             blocked"
        }
        Left { rest: true, .. } => "a client that was killed left routes and rules",
        Left { guard: Some(true), .. } => {
            "a client that was killed left a packet filter. Traffic that belongs in the tunnel is \
             blocked"
        }
        Left { .. } => return None,
    };
    Some((found, "`rove up`, or `rove down`"))
}

/// Changes how a running client works, and says what was `done`.
pub(super) fn set(home: &Home, request: &Request, done: &str) -> Result<()> {
    match control::ask::<Changed>(&home.socket(Role::Client)?, request) {
        Ok(reply) => {
            reply.warning.as_deref().into_iter().for_each(output::warning);
            output::line(done)
        }
        Err(AskError::NotRunning) => {
            bail!("not up: connect with `rove up`, or write it in client.toml for every start")
        }
        Err(error) => Err(error.into()),
    }
}

pub(super) fn reload(home: &Home) -> Result<()> {
    match control::ask::<IgnoredAny>(&home.socket(Role::Client)?, &Request::Reload) {
        Ok(_) => output::line("reloaded"),
        Err(AskError::NotRunning) => bail!("not up: connect with `rove up`"),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_split_tunnel_says_which_traffic_uses_it() {
        let told = |route: &[&str], exclude: &[&str], excluded| {
            let [route, exclude] =
                [route, exclude].map(|all| all.iter().map(|&net| net.to_owned()).collect());
            traffic(&ClientStatus { route, exclude, excluded, ..ClientStatus::default() })
        };
        assert_eq!(told(&[], &[], 0), "");
        assert_eq!(told(&["10.0.0.0/8"], &[], 0), "only 10.0.0.0/8 uses the tunnel");
        let net = ["192.0.2.0/24"];
        assert_eq!(told(&[], &net, 1), "everything but 192.0.2.0/24 uses the tunnel");
        let many = "everything but 192.0.2.0/24 and 19999 more uses the tunnel";
        assert_eq!(told(&[], &net, 20_000), many);
        let lan = ClientStatus { allow_lan: true, ..ClientStatus::default() };
        assert_eq!(traffic(&lan), "everything but the local network uses the tunnel");
    }

    #[test]
    fn each_device_has_a_line_with_what_its_flows_are_to_have() {
        let device = |name: &str, address: &str| Device {
            name: name.to_owned(),
            address: address.to_owned(),
            strength: None,
            priority: None,
            goal: None,
            copies: None,
        };
        let (priority, goal) = (Some(3), Some("data".to_owned()));
        let tv = Device { strength: Some(256), priority, goal, ..device("tv", "192.168.7.20") };
        let devices = vec![tv, device("lan", "192.168.7.0/24")];
        let text = told(&ClientStatus { devices, ..ClientStatus::default() });
        let lines = "device       tv (192.168.7.20): strength 256, priority 3, goal data\n\
                     device       lan (192.168.7.0/24)\n";
        assert!(text.contains(lines), "{text}");
    }

    #[test]
    fn a_rehearsal_has_its_line_while_it_goes_on() {
        let doing = "doing without eth1, to see what comes of it";
        let rehearsal = Some(doing.to_owned());
        let text = told(&ClientStatus { rehearsal, ..ClientStatus::default() });
        assert!(text.contains(&format!("\nrehearsal    {doing}\n")), "{text}");
        assert!(!told(&ClientStatus::default()).contains("rehearsal"));
    }
}
