//! Waiting for a datagram until a moment, and no longer.
//!
//! Decides how long is waited. What it refuses to know: what is said, and what follows from it.

use crate::emu::SECOND;
use crate::netns::monotonic_ns;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::net::UdpSocket;

/// The length of the next datagram, or `None` where nothing came until `end_ns`; what lies there
/// already is taken even when that is past.
///
/// Not by a timeout of the socket: the kernel counts that in ticks and adds one (two of 4 ms for
/// anything below 4 ms at 250 Hz), and who sends by such a clock sends late and in bursts.
///
/// # Errors
/// What the network said of something that left before, which comes at once.
pub(super) fn receive_until(
    socket: &UdpSocket,
    buffer: &mut [u8],
    end_ns: u64,
) -> rustix::io::Result<Option<usize>> {
    loop {
        match rustix::net::recv(socket, &mut *buffer, RecvFlags::DONTWAIT) {
            Ok((_, length)) => return Ok(Some(length.min(buffer.len()))),
            Err(Errno::AGAIN) => {}
            Err(error) => return Err(error),
        }
        let left_ns = end_ns.saturating_sub(monotonic_ns());
        if left_ns == 0 {
            return Ok(None);
        }
        let left =
            Timespec { tv_sec: (left_ns / SECOND) as i64, tv_nsec: (left_ns % SECOND) as i64 };
        poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&left))?;
    }
}

#[cfg(test)]
mod tests {
    use super::{monotonic_ns, receive_until};
    use crate::emu::MS;
    use std::net::UdpSocket;

    fn pair() -> [UdpSocket; 2] {
        let sockets = [0; 2].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
        sockets[0].connect(sockets[1].local_addr().unwrap()).unwrap();
        sockets[1].connect(sockets[0].local_addr().unwrap()).unwrap();
        sockets
    }

    #[test]
    fn nothing_is_waited_for_until_then_and_not_for_a_tick_more() {
        let [hearing, _other] = pair();
        let mut shortest_ns = u64::MAX;
        for _ in 0..20 {
            let began_ns = monotonic_ns();
            let end_ns = began_ns + MS / 2;
            assert_eq!(receive_until(&hearing, &mut [0; 8], end_ns), Ok(None));
            assert!(monotonic_ns() >= end_ns, "it came back before its time");
            shortest_ns = shortest_ns.min(monotonic_ns() - began_ns);
        }
        // By a timeout of the socket it is one tick at least, which is 1 ms or more.
        assert!(shortest_ns < MS, "{shortest_ns} ns");
    }

    #[test]
    fn what_lies_there_is_taken_after_the_time_too() {
        let [hearing, saying] = pair();
        saying.send(b"word").unwrap();
        let mut buffer = [0; 8];
        assert_eq!(receive_until(&hearing, &mut buffer, 0), Ok(Some(4)));
        assert_eq!(&buffer[..4], b"word");
        assert_eq!(receive_until(&hearing, &mut buffer, 0), Ok(None));
    }

    #[test]
    fn a_refusal_is_told() {
        let [hearing, other] = pair();
        drop(other);
        hearing.send(b"is anybody there").unwrap();
        assert!(receive_until(&hearing, &mut [0; 8], monotonic_ns() + 5_000 * MS).is_err());
    }
}
