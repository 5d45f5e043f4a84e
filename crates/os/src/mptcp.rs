//! The kernel's path manager of MPTCP (linux/mptcp_pm.h): the addresses of this host from which a
//! connection opens further subflows.
//!
//! The kernel keeps one list of endpoints for all MPTCP connections of a network namespace, and one
//! pair of limits. So Rove adds only the requested entries, leaves other programs' entries alone,
//! and removes all of its own: [`crate::plan`] keeps the record. Limits: the kernel has room for
//! eight endpoints.

use std::{io, net::IpAddr};

use serde::{Deserialize, Serialize};
use socket2::{Domain, Protocol, Socket, Type};

use crate::{
    error::Error,
    netlink::generic::{Attributes, Generic, NESTED, Question, attribute},
};

/// Endpoints that the kernel has room for (`MPTCP_PM_ADDR_MAX`), and the highest limit.
pub const ENDPOINTS_MAX: usize = 8;

const FAMILY: &str = "mptcp_pm";
// `MPTCP_PM_CMD_*`.
const ADD_ADDR: u8 = 1;
const DEL_ADDR: u8 = 2;
const GET_ADDR: u8 = 3;
const SET_LIMITS: u8 = 5;
const GET_LIMITS: u8 = 6;
// `MPTCP_PM_ATTR_*`.
const ADDR: u16 = 1;
const RCV_ADD_ADDRS: u16 = 2;
const SUBFLOWS: u16 = 3;
// `MPTCP_PM_ADDR_ATTR_*`.
const ADDR_FAMILY: u16 = 1;
const ADDR_ID: u16 = 2;
const ADDR_V4: u16 = 3;
const ADDR_V6: u16 = 4;
const ADDR_FLAGS: u16 = 6;
const ADDR_INDEX: u16 = 7;
// `MPTCP_PM_ADDR_FLAG_*`.
const FLAG_SUBFLOW: u32 = 1 << 1;
const FLAG_BACKUP: u32 = 1 << 2;
const FLAG_FULLMESH: u32 = 1 << 3;
/// The kernel made it by itself, for a connection, and gives it up to whoever asks for it.
const FLAG_IMPLICIT: u32 = 1 << 4;

/// From where MPTCP connections have a subflow, beside the first.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// The interface by which it leaves.
    pub link: String,
    /// An address of that.
    pub address: IpAddr,
    /// Carries only while no other subflow does.
    pub backup: bool,
    /// To each address that the other end announces, and not to the first alone.
    pub mesh: bool,
}

/// What the kernel limits, of each connection; [`ENDPOINTS_MAX`] at most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub(crate) enum Limit {
    /// Addresses announced by the other end to which there may be subflows; the kernel's own is
    /// none.
    Announced,
    /// Subflows beside the first; the kernel's own is two.
    Subflows,
}

/// Whether this kernel gives MPTCP sockets: it was built with them, and `net.mptcp.enabled` is 1.
pub fn is_available() -> bool {
    Socket::new(Domain::IPV4, Type::STREAM.cloexec(), Some(Protocol::MPTCP)).is_ok()
}

/// The path manager of the present network namespace.
#[derive(Debug)]
pub(crate) struct PathManager {
    netlink: Generic,
    family: u16,
}

/// An endpoint as the kernel lists it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Listed {
    id: u8,
    address: IpAddr,
    flags: u32,
}

impl PathManager {
    /// Opens it; `None` where the kernel has no MPTCP.
    pub(crate) fn open() -> Result<Option<Self>, Error> {
        let mut netlink = Generic::open()?;
        let family = netlink.family(FAMILY);
        let family = family.map_err(|error| Error::os("ask the kernel for MPTCP", error))?;
        Ok(family.map(|family| Self { netlink, family }))
    }

    /// Whether somebody put an endpoint with this address there.
    pub(crate) fn has(&mut self, address: IpAddr) -> Result<bool, Error> {
        let listed = self.listed().map_err(|error| Error::os("list MPTCP's endpoints", error))?;
        Ok(listed.iter().any(|known| known.address == address))
    }

    /// Puts an endpoint there, in place of one with its address. Connections that are open get
    /// their subflow at once. Where there is no room there is none.
    pub(crate) fn add(&mut self, endpoint: &Endpoint, index: u32) -> Result<(), Error> {
        let address = endpoint.address;
        let attributes = addition(endpoint, index);
        let mut told = self.tell(ADD_ADDR, &attributes);
        if told.as_ref().is_err_and(|error| is_one_of(error, &[libc::EEXIST])) {
            self.remove(address)?;
            told = self.tell(ADD_ADDR, &attributes);
        }
        match told {
            // No number is left, or no room (net/mptcp/pm_kernel.c).
            Err(error) if is_one_of(&error, &[libc::ERANGE, libc::E2BIG]) => Ok(()),
            told => {
                told.map_err(|error| Error::os(format!("give MPTCP the address {address}"), error))
            }
        }
    }

    /// Takes an endpoint away, if it is there; its subflows end.
    pub(crate) fn remove(&mut self, address: IpAddr) -> Result<(), Error> {
        let what = || format!("take the address {address} from MPTCP");
        let listed = self.listed().map_err(|error| Error::os(what(), error))?;
        let Some(listed) = listed.into_iter().find(|listed| listed.address == address) else {
            return Ok(());
        };
        let inner = [address_of(address), attribute(ADDR_ID, &[listed.id])].concat();
        match self.tell(DEL_ADDR, &attribute(ADDR | NESTED, &inner)) {
            Err(error) if !is_one_of(&error, &[libc::EINVAL, libc::ENOENT]) => {
                Err(Error::os(what(), error))
            }
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// How high a limit is.
    pub(crate) fn limit(&mut self, which: Limit) -> Result<u32, Error> {
        let mut limit = None;
        let question =
            Question { family: self.family, command: GET_LIMITS, dump: false, attributes: &[] };
        let asked = self.netlink.ask(question, |answer| {
            let said = answer.find(which.attribute());
            limit = limit.or_else(|| u32_of(said?));
        });
        asked.map_err(|error| Error::os("ask for MPTCP's limits", error))?;
        Ok(limit.unwrap_or(0))
    }

    /// Changes it; the other stays.
    pub(crate) fn set_limit(&mut self, which: Limit, limit: u32) -> Result<(), Error> {
        let told = self.tell(SET_LIMITS, &attribute(which.attribute(), &limit.to_ne_bytes()));
        told.map_err(|error| Error::os("set MPTCP's limits", error))
    }

    /// Endpoints that somebody put there.
    fn listed(&mut self) -> io::Result<Vec<Listed>> {
        let mut listed = Vec::new();
        let question =
            Question { family: self.family, command: GET_ADDR, dump: true, attributes: &[] };
        self.netlink.ask(question, |answer| {
            let entry = answer.find(ADDR).and_then(|entry| listed_of(Attributes(entry)));
            listed.extend(entry.filter(|entry| entry.flags & FLAG_IMPLICIT == 0));
        })?;
        Ok(listed)
    }

    fn tell(&mut self, command: u8, attributes: &[u8]) -> io::Result<()> {
        let family = self.family;
        self.netlink.ask(Question { family, command, dump: false, attributes }, |_| {})
    }
}

impl Limit {
    const fn attribute(self) -> u16 {
        match self {
            Self::Announced => RCV_ADD_ADDRS,
            Self::Subflows => SUBFLOWS,
        }
    }
}

fn addition(endpoint: &Endpoint, index: u32) -> Vec<u8> {
    let backup = if endpoint.backup { FLAG_BACKUP } else { 0 };
    let mesh = if endpoint.mesh { FLAG_FULLMESH } else { 0 };
    let flags = FLAG_SUBFLOW | backup | mesh;
    let inner = [
        address_of(endpoint.address),
        attribute(ADDR_FLAGS, &flags.to_ne_bytes()),
        attribute(ADDR_INDEX, &index.to_ne_bytes()),
    ];
    attribute(ADDR | NESTED, &inner.concat())
}

fn address_of(address: IpAddr) -> Vec<u8> {
    let (family, address) = match address {
        IpAddr::V4(v4) => (libc::AF_INET, attribute(ADDR_V4, &v4.octets())),
        IpAddr::V6(v6) => (libc::AF_INET6, attribute(ADDR_V6, &v6.octets())),
    };
    let family = u16::try_from(family).unwrap_or_default();
    [attribute(ADDR_FAMILY, &family.to_ne_bytes()), address].concat()
}

fn listed_of(entry: Attributes<'_>) -> Option<Listed> {
    let v4 = entry.find(ADDR_V4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok());
    let v6 = entry.find(ADDR_V6).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok());
    let &[id] = entry.find(ADDR_ID)? else { return None };
    let flags = entry.find(ADDR_FLAGS).and_then(u32_of).unwrap_or(0);
    let address = v4.map(IpAddr::from).or_else(|| v6.map(IpAddr::from))?;
    Some(Listed { id, address, flags })
}

fn u32_of(value: &[u8]) -> Option<u32> {
    value.try_into().ok().map(u32::from_ne_bytes)
}

fn is_one_of(error: &io::Error, codes: &[i32]) -> bool {
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn an_addition_has_the_bytes_of_the_header_file() {
        let address = "10.2.0.2".parse().unwrap();
        let endpoint = Endpoint { link: "eth1".to_owned(), address, backup: true, mesh: false };
        if cfg!(target_endian = "little") {
            #[rustfmt::skip]
            assert_eq!(addition(&endpoint, 3), [
                36, 0, 1, 0x80,
                6, 0, 1, 0, 2, 0, 0, 0,
                8, 0, 3, 0, 10, 2, 0, 2,
                8, 0, 6, 0, 6, 0, 0, 0,
                8, 0, 7, 0, 3, 0, 0, 0,
            ]);
        }
        let mesh = Endpoint { backup: false, mesh: true, ..endpoint };
        let flags = u32_of(&addition(&mesh, 3)[24..28]);
        assert_eq!(flags, Some(FLAG_SUBFLOW | FLAG_FULLMESH));
    }

    #[test]
    fn what_is_listed_is_read() {
        let v6: IpAddr = "2001:db8::7".parse().unwrap();
        let flags = (FLAG_SUBFLOW | FLAG_BACKUP).to_ne_bytes();
        let entry = [
            address_of(v6),
            attribute(ADDR_ID, &[4]),
            attribute(ADDR_FLAGS, &flags),
            attribute(99, b"newer"),
        ];
        let listed = listed_of(Attributes(&entry.concat()));
        let flags = FLAG_SUBFLOW | FLAG_BACKUP;
        assert_eq!(listed, Some(Listed { id: 4, address: v6, flags }));
        assert_eq!(listed_of(Attributes(&attribute(ADDR_ID, &[4]))), None);
        assert_eq!(listed_of(Attributes(&address_of(v6))), None);
    }

    proptest! {
        #[test]
        fn nothing_that_is_listed_is_too_strange(bytes: Vec<u8>) {
            let _ = listed_of(Attributes(&bytes));
        }
    }
}
