//! Bonding alone: without keys, sockets and a tunnel.

use super::choice::{Choice, PLAY_OUT};
use super::live::Copies;
use super::snapshots::Carrier;
use super::*;
use crate::error::Drops;
use crate::id::SocketId;
use crate::multipath::Numbers;
use crate::multipath::path_queues::Job;
use crate::outbox::Route;
use crate::packet::Strength;
use crate::path::{Path, PathId, Trust};
use crate::wire::frame::Framing;
use crate::wire::inner::{InnerPacket, Pieces};

const NOW: Instant = Instant::from_nanos(10_000_000_000);
const LEN: usize = 1_000;

fn path(id: u32) -> Path {
    let remote = "192.0.2.1:443".parse().unwrap();
    let route = Route { socket: SocketId(0), local: None, remote };
    let mut path = Path::new(PathId(id), route, None, NOW, Trust::Proven);
    path.set_shared(NOW, true);
    path
}

/// Has `bonding` look at these paths, all of which are new or have changed.
fn look(bonding: &mut Bonding, paths: &[Path]) {
    let carriers = paths.iter().map(|path| {
        let controller = path.congestion.as_deref().unwrap();
        Carrier { path, controller, is_changed: true }
    });
    bonding.begin_look(NOW, 0);
    bonding.look(NOW, carriers, |_| (0.0, 0), None);
}

/// A datagram of UDP over IPv4.
fn datagram() -> [u8; LEN] {
    let mut packet = [0; LEN];
    packet[0] = 0x45;
    packet[2..4].copy_from_slice(&(LEN as u16).to_be_bytes());
    (packet[8], packet[9]) = (64, 17);
    packet[24..26].copy_from_slice(&(LEN as u16 - 20).to_be_bytes());
    packet
}

/// So many packets wait at the entry of a node with these paths.
fn waiting(paths: &[Path], packets: usize) -> (Bonding, Blocks) {
    let (mut bonding, mut blocks) = (Bonding::default(), Blocks::default());
    look(&mut bonding, paths);
    let packet = datagram();
    let packet = InnerPacket::whole(&packet).unwrap();
    for number in 0..packets {
        let entered = bonding.enter(NOW, &mut blocks, PacketRecord::of_bucket(3), &packet);
        assert_eq!(entered, (0, number == 0), "the first has to be served");
    }
    (bonding, blocks)
}

/// Gives packets to the paths, and takes out all that may leave now.
fn serve(bonding: &mut Bonding, blocks: &mut Blocks, numbers: &mut Numbers) -> Vec<Job> {
    bonding.fill_lines(NOW, (blocks, &mut Drops::default()), numbers);
    let places = 0..bonding.ways().len();
    let mut jobs = Vec::new();
    for place in places {
        while bonding.may_leave(NOW, place) {
            jobs.extend(bonding.take(place));
        }
    }
    jobs
}

#[test]
fn each_packet_is_handed_out_once_with_its_number_and_its_path() {
    let paths = [path(1), path(2)];
    let (mut bonding, mut blocks) = waiting(&paths, 9);
    let (mut numbers, mut jobs) = (Numbers::default(), Vec::new());
    while bonding.begin_turn(NOW) {
        jobs.extend(serve(&mut bonding, &mut blocks, &mut numbers));
    }
    let mut sequence: Vec<_> = jobs.iter().map(|job| job.given.sequence).collect();
    sequence.sort_unstable();
    assert_eq!(sequence, (0..9).collect::<Vec<_>>());
    for path in [PathId(1), PathId(2)] {
        assert!(jobs.iter().any(|job| job.path == path), "both carry");
    }
    assert!(jobs.iter().all(|job| job.packet.packet() == datagram()));
}

#[test]
fn a_path_carries_no_more_than_what_left_by_it_allows() {
    let paths = [path(1), path(2)];
    let (mut bonding, mut blocks) = waiting(&paths, 1);
    bonding.fill_lines(NOW, (&mut blocks, &mut Drops::default()), &mut Numbers::default());
    let place = (0..2).find(|&place| bonding.may_leave(NOW, place)).unwrap();
    let (id, later) = (bonding.ways()[place].path, NOW + Duration::from_millis(10));
    bonding.note_left(id, later, LEN);
    assert!(!bonding.may_leave(NOW, place) && bonding.may_leave(later, place));
    assert!(bonding.note_waiting());
    let wanted = paths.each_ref().map(|path| bonding.wants(NOW, path.id));
    assert_eq!(wanted, [0, 1].map(|other| other == place));
    bonding.end_turn(NOW);
    assert_eq!(bonding.pace_due(), Some(later));
    // Its window is full: it waits for feedback, and for no time.
    bonding.note_left(id, later, usize::MAX);
    assert!(!bonding.may_leave(later, place));
    bonding.end_turn(NOW);
    assert_eq!(bonding.pace_due(), None);
    assert!(bonding.note_waiting() && bonding.has_room_at(NOW));
}

#[test]
fn what_waits_for_a_path_that_is_gone_leaves_by_another_under_its_number() {
    let mut paths = vec![path(1), path(2)];
    let (mut bonding, mut blocks) = waiting(&paths, 2);
    let mut numbers = Numbers::default();
    bonding.fill_lines(NOW, (&mut blocks, &mut Drops::default()), &mut numbers);
    assert!(bonding.entry.is_empty() && bonding.ways().iter().all(|way| way.waiting == LEN));
    paths.remove(0);
    look(&mut bonding, &paths);
    assert!(bonding.give_stranded(NOW, &mut blocks));
    let jobs = serve(&mut bonding, &mut blocks, &mut numbers);
    let mut left: Vec<_> = jobs.iter().map(|job| (job.path, job.given.sequence)).collect();
    left.sort_unstable();
    assert_eq!(left, [(PathId(2), 0), (PathId(2), 1)]);
    look(&mut bonding, &[]);
    assert!(!bonding.give_stranded(NOW, &mut blocks), "no path carries");
}

#[test]
fn paths_are_looked_at_when_they_changed_and_all_of_them_after_a_while() {
    let mut bonding = Bonding::default();
    let later = NOW + Duration::from_millis(1);
    assert_eq!(bonding.begin_look(NOW, 5), Some(true));
    assert_eq!(bonding.begin_look(NOW, 5), None);
    assert_eq!(bonding.begin_look(NOW, 6), Some(false));
    assert_eq!(bonding.begin_look(later, 6), Some(true));
    bonding.look_anew();
    assert_eq!(bonding.begin_look(later, 6), Some(true));
}

/// A node with three paths, which lose this part of what leaves by them.
fn choosing(losses: [f64; 3]) -> (Bonding, [Choice; 3]) {
    let paths = [path(1), path(2), path(3)];
    let mut bonding = Bonding::default();
    look(&mut bonding, &paths);
    let place = |id: PathId| id.0 as usize - 1;
    let choice = |way: &PathSnapshot| {
        Choice::new(NOW, way, &paths[place(way.path)], losses[place(way.path)], false)
    };
    let choices: Vec<_> = bonding.ways().iter().map(choice).collect();
    bonding.set_choices(|way| Some(choice(way)));
    (bonding, choices.try_into().unwrap())
}

#[test]
fn copies_leave_until_hardly_any_packet_is_lost() {
    let (mut bonding, [first, ..]) = choosing([0.1, 0.0, 0.0]);
    let mut copies = Copies::new(first, first.expected_loss(false), LEN);
    assert_eq!(bonding.next_copy(NOW, &mut copies), Some(PathId(2)));
    copies.note_left();
    assert_eq!(bonding.next_copy(NOW, &mut copies), None, "this path loses nothing");
    let mut copies = Copies::new(first, first.expected_loss(false), LEN);
    bonding.next_copy(NOW, &mut copies);
    assert_eq!(bonding.next_copy(NOW, &mut copies), Some(PathId(3)), "the first did not leave");
    let mut copies = Copies::new(first, 0.0, LEN);
    assert_eq!(bonding.next_copy(NOW, &mut copies), None);
}

#[test]
fn a_race_has_one_copy_on_each_path_that_has_room_for_it() {
    let (mut bonding, [first, ..]) = choosing([0.0; 3]);
    let mut copies = Copies::new(first, 1.0, LEN);
    for other in [Some(PathId(2)), Some(PathId(3)), None] {
        assert_eq!(bonding.next_copy(NOW, &mut copies), other);
        copies.note_left();
    }
    let mut copies = Copies::new(first, 1.0, 9_000);
    assert_eq!(bonding.next_copy(NOW, &mut copies), None);
}

#[test]
fn what_a_dead_path_had_just_now_leaves_by_another_while_it_is_of_use() {
    let (mut bonding, _) = choosing([0.0; 3]);
    let packet = datagram();
    let left = (PathId(1), None, Strength::Bits256);
    bonding.remember(NOW, left, Framing::Plain, Pieces::whole(&packet));
    assert!(bonding.may_rescue());
    assert_eq!(bonding.useful_until(PathId(1)), Some(NOW + PLAY_OUT));
    let (path, sent) = bonding.take_rescued(NOW, PathId(1)).unwrap();
    assert_ne!(path, PathId(1));
    assert!(sent.frame.ends_with(&packet) && sent.strength == Strength::Bits256);
    assert!(bonding.take_rescued(NOW, PathId(1)).is_none() && !bonding.may_rescue());
    bonding.remember(NOW, left, Framing::Plain, Pieces::whole(&packet));
    assert!(bonding.take_rescued(NOW + PLAY_OUT, PathId(1)).is_none(), "it came too late");
}
