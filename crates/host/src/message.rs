//! The messages that the control thread receives from all other threads, through one bounded
//! channel.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use rove_os::links::Link;
use rove_os::watch::Change;

use crate::control::Asked;
use crate::data::News;
use crate::signals::Signal;

/// Messages that wait for the control thread.
pub const MESSAGES_MAX: usize = 1_024;

/// A message for the control thread. `O` has the messages that only this kind of node receives.
pub enum Message<O> {
    /// A command of a person or a program.
    Asked(Asked),
    /// From the data thread.
    News(News),
    /// The links as they are now.
    Links(Vec<Link>),
    /// Another program may have changed items of the plan. An empty set means that it is time for a
    /// check.
    Host(BTreeSet<Change>),
    /// From the system.
    Signal(Signal),
    /// The gateway's addresses, or why its names do not resolve.
    Resolved(Result<Vec<SocketAddr>, String>),
    /// A message that only this kind of node receives.
    Own(O),
}

impl<O> From<Signal> for Message<O> {
    fn from(signal: Signal) -> Self {
        Self::Signal(signal)
    }
}
