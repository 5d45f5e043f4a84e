//! Ends of TCP connections that speak real packets: IPv4 or IPv6 and TCP headers as bytes, so that
//! they can pass through the production core as inner packets.
//!
//! A model of Linux's TCP, written from RFCs and from what the kernel does, each part naming its
//! source; held against captures of the kernel (`testdata/tcp/`, made by the example
//! `tcp_traces`). Nothing here owns a clock: times are nanoseconds since a start of the caller's
//! choosing, chance follows from a seed, so the same calls give the same packets.
//!
//! What it decides: which segments leave when, what an arriving one means, when a connection is
//! dead. What it refuses to know: where packets go and what bytes mean. [`Trial`] puts two ends on
//! an emulated link; [`Source`] and [`Sink`] tell whether a stream arrived as it was sent.
//!
//! ```
//! use rove_lab::tcp::{Config, End};
//!
//! let (here, there) = ("192.0.2.1:5000".parse()?, "198.51.100.7:80".parse()?);
//! let mut client = End::connect(Config::new(here, there, 1), 0);
//! let mut server = End::listen(Config::new(there, here, 2));
//! client.write(b"hello");
//! for now_ns in [0, 20_000_000] {
//!     client.leaving(now_ns).iter().for_each(|packet| server.arrives(now_ns, packet));
//!     server.leaving(now_ns).iter().for_each(|packet| client.arrives(now_ns, packet));
//! }
//! assert_eq!(server.read(100), b"hello");
//! # Ok::<(), std::net::AddrParseError>(())
//! ```
//!
//! Limits: no ECN, no urgent data, no fast open, no path MTU discovery; the receive buffer has a
//! fixed size; acknowledgments are not compressed; BBR without its detection of policers. A
//! connection that is closed for writing stays open for reading as long as the other end likes:
//! nobody is an orphan.
//!
//! Where to find what: bytes in `segment`; the handshake in `opening`; what arrives in
//! `end/arrival`, from there `sender/acks` to the sender and `receiver`; what leaves in `sender`;
//! which losses there are in `rack` (in `sender/newreno` without SACK) and what follows in
//! `sender/recovery`; silence in `sender/timers`; how much and how fast in `congestion`.

mod clock;
mod congestion;
mod end;
mod numbering;
mod opening;
mod pacing;
mod rack;
mod rate;
mod receiver;
mod ring;
mod rtt;
mod scoreboard;
mod segment;
mod sender;
mod side;
mod stream;
pub mod trace;
mod trial;
mod wheel;
mod witness;

pub use congestion::CongestionControl;
pub use end::{Config, End, EndStats, Ending, KeepAlive, State};
pub use segment::{Flags, Malformed, Options, Segment, Timestamps};
pub use sender::{Repairing, SenderStats};
pub use side::Side;
pub use stream::{Content, Sink, Source, Spoiled};
pub use trial::{Passed, Plan, Trial, Violation};
