//! Laws of compression: what comes back is what went in, a result is smaller or there is none, and
//! hostile input costs an error.

use proptest::prelude::*;

use super::*;
use crate::codec::dictionary::ALL;

/// Words of a payload that repeats some.
const WORDS: &[&str] = &["alpha", "beta", "\u{0}", "{\"v\":", "7"];

/// An IPv4 packet with this payload.
fn packet(payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
    let mut packet = vec![0x45, 0, len[0], len[1], 0, 0, 0x40, 0, 64, 17, 0, 0];
    packet.extend_from_slice(&[10, 0, 0, 1, 192, 0, 2, 9]);
    packet.extend_from_slice(payload);
    packet
}

fn codings() -> Vec<Coding> {
    let with = ALL.iter().map(|one| Coding::with_dictionary(one.number));
    [Coding::LZ4, Coding::ZSTD].into_iter().chain(with).collect()
}

fn compress(coder: &mut Coder, coding: Coding, packet: &[u8], padded: bool) -> Option<Vec<u8>> {
    coder.compress(coding, Pieces::whole(packet), padded).map(<[u8]>::to_vec)
}

#[test]
fn a_full_packet_of_one_letter_takes_little() {
    let mut coder = Coder::default();
    let packet = packet(&[b'a'; 1_480]);
    for coding in codings() {
        let result = compress(&mut coder, coding, &packet, false).unwrap();
        assert!(result.len() <= 50, "{coding:?}: {}", result.len());
        assert_eq!(coder.decompress(&result).unwrap(), packet);
    }
}

#[test]
fn what_does_not_get_smaller_has_no_result() {
    let mut coder = Coder::default();
    let mut state = 1u64;
    let random: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(1_400)
    .collect();
    for coding in codings() {
        assert_eq!(compress(&mut coder, coding, &packet(&random), false), None, "{coding:?}");
        assert_eq!(compress(&mut coder, coding, &[], false), None);
        assert_eq!(compress(&mut coder, coding, &[0x45], false), None);
    }
    let unknown = Coding::with_dictionary(15);
    assert_eq!(compress(&mut coder, unknown, &packet(&[b'a'; 400]), false), None);
}

#[test]
fn what_comes_back_is_one_inner_packet_and_bounded() {
    let mut coder = Coder::default();
    // A kilobyte of zeros from a few bytes: no inner packet.
    let zeros = compress(&mut coder, Coding::LZ4, &[0; 1_500], false).unwrap();
    assert_eq!(coder.decompress(&zeros), Err(DropReason::BadFrame));
    // More than an inner packet may have: LZ4 with a match of 60,000 bytes.
    let mut bomb = vec![Coding::LZ4.to_byte(), 0x1f, 0x45, 1, 0];
    bomb.extend_from_slice(&[0xff; 240]);
    bomb.extend_from_slice(&[0, 0x50, 1, 2, 3, 4, 5]);
    assert_eq!(coder.decompress(&bomb), Err(DropReason::BadFrame));
    let large = Compressor::new(1).unwrap().compress(&[0; 100_000]).unwrap();
    let large = [&[Coding::ZSTD.to_byte()], &large[4..]].concat(); // without its magic number
    assert_eq!(coder.decompress(&large), Err(DropReason::BadFrame));
    for broken in
        [&[][..], &[0], &[1], &[2], &[0x11, 0], &[0xf2, 0], &[9], &[9, 0], &[9, 33], &[3, 0]]
    {
        assert_eq!(coder.decompress(broken), Err(DropReason::BadFrame), "{broken:?}");
    }
}

#[test]
fn padding_hides_the_length_and_is_taken_off() {
    let mut coder = Coder::default();
    for len in 200..300 {
        let packet = packet(&vec![b'a'; len]);
        for coding in codings() {
            let result = compress(&mut coder, coding, &packet, true).unwrap();
            assert_eq!(result.len() % PADDED_TO, 0);
            assert_eq!(coder.decompress(&result).unwrap(), packet);
        }
    }
}

#[test]
fn a_dictionary_halves_what_lz4_makes_of_telemetry() {
    let mut coder = Coder::default();
    let (mut plain, mut with) = (0, 0);
    for number in 0..50u32 {
        let payload = format!(
            "[{{\"bn\":\"urn:dev:mac:00a0c9fffe{number:06x}:\",\"bt\":{},\"n\":\"temperature\",\
             \"u\":\"Cel\",\"v\":{}.{}}},{{\"n\":\"humidity\",\"u\":\"%RH\",\"v\":{}}},\
             {{\"n\":\"pressure\",\"u\":\"Pa\",\"v\":{}}},{{\"n\":\"battery\",\"u\":\"%EL\",\
             \"v\":{}}}]",
            1_790_000_000 + u64::from(number) * 61,
            17 + number % 9,
            number % 10,
            40 + number % 31,
            101_000 + number * 7,
            99 - number,
        );
        let packet = packet(payload.as_bytes());
        assert!((200..=400).contains(&packet.len()));
        let lens = [Coding::LZ4, Coding::with_dictionary(1)].map(|coding| {
            compress(&mut coder, coding, &packet, false).map_or(packet.len(), |it| it.len())
        });
        (plain, with) = (plain + lens[0], with + lens[1]);
    }
    assert!(with * 2 <= plain, "{with} of {plain}");
}

proptest! {
    /// Whatever is compressed comes back, in one piece or two, and a result makes a smaller frame.
    #[test]
    fn what_goes_in_comes_out(
        words in prop::collection::vec(prop::sample::select(WORDS), 1..280),
        noise in prop::collection::vec(any::<u8>(), 0..60),
        cut in 0usize..200,
        padded in any::<bool>(),
    ) {
        let mut payload = words.concat().into_bytes();
        payload.extend_from_slice(&noise);
        payload.truncate(1_400);
        let packet = packet(&payload);
        let cut = cut.min(packet.len());
        let mut coder = Coder::default();
        for coding in codings() {
            let pieces = Pieces::cut(&packet[..cut], &packet[cut..]);
            let Some(result) = coder.compress(coding, pieces, padded).map(<[u8]>::to_vec) else {
                continue;
            };
            prop_assert!(result.len() + FRAME_COST < packet.len());
            prop_assert_eq!(coder.decompress(&result), Ok(&packet[..]));
        }
    }

    /// Hostile bytes are an error or an inner packet.
    #[test]
    fn hostile_bytes_are_harmless(
        mut bytes in prop::collection::vec(any::<u8>(), 1..200),
        first in 0u8..6,
    ) {
        bytes[0] = [1, 2, 0x12, 9, 10, 0x22][usize::from(first)];
        let mut coder = Coder::default();
        if let Ok(packet) = coder.decompress(&bytes) {
            prop_assert_eq!(declared_len(packet), Some(packet.len()));
            prop_assert!(packet.len() <= MAX_PACKET);
        }
    }
}

#[test]
fn an_operators_dictionary_is_used_by_whoever_has_it() {
    let text = br#"{"meter":"kWh-4711","reading":1042,"phase":3,"state":"good"}"#.repeat(2);
    let added = crate::codec::dictionary::Added::new(8, &text[..60]).unwrap();
    let mut coder = Coder::new(Dictionaries::with(vec![added]));
    let packet = packet(&text);
    let with = compress(&mut coder, Coding::with_dictionary(8), &packet, false).unwrap();
    let without = compress(&mut coder, Coding::ZSTD, &packet, false).unwrap();
    assert!(with.len() + 30 < without.len(), "{} bytes, {} without", with.len(), without.len());
    assert_eq!(coder.decompress(&with).unwrap(), packet);
    assert_eq!(Coder::default().decompress(&with), Err(DropReason::BadFrame));
    assert_eq!(compress(&mut coder, Coding::with_dictionary(9), &packet, false), None);
}
