//! Elision of headers: which packets leave without the fields that their flow has in common, and
//! when the peer is sent such fields (docs/spec/wire.md#compact-packets).
//!
//! Packets leave so under the current keys only. A path may carry a packet in this form and not
//! whole: data shows only that sizes arrive which it has, and the path's measured MTU may fall to
//! that of elided packets. Segment sizes follow from whole packets, because contexts end in the
//! middle of flows. A flow whose headers are sealed apart from its
//! payload must keep them: a profile of that kind is to be asked for in [`is_on`].

use super::{Context, Tunnel};
use crate::ablation::Heuristic;
use crate::codec::contexts::{Compact, Passing};
use crate::codec::header::{Fields, Template};
use crate::id::EpochId;
use crate::packet::PacketRecord;
use crate::session::control::ControlSender;
use crate::time::{Duration, Instant};
use crate::wire::control::Control;
use crate::wire::features::Features;
use crate::wire::frame::{COMPACT_OVERHEAD, CompactHead, Framing};
use crate::wire::inner::Pieces;

/// Control frames that may be open when a context is defined: contexts are no reason for others to
/// wait, and a receiver takes 32 beyond a gap.
const OPEN_MAX: usize = 8;

/// A definition leaves so much later: it is made while packets leave, when the control frames of
/// this moment have left already. Several definitions then share a datagram.
const PAUSE: Duration = Duration::from_millis(1);

/// How a packet leaves in fewer bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elided {
    head: CompactHead,
    fields: Fields,
}

impl Elided {
    /// Bytes of the frame of `packet`.
    pub(super) fn len(&self, packet: Pieces<'_>) -> usize {
        COMPACT_OVERHEAD + self.fields.len(&packet)
    }

    /// Appends the frame of `packet`.
    pub(super) fn append(&self, packet: Pieces<'_>, frames: &mut Vec<u8>) {
        self.head.emit(self.fields.len(&packet), frames);
        self.fields.append(packet, frames);
    }
}

/// How `packet` leaves in fewer bytes under the keys of `epoch`; `None` if it leaves whole. May
/// send the peer what it needs for later packets of the flow.
pub(super) fn elide(
    tunnel: &mut Tunnel,
    cx: &Context<'_>,
    (epoch, framing): (EpochId, Framing),
    record: PacketRecord,
    packet: Pieces<'_>,
) -> Option<Elided> {
    if !is_on(tunnel, cx, epoch) {
        return None;
    }
    let passing = Passing { bucket: record.bucket, is_rtp: record.marks.is_rtp(), packet };
    let Tunnel { contexts, control, .. } = tunnel;
    let delivered = control.delivered();
    let define = |id, template: &Template| define(cx.now, control, id, template);
    let Compact { context, fields } = contexts.elide(cx.now, passing, delivered, define)?;
    Some(Elided { head: CompactHead::new(framing, context)?, fields })
}

/// The same for a lost packet, which the peer is sent nothing for.
pub(super) fn elide_again(
    tunnel: &Tunnel,
    cx: &Context<'_>,
    epoch: EpochId,
    framing: Framing,
    packet: Pieces<'_>,
) -> Option<Elided> {
    let (Framing::Once { bucket, .. } | Framing::InOrder { bucket, .. }) = framing else {
        return None;
    };
    if !is_on(tunnel, cx, epoch) {
        return None;
    }
    let Compact { context, fields } = tunnel.contexts.elide_again(bucket, packet)?;
    Some(Elided { head: CompactHead::new(framing, context)?, fields })
}

/// Whether the packets of an epoch may leave so.
pub(super) fn is_on(tunnel: &Tunnel, cx: &Context<'_>, epoch: EpochId) -> bool {
    let current = tunnel.epochs.current.as_ref().filter(|current| current.id == epoch);
    current.is_some_and(|current| current.features().has(Features::COMPACT))
        && !cx.config.ablation.is_off(Heuristic::Elision)
}

/// Sends the peer a template. Returns the number of the control frame, if there was room for it.
fn define(now: Instant, control: &mut ControlSender, id: u16, template: &Template) -> Option<u32> {
    if control.len() >= OPEN_MAX {
        return None;
    }
    let (number, header) = (control.next(), template.header().to_vec());
    let message = Control::Context { id, form: template.form(), header };
    control.push(now + PAUSE, &message).then_some(number)
}
