//! No datagram is sealed with a suite below the floor of either end, whatever its sender wishes.

use rove_proto::crypto::{Floor, Profile};

use super::{Breach, Law};

/// A datagram is sealed as `profile`, in a world whose sessions all have this floor.
pub(in crate::world) fn check_floor(profile: Profile, floor: Floor) -> Result<(), Breach> {
    let suite = profile.suite();
    if suite.meets(floor) {
        return Ok(());
    }
    Err(Breach::new(Law::Floor, format!("sealed with {} below {floor:?}", suite.label())))
}
