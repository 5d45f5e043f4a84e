//! A snapshot of a controller for people who ask why a path is not faster.

/// What a controller knows about its path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControllerPhase {
    /// It still searches for the rate of the path.
    Startup,
    /// It empties the queue that the search has filled.
    Drain,
    /// It knows the rate of the path.
    Steady,
    /// Other senders fill the queue of the path.
    Competing,
}

/// What keeps this end from sending more on a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SendLimit {
    /// Nothing waits to be sent.
    Application,
    /// The pacing rate.
    Pacing,
    /// The congestion window.
    Window,
}

/// A snapshot of the congestion controller of a path, for what this end sends.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ControllerStatus {
    /// What the controller knows about the path.
    pub phase: ControllerPhase,
    /// Estimated rate of the path in bytes per second, UDP payload; 0 before the first feedback.
    pub rate: f64,
    /// Pacing rate in bytes per second, UDP payload.
    pub pacing_rate: f64,
    /// Congestion window in bytes, UDP payload.
    pub window: f64,
    /// Bytes in flight.
    pub in_flight: u64,
    /// What keeps this end from sending more.
    pub limit: SendLimit,
}
