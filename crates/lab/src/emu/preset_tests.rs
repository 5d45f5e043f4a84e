//! Presets are what their names say.

use super::*;

#[test]
fn every_listed_preset_exists_and_no_other() {
    for (name, _) in LinkConfig::NAMES {
        assert!(LinkConfig::by_name(name).is_some(), "{name}");
    }
    assert!(LinkConfig::by_name("carrier_pigeon").is_none());
    assert!(LinkConfig::NAMES.is_sorted());
}

#[test]
fn a_lossless_link_has_the_queue_of_one_round_trip() {
    let link = LinkConfig::lossless(20_000_000, 40 * MS);
    assert_eq!(link.down.queue_bytes, 100_000);
    assert_eq!(link.round_trip_ns(), 40 * MS);
    assert_eq!(LinkConfig::lossless(1_000_000, MS).down.queue_bytes, 64 * 1024);
    let dsl = LinkConfig::by_name("dsl").unwrap();
    assert_eq!(dsl.up.queue_bytes, 50_000, "200 ms at 2 Mbit/s");
    assert_eq!(dsl.round_trip_ns(), 24 * MS);
}
