//! Scenarios: stories told on the emulated Internet, and what was measured in them.

pub mod testbed;
