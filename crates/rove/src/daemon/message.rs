//! What reaches the control thread, from every other one, through one bounded channel.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use rove_os::links::Link;
use rove_os::names::Nat64Prefix;
use rove_os::portal::Answer;
use rove_os::tariff::Tariff;
use rove_os::watch::Change;

use super::client::Network;
use super::data::News;
use super::signals::Signal;
use super::streams::ResolvedProxy;
use crate::control::Asked;

/// Messages that wait for the control thread.
pub(super) const MESSAGES_MAX: usize = 1_024;

/// One thing for the control thread to see to.
pub(super) enum Message {
    /// A command of a person or a program.
    Asked(Asked),
    /// From the data thread.
    News(News),
    /// The links as they are now.
    Links(Vec<Link>),
    /// Another program may have changed items of the plan. An empty set means that it is time for a
    /// check.
    Host(BTreeSet<Change>),
    /// The strength of Wi-Fi links' signals in dBm, by index.
    Signals(Vec<(u32, Option<i8>)>),
    /// What is known of links, by name; of others nothing is.
    Tariffs(BTreeMap<String, Tariff>),
    /// What came back when a link that carries nothing was asked about a captive portal.
    Portal {
        /// The link's index.
        link: u32,
        /// What came.
        answer: Answer,
    },
    /// From the system.
    Signal(Signal),
    /// The gateway's addresses, or why its names do not resolve.
    Resolved(Result<Vec<SocketAddr>, String>),
    /// The NAT64 prefixes of a network without IPv4.
    Nat64 {
        /// The network.
        network: Network,
        /// Its prefixes, at least one.
        prefixes: Vec<Nat64Prefix>,
    },
    /// The proxy's address.
    Proxy(ResolvedProxy),
    /// An answer came back through the tunnel.
    Answered,
}
