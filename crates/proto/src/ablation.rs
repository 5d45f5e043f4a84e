//! Ablation: a session without one of its heuristics, so that a measurement shows what that
//! heuristic is worth.
//!
//! Decides which heuristics can be left out, and under which names. Each heuristic asks at one
//! place whether it is left out. Without the cargo feature `ablation`, an [`Ablation`] takes no
//! memory and every answer is the constant `false`, so a shipped binary pays nothing.
//!
//! Limit: a heuristic that only acts on busy hosts (the late turns of `congestion`) is not
//! here, because hosts are never late in virtual time, where ablations are measured.

macro_rules! heuristics {
    ($($(#[doc = $doc:literal])+ $heuristic:ident => $name:literal,)+) => {
        /// A heuristic that can be left out.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        #[repr(u8)]
        pub enum Heuristic { $($(#[doc = $doc])+ $heuristic,)+ }

        impl Heuristic {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$heuristic,)+];
            /// Their names, in the same order.
            pub const NAMES: &'static [&'static str] = &[$($name,)+];
        }
    };
}

heuristics! {
    /// Congestion control: a lower rate is tried where much is lost, and kept if that helps.
    Ceiling => "ceiling",
    /// Congestion control: a path is sent by a window where somebody else fills its queue.
    Competition => "competition",
    /// Congestion control: the queue is emptied every few seconds to measure its length.
    Emptying => "emptying",
    /// Congestion control: a path that replaces another one begins with half of its rate.
    Guess => "guess",
    /// Congestion control: a path whose rate changes within a second gets a longer target queue.
    Variation => "variation",
    /// Congestion control: a sudden fall of the rate is followed before the round is over.
    Sudden => "sudden",
    /// Congestion control: the growth of the rate accelerates while there is no queue.
    Acceleration => "acceleration",
    /// Congestion control: the target queue is shorter after a realtime packet.
    Calm => "calm",
    /// Multipath: bulk flows see nearer paths as far as a farther one that carries much more.
    Far => "far",
    /// Multipath: a farther path of unknown rate is measured with copies.
    FarTrial => "far-trial",
    /// Multipath: small packets of a bulk flow stay behind its large ones.
    Order => "order",
    /// Multipath: paths through one queue together want what one path would.
    Coupling => "coupling",
    /// Multipath: small packets leave before everything that waits.
    Hurry => "hurry",
    /// Multipath: a gap is held open twice as long after a packet came too late for its turn.
    LateHold => "late-hold",
    /// Multipath: beside others, a path counts as silent before its usual timeout.
    Impatience => "impatience",
    /// Realtime: packets leave before everything that waits, by the earliest path.
    Realtime => "realtime",
    /// Realtime: copies leave by other paths.
    Copies => "copies",
    /// Realtime: a copy follows by the same path where every other path is later.
    Twins => "twins",
    /// Realtime: packets that left by a path in doubt leave again by another.
    Rescue => "rescue",
    /// Entry queue: `CoDel` tells senders of a standing queue.
    Codel => "codel",
    /// Entry queue: it may stand for longer where a path takes long to repair a loss.
    RepairBound => "repair-bound",
    /// Entry queue: it may stand for longer where the rate of a path varies.
    VaryingBound => "varying-bound",
    /// Entry queue: it may stand for longer after a path was replaced.
    ReplacedBound => "replaced-bound",
    /// Entry queue: unresponsive flows have a hard limit.
    Unresponsive => "unresponsive",
    /// Content: headers that stay the same travel once.
    Elision => "elision",
    /// Content: packets that wait share a datagram.
    Aggregation => "aggregation",
    /// Content: packets of allowed flows are compressed.
    Compression => "compression",
}

impl Heuristic {
    /// Its name, for people.
    pub const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }

    /// The heuristic of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|heuristic| heuristic.name() == name)
    }
}

/// The heuristics that a session goes without.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ablation {
    /// A bit for each, by its place in [`Heuristic::ALL`].
    #[cfg(feature = "ablation")]
    left_out: u32,
    /// Is told of each heuristic that is asked for.
    #[cfg(feature = "ablation")]
    note: Option<fn(Heuristic)>,
}

const _: () = assert!(Heuristic::ALL.len() <= u32::BITS as usize);
#[cfg(not(feature = "ablation"))]
const _: () = assert!(size_of::<Ablation>() == 0, "a shipped binary pays nothing");

impl Ablation {
    /// Nothing is left out.
    pub const NONE: Self = Self {
        #[cfg(feature = "ablation")]
        left_out: 0,
        #[cfg(feature = "ablation")]
        note: None,
    };
}

#[cfg(any(test, feature = "ablation"))]
const fn bit(heuristic: Heuristic) -> u32 {
    1 << heuristic as u8
}

#[cfg(feature = "ablation")]
impl Ablation {
    /// The same without one more heuristic; `None` of a build in which that cannot be had.
    pub const fn without(self, heuristic: Heuristic) -> Option<Self> {
        Some(Self { left_out: self.left_out | bit(heuristic), ..self })
    }

    /// The same, telling `note` of each heuristic that is asked for. A session that never asks for
    /// a heuristic does the same without it.
    pub const fn noting(self, note: fn(Heuristic)) -> Self {
        Self { note: Some(note), ..self }
    }

    /// Whether this heuristic is left out.
    pub(crate) fn is_off(self, heuristic: Heuristic) -> bool {
        if let Some(note) = self.note {
            note(heuristic);
        }
        self.left_out & bit(heuristic) != 0
    }
}

#[cfg(not(feature = "ablation"))]
impl Ablation {
    /// The same without one more heuristic; `None` of a build in which that cannot be had.
    pub const fn without(self, _: Heuristic) -> Option<Self> {
        None
    }

    /// The same: a build that leaves out nothing tells nobody.
    pub const fn noting(self, _: fn(Heuristic)) -> Self {
        self
    }

    /// Whether this heuristic is left out.
    pub(crate) const fn is_off(self, _: Heuristic) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_heuristic_has_a_name_of_its_own() {
        for &heuristic in Heuristic::ALL {
            assert_eq!(Heuristic::named(heuristic.name()), Some(heuristic));
        }
        assert_eq!(Heuristic::named("nothing"), None);
    }

    #[test]
    fn only_a_build_for_it_leaves_anything_out_and_then_nothing_else() {
        for &heuristic in Heuristic::ALL {
            let without = Ablation::default().without(heuristic);
            assert_eq!(without.is_some(), cfg!(feature = "ablation"));
            let without = without.unwrap_or_default();
            let off = Heuristic::ALL.iter().copied().filter(|&other| without.is_off(other));
            let expected = without.is_off(heuristic).then_some(heuristic);
            assert_eq!(off.collect::<Vec<_>>(), expected.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_build_for_it_tells_of_what_is_asked_for() {
        thread_local!(static ASKED: std::cell::Cell<u32> = const { std::cell::Cell::new(0) });
        let ablation = Ablation::NONE.noting(|one| ASKED.set(ASKED.get() | bit(one)));
        assert!(!ablation.is_off(Heuristic::Far));
        let expected = if cfg!(feature = "ablation") { bit(Heuristic::Far) } else { 0 };
        assert_eq!(ASKED.get(), expected);
    }
}
