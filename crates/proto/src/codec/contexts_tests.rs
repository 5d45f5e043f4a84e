use super::super::header::tests::{Header, Made};
use super::*;

fn at(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

/// A packet of the flow from this port.
fn packet(port: u16) -> Vec<u8> {
    let mut packet = Made::udp(false, &[1; 200]).bytes();
    packet[20..22].copy_from_slice(&port.to_be_bytes());
    packet[26..28].fill(0); // no checksum is right for every port
    packet
}

/// Sends packets, and defines contexts with a peer that has received all definitions but those from
/// a number on.
#[derive(Default)]
struct Scene {
    contexts: Contexts,
    known: Known,
    defined: u32,
    delivered: u32,
}

impl Scene {
    fn send(&mut self, now: Instant, bucket: u8, packet: &[u8]) -> Option<u16> {
        let passing = Passing { bucket, is_rtp: false, packet: Pieces::whole(packet) };
        let (known, defined) = (&mut self.known, &mut self.defined);
        let compact = self.contexts.elide(now, passing, self.delivered, |id, template| {
            let template = Template::parse(template.form(), template.header()).unwrap();
            known.define(id, Some(template)).unwrap();
            *defined += 1;
            Some(*defined - 1)
        })?;
        let (mut body, mut head) = (Vec::new(), Vec::new());
        compact.fields.append(passing.packet, &mut body);
        let restored = self.known.restore(compact.context, &body, &mut head).unwrap();
        assert_eq!(restored.to_vec(), packet);
        Some(compact.context)
    }

    /// Sends until the flow has a context.
    fn settle(&mut self, now: Instant, port: u16) -> Option<u16> {
        for _ in 0..=PACKETS_BEFORE {
            self.send(now, 0, &packet(port));
        }
        self.delivered = self.defined;
        self.send(now, 0, &packet(port))
    }
}

#[test]
fn a_context_is_used_once_its_definition_has_arrived() {
    let mut scene = Scene::default();
    for number in 0..10 {
        assert_eq!(scene.send(at(0), 3, &packet(1)), None, "{number}");
        assert_eq!(scene.defined, u32::from(number >= PACKETS_BEFORE));
    }
    assert!(scene.contexts.elide_again(3, Pieces::whole(&packet(1))).is_none());
    scene.delivered = 1;
    assert_eq!(scene.send(at(0), 3, &packet(1)), Some(0));
    assert!(scene.contexts.elide_again(3, Pieces::whole(&packet(1))).is_some());
    assert_eq!(scene.send(at(0), 3, &packet(2)), None, "another flow");
    assert_eq!(scene.send(at(0), 4, &packet(1)), None, "another bucket");
}

#[test]
fn where_there_is_no_room_a_definition_is_tried_again() {
    let mut contexts = Contexts::default();
    let packet = packet(1);
    let passing = Passing { bucket: 0, is_rtp: false, packet: Pieces::whole(&packet) };
    let mut asked = 0;
    for number in 0..20 {
        let compact = contexts.elide(at(0), passing, 0, |id, _| {
            asked += 1;
            assert_eq!(id, 0);
            (number == 15).then_some(7)
        });
        assert!(compact.is_none());
    }
    assert_eq!((asked, contexts.taken()), (16 - u32::from(PACKETS_BEFORE), 1));
}

#[test]
fn flows_that_are_in_use_are_not_displaced() {
    let mut scene = Scene::default();
    let room = u16::try_from(BUCKET_TEMPLATES).unwrap();
    for port in 1..=room {
        assert_eq!(scene.settle(at(0), port), Some(port - 1));
    }
    assert_eq!(scene.settle(at(9), 99), None, "the others are not idle");
    assert_eq!(scene.send(at(10), 0, &packet(1)), Some(0));
    assert_eq!(scene.settle(at(10), 99), Some(room));
    assert_eq!(scene.send(at(10), 0, &packet(1)), Some(0), "an idle one made room");
    assert_eq!(scene.send(at(10), 0, &packet(2)), None);
}

#[test]
fn packets_of_a_run_are_compared_with_the_template_before_them_first() {
    let mut scene = Scene::default();
    for port in 1..=3 {
        assert_eq!(scene.settle(at(0), port), Some(port - 1));
    }
    for (port, place) in [(3, 2), (1, 0), (1, 0), (2, 1), (3, 2), (3, 2)] {
        assert_eq!(scene.send(at(1), 0, &packet(port)), Some(port - 1));
        let bucket = &scene.contexts.buckets[0];
        assert_eq!(bucket.recent, place);
        assert_eq!(bucket.entries[place].used_at, at(1), "it is not displaced");
    }
}

#[test]
fn many_short_flows_define_nothing_and_stay_few() {
    let mut scene = Scene::default();
    for port in 1..2_000 {
        assert_eq!(scene.send(at(0), 0, &packet(port)), None);
    }
    assert_eq!((scene.defined, scene.contexts.buckets[0].entries.len()), (0, BUCKET_TEMPLATES));
}

#[test]
fn an_old_context_is_defined_anew_and_no_id_comes_twice() {
    let mut scene = Scene::default();
    assert_eq!(scene.settle(at(0), 1), Some(0));
    let mut now = 0;
    for id in 1..u32::from(u16::MAX) + 1 {
        // Another flow takes the next ID; the first is in use all the time.
        now += 11;
        let port = u16::try_from(id % 60_000).unwrap() + 2;
        if scene.send(at(now), 0, &packet(1)).is_none() && scene.contexts.taken() < IDS {
            scene.delivered = scene.defined;
            assert!(scene.send(at(now), 0, &packet(1)).is_some());
        }
        scene.settle(at(now), port);
    }
    assert_eq!(scene.contexts.taken(), IDS);
    assert_eq!(scene.defined, IDS, "IDs count up, and none comes twice");
    now += 11;
    assert_eq!(scene.settle(at(now), 65_000), None, "there are no more");
}

#[test]
fn a_flow_has_two_templates_at_most() {
    let mut scene = Scene::default();
    for hops in 1..=5u8 {
        let mut packet = packet(1);
        packet[8] = hops;
        let sum = crate::wire::checksum::Sum::default();
        packet[10..12].fill(0);
        let sum = sum.bytes(&packet[..20]).checksum();
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        for _ in 0..20 {
            scene.send(at(0), 0, &packet);
            scene.delivered = scene.defined;
        }
    }
    assert_eq!((scene.defined, scene.contexts.buckets[0].entries.len()), (2, 2));
}

#[test]
fn segments_with_selective_acknowledgements_and_without_are_both_elided() {
    let segment = |sacks: &[u64]| {
        let upper = Header::Tcp {
            numbers: [7, 9],
            flags: 0x10,
            window: 501,
            clocks: Some(3),
            sacks: sacks.to_vec(),
        };
        Made { upper, ..Made::udp(false, &[]) }.bytes()
    };
    // Whichever comes first.
    for both in [[segment(&[5]), segment(&[])], [segment(&[]), segment(&[5, 6])]] {
        let mut scene = Scene::default();
        for packet in both.iter().flat_map(|packet| [packet; 10]) {
            scene.send(at(0), 0, packet);
            scene.delivered = scene.defined;
        }
        let contexts = both.each_ref().map(|packet| scene.send(at(0), 0, packet));
        assert_eq!(contexts, [Some(0), Some(1)]);
        let contexts = both.each_ref().map(|packet| scene.send(at(0), 0, packet));
        assert_eq!(contexts, [Some(0), Some(1)], "in turns as well");
    }
}

#[test]
fn rtp_is_elided_as_soon_as_the_peer_knows_its_template() {
    let mut scene = Scene::default();
    let header = [0x80, 0x60, 0, 1, 0, 0, 0, 160, 1, 2, 3, 4];
    let packet = Made::udp(false, &[&header[..], &[9; 160]].concat()).bytes();
    for _ in 0..10 {
        scene.send(at(0), 0, &packet);
        scene.delivered = scene.defined;
    }
    let mut ids = Vec::new();
    for _ in 0..10 {
        let passing = Passing { bucket: 0, is_rtp: true, packet: Pieces::whole(&packet) };
        let (known, delivered) = (&mut scene.known, scene.delivered);
        let compact = scene.contexts.elide(at(0), passing, delivered, |id, template| {
            known.define(id, Some(*template)).unwrap();
            Some(delivered)
        });
        scene.delivered += u32::from(ids.len() == 7);
        ids.push(compact.unwrap().context);
    }
    assert_eq!((ids[0], ids[7], ids[9]), (0, 0, 1), "until then as any other datagram");
}

#[test]
fn a_receiver_takes_each_id_once_and_keeps_the_newest() {
    let mut known = Known::default();
    let template = Template::of(&packet(1), false).unwrap();
    let restore =
        |known: &Known, id, body: &[u8]| known.restore(id, body, &mut Vec::new()).map(|_| ());
    assert_eq!(known.define(1, Some(template)), Err(DropReason::BadFrame), "the first is 0");
    assert_eq!(known.define(0, Some(template)), Ok(()));
    assert_eq!(known.define(0, Some(template)), Err(DropReason::BadFrame));
    assert_eq!(known.define(1, None), Ok(()));
    assert_eq!(restore(&known, 1, &[0; 9]), Err(DropReason::UnknownContext), "refused");
    assert_eq!(restore(&known, 2, &[0; 9]), Err(DropReason::UnknownContext));
    assert_eq!(restore(&known, 0, &[0; 9]), Ok(()));
    assert_eq!(restore(&known, 0, &[0; 2]), Err(DropReason::BadFrame));
    for id in 2..=u16::try_from(KEPT).unwrap() {
        assert_eq!(known.define(id, Some(template)), Ok(()));
    }
    assert_eq!(restore(&known, 0, &[0; 9]), Err(DropReason::UnknownContext), "forgotten");
    assert_eq!(restore(&known, 2, &[0; 9]), Ok(()));
    assert_eq!(known.templates.len(), KEPT);
    assert!((1_025..=u16::MAX).all(|id| known.define(id, None).is_ok()));
}
