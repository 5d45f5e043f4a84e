//! An interactive session over one TCP connection, as a terminal has with a shell far away.
//!
//! The client types numbered lines, and the server sends each back; every so often the server says
//! a numbered line of its own. Whoever typed sees whether every line comes once, whole and in
//! order, and how long each takes. Nothing is encrypted here: SSH adds nothing that TCP would
//! notice.

use super::carry::{keep_alive, listen_on, tell_broken};
use super::report::{Carried, Report, Reporter};
use crate::arrivals::Arrivals;
use crate::netns::monotonic_ns;
use clap::Args;
use socket2::SockRef;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The longest line.
const LINE_BYTES: usize = 256;
/// What fills a line of the server's own: some seventy letters, as a log has.
const FILLER: &str = "the server says something of its own, as programs in terminals do";
/// Marks of lines that come back, and of the server's own.
const MARKS: [&str; 2] = ["typed", "said"];

/// What the client types.
#[derive(Clone, Debug, Args)]
pub struct Typing {
    /// Lines typed before the pause
    #[arg(long)]
    pub before: u32,
    /// Milliseconds without a word
    #[arg(long)]
    pub pause_ms: u64,
    /// Lines typed after it
    #[arg(long)]
    pub after: u32,
    /// Microseconds between two lines
    #[arg(long)]
    pub every_us: u64,
    /// Lines that the server says by itself
    #[arg(long)]
    pub said: u32,
}

/// What the server says by itself.
#[derive(Clone, Debug, Args)]
pub struct Saying {
    /// How many lines
    #[arg(long)]
    pub said: u32,
    /// Microseconds between two
    #[arg(long)]
    pub every_us: u64,
    /// Ask a silent peer after 10 s, every 5 s, and give it up after three times
    #[arg(long)]
    pub keepalive: bool,
}

/// Serves one session.
///
/// # Errors
/// When the address cannot be listened on. A connection that breaks is reported.
pub fn shell(listen: SocketAddr, saying: &Saying, reporter: &Reporter) -> anyhow::Result<()> {
    let listener = listen_on(listen, 1)?;
    if saying.keepalive {
        keep_alive(&SockRef::from(&listener))?;
    }
    reporter.tell(&Report::Ready)?;
    let (stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let reader = BufReader::new(stream.try_clone()?);
    let writer = Arc::new(Mutex::new(stream));
    let (own, saying) = (Arc::clone(&writer), saying.clone());
    let speaking = std::thread::spawn(move || say(&own, &saying));
    let echoed = echo(reader, &writer);
    let said = speaking.join().unwrap_or_else(|_| Err(io::Error::other("a thread died")));
    if let Err(error) = echoed.and(said) {
        tell_broken(0, &error);
    }
    Ok(())
}

/// Says the server's own lines.
fn say(writer: &Mutex<TcpStream>, saying: &Saying) -> io::Result<()> {
    let start_ns = monotonic_ns();
    for number in 0..saying.said {
        sleep_until(start_ns + u64::from(number) * saying.every_us * 1_000);
        write_line(writer, &format!("{} {number} {FILLER}", MARKS[1]))?;
    }
    Ok(())
}

/// Sends every line back until the client is done.
fn echo(reader: impl BufRead, writer: &Mutex<TcpStream>) -> io::Result<()> {
    for line in Lines(reader) {
        write_line(writer, &line?)?;
    }
    Ok(())
}

/// Lines of two threads never mix.
fn write_line(writer: &Mutex<TcpStream>, line: &str) -> io::Result<()> {
    let mut stream = writer.lock().unwrap_or_else(PoisonError::into_inner);
    stream.write_all(format!("{line}\n").as_bytes())
}

/// Has one session, and tells what was seen in it.
///
/// # Errors
/// When nobody listens to the reports. A connection that breaks is reported.
pub fn terminal(to: SocketAddr, typing: &Typing, reporter: &Reporter) -> anyhow::Result<()> {
    reporter.tell(&Report::Ready)?;
    if let Err(error) = hold_session(to, typing, reporter) {
        tell_broken(0, &error);
    }
    Ok(())
}

fn hold_session(to: SocketAddr, typing: &Typing, reporter: &Reporter) -> io::Result<()> {
    let stream = TcpStream::connect(to)?;
    stream.set_nodelay(true)?;
    let tell = |report: &Report| reporter.tell(report).map_err(io::Error::other);
    tell(&Report::Opened { connection: 0, at_ns: monotonic_ns() })?;
    let (typist, plan) = (stream.try_clone()?, typing.clone());
    let typed = std::thread::spawn(move || type_lines(&typist, &plan));
    let mut seen = Seen::new(typing);
    let mut arrivals = Arrivals::default();
    for line in Lines(BufReader::new(&stream)) {
        let line = line?;
        let at_ns = monotonic_ns();
        arrivals.note(at_ns);
        if let Some(typed_ns) = seen.take(&line) {
            tell(&Report::Echoed { typed_ns, at_ns })?;
        }
        let complete = seen.all();
        tell(&Report::Carried(Carried {
            connection: 0,
            bytes: seen.bytes,
            latest_ns: at_ns,
            gaps: arrivals.take_gaps(),
            intact: seen.intact,
            complete,
        }))?;
        if complete {
            return Ok(());
        }
    }
    typed.join().unwrap_or_else(|_| Err(io::Error::other("a thread died")))?;
    Err(ErrorKind::UnexpectedEof.into())
}

/// Types, pauses, and types again.
fn type_lines(mut stream: &TcpStream, typing: &Typing) -> io::Result<()> {
    let start_ns = monotonic_ns();
    for number in 0..typing.before + typing.after {
        let pause_ms = if number < typing.before { 0 } else { typing.pause_ms };
        let after_us = u64::from(number) * typing.every_us + pause_ms * 1_000;
        sleep_until(start_ns + after_us * 1_000);
        let line = format!("{} {number} {}\n", MARKS[0], monotonic_ns());
        stream.write_all(line.as_bytes())?;
    }
    Ok(())
}

/// What came of what is to come.
struct Seen {
    expected: [u32; 2],
    next: [u32; 2],
    bytes: u64,
    intact: bool,
}

impl Seen {
    const fn new(typing: &Typing) -> Self {
        let expected = [typing.before + typing.after, typing.said];
        Self { expected, next: [0; 2], bytes: 0, intact: true }
    }

    /// Takes a line; returns when it was typed, if it was.
    fn take(&mut self, line: &str) -> Option<u64> {
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

    fn all(&self) -> bool {
        self.next == self.expected
    }
}

/// Lines of bounded length.
struct Lines<R>(R);

impl<R: BufRead> Iterator for Lines<R> {
    type Item = io::Result<String>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = String::new();
        match io::Read::take(&mut self.0, LINE_BYTES as u64).read_line(&mut line) {
            Ok(0) => None,
            Ok(_) if line.ends_with('\n') => {
                line.pop();
                Some(Ok(line))
            }
            Ok(_) => Some(Err(io::Error::other("a line is too long or has no end"))),
            Err(error) => Some(Err(error)),
        }
    }
}

fn sleep_until(at_ns: u64) {
    std::thread::sleep(Duration::from_nanos(at_ns.saturating_sub(monotonic_ns())));
}

#[cfg(test)]
mod tests {
    use super::{FILLER, Lines, Seen, Typing};

    fn seen() -> Seen {
        Seen::new(&Typing { before: 1, pause_ms: 0, after: 1, every_us: 1, said: 1 })
    }

    #[test]
    fn every_line_comes_once_and_in_order() {
        let said = format!("said 0 {FILLER}");
        let mut all = seen();
        assert_eq!(all.take("typed 0 17"), Some(17));
        assert_eq!(all.take(&said), None);
        assert!(!all.all());
        assert_eq!(all.take("typed 1 18"), Some(18));
        assert!(all.all() && all.intact);
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
            assert!(!all.intact, "{lines:?}");
        }
    }

    #[test]
    fn lines_have_an_end() {
        let mut endless = Lines(std::io::BufReader::new(std::io::repeat(b'a')));
        assert!(endless.next().unwrap().is_err());
        let mut cut = Lines(&b"whole\ncut"[..]);
        assert_eq!(cut.next().unwrap().unwrap(), "whole");
        assert!(cut.next().unwrap().is_err());
    }
}
