//! What a flow is for, by what is known of it: what the user said first, then what its datagrams
//! look like, then ports. One pure function.

/// Ports of programs that somebody types into.
const INTERACTIVE: [u16; 5] = [22, 23, 513, 3389, 5900];
/// DNS, also over TCP and TLS.
const NAMES: [u16; 2] = [53, 853];

/// What a flow was recognised as.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Class {
    /// Somebody waits for each answer.
    Interactive,
    /// Questions for names.
    Names,
    /// Anything else: as much as there is room for.
    Bulk,
    /// Of no use when it is late: somebody speaks, or is seen, or has said that it is so.
    RealTime,
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 4] = [Self::Interactive, Self::Names, Self::Bulk, Self::RealTime];

    /// The name by which status shows it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Names => "names",
            Self::Bulk => "bulk",
            Self::RealTime => "real-time",
        }
    }
}

/// The class of a flow between these ports. `is_early` if it is of no use late: its user said so,
/// or its datagrams are RTP.
pub fn classify((from, to): (u16, u16), is_early: bool) -> Class {
    let is = |ports: &[u16]| ports.contains(&from) || ports.contains(&to);
    if is_early {
        Class::RealTime
    } else if is(&INTERACTIVE) {
        Class::Interactive
    } else if is(&NAMES) {
        Class::Names
    } else {
        Class::Bulk
    }
}
