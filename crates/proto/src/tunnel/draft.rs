//! The one place where a datagram of a session is made, whatever it carries: it gets its number,
//! its frames are kept for repair, and its path is charged for it.

use super::Context;
use crate::crypto::Profile;
use crate::error::DropReason;
use crate::outbox::Draft;
use crate::pack::joining::Contents;
use crate::path::Path;
use crate::policy::Profiles;
use crate::recovery::LossRecovery;
use crate::recovery::packet::{Load, SpaceId};
use crate::recovery::sent_packets::SentPackets;
use crate::session::epoch::Epoch;
use crate::time::{Duration, Instant};
use crate::wire::frame::Framing;
use crate::wire::inner::Pieces;

/// If a path could have sent for so long and nothing waited, the sender was idle: its rate is not
/// taken for its capacity (RFC 9002, section 7.8).
const IDLE: Duration = Duration::from_millis(1);

/// What a datagram carries, and what is kept of it if the datagram itself says too little.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cargo<'a> {
    /// What it carries; of frames that are joined, the first one.
    pub(super) load: Load,
    /// The packet frame that is kept in place of a compact one, whose context may be gone when the
    /// packet is lost.
    pub(super) whole: Option<(Framing, Pieces<'a>)>,
    /// The packet frames that share it, if there are several.
    pub(super) joined: Contents<'a>,
}

impl From<Load> for Cargo<'_> {
    fn from(load: Load) -> Self {
        Self { load, whole: None, joined: Contents::default() }
    }
}

/// Numbers one datagram of `epoch` for `path` and leaves it in the outbox, which seals it later.
/// Returns its length in bytes.
pub(super) fn draft_datagram(
    cx: &mut Context<'_>,
    (epoch, recovery): (&mut Epoch, &mut LossRecovery),
    path: &mut Path,
    cargo: Cargo<'_>,
    fill: impl FnOnce(&mut Draft<'_>),
) -> Result<usize, DropReason> {
    let Cargo { load, whole, joined } = cargo;
    if !path.allows(1) {
        return Err(DropReason::Amplification); // before an index is spent on it
    }
    if !epoch.has_lane_for(path) {
        return Err(DropReason::NoRoute);
    }
    let (id, profiles) = (epoch.id, epoch.profiles);
    let lane = epoch.lane(path).ok_or(DropReason::NoRoute)?;
    let mut draft = cx.out.begin().ok_or(DropReason::QueueFull)?;
    fill(&mut draft);
    let padding = padding(path, profiles, load, draft.len());
    let len = draft.len() + padding;
    if !path.allows(len) {
        return Err(DropReason::Amplification);
    }
    let sent = recovery.space(SpaceId { epoch: id, serial: lane.seal.serial }, path.id);
    note_idle(cx.now, path, sent);
    let number = lane.take_number();
    let blocks = cx.memory.blocks();
    let mut kept = joined.kept();
    match (whole, kept.next()) {
        (Some((framing, packet)), _) => {
            let head = &framing.bytes()[..framing.overhead()];
            sent.sent(cx.now, blocks, (number, len), load, [head, packet.head, packet.tail]);
        }
        (None, Some((_, first))) => {
            sent.sent(cx.now, blocks, (number, len), load, [first, &[], &[]]);
            kept.for_each(|(record, frame)| sent.joined(cx.now, blocks, record, frame));
        }
        (None, None) => {
            sent.sent(cx.now, blocks, (number, len), load, [&*draft.written(), &[], &[]]);
        }
    }
    let sending = path.offload.next(matches!(load, Load::Repair { .. }));
    let asked = load.strength().max(joined.strength());
    let profile = pad(&mut draft, profiles.of(number, asked), padding);
    let begins = draft.finish((path.route, sending), &lane.seal, profile, number);
    if let Some(run) = path.offload.added(sending, begins) {
        sent.in_run(run);
    }
    path.sent(cx.now, len);
    if load == Load::Report {
        path.reported(len);
    }
    Ok(len)
}

/// How many bytes of padding a datagram of `len` bytes gets. Probes have the size that they are to
/// test, so nothing but data is padded. An address that is not proven gets no padding that would
/// use up what it may be sent.
fn padding(path: &Path, profiles: Profiles, load: Load, len: usize) -> usize {
    let padding = if load.is_data() { profiles.padding(len, path.mtu.datagram()) } else { 0 };
    if padding == 0 || path.allows(len + padding) { padding } else { 0 }
}

/// Appends the padding, which no copy for repair has. Returns the profile that says so.
fn pad(draft: &mut Draft<'_>, profile: Profile, padding: usize) -> Profile {
    if padding == 0 {
        return profile;
    }
    draft.pad(padding);
    profile.padded()
}

/// Something leaves, be it data or not: where the path could have carried something before, and
/// there was nothing, its rate says nothing of what it carries.
fn note_idle(now: Instant, path: &mut Path, sent: &mut SentPackets) {
    let was_wanted = path.was_wanted();
    if let Some(controller) = &mut path.congestion
        && !was_wanted
        && controller.idle_from() + IDLE < now
    {
        sent.limited();
        controller.limited(sent.in_flight());
    }
}
