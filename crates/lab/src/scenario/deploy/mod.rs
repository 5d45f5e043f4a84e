//! What carries the traffic: nothing but the link, Rove, or something to compare it with.

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

/// What carries the traffic to the server's first address. It is torn down on drop.
#[derive(Debug)]
pub enum Deployment {
    /// Nothing but the link.
    Bare,
    /// A Rove gateway and a Rove client.
    Rove(Box<Rove>),
    /// An OpenVPN server and an OpenVPN client.
    OpenVpn(Box<OpenVpn>),
}

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// In the middle of whatever it does.
    Killed,
    /// In its own time.
    Asked,
}

impl Deployment {
    /// Deploys a binary, or nothing.
    ///
    /// # Errors
    /// What a command answered, if it is not success; a tunnel that does not carry in time.
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

    /// Deploys a binary that is configured like this; the bare link needs nothing.
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

    /// The same with a binary that is to carry by MPTCP, which it is if there is a sub-flow by
    /// each link.
    ///
    /// # Errors
    /// As above, and when there is none.
    pub fn start_by_mptcp(testbed: &Testbed, rove: Option<&Binary>) -> anyhow::Result<Self> {
        let started = Self::start(testbed, rove)?;
        mptcp::await_subflows(testbed)?;
        Ok(started)
    }

    /// Deploys OpenVPN, whose datagrams this carries.
    ///
    /// # Errors
    /// What went wrong; whether it is installed says [`openvpn_installed`].
    pub fn start_openvpn(testbed: &Testbed, by: By) -> anyhow::Result<Self> {
        Ok(Self::OpenVpn(Box::new(OpenVpn::start(testbed, by)?)))
    }

    /// How a move of the client looks to it: a bare connection cannot survive another address, so
    /// under it the address follows the client, as no network does.
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

    /// Tells the gateway, and through it every client, that it is reached at another address.
    ///
    /// # Errors
    /// What it answered.
    pub fn move_gateway(&self, testbed: &Testbed, address: IpAddr) -> anyhow::Result<()> {
        match self {
            Self::Rove(rove) => rove.move_gateway(testbed, address),
            Self::Bare | Self::OpenVpn(_) => bail!("only a gateway of Rove's is moved here"),
        }
    }

    /// Processor time that the gateway's process has taken so far, in nanoseconds. `None` where
    /// there is none.
    ///
    /// # Errors
    /// When it has ended.
    pub fn gateway_cpu_ns(&self) -> io::Result<Option<u64>> {
        match self {
            Self::Bare | Self::OpenVpn(_) => Ok(None),
            Self::Rove(rove) => rove.gateway.cpu_ns().map(Some),
        }
    }

    /// Whether the client says that the link of its first card carries: that a path over it is in
    /// use and its session carries. `None` where nobody can be asked.
    ///
    /// # Errors
    /// When the client does not answer.
    pub fn says_carries(&self, testbed: &Testbed) -> anyhow::Result<Option<bool>> {
        match self {
            Self::Bare | Self::OpenVpn(_) => Ok(None),
            Self::Rove(rove) => rove.says_carries(testbed).map(Some),
        }
    }

    /// Ends the client's process and starts it again. Returns when it was started.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn restart_client(&mut self, testbed: &Testbed) -> anyhow::Result<u64> {
        match self {
            Self::Rove(rove) => rove.restart_client(testbed),
            Self::Bare | Self::OpenVpn(_) => bail!("only a client of Rove's is restarted here"),
        }
    }

    /// What the client says that its data goes by. `None` where nobody can be asked, or by nothing.
    ///
    /// # Errors
    /// When the client does not answer.
    pub fn transport(&self, testbed: &Testbed) -> anyhow::Result<Option<Transport>> {
        match self {
            Self::Bare | Self::OpenVpn(_) => Ok(None),
            Self::Rove(rove) => rove.transport(testbed),
        }
    }

    /// What came to an end of Rove, and what telling the other end of it cost.
    ///
    /// # Errors
    /// When that end does not answer.
    pub fn reported(&self, testbed: &Testbed, at: Receiver) -> anyhow::Result<Vec<Reported>> {
        match self {
            Self::Bare | Self::OpenVpn(_) => Ok(Vec::new()),
            Self::Rove(rove) => rove.reported(testbed, at),
        }
    }

    /// Puts the client's process to sleep, as its machine does, or wakes it up.
    pub fn pause_client(&self, paused: bool) {
        match self {
            Self::Bare => {}
            Self::Rove(rove) => rove.client.pause(paused),
            Self::OpenVpn(openvpn) => openvpn.client.pause(paused),
        }
    }

    /// Bytes that both ends hold on behalf of others. `None` where nobody holds any.
    ///
    /// # Errors
    /// When an end does not answer.
    pub fn held_bytes(&self, testbed: &Testbed) -> anyhow::Result<Option<u64>> {
        match self {
            Self::Bare | Self::OpenVpn(_) => Ok(None),
            Self::Rove(rove) => rove.held_bytes(testbed),
        }
    }

    /// Notices that a part of it has ended.
    ///
    /// # Errors
    /// With the last words of what has died.
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
