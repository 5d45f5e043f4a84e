//! Values that people and JSON write as one word.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A text that is none of the words for a value. Its message lists the words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownWord(String);

impl UnknownWord {
    fn new(text: &str, what: &str, words: &[&str]) -> Self {
        let (last, others) = words.split_last().unwrap_or((&"", &[]));
        Self(format!("{text:?} is no {what}: write {} or {last}", others.join(", ")))
    }
}

impl fmt::Display for UnknownWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for UnknownWord {}

/// Defines an enumeration by the word for each of its values. The same word is used in JSON, on the
/// command line and in configuration.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident is a $what:literal {
        $($(#[$about:meta])* $value:ident = $word:literal,)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$about])* #[serde(rename = $word)] $value,)+
        }

        impl $name {
            /// The word for it.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$value => $word,)+
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.word())
            }
        }

        impl FromStr for $name {
            type Err = UnknownWord;

            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                match text {
                    $($word => Ok(Self::$value),)+
                    _ => Err(UnknownWord::new(text, $what, &[$($word),+])),
                }
            }
        }
    };
}

words! {
    /// How many links carry data.
    #[derive(Default)]
    LinkMode is a "mode" {
        /// All links, together.
        #[default]
        Full = "full",
        /// One link. A path by each of the others is proven before it is needed.
        Backup = "backup",
        /// One link. No other link is prepared.
        Single = "single",
    }
}

words! {
    /// When a link carries data.
    #[derive(Default)]
    LinkUse is a "use" {
        /// Whenever the mode says so.
        #[default]
        Always = "always",
        /// Only while no other link carries data.
        Backup = "backup",
        /// Never.
        Never = "never",
    }
}

words! {
    /// What the congestion controller of a path knows about it.
    ControllerPhase is a "phase" {
        /// It still searches for the rate of the path.
        Startup = "startup",
        /// It empties the queue that the search has filled.
        Drain = "drain",
        /// It knows the rate of the path.
        Steady = "steady",
        /// Other senders fill the queue of the path.
        Competing = "competing",
    }
}

words! {
    /// What keeps an end from sending more on a path.
    SendLimit is a "limit" {
        /// Nothing waits to be sent.
        Application = "application",
        /// The pacing rate.
        Pacing = "pacing",
        /// The congestion window.
        Window = "window",
    }
}

words! {
    /// The kind of a link.
    LinkKind is a "type of link" {
        /// A wired network.
        Ethernet = "ethernet",
        /// A wireless LAN.
        Wifi = "wifi",
        /// A mobile network.
        Cellular = "cellular",
        /// Any other kind.
        Other = "other",
    }
}

words! {
    /// What carries datagrams to the gateway.
    #[derive(Default)]
    TransportChoice is a "transport" {
        /// UDP, and streams where UDP is blocked.
        #[default]
        Auto = "auto",
        /// UDP only.
        Udp = "udp",
        /// TCP only, with TLS inside.
        Tcp = "tcp",
        /// MPTCP, whose subflows use every link; TCP if one end has no MPTCP.
        Mptcp = "mptcp",
    }
}

impl TransportChoice {
    /// Whether UDP is tried.
    pub const fn has_udp(self) -> bool {
        matches!(self, Self::Auto | Self::Udp)
    }

    /// Whether streams are tried.
    pub const fn has_streams(self) -> bool {
        !matches!(self, Self::Udp)
    }
}

words! {
    /// Which paths carry data together.
    #[derive(Default)]
    PathManager is a "path manager" {
        /// The best path of each link.
        #[default]
        OnePerLink = "one-per-link",
        /// A path from each link to each address of the gateway.
        FullMesh = "full-mesh",
    }
}

words! {
    /// What the repair of losses is tuned for.
    #[derive(Default)]
    RecoveryFor is a "recovery" {
        /// The sum of what the links carry.
        #[default]
        Throughput = "throughput",
        /// A short queue where packets enter the tunnel.
        Latency = "latency",
    }
}

words! {
    /// When a client uses as little data as it can.
    #[derive(Default)]
    DataUse is a "use of data" {
        /// Always.
        Save = "save",
        /// Never.
        Normal = "normal",
        /// While the link in use is metered.
        #[default]
        Auto = "auto",
    }
}

words! {
    /// The state of a session.
    #[derive(Default)]
    SessionState is a "state of a session" {
        /// There are no keys.
        Unestablished = "unestablished",
        /// There are keys and a path.
        Up = "up",
        /// The session is changing to another address.
        Moving = "moving",
        /// There are keys and no path that carries data.
        Suspended = "suspended",
        /// It was closed, or no client runs.
        #[default]
        Down = "down",
    }
}

words! {
    /// The state of a path.
    PathState is a "state of a path" {
        /// Its link or address is gone.
        Gone = "gone",
        /// The other end does not answer on it.
        Silent = "silent",
        /// It carries data.
        InUse = "in use",
        /// It is healthy and carries no data.
        Standby = "standby",
    }
}

words! {
    /// What is held of TCP connections during an outage.
    Hold is a "way to hold connections" {
        /// All outstanding data, which is acknowledged locally.
        Full = "full",
        /// The oldest segments, which are sent again after the outage.
        Reinject = "reinject",
        /// Nothing.
        Off = "off",
    }
}

words! {
    /// The role of a node.
    Node is a "node" {
        /// A client.
        Client = "client",
        /// A gateway.
        Gateway = "gateway",
    }
}

words! {
    /// Whether a peer belongs to the gateway.
    Membership is a "membership" {
        /// It does.
        Enrolled = "enrolled",
        /// It was revoked.
        Revoked = "revoked",
    }
}

words! {
    /// The result of one check.
    CheckState is a "result of a check" {
        /// No fault was found.
        Ok = "ok",
        /// A fault was found.
        Failed = "failed",
        /// The check could not be made.
        Unknown = "unknown",
    }
}
