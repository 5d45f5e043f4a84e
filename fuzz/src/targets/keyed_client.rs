//! A client that enrolled and is hostile: whatever it seals, the gateway stays up, delivers only
//! what comes from the client's own address and goes where it may, and is no amplifier.

use super::frames;
use crate::Target;
use crate::between::End;
use crate::keyed;

/// The target. A run costs some milliseconds, hence the few mutations.
pub const TARGET: Target = Target { name: "keyed_client", run, seeds, mutations: 300 };

fn run(data: &[u8]) {
    keyed::run(End::Gateway, data);
}

fn seeds() -> Vec<Vec<u8>> {
    keyed::seeds(&(frames::TARGET.seeds)())
}
