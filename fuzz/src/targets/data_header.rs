//! The head of a data datagram, before any key is found, and the expansion of packet numbers.

use rove_proto::wire::Kind;
use rove_proto::wire::data::{MAX_DATAGRAM, MIN_LEN, expand_number, session_index};

use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "data_header", run, seeds, mutations: 100_000 };

/// Half of the numbers that 32 bits tell apart.
const HALF: u64 = 1 << 31;

fn run(data: &[u8]) {
    // Any first byte is a kind or none; neither may panic.
    let _ = Kind::of(data);
    let fits = (MIN_LEN..=MAX_DATAGRAM).contains(&data.len());
    assert_eq!(session_index(data).is_ok(), fits, "the length alone decides");

    let Some((number, _)) = data.split_first_chunk::<12>() else { return };
    let (highest, truncated) = number.split_at(8);
    let highest = highest.iter().fold(0, |all, byte| all << 8 | u64::from(*byte));
    let truncated = truncated.iter().fold(0, |all, byte| all << 8 | u32::from(*byte));
    // Sealing stops long before 2^62 (docs/spec/wire.md#2-data), so nothing beyond is a
    // real number.
    let highest = highest >> 2;
    let number = expand_number(Some(highest), truncated);
    assert_eq!(number & 0xffff_ffff, u64::from(truncated), "the bits that travelled are kept");
    let expected = highest + 1;
    let near = number.abs_diff(expected) <= HALF;
    assert!(near || number < 2 * HALF, "{number} is not the nearest to {expected}");
}

fn seeds() -> Vec<Vec<u8>> {
    let mut shortest = vec![0x10, 0, 0, 0, 1, 7];
    shortest.resize(MIN_LEN, 0xa5);
    let mut around_the_wrap = vec![0, 0, 0, 0, 3, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe];
    around_the_wrap.resize(MIN_LEN, 0);
    vec![shortest, around_the_wrap, vec![0x10; MAX_DATAGRAM], Vec::new()]
}
