//! An interactive session over one TCP connection, as a terminal has with a shell far away.
//!
//! The client types numbered lines, and the server sends each back; every so often the server says
//! a numbered line of its own. Whoever typed sees whether every line comes once, whole and in
//! order, and how long each takes. Nothing is encrypted here: SSH adds nothing that TCP would
//! notice.

use super::carry::{keep_alive, listen_on, tell_broken};
use super::report::{Carried, Report, Reporter};
use super::session::{Seen, own_line, typed_line};
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
        write_line(writer, &own_line(number))?;
    }
    Ok(())
}

/// Sends every line back until the client is done.
fn echo(reader: impl BufRead, writer: &Mutex<TcpStream>) -> io::Result<()> {
    for line in Lines(reader) {
        write_line(writer, &(line? + "\n"))?;
    }
    Ok(())
}

/// Lines of two threads never mix.
fn write_line(writer: &Mutex<TcpStream>, line: &str) -> io::Result<()> {
    let mut stream = writer.lock().unwrap_or_else(PoisonError::into_inner);
    stream.write_all(line.as_bytes())
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
    let mut seen = Seen::new([typing.before + typing.after, typing.said]);
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
            bytes: seen.bytes(),
            latest_ns: at_ns,
            gaps: arrivals.take_gaps(),
            intact: seen.is_intact(),
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
        stream.write_all(typed_line(number, monotonic_ns()).as_bytes())?;
    }
    Ok(())
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
    use super::Lines;

    #[test]
    fn lines_have_an_end() {
        let mut endless = Lines(std::io::BufReader::new(std::io::repeat(b'a')));
        assert!(endless.next().unwrap().is_err());
        let mut cut = Lines(&b"whole\ncut"[..]);
        assert_eq!(cut.next().unwrap().unwrap(), "whole");
        assert!(cut.next().unwrap().is_err());
    }
}
