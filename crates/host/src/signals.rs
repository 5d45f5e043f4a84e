//! Signals, as messages.

use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: end, and leave the kill switch.
    End,
    /// SIGHUP: read the configuration again. A terminal that closes sends it, too: a node goes on.
    Reload,
}

/// Makes a write beyond the limit of file sizes (`ulimit -f`) an error. Otherwise the kernel ends
/// the process (setrlimit(2)), for example at a log line.
pub fn survive_file_limit() {
    // Without a handler, everything but such a write still works.
    let _ = flag::register(SIGXFSZ, Arc::default());
}

/// Sends signals to `to` from now on. The thread lives as long as the process.
pub(crate) fn watch<M: From<Signal> + Send + 'static>(to: SyncSender<M>) -> Result<()> {
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot listen to signals")?;
    let spawned = thread::Builder::new().name("rove-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let signal = if signal == SIGHUP { Signal::Reload } else { Signal::End };
            if to.send(M::from(signal)).is_err() {
                return;
            }
        }
    });
    spawned.map(drop).context("cannot start a thread for signals")
}
