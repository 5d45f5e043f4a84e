//! Datagrams on a byte stream: the same datagrams come out however the bytes are split.
//!
//! The input is `bytes that arrive at once 1 | stream`; zero means all at once.

use rove_os::fuzz::stream_frames;
use rove_os::stream::DATAGRAM_LEN_MAX;

use super::in_pieces;
use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "stream_frames", run, seeds, mutations: 50_000 };

fn run(data: &[u8]) {
    let (stream, pieces) = in_pieces(data);
    let whole = stream_frames(&[stream]);
    assert_eq!(stream_frames(&pieces), whole, "it matters how the bytes were cut");
    let (Ok(datagrams) | Err(datagrams)) = &whole;
    let mut rest = stream;
    for datagram in datagrams {
        assert!((1..=DATAGRAM_LEN_MAX).contains(&datagram.len()));
        let (length, after) = rest.split_first_chunk::<2>().expect("a length");
        assert_eq!(usize::from(u16::from_be_bytes(*length)), datagram.len());
        rest = after.strip_prefix(datagram.as_slice()).expect("the bytes that were sent");
    }
    let broken = rest.first_chunk::<2>().is_some_and(|length| {
        !(1..=DATAGRAM_LEN_MAX).contains(&usize::from(u16::from_be_bytes(*length)))
    });
    assert_eq!(whole.is_err(), broken, "a stream ends where no length can be right");
}

fn seeds() -> Vec<Vec<u8>> {
    let frame = |length: usize| {
        let said = u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
        [&said[..], &vec![7; length]].concat()
    };
    let seed = |at_once: u8, frames: &[Vec<u8>]| [&[at_once], &frames.concat()[..]].concat();
    vec![
        seed(0, &[frame(1)]),
        seed(1, &[frame(3), frame(40)]),
        seed(7, &[frame(27), frame(1_232), frame(5)]),
        seed(0, &[frame(DATAGRAM_LEN_MAX)]),
        seed(5, &[frame(9), vec![0, 0, 1, 2]]),
        seed(3, &[frame(9), vec![0xff, 0xff]]),
        seed(2, &[vec![0x05, 0xc1, 1]]),
    ]
}
