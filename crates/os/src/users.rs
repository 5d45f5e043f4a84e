//! Which user of this host a flow belongs to (`sock_diag`), and a user's number.
//!
//! For the control thread: each question is one exchange with the kernel, some 20 us.

use std::{fs, io, net::SocketAddr};

use crate::{
    error::Error,
    netlink::sockets::{self, NOBODY, Protocol},
};

const USERS: &str = "/etc/passwd";

/// The user whose socket sends from `local` to `remote` by the IP protocol with this number; `None`
/// if no socket of this host does, or no program holds it any more.
///
/// # Errors
/// [`Error::Os`] if the kernel does not answer.
pub fn user_of(protocol: u8, local: SocketAddr, remote: SocketAddr) -> Result<Option<u32>, Error> {
    let protocol = match i32::from(protocol) {
        libc::IPPROTO_TCP => Protocol::Tcp,
        libc::IPPROTO_UDP => Protocol::Udp,
        _ => return Ok(None),
    };
    match sockets::user_of(protocol, local, remote) {
        Ok(user) => Ok(Some(user).filter(|&user| user != NOBODY)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::os("find the user of a socket (sock_diag)", error)),
    }
}

/// The number of the user with that name in `/etc/passwd`; no directory service is asked.
pub fn number_of(name: &str) -> Option<u32> {
    number_in(&fs::read_to_string(USERS).ok()?, name)
}

/// The number of a user in the text of passwd(5).
fn number_in(users: &str, name: &str) -> Option<u32> {
    users.lines().find_map(|line| {
        let mut fields = line.strip_prefix(name)?.strip_prefix(':')?.split(':');
        fields.nth(1)?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    const TEXT: &str = "root:x:0:0:root:/root:/bin/sh\nanna:x:1000:1000::/srv/anna:/bin/sh\n\
                        annabel:x:1001:1001::/:/bin/sh\nbroken\n";

    #[test]
    fn a_name_has_the_number_of_its_line() {
        assert_eq!(number_in(TEXT, "root"), Some(0));
        assert_eq!(number_in(TEXT, "anna"), Some(1_000));
        assert_eq!(number_in(TEXT, "annabel"), Some(1_001));
        assert_eq!((number_in(TEXT, "ann"), number_in(TEXT, "broken")), (None, None));
    }

    #[test]
    fn a_flow_without_a_socket_has_no_user() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap();
        let nobody = SocketAddr::from(([192, 0, 2, 77], 1));
        assert_eq!(user_of(6, nobody, own).unwrap(), None);
        assert_eq!(user_of(17, nobody, own).unwrap(), None);
        assert_eq!(user_of(47, nobody, own).unwrap(), None, "no protocol with sockets");
    }
}
