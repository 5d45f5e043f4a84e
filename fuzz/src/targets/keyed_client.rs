//! A hostile enrolled client. Whatever it seals, the gateway does not crash, is no amplifier, and
//! delivers only packets from the client's own address to allowed destinations.

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
