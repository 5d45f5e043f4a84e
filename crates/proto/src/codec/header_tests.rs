use std::net::IpAddr;

use proptest::prelude::*;

use super::*;
use crate::wire::inner::InnerPacket;

/// What a packet is made from.
#[derive(Clone, Debug)]
pub(in crate::codec) struct Made {
    pub(in crate::codec) is_v6: bool,
    pub(in crate::codec) class: u8,
    pub(in crate::codec) id: u16,
    pub(in crate::codec) hops: u8,
    pub(in crate::codec) upper: Header,
    pub(in crate::codec) payload: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(in crate::codec) enum Header {
    Tcp { numbers: [u32; 2], flags: u8, window: u16, clocks: Option<u64>, sacks: Vec<u64> },
    Udp { has_checksum: bool },
}

impl Made {
    /// A UDP packet with this payload.
    pub(in crate::codec) fn udp(is_v6: bool, payload: &[u8]) -> Self {
        let upper = Header::Udp { has_checksum: true };
        Self { is_v6, class: 0, id: 7, hops: 64, upper, payload: payload.to_vec() }
    }

    /// The packet, with right lengths and checksums.
    pub(in crate::codec) fn bytes(&self) -> Vec<u8> {
        let upper = self.upper();
        let (source, destination): (IpAddr, IpAddr) = if self.is_v6 {
            ("fd77::2".parse().unwrap(), "2001:db8::7".parse().unwrap())
        } else {
            ([10, 77, 0, 2].into(), [198, 51, 100, 7].into())
        };
        let (protocol, field) = match self.upper {
            Header::Tcp { .. } => (TCP, 16),
            Header::Udp { .. } => (UDP, 6),
        };
        let mut packet = self.ip(protocol, upper.len() + self.payload.len());
        let octets = |address: IpAddr| match address {
            IpAddr::V4(v4) => v4.octets().to_vec(),
            IpAddr::V6(v6) => v6.octets().to_vec(),
        };
        packet.extend([octets(source), octets(destination)].concat());
        let at = packet.len();
        if !self.is_v6 {
            let checksum = Sum::default().bytes(&packet).checksum();
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        packet.extend(upper);
        packet.extend(&self.payload);
        if !matches!(self.upper, Header::Udp { has_checksum: false }) {
            let length = u16::try_from(packet.len() - at).unwrap();
            let sum = Sum::default().pseudo(source, destination, protocol, length);
            let checksum = sum.bytes(&packet[at..]).checksum();
            packet[at + field..at + field + 2].copy_from_slice(&checksum.to_be_bytes());
        }
        packet
    }

    /// The IP header before its addresses.
    fn ip(&self, protocol: u8, len: usize) -> Vec<u8> {
        let length = |more: usize| u16::try_from(len + more).unwrap().to_be_bytes();
        if self.is_v6 {
            let [a, b] = length(0);
            let first = [0x60 | self.class >> 4, self.class << 4 | 0x0a, 0xbc, 0xde];
            return [&first[..], &[a, b, protocol, self.hops]].concat();
        }
        let ([a, b], [c, d]) = (length(IPV4_HEADER), self.id.to_be_bytes());
        vec![0x45, self.class, a, b, c, d, 0x40, 0, self.hops, protocol, 0, 0]
    }

    fn upper(&self) -> Vec<u8> {
        let ports = [0x9c, 0x40, 0x01, 0xbb];
        match &self.upper {
            Header::Udp { .. } => {
                let length = u16::try_from(UDP_HEADER + self.payload.len()).unwrap();
                [&ports[..], &length.to_be_bytes(), &[0, 0]].concat()
            }
            Header::Tcp { numbers: [seq, ack], flags, window, clocks, sacks } => {
                let mut options = Vec::new();
                if let Some(clocks) = clocks {
                    options.extend(CLOCKS_LEAD);
                    options.extend(clocks.to_be_bytes());
                }
                if !sacks.is_empty() {
                    options.extend(SACK_LEAD);
                    options.push(2 + 8 * u8::try_from(sacks.len()).unwrap());
                    options.extend(sacks.iter().flat_map(|block| block.to_be_bytes()));
                }
                let words = u8::try_from((TCP_HEADER + options.len()) / 4).unwrap();
                let fixed = [&ports[..], &seq.to_be_bytes(), &ack.to_be_bytes()].concat();
                let rest = [&[words << 4, *flags], &window.to_be_bytes()[..], &[0; 4]].concat();
                [fixed, rest, options].concat()
            }
        }
    }
}

/// Packets of one flow.
pub(in crate::codec) fn made() -> impl Strategy<Value = Made> {
    let sacks = proptest::collection::vec(any::<u64>(), 0..=3);
    let tcp = (any::<[u32; 2]>(), 0u8..0x40, any::<u16>(), any::<Option<u64>>(), sacks).prop_map(
        |(numbers, flags, window, clocks, sacks)| Header::Tcp {
            numbers,
            flags: flags & !0x20,
            window,
            clocks,
            sacks,
        },
    );
    let udp = any::<bool>().prop_map(|has_checksum| Header::Udp { has_checksum });
    let payload = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..80),
        proptest::collection::vec(any::<u8>(), 1_200..1_380),
    ];
    let ip = (any::<bool>(), any::<u8>(), any::<u16>(), prop_oneof![Just(64u8), Just(63)]);
    (ip, prop_oneof![tcp, udp], payload).prop_map(|((is_v6, class, id, hops), upper, payload)| {
        let upper = match upper {
            Header::Udp { .. } if is_v6 => Header::Udp { has_checksum: true },
            Header::Tcp { .. } | Header::Udp { .. } => upper,
        };
        Made { is_v6, class, id, hops, upper, payload }
    })
}

/// What a packet becomes, and comes out as, if it fits the template.
fn round_trip(template: &Template, packet: &[u8], cut: usize) -> Option<(Vec<u8>, Vec<u8>)> {
    let pieces = Pieces::cut(&packet[..cut], &packet[cut..]);
    if !template.matches(pieces.head) {
        return None;
    }
    let (mut body, mut head) = (Vec::new(), vec![7]);
    let fields = template.elide(pieces)?;
    fields.append(pieces, &mut body);
    assert_eq!(body.len(), fields.len(&pieces));
    let out = template.restore(&body, &mut head).unwrap().to_vec();
    Some((body, out))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// What comes out is what went in, whichever packet of the flow the template was made from. It
    /// came in one piece or in two.
    #[test]
    fn what_comes_out_is_what_went_in(
        first in made(), next in made(), is_rtp: bool, cut in 0usize..1_500,
    ) {
        let template = Template::of(&first.bytes(), is_rtp).unwrap();
        let sent = Template::parse(template.form(), template.header()).unwrap();
        prop_assert_eq!(sent, template, "the peer reads the same");
        for packet in [first.bytes(), next.bytes()] {
            let least = InnerPacket::whole(&packet).unwrap().headers.transport.unwrap();
            let cut = (least + 60 + cut).min(packet.len());
            if let Some((body, out)) = round_trip(&template, &packet, cut) {
                prop_assert_eq!(&out, &packet);
                prop_assert!(body.len() < packet.len());
            }
        }
        prop_assert!(round_trip(&template, &first.bytes(), first.bytes().len()).is_some());
    }

    /// A packet of which any byte was changed travels whole, or comes out changed.
    #[test]
    fn a_changed_packet_comes_out_changed(
        made in made(), is_rtp: bool, at in 0usize..120, new: u8,
    ) {
        let mut packet = made.bytes();
        let template = Template::of(&packet, is_rtp).unwrap();
        let at = at % packet.len();
        packet[at] = new;
        let is_packet = InnerPacket::whole(&packet).is_ok();
        if is_packet && let Some((_, out)) = round_trip(&template, &packet, packet.len()) {
            prop_assert_eq!(out, packet);
        }
    }

    /// A hostile peer gets an error or a packet that is as long as its header says.
    #[test]
    fn any_template_and_any_body_are_safe(
        form: u8,
        made in made(),
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..3),
        body in proptest::collection::vec(any::<u8>(), 0..1_600),
    ) {
        let known = Template::of(&made.bytes(), form & 1 != 0).unwrap();
        let mut header = known.header().to_vec();
        for (at, byte) in changes {
            let at = at % header.len();
            header[at] = byte;
        }
        for form in [form, form & 7, known.form()] {
            let Ok(template) = Template::parse(form, &header) else { continue };
            let mut head = Vec::new();
            if let Ok(restored) = template.restore(&body, &mut head) {
                prop_assert!(InnerPacket::parse(restored).is_ok());
                let out = restored.to_vec();
                prop_assert!(InnerPacket::whole(&out).is_ok() && out.len() <= MAX_PACKET);
                let (_, again) = round_trip(&template, &out, out.len()).unwrap();
                prop_assert_eq!(again, out);
            }
        }
    }
}

fn tcp(flags: u8, clocks: bool, sacks: &[u64]) -> Made {
    let upper = Header::Tcp {
        numbers: [1_000, 2_000],
        flags,
        window: 501,
        clocks: clocks.then_some(0x0102_0304_0506_0708),
        sacks: sacks.to_vec(),
    };
    Made { upper, ..Made::udp(false, &[5; 1_000]) }
}

/// Bytes of headers that a packet saves.
fn saved(packet: &Made, is_rtp: bool) -> usize {
    let packet = packet.bytes();
    let template = Template::of(&packet, is_rtp).unwrap();
    packet.len() - round_trip(&template, &packet, packet.len()).unwrap().0.len()
}

#[test]
fn so_much_is_saved() {
    let rtp = [&[0x80, 0xe0, 0, 1, 0, 0, 0, 160, 1, 2, 3, 4][..], &[9; 160]].concat();
    assert_eq!(saved(&tcp(0x10, true, &[]), false), 52 - 22);
    assert_eq!(saved(&Made { is_v6: true, ..tcp(0x10, true, &[]) }, false), 72 - 20);
    assert_eq!(saved(&tcp(0x10, false, &[1, 2, 3, 4]), false), 20 + 20 + 36 - (14 + 1 + 32));
    assert_eq!(saved(&Made::udp(false, &[5; 1_200]), false), 28 - 3);
    assert_eq!(saved(&Made::udp(false, &rtp), true), 40 - 10);
    assert_eq!(saved(&Made::udp(false, &rtp), false), 28 - 3);
    let rtcp = [&[0x80, 200, 0, 6][..], &[9; 24]].concat();
    assert_eq!(saved(&Made::udp(false, &rtcp), true), 28 - 3, "RTCP has another header");
}

/// The header of RTP may go on behind its fixed part, and is read where it lies in one piece.
#[test]
fn the_payload_of_a_restored_datagram_lies_in_one_piece() {
    let fixed = [0x90, 0x60, 0, 1, 0, 0, 0, 160, 1, 2, 3, 4];
    let payload = [&fixed[..], &[0xbe, 0xde, 0, 1, 9, 9, 9, 9], &[7; 160]].concat();
    let packet = Made::udp(false, &payload).bytes();
    for (is_rtp, tail) in [(true, 0), (false, payload.len())] {
        let template = Template::of(&packet, is_rtp).unwrap();
        let (mut body, mut head) = (Vec::new(), Vec::new());
        let pieces = Pieces::whole(&packet);
        template.elide(pieces).unwrap().append(pieces, &mut body);
        let restored = template.restore(&body, &mut head).unwrap();
        assert_eq!((restored.tail.len(), restored.checksum), (tail, Checksum::LeftOut));
        let datagram = InnerPacket::parse(restored).unwrap().datagram();
        assert_eq!(datagram, Some((&payload[..], payload.len())));
    }
}

#[test]
fn what_cannot_be_restored_has_no_template() {
    let whole = tcp(0x10, true, &[]).bytes();
    let changed = |at: usize, byte: u8| {
        let mut packet = whole.clone();
        packet[at] = byte;
        packet
    };
    assert!(Template::of(&whole, false).is_some());
    for (what, packet) in [
        ("IP options", changed(0, 0x46)),
        ("a first fragment", changed(6, 0x20)),
        ("a later fragment", changed(7, 1)),
        ("another protocol", changed(9, 50)),
        ("urgent data", changed(39, 1)),
        ("another option", changed(42, 30)),
        ("longer options", changed(32, 0xf0)),
    ] {
        assert_eq!(Template::of(&packet, false), None, "{what}");
    }
}

#[test]
fn a_wrong_checksum_travels() {
    for (packet, fields) in [
        (tcp(0x10, true, &[]).bytes(), [10, 36]),
        (Made::udp(false, &[1; 99]).bytes(), [10, 26]),
        (Made::udp(true, &[1; 99]).bytes(), [46, 47]),
    ] {
        let template = Template::of(&packet, false).unwrap();
        for at in fields {
            let mut wrong = packet.clone();
            wrong[at] ^= 1;
            assert!(template.matches(&wrong) && template.elide(Pieces::whole(&wrong)).is_none());
        }
    }
}

/// The shell has just made the checksum of a packet out of a super-packet, from its payload.
#[test]
fn a_checksum_that_is_known_to_be_right_is_not_made_again() {
    let mut packet = Made { payload: vec![7; 99], ..tcp(0x10, true, &[]) }.bytes();
    let template = Template::of(&packet, false).unwrap();
    packet[60] ^= 1; // somebody who sums notices
    let (head, tail) = packet.split_at(52);
    let is_elided =
        |head, checksum| template.elide(Pieces::cut(head, tail).with_checksum(checksum)).is_some();
    assert!(is_elided(head, Checksum::Right));
    assert!(!is_elided(head, Checksum::Unchecked));
    let mut zero = head.to_vec();
    zero[36..38].fill(0);
    assert!(!is_elided(&zero, Checksum::Right), "0xffff would come out");
}

/// Both 0 and 0xffff are right where the sum is zero, and only one is restored.
#[test]
fn the_other_way_to_write_a_checksum_travels_whole() {
    let sum_of = |payload: [u8; 2]| {
        let packet = Made { payload: payload.to_vec(), ..tcp(0x10, false, &[]) }.bytes();
        (u16::from_be_bytes([packet[36], packet[37]]), packet)
    };
    let (sum, _) = sum_of([0, 0]);
    let (field, mut packet) = sum_of(sum.to_be_bytes());
    assert_eq!(field, 0xffff);
    let template = Template::of(&packet, false).unwrap();
    assert!(template.elide(Pieces::whole(&packet)).is_some());
    packet[36..38].fill(0);
    assert!(template.elide(Pieces::whole(&packet)).is_none());
}

#[test]
fn udp_without_a_checksum_stays_without() {
    let none = Made { upper: Header::Udp { has_checksum: false }, ..Made::udp(false, &[3; 50]) };
    let (none, some) = (none.bytes(), Made::udp(false, &[3; 50]).bytes());
    let template = Template::of(&none, false).unwrap();
    assert_eq!(round_trip(&template, &none, 30).unwrap().1, none);
    assert!(!template.matches(&some), "each has a template of its own");
    let template = Template::of(&some, false).unwrap();
    assert_eq!(round_trip(&template, &none, none.len()), None);
    let mut v6 = Made::udp(true, &[3; 50]).bytes();
    v6[46..48].fill(0);
    let template = Template::of(&v6, false).unwrap();
    assert_eq!(round_trip(&template, &v6, v6.len()), None, "IPv6 always has one");
    assert!(Template::parse(form::NO_CHECKSUM, template.header()).is_err());
}

#[test]
fn templates_know_their_flow() {
    let (plain, sacked) = (tcp(0x10, true, &[]), tcp(0x10, true, &[9]));
    let [plain, sacked] = [plain, sacked].map(|it| Template::of(&it.bytes(), false).unwrap());
    assert!(plain.is_of_same_flow(&sacked) && plain != sacked);
    let other = Template::of(&Made::udp(false, &[]).bytes(), false).unwrap();
    assert!(!plain.is_of_same_flow(&other));
    assert_eq!(plain.source(), IpAddr::from([10, 77, 0, 2]));
    let v6 = Template::of(&Made::udp(true, &[]).bytes(), false).unwrap();
    assert_eq!(v6.source(), "fd77::2".parse::<IpAddr>().unwrap());
}
