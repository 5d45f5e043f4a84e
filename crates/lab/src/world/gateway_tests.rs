//! Two gateways in one world, each with two clients. Every law is checked at each step.

use super::super::crowd::Crowd;
use super::super::engine::World;
use super::super::engine::rest::Rest;
use super::super::host::Holding;
use super::super::inner::Body;
use super::super::op::{Attack, Op, Way};
use super::super::watch::Watch;
use super::*;
use crate::emu::{MS, SECOND};

const CLIENTS: usize = 4;
const BOTH: [HostId; 2] = [HostId::Gateway(0), HostId::Gateway(1)];
/// The access network without a NAT box: whatever is sent to a client there reaches it.
const OPEN: usize = 1;

fn world() -> World {
    let crowd = Crowd { gateways: BOTH.len(), ..Crowd::usual(CLIENTS, Holding::USUAL) };
    let mut world = World::gathering(crowd, 1, Watch::default()).unwrap();
    world.advance(3 * SECOND).unwrap();
    world
}

/// Sends packets of all clients both ways for a second, and returns how many of each client's were
/// lost.
fn lost(world: &mut World) -> [usize; CLIENTS] {
    let mut sent = Vec::new();
    for _ in 0..50 {
        for client in 0..CLIENTS {
            for way in [Way::Up, Way::Down] {
                sent.push((client, world.send_now(client, way, Body::Data(600)).unwrap()));
            }
        }
        world.advance(20 * MS).unwrap();
    }
    world.advance(SECOND).unwrap();
    let mut lost = [0; CLIENTS];
    for (client, id) in sent {
        lost[client] += usize::from(!id.is_some_and(|id| world.delivery.has_arrived(id)));
    }
    lost
}

/// What a host's node has thrown away.
fn dropped(world: &World, host: HostId) -> u64 {
    world.hosts[host].node().drops().iter().map(|(_, count)| count).sum()
}

#[test]
fn each_gateway_carries_for_its_own_clients_and_knows_no_others() {
    let mut world = world();
    assert_eq!(lost(&mut world), [0; CLIENTS]);
    let peers = |host| world.statuses(host).into_iter().map(|(peer, _)| peer).collect::<Vec<_>>();
    assert_eq!(BOTH.map(peers), [[0, 2], [1, 3]].map(|clients| clients.map(HostId::Client)));
    for (client, host) in BOTH.into_iter().cycle().take(CLIENTS).enumerate() {
        assert_eq!(peers(HostId::Client(client)), [host]);
        assert_eq!(world.hosts[host].node().peers().count(), CLIENTS / BOTH.len());
    }
    assert_ne!(world.gateways.of(BOTH[0]).key, world.gateways.of(BOTH[1]).key);
}

#[test]
fn clients_move_at_both_gateways() {
    let mut world = world();
    for access in [OPEN, 2, 0] {
        for client in 0..CLIENTS {
            world.plug(client, 0, Some(access)).unwrap();
        }
        world.advance(5 * SECOND).unwrap();
        assert_eq!(lost(&mut world), [0; CLIENTS], "access {access}");
    }
    Rest::of(&mut world).settle(true).unwrap();
}

#[test]
fn the_trouble_of_one_gateway_is_not_that_of_the_other() {
    let mut world = world();
    let [first, _] = BOTH;
    let is_untouched = |lost: [usize; CLIENTS]| lost[1] == 0 && lost[3] == 0;
    world.move_gateway(first, 0).unwrap();
    let without_a_word = lost(&mut world);
    assert!(is_untouched(without_a_word) && without_a_word[0] > 0, "{without_a_word:?}");
    world.rename(first);
    world.advance(60 * SECOND).unwrap();
    assert_eq!(lost(&mut world), [0; CLIENTS], "the name leads to the new addresses");
    world.move_gateway(first, 5_000).unwrap();
    assert_eq!(lost(&mut world), [0; CLIENTS], "the move was announced");
    world.hosts[first].stop();
    let while_it_is_down = lost(&mut world);
    assert!(is_untouched(while_it_is_down) && while_it_is_down[2] > 0, "{while_it_is_down:?}");
    world.power_on(first, true).unwrap();
    world.advance(60 * SECOND).unwrap();
    assert_eq!(lost(&mut world), [0; CLIENTS], "it is there again");
    Rest::of(&mut world).settle(true).unwrap();
}

/// Data, handshakes, cookies, restart notices and invites of one gateway, and data under indices of
/// the other: the law of what is not authentic looks at each.
#[test]
fn what_belongs_to_one_gateway_changes_nothing_at_the_other() {
    let mut world = world();
    for client in 0..CLIENTS {
        world.plug(client, 0, Some(OPEN)).unwrap();
    }
    world.advance(3 * SECOND).unwrap();
    for gateway in BOTH {
        world.hosts[gateway].stop();
        world.power_on(gateway, false).unwrap(); // notices and handshakes are among what is seen
        world.advance(10 * SECOND).unwrap();
    }
    assert_eq!(lost(&mut world), [0; CLIENTS]);
    let hosts: Vec<HostId> = world.hosts.ids().collect();
    let before: Vec<u64> = hosts.iter().map(|&host| dropped(&world, host)).collect();
    for chance in 0..100 {
        let cross = Attack::Cross { client: chance as u8, count: 40, chance };
        world.apply(&Op::Attack(cross)).unwrap();
        world.advance(50 * MS).unwrap();
    }
    assert_eq!(lost(&mut world), [0; CLIENTS]);
    for (&host, before) in hosts.iter().zip(before) {
        let came = dropped(&world, host) - before;
        assert!(came > 100, "{came} datagrams of the other gateway's came to {host}");
    }
    for gateway in BOTH {
        assert_eq!(world.gateways.of(gateway).store.enrolled_count(), CLIENTS / BOTH.len());
    }
    Rest::of(&mut world).settle(true).unwrap();
}

#[test]
fn an_invite_is_good_at_the_gateway_that_made_it_alone() {
    let mut world = world();
    let (token, now_ns) = (world.invite(0, 7), world.now_ns);
    let key = world.clients[3].key;
    let judges = |gateway: HostId| {
        let gateway = world.gateways.of(gateway);
        gateway.store.judge(gateway.wall_s(now_ns), PeerKey([9; 32]), &token).is_ok()
    };
    assert_eq!(BOTH.map(judges), [true, false]);
    let known = BOTH.map(|gateway| world.gateways.of(gateway).store.is_enrolled(key));
    assert_eq!(known, [false, true]);
}

#[test]
fn the_attacker_has_nothing_to_cross_in_a_world_of_one_gateway() {
    let mut world = World::of(2, 1, Watch::default()).unwrap();
    world.advance(3 * SECOND).unwrap();
    let before = dropped(&world, BOTH[0]);
    world.apply(&Op::Attack(Attack::Cross { client: 1, count: 60, chance: 1 })).unwrap();
    world.advance(SECOND).unwrap();
    assert_eq!(dropped(&world, BOTH[0]), before);
}
