//! Two ends of a call: one calls, the other answers. Each datagram carries its number and its time
//! of sending, on the clock that all hosts share, so that each direction is measured by itself.
//!
//! A voice is G.711 in RTP (RFC 3550, 5.1; RFC 3551: payload type 0), with the number after the
//! header. Requests have zeros in place of the header, and the called end returns them.

use super::receive::receive_until;
use super::report::{Heard, Report, Reporter};
use crate::netns::monotonic_ns;
use anyhow::Context as _;
use clap::Args;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

/// How long after its regular end late datagrams are awaited, in nanoseconds.
const PATIENCE_NS: u64 = 1_000_000_000;
/// How long the called end waits for the first datagram.
const FIRST_WORD: Duration = Duration::from_secs(60);
/// Version 2, nothing optional.
const RTP: u8 = 0x80;
/// Offset of the number and the time of sending.
const NUMBER_AT: usize = 12;
/// The shortest datagram.
const SHORTEST: usize = NUMBER_AT + 16;
/// Samples of a datagram, at 8 kHz.
const SAMPLES: u32 = 160;
/// The most datagrams of one talk.
const MAX_COUNT: u32 = 1_000_000;

/// The content.
#[derive(Clone, Debug, Args)]
pub struct Speech {
    /// Say it as RTP, both ways
    #[arg(long)]
    pub voice: bool,
    /// How many datagrams
    #[arg(long)]
    pub count: u32,
    /// Microseconds between two
    #[arg(long, default_value_t = 20_000)]
    pub interval_us: u64,
    /// Bytes of UDP payload, at least 28
    #[arg(long, default_value_t = 172)]
    pub size: u16,
    /// Milliseconds before the first one
    #[arg(long, default_value_t = 0)]
    pub wait_ms: u64,
}

/// Waits for a call and answers it: with a voice of its own, or by sending each datagram back.
///
/// # Errors
/// When the address cannot be bound, or nobody calls.
pub fn answer(listen: SocketAddr, speech: &Speech, reporter: &Reporter) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    reporter.tell(&Report::Ready)?;
    socket.set_read_timeout(Some(FIRST_WORD + Duration::from_millis(speech.wait_ms)))?;
    let mut first = [0; 2_048];
    let (length, caller) = socket.recv_from(&mut first).context("nobody called")?;
    socket.connect(caller)?;
    let mut ear = Ear::new(speech);
    let number = ear.hear(&first[..length]);
    if let Some(number) = number.filter(|_| !speech.voice) {
        let _ = socket.send(&datagram(speech, number));
    }
    talk(&socket, &Speech { wait_ms: 0, ..speech.clone() }, speech.voice, &mut ear)?;
    reporter.tell(&Report::Heard(Heard { delays_ns: ear.delays_ns }))
}

/// Calls the other end, sends and receives.
///
/// # Errors
/// If there is no socket.
pub fn call(to: SocketAddr, speech: &Speech, reporter: &Reporter) -> anyhow::Result<()> {
    let any = if to.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0))?;
    socket.connect(to)?;
    reporter.tell(&Report::Ready)?;
    let mut ear = Ear::new(speech);
    talk(&socket, speech, true, &mut ear)?;
    reporter.tell(&Report::Heard(Heard { delays_ns: ear.delays_ns }))
}

/// Sends on time, if it `speaks` at all, and receives until everything has arrived or the time is
/// over.
fn talk(socket: &UdpSocket, speech: &Speech, speaks: bool, ear: &mut Ear) -> anyhow::Result<()> {
    let start_ns = monotonic_ns() + speech.wait_ms * 1_000_000;
    let due_ns = |number: u32| start_ns + u64::from(number) * speech.interval_us * 1_000;
    let count = if speaks { speech.count.min(MAX_COUNT) } else { 0 };
    for number in 0..count {
        ear.listen(socket, speech, speaks, due_ns(number), false)?;
        // A network that is just gone is a loss, not an end.
        let _ = socket.send(&datagram(speech, number));
    }
    let end_ns = due_ns(speech.count).max(monotonic_ns()) + PATIENCE_NS;
    ear.listen(socket, speech, speaks, end_ns, true)
}

fn datagram(speech: &Speech, number: u32) -> Vec<u8> {
    let mut datagram = vec![0xd5; usize::from(speech.size).max(SHORTEST)];
    datagram[..NUMBER_AT].fill(0);
    if speech.voice {
        datagram[0] = RTP;
        datagram[2..4].copy_from_slice(&(number as u16).to_be_bytes());
        datagram[4..8].copy_from_slice(&number.wrapping_mul(SAMPLES).to_be_bytes());
        datagram[8..12].copy_from_slice(&0x0c_a1_1e_d0_u32.to_be_bytes());
    }
    datagram[NUMBER_AT..NUMBER_AT + 8].copy_from_slice(&u64::from(number).to_be_bytes());
    datagram[NUMBER_AT + 8..SHORTEST].copy_from_slice(&monotonic_ns().to_be_bytes());
    datagram
}

/// What was received so far.
struct Ear {
    delays_ns: Vec<Option<u64>>,
    missing: usize,
}

impl Ear {
    fn new(speech: &Speech) -> Self {
        let count = speech.count.min(MAX_COUNT) as usize;
        Self { delays_ns: vec![None; count], missing: count }
    }

    /// Takes one datagram: its number, if it is one of the talk.
    fn hear(&mut self, datagram: &[u8]) -> Option<u32> {
        let now_ns = monotonic_ns();
        let field = |at: usize| {
            let bytes = datagram.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_be_bytes(bytes))
        };
        let number = u32::try_from(field(NUMBER_AT)?).ok()?;
        let sent_ns = field(NUMBER_AT + 8)?;
        // Of a duplicate, the first counts.
        let place = self.delays_ns.get_mut(number as usize).filter(|place| place.is_none())?;
        *place = Some(now_ns.saturating_sub(sent_ns));
        self.missing -= 1;
        Some(number)
    }

    /// Receives until `end_ns`, or until everything has arrived if it `may_end`. An end that does
    /// not send by itself returns everything.
    fn listen(
        &mut self,
        socket: &UdpSocket,
        speech: &Speech,
        speaks: bool,
        end_ns: u64,
        may_end: bool,
    ) -> anyhow::Result<()> {
        let mut buffer = [0; 2_048];
        while !(may_end && self.missing == 0) {
            let length = match receive_until(socket, &mut buffer, end_ns) {
                Ok(Some(length)) => length,
                Ok(None) => break,
                Err(_) => continue, // what the network refuses comes at once, and is not a word
            };
            let number = self.hear(&buffer[..length]);
            if let Some(number) = number.filter(|_| !speaks) {
                let _ = socket.send(&datagram(speech, number));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Ear, Report, Reporter, Speech, answer, call};
    use std::net::UdpSocket;

    fn speech(voice: bool) -> Speech {
        Speech { voice, count: 20, interval_us: 1_000, size: 172, wait_ms: 0 }
    }

    #[test]
    fn both_hear_all_of_it_over_a_cable() {
        for voice in [true, false] {
            let free = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
            let speech = speech(voice);
            let answering = std::thread::spawn({
                let speech = speech.clone();
                move || answer(free, &speech, &Reporter::new())
            });
            // It listens before this is over.
            let early = Speech { wait_ms: 300, ..speech };
            call(free, &early, &Reporter::new()).unwrap();
            answering.join().unwrap().unwrap();
        }
    }

    #[test]
    fn a_double_and_a_stranger_change_nothing() {
        let mut ear = Ear::new(&speech(true));
        let first = super::datagram(&speech(true), 3);
        assert_eq!((ear.hear(&first), ear.hear(&first)), (Some(3), None));
        assert_eq!(ear.hear(&super::datagram(&speech(true), 20)), None, "nobody said that");
        assert_eq!((ear.hear(&first[..20]), ear.missing), (None, 19));
        let said = serde_json::to_string(&Report::Heard(super::Heard { delays_ns: vec![None] }));
        assert_eq!(said.unwrap(), r#"{"event":"heard","delays_ns":[null]}"#);
    }
}
