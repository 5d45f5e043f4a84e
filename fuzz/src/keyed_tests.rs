//! The peer's packets get through, and the properties about it can fail.

use super::*;

/// Otherwise all properties would hold only because nothing is ever delivered.
#[test]
fn who_is_honest_gets_through() {
    // Twice a packet by TCP, with a wait; then the answer to every challenge.
    let packet = [12, 0, 0, 0, 0, 80, 1, 0, 100, 0];
    let input = [&packet[..], &[15], &packet, &[15, 7, 0, 15]].concat();
    for victim in [End::Client, End::Gateway] {
        let after = attack(victim, &input);
        assert_eq!(after.delivered, 2, "at the {victim:?}");
        assert!(after.epoch.is_some_and(|epoch| epoch.heard[0].is_some()), "it is spoken to");
    }
}

/// The law about sources must be able to fail.
#[test]
fn a_packet_from_another_address_would_be_seen() {
    let mut keyed = Keyed::new(End::Gateway, &[]);
    let mut packet = Fields::default().packet();
    keyed.came_out(&packet);
    packet[15] ^= 1;
    let seen = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        keyed.came_out(&packet);
    }));
    assert!(seen.is_err(), "it came out from an address that is not the client's");
}

/// Claims of another profile are dropped in each form of the IDs, and the session goes on.
#[test]
fn a_claimed_profile_is_dropped_and_the_true_one_is_taken() {
    let packet = |path: u8| [12, path, 0, 0, 0, 80, 1, 0, 100, 0];
    let again: &[u8] = &[11];
    for handshakes in [&[][..], again] {
        let claims = (0..40).flat_map(|_| packet(8));
        let input: Vec<_> = handshakes.iter().copied().chain(claims).chain(packet(0)).collect();
        let after = attack(End::Gateway, &input);
        assert_eq!(after.delivered, 1, "after {} more handshakes", handshakes.len());
    }
}
