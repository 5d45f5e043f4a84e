//! Rove's text of a resolver's file, with what it replaced.
//!
//! A header line with a checksum of all that follows, the lines that resolvers read, and the
//! original as comments. A text whose checksum is wrong was changed by somebody else and is not
//! Rove's any more. The checksum protects against mistakes; what protects against malice is that
//! only root may write the file.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt as _, path::PathBuf};

/// The first line, before the checksum.
const HEADER: &str = "# Written by rove while its tunnel is up; the original comes back after it. ";
/// What was there: nothing, a link, or a file with these permissions.
const WAS_MISSING: &str = "# The original: no file\n";
const WAS_LINK: &str = "# The original: a link to ";
const WAS_FILE: &str = "# The original: a file, mode ";
/// Before each line of the original.
const PREFIX: &[u8] = b"#|";
/// Marks an original whose last line has no line feed.
const OPEN_END: &[u8] = b"#.\n";
/// Bytes of such a text: an original of 64 KiB, all line feeds, is thrice as long with its
/// prefixes; the rest is for Rove's own lines.
pub(super) const LEN_MAX: u64 = (3 * 64 + 16) << 10;
/// The bits of a mode that are kept: permissions, but neither set-uid, set-gid nor sticky.
pub(super) const MODE_MASK: u32 = 0o777;

/// What was there before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Original {
    Missing,
    Link(PathBuf),
    File { text: Vec<u8>, mode: u32 },
}

/// A text of Rove's.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Carried {
    /// The lines that resolvers read.
    pub(super) lines: String,
    pub(super) original: Original,
}

/// The text of a file.
pub(super) fn write(lines: &str, original: &Original) -> Vec<u8> {
    let mut rest = lines.as_bytes().to_vec();
    match original {
        Original::Missing => rest.extend_from_slice(WAS_MISSING.as_bytes()),
        Original::Link(target) => {
            rest.extend_from_slice(WAS_LINK.as_bytes());
            rest.extend_from_slice(target.as_os_str().as_bytes());
            rest.push(b'\n');
        }
        Original::File { text, mode } => {
            rest.extend_from_slice(format!("{WAS_FILE}{:04o}\n", mode & MODE_MASK).as_bytes());
            for line in text.split_inclusive(|&byte| byte == b'\n') {
                rest.extend_from_slice(PREFIX);
                rest.extend_from_slice(line);
            }
            if text.last().is_some_and(|&byte| byte != b'\n') {
                rest.push(b'\n');
                rest.extend_from_slice(OPEN_END);
            }
        }
    }
    let mut all = format!("{HEADER}{:016x}\n", checksum(&rest)).into_bytes();
    all.extend_from_slice(&rest);
    all
}

/// Reads a text; `None` if it is not as Rove wrote it.
pub(super) fn read(text: &[u8]) -> Option<Carried> {
    let rest = text.strip_prefix(HEADER.as_bytes())?;
    let (sum, rest) = rest.split_at_checked(16)?;
    let rest = rest.strip_prefix(b"\n")?;
    if sum != format!("{:016x}", checksum(rest)).as_bytes() {
        return None;
    }
    let mut lines = String::new();
    let mut left = rest;
    loop {
        let end = left.iter().position(|&byte| byte == b'\n')?;
        let (line, after) = left.split_at_checked(end + 1)?;
        left = after;
        if line.starts_with(b"#") {
            let original = read_original(line, after)?;
            return Some(Carried { lines, original });
        }
        lines.push_str(std::str::from_utf8(line).ok()?);
    }
}

/// Whether a text that is not as Rove wrote it was made from such a text.
pub(super) fn is_made_of_ours(text: &[u8]) -> bool {
    let mut lines = text.split(|&byte| byte == b'\n');
    read(text).is_none() && lines.any(|line| line.starts_with(HEADER.trim_end().as_bytes()))
}

/// The original, of the line that names its kind and of what follows.
fn read_original(kind: &[u8], mut left: &[u8]) -> Option<Original> {
    if kind == WAS_MISSING.as_bytes() {
        return left.is_empty().then_some(Original::Missing);
    }
    let value = kind.strip_suffix(b"\n")?;
    if let Some(target) = value.strip_prefix(WAS_LINK.as_bytes()) {
        let target = PathBuf::from(OsStr::from_bytes(target));
        return left.is_empty().then_some(Original::Link(target));
    }
    let mode = std::str::from_utf8(value.strip_prefix(WAS_FILE.as_bytes())?).ok()?;
    let mode = u32::from_str_radix(mode, 8).ok()? & MODE_MASK;
    // The mark is a line of its own: an original may end with the same bytes.
    let open_end = left.strip_suffix(OPEN_END).filter(|before| before.ends_with(b"\n"));
    left = open_end.unwrap_or(left);
    let mut text = Vec::with_capacity(left.len());
    for line in left.split_inclusive(|&byte| byte == b'\n') {
        text.extend_from_slice(line.strip_prefix(PREFIX)?);
    }
    if open_end.is_some() {
        text.pop();
    }
    Some(Original::File { text, mode })
}

/// FNV-1a (Fowler, Noll, Vo), 64 bits.
fn checksum(bytes: &[u8]) -> u64 {
    const PRIME: u64 = 0x0000_0100_0000_01b3;
    let mix = |sum: u64, &byte: &u8| (sum ^ u64::from(byte)).wrapping_mul(PRIME);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn originals() -> impl Strategy<Value = Original> {
        let link = "[^\0\n]{1,40}".prop_map(|target: String| Original::Link(target.into()));
        let bytes =
            proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'#'), any::<u8>()], 0..200);
        let file = (bytes, 0..=MODE_MASK).prop_map(|(text, mode)| Original::File { text, mode });
        prop_oneof![Just(Original::Missing), link, file]
    }

    proptest! {
        #[test]
        fn what_is_carried_is_read_again_and_a_changed_text_is_nobody_s(
            original in originals(),
            at in any::<prop::sample::Index>(),
            byte in any::<u8>(),
        ) {
            let lines = "nameserver 10.7.0.1\nsearch corp.example\n".to_owned();
            let text = write(&lines, &original);
            let expected = Carried { lines, original };
            prop_assert_eq!(read(&text), Some(expected));
            let mut changed = text.clone();
            changed[at.index(text.len())] = byte;
            prop_assert!(changed == text || read(&changed).is_none());
            prop_assert_eq!(read(&text[..at.index(text.len())]), None);
        }

        #[test]
        fn no_text_makes_it_panic(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = read(&text);
            let lines = String::from_utf8_lossy(&text).into_owned();
            let _ = read(&write(&lines, &Original::Missing));
        }
    }

    #[test]
    fn an_original_may_end_as_the_mark_of_an_open_end_does() {
        for text in ["#.\n", "#.", "options edns0 #.\n", "\n#.\n", "#|\n#."] {
            let original = Original::File { text: text.into(), mode: 0o644 };
            let carried = read(&write("", &original));
            assert_eq!(carried.map(|it| it.original), Some(original), "{text:?}");
        }
    }

    #[test]
    fn every_line_is_a_comment_and_no_privilege_comes_back() {
        let text = b"nameserver 192.0.2.1\n\noptions edns0".to_vec();
        let all = write("nameserver 10.7.0.1\n", &Original::File { text, mode: 0o4755 });
        let shown = String::from_utf8(all.clone()).unwrap();
        let read_by_resolvers: Vec<&str> =
            shown.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(read_by_resolvers, ["nameserver 10.7.0.1"]);
        let original = read(&all).unwrap().original;
        assert!(matches!(original, Original::File { mode: 0o755, .. }), "{original:?}");
    }
}
