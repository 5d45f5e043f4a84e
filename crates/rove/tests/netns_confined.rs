//! Operations that a running node may no longer perform, tested from outside and read from the
//! kernel.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};

use support::binary;
use support::netns::{
    Lab, in_namespace, in_namespace_of_root, need_program, own_etc, reaches, serve_pattern, sh,
    skip, wait_until,
};

const WEB: &str = "198.51.100.80:80";
/// The user of these tests.
const ROVE: u32 = 64_977;
/// CAP_NET_BIND_SERVICE, CAP_NET_ADMIN and CAP_NET_RAW.
const KEPT: &str = "0000000000003400";

/// Ends a program by a signal that dumps core where that is allowed.
fn abort(mut child: std::process::Child) -> ExitStatus {
    Command::new("kill").args(["-ABRT", &child.id().to_string()]).status().unwrap();
    child.wait().unwrap()
}

#[test]
fn a_gateway_that_crashes_leaves_no_core_dump() {
    in_namespace("a_gateway_that_crashes_leaves_no_core_dump", || {
        let what = "core dumps";
        let lab = Lab::new(what);
        let start = |program: &str, arguments: &[&str]| {
            let mut command = Command::new("prlimit");
            command.arg("--core=unlimited").arg(program).args(arguments);
            command.current_dir(lab.dir.path()).spawn().unwrap()
        };
        let usual = start("sleep", &["1000"]);
        wait_until("it sleeps", || runs(&usual, "sleep"));
        if !abort(usual).core_dumped() {
            return skip(what, "this system makes none");
        }
        lab.gateway().terminate();
        let home = lab.home("gateway");
        let gateway = start(binary(), &["gateway", "run", "--dir", home.to_str().unwrap()]);
        wait_until("the gateway runs", || {
            lab.rove("gateway", "gateway status").out.contains("state         running")
        });
        let ended = abort(gateway);
        assert_eq!(ended.signal(), Some(rustix::process::Signal::ABORT.as_raw()));
        assert!(!ended.core_dumped(), "its keys are in a file");
    });
}

fn runs(child: &std::process::Child, name: &str) -> bool {
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", child.id()));
    comm.is_ok_and(|comm| comm.trim() == name)
}

/// A host with the user that a package creates, and a TUN device that only root may open.
fn lab_with_user(what: &str) -> Lab {
    own_etc();
    sh(&format!(
        "echo 'rove:x:{ROVE}:{ROVE}::/etc/rove:/usr/sbin/nologin' >> /etc/passwd
         echo 'rove:x:{ROVE}:' >> /etc/group
         mknod -m 600 /run/tun c 10 200
         mount --bind /run/tun /dev/net/tun"
    ));
    let lab = Lab::new(what);
    // As /etc: others pass.
    fs::set_permissions(lab.dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
    lab
}

/// The values of a line of /proc/PID/status.
fn status(pid: u32, key: &str) -> Vec<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    line.unwrap().split_whitespace().map(str::to_owned).collect()
}

fn assert_is_the_user(pid: u32) {
    for key in ["Uid", "Gid"] {
        assert_eq!(status(pid, key), vec![ROVE.to_string(); 4], "{key}");
    }
    assert_eq!(status(pid, "Groups"), Vec::<String>::new());
    for key in ["CapEff", "CapPrm", "CapBnd", "CapAmb"] {
        assert_eq!(status(pid, key), [KEPT], "{key}");
    }
    assert_eq!(status(pid, "NoNewPrivs"), ["1"]);
    assert_eq!(status(pid, "Seccomp"), ["2"], "system calls are not filtered");
}

/// The owners of the files below a directory.
fn owners(dir: &Path) -> Vec<(String, u32)> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| (path.display().to_string(), fs::metadata(&path).unwrap().uid())).collect()
}

#[test]
fn a_gateway_of_root_runs_as_its_own_user() {
    in_namespace_of_root("a_gateway_of_root_runs_as_its_own_user", || {
        let lab = lab_with_user("the gateway's user");
        let home = lab.home("gateway");
        let gateway = lab.gateway();
        assert_is_the_user(gateway.child.id());
        let of_node = || owners(&home).into_iter().chain(owners(&home.join("gateway.state")));
        for (path, owner) in of_node() {
            assert_eq!(owner == ROVE, !path.ends_with("operator.key"), "{path} is of {owner}");
        }
        // While no gateway runs, its interface is for nobody else.
        let interface = sh("nsenter --net=/run/netns/gateway ip -details link show rove-gw");
        assert!(interface.contains("user rove "), "{interface}");
        // A process with this user and these capabilities cannot access root's files.
        let secret = lab.dir.path().join("secret");
        fs::write(&secret, "").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        let socket = lab.dir.path().join("socket");
        let _listener = UnixListener::bind(&socket).unwrap();
        fs::set_permissions(&socket, fs::Permissions::from_mode(0o600)).unwrap();
        let with = "+net_admin,+net_raw,+net_bind_service";
        let as_user = format!(
            "setpriv --reuid {ROVE} --regid {ROVE} --clear-groups --inh-caps=-all,{with} \
             --ambient-caps=-all,{with} -- sh -c"
        );
        for path in [secret, socket, "/etc/shadow".into()] {
            sh(&format!("! {as_user} 'test -r {0} || test -w {0}'", path.display()));
        }
        // The gateway cannot read the operator's key, and moves all the same.
        lab.rove("gateway", "gateway move 192.0.2.1:4501").ok();
        // Files that root writes while the node is stopped are the user's too.
        gateway.terminate();
        lab.invite("offline");
        lab.rove("gateway", "gateway move 192.0.2.1:4502").ok();
        // The node's user changes where clients are sent. Only a command that says so signs that.
        support::netns::edit(&home.join("gateway.toml"), ":4502", ":4503");
        let record = || fs::read(home.join("gateway.record")).unwrap();
        let before = record();
        for command in ["status", "peers", "invite tablet", "run"] {
            let error = lab.rove("gateway", &format!("gateway {command}")).fails();
            assert!(error.contains("run `rove gateway sign`"), "{command}: {error}");
            assert_eq!(record(), before, "{command} signed");
        }
        let signed = lab.rove("gateway", "gateway sign").ok();
        assert!(signed.starts_with("signed: endpoints 192.0.2.1:4503"), "{signed}");
        let _gateway = lab.gateway();
        lab.invite("laptop");
        for (path, owner) in of_node() {
            assert_eq!(owner == ROVE, !path.ends_with("operator.key"), "{path} is of {owner}");
        }
    });
}

#[test]
fn a_group_keeps_its_tun_device_and_shares_it_with_its_members() {
    in_namespace_of_root("a_group_keeps_its_tun_device_and_shares_it_with_its_members", || {
        const GROUP: u32 = 64_990;
        let lab = lab_with_user("a group's TUN device");
        let members = |members: &str| {
            sh(&format!(
                "sed -i /^vpn:/d /etc/group; echo 'vpn:x:{GROUP}:{members}' >> /etc/group"
            ));
        };
        sh(&format!("chgrp {GROUP} /dev/net/tun; chmod 660 /dev/net/tun"));
        for (list, is_member) in [("alice,rove", true), ("alice", false)] {
            members(list);
            let gateway = lab.gateway();
            let user = if is_member { ROVE } else { 0 }.to_string();
            assert_eq!(status(gateway.child.id(), "Uid"), vec![user; 4], "{list}");
            if is_member {
                assert_eq!(status(gateway.child.id(), "Groups"), [GROUP.to_string()]);
            } else {
                let (log, why) = (lab.log("gateway"), "/dev/net/tun is for the members of group");
                assert!(log.contains(why) && log.contains("usermod -aG 64990 rove"), "{log}");
            }
            gateway.terminate();
            let tun = fs::metadata("/dev/net/tun").unwrap();
            assert_eq!((tun.gid(), tun.mode() & 0o777), (GROUP, 0o660), "{list}");
        }
    });
}

/// Only Rove's own directories change their owner, and only while nobody but root writes to them.
#[test]
fn no_directory_and_no_file_of_root_is_given_away() {
    in_namespace_of_root("no_directory_and_no_file_of_root_is_given_away", || {
        let lab = lab_with_user("root's directory");
        let init = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24";
        let (root_s, usual) = (lab.home("gateway"), Path::new("/etc/rove"));
        for dir in [&*root_s, usual] {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("not-ours"), "").unwrap();
            sh(&format!("ln -s /etc/shadow {}/gateway.link", dir.display()));
        }
        let owner = |path: &Path| fs::symlink_metadata(path).unwrap().uid();
        // The directory of somebody else, as /root is. The node then stays root.
        lab.rove("gateway", init).ok();
        let gateway = lab.start("gateway", "gateway run");
        wait_until("the gateway tells why", || lab.log("gateway").contains("was not made by Rove"));
        gateway.terminate();
        lab.rove("gateway", "adopt").ok();
        for (path, owner) in owners(&root_s).into_iter().chain([(String::new(), owner(&root_s))]) {
            assert_eq!(owner, 0, "{path}");
        }

        // Its own directory, as an earlier version or root left it.
        let of_usual = |line: &str| {
            let line = format!("{} {line} --dir /etc/rove", binary());
            sh(&line)
        };
        of_usual(init);
        of_usual("adopt");
        assert_eq!(owner(usual), ROVE);
        assert_eq!(owner(Path::new("/etc/shadow")), 0, "a link was followed");
        for (path, owner) in owners(usual) {
            let is_root_s = ["not-ours", "gateway.link", "operator.key"];
            let is_root_s = is_root_s.iter().any(|name| path.ends_with(name));
            assert_eq!(owner == 0, is_root_s, "{path} is of {owner}");
        }

        // From now on the user can rename root's files there.
        sh(&format!(
            "mkdir -m 700 /etc/rove/backups && echo secret > /etc/rove/backups/all
             setpriv --reuid {ROVE} --regid {ROVE} --clear-groups -- sh -e -c '
                 mv /etc/rove/backups /etc/rove/gateway.old
                 mv /etc/rove/operator.key /etc/rove/gateway.new.redb
                 ln -s /etc/shadow /etc/rove/operator.key'"
        ));
        of_usual("adopt");
        for stays in ["gateway.old", "gateway.new.redb"] {
            assert_eq!(owner(&usual.join(stays)), 0, "{stays}");
        }
        let all = usual.join("gateway.old/all");
        assert_eq!((owner(&all), owner(Path::new("/etc/shadow"))), (0, 0));
        sh(&format!("! {} gateway move 192.0.2.1:4600 --dir /etc/rove", binary()));
    });
}

/// Root has groups, for example of a login. A command that root runs on the node's files does not
/// use them.
#[test]
fn the_groups_of_root_open_nothing_for_the_nodes_user() {
    in_namespace_of_root("the_groups_of_root_open_nothing_for_the_nodes_user", || {
        const GROUP: u32 = 64_991;
        let lab = lab_with_user("groups of root");
        let init = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24";
        lab.rove("gateway", init).ok();
        let home = lab.home("gateway");
        let of_group = lab.dir.path().join("of-group");
        sh(&format!(
            "mkdir {0} && chgrp {GROUP} {0} && chmod 770 {0}
             setpriv --reuid {ROVE} --regid {ROVE} --clear-groups -- ln -s {0} {1}/gateway.state",
            of_group.display(),
            home.display()
        ));
        let backup = lab.dir.path().join("backup");
        let rove = |line: &str| {
            format!(
                "setpriv --groups {GROUP} -- {} gateway {line} --dir {}",
                binary(),
                home.display()
            )
        };
        sh(&rove(&format!("backup {}", backup.display())));
        // It takes the lock in the directory with the state.
        sh(&format!("! {}", rove(&format!("restore {}", backup.display()))));
        let made: Vec<_> = fs::read_dir(&of_group).unwrap().collect();
        assert!(made.is_empty(), "{made:?}");
        // What root may do without the user's rights, it may still do.
        assert_eq!(fs::metadata(&backup).unwrap().uid(), 0);
    });
}

/// More connections than a node serves, of users who may not ask and of those who may.
#[test]
fn no_other_user_keeps_root_from_asking() {
    in_namespace_of_root("no_other_user_keeps_root_from_asking", || {
        const MANY: usize = 100;
        let lab = lab_with_user("root's commands");
        let _gateway = lab.gateway();
        let home = lab.home("gateway");
        sh(&format!("chmod 711 {}", home.display()));
        let socket = home.join("gateway.sock");
        for (user, group, said) in [(65_534, 65_534, "may ask"), (65_534, ROVE, "too many")] {
            let socket = socket.clone();
            // Only this thread becomes the user.
            let connect = std::thread::spawn(move || {
                use rustix::process::{Gid, Uid};
                let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
                rustix::thread::set_thread_res_gid(group, group, group).unwrap();
                rustix::thread::set_thread_res_uid(user, user, user).unwrap();
                let connect = || UnixStream::connect(&socket).unwrap();
                (0..MANY).map(|_| connect()).collect::<Vec<_>>()
            });
            let connections = connect.join().unwrap();
            let mut line = String::new();
            BufReader::new(connections.last().unwrap()).read_line(&mut line).unwrap();
            assert!(line.contains(said), "{line}");
            lab.rove("gateway", "gateway peers").ok();
        }
    });
}

/// Writes into a journal that a set-uid file stood in the place of the `present` resolv.conf.
fn forge_original(path: &Path, present: &str) {
    let journal = fs::read_to_string(path).unwrap();
    let mut journal: serde_json::Value = serde_json::from_str(&journal).unwrap();
    let dns = journal["entries"].as_array_mut().unwrap().last_mut().unwrap();
    assert!(dns["item"]["dns"].is_object(), "{dns}");
    let chosen = serde_json::json!({ "text": "evil", "mode": 0o6755 });
    let file = serde_json::json!({ "original": { "file": chosen }, "ours": [present] });
    dns["before"] = serde_json::json!({ "dns": { "file": file } });
    fs::write(path, journal.to_string()).unwrap();
}

/// The user of the node writes what it likes into its own directory, then root runs commands there.
/// Files of a node's state.
const STATE_FILES: [&str; 6] =
    ["plan.json", "plan.json.before", "plan.json.new", "kill-switch", "owed", "lock"];

#[test]
fn what_the_nodes_user_writes_leads_root_nowhere() {
    in_namespace_of_root("what_the_nodes_user_writes_leads_root_nowhere", || {
        need_program("the client", "nft");
        let lab = lab_with_user("a hostile node");
        let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64 \
                    --dns 192.0.2.99";
        lab.rove("gateway", line).ok();
        let config = lab.home("gateway").join("gateway.toml");
        support::netns::edit(&config, "nat = true", "nat = false");
        let _gateway = lab.gateway();
        let original = fs::read_to_string("/etc/resolv.conf").unwrap();
        let mode = || fs::metadata("/etc/resolv.conf").unwrap().permissions().mode() & 0o7777;
        let original_mode = mode();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        let home = lab.home("client");
        let state = home.join("client.state");
        let crash = || {
            let pid = fs::read_to_string(state.join("lock")).unwrap();
            sh(&format!("kill -KILL {}", pid.trim()));
        };
        let as_user = |line: &str| {
            sh(&format!(
                "setpriv --reuid {ROVE} --regid {ROVE} --clear-groups -- sh -e -c \"{line}\""
            ));
        };

        // A saved original whose text and mode the user chose, for the small root process, and for
        // root's own command.
        for by in ["up", "down"] {
            crash();
            let present = fs::read_to_string("/etc/resolv.conf").unwrap();
            assert!(present.contains("nameserver 192.0.2.99"), "{present}");
            forge_original(&state.join("plan.json"), &present);
            if by == "up" {
                lab.rove("client", "up").ok();
            }
            lab.rove("client", "down").ok();
            assert_eq!(fs::read_to_string("/etc/resolv.conf").unwrap(), original, "{by}");
            assert_eq!(mode(), original_mode, "{by}");
            lab.rove("client", "up").ok();
        }

        // Files on which `open` waits, and links to files of root.
        crash();
        let secret = lab.dir.path().join("secret");
        fs::write(&secret, "secret").unwrap();
        fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
        for name in STATE_FILES {
            for make in ["mkfifo", &format!("ln -s {}", secret.display())] {
                as_user(&format!("rm -f {0}/{name}; {make} {0}/{name}", state.display()));
                let line = format!("timeout 20 {} status --dir {}", binary(), home.display());
                sh(&format!("ip netns exec client {line} > /run/said"));
                let line = format!("timeout 20 {} down --dir {}", binary(), home.display());
                let ended = sh(&format!("ip netns exec client {line} >/dev/null 2>&1; echo $?"));
                assert_ne!(ended.trim(), "124", "{name}, {make}: `down` waits for ever");
                as_user(&format!("rm -f {}/{name}", state.display()));
            }
        }
        for make in ["mkfifo", &format!("ln -s {}", secret.display())] {
            as_user(&format!("rm -f {0}/client.log; {make} {0}/client.log", home.display()));
            let up = lab.rove("client", "up");
            assert!(up.code == Some(0) && up.err.contains(": remove it"), "{up:?}");
            lab.rove("client", "down").ok();
            as_user(&format!("rm -f {}/client.log", home.display()));
        }
        assert_eq!(fs::read_to_string(&secret).unwrap(), "secret");
        lab.rove("client", "up").ok();
        lab.rove("client", "down").ok();
        assert_eq!(fs::read_to_string("/etc/resolv.conf").unwrap(), original);
        for dir in [&home, &state] {
            for (path, owner) in owners(dir) {
                assert_eq!(owner, ROVE, "{path}: root made a file");
            }
        }
    });
}

#[test]
fn a_client_of_root_runs_as_its_own_user_and_changes_the_resolver() {
    let name = "a_client_of_root_runs_as_its_own_user_and_changes_the_resolver";
    in_namespace_of_root(name, || {
        need_program("the client's kill switch", "nft");
        let lab = lab_with_user("the client's user");
        // A link that root can replace, and the user cannot.
        sh("mv /etc/resolv.conf /run/resolv.conf && ln -s /run/resolv.conf /etc/resolv.conf");
        let is_link = || fs::symlink_metadata("/etc/resolv.conf").unwrap().is_symlink();
        let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64 \
                    --dns 192.0.2.99";
        lab.rove("gateway", line).ok();
        support::netns::edit(
            &lab.home("gateway").join("gateway.toml"),
            "nat = true",
            "nat = false",
        );
        let _gateway = lab.gateway();
        serve_pattern("server", WEB, 100);
        let before = lab.state_of("client");
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up --kill-switch {invite}")).ok();
        let pid = || -> u32 {
            let lock = lab.home("client").join("client.state/lock");
            fs::read_to_string(lock).unwrap().trim().parse().unwrap()
        };
        assert_is_the_user(pid());
        assert!(reaches("client", WEB));
        let resolver = keeper(pid());
        assert_eq!(status(resolver, "Seccomp"), ["2"]);
        assert_eq!(status(resolver, "Uid"), ["0"; 4]);
        for key in ["CapEff", "CapPrm", "CapBnd", "CapAmb"] {
            assert_eq!(status(resolver, key), ["0000000000000000"], "{key}");
        }
        let is_ours = || fs::read_to_string("/etc/resolv.conf").unwrap().contains("192.0.2.99");
        assert!(is_ours() && !is_link(), "names are asked elsewhere");

        // After a crash the small process ends too, and the next one takes over.
        sh(&format!("kill -KILL {}", pid()));
        wait_until("the small process ends, too", || {
            !Path::new(&format!("/proc/{resolver}")).exists()
        });
        lab.rove("client", "up --kill-switch").ok();
        assert_is_the_user(pid());
        assert!(is_ours());
        lab.rove("client", "down").ok();
        lab.becomes("client", &before);

        // A command run by root also cleans up after a crash, and the files stay the user's.
        lab.rove("client", "up").ok();
        sh(&format!("kill -KILL {}", pid()));
        lab.rove("client", "down").ok();
        lab.becomes("client", &before);
        assert!(is_link(), "the link of before is gone");

        a_stopped_resolver_is_named(&lab, pid, is_ours);

        // Somebody kills the small process alone. The client cannot start it again, and says so;
        // root's command restores what it cannot.
        lab.rove("client", "up").ok();
        sh(&format!("kill -KILL {}", keeper(pid())));
        let told = "the process rove-resolver has ended";
        wait_until("it is told", || lab.rove("client", "status").ok().contains(told));
        let check = lab.rove("client", "check");
        let line = check.out.lines().find(|line| line.contains(told)).unwrap();
        assert!(line.starts_with("failed  resolver") && line.contains("`rove down`"), "{check:?}");
        assert!(is_ours());
        assert_eq!(lab.rove("client", "down").ok(), "down\n");
        assert!(is_link(), "the link of before is gone");
        lab.becomes("client", &before);
        for (path, owner) in owners(&lab.home("client")) {
            assert_eq!(owner, ROVE, "{path}");
        }
    });
}

/// The forwarder of a split tunnel dies with the client, so the small process restores the file.
#[test]
fn a_killed_client_of_a_split_tunnel_leaves_names_that_resolve() {
    in_namespace_of_root("a_killed_client_of_a_split_tunnel_leaves_names_that_resolve", || {
        let lab = lab_with_user("a killed split tunnel");
        let line = "gateway init --endpoint 192.0.2.1:4500 --network 10.77.0.0/24,fd77::/64 \
                    --dns 10.77.0.1";
        lab.rove("gateway", line).ok();
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        // A directory that Rove makes belongs to its user.
        lab.rove("client", &format!("up {invite}")).ok();
        lab.rove("client", "down").ok();
        let text = "[client]\nroute = [\"198.51.100.0/24\"]\ndomains = [\"corp.example\"]\n";
        fs::write(lab.home("client").join("client.toml"), text).unwrap();
        let before = fs::read_to_string("/etc/resolv.conf").unwrap();
        let up = lab.rove("client", "up");
        assert_eq!(up.err, "");
        up.ok();
        let now = || fs::read_to_string("/etc/resolv.conf").unwrap();
        assert!(now().contains("nameserver 127.0.0."), "{}", now());
        let pid = fs::read_to_string(lab.home("client").join("client.state/lock")).unwrap();
        assert_is_the_user(pid.trim().parse().unwrap());
        sh(&format!("kill -KILL {}", pid.trim()));
        wait_until("the file is restored", || now() == before);
        lab.rove("client", "up").ok();
        assert!(now().contains("nameserver 127.0.0."), "{}", now());
        lab.rove("client", "down").ok();
        assert_eq!(now(), before);
    });
}

/// Somebody stops the small process. No command waits for it, and each names it.
fn a_stopped_resolver_is_named(lab: &Lab, pid: impl Fn() -> u32, is_ours: impl Fn() -> bool) {
    lab.rove("client", "up").ok();
    let resolver = keeper(pid());
    sh(&format!("kill -STOP {resolver}"));
    let told = format!("the process rove-resolver (process {resolver}) is stopped");
    // Name servers that another program changed, which Rove wants to repair.
    fs::write("/etc/resolv.conf", "nameserver 192.0.2.98\n").unwrap();
    wait_until("it is told", || lab.rove("client", "status").ok().contains(&told));
    let check = lab.rove("client", "check");
    let line = check.out.lines().find(|line| line.contains(&told)).unwrap();
    assert!(line.contains(&format!("kill -CONT {resolver}")), "{check:?}");
    assert!(!check.err.contains("no answer from the node"), "{check:?}");
    sh(&format!("kill -CONT {resolver}"));
    wait_until("the name servers are repaired", &is_ours);
    sh(&format!("kill -STOP {resolver}"));
    let down = lab.rove("client", "down");
    assert_eq!((&*down.out, &*down.err), ("down\n", ""), "{down:?}");
    sh(&format!("kill -CONT {resolver}"));
    assert!(!is_ours());
    // That program's file is the original now.
    sh("ln -sf /run/resolv.conf /etc/resolv.conf");
}

/// The child that keeps the resolver's settings.
fn keeper(parent: u32) -> u32 {
    let children = sh(&format!("cat /proc/{parent}/task/{parent}/children"));
    let children = children.split_whitespace().map(|pid| pid.parse().unwrap());
    let is_keeper = |pid: &u32| status(*pid, "Name") == ["rove-resolver"];
    children.into_iter().find(is_keeper).expect("no process rove-resolver")
}

#[test]
fn an_address_is_explained_for_the_user_who_asks() {
    in_namespace_of_root("an_address_is_explained_for_the_user_who_asks", || {
        let lab = lab_with_user("words for one user");
        let _gateway = lab.gateway();
        let invite = lab.invite("laptop");
        lab.rove("client", &format!("up {invite}")).ok();
        // Rules for root, who asks, and for the node's user, whose packets are nobody's concern.
        for (user, is_blocked) in [(0, true), (ROVE, false)] {
            sh(&format!("ip -n client rule add pref 100 uidrange {user}-{user} lookup main"));
            let said = lab.rove("client", "explain 198.51.100.80").ok();
            assert_eq!(said.contains("Rove blocks them there"), is_blocked, "{user}: {said}");
            assert_eq!(said.contains("uses the tunnel (rove0)"), !is_blocked, "{user}: {said}");
            sh("ip -n client rule del pref 100");
        }
        lab.rove("client", "down").ok();
    });
}
