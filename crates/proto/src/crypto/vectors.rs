//! Golden vectors: files of `name = hex` lines that hold every byte this version puts on the wire
//! or derives. A vector changes with the protocol version, never otherwise
//! (docs/spec/handshake.md#13-vectors).

use std::collections::BTreeMap;
use std::fmt::Write;

use super::rng::Rng;

/// One file, and what the code under test made of it so far.
pub(super) struct Vectors {
    expected: BTreeMap<String, Vec<u8>>,
    actual: Vec<(String, Vec<u8>)>,
}

impl Vectors {
    /// `text` is the file, included at compile time.
    pub(super) fn new(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        let expected = lines
            .map(|line| {
                let (name, hex) = line.split_once(" = ").expect("name = hex");
                (name.to_owned(), from_hex(hex))
            })
            .collect();
        Self { expected, actual: Vec::new() }
    }

    /// The input called `name`.
    pub(super) fn input(&mut self, name: &str) -> Vec<u8> {
        let bytes = self.expected.get(name).expect("an input of this name").clone();
        self.actual.push((name.to_owned(), bytes.clone()));
        bytes
    }

    /// The input called `name`, of a fixed length.
    pub(super) fn array<const N: usize>(&mut self, name: &str) -> [u8; N] {
        self.input(name).try_into().expect("an input of this length")
    }

    /// Notes what the code made, to be held against the file in [`Self::verify`].
    pub(super) fn output(&mut self, name: &str, bytes: &[u8]) {
        self.actual.push((name.to_owned(), bytes.to_vec()));
    }

    /// Fails when the file and the outputs differ, or one has a name that the other lacks.
    pub(super) fn verify(self) {
        let same = self.actual.len() == self.expected.len()
            && self.actual.iter().all(|(name, bytes)| self.expected.get(name) == Some(bytes));
        let mut text = String::new();
        for (name, bytes) in &self.actual {
            writeln!(text, "{name} = {}", to_hex(bytes)).unwrap();
        }
        assert!(same, "the vectors differ; the code makes:\n{text}");
    }
}

/// Randomness that is written down: the vectors do not depend on how a stream is made.
pub(super) struct Script(pub(super) Vec<u8>);

impl Rng for Script {
    fn fill(&mut self, dest: &mut [u8]) {
        let rest = self.0.split_off(dest.len());
        dest.copy_from_slice(&self.0);
        self.0 = rest;
    }
}

fn from_hex(hex: &str) -> Vec<u8> {
    assert!(hex.len().is_multiple_of(2), "two digits a byte");
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut hex, byte| {
        write!(hex, "{byte:02x}").unwrap();
        hex
    })
}
