//! What a running node may no longer do, tried from outside and looked up in the kernel.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should panic")]

mod support;

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};

use support::binary;
use support::netns::{Lab, in_namespace, skip, wait_until};

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
