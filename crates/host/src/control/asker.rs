//! Who is at the other end of a control connection, and whether it may ask.

use std::fs;
use std::os::unix::net::UnixStream;

use rustix::net::sockopt::socket_peercred;

/// The group whose members may control a node.
const GROUP: &str = "rove";
const GROUP_FILE: &str = "/etc/group";
const USER_FILE: &str = "/etc/passwd";

/// The rights of the process at the other end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Asker {
    /// Root, or the user that the node runs as.
    Owner,
    /// A member of the group.
    Member,
    /// Somebody who may not ask.
    Other,
}

/// Who connected, by the credentials that the kernel noted then (SO_PEERCRED, unix(7)).
///
/// Membership is looked up in the local user and group files, and in the primary group of the
/// process; a group that only a directory service knows does not count.
pub(super) fn of(stream: &UnixStream) -> Asker {
    let Ok(credentials) = socket_peercred(stream) else {
        return Asker::Other;
    };
    let uid = credentials.uid;
    if uid.is_root() || uid == rustix::process::geteuid() {
        return Asker::Owner;
    }
    let groups = fs::read_to_string(GROUP_FILE).unwrap_or_default();
    let users = fs::read_to_string(USER_FILE).unwrap_or_default();
    let user = user_name(&users, uid.as_raw());
    let is_member = is_member(&groups, user, credentials.gid.as_raw());
    if is_member { Asker::Member } else { Asker::Other }
}

/// The name of the user `uid` in the text of passwd(5).
fn user_name(users: &str, uid: u32) -> Option<&str> {
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse::<u32>().ok()? == uid).then_some(name)
    })
}

/// Whether the group is `gid`, or has `user` for a member, in the text of group(5).
fn is_member(groups: &str, user: Option<&str>, gid: u32) -> bool {
    let group = groups.lines().find_map(|line| line.strip_prefix(GROUP)?.strip_prefix(':'));
    let Some(fields) = group.map(|rest| rest.split(':').collect::<Vec<_>>()) else {
        return false;
    };
    let [_password, number, members] = fields.as_slice() else {
        return false;
    };
    let primary = number.parse::<u32>().is_ok_and(|number| number == gid);
    primary || user.is_some_and(|user| members.split(',').any(|member| member.trim() == user))
}

#[cfg(test)]
mod tests {
    use super::*;

    const USERS: &str = "root:x:0:0::/root:/bin/sh\nana:x:1000:1000::/:/bin/sh\nbroken\n";
    const GROUPS: &str = "root:x:0:\nroverlike:x:8:ana\nrove:x:77:bob, ana\n";

    #[test]
    fn members_and_the_primary_group_may_ask() {
        assert_eq!(user_name(USERS, 1000), Some("ana"));
        assert_eq!(user_name(USERS, 1001), None);
        assert!(is_member(GROUPS, Some("ana"), 1000));
        assert!(is_member(GROUPS, None, 77));
        assert!(!is_member(GROUPS, Some("eve"), 8));
        assert!(!is_member("", Some("ana"), 77), "no such group");
        assert!(!is_member("rove:x\n", Some("ana"), 77), "a broken line");
    }
}
