//! Wakes the owner of a [`Plan`](crate::plan::Plan) when another program may have changed a part of
//! it.
//!
//! It has three sources, because the kernel has no single one: rtnetlink(7) for links, addresses,
//! routes, rules and the forwarding settings; nfnetlink for nftables tables; inotify(7) for the
//! resolver's file. It decides which changes can concern a plan, and which process made them as far
//! as the kernel reports it. It does not know the plan. The kernel reports no changes of some
//! settings (`arp_ignore`, `accept_ra`), so the caller must check these from time to time.

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs, io,
    os::{
        fd::{AsRawFd, FromRawFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    time::Duration,
};

use mio::{Events, Interest, Poll, Token, unix::SourceFd};
use netlink_sys::{
    Socket,
    protocols::{NETLINK_NETFILTER, NETLINK_ROUTE},
};

use crate::{error::Error, plan};

/// Groups of linux/rtnetlink.h that report the items of a plan.
const ROUTING_GROUPS: [u32; 9] = [
    libc::RTNLGRP_LINK,
    libc::RTNLGRP_IPV4_IFADDR,
    libc::RTNLGRP_IPV6_IFADDR,
    libc::RTNLGRP_IPV4_ROUTE,
    libc::RTNLGRP_IPV6_ROUTE,
    libc::RTNLGRP_IPV4_RULE,
    RTNLGRP_IPV6_RULE,
    RTNLGRP_IPV4_NETCONF,
    RTNLGRP_IPV6_NETCONF,
];
const RTNLGRP_IPV6_RULE: u32 = 19;
const RTNLGRP_IPV4_NETCONF: u32 = 24;
const RTNLGRP_IPV6_NETCONF: u32 = 25;
/// Group of linux/netfilter/nfnetlink.h: changes of nftables.
const NFNLGRP_NFTABLES: u32 = 7;
/// Subsystem of nftables, in the upper byte of a message's type.
const NFNL_SUBSYS_NFTABLES: u16 = 10;
/// The message that ends a transaction and names its process (linux/netfilter/nf_tables.h).
const NFT_MSG_NEWGEN: u16 = 15;
const NFTA_GEN_PROC_PID: u16 = 2;
const NFTA_GEN_PROC_NAME: u16 = 3;
/// First attribute of each message about a table or its contents: the table's name.
const NFTA_TABLE: u16 = 1;
/// Bytes of `nfgenmsg` before the attributes.
const NFGENMSG_LEN: usize = 4;
/// Bytes of `rtmsg` before the attributes, and the position of the table in it.
const RTMSG_LEN: usize = 12;
const RTMSG_TABLE: usize = 4;
const RTMSG_PROTOCOL: usize = 5;
const RTA_TABLE: u16 = 15;
/// The type part of an attribute's type, without its flags.
const NLA_TYPE_MASK: u16 = 0x3fff;
const NLMSG_HEADER_LEN: usize = 16;

/// Messages of each source that one wait reads. If there are more, the next wait ends at once.
const MESSAGES_MAX: usize = 1_024;
/// Bytes of a process name that are shown at most.
const NAME_MAX: usize = 64;

const ROUTING: Token = Token(0);
const FILTER: Token = Token(1);
const RESOLVER: Token = Token(2);

/// The part of the host that may have changed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Area {
    /// Links, addresses, routes, rules or forwarding.
    Routing,
    /// One of Rove's tables of nftables.
    Filter,
    /// The resolver's file.
    Resolver,
}

/// A reported change.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Change {
    /// The part that changed.
    pub area: Area,
    /// The process that changed it, if the kernel reports it: `nft (process 812)`.
    pub by: Option<String>,
}

/// Listens for changes in the network namespace that it was opened in.
#[derive(Debug)]
pub struct Watch {
    poll: Poll,
    events: Events,
    routing: Socket,
    /// None where the kernel has no nftables.
    filter: Option<Socket>,
    transaction: Transaction,
    resolver: Option<ResolverFile>,
}

impl Watch {
    /// Begins to listen. On a host without nftables, or without the resolver's directory, there are
    /// no reports of them.
    ///
    /// # Errors
    /// [`Error::Os`] where a sandbox forbids netlink.
    pub fn open(resolv_conf: &Path) -> Result<Self, Error> {
        let failed = |error| Error::os("listen to changes of the network's settings", error);
        let poll = Poll::new().map_err(failed)?;
        let routing = listen(NETLINK_ROUTE, &ROUTING_GROUPS).map_err(failed)?;
        let filter = listen(NETLINK_NETFILTER, &[NFNLGRP_NFTABLES]).ok();
        let resolver = ResolverFile::watch(resolv_conf).ok();
        let (events, transaction) = (Events::with_capacity(4), Transaction::default());
        let watch = Self { poll, events, routing, filter, transaction, resolver };
        watch.register(ROUTING, watch.routing.as_raw_fd()).map_err(failed)?;
        if let Some(filter) = &watch.filter {
            watch.register(FILTER, filter.as_raw_fd()).map_err(failed)?;
        }
        if let Some(resolver) = &watch.resolver {
            watch.register(RESOLVER, resolver.fd.as_raw_fd()).map_err(failed)?;
        }
        Ok(watch)
    }

    fn register(&self, token: Token, fd: i32) -> io::Result<()> {
        self.poll.registry().register(&mut SourceFd(&fd), token, Interest::READABLE)
    }

    /// Waits at most `patience` for changes that may concern a plan. Returns each change once. If
    /// the kernel dropped reports for lack of room, that counts as a change by an unknown process.
    ///
    /// # Errors
    /// [`Error::Os`] if a source no longer works: open another watch.
    pub fn wait(&mut self, patience: Duration) -> Result<BTreeSet<Change>, Error> {
        let failed = |error| Error::os("hear of changes of the network's settings", error);
        match self.poll.poll(&mut self.events, Some(patience)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(failed(error)),
            Ok(()) | Err(_) => {}
        }
        let mut changes = BTreeSet::new();
        read(&self.routing, |message| changes.extend(routing_change(message))).map_err(failed)?;
        if let Some(filter) = &self.filter {
            let transaction = &mut self.transaction;
            read(filter, |message| changes.extend(transaction.take(message))).map_err(failed)?;
        }
        if let Some(resolver) = &self.resolver
            && resolver.has_changed().map_err(failed)?
        {
            changes.insert(Change { area: Area::Resolver, by: None });
        }
        Ok(changes)
    }
}

fn listen(protocol: isize, groups: &[u32]) -> io::Result<Socket> {
    let mut socket = Socket::new(protocol)?;
    socket.bind_auto()?;
    socket.set_non_blocking(true)?;
    groups.iter().try_for_each(|&group| socket.add_membership(group))?;
    Ok(socket)
}

/// One message of netlink(7).
#[derive(Clone, Copy)]
struct Message<'a> {
    kind: u16,
    /// The sender's port. For the first socket of an ordinary program, this is its process ID.
    port: u32,
    body: &'a [u8],
}

/// Reads the waiting messages. `None` stands for messages that the kernel dropped for lack of room.
fn read(socket: &Socket, mut each: impl FnMut(Option<Message<'_>>)) -> io::Result<()> {
    for _ in 0..MESSAGES_MAX {
        match socket.recv_from_full() {
            Ok((bytes, _)) => messages(&bytes).for_each(|message| each(Some(message))),
            Err(error) => match error.raw_os_error() {
                Some(libc::ENOBUFS) => each(None),
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => return Ok(()),
                Some(_) | None => return Err(error),
            },
        }
    }
    Ok(())
}

fn messages(mut bytes: &[u8]) -> impl Iterator<Item = Message<'_>> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 0)? as usize;
        let message = bytes.get(NLMSG_HEADER_LEN..length)?;
        let found = Message { kind: u16_at(bytes, 4)?, port: u32_at(bytes, 12)?, body: message };
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some(found)
    })
}

/// The attributes after a fixed header (netlink(7), `nlattr`).
fn attributes(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let length = usize::from(u16_at(bytes, 0)?);
        let kind = u16_at(bytes, 2)? & NLA_TYPE_MASK;
        let value = bytes.get(4..length)?;
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((kind, value))
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|value| u16::from_ne_bytes(*value))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|value| u32::from_ne_bytes(*value))
}

/// A routing change that may concern a plan. Only routes in Rove's table count, because an Internet
/// router receives other routes all the time.
fn routing_change(message: Option<Message<'_>>) -> Option<Change> {
    let area = Area::Routing;
    let Some(message) = message else { return Some(Change { area, by: None }) };
    let concerns = match message.kind {
        // Rove makes thousands of routes at once if thousands of networks are excluded.
        libc::RTM_NEWROUTE if is_route_of_rove(message.body) => false,
        libc::RTM_NEWROUTE | libc::RTM_DELROUTE => route_table(message.body) == Some(plan::TABLE),
        _ => true,
    };
    concerns.then(|| Change { area, by: process(message.port, None) })
}

/// Whether a route has Rove's originator.
fn is_route_of_rove(body: &[u8]) -> bool {
    body.get(RTMSG_PROTOCOL) == Some(&plan::ROUTE_PROTOCOL)
}

fn route_table(body: &[u8]) -> Option<u32> {
    let attribute = attributes(body.get(RTMSG_LEN..)?).find(|(kind, _)| *kind == RTA_TABLE);
    match attribute {
        Some((_, value)) => u32_at(value, 0),
        None => body.get(RTMSG_TABLE).map(|&table| table.into()),
    }
}

/// The messages of one nftables transaction. The last one names the process.
#[derive(Debug, Default)]
struct Transaction {
    /// One of its messages concerned a table of Rove.
    concerns: bool,
}

impl Transaction {
    fn take(&mut self, message: Option<Message<'_>>) -> Option<Change> {
        let area = Area::Filter;
        let Some(message) = message else { return Some(Change { area, by: None }) };
        if message.kind >> 8 != NFNL_SUBSYS_NFTABLES {
            return None;
        }
        let body = message.body.get(NFGENMSG_LEN..)?;
        if message.kind & 0xff == NFT_MSG_NEWGEN {
            let concerns = std::mem::take(&mut self.concerns);
            return concerns.then(|| Change { area, by: author(body) });
        }
        let table = attributes(body).find(|(kind, _)| *kind == NFTA_TABLE);
        let name = table.map(|(_, name)| name.strip_suffix(&[0]).unwrap_or(name));
        self.concerns |=
            name.is_some_and(|name| name.starts_with(plan::FILTER_TABLE_PREFIX.as_bytes()));
        None
    }
}

fn author(body: &[u8]) -> Option<String> {
    let find = |wanted| attributes(body).find(|(kind, _)| *kind == wanted).map(|(_, value)| value);
    let pid = find(NFTA_GEN_PROC_PID)?.first_chunk().map(|pid| u32::from_be_bytes(*pid))?;
    let name = find(NFTA_GEN_PROC_NAME).map(|name| name.strip_suffix(&[0]).unwrap_or(name));
    process(pid, name)
}

/// The name of a process for people. Port 0 is the kernel. Ports above the range of process IDs
/// belong to a program's second socket and identify no process.
fn process(pid: u32, name: Option<&[u8]>) -> Option<String> {
    if pid == 0 || i32::try_from(pid).is_err() {
        return None;
    }
    let alive = || fs::read(format!("/proc/{pid}/comm")).ok();
    let name = name.map(<[u8]>::to_vec).or_else(alive);
    let shown = name.map(|name| {
        let text = String::from_utf8_lossy(&name);
        let printable = text.trim().chars().filter(|one| !one.is_control());
        printable.take(NAME_MAX).collect::<String>()
    });
    Some(match shown.filter(|name| !name.is_empty()) {
        Some(name) => format!("{name} (process {pid})"),
        None => format!("a process that has ended ({pid})"),
    })
}

/// Watches the resolver's file through its directory, because a file that is replaced as a whole is
/// another file.
#[derive(Debug)]
struct ResolverFile {
    fd: OwnedFd,
    name: PathBuf,
}

impl ResolverFile {
    fn watch(path: &Path) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
        let directory = path.parent().ok_or_else(invalid)?;
        let name = PathBuf::from(path.file_name().ok_or_else(invalid)?);
        let directory =
            std::ffi::CString::new(directory.as_os_str().as_bytes()).map_err(|_| invalid())?;
        // SAFETY: the call takes no pointer.
        let fd = unsafe { libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made, and nobody else has it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let events = libc::IN_CLOSE_WRITE
            | libc::IN_CREATE
            | libc::IN_DELETE
            | libc::IN_MOVED_TO
            | libc::IN_MOVED_FROM;
        // SAFETY: the path is a C string that lives through the call.
        let added = unsafe { libc::inotify_add_watch(fd.as_raw_fd(), directory.as_ptr(), events) };
        if added < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { fd, name }) }
    }

    /// Whether the file changed since the last call.
    fn has_changed(&self) -> io::Result<bool> {
        let mut changed = false;
        let mut room = [0u8; 4_096];
        for _ in 0..MESSAGES_MAX {
            // SAFETY: the pointer and the length are those of a live, writable array.
            let got =
                unsafe { libc::read(self.fd.as_raw_fd(), room.as_mut_ptr().cast(), room.len()) };
            let Ok(got) = usize::try_from(got) else {
                let error = io::Error::last_os_error();
                return match error.raw_os_error() {
                    Some(libc::EAGAIN) => Ok(changed),
                    Some(libc::EINTR) => continue,
                    Some(_) | None => Err(error),
                };
            };
            changed |= names(&room[..got]).any(|name| self.name == OsStr::from_bytes(name));
        }
        Ok(changed)
    }
}

/// The names in inotify(7) events. An event is `wd`, `mask`, `cookie`, `len`, and `len` bytes of a
/// name that ends in zeros. An event without a name (queue overflow, or the directory itself) gives
/// an empty name.
fn names(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = u32_at(bytes, 12)? as usize;
        let name = bytes.get(16..16 + length)?;
        bytes = bytes.get(16 + length..).unwrap_or_default();
        Some(name.split(|&byte| byte == 0).next().unwrap_or_default())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, port: u32, body: &[u8]) -> Vec<u8> {
        let length = (NLMSG_HEADER_LEN + body.len()) as u32;
        let mut bytes = length.to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([0; 6]);
        bytes.extend(port.to_ne_bytes());
        bytes.extend(body);
        bytes
    }

    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = (4 + value.len() as u16).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn route(table: u32) -> Vec<u8> {
        let mut body = vec![0; RTMSG_LEN];
        body.extend(attribute(RTA_TABLE, &table.to_ne_bytes()));
        message(libc::RTM_DELROUTE, 0, &body)
    }

    fn changes(bytes: &[u8]) -> Vec<Change> {
        messages(bytes).filter_map(|message| routing_change(Some(message))).collect()
    }

    #[test]
    fn of_routes_only_those_of_our_table_count() {
        assert_eq!(changes(&route(254)), []);
        assert_eq!(changes(&route(plan::TABLE)), [Change { area: Area::Routing, by: None }]);
        assert_eq!(changes(&message(libc::RTM_DELRULE, 0, &[0; 12])).len(), 1);
        assert_eq!(routing_change(None), Some(Change { area: Area::Routing, by: None }));
    }

    #[test]
    fn a_transaction_of_our_table_names_its_author() {
        let nft = |kind, attributes: &[u8]| {
            let body = [&[0; NFGENMSG_LEN], attributes].concat();
            message(NFNL_SUBSYS_NFTABLES << 8 | kind, 0, &body)
        };
        let table = |name: &str| nft(2, &attribute(NFTA_TABLE, format!("{name}\0").as_bytes()));
        let pid = attribute(NFTA_GEN_PROC_PID, &812u32.to_be_bytes());
        let end = nft(NFT_MSG_NEWGEN, &[pid, attribute(NFTA_GEN_PROC_NAME, b"nft\0")].concat());
        let hear = |bytes: &[u8]| -> Vec<Change> {
            let mut transaction = Transaction::default();
            messages(bytes).filter_map(|message| transaction.take(Some(message))).collect()
        };
        assert_eq!(hear(&[table("docker"), end.clone()].concat()), []);
        let ours = [table("docker"), table(plan::GATEWAY_TABLE), end.clone(), end].concat();
        let by = Some("nft (process 812)".to_owned());
        assert_eq!(hear(&ours), [Change { area: Area::Filter, by }]);
    }

    #[test]
    fn bytes_that_are_no_message_end_the_reading() {
        for bytes in [&[][..], &[1], &[0; 40], &[255; 40], &[20, 0, 0, 0, 1]] {
            assert_eq!(messages(bytes).count(), 0);
            assert_eq!(attributes(&bytes[..bytes.len().min(4)]).count(), 0);
        }
        assert_eq!(names(&[0; 15]).count(), 0);
        assert_eq!(names(&[255; 64]).count(), 0);
    }

    #[test]
    fn a_process_is_named_by_the_kernel_alone() {
        assert_eq!(process(0, None), None);
        assert_eq!(process(u32::MAX, None), None);
        assert_eq!(process(7, Some(b"a\x1b[2Jb\n")).unwrap(), "a[2Jb (process 7)");
        assert!(process(std::process::id(), None).unwrap().contains("(process "));
    }

    #[test]
    fn a_resolver_file_that_is_replaced_is_news_and_its_neighbour_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resolv.conf");
        let file = ResolverFile::watch(&path).unwrap();
        fs::write(dir.path().join("hosts"), "").unwrap();
        assert!(!file.has_changed().unwrap());
        fs::write(dir.path().join("new"), "nameserver 192.0.2.1\n").unwrap();
        fs::rename(dir.path().join("new"), &path).unwrap();
        assert!(file.has_changed().unwrap());
        assert!(!file.has_changed().unwrap());
        fs::remove_file(&path).unwrap();
        assert!(file.has_changed().unwrap());
    }
}
