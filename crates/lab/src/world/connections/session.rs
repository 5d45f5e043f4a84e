//! An interactive session: the two programs of [`crate::programs`] that hold one on real hosts, as
//! far as their words go, with time that is told.

use super::heard::{Heard, is_open};
use crate::ground::Session;
use crate::programs::session::{Seen, own_line, typed_line};
use crate::tcp::End;

/// Room that is left for the lines of others when one's own are many.
const ROOM: usize = 64 << 10;

/// Somebody who types, pauses, types again, and sees what comes.
#[derive(Debug)]
pub(in crate::world) struct Terminal {
    session: Session,
    typed: u32,
    begun_ns: Option<u64>,
    seen: Seen,
    line: Vec<u8>,
    heard: Heard,
    echoes: Vec<(u64, u64)>,
}

/// Sends every line back, and says some of its own.
#[derive(Debug)]
pub(in crate::world) struct Shell {
    session: Session,
    said: u32,
    begun_ns: Option<u64>,
    line: Vec<u8>,
}

impl Terminal {
    /// The client's side of a session.
    pub(in crate::world) fn new(session: Session) -> Self {
        Self {
            session,
            typed: 0,
            begun_ns: None,
            seen: Seen::new([session.before + session.after, session.said]),
            line: Vec::new(),
            heard: Heard::default(),
            echoes: Vec::new(),
        }
    }

    /// For each line that came back when it was typed, and how long that took, in nanoseconds.
    pub(in crate::world) fn echoes(&self) -> &[(u64, u64)] {
        &self.echoes
    }

    pub(super) const fn heard(&self) -> &Heard {
        &self.heard
    }

    pub(super) fn has_heard_all(&self) -> bool {
        self.seen.all()
    }

    pub(super) fn run(&mut self, now_ns: u64, end: &mut End) -> Result<(), String> {
        self.heard.note_open(now_ns, end);
        if is_open(end) {
            self.begun_ns.get_or_insert(now_ns);
        }
        while self.next_ns().is_some_and(|next_ns| next_ns <= now_ns) {
            end.write(typed_line(self.typed, now_ns).as_bytes());
            self.typed += 1;
        }
        for line in lines(&mut self.line, end.read(usize::MAX)) {
            self.heard.note(now_ns, line.len() as u64 + 1);
            let typed_ns = self.seen.take(&line);
            self.echoes.extend(typed_ns.map(|typed_ns| (typed_ns, now_ns - typed_ns)));
            if !self.seen.is_intact() {
                return Err(format!("\"{line}\" is not what was to come"));
            }
        }
        if self.seen.all() {
            end.close();
        }
        Ok(())
    }

    pub(super) fn due_ns(&self, end: &End) -> Option<u64> {
        self.next_ns().filter(|_| is_open(end))
    }

    fn next_ns(&self) -> Option<u64> {
        let Session { before, after, pause_ns, typed_every_ns, .. } = self.session;
        let pause_ns = if self.typed < before { 0 } else { pause_ns };
        let next_ns = self.begun_ns? + u64::from(self.typed) * typed_every_ns + pause_ns;
        (self.typed < before + after).then_some(next_ns)
    }
}

impl Shell {
    /// The server's side of a session.
    pub(in crate::world) const fn new(session: Session) -> Self {
        Self { session, said: 0, begun_ns: None, line: Vec::new() }
    }

    pub(super) fn run(&mut self, now_ns: u64, end: &mut End) {
        if is_open(end) {
            self.begun_ns.get_or_insert(now_ns);
        }
        for line in lines(&mut self.line, end.read(usize::MAX)) {
            end.write(format!("{line}\n").as_bytes());
        }
        while self.next_ns().is_some_and(|next_ns| next_ns <= now_ns) && has_room(end) {
            end.write(own_line(self.said).as_bytes());
            self.said += 1;
        }
        if end.is_read_closed() {
            end.close();
        }
    }

    pub(super) fn due_ns(&self, end: &End) -> Option<u64> {
        self.next_ns().filter(|_| is_open(end) && has_room(end))
    }

    fn next_ns(&self) -> Option<u64> {
        let Session { said, said_every_ns, .. } = self.session;
        let next_ns = self.begun_ns? + u64::from(self.said) * said_every_ns;
        (self.said < said).then_some(next_ns)
    }
}

/// Whether TCP takes another line of the server's own: while nobody listens it fills up. Lines that
/// are typed always find the room that is left then: there are few.
fn has_room(end: &End) -> bool {
    end.writable() >= ROOM
}

/// The lines that are whole now, without their ends; what begins another one is kept.
fn lines(begun: &mut Vec<u8>, bytes: Vec<u8>) -> Vec<String> {
    begun.extend(bytes);
    let Some(end) = begun.iter().rposition(|byte| *byte == b'\n') else { return Vec::new() };
    let rest = begun.split_off(end + 1);
    let whole = String::from_utf8_lossy(&std::mem::replace(begun, rest)).into_owned();
    whole.lines().map(str::to_owned).collect()
}
