//! Inputs that differ a little from known ones: reproducible from a seed, for machines without
//! libFuzzer. Blind: it sees no coverage, so it is a net below the corpus, not a search.

/// The longest input that is made, in bytes: more than any datagram or packet.
pub const INPUT_MAX: usize = 2_048;

/// Makes inputs from a seed (SplitMix64: Steele, Lea, Flood, OOPSLA 2014).
#[derive(Clone, Debug)]
pub struct Mutator {
    state: u64,
}

impl Mutator {
    /// A source of inputs that always gives the same ones.
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// A new input: one of `known` changed in one to eight places, or noise when there is none.
    pub fn input(&mut self, known: &[Vec<u8>]) -> Vec<u8> {
        let mut input = match known.len() {
            0 => self.noise(),
            count => known[self.below(count)].clone(),
        };
        for _ in 0..=self.below(8) {
            self.change(&mut input, known);
        }
        input.truncate(INPUT_MAX);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>, known: &[Vec<u8>]) {
        let at = self.below(input.len() + 1);
        match self.below(7) {
            0 => input.truncate(at),
            1 => input.insert(at, self.byte()),
            2 if at < input.len() => drop(input.remove(at)),
            3 if at < input.len() => input[at] ^= 1 << self.below(8),
            4 if at < input.len() => {
                const EDGES: &[u8] = &[0, 1, 0x7f, 0x80, 0xff];
                input[at] = EDGES[self.below(EDGES.len())];
            }
            5 if !known.is_empty() => {
                let other = &known[self.below(known.len())];
                input.extend_from_slice(&other[self.below(other.len() + 1)..]);
            }
            _ if at < input.len() => input[at] = self.byte(),
            _ => input.push(self.byte()),
        }
    }

    fn noise(&mut self) -> Vec<u8> {
        (0..self.below(256)).map(|_| self.byte()).collect()
    }

    fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    /// A number below `bound`, which is small: the bias does not matter here.
    fn below(&mut self, bound: usize) -> usize {
        let bound = u64::try_from(bound).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % bound).unwrap_or(0)
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_and_inputs_differ() {
        let known = vec![vec![1, 2, 3], vec![]];
        let run = |seed| {
            let mut mutator = Mutator::new(seed);
            (0..200).map(|_| mutator.input(&known)).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
        let mut inputs = run(1);
        inputs.sort();
        inputs.dedup();
        assert!(inputs.len() > 100, "{} different inputs of 200", inputs.len());
    }

    #[test]
    fn inputs_are_bounded_and_need_no_known_one() {
        let long = vec![vec![7; INPUT_MAX]; 2];
        let mut mutator = Mutator::new(3);
        for _ in 0..500 {
            assert!(mutator.input(&long).len() <= INPUT_MAX);
            assert!(mutator.input(&[]).len() <= INPUT_MAX);
        }
    }
}
