//! What was there comes back, and nothing else is overwritten.

use std::{
    fs,
    os::unix::fs::{PermissionsExt, symlink},
    path::PathBuf,
};

use super::*;

const ORIGINAL: &str = "nameserver 192.0.2.1\noptions edns0\n";

struct Host {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Host {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("resolv.conf");
        Self { _dir: dir, path }
    }

    fn with_file() -> Self {
        let host = Self::new();
        fs::write(&host.path, ORIGINAL).unwrap();
        fs::set_permissions(&host.path, fs::Permissions::from_mode(0o640)).unwrap();
        host
    }

    fn text(&self) -> String {
        fs::read_to_string(&self.path).unwrap()
    }
}

fn dns(server: &str) -> Dns {
    Dns {
        servers: vec![server.parse().unwrap()],
        domains: vec!["corp.example".to_owned()],
        all: true,
    }
}

#[test]
fn a_file_comes_back_with_its_permissions_and_no_other_bit_of_its_mode() {
    let host = Host::with_file();
    fs::set_permissions(&host.path, fs::Permissions::from_mode(0o6640)).unwrap();
    install(Named::Tunnel(&dns("10.7.0.1")), &host.path, &mut Replaced::default()).unwrap();
    let text = host.text();
    assert!(text.contains("\nnameserver 10.7.0.1\nsearch corp.example\n"), "{text}");
    assert!(!text.contains("\nnameserver 192.0.2.1"), "{text}");
    let mode = || fs::metadata(&host.path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(), 0o644);
    remove(&host.path, &Replaced::default()).unwrap();
    assert_eq!(host.text(), ORIGINAL);
    assert_eq!(mode(), 0o640);
}

#[test]
fn a_link_comes_back_as_a_link_and_its_target_is_not_touched() {
    let host = Host::new();
    let target = host.path.with_file_name("stub-resolv.conf");
    fs::write(&target, ORIGINAL).unwrap();
    symlink("stub-resolv.conf", &host.path).unwrap();
    install(Named::Tunnel(&dns("10.7.0.1")), &host.path, &mut Replaced::default()).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), ORIGINAL);
    remove(&host.path, &Replaced::default()).unwrap();
    assert_eq!(fs::read_link(&host.path).unwrap(), PathBuf::from("stub-resolv.conf"));
}

#[test]
fn where_nothing_was_nothing_stays() {
    let host = Host::new();
    install(Named::Tunnel(&dns("10.7.0.1")), &host.path, &mut Replaced::default()).unwrap();
    remove(&host.path, &Replaced::default()).unwrap();
    assert!(!host.path.exists());
    remove(&host.path, &Replaced::default()).unwrap();
}

#[test]
fn what_somebody_else_wrote_is_kept() {
    let host = Host::with_file();
    install(Named::Tunnel(&dns("10.7.0.1")), &host.path, &mut Replaced::default()).unwrap();
    let theirs = ["nameserver 198.51.100.1\n".to_owned(), host.text() + "options edns0\n"];
    for theirs in theirs {
        fs::write(&host.path, &theirs).unwrap();
        assert!(!is_in_place(Named::Tunnel(&dns("10.7.0.1")), &host.path).unwrap());
        remove(&host.path, &Replaced::default()).unwrap();
        assert_eq!(host.text(), theirs);
    }
}

#[test]
fn new_settings_keep_the_first_original() {
    let host = Host::with_file();
    for server in ["10.7.0.1", "10.7.0.2", "10.7.0.2"] {
        install(Named::Tunnel(&dns(server)), &host.path, &mut Replaced::default()).unwrap();
        assert!(is_in_place(Named::Tunnel(&dns(server)), &host.path).unwrap());
        assert!(!is_in_place(Named::Tunnel(&dns("10.7.0.3")), &host.path).unwrap());
    }
    remove(&host.path, &Replaced::default()).unwrap();
    assert_eq!(host.text(), ORIGINAL);
}

#[test]
fn what_came_between_two_settings_is_the_new_original() {
    let host = Host::with_file();
    install(Named::Tunnel(&dns("10.7.0.1")), &host.path, &mut Replaced::default()).unwrap();
    fs::write(&host.path, "nameserver 198.51.100.1\n").unwrap();
    install(Named::Tunnel(&dns("10.7.0.2")), &host.path, &mut Replaced::default()).unwrap();
    remove(&host.path, &Replaced::default()).unwrap();
    assert_eq!(host.text(), "nameserver 198.51.100.1\n");
}

#[test]
fn the_longest_original_comes_back_and_a_longer_one_is_left_alone() {
    let host = Host::new();
    let longest = "\n".repeat(64 << 10);
    fs::write(&host.path, &longest).unwrap();
    install(Named::Tunnel(&dns("10.7.0.1")), &host.path, &mut Replaced::default()).unwrap();
    install(Named::Tunnel(&dns("10.7.0.2")), &host.path, &mut Replaced::default()).unwrap();
    remove(&host.path, &Replaced::default()).unwrap();
    assert!(host.text() == longest);
    fs::write(&host.path, longest + "\n").unwrap();
    install(Named::Tunnel(&dns("10.7.0.1")), &host.path, &mut Replaced::default()).unwrap_err();
}

#[test]
fn the_servers_are_those_that_somebody_else_wrote_last() {
    let host = Host::with_file();
    let at = |server: &str| SocketAddr::new(server.parse().unwrap(), PORT);
    install(Named::Tunnel(&dns("10.7.0.1")), &host.path, &mut Replaced::default()).unwrap();
    assert_eq!(servers(&host.path), [at("192.0.2.1")]);
    // A DHCP client on another network, before anybody put ours back.
    let text = "nameserver 2001:db8::53\nnameserver fe80::1%lo\nnameserver fe80::1%nowhere\n";
    fs::write(&host.path, text).unwrap();
    let neighbour = SocketAddrV6::new("fe80::1".parse().unwrap(), PORT, 0, 1);
    assert_eq!(servers(&host.path), [at("2001:db8::53"), neighbour.into()]);
}

#[test]
fn a_forwarder_keeps_the_search_list_and_the_options() {
    let host = Host::new();
    let original = "# by hand\nnameserver 192.0.2.1\nsearch lan.example\n options edns0 \nfamily\n";
    fs::write(&host.path, original).unwrap();
    let named = Named::Forwarder(Ipv4Addr::new(127, 0, 0, 77));
    install(named, &host.path, &mut Replaced::default()).unwrap();
    let lines = "nameserver 127.0.0.77\nsearch lan.example\noptions edns0\n# The original";
    assert!(host.text().contains(lines), "{}", host.text());
    assert!(is_in_place(named, &host.path).unwrap());
    assert_eq!(servers(&host.path), ["192.0.2.1:53".parse().unwrap()]);
    remove(&host.path, &Replaced::default()).unwrap();
    assert_eq!(host.text(), original);
}

#[test]
fn a_text_that_was_made_from_ours_is_no_original() {
    let host = Host::with_file();
    let mut replaced = Replaced::default();
    let change = || {
        let text =
            host.text().replace("nameserver 10.7.0.1", "nameserver 10.7.0.1\noptions rotate");
        fs::write(&host.path, text).unwrap();
    };
    install(Named::Tunnel(&dns("10.7.0.1")), &host.path, &mut replaced).unwrap();
    change();
    install(Named::Tunnel(&dns("10.7.0.1")), &host.path, &mut replaced).unwrap();
    change();
    remove(&host.path, &replaced).unwrap();
    assert_eq!(host.text(), ORIGINAL);
    // Any other text is newer than Rove's, and stays.
    install(Named::Tunnel(&dns("10.7.0.1")), &host.path, &mut replaced).unwrap();
    fs::write(&host.path, "nameserver 192.0.2.9\n").unwrap();
    install(Named::Tunnel(&dns("10.7.0.1")), &host.path, &mut replaced).unwrap();
    remove(&host.path, &replaced).unwrap();
    assert_eq!(host.text(), "nameserver 192.0.2.9\n");
}

/// How the file looks after `remove`, if another program wrote `theirs` while Rove was up: with
/// and without a repair by Rove in between.
fn after(named: Named<'_>, original: &str, theirs: &str) -> [String; 2] {
    [false, true].map(|is_repaired| {
        let (host, mut replaced) = (Host::new(), Replaced::default());
        fs::write(&host.path, original).unwrap();
        install(named, &host.path, &mut replaced).unwrap();
        fs::write(&host.path, theirs).unwrap();
        if is_repaired {
            install(named, &host.path, &mut replaced).unwrap();
            install(named, &host.path, &mut replaced).unwrap();
        }
        remove(&host.path, &replaced).unwrap();
        host.text()
    })
}

#[test]
fn servers_of_the_tunnel_that_another_program_copied_are_no_original() {
    let inner = dns("10.7.0.1");
    let inner = Named::Tunnel(&inner);
    let copied = "nameserver 10.7.0.1\nsearch corp.example\n";
    assert_eq!(after(inner, ORIGINAL, copied), [ORIGINAL; 2]);
    let both = "nameserver 10.7.0.1\nsearch lan.example\nnameserver 198.51.100.1";
    let rest = "search lan.example\nnameserver 198.51.100.1";
    assert_eq!(after(inner, ORIGINAL, both), [rest; 2]);
    let forwarder = Named::Forwarder(Ipv4Addr::new(127, 0, 0, 77));
    assert_eq!(after(forwarder, ORIGINAL, "nameserver 127.0.0.77\n"), [ORIGINAL; 2]);
    // A public server answers without the tunnel, too.
    let public = dns("9.9.9.9");
    let theirs = "nameserver 9.9.9.9\n";
    assert_eq!(after(Named::Tunnel(&public), ORIGINAL, theirs), [theirs; 2]);
    // An original that named the tunnel's server before Rove did is the user's choice.
    assert_eq!(after(inner, copied, copied), [copied; 2]);
    assert_eq!(after(inner, copied, theirs), [theirs; 2]);
}
