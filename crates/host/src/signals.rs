//! Signals, as messages.

use std::sync::mpsc::SyncSender;
use std::thread;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::message::Message;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// SIGTERM or SIGINT: end, and leave the kill switch.
    End,
    /// SIGHUP: read the configuration again.
    Reload,
}

/// Sends signals to `to` from now on. The thread lives as long as the process.
pub(crate) fn watch<O: Send + 'static>(to: SyncSender<Message<O>>) -> Result<()> {
    let mut signals =
        Signals::new([SIGTERM, SIGINT, SIGHUP]).context("cannot listen to signals")?;
    let spawned = thread::Builder::new().name("rove-signals".to_owned()).spawn(move || {
        for signal in signals.forever() {
            let signal = if signal == SIGHUP { Signal::Reload } else { Signal::End };
            if to.send(Message::Signal(signal)).is_err() {
                return;
            }
        }
    });
    spawned.map(drop).context("cannot start a thread for signals")
}
