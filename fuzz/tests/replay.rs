//! Replays every committed corpus on the stable toolchain, then a fixed number of mutations of it.
//! An input that breaks a target is printed with what to do next.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use rove_fuzz::mutation::Mutator;
use rove_fuzz::{TARGETS, Target};

/// The seed of the mutations: the same on every machine and every run.
const SEED: u64 = 0x526f_7665;

fn corpus(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name)
}

/// The committed inputs of a target, in order of their names.
fn committed(target: &Target) -> Vec<(String, Vec<u8>)> {
    let folder = corpus(target.name);
    let entries = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("fuzz/corpus/{}: {error}: commit one", target.name));
    let mut inputs: Vec<(String, Vec<u8>)> = entries
        .map(|entry| {
            let entry = entry.expect("the corpus can be listed");
            let input = fs::read(entry.path()).expect("an input can be read");
            (entry.file_name().to_string_lossy().into_owned(), input)
        })
        .collect();
    inputs.sort();
    inputs
}

fn check(target: &Target, origin: &str, input: &[u8]) {
    let outcome = catch_unwind(AssertUnwindSafe(|| (target.run)(input)));
    if outcome.is_err() {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        panic!(
            "target `{}` broke on {origin}.\nKeep the input before mending the code:\n\
             echo {hex} | xxd -r -p > fuzz/corpus/{}/NAME-OF-THE-BUG",
            target.name, target.name
        );
    }
}

#[test]
fn committed_corpora_hold() {
    for target in TARGETS {
        let inputs = committed(target);
        assert!(!inputs.is_empty(), "fuzz/corpus/{} is empty: commit one input", target.name);
        for (name, input) in inputs {
            check(target, &format!("corpus/{}/{name}", target.name), &input);
        }
    }
}

#[test]
fn seeds_and_their_mutations_hold() {
    for target in TARGETS {
        let mut known = (target.seeds)();
        for (number, seed) in known.iter().enumerate() {
            check(target, &format!("its own seed {number}"), seed);
        }
        known.extend(committed(target).into_iter().map(|(_, input)| input));
        let mut mutator = Mutator::new(SEED);
        for number in 0..target.mutations {
            let input = mutator.input(&known);
            check(target, &format!("mutation {number}"), &input);
        }
    }
}

#[test]
fn every_corpus_belongs_to_a_target() {
    for entry in fs::read_dir(corpus("")).unwrap() {
        let name = entry.unwrap().file_name().to_string_lossy().into_owned();
        assert!(rove_fuzz::target(&name).is_some(), "fuzz/corpus/{name} has no target");
    }
}

/// The check above must be able to fail.
#[test]
fn a_target_that_breaks_is_reported() {
    fn breaks(input: &[u8]) {
        assert!(input.is_empty(), "not empty");
    }
    let target = Target { name: "breaks", run: breaks, seeds: Vec::new, mutations: 0 };
    check(&target, "nothing", &[]);
    let message = catch_unwind(|| check(&target, "one byte", &[0xab])).unwrap_err();
    let message = message.downcast_ref::<String>().unwrap();
    assert!(message.contains("one byte") && message.contains("echo ab |"), "{message}");
}
