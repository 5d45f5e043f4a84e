//! What a seed draws for a story whose links lose nothing: their round trips, and the moments of
//! what happens. Without it ten seeds would be one story told ten times.
//!
//! Decides how far a draw lies from the usual value. Limits that depend on a round trip follow the
//! one that was drawn: the story asks for them.

use super::{CleanLink, Outcome};
use crate::emu::{MS, Rng};

/// A draw is up to this part of the usual value shorter or longer: 32 to 48 ms in place of 40.
const PART: u64 = 5;
/// The label of this chance, so that other draws of the seed stay what they were.
const LABEL: u64 = 0x6472_6177;
/// The sample that holds all that was drawn, in milliseconds and in the order of the draws.
pub(super) const SAMPLE: &str = "drawn_ms";

/// Draws of one seed.
#[derive(Debug)]
pub(super) struct Draw {
    rng: Rng,
    drawn_ms: Vec<f64>,
}

impl Draw {
    /// Those of a seed.
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed).fork(LABEL), drawn_ms: Vec::new() }
    }

    /// A time that is up to a fifth shorter or longer than the usual one.
    pub(super) fn about(&mut self, usual_ns: u64) -> u64 {
        let most_ns = usual_ns / PART;
        self.note(usual_ns - most_ns, 2 * most_ns)
    }

    /// A time that is up to a fifth longer than the usual one, which is the least that does.
    pub(super) fn longer(&mut self, usual_ns: u64) -> u64 {
        self.note(usual_ns, usual_ns / PART)
    }

    /// A link as fast as the usual one, with a round trip about as long.
    pub(super) fn link(&mut self, usual: &CleanLink) -> CleanLink {
        CleanLink { round_trip_ns: self.about(usual.round_trip_ns), ..*usual }
    }

    /// Writes down what was drawn.
    pub(super) fn report(&self, outcome: &mut Outcome) {
        outcome.sample(SAMPLE, self.drawn_ms.clone());
    }

    fn note(&mut self, least_ns: u64, more_ns: u64) -> u64 {
        let drawn_ns = least_ns + self.rng.below(more_ns + 1);
        self.drawn_ms.push(drawn_ns as f64 / MS as f64);
        drawn_ns
    }
}

impl CleanLink {
    /// The link with the shortest round trip that a seed may draw in place of this one.
    pub(super) const fn nearest(&self) -> Self {
        Self { rate: self.rate, round_trip_ns: self.round_trip_ns - self.round_trip_ns / PART }
    }
}

#[cfg(test)]
mod tests {
    use super::{Draw, SAMPLE};
    use crate::emu::MS;
    use crate::scenario::record::Limit;
    use crate::scenario::settings::Settings;
    use crate::scenario::{Grid, Outcome, Stage, USUAL, find};

    /// Every scenario whose seed draws its links, and settings that make it short.
    const STORIES: &[(&str, &[&str])] = &[
        ("roam-client", &["moves=1", "megabytes=1", "known=1"]),
        ("roam-gateway", &[]),
        ("blackhole", &["outage=1", "late=0", "holes=1"]),
        ("nat-rebind", &["changes=1", "idle=1"]),
        ("family", &["moves=1"]),
        ("resume-loss", &["moves=1"]),
        ("idle", &["hours=1"]),
        ("restart-gateway", &["restarts=1"]),
        ("subnets", &["megabytes=1"]),
        ("hop", &["hops=1"]),
        ("commute", &["outages=2"]),
        ("udp-blocked", &["starts=1", "cell=no-udp"]),
        ("both-move", &["moves=1", "by=earlier"]),
    ];

    fn told(name: &str, set: &[&str], seed: u64) -> Outcome {
        let scenario = find(name).unwrap();
        let texts: Vec<String> = set.iter().map(|text| (*text).to_owned()).collect();
        let settings = Settings::parse(scenario.about().settings, &texts).unwrap();
        scenario.run(&Stage::quiet(seed, &settings, Grid::Default)).unwrap()
    }

    #[test]
    fn two_seeds_are_two_stories_and_one_seed_is_one() {
        for (name, set) in STORIES {
            let [first, again, other] = [1, 1, 2].map(|seed| told(name, set, seed));
            let drawn = |one: &Outcome| one.samples[SAMPLE].clone();
            assert!(!drawn(&first).is_empty(), "{name} draws nothing");
            assert_eq!(drawn(&first).len(), drawn(&other).len(), "{name}");
            let pairs = drawn(&first).into_iter().zip(drawn(&other));
            assert!(pairs.into_iter().all(|(one, other)| one != other), "{name}");
            assert_eq!((&first.measured, &first.samples), (&again.measured, &again.samples));
            let holds = |limit: &Limit| limit.holds(&other.measured);
            assert!(other.limits.iter().all(holds), "{name}: {:?}", other.measured);
        }
    }

    /// A link, a time about a second and one no shorter, as a seed draws them.
    fn drawn(seed: u64) -> [u64; 3] {
        let mut draw = Draw::new(seed);
        let all =
            [draw.link(&USUAL).round_trip_ns, draw.about(1_000 * MS), draw.longer(1_000 * MS)];
        let mut outcome = Outcome::default();
        draw.report(&mut outcome);
        assert_eq!(outcome.samples["drawn_ms"], all.map(|ns| ns as f64 / MS as f64));
        all
    }

    #[test]
    fn two_seeds_differ_in_all_that_they_draw_and_one_seed_never() {
        let all: Vec<_> = (1..=10).map(drawn).collect();
        for which in 0..3 {
            let mut values: Vec<_> = all.iter().map(|one| one[which]).collect();
            values.sort_unstable();
            values.dedup();
            assert_eq!(values.len(), 10, "ten seeds are ten draws");
        }
        assert_eq!((1..=10).map(drawn).collect::<Vec<_>>(), all);
    }

    #[test]
    fn draws_lie_around_the_usual_value() {
        for seed in 0..1_000 {
            let [round_trip, about, longer] = drawn(seed);
            assert!((32 * MS..=48 * MS).contains(&round_trip), "{round_trip}");
            assert!(round_trip >= USUAL.nearest().round_trip_ns);
            assert!((800 * MS..=1_200 * MS).contains(&about), "{about}");
            assert!((1_000 * MS..=1_200 * MS).contains(&longer), "{longer}");
        }
    }
}
