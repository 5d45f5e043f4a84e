//! The content of an interactive session: numbered lines that come back, and numbered lines of the
//! server's own. Both ends know exactly which lines to expect. Time and sockets are elsewhere.

/// The rest of a server's own line: some seventy letters, as in a log.
const FILLER: &str = "the server says something of its own, as programs in terminals do";
/// Marks of lines that come back, and of the server's own.
const MARKS: [&str; 2] = ["typed", "said"];

/// The line that is typed as the `number`th, at a time in nanoseconds.
pub fn typed_line(number: u32, at_ns: u64) -> String {
    format!("{} {number} {at_ns}\n", MARKS[0])
}

/// The server's own line of this number.
pub fn own_line(number: u32) -> String {
    format!("{} {number} {FILLER}\n", MARKS[1])
}

/// The received part of the expected lines.
#[derive(Debug)]
pub struct Seen {
    expected: [u32; 2],
    next: [u32; 2],
    bytes: u64,
    intact: bool,
}

impl Seen {
    /// Empty, with this number of typed lines and of the server's own.
    pub const fn new(expected: [u32; 2]) -> Self {
        Self { expected, next: [0; 2], bytes: 0, intact: true }
    }

    /// Takes a line without its end; returns when it was typed, if it was.
    pub fn take(&mut self, line: &str) -> Option<u64> {
        self.bytes += line.len() as u64 + 1;
        let mut words = line.splitn(3, ' ');
        let kind = words.next().and_then(|word| MARKS.iter().position(|mark| *mark == word));
        let number = words.next().and_then(|number| number.parse::<u32>().ok());
        let rest = words.next().unwrap_or("");
        let typed_ns = rest.parse().ok();
        let Some(kind) = kind.filter(|&kind| number == Some(self.next[kind])) else {
            self.intact = false;
            return None;
        };
        self.next[kind] += 1;
        self.intact &= if kind == 0 { typed_ns.is_some() } else { rest == FILLER };
        typed_ns.filter(|_| kind == 0)
    }

    /// Whether all has come.
    pub fn all(&self) -> bool {
        self.next == self.expected
    }

    /// Whether every line so far came once, whole and in order.
    pub const fn is_intact(&self) -> bool {
        self.intact
    }

    /// Bytes so far.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::{FILLER, Seen};

    fn seen() -> Seen {
        Seen::new([2, 1])
    }

    #[test]
    fn every_line_comes_once_and_in_order() {
        let said = format!("said 0 {FILLER}");
        let mut all = seen();
        assert_eq!(all.take("typed 0 17"), Some(17));
        assert_eq!(all.take(&said), None);
        assert!(!all.all());
        assert_eq!(all.take("typed 1 18"), Some(18));
        assert!(all.all() && all.is_intact());
    }

    #[test]
    fn what_is_missing_doubled_or_altered_is_seen() {
        for lines in [
            &["typed 1 17"][..],
            &["typed 0 17", "typed 0 17"],
            &["typed 0 x"],
            &["said 0 something else"],
            &["shouted 0 17"],
            &[""],
        ] {
            let mut all = seen();
            for line in lines {
                let _typed_ns = all.take(line);
            }
            assert!(!all.is_intact(), "{lines:?}");
        }
    }
}
