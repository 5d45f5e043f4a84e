//! What is saved on the packets of one session: the flows that are compressed, and the datagram
//! under construction.
//!
//! Decides nothing by itself: `codec` decides which packets are compressed and how. Knows no path
//! and sends nothing; `saving` does.

use super::Context;
use crate::codec::SavingConfig;
use crate::codec::allowed::{Allowed, Rule};
use crate::codec::coding::Coding;
use crate::codec::dictionary::{Agreed, Dictionaries};
use crate::codec::entries::{ENTRIES_GATEWAY_MAX, ENTRIES_MAX, Entries, Way};
use crate::codec::sampling::Scarce;
use crate::pack;
use crate::pack::joining::Joining;
use crate::packet::{PacketRecord, Saving};
use crate::path::{PathId, Saved};
use crate::session::index::EpochId;
use crate::time::Instant;
use crate::wire::control::{Control, DICTIONARY_HASH, End};
use crate::wire::frame::Framing;
use crate::wire::inner::{InnerPacket, Pieces};

/// A path under some keys.
pub(super) type Place = (EpochId, PathId);

/// What is saved on the packets of one session.
#[derive(Debug)]
pub(crate) struct Saver {
    entries: Entries,
    /// The datagram under construction.
    joining: Joining<Place>,
    /// The dictionaries that both ends have; `None` before the peer has said which it has. One that
    /// does understands compressed packets.
    agreed: Option<Agreed>,
    /// Whether results are padded.
    pads: bool,
    /// Whether as few bytes as possible leave: as the client wants.
    is_frugal: bool,
    /// Gateway: the client has said in this epoch how bytes are saved.
    is_told: bool,
    scarce: Scarce,
    /// Room for one frame as it leaves,
    frame: Vec<u8>,
    /// and as it is kept for repair; empty if that is the same.
    other: Vec<u8>,
    /// Bytes saved on all paths.
    saved: Saved,
    /// How often a packet was compressed, whether it got smaller or not.
    operations: u64,
}

impl Saver {
    /// One that saves nothing yet.
    pub(crate) fn new(at_gateway: bool) -> Self {
        let places = if at_gateway { ENTRIES_GATEWAY_MAX } else { ENTRIES_MAX };
        Self {
            entries: Entries::new(places),
            joining: Joining::new(),
            agreed: None,
            pads: false,
            is_frugal: false,
            is_told: false,
            scarce: Scarce::default(),
            frame: Vec::new(),
            other: Vec::new(),
            saved: Saved::default(),
            operations: 0,
        }
    }

    /// What was saved so far.
    pub(crate) const fn saved(&self) -> Saved {
        self.saved
    }

    /// How often a packet was compressed so far, whether it got smaller or not.
    pub(crate) const fn operations(&self) -> u64 {
        self.operations
    }

    /// When the datagram under construction leaves at the latest.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.joining.due()
    }

    /// Whether no flow is compressed: then it need not be told what is scarce.
    pub(crate) fn is_off(&self) -> bool {
        self.entries.is_off()
    }

    /// Whether as few bytes as possible leave.
    pub(super) const fn is_frugal(&self) -> bool {
        self.is_frugal
    }

    /// Client: whether its gateway has nothing to be told.
    pub(crate) fn has_no_wish(&self) -> bool {
        self.entries.is_off() && !self.is_frugal
    }

    /// Client: saves as the user wants from now on. Returns whether its gateway has to be told.
    pub(crate) fn apply(&mut self, config: &SavingConfig) -> bool {
        let flags = (config.pads, config.frugal);
        let is_other_list = *self.entries.allowed() != config.compress;
        let is_news = (self.pads, self.is_frugal) != flags || is_other_list;
        (self.pads, self.is_frugal) = flags;
        if is_other_list {
            self.entries.allow(config.compress.clone());
        }
        is_news
    }

    /// Client: what its gateway is told of its rules.
    pub(crate) fn rules(&self) -> Control {
        let rules = self.entries.allowed().rules();
        let rules = rules.iter().map(|rule| (rule.end, rule.coding.to_byte())).collect();
        Control::Compress { pads: self.pads, frugal: self.is_frugal, rules }
    }

    /// Gateway: its client wants these flows compressed, in both directions, with results that are
    /// padded or not, and perhaps as few bytes as possible. What is compressed in a way that this
    /// end does not know is joined only.
    pub(crate) fn take_rules(&mut self, (pads, frugal): (bool, bool), rules: &[(End, u8)]) {
        let rule = |&(end, byte): &(End, u8)| Rule {
            end,
            coding: Coding::from_byte(byte).unwrap_or_default(),
        };
        let rules: Vec<_> = rules.iter().map(rule).collect();
        (self.pads, self.is_frugal, self.is_told) = (pads, frugal, true);
        self.entries.allow(Allowed::new(&rules));
    }

    /// Gateway: its client has introduced itself. One that did not say how bytes are saved wants
    /// nothing of it, and may be another process than before.
    pub(crate) fn end_introduction(&mut self) {
        if !std::mem::take(&mut self.is_told) && !self.has_no_wish() {
            self.is_frugal = false;
            self.entries.allow(Allowed::default());
        }
    }

    /// The peer has these dictionaries, and this end its `own`.
    pub(crate) fn take_dictionaries(
        &mut self,
        own: &Dictionaries,
        peers: &[(u8, [u8; DICTIONARY_HASH])],
    ) {
        self.agreed = Some(own.agreed(peers));
    }

    /// There are new keys: the peer says anew what it has and wants.
    pub(crate) const fn begin_epoch(&mut self) {
        (self.agreed, self.is_told) = (None, false);
    }

    /// The session ends. What waits to leave is dropped with its keys.
    pub(crate) fn forget(&mut self) {
        self.begin_epoch();
        self.joining.clear();
    }

    /// The dictionaries that both ends have, once the peer has said which it has.
    pub(crate) const fn agreed(&self) -> Option<Agreed> {
        self.agreed
    }

    /// Whether the peer has said in this epoch that it understands compressed packets.
    pub(super) const fn is_understood(&self) -> bool {
        self.agreed.is_some()
    }

    /// Takes notice of a packet on its way out, while this is `scarce`. Returns how bytes are saved
    /// on it.
    pub(super) fn judge(
        &mut self,
        cx: &Context<'_>,
        scarce: Scarce,
        packet: &InnerPacket<'_>,
    ) -> Saving {
        self.scarce = scarce;
        self.entries.decide(cx.config.saving.decides);
        self.entries.pass(cx.now, Way::Out, packet)
    }

    /// The datagram under construction.
    pub(super) const fn joining(&self) -> &Joining<Place> {
        &self.joining
    }

    /// Takes the datagram under construction out; [`Self::give_back`] takes its memory.
    pub(super) fn take_joining(&mut self) -> Joining<Place> {
        std::mem::replace(&mut self.joining, Joining::new())
    }

    /// Takes back the memory of a datagram that has left.
    pub(super) fn give_back(&mut self, mut joining: Joining<Place>) {
        joining.clear();
        self.joining = joining;
    }

    /// Puts the frame that was written last into the datagram under construction, as
    /// [`Joining::add`] does.
    pub(super) fn add(
        &mut self,
        place: (Place, usize),
        due: Instant,
        record: PacketRecord,
    ) -> bool {
        let other = Some(&self.other[..]).filter(|other| !other.is_empty());
        self.joining.add(place, due, record, (&self.frame, other))
    }

    /// Bytes of the frame that was written last, as it leaves.
    pub(super) const fn frame_len(&self) -> usize {
        self.frame.len()
    }

    /// By how many bytes it is shorter so than as it is kept.
    pub(super) const fn elided(&self) -> usize {
        self.other.len().saturating_sub(self.frame.len())
    }

    /// Counts what was saved.
    pub(super) const fn count(&mut self, saved: Saved) {
        self.saved.add(saved);
    }

    /// Writes the frame of a packet that is not compressed.
    pub(super) fn write(&mut self, framing: Framing, packet: Pieces<'_>) {
        self.frame.clear();
        self.other.clear();
        pack::append(framing, packet, &mut self.frame);
    }

    /// The same, and `append` writes the form in which it leaves.
    pub(super) fn write_as(
        &mut self,
        framing: Framing,
        packet: Pieces<'_>,
        append: impl FnOnce(&mut Vec<u8>),
    ) {
        self.write(framing, packet);
        std::mem::swap(&mut self.frame, &mut self.other);
        append(&mut self.frame);
    }

    /// The frame of a packet that is sent again, compressed, if packets of its flow are and if that
    /// makes it smaller.
    pub(super) fn compress_again(
        &mut self,
        cx: &mut Context<'_>,
        framing: Framing,
        packet: &InnerPacket<'_>,
    ) -> Option<Vec<u8>> {
        let coding = self.entries.coding_again(packet)?;
        self.compress(cx, coding, framing, packet.pieces).then(|| self.frame.clone())
    }

    /// Takes notice of a packet that came from the peer.
    pub(crate) fn note(&mut self, now: Instant, packet: &InnerPacket<'_>) {
        if !self.entries.is_off() {
            self.entries.pass(now, Way::In, packet);
        }
    }

    /// Writes the frame of a packet into the room for one, if its record says that it is compressed
    /// and if that makes it smaller. Returns its record then.
    pub(super) fn encode(
        &mut self,
        cx: &mut Context<'_>,
        framing: Framing,
        record: PacketRecord,
        packet: Pieces<'_>,
    ) -> Option<PacketRecord> {
        let coding = record.saving.coding().and_then(Coding::from_byte)?;
        // The connection keeps other bytes than those in the frame.
        let record = PacketRecord { kept: 0, ..record };
        self.compress(cx, coding, framing, packet).then_some(record)
    }

    /// Writes the frame of a packet compressed. Returns whether it is smaller so.
    fn compress(
        &mut self,
        cx: &mut Context<'_>,
        coding: Coding,
        framing: Framing,
        packet: Pieces<'_>,
    ) -> bool {
        self.frame.clear();
        self.other.clear();
        let has = self.agreed.unwrap_or_default().has(coding.dictionary());
        let result = cx.coder.compress(if has { coding } else { Coding::ZSTD }, packet, self.pads);
        self.operations += 1;
        if let Some(result) = result {
            framing.emit_compressed(result, &mut self.frame);
        }
        let left = result.map(<[u8]>::len);
        if let Ok(packet) = InnerPacket::parse(packet) {
            self.entries.left(cx.now, &packet, left, self.scarce);
        }
        left.is_some()
    }
}
