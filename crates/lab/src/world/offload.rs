//! Hosts whose segmentation offload mangles what is sent in one call: a wrong checksum or a wrong
//! length, so that the datagrams are lost on their way.
//!
//! Decides which datagrams of a segmented send are lost. Knows no contents and no links: what is
//! sent alone is never lost here.

use std::collections::BTreeMap;

use rove_engine::memory::Segment;

use super::host_id::HostId;
use crate::ground::Mangled;

/// The offload of all hosts.
#[derive(Debug, Default)]
pub(super) struct Offload {
    mangled: Option<Mangled>,
    /// Segmented sends of each host so far.
    sends: BTreeMap<HostId, u32>,
}

impl Offload {
    /// From now on it mangles this, on every host.
    pub(super) const fn mangle(&mut self, mangled: Mangled) {
        self.mangled = Some(mangled);
    }

    /// Whether a datagram of a host is lost that leaves at this place of a segmented send.
    pub(super) fn loses(&mut self, host: HostId, segment: Option<Segment>) -> bool {
        let (Some(mangled), Some(segment)) = (self.mangled, segment) else { return false };
        let sends = self.sends.entry(host).or_default();
        *sends += u32::from(segment.at == 0);
        match mangled {
            Mangled::EqualRuns => segment.is_last_full,
            Mangled::FullLast => segment.is_last_full && segment.at + 1 == segment.count,
            Mangled::EveryNth(every) => sends.is_multiple_of(every.max(1)),
        }
    }
}
