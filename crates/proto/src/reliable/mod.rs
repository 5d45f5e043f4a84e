//! What must arrive once: control frames, repeated until acknowledged, and the sequences by which
//! inner packets that travel by several paths are delivered a single time.
//!
//! Knows numbers and time, not what the frames mean nor which path carries them.

pub mod control;
pub mod sequence;
