//! The capabilities that a node works with, and whether this process has the one that matters most.

use std::fs;

// linux/capability.h
const CAP_NET_BIND_SERVICE: u32 = 10;
const CAP_NET_ADMIN: u32 = 12;
const CAP_NET_RAW: u32 = 13;
/// What a node keeps.
pub(super) const KEPT: [u32; 3] = [CAP_NET_BIND_SERVICE, CAP_NET_ADMIN, CAP_NET_RAW];

/// Whether this process has CAP_NET_ADMIN, in its user namespace.
pub(super) fn may_configure() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let effective = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    effective.is_some_and(|set| set & 1 << CAP_NET_ADMIN != 0)
}
