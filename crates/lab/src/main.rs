//! `rove-lab`: runs scenarios.
fn main() {}
