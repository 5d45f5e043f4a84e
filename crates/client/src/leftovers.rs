//! Ends a running client, and finds and removes the changes that an earlier one left on this host.

use std::io;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rove_api::Request;
use rove_host::confine;
use rove_host::control::{self, AskError};
use rove_host::home::{Home, Role};
use rove_os::lock::Lock;
use rove_os::plan::{Applier, Places, RULE_PRIORITY_FORMER};
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
    /// Anything else: routes, rules, name servers.
    pub rest: bool,
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
        return Ok(Left { kill_switch: KillSwitch::None, rest: false });
    }
    let applier = Applier::open(Places::usual(&state))?;
    let rest = applier.has_leftovers() || applier.damaged().is_some();
    let kill_switch = match applier.kill_switch_stands() {
        false => KillSwitch::None,
        true => match applier.kill_switch_is_seen() {
            Ok(true) => KillSwitch::Stands,
            Ok(false) => KillSwitch::Gone,
            Err(_) => KillSwitch::Unseen,
        },
    };
    Ok(Left { kill_switch, rest })
}

/// Takes down the client in `home`. This asks a running client to end, and waits until it has
/// ended. Otherwise the changes of an earlier client are removed, the kill switch included. Returns
/// whether there was anything to take down.
pub fn down(home: &Home) -> Result<bool> {
    // The kernel may have a kill switch that no journal mentions. Only root sees and removes it.
    let may_look = rustix::process::geteuid().is_root() && home.other().is_none();
    let state = home.state(Role::Client);
    // The journal is the node's user's, and root must not be led by it.
    confine::become_owner(home, Some(&Places::usual(&state)))?;
    match control::ask::<IgnoredAny>(&home.socket(Role::Client)?, &Request::Down) {
        Ok(_) => {
            // The next `rove up` may follow at once: only an ended process has let go of
            // everything.
            wait_for_end(&state)?;
            return Ok(true);
        }
        Err(AskError::NotRunning) => {}
        // It died as it was asked; should it live, it has the lock.
        Err(AskError::Broken { cause, .. }) if DIED.contains(&cause.kind()) => {}
        Err(error) => return Err(error.into()),
    }
    let mut applier = Applier::open(Places::usual(&state))?;
    if !state.exists() {
        // Somebody removed the directory, but the tables in the kernel can only be Rove's.
        if !(may_look && applier.kill_switch_is_there()?) {
            return Ok(false);
        }
        applier.remove_kill_switch()?;
        return Ok(true);
    }
    // The changes of a crashed client, and a kill switch that is in the journal or only in the
    // kernel.
    let _lock = Lock::take(&state)?;
    let is_left = applier.has_leftovers() || applier.damaged().is_some();
    let stands = applier.kill_switch_stands() || may_look && applier.kill_switch_is_there()?;
    if !is_left && !stands {
        return Ok(false);
    }
    // Even if something else resists: whoever asks to leave wants the network back.
    let undone = applier.leave();
    applier.remove_kill_switch()?;
    tell_blocked(undone?);
    Ok(true)
}

/// Says that so many sockets still have an IPv6 address of the tunnel.
pub(crate) fn tell_blocked(sockets: usize) {
    if sockets > 0 {
        tracing::warn!(
            "{sockets} sockets still have the tunnel's IPv6 address. A routing rule (priority \
             {RULE_PRIORITY_FORMER}) blocks their packets until the next `rove up`"
        );
    }
}

/// Waits until the process that answered has ended: it holds the lock to its last moment.
fn wait_for_end(state: &Path) -> Result<()> {
    let give_up = Instant::now() + END_WITHIN;
    loop {
        match Lock::take(state) {
            Ok(_) => return Ok(()),
            Err(rove_os::error::Error::SecondInstance { .. }) if Instant::now() < give_up => {
                thread::sleep(Duration::from_millis(5));
            }
            Err(error) => return Err(error.into()),
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
    let _lock = match Lock::take(&state) {
        Err(rove_os::error::Error::SecondInstance { .. }) => return Ok(()),
        taken => taken?,
    };
    let stands = Applier::open(Places::usual(&state)).and_then(|mut all| all.stand_kill_switch());
    stands.map(drop).or_else(|error| {
        rove_os::plan::close()?;
        Err(error).context(
            "the kill switch could not be installed, so routing rules stop all traffic: remove the \
             cause and run `rove up --kill-switch`, or `rove down` to open the host",
        )
    })
}
