//! What a program writes, line by line: the latest lines, for whoever asks in time.
//!
//! Decides how much is kept: a program whose output nobody reads must neither block, which would
//! change the story, nor fill the memory.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Lines on their way from a reader thread, which ends with the stream.
#[derive(Clone, Debug)]
pub(super) struct Lines(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    kept: VecDeque<String>,
    ended: bool,
}

/// What came of waiting for a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Line(String),
    /// None came in time.
    Late,
    /// None will come.
    Ended,
}

impl Lines {
    /// Reads a stream to its end on a thread of its own; of what nobody takes, the latest `most`
    /// lines are kept.
    pub(super) fn read(stream: impl io::Read + Send + 'static, most: usize) -> Self {
        let shared = Shared { state: Mutex::default(), changed: Condvar::new() };
        let lines = Self(Arc::new(shared));
        let writer = lines.clone();
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines() {
                let Ok(line) = line else { break };
                let mut state = writer.state();
                if state.kept.len() == most {
                    state.kept.pop_front();
                }
                state.kept.push_back(line);
                drop(state);
                writer.0.changed.notify_all();
            }
            writer.state().ended = true;
            writer.0.changed.notify_all();
        });
        lines
    }

    /// The oldest line that nobody has taken.
    pub(super) fn next(&self, timeout: Duration) -> Next {
        let end = Instant::now() + timeout;
        let mut state = self.state();
        loop {
            if let Some(line) = state.kept.pop_front() {
                return Next::Line(line);
            }
            if state.ended {
                return Next::Ended;
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Next::Late;
            }
            let waited = self.0.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Every line that nobody has taken, after the stream's end or `patience`, whichever is
    /// sooner: a grandchild may hold the stream for ever.
    pub(super) fn take_all(&self, patience: Duration) -> Vec<String> {
        let waited =
            self.0.changed.wait_timeout_while(self.state(), patience, |state| !state.ended);
        waited.unwrap_or_else(PoisonError::into_inner).0.kept.drain(..).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::{Lines, Next};
    use std::time::Duration;

    #[test]
    fn the_latest_lines_are_kept_and_the_end_is_seen() {
        let lines = Lines::read(&b"a\nb\nc\nd\n"[..], 2);
        while !lines.state().ended {
            std::thread::yield_now();
        }
        assert_eq!(lines.next(Duration::ZERO), Next::Line("c".to_owned()));
        assert_eq!(lines.take_all(Duration::ZERO), ["d"]);
        assert_eq!(lines.next(Duration::from_secs(9)), Next::Ended);
    }

    #[test]
    fn a_stream_without_an_end_is_not_waited_for() {
        let (reader, writer) = std::io::pipe().unwrap();
        let lines = Lines::read(reader, 2);
        assert_eq!(lines.next(Duration::from_millis(1)), Next::Late);
        assert!(lines.take_all(Duration::from_millis(1)).is_empty());
        drop(writer);
    }
}
