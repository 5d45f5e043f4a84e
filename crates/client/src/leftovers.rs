//! Ends a running client, and finds and removes the changes that an earlier one left on this host.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use rove_api::Request;
use rove_host::confine;
use rove_host::control::{self, AskError};
use rove_host::home::{Home, Role};
use rove_os::error::Error;
use rove_os::lock::Lock;
use rove_os::plan::{Applier, Leftovers, Places, RULE_PRIORITY_FORMER};
use serde::de::IgnoredAny;

/// How a connection breaks whose other end was killed.
const DIED: [io::ErrorKind; 3] =
    [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe, io::ErrorKind::UnexpectedEof];
/// How long a node may take from its last answer to its end.
const END_WITHIN: Duration = Duration::from_secs(5);

/// The changes of a client to this host that are still in place.
#[derive(Clone, Copy, Debug)]
pub struct Left {
    /// The kill switch.
    pub kill_switch: KillSwitch,
    /// The packet filter that blocks traffic of the tunnel on other links. `None` if this process
    /// may not look.
    pub guard: Option<bool>,
    /// Rules and routes that block traffic of the tunnel.
    pub barrier: bool,
    /// Anything else: routes, rules, name servers.
    pub rest: bool,
}

/// What taking down a client came to.
#[derive(Debug)]
pub struct TakenDown {
    /// There was something to take down.
    pub was_up: bool,
    /// What the user should know although everything is taken down.
    pub warning: Option<String>,
}

/// A kill switch by the journal and in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KillSwitch {
    /// None was set, or it was lifted.
    None,
    /// It is in place.
    Stands,
    /// It was set, and is not in the kernel any more.
    Gone,
    /// It was set, and this process cannot see whether it is in place.
    Unseen,
}

/// Reads which changes of the client in `home` are still in place, whether it runs or not.
pub fn left_behind(home: &Home) -> Result<Left> {
    let state = home.state(Role::Client);
    if matches!(state.try_exists(), Ok(false)) {
        let kill_switch = KillSwitch::None;
        return Ok(Left { kill_switch, guard: Some(false), barrier: false, rest: false });
    }
    let applier = Applier::open(Places::usual(&state))?;
    let left = match applier.has_leftovers() {
        // Where this process may not look, what the journal says counts.
        true => {
            applier.leftovers().unwrap_or(Leftovers { filter: None, barrier: false, other: true })
        }
        false => Leftovers { filter: Some(false), barrier: false, other: false },
    };
    let kill_switch = match applier.kill_switch_stands() {
        false => KillSwitch::None,
        true => match applier.kill_switch_is_seen() {
            Ok(true) => KillSwitch::Stands,
            Ok(false) => KillSwitch::Gone,
            Err(_) => KillSwitch::Unseen,
        },
    };
    let Leftovers { filter: guard, barrier, other } = left;
    Ok(Left { kill_switch, guard, barrier, rest: other || applier.damaged().is_some() })
}

/// Takes down the client in `home`. This asks a running client to end, and waits until it has
/// ended. Then the changes that it could not undo, or that an earlier client left, are removed, the
/// kill switch included.
pub fn down(home: &Home) -> Result<TakenDown> {
    let is_root = rustix::process::geteuid().is_root();
    // The kernel may have a kill switch that no journal mentions. Only root sees and removes it.
    let may_look = is_root && home.other().is_none();
    let state = home.state(Role::Client);
    // The journal is the node's user's, and root must not be led by it.
    confine::become_owner(home, Some(&Places::usual(&state)))?;
    let ended = match control::ask::<IgnoredAny>(&home.socket(Role::Client)?, &Request::Down) {
        Ok(_) => Some(Ok(())),
        // It ends all the same, and this process may succeed where the client failed.
        Err(AskError::Refused(why)) if is_root => Some(Err(anyhow!(why))),
        Err(AskError::NotRunning) => None,
        // It died as it was asked; should it live, it has the lock.
        Err(AskError::Broken { cause, .. }) if DIED.contains(&cause.kind()) => None,
        Err(error) => return Err(error.into()),
    };
    if ended.is_some() {
        // The next `rove up` may follow at once: only an ended process has let go of everything.
        wait_for_end(&state)?;
    }
    match ended {
        Some(Ok(())) if !is_root => Ok(TakenDown { was_up: true, warning: None }),
        Some(Ok(())) => {
            let rest = take_down_rest(&state, may_look)?;
            Ok(TakenDown { was_up: true, ..rest })
        }
        // The client's own words say more than those of a second failure.
        Some(Err(why)) => take_down_rest(&state, may_look)
            .map(|rest| TakenDown { was_up: true, ..rest })
            .map_err(|_| why),
        None => take_down_rest(&state, may_look),
    }
}

/// Removes the changes of a client that does not run, and a kill switch that is in the journal or
/// only in the kernel.
fn take_down_rest(state: &Path, may_look: bool) -> Result<TakenDown> {
    let mut applier = Applier::open(Places::usual(state))?;
    if !state.exists() {
        // Somebody removed the directory, but the tables in the kernel can only be Rove's.
        let was_up = may_look && applier.kill_switch_is_there()?;
        if was_up {
            applier.remove_kill_switch()?;
        }
        return Ok(TakenDown { was_up, warning: None });
    }
    let lock = Lock::take(state);
    if let Err(error @ Error::SecondInstance { .. }) = lock {
        return Err(error.into());
    }
    // Without a lock, for example on a read-only file system without the file, nobody holds it: no
    // client answered.
    let is_left = applier.has_leftovers() || applier.damaged().is_some();
    let stands = applier.kill_switch_stands() || may_look && applier.kill_switch_is_there()?;
    if !is_left && !stands {
        return Ok(TakenDown { was_up: false, warning: None });
    }
    // Even if something else resists: whoever asks to leave wants the network back.
    let undone = applier.leave();
    applier.remove_kill_switch()?;
    let blocked = blocked(undone?);
    let unwritten = applier.unwritten().map(|why| {
        format!(
            "everything is taken back, but the record of it stays: {why}. Then run `rove down` \
             again: until then a kill switch on record returns at the next boot"
        )
    });
    Ok(TakenDown { was_up: true, warning: unwritten.or(blocked) })
}

/// Logs that so many sockets still have an IPv6 address of the tunnel.
pub(crate) fn tell_blocked(sockets: usize) {
    if let Some(line) = blocked(sockets) {
        tracing::warn!("{line}");
    }
}

/// A line about sockets that still have an IPv6 address of the tunnel, if there are any.
fn blocked(sockets: usize) -> Option<String> {
    (sockets > 0).then(|| {
        format!(
            "{sockets} sockets still have the tunnel's IPv6 address. A routing rule (priority \
             {RULE_PRIORITY_FORMER}) blocks their packets until the next `rove up`"
        )
    })
}

/// Waits until the process that answered has ended: it holds the lock to its last moment.
fn wait_for_end(state: &Path) -> Result<()> {
    let give_up = Instant::now() + END_WITHIN;
    loop {
        match Lock::take(state) {
            Err(Error::SecondInstance { .. }) if Instant::now() < give_up => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(error @ Error::SecondInstance { .. }) => return Err(error.into()),
            // A lock that cannot be made is not held.
            Ok(_) | Err(_) => return Ok(()),
        }
    }
}

/// Installs a wanted kill switch again: at boot before the network, and after the packet filter's
/// rules were flushed. A running client does so by itself.
pub fn stand(home: &Home) -> Result<()> {
    let state = home.state(Role::Client);
    if !state.exists() {
        return Ok(());
    }
    confine::leave_root(home, &[], None)?;
    let lock = Lock::take(&state);
    // A running client keeps its kill switch itself. Any other refusal, as of a file system that is
    // still read-only at boot, must not open the host.
    if let Err(Error::SecondInstance { .. }) = lock {
        return Ok(());
    }
    let stands = Applier::open(Places::usual(&state)).and_then(|mut all| all.stand_kill_switch());
    stands.map(drop).or_else(|error| {
        rove_os::plan::close()?;
        Err(error).context(
            "the kill switch could not be installed, so routing rules stop all traffic: remove the \
             cause and run `rove up --kill-switch`, or `rove down` to open the host",
        )
    })
}
