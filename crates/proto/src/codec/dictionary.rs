//! Static dictionaries: what telemetry of one kind repeats, so that already its first packet is
//! small.
//!
//! They are part of the program, or signed by the operator, and never learned from traffic, because
//! what is learned from one flow would show in the lengths of another. Each of the program's was
//! written from the standard of its format, which its row names. An end uses a dictionary only if
//! its peer has said that it has the same one, by number and hash.
//!
//! A dictionary that was shipped never changes: a better one gets another number.
//!
//! Bounds: [`ADDED_MAX`] dictionaries of an operator, each of [`LEN_MAX`] bytes. Does not know
//! signatures: who hands over a dictionary has checked that.

use std::sync::Arc;

use crate::crypto;
use crate::wire::control::DICTIONARY_HASH;

/// Dictionaries have numbers below this, and 0 is none.
pub const NUMBERS: u8 = 16;
/// Numbers from this on are an operator's; those below are the program's.
pub const ADDED_FROM: u8 = 8;
/// Dictionaries that an operator may add.
pub const ADDED_MAX: usize = (NUMBERS - ADDED_FROM) as usize;
/// The longest dictionary: with longer ones, matches lie so far back that they cost more bytes.
pub const LEN_MAX: usize = 4 << 10;
/// The shortest one: Zstandard ignores what is shorter.
pub const LEN_MIN: usize = 8;
/// A dictionary that begins so has tables of its own (RFC 8878, section 5). Those are not taken: a
/// dictionary is text that matches refer to, and nothing else.
const WITH_TABLES: [u8; 4] = [0x37, 0xa4, 0x30, 0xec];

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
        assert!(ALL[place].number == place as u8 + 1 && ALL[place].number < ADDED_FROM);
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

/// A dictionary of an operator.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Added {
    number: u8,
    bytes: Vec<u8>,
}

impl Added {
    /// The dictionary with this number and content. `None` unless the number is an operator's, and
    /// the content has [`LEN_MIN`] to [`LEN_MAX`] bytes and no tables of its own.
    pub fn new(number: u8, bytes: &[u8]) -> Option<Self> {
        let is_number = (ADDED_FROM..NUMBERS).contains(&number);
        let is_content =
            (LEN_MIN..=LEN_MAX).contains(&bytes.len()) && !bytes.starts_with(&WITH_TABLES);
        (is_number && is_content).then(|| Self { number, bytes: bytes.to_vec() })
    }
}

/// The dictionaries that an end has: the program's, and those that an operator added.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Dictionaries {
    /// Shared by what a node configures and what it uses.
    added: Arc<[Added]>,
}

impl Dictionaries {
    /// The program's and these. Of several with one number the first counts.
    pub fn with(added: Vec<Added>) -> Self {
        Self { added: added.into() }
    }

    /// The content of the dictionary of this number.
    pub fn content(&self, number: u8) -> Option<&[u8]> {
        let added = || self.added.iter().find(|one| one.number == number);
        numbered(number).map(|one| one.bytes).or_else(|| Some(&added()?.bytes[..]))
    }

    /// Number and hash of each.
    pub fn hashes(&self) -> Vec<(u8, [u8; DICTIONARY_HASH])> {
        let hash = |number| Some((number, hash_of(self.content(number)?)));
        (1..NUMBERS).filter_map(hash).collect()
    }

    /// Those that a peer has as well, by the numbers and hashes of its own.
    pub fn agreed(&self, peers: &[(u8, [u8; DICTIONARY_HASH])]) -> Agreed {
        let same = self.hashes().into_iter().filter(|one| peers.contains(one));
        Agreed(same.fold(0, |bits, (number, _)| bits | 1 << number))
    }
}

/// The first bytes of the SHA-256 of a content.
fn hash_of(bytes: &[u8]) -> [u8; DICTIONARY_HASH] {
    let mut hash = [0; DICTIONARY_HASH];
    hash.copy_from_slice(&crypto::sha256(&[bytes])[..DICTIONARY_HASH]);
    hash
}

/// The dictionaries that both ends have, by what the peer said of its own.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Agreed(u16);

impl Agreed {
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
        let hashes = ALL
            .map(|one| (one.name, hash_of(one.bytes).map(|byte| format!("{byte:02x}")).concat()));
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
        let own = Dictionaries::default();
        let mut said = own.hashes();
        assert!(ALL.iter().all(|one| own.agreed(&said).has(one.number)));
        said[0].1[0] ^= 1;
        let agreed = own.agreed(&said);
        assert!(!agreed.has(1) && agreed.has(2) && agreed.has(0) && !agreed.has(9));
        assert!(!Agreed::default().has(1) && !Agreed::default().has(200));
    }

    #[test]
    fn an_operators_dictionary_has_a_number_and_a_length_of_its_own() {
        let text = [b'a'; LEN_MAX + 1];
        assert!(Added::new(8, &text[..LEN_MIN]).is_some());
        assert!(Added::new(15, &text[..LEN_MAX]).is_some());
        let mut with_tables = text;
        with_tables[..4].copy_from_slice(&WITH_TABLES);
        for (number, content) in [
            (0, &text[..100]),
            (7, &text[..100]),
            (16, &text[..100]),
            (8, &text[..LEN_MIN - 1]),
            (8, &text[..]),
            (8, &with_tables[..100]),
        ] {
            assert_eq!(Added::new(number, content), None, "{number}, {} bytes", content.len());
        }
    }

    #[test]
    fn an_operators_dictionary_is_used_if_both_ends_have_the_same() {
        let with =
            |number, text: &[u8]| Dictionaries::with(vec![Added::new(number, text).expect("one")]);
        let (own, same) = (with(9, b"first text"), with(9, b"first text"));
        assert!(own.agreed(&same.hashes()).has(9) && own.agreed(&same.hashes()).has(1));
        for other in [with(9, b"other text"), with(10, b"first text"), Dictionaries::default()] {
            assert!(!own.agreed(&other.hashes()).has(9));
        }
        assert_eq!(own.content(9), Some(&b"first text"[..]));
        assert_eq!((own.content(8), own.content(200)), (None, None));
    }
}
