//! Static dictionaries: what telemetry of one kind repeats, so that already its first packet is
//! small.
//!
//! They are part of the program and never learned from traffic, because what is learned from one
//! flow would show in the lengths of another. Each was written from the standard of its format,
//! which its row names. An end uses a dictionary only if its peer has said that it has the same
//! one, by number and hash.
//!
//! A dictionary that was shipped never changes: a better one gets another number.

use crate::crypto;
use crate::wire::control::DICTIONARY_HASH;

/// Dictionaries have numbers below this, and 0 is none.
pub const NUMBERS: u8 = 16;
/// The longest dictionary: with longer ones, matches lie so far back that they cost more bytes.
const LEN_MAX: usize = 4 << 10;

/// A dictionary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dictionary {
    /// Its number on the wire, from 1.
    pub number: u8,
    /// The name by which a rule asks for it.
    pub name: &'static str,
    /// Its content.
    pub bytes: &'static [u8],
}

/// All of them. What is most frequent stands last, where matches cost the fewest bytes.
pub const ALL: [Dictionary; 2] = [
    // Field names, units and layout of SenML in JSON (RFC 8428).
    Dictionary { number: 1, name: "senml", bytes: include_bytes!("senml.dictionary") },
    // Header, structured data and usual words of syslog (RFC 5424).
    Dictionary { number: 2, name: "syslog", bytes: include_bytes!("syslog.dictionary") },
];

const _: () = {
    let mut place = 0;
    while place < ALL.len() {
        assert!(ALL[place].number == place as u8 + 1 && ALL[place].number < NUMBERS);
        assert!(ALL[place].bytes.len() <= LEN_MAX);
        place += 1;
    }
};

/// The dictionary of this number.
pub fn numbered(number: u8) -> Option<&'static Dictionary> {
    ALL.iter().find(|one| one.number == number)
}

/// The dictionary of this name.
pub fn named(name: &str) -> Option<&'static Dictionary> {
    ALL.iter().find(|one| one.name == name)
}

impl Dictionary {
    /// The first bytes of the SHA-256 of its content.
    pub fn hash(&self) -> [u8; DICTIONARY_HASH] {
        let mut hash = [0; DICTIONARY_HASH];
        hash.copy_from_slice(&crypto::sha256(&[self.bytes])[..DICTIONARY_HASH]);
        hash
    }
}

/// The dictionaries that both ends have, by what the peer said of its own.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Agreed(u16);

impl Agreed {
    /// Those of a peer's numbers and hashes that this end has as well.
    pub fn with(peers: &[(u8, [u8; DICTIONARY_HASH])]) -> Self {
        let is_same = |one: &&Dictionary| peers.contains(&(one.number, one.hash()));
        Self(ALL.iter().filter(is_same).fold(0, |bits, one| bits | 1 << one.number))
    }

    /// Whether both ends have the dictionary of this number. Both have number 0, which is none.
    pub const fn has(self, number: u8) -> bool {
        number == 0 || number < NUMBERS && self.0 & 1 << number != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dictionary_that_was_shipped_never_changes() {
        let hashes =
            ALL.map(|one| (one.name, one.hash().map(|byte| format!("{byte:02x}")).concat()));
        let expected = [("senml", "8c6ba2ba912a04bd"), ("syslog", "b4c069f4799aa063")];
        assert_eq!(hashes, expected.map(|(name, hash)| (name, hash.to_owned())));
    }

    #[test]
    fn names_and_numbers_find_the_same() {
        for one in &ALL {
            assert_eq!(named(one.name), Some(one));
            assert_eq!(numbered(one.number), Some(one));
        }
        assert_eq!((named("none"), numbered(0)), (None, None));
    }

    #[test]
    fn only_what_both_have_in_the_same_form_is_used() {
        let mut said: Vec<_> = ALL.iter().map(|one| (one.number, one.hash())).collect();
        assert!(ALL.iter().all(|one| Agreed::with(&said).has(one.number)));
        said[0].1[0] ^= 1;
        let agreed = Agreed::with(&said);
        assert!(!agreed.has(1) && agreed.has(2) && agreed.has(0) && !agreed.has(9));
        assert!(!Agreed::default().has(1) && !Agreed::default().has(200));
    }
}
