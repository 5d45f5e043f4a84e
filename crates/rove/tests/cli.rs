//! The command line as people see it: help, errors, exit codes, and gateway commands without a
//! running gateway.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::Value;
use support::{golden, init, rove, rove_in};

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

#[test]
fn help_is_everywhere_and_does_not_change_by_accident() {
    for (name, line) in [
        ("help.txt", "--help"),
        ("help-gateway.txt", "gateway --help"),
        ("help-gateway-init.txt", "gateway init --help"),
        ("help-gateway-invite.txt", "gateway invite --help"),
        ("help-gateway-allow.txt", "gateway allow --help"),
        ("help-gateway-status.txt", "gateway status --help"),
        ("help-gateway-down.txt", "gateway down --help"),
        ("help-gateway-move.txt", "gateway move --help"),
        ("help-gateway-sign.txt", "gateway sign --help"),
        ("help-gateway-dictionary.txt", "gateway dictionary --help"),
        ("help-up.txt", "up --help"),
        ("help-status.txt", "status --help"),
        ("help-check.txt", "check --help"),
        ("help-gateway-check.txt", "gateway check --help"),
        ("help-paths.txt", "paths --help"),
        ("help-flows.txt", "flows --help"),
        ("help-explain.txt", "explain --help"),
        ("help-rehearse.txt", "rehearse --help"),
        ("help-set.txt", "set --help"),
        ("help-set-mode.txt", "set mode --help"),
        ("help-set-scheduler.txt", "set scheduler --help"),
        ("help-set-recovery.txt", "set recovery --help"),
        ("help-set-data.txt", "set data --help"),
        ("help-set-manager.txt", "set manager --help"),
        ("help-set-subflows.txt", "set subflows --help"),
    ] {
        let help = rove(words(line)).ok();
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{line}");
        golden(name, &help);
    }
    for command in ["run", "peers", "flows", "revoke", "backup", "restore"] {
        rove(["gateway", command, "--help"]).ok();
    }
    for command in ["down", "reload"] {
        rove([command, "--help"]).ok();
    }
}

#[test]
fn wrong_usage_is_two() {
    for line in [
        "",
        "fly",
        "gateway",
        "gateway init",
        "gateway init --endpoint x --network 10.0.0.0/24",
        "gateway init --endpoint a.example:1 --network 10.0.0.1/24",
        "gateway init --endpoint a.example:1 --network 10.0.0.0/24 --store etcd://x",
        "gateway invite",
        "gateway invite UPPER",
        "gateway invite phone --expires never",
        "gateway invite phone --qr --json",
        "gateway allow phone",
        "gateway allow phone 10.0.0.0/99",
        "up not-an-invite",
        "gateway init --endpoint https://a.example:1 --network 10.0.0.0/24",
        "up --route 10.0.0.1/8",
        "up --timeout 0s",
        "up --mode both",
        "explain",
        "rehearse",
        "rehearse --unplug eth1 --for 0s",
        "paths --for 3s",
        "set",
        "set mode",
        "set mode both",
        "up --scheduler fastest",
        "set scheduler",
        "set scheduler fastest",
        "set recovery both",
        "set data none",
        "set colour blue",
        "status --log-format xml",
    ] {
        let ran = rove(words(line));
        assert_eq!(ran.code, Some(2), "{line}: {}", ran.err);
        assert!(ran.out.is_empty() && !ran.err.is_empty(), "{line}");
    }
    let usage =
        rove(["gateway", "init", "--endpoint", "vpn.example.org", "--network", "10.0.0.0/8"]);
    golden("usage-endpoint.txt", &usage.err);
}

#[test]
fn versions_completions_and_manual_pages() {
    assert_eq!(rove(["--version"]).ok(), format!("rove {}\n", env!("CARGO_PKG_VERSION")));
    for shell in ["bash", "zsh", "fish"] {
        assert!(rove(["completions", shell]).ok().contains("kill-switch"), "{shell}");
    }
    let dir = tempfile::tempdir().unwrap();
    rove([Path::new("man"), dir.path()]).ok();
    let page = fs::read_to_string(dir.path().join("rove-gateway-invite.1")).unwrap();
    assert!(page.contains("invite"), "{page}");
}

#[test]
fn a_new_gateway_is_complete_and_private() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("new/gateway");
    init(&dir);
    let mut names: Vec<String> = fs::read_dir(&dir)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            format!("{} {mode:04o}", entry.file_name().into_string().unwrap())
        })
        .collect();
    names.sort();
    let expected =
        ["gateway.key", "gateway.record", "gateway.redb", "gateway.toml", "operator.key"];
    assert_eq!(names, expected.map(|name| format!("{name} 0600")));
    assert_eq!(fs::metadata(&dir).unwrap().permissions().mode() & 0o777, 0o711);
    golden("gateway.toml", &fs::read_to_string(dir.join("gateway.toml")).unwrap());

    let line = "gateway init --endpoint b.example:1 --network 10.0.0.0/24";
    let made = rove_in(&dir.join("other"), line).ok();
    assert!(made.lines().nth(1).unwrap().contains("write for example dns = [\"9.9.9.9\"] into"));
    let made = rove_in(&dir.join("third"), &format!("{line} --dns 9.9.9.9")).ok();
    assert_eq!(made.lines().count(), 1, "{made}");
    let again = rove_in(&dir, line).fails();
    assert!(again.contains("gateway.toml exists already: remove it, or choose another"), "{again}");
}

#[test]
fn invites_peers_and_audit_without_a_running_gateway() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    init(dir);
    let invite = rove_in(dir, "gateway invite phone --expires 2h").ok();
    assert!(invite.starts_with("rove://") && invite.lines().count() == 1, "{invite}");
    let json = rove_in(dir, "gateway invite team --uses 3 --json").ok();
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["uses"], 3);
    assert!(json["invite"].as_str().unwrap().starts_with("rove://"));
    let qr = rove_in(dir, "gateway invite office --subnet 192.168.7.0/24 --qr").ok();
    assert!(qr.lines().count() > 20, "{qr}");

    let peers = rove_in(dir, "gateway peers --json").ok();
    let peers: Value = serde_json::from_str(&peers).unwrap();
    let mut names: Vec<&str> =
        peers["invites"].as_array().unwrap().iter().map(|i| i["name"].as_str().unwrap()).collect();
    names.sort_unstable();
    assert_eq!(names, ["office", "phone", "team"]);
    assert_eq!(rove_in(dir, "gateway revoke team").ok().lines().count(), 1);

    let status: Value = serde_json::from_str(&rove_in(dir, "gateway status --json").ok()).unwrap();
    assert_eq!(status["running"], false);
    assert_eq!(status["open_invites"], 2);
    let events: Vec<&str> =
        status["recent"].as_array().unwrap().iter().map(|e| e["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["invited", "invited", "invited", "withdrawn"]);
    let log = rove_in(dir, "gateway status --log 2").ok();
    let log: Vec<&str> = log.lines().filter(|line| line.contains("Z  ")).collect();
    assert!(log.len() == 2 && log[0].ends_with("  invited office"), "{log:?}");
    assert!(log[1].ends_with("  withdrawn team"), "{log:?}");

    // What is allowed before anybody enrolled waits with the invite.
    let allowed = rove_in(dir, "gateway allow phone 10.0.0.0/8 10.1.0.5:22").ok();
    let expected = "phone, once enrolled, may reach the Internet and 10.0.0.0/8,10.1.0.5/32:22\n";
    assert_eq!(allowed, expected);
    let peers = rove_in(dir, "gateway peers").ok();
    assert!(peers.contains("10.0.0.0/8,10.1.0.5/32:22"), "{peers}");

    for (line, expected) in [
        ("gateway invite phone", "phone has an open invite: choose another name"),
        ("gateway invite x --uses 0", "an invite has 1 to 10000 uses"),
        ("gateway invite x --subnet 10.77.0.0/28", "overlaps the inner network"),
        ("gateway invite x --uses 2 --subnet 10.1.0.0/24", "an invite with subnets has one use"),
        ("gateway invite x --uses 252", "of 253 client addresses in 10.77.0.0/24,fd77::/64 2 are"),
        ("gateway revoke nobody", "no peer or open invite is called nobody"),
        ("gateway allow nobody 10.0.0.0/8", "no enrolled peer or open invite is called nobody"),
    ] {
        let error = rove_in(dir, line).fails();
        assert!(error.contains(expected), "{line}: {error}");
    }
}

#[test]
fn a_directory_without_a_gateway_says_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    init(&dir.path().join("gateway"));
    let error = rove_in(&dir.path().join("gateway"), "reload").fails();
    assert!(error.contains("the gateway does not run: it reads its configuration when"), "{error}");
    for line in ["run", "peers", "status", "invite phone", "revoke phone", "down"] {
        let error = rove_in(dir.path(), &format!("gateway {line}")).fails();
        assert!(error.contains("no gateway in") && error.contains("rove gateway init"), "{error}");
    }
    let error = rove_in(dir.path(), "up --foreground").fails();
    assert!(error.contains("rove up INVITE"), "{error}");
    let long = dir.path().join("x".repeat(120));
    let error = rove_in(&long, "gateway peers").fails();
    assert!(error.contains("choose a shorter --dir"), "{error}");
}

#[test]
fn damaged_files_are_named_with_the_cure() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    init(dir);
    let peers = || rove_in(dir, "gateway peers").fails();
    let with = |name: &str, content: &[u8], expected: &str| {
        let path = dir.join(name);
        let before = fs::read(&path).unwrap();
        fs::write(&path, content).unwrap();
        let error = peers();
        assert!(error.contains(expected), "{name}: {error}");
        fs::write(&path, before).unwrap();
    };
    with("gateway.toml", b"[gateway]\nendpoints = 3\n", "gateway.toml:2: gateway.endpoints: ");
    with("gateway.toml", b"\xff\xfe", "gateway.toml is not UTF-8 text");
    with("gateway.key", b"nonsense", "gateway.key holds no rove-static-key-1: restore it");
    with("gateway.record", b"nonsense", "gateway.record holds no signed record: restore it");
    with("gateway.redb", b"nonsense", "gateway.redb is no store of Rove: restore a backup");
    fs::set_permissions(dir.join("gateway.key"), fs::Permissions::from_mode(0o644)).unwrap();
    let error = peers();
    assert!(error.contains("gateway.key can be read by others (mode 0644): chmod 600 "), "{error}");
}

#[test]
fn only_the_commands_that_say_so_sign_changed_endpoints() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    init(dir);
    let operator = dir.join("operator.key");
    let elsewhere = dir.join("elsewhere");
    let path = dir.join("gateway.toml");
    let text = fs::read_to_string(&path).unwrap();
    let record = || fs::read(dir.join("gateway.record")).unwrap();
    let before = record();
    // The key is there, and whoever took over the node changed the file.
    fs::write(&path, text.replace("vpn.example.org", "evil.example.net")).unwrap();
    for command in [
        "status",
        "peers",
        "invite tablet",
        "run",
        "revoke phone",
        "allow phone 10.0.0.1",
        "reset-clock",
        "backup copy",
    ] {
        let error = rove_in(dir, &format!("gateway {command}")).fails();
        assert!(error.contains("did not sign: with operator.key in"), "{command}: {error}");
        assert_eq!(record(), before, "{command} signed");
    }
    let error = rove_in(dir, "gateway move 192.0.2.9:4500").fails();
    assert!(error.contains("run `rove gateway sign`"), "{error}");
    assert_eq!(record(), before);
    // A network that no move is about.
    let network = text.replace("10.77.0.0/24", "10.78.0.0/24");
    assert_ne!(network, text);
    fs::write(&path, network).unwrap();
    let error = rove_in(dir, "gateway move 192.0.2.9:4500").fails();
    assert!(error.contains("run `rove gateway sign` first"), "{error}");

    fs::rename(&operator, &elsewhere).unwrap();
    fs::write(&path, text.replace("vpn.example.org", "vpn.example.net")).unwrap();
    let error = rove_in(dir, "gateway sign").fails();
    assert!(error.contains("operator.key is not in"), "{error}");
    fs::rename(&elsewhere, &operator).unwrap();
    let signed = rove_in(dir, "gateway sign").ok();
    assert!(signed.starts_with("signed: endpoints vpn.example.net:4500; networks 10."), "{signed}");
    assert_ne!(record(), before);
    assert!(rove_in(dir, "gateway sign").ok().starts_with("was signed already: endpoints"));
    fs::rename(&operator, &elsewhere).unwrap();
    rove_in(dir, "gateway invite laptop").ok();

    let other = tempfile::tempdir().unwrap();
    init(other.path());
    fs::copy(other.path().join("operator.key"), &operator).unwrap();
    fs::write(&path, text).unwrap();
    let error = rove_in(dir, "gateway sign").fails();
    assert!(error.contains("is another operator's key"), "{error}");
}

#[test]
fn a_gateway_takes_dictionaries_of_its_operator() {
    let dir = tempfile::tempdir().unwrap();
    let (own, other) = (&dir.path().join("own"), &dir.path().join("other"));
    init(own);
    init(other);
    let content = dir.path().join("content");
    fs::write(&content, "\"meter\":\"kWh\",\"total\":").unwrap();
    let sign = |home: &Path, name: &str| {
        rove_in(home, &format!("gateway dictionary {name} {}", content.display()))
    };
    let path = own.join("gateway.toml");
    let text = fs::read_to_string(&path).unwrap();
    let with = |lines: &[&str]| {
        let list = format!("[saving]\ndictionaries = {lines:?}");
        fs::write(&path, text.replace("[saving]", &list)).unwrap();
        rove_in(own, "gateway status")
    };
    let meters = sign(own, "meters").ok();
    assert_eq!(meters.lines().count(), 1);
    with(&[meters.trim()]).ok();
    // The next one gets another number.
    let pumps = sign(own, "pumps").ok();
    with(&[meters.trim(), pumps.trim()]).ok();
    with(&[]).ok();
    let pumps = sign(own, "pumps").ok();
    let error = with(&[meters.trim(), pumps.trim()]).fails();
    assert!(error.contains("pumps (number 8) and meters (number 8) cannot be told"), "{error}");

    let error = with(&[sign(other, "meters").ok().trim()]).fails();
    assert!(error.contains("saving.dictionaries: meters is not signed by the operator"), "{error}");
    let error = with(&[&meters.trim()[..100]]).fails();
    assert!(error.contains("saving.dictionaries: is no signed dictionary: copy"), "{error}");
    with(&[]).ok();
    fs::write(&content, [7; 5_000]).unwrap();
    let error = sign(own, "meters").fails();
    assert!(error.contains("8 to 4096 bytes"), "{error}");
    fs::remove_file(own.join("operator.key")).unwrap();
    let error = sign(own, "meters").fails();
    assert!(error.contains("operator.key is not in"), "{error}");
}

#[test]
fn a_backup_brings_a_gateway_back() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new, file) =
        (dir.path().join("old"), dir.path().join("new"), dir.path().join("backup"));
    init(&old);
    rove_in(&old, "gateway invite phone").ok();
    let backup = format!("gateway backup {}", file.display());
    let restore = format!("gateway restore {}", file.display());
    rove_in(&old, &backup).ok();
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(rove_in(&old, &backup).fails().contains("exists already"));

    // Whatever was revoked since, nobody here knows it.
    let restored = rove_in(&new, &restore).ok();
    let told: Vec<&str> = restored.lines().collect();
    let head = format!("restored into {}: as of 20", new.display());
    assert!(told[0].starts_with(&head) && told[0].ends_with('Z'), "{restored}");
    let lost = format!(
        "{} held no gateway: clients that were revoked since the backup are enrolled again, and \
         invites that were used or withdrawn are open again. Revoke them once more",
        new.display()
    );
    assert_eq!(told[1..], [lost]);
    let invites = |dir: &Path| {
        let peers: Value =
            serde_json::from_str(&rove_in(dir, "gateway peers --json").ok()).unwrap();
        peers["invites"].clone()
    };
    assert_eq!(invites(&new), invites(&old));
    assert!(!new.join("operator.key").exists(), "the operator key stays where it is");

    // Over a gateway that lived on: what was withdrawn since stays so, and what came since is gone.
    rove_in(&old, "gateway revoke phone").ok();
    rove_in(&old, "gateway invite tablet").ok();
    let restored = rove_in(&old, &restore).ok();
    let expected = "gone are open invites that were issued since the backup: tablet";
    assert_eq!(restored.lines().nth(1), Some(expected));
    assert_eq!(invites(&old), Value::Array(Vec::new()));

    // Whatever else is damaged there: the store alone says what was withdrawn.
    for name in ["gateway.toml", "gateway.key", "gateway.record"] {
        let path = old.join(name);
        fs::write(&path, "nonsense").unwrap();
        rove_in(&old, &restore).ok();
        assert_eq!(invites(&old), Value::Array(Vec::new()), "{name}");
        fs::remove_file(&path).unwrap();
        rove_in(&old, &restore).ok();
        assert_eq!(invites(&old), Value::Array(Vec::new()), "without {name}");
    }
    fs::set_permissions(old.join("gateway.key"), fs::Permissions::from_mode(0o644)).unwrap();
    rove_in(&old, &restore).ok();
    assert_eq!(invites(&old), Value::Array(Vec::new()));
    fs::write(old.join("gateway.redb"), "nonsense").unwrap();
    let restored = rove_in(&old, &restore).ok();
    let why = restored.lines().nth(1).unwrap();
    assert!(
        why.contains("gateway.redb was no store of Rove: clients that were revoked since"),
        "{why}"
    );
    assert_eq!(invites(&old), invites(&new), "nobody knows better");

    let other = dir.path().join("other");
    init(&other);
    assert!(rove_in(&other, &restore).fails().contains("holds another gateway"));

    let text = fs::read_to_string(&file).unwrap();
    for damage in [text.replacen("phone", "phony", 1), text[..text.len() - 9].to_owned()] {
        fs::write(&file, damage).unwrap();
        let error = rove_in(&new, &restore).fails();
        assert!(error.contains("is damaged or no backup"), "{error}");
    }
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(rove_in(&new, &restore).fails().contains("chmod 600"));
}

#[test]
fn a_client_that_does_not_run_is_down() {
    let dir = tempfile::tempdir().unwrap();
    let status: Value = serde_json::from_str(&rove_in(dir.path(), "status --json").ok()).unwrap();
    assert_eq!(status["state"], "down");
    assert_eq!(status["carrying"], false);
    assert_eq!(rove_in(dir.path(), "paths --json").ok(), "[]\n");
    assert_eq!(rove_in(dir.path(), "down").ok(), "not up\n");
    assert!(rove_in(dir.path(), "reload").fails().contains("not up: connect with `rove up`"));
    for line in ["set mode full", "set scheduler rtt", "set link.eth1.use never"] {
        let error = rove_in(dir.path(), line).fails();
        assert!(error.contains("not up: connect with `rove up`"), "{line}: {error}");
    }
    golden("status-down.txt", &rove_in(dir.path(), "status").ok());
}

#[test]
fn what_a_client_cannot_use_is_named_with_the_cure() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let put = |name: &str, content: &[u8], mode: u32| {
        let path = dir.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, content).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    // All of it is found before anything of this host is touched.
    let up = || rove_in(dir, "up --foreground").fails();
    let config = put("client.toml", b"[client]\nkill-switch = 1\n", 0o644);
    let error = up();
    assert!(error.contains("client.toml:2: client.kill-switch: "), "{error}");
    put("client.toml", b"[client]\nkill-switch = true\nroute = [\"10.0.0.0/8\"]\n", 0o644);
    let error = up();
    assert!(error.contains("leave out route or kill-switch"), "{error}");
    fs::remove_file(config).unwrap();

    let store = put("client.redb", b"nonsense", 0o600);
    let error = up();
    let cure = "client.redb is no store of Rove: remove it, and run `rove up INVITE` with a new";
    assert!(error.contains(cure), "{error}");
    let compat = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/compat/0.1.0/client");
    fs::copy(compat.join("client.redb"), store).unwrap();
    let key = fs::read(compat.join("client.key")).unwrap();
    put("client.key", &key, 0o644);
    let error = up();
    assert!(error.contains("client.key can be read by others (mode 0644): chmod 600 "), "{error}");
    put("client.key", b"nonsense", 0o600);
    let error = up();
    assert!(error.contains("client.key holds no key: restore it, or ask the gateway's"), "{error}");
    fs::remove_file(dir.join("client.key")).unwrap();
    let error = up();
    assert!(error.contains("client.key does not exist: restore it, or ask"), "{error}");

    let journal = put("client.state/plan.json", b"{", 0o600);
    let status = rove_in(dir, "status").ok();
    assert!(status.contains("left routes and rules: `rove up`, or `rove down`"), "{status}");
    assert!(!journal.exists() || fs::read(&journal).unwrap() == b"{", "status changes nothing");
    assert_eq!(rove_in(dir, "down").ok(), "down\n", "what it may have named is swept");
}

#[test]
fn a_client_that_dies_as_it_is_asked_is_down() {
    let dir = tempfile::tempdir().unwrap();
    let socket = std::os::unix::net::UnixListener::bind(dir.path().join("client.sock")).unwrap();
    // It takes the connection and is gone, with the request unread and then with it read.
    let dying = std::thread::spawn(move || {
        drop(socket.accept().unwrap());
        let (mut stream, _) = socket.accept().unwrap();
        std::io::Read::read(&mut stream, &mut [0; 1_024]).unwrap();
    });
    for _ in 0..2 {
        assert_eq!(rove_in(dir.path(), "down").ok(), "not up\n");
    }
    dying.join().unwrap();
}

#[test]
fn an_invite_comes_by_standard_input_too() {
    let dir = tempfile::tempdir().unwrap();
    for (input, expected) in [
        ("", "no invite on the standard input: give one line"),
        ("rove://aaaa\n", "the invite is damaged: copy the whole line again"),
        ("hello\n", "not an invite: it must begin with rove://"),
    ] {
        let error = support::rove_with(dir.path(), "up -", input).fails();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn damaged_invites_are_usage_errors_with_the_cure() {
    let dir = tempfile::tempdir().unwrap();
    init(dir.path());
    let invite = rove_in(dir.path(), "gateway invite phone").ok();
    let invite = invite.trim();
    let shorter = &invite[..invite.len() - 3];
    let error = rove(["up", shorter]);
    assert_eq!(error.code, Some(2));
    assert!(error.err.contains("copy the whole line again"), "{}", error.err);
}

#[test]
fn what_was_pasted_is_found_or_refused_without_a_word_of_it() {
    let dir = tempfile::tempdir().unwrap();
    init(dir.path());
    let invite = rove_in(dir.path(), "gateway invite phone").ok();
    let invite = invite.trim();
    let (begin, rest) = invite.split_at(200);
    let damaged = &invite[..invite.len() - 3];
    // No message contains a part of the invite that is long enough to be useful.
    let hides = |text: &str| {
        let parts = invite.as_bytes()["rove://".len()..].windows(8);
        let mut parts = parts.map(|part| std::str::from_utf8(part).unwrap());
        assert!(!parts.any(|part| text.contains(part)), "{text}");
    };
    for arguments in [
        vec!["up", damaged],
        vec!["up", begin, rest, "--no-such-option"],
        vec!["up", "--mode", invite],
        vec!["up", "--route", invite],
        vec!["down", invite],
        vec![invite],
        vec!["gateway", invite],
        vec!["set", invite, "1"],
        vec!["gateway", "init", "--endpoint", invite, "--network", "10.0.0.0/8"],
        vec!["gateway", "invite", invite],
    ] {
        let ran = rove(&arguments);
        assert_eq!(ran.code, Some(2), "{}", ran.err);
        hides(&ran.err);
        hides(&ran.out);
    }
    // If the invite is found, the command tries to connect, which needs a directory that can be
    // created.
    let nowhere = dir.path().join("gateway.toml/none");
    let nowhere = nowhere.to_str().unwrap();
    let quoted = format!("Your invite: <{invite}>.");
    for words in [vec![begin, rest], vec![quoted.as_str()], vec!["invite:", begin, rest, "bye"]] {
        let ran = rove(["--dir", nowhere, "up"].into_iter().chain(words));
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        hides(&ran.err);
    }
    let wide: Vec<u8> =
        format!("\u{feff}{invite}\n").encode_utf16().flat_map(u16::to_le_bytes).collect();
    let lines = format!("\u{feff}{begin}\n{rest}\n");
    for input in [lines.as_bytes(), &wide] {
        let ran = support::rove_with(Path::new(nowhere), "up -", input);
        assert_eq!(ran.code, Some(1), "{}", ran.err);
        assert!(!ran.err.contains("invite"), "{}", ran.err);
    }
}

#[test]
fn doubtful_endpoints_and_networks_are_told_of() {
    let dir = tempfile::tempdir().unwrap();
    let init = |name: &str, endpoint: &str, network: &str| {
        let line = format!("gateway init --endpoint {endpoint} --network {network}");
        rove_in(&dir.path().join(name), &line)
    };
    let url = init("url", "https://vpn.example:443/", "10.0.0.0/24");
    assert!(url.err.contains("write vpn.example:443"), "{}", url.err);
    let local = init("local", "[fe80::1]:4433", "10.0.0.0/24").fails();
    assert!(local.contains("a link-local address, which no client can reach"), "{local}");
    let public = init("public", "vpn.example:1", "8.8.8.0/24");
    assert_eq!(public.code, Some(0), "somebody owns it");
    assert!(public.err.contains("the real owner of 8.8.8.0/24"), "{}", public.err);
    let private = init("private", "vpn.example:1", "10.77.0.0/24");
    assert_eq!((private.code, private.err.as_str()), (Some(0), ""));
}

#[test]
fn where_nothing_runs_there_are_no_connections() {
    let dir = tempfile::tempdir().unwrap();
    for line in ["flows", "gateway flows"] {
        assert_eq!(rove_in(dir.path(), line).ok(), "not up: connect with `rove up`\n");
        let told: Value =
            serde_json::from_str(&rove_in(dir.path(), &format!("{line} --json")).ok()).unwrap();
        assert_eq!((&told["node"], &told["held_bytes"]), (&Value::Null, &0.into()));
        assert_eq!(told["flows"], Value::Array(vec![]));
    }
    let paths = rove_in(dir.path(), "gateway paths laptop --json").ok();
    assert_eq!(paths, "{\"complete\":true,\"known\":0,\"paths\":[]}\n");
    assert_eq!(rove_in(dir.path(), "paths --watch --for 1s --json").ok(), "[]\n[]\n");
    let watched = rove_in(dir.path(), "paths --watch --for 1s").ok();
    let once = rove_in(dir.path(), "paths").ok();
    assert_eq!(watched, format!("{once}\n{once}"), "no terminal: plain lines");
    for line in ["explain tcp", "rehearse --unplug eth1"] {
        let error = rove_in(dir.path(), line).fails();
        assert!(error.contains("connect with `rove up`"), "{error}");
    }
    init(dir.path());
    let start = "the gateway does not run: start it with `rove gateway run`\n";
    assert_eq!(rove_in(dir.path(), "flows").ok(), start);
    assert_eq!(rove_in(dir.path(), "gateway paths").ok(), start);
}
