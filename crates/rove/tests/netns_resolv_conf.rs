//! A resolver's file that Rove cannot write, or that a user wants unchanged: the tunnel works all
//! the same, and Rove reports which name servers are used.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::Value;
use support::netns::{
    Lab, Running, download, edit, in_namespace, in_namespace_of_root, need_program, own_etc,
    pattern, serve_pattern, sh,
};

const WEB: &str = "198.51.100.80:80";
const FILE: &str = "/etc/resolv.conf";
const ORIGINAL: &str = "nameserver 192.168.7.53\n";
const INSIDE: &str = "nameserver 10.77.0.1\n";

/// A gateway with a name server, and a client whose own name server is in its local network.
fn begin(what: &str) -> (Lab, Running, String) {
    need_program("the kill switch", "nft");
    own_etc();
    fs::write(FILE, ORIGINAL).unwrap();
    let lab = Lab::new(what);
    let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64";
    lab.rove("gateway", &format!("{line} --dns 10.77.0.1")).ok();
    edit(&lab.home("gateway").join("gateway.toml"), "nat = true", "nat = false");
    let gateway = lab.gateway();
    serve_pattern("server", WEB, 100_000);
    let invite = lab.invite("laptop");
    (lab, gateway, invite)
}

fn servers(lab: &Lab) -> Value {
    let status = lab.rove("client", "status --json").ok();
    serde_json::from_str::<Value>(&status).unwrap()["dns"].clone()
}

/// Connects although the file cannot be written, reports this reason, and disconnects. Does this
/// twice, the second time with a kill switch.
fn carries_all_the_same(lab: &Lab, invite: &str, why: &str) {
    let before = lab.state_of("client");
    for options in ["", "--kill-switch"] {
        let up = lab.rove("client", &format!("up {invite} {options}"));
        assert_eq!(up.code, Some(0), "{why}: {}", up.err);
        let unset = format!("name servers are not asked: cannot write {FILE}: {why}");
        assert!(up.err.contains(&unset), "{}", up.err);
        let lost = "names may not resolve: the gateway's name servers are not set";
        assert!(up.err.contains(lost), "{}", up.err);
        assert!(up.err.contains("add --exclude 192.168.7.53"), "{}", up.err);
        assert!(download("client", WEB).unwrap() == pattern(100_000), "{why}");
        assert_eq!(servers(lab), serde_json::json!([]), "{why}");
        assert_eq!(fs::read_to_string(FILE).unwrap(), ORIGINAL);
        lab.rove("client", "down").ok();
        lab.becomes("client", &before);
    }
}

#[test]
fn a_tunnel_whose_name_servers_cannot_be_set_carries_all_the_same() {
    in_namespace("a_tunnel_whose_name_servers_cannot_be_set_carries_all_the_same", || {
        let (lab, _gateway, invite) = begin("a read-only resolv.conf");
        sh("mount --bind /etc/resolv.conf /etc/resolv.conf
            mount -o remount,ro,bind /etc/resolv.conf");
        carries_all_the_same(&lab, &invite, "its file system is mounted read-only");
        // If the fault is removed while the client is up, the next check sets the name servers.
        lab.rove("client", "up").ok();
        sh("umount /etc/resolv.conf");
        lab.rove("client", "reload").ok();
        assert!(fs::read_to_string(FILE).unwrap().contains(INSIDE));
        assert_eq!(servers(&lab), serde_json::json!(["10.77.0.1"]));
        lab.rove("client", "down").ok();
        assert_eq!(fs::read_to_string(FILE).unwrap(), ORIGINAL);

        sh("mount -o remount,ro,bind /etc");
        carries_all_the_same(&lab, &invite, "its file system is mounted read-only");
        sh("mount -o remount,rw,bind /etc");

        // No room for another file.
        sh("mkdir /run/full && mount -t tmpfs -o size=64k none /run/full
            cp /etc/resolv.conf /etc/nsswitch.conf /etc/hosts /run/full/
            mount --bind /run/full /etc
            dd if=/dev/zero of=/etc/much bs=1k count=64 2>/dev/null || true");
        carries_all_the_same(&lab, &invite, "the disk is full");
    });
}

#[test]
fn an_immutable_file_is_left_as_it_is() {
    in_namespace_of_root("an_immutable_file_is_left_as_it_is", || {
        need_program("an immutable file", "chattr");
        let (lab, _gateway, invite) = begin("an immutable resolv.conf");
        sh("chattr +i /etc/resolv.conf");
        carries_all_the_same(&lab, &invite, "it must not be changed (`lsattr`");
        sh("chattr -i /etc/resolv.conf");
    });
}

/// A symbolic link is replaced by a file and restored, wherever it leads. If it cannot be replaced,
/// its target is written.
#[test]
fn links_come_back_as_they_were() {
    in_namespace("links_come_back_as_they_were", || {
        let (lab, _gateway, invite) = begin("links");
        fs::remove_file(FILE).unwrap();
        symlink("/run/nowhere/resolv.conf", FILE).unwrap();
        lab.rove("client", &format!("up {invite}")).ok();
        assert!(fs::read_to_string(FILE).unwrap().contains(INSIDE));
        lab.rove("client", "down").ok();
        assert_eq!(fs::read_link(FILE).unwrap(), PathBuf::from("/run/nowhere/resolv.conf"));

        fs::create_dir("/run/nowhere").unwrap();
        fs::write("/run/nowhere/resolv.conf", ORIGINAL).unwrap();
        sh("mount -o remount,ro,bind /etc");
        lab.rove("client", "up").ok();
        assert!(fs::read_to_string(FILE).unwrap().contains(INSIDE));
        assert!(fs::symlink_metadata(FILE).unwrap().is_symlink());
        lab.rove("client", "down").ok();
        assert_eq!(fs::read_to_string(FILE).unwrap(), ORIGINAL);
    });
}

#[test]
fn dns_is_left_alone_on_request() {
    in_namespace("dns_is_left_alone_on_request", || {
        let (lab, _gateway, invite) = begin("dns = leave");
        let up = lab.rove("client", &format!("up {invite} --dns leave"));
        assert!(up.err.contains("names may not resolve: dns is set to leave"), "{}", up.err);
        up.ok();
        assert_eq!(fs::read_to_string(FILE).unwrap(), ORIGINAL);
        assert_eq!(servers(&lab), serde_json::json!([]));
        lab.rove("client", "down").ok();

        let config = lab.home("client").join("client.toml");
        fs::write(&config, "[client]\ndns = \"leave\"\nexclude = [\"192.168.7.53/32\"]\n").unwrap();
        let up = lab.rove("client", "up");
        assert_eq!(up.err, "", "the name server is reached");
        up.ok();
        assert_eq!(fs::read_to_string(FILE).unwrap(), ORIGINAL);
        fs::write(&config, "").unwrap();
        lab.rove("client", "reload").ok();
        assert!(fs::read_to_string(FILE).unwrap().contains(INSIDE));
        fs::write(&config, "[client]\ndns = \"leave\"\n").unwrap();
        lab.rove("client", "reload").ok();
        assert_eq!(fs::read_to_string(FILE).unwrap(), ORIGINAL);
        fs::write(&config, "[client]\ndns = \"off\"\n").unwrap();
        let error = lab.rove("client", "reload").fails();
        assert!(error.contains("client.toml:2: client.dns: \"off\" is no way"), "{error}");
        lab.rove("client", "down").ok();
    });
}
