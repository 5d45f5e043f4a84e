//! The carrier of the traffic: only the link, Rove, or another program for comparison.

mod mptcp;
mod openvpn;
mod rove;

use super::binary::Binary;
use super::testbed::{Address, Testbed};
use crate::ground::{Receiver, Reported, Transport};
use crate::netns::Process;
use anyhow::bail;
pub use openvpn::{By, OpenVpn, installed as openvpn_installed};
pub use rove::{Hold, Rove, Setup, Streams};
use std::io;
use std::net::IpAddr;

/// The carrier of traffic to the server's first address. It is removed on drop.
#[derive(Debug)]
pub enum Deployment {
    /// Only the link.
    Bare,
    /// A Rove gateway and a Rove client.
    Rove(Box<Rove>),
    /// An OpenVPN server and an OpenVPN client.
    OpenVpn(Box<OpenVpn>),
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// By a signal that it cannot handle.
    Killed,
    /// By a request.
    Asked,
}

impl Deployment {
    /// Deploys a binary, or nothing.
    ///
    /// # Errors
    /// The output of a command that failed; a tunnel that does not carry in time.
    pub fn start(testbed: &Testbed, rove: Option<&Binary>) -> anyhow::Result<Self> {
        match rove {
            None => {
                testbed.expose_server()?;
                Ok(Self::Bare)
            }
            Some(binary) => {
                Ok(Self::Rove(Box::new(Rove::start(testbed, binary, &Setup::default())?)))
            }
        }
    }

    /// Deploys a binary with this configuration; the bare link needs none.
    ///
    /// # Errors
    /// As for [`Self::start`].
    pub fn start_with(
        testbed: &Testbed,
        rove: Option<&Binary>,
        setup: &Setup,
    ) -> anyhow::Result<Self> {
        match rove {
            None => Self::start(testbed, None),
            Some(binary) => Ok(Self::Rove(Box::new(Rove::start(testbed, binary, setup)?))),
        }
    }

    /// The same with a binary that uses MPTCP, as soon as there is a sub-flow on each link.
    ///
    /// # Errors
    /// As above, and if there is none.
    pub fn start_by_mptcp(testbed: &Testbed, rove: Option<&Binary>) -> anyhow::Result<Self> {
        let started = Self::start(testbed, rove)?;
        mptcp::await_subflows(testbed)?;
        Ok(started)
    }

    /// Deploys OpenVPN over this transport.
    ///
    /// # Errors
    /// What went wrong; [`openvpn_installed`] tells whether it is installed.
    pub fn start_openvpn(testbed: &Testbed, by: By) -> anyhow::Result<Self> {
        Ok(Self::OpenVpn(Box::new(OpenVpn::start(testbed, by)?)))
    }

    /// How a move of the client appears to this carrier. A bare connection cannot survive another
    /// address, so the address follows the client, as no network does.
    pub const fn on_move(&self) -> Address {
        match self {
            Self::Bare => Address::Follows,
            Self::Rove(_) | Self::OpenVpn(_) => Address::Changes,
        }
    }

    /// Ends the gateway's process.
    ///
    /// # Errors
    /// When there is none, or it does not end.
    pub fn end_gateway(&mut self, how: How) -> anyhow::Result<()> {
        match self {
            Self::Rove(rove) => rove.end_gateway(how),
            Self::Bare | Self::OpenVpn(_) => bail!("only a gateway of Rove's is restarted here"),
        }
    }

    /// Starts the gateway's process again and waits until it is ready.
    ///
    /// # Errors
    /// When it is not in time.
    pub fn start_gateway(&mut self, testbed: &Testbed) -> anyhow::Result<()> {
        match self {
            Self::Rove(rove) => rove.start_gateway(testbed),
            Self::Bare | Self::OpenVpn(_) => bail!("only a gateway of Rove's is restarted here"),
        }
    }

    /// Makes the gateway announce another address to every client.
    ///
    /// # Errors
    /// Its answer.
    pub fn move_gateway(&self, testbed: &Testbed, address: IpAddr) -> anyhow::Result<()> {
        match self {
            Self::Rove(rove) => rove.move_gateway(testbed, address),
            Self::Bare | Self::OpenVpn(_) => bail!("only a gateway of Rove's is moved here"),
        }
    }

    /// Processor time of the gateway's process so far, in nanoseconds. `None` if there is none.
    ///
    /// # Errors
    /// If it has ended.
    pub fn gateway_cpu_ns(&self) -> io::Result<Option<u64>> {
        match self {
            Self::Bare | Self::OpenVpn(_) => Ok(None),
            Self::Rove(rove) => rove.gateway.cpu_ns().map(Some),
        }
    }

    /// Whether the client reports that the link of its first interface carries: a path over it is
    /// in use and its session carries. `None` if there is no client to ask.
    ///
    /// # Errors
    /// If the client does not answer.
    pub fn says_carries(&self, testbed: &Testbed) -> anyhow::Result<Option<bool>> {
        match self {
            Self::Bare | Self::OpenVpn(_) => Ok(None),
            Self::Rove(rove) => rove.says_carries(testbed).map(Some),
        }
    }

    /// Ends the client.
    ///
    /// # Errors
    /// When there is none, or it does not end.
    pub fn end_client(&mut self) -> anyhow::Result<()> {
        self.restartable()?.end_client()
    }

    /// Starts the ended client again, as after a reboot of its host. Returns when, in nanoseconds
    /// of the monotonic clock.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn start_client(&mut self, testbed: &Testbed) -> anyhow::Result<u64> {
        self.restartable()?.start_client(testbed)
    }

    fn restartable(&mut self) -> anyhow::Result<&mut Rove> {
        match self {
            Self::Rove(rove) => Ok(rove),
            Self::Bare | Self::OpenVpn(_) => bail!("only a client of Rove's is restarted here"),
        }
    }

    /// The transport that the client reports. `None` if there is no client to ask, or no transport.
    ///
    /// # Errors
    /// If the client does not answer.
    pub fn transport(&self, testbed: &Testbed) -> anyhow::Result<Option<Transport>> {
        match self {
            Self::Bare | Self::OpenVpn(_) => Ok(None),
            Self::Rove(rove) => rove.transport(testbed),
        }
    }

    /// The traffic that arrived at an end of Rove, and the cost of feedback about it.
    ///
    /// # Errors
    /// If that end does not answer.
    pub fn reported(&self, testbed: &Testbed, at: Receiver) -> anyhow::Result<Vec<Reported>> {
        match self {
            Self::Bare | Self::OpenVpn(_) => Ok(Vec::new()),
            Self::Rove(rove) => rove.reported(testbed, at),
        }
    }

    /// Suspends the client's process, as its machine does, or resumes it.
    pub fn pause_client(&self, paused: bool) {
        match self {
            Self::Bare => {}
            Self::Rove(rove) => rove.client.pause(paused),
            Self::OpenVpn(openvpn) => openvpn.client.pause(paused),
        }
    }

    /// Bytes that both ends keep for connections. `None` if neither does.
    ///
    /// # Errors
    /// If an end does not answer.
    pub fn held_bytes(&self, testbed: &Testbed) -> anyhow::Result<Option<u64>> {
        match self {
            Self::Bare | Self::OpenVpn(_) => Ok(None),
            Self::Rove(rove) => rove.held_bytes(testbed),
        }
    }

    /// Fails if a part of it has ended.
    ///
    /// # Errors
    /// With its last output.
    pub fn check(&mut self) -> anyhow::Result<()> {
        let processes: Vec<&mut Process> = match self {
            Self::Bare => return Ok(()),
            Self::Rove(rove) => rove.processes().collect(),
            Self::OpenVpn(openvpn) => vec![&mut openvpn.server, &mut openvpn.client],
        };
        for process in processes {
            if !process.is_running() {
                bail!(process.failure("ended"));
            }
        }
        Ok(())
    }
}
