//! Whether an inner packet of a peer is delivered: by the peer's grants, or because it replies to a
//! packet that the peer received.

use super::access::Access;
use super::answers::Answers;
use super::refusals::Refusals;
use crate::error::DropReason;
use crate::time::Instant;
use crate::wire::icmp;
use crate::wire::inner::InnerPacket;

/// What one peer may send.
#[derive(Debug)]
pub struct Admission {
    access: Access,
    answers: Answers,
    refusals: Refusals,
}

impl Admission {
    /// `secret` is a random number that the peer does not know.
    pub fn new(access: Access, secret: u64) -> Self {
        Self { access, answers: Answers::new(secret), refusals: Refusals::default() }
    }

    /// The peer's own addresses and its grants.
    pub const fn access(&self) -> &Access {
        &self.access
    }

    /// Replaces them.
    pub fn set_access(&mut self, access: Access) {
        self.access = access;
    }

    /// Notes a packet to the peer, which may reply to it.
    pub(crate) fn note_sent(&mut self, now: Instant, packet: &InnerPacket<'_>) {
        if !self.access.is_internet(packet.headers.source) {
            self.answers.expect(now, packet);
        }
    }

    /// Admits a packet of the peer.
    ///
    /// # Errors
    /// The reason, if the peer may neither contact the destination nor replies to it.
    pub fn admit(&mut self, now: Instant, packet: &InnerPacket<'_>) -> Result<(), DropReason> {
        self.access.admit(&packet.headers).or_else(|reason| {
            let is_own = self.access.owns(packet.headers.source);
            if is_own && self.answers.admit(now, packet) { Ok(()) } else { Err(reason) }
        })
    }

    /// The ICMP message that tells the peer that the destination of a packet is prohibited (RFC
    /// 1812, section 5.2.7.1; RFC 4443, section 3.1). `None` if the source may not be the peer's
    /// own, or if the peer was told too often.
    pub fn refusal(&mut self, now: Instant, packet: &InnerPacket<'_>) -> Option<Vec<u8>> {
        let from = self.access.refuses_from(&packet.headers)?;
        if !icmp::may_be_answered(packet) || !self.refusals.take(now) {
            return None;
        }
        let mut answer = Vec::new();
        icmp::prohibit(from, packet, &mut answer);
        Some(answer)
    }
}
