use super::*;
use crate::wire::inner::UDP;
use crate::wire::tcp::{Ends, Flags, Made, Seq};

fn syn(source: &str, destination: &str) -> Vec<u8> {
    let ends = Ends {
        source: (source.parse().unwrap(), 40_000),
        destination: (destination.parse().unwrap(), 80),
    };
    let mut packet = Vec::new();
    let made =
        Made { ends, seq: Seq(7), ack: Seq(0), flags: Flags::SYN, window: 1_000, timestamps: None };
    made.emit((&[], &[]), &mut packet);
    packet
}

fn heard(packet: &[u8]) -> Option<Unreached<'_>> {
    Unreached::parse(&InnerPacket::whole(packet).unwrap())
}

fn told(from: &str, packet: &[u8]) -> Option<Vec<u8>> {
    let (packet, mut out) = (InnerPacket::whole(packet).unwrap(), Vec::new());
    may_be_answered(&packet).then(|| {
        prohibit(from.parse().unwrap(), &packet, &mut out);
        out
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn what_is_said_is_as_the_rfcs_have_it() {
    let about = syn("10.1.0.2", "192.168.7.1");
    let said = told("10.1.0.1", &about).unwrap();
    // The sum of 0x030d and of what is quoted, whose IP header sums to nothing.
    let head = "4500004400004000400126b50a0100010a010002";
    let mut sum = Sum::default().word(0x030d).bytes(&about);
    assert_eq!(hex(&said[..20]), head);
    assert_eq!(hex(&said[20..28]), format!("030d{:04x}00000000", sum.checksum()));
    assert_eq!(said[28..], about);

    let about = syn("fd00::2", "fd07::1");
    let said = told("fd00::1", &about).unwrap();
    let ends = "fd000000000000000000000000000001fd000000000000000000000000000002";
    assert_eq!(hex(&said[..40]), format!("6000000000443a40{ends}"));
    sum = Sum::default().word(0x0101).bytes(&about).bytes(&said[8..40]).word(58).word(68);
    assert_eq!(hex(&said[40..48]), format!("0101{:04x}00000000", sum.checksum()));
    assert_eq!(said[48..], about);
}

#[test]
fn what_is_said_is_understood() {
    for (from, about) in
        [("10.1.0.1", syn("10.1.0.2", "192.168.7.1")), ("fd00::1", syn("fd00::2", "fd07::1"))]
    {
        let said = told(from, &about).unwrap();
        let heard = heard(&said).unwrap();
        assert_eq!((heard.by, heard.why), (from.parse().unwrap(), Unreachable::Prohibited));
        assert_eq!(
            (heard.headers, heard.quoted),
            (InnerPacket::whole(&about).unwrap().headers, &about[..])
        );
    }
}

#[test]
fn what_is_long_is_quoted_in_part() {
    let mut about = syn("10.1.0.2", "192.168.7.1");
    about.resize(1_400, 0);
    about[2..4].copy_from_slice(&1_400_u16.to_be_bytes());
    let said = told("10.1.0.1", &about).unwrap();
    assert_eq!(said.len(), 576);
    let heard = heard(&said).unwrap();
    assert_eq!(heard.quoted, &about[..QUOTED_MAX]);
    assert_eq!(heard.headers, InnerPacket::whole(&about).unwrap().headers);
}

#[test]
fn errors_later_fragments_and_what_goes_to_many_are_not_answered() {
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut packet = syn("10.1.0.2", "192.168.7.1");
        change(&mut packet);
        told("10.1.0.1", &packet).is_some()
    };
    assert!(with(&|_| ()));
    assert!(with(&|packet| packet[9] = UDP));
    assert!(!with(&|packet| packet[7] = 1), "a later fragment");
    assert!(with(&|packet| packet[6] = 0x20), "the first fragment");
    for (kind, answered) in [(8, true), (0, false), (3, false), (11, false), (5, false)] {
        let is_answered = with(&|packet| (packet[9], packet[20]) = (ICMP, kind));
        assert_eq!(is_answered, answered, "ICMP {kind}");
    }
    for to in [[224, 0, 0, 251], [255; 4], [0; 4]] {
        assert!(!with(&|packet| packet[16..20].copy_from_slice(&to)), "{to:?}");
    }
    let group = syn("fd00::2", "ff02::fb");
    assert!(told("fd00::1", &group).is_none());
    let mut error = syn("fd00::2", "fd07::1");
    (error[6], error[40]) = (ICMPV6, 1);
    assert!(told("fd00::1", &error).is_none());
    error[40] = 128;
    assert!(told("fd00::1", &error).is_some(), "an echo");
}

#[test]
fn what_is_damaged_or_about_another_is_not_believed() {
    let said = told("10.1.0.1", &syn("10.1.0.2", "192.168.7.1")).unwrap();
    for at in 20..said.len() {
        let mut damaged = said.clone();
        damaged[at] ^= 0x10;
        assert_eq!(heard(&damaged), None, "byte {at}");
    }
    for len in 20..said.len() - 2 {
        // The last two bytes are zero, and no checksum knows whether they are there.
        let mut cut = said[..len].to_vec();
        cut[2..4].copy_from_slice(&u16::try_from(len).unwrap().to_be_bytes());
        assert_eq!(heard(&cut), None, "{len} bytes");
    }
    let mut elsewhere = said;
    elsewhere[16..20].copy_from_slice(&[10, 1, 0, 9]);
    assert_eq!(heard(&elsewhere), None, "it did not send that");
    let segment = syn("10.1.0.2", "192.168.7.1");
    assert_eq!((segment.len(), heard(&segment)), (40, None), "no message at all");
}
