//! Which of the two ends of a connection.

/// One of the two ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Opens the connection; the first end of the link.
    Client,
    /// Waits for it.
    Server,
}

impl Side {
    /// The one across.
    pub const fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}
