//! The TUN device: reads inner packets from the kernel, and writes inner packets to it.
//!
//! Both directions use *super-packets* if the kernel agrees (`IFF_VNET_HDR` with TSO, and USO from
//! Linux 6.2 on): one read or write carries up to 64 kB of one flow. [`Tun::read`] cuts them into
//! packets without copying payload, and [`Tun::write`] joins packets. Without offloads both use one
//! packet per call, and the caller notices no difference.
//!
//! This module decides how packets are cut and joined. It knows no more of them than IP, TCP and
//! UDP headers. Addresses, MTU and routes of the device belong to a [`Plan`](crate::plan::Plan).
//! Limits: one queue per device; packets are at most 65,535 bytes.

mod buffers;
mod checksum;
mod device;
pub(crate) mod merge;
mod merging;
mod packet;
pub(crate) mod split;
#[cfg(test)]
mod tests;
pub(crate) mod vnet;

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd},
    sync::Arc,
    time::{Duration, Instant},
};

pub use self::buffers::Home;
pub use self::device::{Offload, TunOptions};
pub(crate) use self::device::{check_name, index_of};
pub use self::packet::Packet;
pub use self::split::{HEADER_LEN_MAX, Segment};
pub use self::vnet::PACKET_LEN_MAX;
use self::{
    buffers::Buffers,
    merge::{Allowed, BATCH_MAX, Output, RUN_MAX},
    merging::Merging,
    vnet::{Checksum, VNET_LEN, Vnet},
};
use crate::error::Error;

/// What is shorter is copied by who wants to keep it: no more than a quarter of a buffer may lie
/// idle for it.
const KEPT_MIN: usize = PACKET_LEN_MAX / 4 * 3;

/// What one [`Tun::read`] brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Read {
    /// So many packets were handed over.
    Packets(usize),
    /// Nothing is there: wait until the descriptor is readable.
    Empty,
    /// The kernel handed over what is no packet; it was thrown away. Read on.
    Malformed,
}

/// What one [`Tun::write`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Written {
    /// Packets that the kernel took.
    pub packets: usize,
    /// Calls that it took, of which the rest were joined.
    pub calls: usize,
    /// Packets that the kernel refused: no IP packet, interface down, no memory.
    pub refused: usize,
}

/// What lies in a buffer.
struct Filled {
    vnet: Vnet,
    start: usize,
    end: usize,
}

/// Why nothing does.
enum Unfilled {
    Malformed,
    Failed(io::Error),
}

/// An open TUN. Dropping it removes the interface, unless it is persistent.
#[derive(Debug)]
pub struct Tun {
    fd: OwnedFd,
    name: String,
    offload: Offload,
    adopted: bool,
    /// Whether super-packets are written.
    merging: Merging,
    buffers: Buffers,
}

impl Tun {
    /// Opens the interface, and makes it if it is not there. It is non-blocking, down and
    /// without addresses, unless it is a persistent one left by an earlier process.
    ///
    /// # Errors
    /// [`Error::NoTunDevice`], [`Error::NoPrivilege`], [`Error::TunBusy`],
    /// [`Error::BadInterfaceName`], or [`Error::Os`].
    pub fn open(options: TunOptions<'_>) -> Result<Self, Error> {
        let device = device::open(options)?;
        let merging = Merging::new(device.offload.tcp);
        Ok(Self {
            fd: device.fd,
            name: device.name,
            offload: device.offload,
            adopted: device.adopted,
            merging,
            buffers: Buffers::default(),
        })
    }

    /// Name of the interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What the kernel agreed to.
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Whether the interface was there before it was opened.
    pub fn adopted(&self) -> bool {
        self.adopted
    }

    /// Reads once and calls `each` for every packet, in order, with the buffer that its payload
    /// lies in, where it is worth keeping: it is not written to while somebody does. Both parts of
    /// a [`Segment`] are valid during the call only.
    ///
    /// # Errors
    /// [`Error::NoInterface`] when the interface was removed by somebody else; [`Error::Os`].
    pub fn read(
        &mut self,
        mut each: impl FnMut(Segment<'_>, Option<Home<'_>>),
    ) -> Result<Read, Error> {
        let mut buffer = self.buffers.take();
        let read = self.fill(&mut buffer);
        let said = match read {
            Ok(Filled { vnet, start, end }) => {
                let worth_keeping = end - start >= KEPT_MIN;
                let next = self.buffers.next();
                let done = split::split(vnet, &buffer[start..end], |segment| {
                    let home = Home { buffer: &buffer, at: start + segment.at };
                    next.fetch(home.at, segment.payload.len());
                    each(segment, worth_keeping.then_some(home));
                });
                Ok(done.map_or(Read::Malformed, Read::Packets))
            }
            Err(Unfilled::Malformed) => Ok(Read::Malformed),
            Err(Unfilled::Failed(error)) => self.read_error(error),
        };
        self.buffers.put_back(buffer);
        said
    }

    /// Reads one packet or super-packet into a buffer that nobody keeps.
    fn fill(&self, buffer: &mut Arc<[u8]>) -> Result<Filled, Unfilled> {
        let start = if self.offload.vnet_header { VNET_LEN } else { 0 };
        let room = Arc::get_mut(buffer).unwrap_or_default();
        // SAFETY: the pointer and the length are those of a live, writable slice.
        let got = unsafe { libc::read(self.fd.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
        let Ok(end) = usize::try_from(got) else {
            return Err(Unfilled::Failed(io::Error::last_os_error()));
        };
        let (header, packet) =
            room[..end].split_at_mut_checked(start).ok_or(Unfilled::Malformed)?;
        let vnet = match header.first_chunk::<VNET_LEN>() {
            Some(header) => Vnet::decode(header).ok_or(Unfilled::Malformed)?,
            None => Vnet::plain(Checksum::Present),
        };
        split::finish(vnet, packet).map_err(|_| Unfilled::Malformed)?;
        Ok(Filled { vnet, start, end })
    }

    /// Gives memory back that nobody needs. To be called when nothing was there for a while.
    pub fn rest(&mut self) {
        self.buffers.rest();
    }

    fn read_error(&self, error: io::Error) -> Result<Read, Error> {
        match error.raw_os_error() {
            // EIO: the interface is down, and says so on every read until it is up.
            Some(libc::EAGAIN | libc::EINTR | libc::EIO) => Ok(Read::Empty),
            Some(libc::EBADFD | libc::ENODEV) => {
                Err(Error::NoInterface { name: self.name.clone() })
            }
            Some(_) | None => {
                Err(Error::os(format!("read from the interface {}", self.name), error))
            }
        }
    }

    /// Writes inner packets; neighbours of one flow travel as one where the kernel allows it.
    /// Packets of one flow stay in order. What the kernel refuses is counted and gone, as on any
    /// network interface.
    ///
    /// # Errors
    /// [`Error::NoInterface`] when the interface was removed by somebody else.
    pub fn write<'a, P: Into<Packet<'a>>>(
        &mut self,
        packets: impl IntoIterator<Item = P>,
    ) -> Result<Written, Error> {
        let mut packets = packets.into_iter();
        let mut written = Written::default();
        loop {
            let mut batch = [Packet::default(); BATCH_MAX];
            let mut count = 0;
            for (slot, packet) in batch.iter_mut().zip(packets.by_ref()) {
                *slot = packet.into();
                count += 1;
            }
            self.write_batch(&batch[..count], &mut written)?;
            if count < BATCH_MAX {
                return Ok(written);
            }
        }
    }

    fn write_batch(&mut self, batch: &[Packet<'_>], written: &mut Written) -> Result<(), Error> {
        let is_on = self.merging.is_on(Instant::now);
        let allowed = Allowed { tcp: is_on, udp: is_on && self.offload.udp };
        let mut gone = false;
        merge::merge(batch, allowed, &mut |output| {
            let done = match output {
                Output::Single { packet, verified } => self.write_single(packet, verified, written),
                Output::Super { vnet, header, payloads, packets } => {
                    self.write_super(vnet, header, payloads, packets, written)
                }
            };
            gone |= done == Done::Gone;
        });
        if gone { Err(Error::NoInterface { name: self.name.clone() }) } else { Ok(()) }
    }

    fn write_single(&self, packet: Packet<'_>, verified: bool, written: &mut Written) -> Done {
        let is_right = verified || packet.lacks_checksum();
        let checksum = if is_right { Checksum::Verified } else { Checksum::Present };
        let header = Vnet::plain(checksum).encode(false);
        let mut room = [0; HEADER_LEN_MAX];
        let [head, tail] = packet.finish(&mut room);
        let pieces = [IoSlice::new(&header), IoSlice::new(head), IoSlice::new(tail)];
        let pieces = if self.offload.vnet_header { &pieces[..] } else { &pieces[1..] };
        let done = self.write_pieces(pieces);
        written.count(done, 1);
        done
    }

    fn write_super(
        &mut self,
        vnet: Vnet,
        header: &[u8],
        payloads: &[&[u8]],
        packets: &[Packet<'_>],
        written: &mut Written,
    ) -> Done {
        let vnet = vnet.encode(header[0] >> 4 == 6);
        let mut pieces = [IoSlice::new(&[]); RUN_MAX + 2];
        pieces[0] = IoSlice::new(&vnet);
        pieces[1] = IoSlice::new(header);
        for (piece, payload) in pieces[2..].iter_mut().zip(payloads) {
            *piece = IoSlice::new(payload);
        }
        let done = self.write_pieces(&pieces[..payloads.len() + 2]);
        if done != Done::Invalid {
            if done == Done::Written {
                self.merging.taken();
            }
            written.count(done, packets.len());
            return done;
        }
        self.merging.refused(Instant::now());
        // The checksums of these packets were found right: they travel alone.
        packets.iter().map(|&packet| self.write_single(packet, true, written)).max().unwrap_or(done)
    }

    fn write_pieces(&self, pieces: &[IoSlice<'_>]) -> Done {
        // SAFETY: IoSlice has the layout of iovec (its documentation promises it), the slices
        // live through the call, and there are at most RUN_MAX + 2 of them.
        let put = unsafe {
            libc::writev(self.fd.as_raw_fd(), pieces.as_ptr().cast(), pieces.len() as libc::c_int)
        };
        if put >= 0 {
            return Done::Written;
        }
        match io::Error::last_os_error().raw_os_error() {
            Some(libc::EINVAL) => Done::Invalid,
            Some(libc::EBADFD | libc::ENODEV) => Done::Gone,
            Some(_) | None => Done::Refused,
        }
    }

    /// Whether super-packets are written: agreed at the start, and not refused since.
    pub fn merging(&self) -> bool {
        self.offload.tcp && self.merging_off().is_none()
    }

    /// For how long none has been written although the kernel agreed to it, because it refused
    /// them.
    pub fn merging_off(&self) -> Option<Duration> {
        self.merging.off_for()
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl AsRawFd for Tun {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}

/// How one write ended; the worse, the greater.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Done {
    Written,
    /// Not taken now: interface down, no memory.
    Refused,
    /// Not taken ever: the kernel does not understand it.
    Invalid,
    /// The interface is no more.
    Gone,
}

impl Written {
    fn count(&mut self, done: Done, packets: usize) {
        self.calls += 1;
        match done {
            Done::Written => self.packets += packets,
            Done::Refused | Done::Invalid | Done::Gone => self.refused += packets,
        }
    }
}

/// The Internet checksum (RFC 1071) of parts that have even lengths.
pub(crate) fn checksum(parts: &[&[u8]]) -> u16 {
    !checksum::fold(parts.iter().map(|part| checksum::sum(part)).sum())
}

const _: () = assert!(BATCH_MAX + 2 <= libc::UIO_MAXIOV as usize);
