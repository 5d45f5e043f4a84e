//! Which ports a connection has: no two ever have the same two.

use super::Number;

/// Where the server listens first.
pub(in crate::world) const SERVER_PORT: u16 = 9_000;
/// The client's first port, and how many it has.
pub(super) const CLIENT_PORTS: (u16, u32) = (20_000, 40_000);

/// The ports of a connection: the server's, and the client's.
pub(super) const fn ports(number: Number) -> (u16, u16) {
    let (first, count) = CLIENT_PORTS;
    (SERVER_PORT + (number / count) as u16, first + (number % count) as u16)
}

/// The connection between these ports: the client's, and the server's.
pub(super) fn number(client: u16, server: u16) -> Option<Number> {
    let (first, count) = CLIENT_PORTS;
    let low = u32::from(client.checked_sub(first)?);
    let high = u32::from(server.checked_sub(SERVER_PORT)?);
    (low < count).then(|| high * count + low)
}
