//! Every system call that Rove makes, and no protocol.
//!
//! The protocol is a pure core without I/O; this crate does the I/O. It moves packets and changes
//! hosts, decides nothing about peers and paths, and knows no byte of Rove's datagrams. It is
//! synchronous: the data thread waits on raw descriptors, and nothing here starts a thread that
//! stays (two threads feed `nft` and end with it).
//!
//! Moving packets, for the data thread; all non-blocking, no allocation per packet:
//! - [`tun::Tun`]: `open`, `read` (one super-packet of the kernel, cut into packets of which each
//!   is a header of ours and a borrowed payload), `write` (many packets, joined again).
//! - [`udp::UdpSocket`]: `bind` (address, interface, mark), `send` (a run of equal datagrams, one
//!   call), `receive` (many, into a [`udp::ReceiveBuffer`]).
//! - [`stream::Stream`] and [`stream::Listener`]: the same datagrams over TCP or MPTCP, with TLS
//!   and through a proxy, for networks that lose UDP.
//! - [`links::snapshot`] and [`links::Monitor`]: the links there are, and "something changed".
//! - [`wireless::Radio`]: the signal strength of a Wi-Fi link.
//! - [`clock::Clock`]: nanoseconds that count sleep. [`random::fill`]: the kernel's randomness.
//!
//! Changing the host, for the control thread; blocking, some milliseconds:
//! - [`plan::Plan`] is the desired configuration of the host, [`plan::Applier`] applies it.
//! - [`mptcp::is_available`]: whether streams may have subflows by several links, which the plan
//!   names.
//! - [`names::resolve`]: the gateway's own name, asked for outside the tunnel.
//! - [`portal::ask`]: whether a captive portal stands between a link and the Internet.
//! - [`users::user_of`]: the user of this host that a flow belongs to.
//! - [`lock::Lock`]: one process per directory. [`privileges::drop()`]: gives up privileges.
//!
//! A client's order of business, all of it as root or with CAP_NET_ADMIN:
//! ```no_run
//! use std::path::Path;
//! use rove_os::{error::Error, links, lock::Lock, plan, privileges, udp};
//!
//! fn start(dir: &Path, plan: &plan::Plan) -> Result<(), Error> {
//!     let _lock = Lock::take(dir)?;
//!     let mut applier = plan::Applier::open(plan::Places::usual(dir))?;
//!     plan.check(&links::snapshot()?)?;
//!     let mut tun = applier.open_device(plan)?;
//!     let mut socket = udp::UdpSocket::bind(udp::UdpOptions {
//!         local: "[::]:0".parse().expect("an address"),
//!         ipv6_only: false,
//!         interface: None,
//!         mark: Some(plan::MARK),
//!     })?;
//!     let monitor = links::Monitor::open()?;
//!     let writable = [dir, Path::new("/proc/sys/net")].map(privileges::Writable::Within);
//!     privileges::drop(&writable)?;
//!     applier.apply(plan)?; // sweeps what a crash left and this plan does not want
//!     // ... the data thread; on news of [`watch::Watch`] `applier.reconcile(now)`; at the end:
//!     applier.undo()?; // all but the kill switch, which `remove_kill_switch` removes
//!     Ok(())
//! }
//! ```
//! [`error::Error`] has the errors for people. `read`, `write` and `send` return the number of
//! refused packets. Limits: Linux; one queue per TUN.

pub mod calendar;
pub mod clock;
pub mod conntrack;
pub mod copied;
mod dns;
pub mod error;
#[cfg(feature = "fuzz")]
pub mod fuzz;
mod http;
pub mod links;
pub mod lock;
pub mod mptcp;
pub mod names;
mod netlink;
mod nft;
pub mod plain;
pub mod plan;
pub mod portal;
pub mod privileges;
pub mod probe;
pub mod random;
mod socket;
pub mod stream;
pub mod tariff;
pub mod tun;
pub mod udp;
pub mod users;
pub mod watch;
pub mod wireless;
