//! Hosts by number.

/// A host of the world: 0 is the gateway, then the clients.
pub(super) type HostId = usize;

/// The gateway.
pub(super) const GATEWAY: HostId = 0;
/// The client that stories are about: the first.
pub(super) const CLIENT: usize = 0;
