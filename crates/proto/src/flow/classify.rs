//! What a flow is for, by what is known of it: what the user said first, then what its datagrams
//! look like, then ports. One pure function.

pub use crate::packet::Class;

/// Ports of programs that somebody types into.
const INTERACTIVE: [u16; 5] = [22, 23, 513, 3389, 5900];
/// DNS, also over TCP and TLS.
const NAMES: [u16; 2] = [53, 853];

/// The class of a flow between these ports. `is_early` if it is of no use late: its user said so,
/// or its datagrams are RTP.
pub fn classify((from, to): (u16, u16), is_early: bool) -> Class {
    let is = |ports: &[u16]| ports.contains(&from) || ports.contains(&to);
    if is_early {
        Class::RealTime
    } else if is(&INTERACTIVE) {
        Class::Interactive
    } else if is(&NAMES) {
        Class::Names
    } else {
        Class::Bulk
    }
}
