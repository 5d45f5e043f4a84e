//! The contexts of one epoch: the templates that this end has sent, and those that it was sent
//! (docs/spec/wire.md#contexts).
//!
//! The sender decides which flows get a context. A flow gets one after [`PACKETS_BEFORE`] packets,
//! since a definition costs what it saves on three. It has two templates at most. IDs count up from
//! 0 and are never used twice, because a packet that was delayed would else come out as another
//! flow's.
//!
//! Bounds: [`BUCKET_TEMPLATES`] templates for each of 256 buckets on the sending side, and
//! [`KEPT`] on the receiving one.

use std::collections::VecDeque;

use super::header::{Fields, Template};
use crate::error::DropReason;
use crate::time::{Duration, Instant};
use crate::wire::inner::Pieces;

/// Contexts that a receiver keeps: the newest. More concurrent flows than any session of a
/// household has; 150 KB.
pub const KEPT: usize = 1_024;
/// The sender uses only so many of the newest. Packets on their way may be older than the
/// definitions that follow them, and the receiver must know their contexts still.
const USED: u32 = 768;
/// IDs of an epoch: there are no further contexts.
const IDS: u32 = 1 << 16;
/// Templates of the flows of one bucket. With half as many, two flows with two templates each fill
/// a bucket, and of 256 busy flows a third would travel whole.
pub const BUCKET_TEMPLATES: usize = 8;
/// Templates of one flow: with SACK blocks and without, or RTP and what else its ports carry.
const FLOW_TEMPLATES: usize = 2;
const BUCKETS: usize = 256;
/// Packets of a flow before its context is defined. A definition takes about 80 bytes of a control
/// frame and its acknowledgement, a compact packet saves 20 to 60. A DNS query or its answer is one
/// packet and never pays.
pub const PACKETS_BEFORE: u8 = 4;
/// A context that was not used for so long may be replaced by that of another flow. If it were
/// shorter, more flows than a bucket has room for would replace each other's contexts for ever.
pub const IDLE: Duration = Duration::from_secs(10);

const _: () = assert!(KEPT * size_of::<Option<Template>>() <= 160 * 1_024);
const _: () = assert!(BUCKETS * BUCKET_TEMPLATES * size_of::<Entry>() <= 400 * 1_024);
const _: () = assert!((USED as usize) < KEPT);

/// A packet on its way out.
#[derive(Clone, Copy, Debug)]
pub struct Passing<'a> {
    /// The bucket of its flow.
    pub bucket: u8,
    /// Whether its flow is RTP.
    pub is_rtp: bool,
    /// Its bytes.
    pub packet: Pieces<'a>,
}

/// A packet that travels as what varies of it.
#[derive(Clone, Copy, Debug)]
pub struct Compact {
    /// The ID of its context.
    pub context: u16,
    /// The fields.
    pub fields: Fields,
}

/// The sending side.
#[derive(Clone, Debug, Default)]
pub struct Contexts {
    /// None at all, or [`BUCKETS`].
    buckets: Vec<Bucket>,
    /// The ID of the next context.
    next: u32,
    /// Checks that what comes out is what went in.
    #[cfg(debug_assertions)]
    check: Check,
}

/// The templates of the flows of one bucket.
#[derive(Clone, Debug, Default)]
struct Bucket {
    entries: Vec<Entry>,
    /// The place of the one that was used last. Packets come in runs, so the next packet is
    /// compared with it first.
    recent: usize,
}

/// A template of a flow.
#[derive(Clone, Copy, Debug)]
struct Entry {
    template: Template,
    state: State,
    used_at: Instant,
}

/// How far a template has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// So many packets had it.
    Seen(u8),
    /// It was sent in the control frame with this number.
    Sent { id: u16, number: u32 },
    /// The peer has it.
    Known { id: u16 },
}

impl Contexts {
    /// What `passing` travels as, if the peer has a context for it; `None` if it travels whole.
    ///
    /// All control frames before the number `delivered` have arrived. A new context is defined by
    /// `define`, which returns the number of its control frame, or `None` if there is no room now.
    pub fn elide(
        &mut self,
        now: Instant,
        passing: Passing<'_>,
        delivered: u32,
        mut define: impl FnMut(u16, &Template) -> Option<u32>,
    ) -> Option<Compact> {
        let Passing { bucket, is_rtp, packet } = passing;
        self.buckets.resize_with(BUCKETS, Bucket::default);
        let bucket = &mut self.buckets[usize::from(bucket)];
        let (usable, is_there) = match bucket.again(now, &passing, self.next) {
            Some(id) => (Some(id), true),
            None => bucket.find(now, &passing, &mut self.next, delivered, &mut define),
        };
        let compact = usable.and_then(|context| {
            let template = &bucket.entries.get(bucket.recent)?.template;
            let fields = template.elide(packet)?;
            #[cfg(debug_assertions)]
            self.check.restores(template, &fields, packet);
            Some(Compact { context, fields })
        });
        if !is_there && let Some(template) = Template::of(packet.head, is_rtp) {
            add(&mut bucket.entries, now, template);
        }
        compact
    }

    /// The same for a packet that was lost: by a context that the peer has, and no new one.
    pub fn elide_again(&self, bucket: u8, packet: Pieces<'_>) -> Option<Compact> {
        let entries = &self.buckets.get(usize::from(bucket))?.entries;
        let known = entries.iter().find_map(|entry| {
            let id = entry.known(self.next)?;
            entry.template.matches(packet.head).then_some((id, &entry.template))
        });
        let (context, template) = known?;
        Some(Compact { context, fields: template.elide(packet)? })
    }

    /// IDs that were taken.
    pub const fn taken(&self) -> u32 {
        self.next
    }
}

impl Bucket {
    /// The ID of the most recent template, if the peer has it and it fits this packet as well.
    #[inline]
    fn again(&mut self, now: Instant, passing: &Passing<'_>, next: u32) -> Option<u16> {
        let entry = self.entries.get_mut(self.recent)?;
        let id = entry.known(next)?;
        let is_of_kind = entry.template.is_rtp() || !passing.is_rtp;
        if !is_of_kind || !entry.template.matches(passing.packet.head) {
            return None;
        }
        entry.used_at = now;
        Some(id)
    }

    /// Looks through all templates. Returns the ID of the first that fits and that the peer has,
    /// which is the most recent now; and whether there is one of the kind that the packet wants.
    fn find(
        &mut self,
        now: Instant,
        passing: &Passing<'_>,
        next: &mut u32,
        delivered: u32,
        define: &mut impl FnMut(u16, &Template) -> Option<u32>,
    ) -> (Option<u16>, bool) {
        let mut is_there = false;
        let entries = self.entries.iter_mut().enumerate();
        // Templates with RTP come first: those without match their packets, too.
        for (place, entry) in entries.filter(|(_, it)| it.template.matches(passing.packet.head)) {
            entry.used_at = now;
            is_there |= entry.template.is_rtp() || !passing.is_rtp;
            if let Some(id) = entry.proceed(next, delivered, define) {
                self.recent = place;
                return (Some(id), is_there);
            }
        }
        (None, is_there)
    }
}

impl Entry {
    /// Its ID, if the peer has it and the sender still uses that.
    fn known(&self, next: u32) -> Option<u16> {
        match self.state {
            State::Known { id } => Some(id).filter(|&id| is_used(next, id)),
            State::Seen(_) | State::Sent { .. } => None,
        }
    }

    /// One more packet has this template. Returns its ID, if the peer has it.
    fn proceed(
        &mut self,
        next: &mut u32,
        delivered: u32,
        define: &mut impl FnMut(u16, &Template) -> Option<u32>,
    ) -> Option<u16> {
        match self.state {
            State::Known { id } if is_used(*next, id) => return Some(id),
            State::Known { .. } => {
                self.state = State::Seen(PACKETS_BEFORE);
                return self.proceed(next, delivered, define);
            }
            State::Sent { id, number } => {
                let has_arrived = number.wrapping_sub(delivered).cast_signed() < 0;
                if has_arrived {
                    self.state = State::Known { id };
                    return self.proceed(next, delivered, define);
                }
            }
            State::Seen(count) if count < PACKETS_BEFORE => self.state = State::Seen(count + 1),
            State::Seen(_) => {
                let id = u16::try_from(*next).ok().filter(|_| *next < IDS)?;
                let number = define(id, &self.template)?;
                *next += 1;
                self.state = State::Sent { id, number };
            }
        }
        None
    }

    /// Whether it may make room for another.
    fn may_go(&self, now: Instant) -> bool {
        matches!(self.state, State::Seen(_)) || now.saturating_since(self.used_at) >= IDLE
    }
}

/// Whether the sender still uses this ID.
fn is_used(next: u32, id: u16) -> bool {
    next - u32::from(id) <= USED
}

/// Adds the template of a flow that has none of this kind. It takes the place of one that may go if
/// there is no room for it.
fn add(entries: &mut Vec<Entry>, now: Instant, template: Template) {
    let is_same = |entry: &&Entry| entry.template.is_of_same_flow(&template);
    let of_flow = entries.iter().filter(is_same).count();
    let is_full = entries.len() >= BUCKET_TEMPLATES;
    if of_flow >= FLOW_TEMPLATES || is_full {
        let may_go = |(_, entry): &(usize, &Entry)| {
            entry.may_go(now) && (of_flow < FLOW_TEMPLATES || is_same(entry))
        };
        let oldest = entries.iter().enumerate().filter(may_go).min_by_key(|(_, it)| it.used_at);
        let Some((place, _)) = oldest else { return };
        entries.remove(place);
    }
    let place = if template.is_rtp() { 0 } else { entries.len() };
    entries.insert(place, Entry { template, state: State::Seen(1), used_at: now });
}

/// Memory in which a packet is restored as the peer will.
#[cfg(debug_assertions)]
#[derive(Clone, Debug, Default)]
struct Check {
    body: Vec<u8>,
    head: Vec<u8>,
    whole: Vec<u8>,
    restored: Vec<u8>,
}

#[cfg(debug_assertions)]
impl Check {
    /// Panics unless the peer will restore the very packet.
    fn restores(&mut self, template: &Template, fields: &Fields, packet: Pieces<'_>) {
        self.body.clear();
        fields.append(packet, &mut self.body);
        self.whole.clear();
        packet.copy_to(&mut self.whole);
        self.restored.clear();
        let restored = template.restore(&self.body, &mut self.head);
        let is_same = restored.is_ok_and(|restored| {
            restored.finish_to(&mut self.restored);
            self.restored == self.whole
        });
        debug_assert!(is_same, "another packet comes out");
    }
}

/// The receiving side.
#[derive(Clone, Debug, Default)]
pub struct Known {
    /// The ID of the first that is kept.
    first: u32,
    /// Those that were refused have their place.
    templates: VecDeque<Option<Template>>,
}

impl Known {
    /// The peer has defined the context `id`, or tried to: one that it may not use is `None`.
    ///
    /// # Errors
    /// [`DropReason::BadFrame`] if the ID is not the next one.
    pub fn define(&mut self, id: u16, template: Option<Template>) -> Result<(), DropReason> {
        if u32::from(id) as usize != self.first as usize + self.templates.len() {
            return Err(DropReason::BadFrame);
        }
        if self.templates.len() >= KEPT {
            self.templates.pop_front();
            self.first += 1;
        }
        self.templates.push_back(template);
        Ok(())
    }

    /// The packet that travelled as `body`, as [`Template::restore`] gives it out.
    ///
    /// # Errors
    /// [`DropReason::UnknownContext`] if there is no such context, or not any more;
    /// [`DropReason::BadFrame`] if `body` does not fit it.
    pub fn restore<'p>(
        &self,
        id: u16,
        body: &'p [u8],
        head: &'p mut Vec<u8>,
    ) -> Result<Pieces<'p>, DropReason> {
        let place = u32::from(id).checked_sub(self.first).ok_or(DropReason::UnknownContext)?;
        let template = self.templates.get(place as usize).and_then(Option::as_ref);
        template.ok_or(DropReason::UnknownContext)?.restore(body, head)
    }
}

#[cfg(test)]
#[path = "contexts_tests.rs"]
mod tests;
