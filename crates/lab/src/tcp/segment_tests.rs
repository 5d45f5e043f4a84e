use super::*;
use proptest::prelude::*;

fn example(source: &str, destination: &str) -> Segment {
    Segment {
        source: source.parse().unwrap(),
        destination: destination.parse().unwrap(),
        sequence: 0xfffffff0,
        acknowledgment: Some(17),
        flags: Flags { psh: true, ..Flags::default() },
        window: 512,
        options: Options {
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            sacks: vec![(10, 20), (30, 40)],
            ..Options::default()
        },
        payload: b"hello".to_vec(),
    }
}

#[test]
fn what_is_emitted_is_parsed_in_both_families() {
    for (source, destination) in
        [("192.0.2.1:5000", "198.51.100.7:80"), ("[2001:db8::1]:5000", "[2001:db8::2]:80")]
    {
        let segment = example(source, destination);
        assert_eq!(Segment::parse(&segment.emit()), Ok(segment.clone()));
        let syn = Segment {
            acknowledgment: None,
            flags: Flags { syn: true, ..Flags::default() },
            options: Options {
                mss: Some(1_460),
                window_scale: Some(7),
                sack_permitted: true,
                timestamps: Some(Timestamps { value: 1, echo: 0 }),
                sacks: Vec::new(),
            },
            payload: Vec::new(),
            ..segment
        };
        assert_eq!(Segment::parse(&syn.emit()), Ok(syn));
    }
}

/// MSS, SACK permitted, timestamps, padding, window scale (`tcp_options_write`).
#[test]
fn the_options_of_a_syn_stand_as_linux_writes_them() {
    let options: [u8; 20] = [2, 4, 5, 0xb4, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0, 1, 3, 3, 7];
    let parsed = Options::parse(&options).unwrap();
    assert_eq!(parsed.mss, Some(1_460));
    assert_eq!(parsed.window_scale, Some(7));
    assert_eq!(parsed.emit(), options);
}

#[test]
fn no_single_turned_bit_is_believed() {
    for address in ["192.0.2.1:5000", "[2001:db8::1]:5000"] {
        let segment = example(address, address);
        let packet = segment.emit();
        for bit in 0..packet.len() * 8 {
            let mut turned = packet.clone();
            turned[bit / 8] ^= 1 << (bit % 8);
            // Traffic class, flow label and hop limit of IPv6 are under no checksum.
            if let Ok(parsed) = Segment::parse(&turned) {
                assert_eq!(parsed, segment, "bit {bit}");
                assert!(address.starts_with('['), "bit {bit}");
            }
        }
    }
}

#[test]
fn options_that_lie_about_their_length_are_refused() {
    for options in [&[2, 3, 0][..], &[8, 1], &[8, 10, 0], &[5, 9, 0, 0, 0, 0, 0, 0, 0], &[3, 0]] {
        assert_eq!(Options::parse(options), Err(Malformed::Option), "{options:?}");
    }
    assert_eq!(Options::parse(&[1, 1, 77, 4, 0, 0, 0, 8]), Ok(Options::default()));
}

proptest! {
    #[test]
    fn nothing_that_arrives_does_harm(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
        let _ = Segment::parse(&bytes);
        let mut version = bytes;
        if let Some(first) = version.first_mut() {
            *first = 0x45;
        }
        let _ = Segment::parse(&version);
    }
}
