//! A hostile gateway. Whatever it seals, the client does not crash, passes only whole packets to
//! its host and is no amplifier.

use super::frames;
use crate::Target;
use crate::between::End;
use crate::keyed;

/// The target. A run costs some milliseconds, hence the few mutations.
pub const TARGET: Target = Target { name: "keyed_gateway", run, seeds, mutations: 80 };

fn run(data: &[u8]) {
    keyed::run(End::Client, data);
}

fn seeds() -> Vec<Vec<u8>> {
    keyed::seeds(&(frames::TARGET.seeds)())
}
