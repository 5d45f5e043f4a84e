//! The journal of changes on the host, which a crash may have cut or a disk damaged.
//!
//! In the input, `@BOOT@` stands for the present boot of the machine. An entry from an earlier boot
//! is read differently.

use std::fs;
use std::path::PathBuf;
use std::sync::LazyLock;

use rove_os::fuzz::journal;

use crate::Target;

/// The target. Every run writes files, hence the few mutations.
pub const TARGET: Target = Target { name: "plan_journal", run, seeds, mutations: 2_000 };

/// A folder for the journal: in memory where the system has one, as each run waits for its disk.
static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let memory = PathBuf::from("/dev/shm");
    let place = if memory.is_dir() { memory } else { std::env::temp_dir() };
    place.join(format!("rove-fuzz-{}", std::process::id()))
});

fn run(data: &[u8]) {
    let text = match std::str::from_utf8(data) {
        Ok(text) => text.replace("@BOOT@", &boot()).into_bytes(),
        Err(_) => data.to_vec(),
    };
    fs::create_dir_all(&*FOLDER).expect("a folder can be made");
    fs::write(FOLDER.join("plan.json"), text).expect("a file can be written");
    if let Err(line) = journal(&FOLDER) {
        assert!(!line.contains('\n'), "{line:?}");
        assert!(line.contains("plan.json"), "{line:?} does not say which file");
    }
    fs::remove_dir_all(&*FOLDER).expect("a folder can be removed");
}

fn boot() -> String {
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    boot.unwrap_or_default().trim().to_owned()
}

fn seeds() -> Vec<Vec<u8>> {
    let entries = [
        r#"{"item":{"device":{"name":"rove0","mtu":1412,"persistent":false}},"before":"nothing"}"#,
        r#"{"item":{"sysctl":{"key":"net/ipv4/ip_forward","value":"1"}},"before":{"sysctl":"0"}}"#,
        r#"{"item":{"address":{"device":"rove0","net":"10.77.0.2/24"}},"before":"nothing"}"#,
        r#"{"item":{"route":{"net":"0.0.0.0/0","target":{"device":"rove0"}}},"before":"nothing"}"#,
        r#"{"item":{"route":{"net":"::/0","target":"unreachable"}},"before":"nothing"}"#,
        r#"{"item":{"nat":{"device":"rove0","networks":["10.77.0.0/24"]}},"before":"nothing"}"#,
        r#"{"item":{"rule":{"v6":true,"kind":"tunnel"}},"before":"nothing"}"#,
    ];
    let of = |version: u32, boot: &str, entries: &[&str]| {
        let entries = entries.join(",");
        format!(r#"{{"version":{version},"boot":"{boot}","entries":[{entries}]}}"#).into_bytes()
    };
    let mut seeds = vec![
        of(1, "@BOOT@", &entries),
        of(1, "another", &entries),
        of(2, "@BOOT@", &entries),
        of(1, "@BOOT@", &[]),
        Vec::new(),
    ];
    seeds.extend(entries.iter().map(|entry| of(1, "@BOOT@", &[entry])));
    seeds
}
