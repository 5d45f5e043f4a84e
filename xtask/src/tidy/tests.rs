//! Each rule on trees of a few lines: one that breaks it, and one beside it that does not.

use super::*;

/// A tree in which only the rule under test can find something: the lock file is there, and the
/// module docs are written by `rust`.
fn findings(files: &[(&str, &str)]) -> Vec<String> {
    let mut tree = Tree::default();
    tree.files.insert("Cargo.lock".to_owned(), Some("version = 4\n".to_owned()));
    for (path, text) in files {
        tree.files.insert((*path).to_owned(), Some((*text).to_owned()));
    }
    check(&tree).iter().map(ToString::to_string).collect()
}

/// The places and the first words of what is found in one Rust file, line 1 being its doc.
fn rust(path: &str, body: &str) -> Vec<String> {
    let text = format!("//! Doc.\n{body}\n");
    let found = findings(&[(path, &text)]);
    found.iter().map(|line| line.split(": ").take(2).collect::<Vec<_>>().join(": ")).collect()
}

fn assert_tidy(path: &str, body: &str) {
    assert_eq!(rust(path, body), [""; 0], "{path}: {body}");
}

#[test]
fn a_finding_names_file_line_what_why_and_cure() {
    let found = findings(&[("crates/os/src/lib.rs", "//! Doc.\nfn f() { todo!() }\n")]);
    assert_eq!(
        found,
        ["crates/os/src/lib.rs:2: `todo!`: work left undone looks like work done; \
                        finish it or take it out; a test that cannot run here says SKIP"]
    );
}

#[test]
fn imports_between_crates_follow_the_table() {
    let manifest = |name: &str, rest: &str| format!("[package]\nname = \"{name}\"\n{rest}\n");
    let one = |name: &str, rest: &str| findings(&[("x/Cargo.toml", &manifest(name, rest))]).len();
    assert_eq!(one("rove", "[dependencies]\nrove-proto.workspace = true"), 0);
    assert_eq!(one("rove-os", "[dependencies]\nrove-proto.workspace = true"), 1);
    assert_eq!(one("rove-client", "[dependencies]\nrove-host.workspace = true"), 0);
    assert_eq!(one("rove-client", "[dependencies]\nrove-gateway.workspace = true"), 1);
    assert_eq!(one("rove-host", "[dependencies]\nrove-client.workspace = true"), 1);
    assert_eq!(one("rove", "[dev-dependencies]\nrove-lab = { path = \"../lab\" }"), 1);
    assert_eq!(one("rove-os", "[target.'cfg(unix)'.dependencies]\nrove-proto = \"1\""), 1);
    assert_eq!(one("rove-os", "[dependencies.rove-proto]\nworkspace = true"), 1);
    assert_eq!(one("rove-proto", "[dependencies]\ntokio = \"1\""), 1);
    assert_eq!(one("rove-engine", "[dependencies]\nmio = \"1\""), 1);
    assert_eq!(one("rove-engine", "[dependencies]\nrove-os.workspace = true"), 1);
    assert_eq!(one("rove-proto", "[dev-dependencies]\nrand = \"1\""), 0);
    assert_eq!(one("rove-proto", "[dependencies]\nsnow = { features = [\n\"std\",\n] }"), 0);
    assert_eq!(one("rove-extra", ""), 1);
    assert_eq!(findings(&[("Cargo.toml", "[workspace.dependencies]\nrove-os = \"1\"\n")]).len(), 0);
}

#[test]
fn the_lock_file_is_there_and_names_the_public_registry_only() {
    assert_eq!(check(&Tree::default()).len(), 1);
    let lock = |source: &str| findings(&[("Cargo.lock", &format!("source = \"{source}\"\n"))]);
    assert!(lock("registry+https://github.com/rust-lang/crates.io-index").is_empty());
    assert_eq!(lock("registry+https://mirror.example/index").len(), 1);
}

#[test]
fn imports_inside_the_core_go_down_only() {
    let wire = "crates/proto/src/wire/frame.rs";
    assert_tidy(wire, "use crate::id::PeerKey;\nuse super::Datagram;\nuse crate::wire::x;");
    assert_eq!(
        rust(wire, "use crate::id;\nuse crate::crypto::Seal;"),
        ["crates/proto/src/wire/frame.rs:3: `wire` imports `crate::crypto`"]
    );
    // Every way to say it.
    for body in [
        "fn f() { crate::peer::x(); }",
        "use crate::{id, path::{Path, Other as O}};",
        "use super::super::node::Node;",
        "mod inner { use super::super::super::node::Node; }",
        "impl crate::node::T for () {}",
    ] {
        assert_eq!(rust(wire, body).len(), 1, "{body}");
    }
}

#[test]
fn siblings_in_the_core_never_meet_and_tests_may() {
    assert_eq!(rust("crates/proto/src/flow/mod.rs", "use crate::role::Access;").len(), 1);
    assert_eq!(rust("crates/proto/src/time.rs", "use crate::id::LinkId;").len(), 1);
    assert_tidy("crates/proto/src/peer/mod.rs", "use crate::role::Z;\nuse crate::flow::F;");
    assert_tidy("crates/proto/src/outbox.rs", "use crate::crypto::SealKey;");
    assert_eq!(rust("crates/proto/src/outbox.rs", "use crate::path::Path;").len(), 1);
    assert_tidy("crates/proto/src/wire/tests.rs", "use crate::crypto::SeededRng;");
    assert_tidy(
        "crates/proto/src/wire/mod.rs",
        "#[cfg(test)]\nmod tests { use crate::crypto::SeededRng; }",
    );
}

#[test]
fn the_core_has_only_modules_with_a_place_in_the_table() {
    assert_tidy("crates/proto/src/lib.rs", "pub mod wire;\npub use crate::node::Node;");
    assert_eq!(rust("crates/proto/src/lib.rs", "mod unplaced;").len(), 1);
}

#[test]
fn the_lab_knows_the_protocol_in_its_world_only() {
    let body = "use rove_proto::node::Node;";
    assert_eq!(rust("crates/lab/src/emu/mod.rs", body).len(), 1);
    assert_eq!(rust("crates/lab/src/emu/mod.rs", "use rove_engine::Engine;").len(), 1);
    assert_tidy("crates/lab/src/world/mod.rs", body);
    assert_tidy("crates/lab/src/world.rs", body);
    assert_tidy("crates/lab/tests/world.rs", body);
}

#[test]
fn names_that_say_nothing_are_refused() {
    assert_eq!(rust("crates/os/src/lib.rs", "mod util;").len(), 1);
    assert_eq!(rust("crates/os/src/helpers.rs", "").len(), 1);
    assert_eq!(rust("crates/os/src/common/mod.rs", "").len(), 1);
    assert_tidy("crates/os/src/shared_ring.rs", "mod utility_pole;");
}

#[test]
fn the_core_may_not_ask() {
    let core = "crates/proto/src/path/mod.rs";
    for body in [
        "use std::time::Instant;",
        "use std::time; fn f() { time::SystemTime::now(); }",
        "use std::{fs, net::{IpAddr, SocketAddr}};",
        "fn f() { let s = std::net::UdpSocket::bind(a); }",
        "fn f() { std::thread::spawn(g); }",
        "struct S { m: HashMap<u8, u8> }",
        "fn f() { println!(); }",
        "async fn f() {}",
    ] {
        assert_eq!(rust(core, body).len(), 1, "{body}");
    }
    assert_tidy(core, "use std::time::Duration;\nuse std::net::{IpAddr, SocketAddr};");
    assert_tidy(core, "use crate::time::Instant; fn f() { Instant::from_nanos(0); }");
    assert_tidy(core, "// std::fs is banned\nconst A: &str = \"std::fs::read println!\";");
    assert_tidy("crates/proto/src/path/tests.rs", "use std::fs;");
    assert_tidy("crates/rove/src/main.rs", "use std::time::Instant;");
}

#[test]
fn unsafe_stands_in_its_homes_with_its_reason() {
    let block = "fn f() { unsafe { g() } }";
    let reasoned = "// SAFETY: g has no conditions.\nfn f() { unsafe { g() } }";
    assert_eq!(rust("crates/rove/src/main.rs", reasoned).len(), 1);
    assert_eq!(rust("crates/lab/src/emu/mod.rs", reasoned).len(), 1);
    assert_eq!(rust("crates/os/src/tun.rs", block).len(), 1);
    assert_tidy("crates/os/src/tun.rs", reasoned);
    assert_tidy("crates/lab/src/netns/host.rs", reasoned);
    assert_tidy("crates/rove/src/main.rs", "#![forbid(unsafe_code)]\n// unsafe\nfn f() {}");
}

#[test]
fn work_left_undone_is_refused() {
    let path = "crates/os/src/lib.rs";
    assert_eq!(rust(path, "fn f() { unimplemented!() }").len(), 1);
    assert_eq!(rust(path, "#[test]\n#[ignore = \"slow\"]\nfn f() {}").len(), 1);
    assert_eq!(rust(path, "fn f() { dbg!(1); }").len(), 1);
    assert_tidy(path, "fn todo(ignore: bool) -> bool { !ignore }");
}

#[test]
fn sizes_are_kept() {
    let path = "crates/os/src/lib.rs";
    for (lines, hints) in [(600, 0), (601, 1)] {
        let mut tree = Tree::default();
        tree.files.insert(path.to_owned(), Some("// line\n".repeat(lines)));
        assert_eq!(sizes::hints(&tree).len(), hints, "{lines} lines");
    }
    let function = |lines: usize| format!("fn f() {{\n{}}}", "    g();\n".repeat(lines));
    assert_tidy(path, &function(70));
    assert_eq!(rust(path, &function(71)).len(), 1);
    assert_tidy(path, &format!("fn f() {{\n{}}}", "    // why\n    g();\n".repeat(70)));
    assert_tidy("crates/os/tests/laws.rs", &function(71));
    assert_tidy(path, &format!("// {}", "é".repeat(97)));
    assert_eq!(rust(path, &format!("// {}", "é".repeat(98))).len(), 1);
}

#[test]
fn every_file_says_first_what_it_is_for() {
    assert_eq!(findings(&[("crates/os/src/a.rs", "fn f() {}\n")]).len(), 1);
    assert_eq!(findings(&[("crates/os/tests/a.rs", "fn f() {}\n")]).len(), 1);
    assert_eq!(findings(&[("crates/os/src/a.rs", "//! A.\nfn f() {}\n")]).len(), 0);
    assert_eq!(findings(&[("crates/os/src/a/tests.rs", "use super::*;\n")]).len(), 0);
}

#[test]
fn lines_end_where_their_text_ends() {
    assert_eq!(findings(&[("a.toml", "a = 1\x20\nb = 2\n")]).len(), 1);
    assert_eq!(findings(&[("a.toml", "a = 1")]).len(), 1);
    assert_eq!(findings(&[("crates/rove/tests/golden/a.txt", "a\x20\nb")]).len(), 0);
}

#[test]
fn paths_of_one_machine_are_refused() {
    let text = |root: &str| format!("see /{root}/me/rove\n");
    assert_eq!(findings(&[("a.md", &text("home"))]).len(), 1);
    assert_eq!(findings(&[("a.md", &text("Users"))]).len(), 1);
    assert_eq!(findings(&[("a.md", &text("root/.cache"))]).len(), 1);
    assert_eq!(findings(&[("a.md", &text("root"))]).len(), 0);
    assert_eq!(findings(&[("a.md", &text("etc"))]).len(), 0);
    assert_eq!(findings(&[("a.md", "https://example.org/home/x ~/work/x\n")]).len(), 0);
}

#[test]
fn links_lead_somewhere() {
    let docs = |link: &str| {
        let page = format!("# Page\n\n{link}\n");
        findings(&[
            ("docs/page.md", &page),
            ("docs/wire.md", "# Wire\n## Data datagram: 26 bytes\n"),
            ("README.md", "# Rove\n"),
        ])
    };
    for good in [
        "[a](wire.md)",
        "[a](../README.md)",
        "[a](wire.md#data-datagram-26-bytes) and [b](../docs)",
        "[a](#page)",
        "[a](https://example.org/none.md)",
        "`[a](none.md)`",
        "```\n[a](none.md)\n```",
        "[a]: wire.md",
    ] {
        assert_eq!(docs(good), [""; 0], "{good}");
    }
    for bad in
        ["[a](none.md)", "[a](wire.md#none)", "[a](../../x.md)", "[a](#none)", "[a]: none.md"]
    {
        assert_eq!(docs(bad).len(), 1, "{bad}");
    }
}
