//! How long a session is away, to the millisecond: in virtual time a bound is exact. Round trips
//! take 40 ms and a little, for the time that datagrams are on the wire.

use super::*;
use crate::world::host_id::GATEWAY;
use crate::world::watch::Watch;

/// A round trip, and what the longest datagrams of a move add to it at 20 Mbit/s.
const RTT_MS: u64 = 40;
const WIRE_MS: u64 = 4;
/// How long packets are sent.
const SENT_MS: u64 = 8_000;

fn world() -> World {
    let mut world = World::of(1, 1, Watch::default()).unwrap();
    world.advance(3 * SECOND).unwrap();
    world
}

/// Sends a packet a millisecond each way. Returns for how long those from the gateway, and those
/// from the client, did not arrive, in milliseconds from now.
fn away_ms(world: &mut World) -> [u64; 2] {
    let mut sent = Vec::new();
    for at_ms in 0..SENT_MS {
        for way in [Way::Down, Way::Up] {
            let id = world.send_now(0, way, Body::Data(100)).unwrap();
            sent.push((at_ms, way, id));
        }
        world.advance(MS).unwrap();
    }
    world.advance(SECOND).unwrap();
    let arrived = |id: &Option<u32>| id.is_some_and(|id| world.delivery.has_arrived(id));
    [Way::Down, Way::Up].map(|way| {
        let lost = sent.iter().filter(|(_, of, id)| *of == way && !arrived(id));
        lost.map(|(at_ms, ..)| at_ms + 1).max().unwrap_or(0)
    })
}

#[test]
fn nothing_is_lost_while_nothing_happens() {
    assert_eq!(away_ms(&mut world()), [0, 0]);
}

#[test]
fn a_client_that_moves_is_away_for_half_a_round_trip() {
    for access in [1, 2] {
        let mut world = world();
        world.plug(0, 0, Some(access)).unwrap();
        let [down, up] = away_ms(&mut world);
        assert_eq!(up, 0, "access {access}: data follows the first flight at once");
        assert!(down <= RTT_MS / 2 + WIRE_MS, "access {access}: {down} ms: copies follow at once");
    }
}

#[test]
fn a_gateway_that_forgot_everything_says_so_to_who_speaks() {
    let mut world = world();
    world.hosts[GATEWAY].stop();
    world.power_on(GATEWAY, false).unwrap();
    // The notice in half a round trip, the handshake in one, and what is sent from then on.
    let limit_ms = 2 * RTT_MS + WIRE_MS;
    let [down, up] = away_ms(&mut world);
    assert!(up > 0 && up <= limit_ms, "{up} ms, {limit_ms} allowed");
    assert_eq!(down, 0, "what the gateway has for its clients waits for them");
}
