//! `rove`: the one binary.
fn main() {}
