//! A stream whose every byte is known, so that one that is missing, altered, doubled or out of
//! order is seen where it is.

use std::fmt;

use crate::emu::Rng;

/// What a stream consists of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Random bytes that follow from the seed: no compression makes them shorter.
    #[default]
    Random,
    /// These bytes, again and again.
    Repeated(&'static [u8]),
}

/// Makes a stream.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    seed: u64,
    content: Content,
    at: u64,
}

/// Compares one with what was made.
#[derive(Clone, Copy, Debug)]
pub struct Sink {
    source: Source,
}

/// A byte that is not what was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spoiled {
    /// Which one, counted from 0.
    pub at: u64,
}

impl fmt::Display for Spoiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {} of the stream is not what was sent", self.at)
    }
}

impl std::error::Error for Spoiled {}

impl Source {
    /// The stream of a seed, from its beginning.
    pub const fn new(seed: u64) -> Self {
        Self::of(Content::Random, seed)
    }

    /// The stream of a seed with this content.
    pub const fn of(content: Content, seed: u64) -> Self {
        Self { seed, content, at: 0 }
    }

    /// Bytes made so far.
    pub const fn position(&self) -> u64 {
        self.at
    }

    /// The next bytes.
    pub fn take(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        let within = (self.at % 8) as usize;
        bytes.extend_from_slice(&self.word(self.at)[within..]);
        let words = count.saturating_sub(bytes.len()).div_ceil(8) as u64;
        let next = self.at + bytes.len() as u64;
        (0..words).for_each(|word| bytes.extend_from_slice(&self.word(next + word * 8)));
        bytes.truncate(count);
        self.at += count as u64;
        bytes
    }

    /// The eight bytes of which the one at `at` is one.
    fn word(&self, at: u64) -> [u8; 8] {
        match self.content {
            Content::Random => Rng::new(self.seed ^ (at / 8)).next_u64().to_le_bytes(),
            Content::Repeated(bytes) => std::array::from_fn(|place| {
                let at = (at / 8 * 8) as usize + place;
                bytes.get(at % bytes.len().max(1)).copied().unwrap_or_default()
            }),
        }
    }
}

impl Sink {
    /// Expects the stream of a seed.
    pub const fn new(seed: u64) -> Self {
        Self::of(Content::Random, seed)
    }

    /// Expects the stream of a seed with this content.
    pub const fn of(content: Content, seed: u64) -> Self {
        Self { source: Source::of(content, seed) }
    }

    /// Bytes that were right so far.
    pub const fn position(&self) -> u64 {
        self.source.position()
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// The first that is wrong.
    pub fn check(&mut self, bytes: &[u8]) -> Result<(), Spoiled> {
        let (front, rest) = bytes.split_at(self.before_word().min(bytes.len()));
        self.check_within_word(front)?;
        let (words, back) = rest.as_chunks::<8>();
        for word in words {
            match *word == self.source.word(self.source.at) {
                true => self.source.at += 8,
                false => self.check_within_word(word)?,
            }
        }
        self.check_within_word(back)
    }

    /// Bytes before the next word begins.
    const fn before_word(&self) -> usize {
        (self.source.at.wrapping_neg() % 8) as usize
    }

    /// The same for bytes that belong to one word.
    fn check_within_word(&mut self, bytes: &[u8]) -> Result<(), Spoiled> {
        let at = self.source.at;
        let word = self.source.word(at);
        let expected = &word[(at % 8) as usize..];
        let wrong = bytes.iter().zip(expected).position(|(found, right)| found != right);
        if let Some(index) = wrong {
            return Err(Spoiled { at: at + index as u64 });
        }
        self.source.at += bytes.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_gives_the_same_stream_and_any_change_is_found() {
        let whole = Source::new(7).take(1_000);
        let mut parts = Source::new(7);
        let cut: Vec<u8> = [1, 7, 8, 9, 475, 500].into_iter().flat_map(|n| parts.take(n)).collect();
        assert_eq!(cut, whole);
        let mut sink = Sink::new(7);
        sink.check(&whole[..400]).unwrap();
        assert_eq!(sink.check(&whole[399..500]), Err(Spoiled { at: 400 }), "one byte twice");
        let words = Content::Repeated(b"some words that are no multiple of eight");
        let mut parts = Source::of(words, 7);
        let said = [parts.take(13), parts.take(100)].concat();
        assert_eq!(said[..41], b"some words that are no multiple of eights"[..]);
        Sink::of(words, 7).check(&said).unwrap();
        let mut altered = whole;
        altered[999] ^= 1;
        assert_eq!(Sink::new(7).check(&altered), Err(Spoiled { at: 999 }));
    }
}
