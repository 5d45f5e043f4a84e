//! The command line as people and scripts meet it, where no namespace is needed.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking and shows what it prints")]

use std::process::{Command, Output};

const LAB: &str = env!("CARGO_BIN_EXE_rove-lab");

fn lab(arguments: &[&str]) -> Output {
    Command::new(LAB).args(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn list_names_every_scenario() {
    let output = lab(&["list"]);
    assert_eq!(text(&output.stdout), include_str!("golden/list.txt"));
    assert!(output.status.success());
}

#[test]
fn a_command_line_that_makes_no_sense_is_answered_with_2_and_the_cure() {
    for (arguments, said) in [
        (&["run", "x"][..], "no scenario is called x; there are tunnel, roam-client"),
        (&["run", "tunnel", "--set", "x=1"], "the keys are control, bare, rove, seconds, family"),
        (&["run", "tunnel", "--set", "seconds=0"], "say a number from 2 to 600"),
        (&["run", "tunnel", "--seeds", "0"], "0 is not in 1..=10000"),
        (&["run", "tunnel", "--seed", "1", "--seeds", "2"], "cannot be used with"),
        (&["run", "tunnel", "--where", "moon"], "[possible values: netns, virtual]"),
        (&["fly"], "unrecognized subcommand"),
    ] {
        let output = lab(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(said), "{arguments:?}: {}", text(&output.stderr));
    }
}
