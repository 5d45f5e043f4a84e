//! The tunnel device of the data thread. Another program may delete its interface: the sessions
//! continue, and packets for the interface are lost until the control thread has created a new one.

use std::time::Duration;

use rove_engine::Queue;
use rove_os::error::Error;
use rove_os::tun::{Packet, Read, Tun};
use rove_proto::packet::Checksum;
use rove_proto::wire::inner::{Home, Pieces};

/// The device, and whether it is of use.
pub(super) struct Device {
    tun: Tun,
    is_readable: bool,
    is_lost: bool,
    /// Packets that the kernel did not take.
    refused: u64,
    failure: Option<Error>,
}

impl Device {
    pub(super) const fn new(tun: Tun) -> Self {
        Self { tun, is_readable: true, is_lost: false, refused: 0, failure: None }
    }

    /// Replaces the interface. The old one is closed, which also removes it from the poller.
    pub(super) fn replace(&mut self, tun: Tun) {
        self.tun = tun;
        (self.is_readable, self.is_lost) = (true, false);
    }

    /// The kernel says that there is something to read.
    pub(super) const fn set_readable(&mut self) {
        self.is_readable = true;
    }

    /// Whether a read may bring something.
    pub(super) const fn is_readable(&self) -> bool {
        self.is_readable && !self.is_lost
    }

    /// Gives unneeded memory back. To be called when the thread was idle for a while.
    pub(super) fn rest(&mut self) {
        self.tun.rest();
    }

    /// Packets that the kernel did not take so far.
    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }

    /// For how long packets have been written one by one because the kernel refused joined ones.
    pub(super) fn merging_off(&self) -> Option<Duration> {
        self.tun.merging_off()
    }

    /// Why the device cannot be used any more, although its interface is there.
    pub(super) const fn take_failure(&mut self) -> Option<Error> {
        self.failure.take()
    }

    fn lose(&mut self) {
        (self.is_readable, self.is_lost) = (false, true);
        tracing::debug!("the tunnel's interface is gone");
    }
}

impl rove_engine::Device for Device {
    fn read(&mut self, mut each: impl FnMut(Pieces<'_>)) -> Queue {
        if !self.is_readable() {
            return Queue::Empty;
        }
        let read = self.tun.read(|segment, home| {
            let home = home.map(|home| Home { buffer: home.buffer, at: home.at });
            let is_made = segment.is_cut();
            let checksum = if is_made { Checksum::Right } else { Checksum::Unchecked };
            each(Pieces { head: segment.header, tail: segment.payload, home, checksum });
        });
        match read {
            Ok(Read::Packets(_) | Read::Malformed) => return Queue::Unknown,
            Ok(Read::Empty) => self.is_readable = false,
            Err(Error::NoInterface { .. }) => self.lose(),
            Err(error) => self.failure = Some(error),
        }
        Queue::Empty
    }

    fn write<'a>(&mut self, packets: impl Iterator<Item = Pieces<'a>>) {
        if self.is_lost {
            self.refused += packets.count() as u64;
            return;
        }
        match self.tun.write(packets.map(packet)) {
            Ok(written) => self.refused += written.refused as u64,
            Err(_) => self.lose(),
        }
    }
}

/// An inner packet in one piece, as the device takes it.
const fn packet(Pieces { head, checksum, .. }: Pieces<'_>) -> Packet<'_> {
    match checksum {
        Checksum::Unchecked | Checksum::Right => Packet::whole(head),
        Checksum::LeftOut => Packet::without_checksum(head),
    }
}
