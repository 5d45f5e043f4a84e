//! The messages that a client's control thread receives and a gateway's does not.

use std::collections::BTreeMap;

use rove_host::message;
use rove_os::names::Nat64Prefix;
use rove_os::portal::Answer;
use rove_os::tariff::Tariff;

use crate::nat64::Network;
use crate::streams::ResolvedProxy;

/// A message for a client's control thread.
pub(crate) type Message = message::Message<Own>;

/// The messages that only a client receives.
pub(crate) enum Own {
    /// The strength of Wi-Fi links' signals in dBm, by index.
    Signals(Vec<(u32, Option<i8>)>),
    /// The known tariffs of links, by name.
    Tariffs(BTreeMap<String, Tariff>),
    /// The result of a search for a captive portal on a link without a working path.
    Portal {
        /// The link's index.
        link: u32,
        /// The answer.
        answer: Answer,
    },
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
