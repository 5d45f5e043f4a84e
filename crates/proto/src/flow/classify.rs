//! What a flow is for, by what is known of it: rules first, then ports. One pure function.

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
}

impl Class {
    /// Every class.
    pub const ALL: [Self; 3] = [Self::Interactive, Self::Names, Self::Bulk];

    /// The name by which status shows it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::Names => "names",
            Self::Bulk => "bulk",
        }
    }
}

/// The class of a flow between these ports.
pub fn classify(ports: (u16, u16)) -> Class {
    let is = |known: &[u16]| known.contains(&ports.0) || known.contains(&ports.1);
    if is(&INTERACTIVE) {
        Class::Interactive
    } else if is(&NAMES) {
        Class::Names
    } else {
        Class::Bulk
    }
}
