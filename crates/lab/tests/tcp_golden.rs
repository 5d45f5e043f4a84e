//! The model's TCP against the kernel's: the same transfer over the same emulated link, in virtual
//! time, must look like the golden trace in `testdata/tcp` that the kernel made in real time.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and shows what it compares"
)]

use rove_lab::emu::{Carrier, LinkConfig, MS, SECOND};
use rove_lab::tcp::trace::{Row, Trace, Tracer};
use rove_lab::tcp::{Config, CongestionControl, Plan, Side, Trial};
use std::path::Path;

/// Bits a second of the link.
const RATE: u64 = 20_000_000;
/// What the headers leave of it for payload, in bytes a second.
const PAYLOAD_RATE: f64 = RATE as f64 / 8.0 * 1_448.0 / 1_500.0;

/// A transfer of the kernel and how it was disturbed, in microseconds since the SYN.
struct Golden {
    congestion: CongestionControl,
    bytes: u64,
    outage: Option<(u64, u64)>,
    pause: Option<(u64, u64)>,
    /// How much the reader's kernel held while it paused.
    buffer: Option<u64>,
    trace: Trace,
}

impl Golden {
    fn read(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/tcp");
        let text = std::fs::read_to_string(folder.join(format!("{name}.txt"))).unwrap();
        let line = |key: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' '));
            line.map(str::to_owned)
        };
        let span = |key: &str| {
            let line = line(key)?;
            let (from, to) = line.split_once(' ').unwrap();
            Some((from.parse().unwrap(), to.parse().unwrap()))
        };
        Self {
            congestion: match line("congestion").unwrap().as_str() {
                "reno" => CongestionControl::Reno,
                "cubic" => CongestionControl::Cubic,
                "bbr" => CongestionControl::Bbr,
                other => panic!("no congestion control is called {other}"),
            },
            bytes: line("bytes").unwrap().parse().unwrap(),
            outage: span("outage_us"),
            pause: span("pause_us"),
            buffer: line("buffer").map(|line| line.parse().unwrap()),
            trace: text.parse().unwrap(),
        }
    }

    /// The same by the model.
    fn replay(&self) -> Trace {
        let (client, server) =
            ("198.51.100.2:5000".parse().unwrap(), "192.0.2.2:80".parse().unwrap());
        let mut plan = Plan {
            link: LinkConfig::lossless(RATE, 40 * MS),
            client: Config { congestion: self.congestion, ..Config::new(client, server, 1) },
            server: Config::new(server, client, 2),
            upload: self.bytes,
            download: 0,
            closes: true,
            seed: 1,
        };
        if let Some(buffer) = self.buffer {
            plan.server.receive_buffer = buffer;
        }
        let mut trial = Trial::new(&plan);
        trial.capture();
        if let Some((from_us, to_us)) = self.outage {
            trial.pass(from_us * 1_000).unwrap();
            trial.set_link(Carrier::BlackHole);
            trial.pass(to_us * 1_000).unwrap();
            trial.set_link(Carrier::Up);
        }
        if let Some((from_us, to_us)) = self.pause {
            trial.pass(from_us * 1_000).unwrap();
            trial.set_reading(Side::Server, false);
            trial.pass(to_us * 1_000).unwrap();
            trial.set_reading(Side::Server, true);
        }
        trial.finish(100 * SECOND).unwrap();
        let mut tracer = Tracer::default();
        for passed in trial.take_passed() {
            tracer.note(passed.at_ns, passed.out, &passed.packet);
        }
        tracer.finish()
    }
}

/// Prints both and says whether they differ by no more than a share of the kernel's, or than so
/// many milliseconds.
fn agrees(what: &str, kernel_us: u64, model_us: u64, share: f64, slack_ms: u64) -> bool {
    let difference = kernel_us.abs_diff(model_us) as f64;
    let good = difference <= (kernel_us as f64 * share).max((slack_ms * 1_000) as f64);
    let mark = if good { "" } else { "  <- differs" };
    println!("  {what}: kernel {} ms, model {} ms{mark}", kernel_us / 1_000, model_us / 1_000);
    good
}

const ALL: [&str; 3] = ["reno", "cubic", "bbr"];

#[test]
fn an_undisturbed_transfer_takes_as_long() {
    let mut good = true;
    for congestion in ALL {
        let golden = Golden::read(&format!("{congestion}-steady"));
        let (kernel, model) = (&golden.trace, golden.replay());
        println!("{congestion}");
        good &= agrees("all of it", kernel.end_us, model.end_us, 0.05, 0);
        for share in [0.1, 0.3, 0.5, 0.8] {
            let bytes = (golden.bytes as f64 * share) as u32;
            let what = format!("{} %", share * 100.0);
            let (kernel, model) = (kernel.reached(bytes), model.reached(bytes));
            good &= agrees(&what, kernel.unwrap(), model.unwrap(), 0.1, 60);
        }
    }
    assert!(good);
}

#[test]
fn an_outage_is_survived_alike() {
    let mut good = true;
    for (congestion, length) in ALL.into_iter().flat_map(|one| [(one, "1s"), (one, "5s")]) {
        let golden = Golden::read(&format!("{congestion}-outage-{length}"));
        let (from_us, to_us) = golden.outage.unwrap();
        let (kernel, model) = (&golden.trace, golden.replay());
        println!("{congestion} {length}");
        let tries = |trace: &Trace| -> Vec<u64> {
            let during = |at: &u64| (from_us + 60_000..to_us).contains(at);
            trace.retransmissions().filter(during).map(|at| at - from_us).collect()
        };
        let (kernel_tries, model_tries) = (tries(kernel), tries(&model));
        println!("  tries: kernel {kernel_tries:?}, model {model_tries:?}");
        good &= kernel_tries.len() == model_tries.len();
        for (kernel, model) in kernel_tries.iter().zip(&model_tries) {
            good &= agrees("try", *kernel, *model, 0.1, 30);
        }
        let again = |trace: &Trace| trace.moves_again(to_us).unwrap() - to_us;
        good &= agrees("first progress", again(kernel), again(&model), 0.1, 60);
        let rate = |trace: &Trace| trace.reaches(to_us, PAYLOAD_RATE * 0.9).unwrap() - to_us;
        good &= agrees("old rate", rate(kernel), rate(&model), 0.15, 150);
        good &= agrees("all of it", kernel.end_us, model.end_us, 0.05, 0);
    }
    assert!(good);
}

#[test]
fn a_closed_window_is_waited_for_alike() {
    let mut good = true;
    for congestion in ALL {
        let golden = Golden::read(&format!("{congestion}-window"));
        let (from_us, to_us) = golden.pause.unwrap();
        let (kernel, model) = (&golden.trace, golden.replay());
        println!("{congestion}");
        let closes = |trace: &Trace| {
            let closed = |row: &&Row| {
                !row.out && row.window < 1_500 && (from_us..to_us).contains(&row.at_us)
            };
            trace.rows.iter().find(closed).unwrap().at_us - from_us
        };
        good &= agrees("window closed", closes(kernel), closes(&model), 0.1, 60);
        // Before them, bytes may go where there is room for less than a segment: chance.
        let probes = |trace: &Trace| -> Vec<u64> {
            let rows = trace.rows.iter().filter(|row| row.out && row.length == 0);
            let times = rows.map(|row| row.at_us).filter(|at| (from_us..to_us).contains(at));
            times.collect::<Vec<_>>().windows(2).map(|pair| pair[1] - pair[0]).collect()
        };
        let (kernel_gaps, model_gaps) = (probes(kernel), probes(&model));
        assert!(kernel_gaps.len() >= 2 && model_gaps.len() >= 2);
        for (kernel, model) in kernel_gaps.iter().zip(&model_gaps) {
            good &= agrees("between two probes", *kernel, *model, 0.1, 0);
        }
        let again = |trace: &Trace| trace.moves_again(to_us).unwrap() - to_us;
        good &= agrees("first progress", again(kernel), again(&model), 0.1, 60);
        let rate = |trace: &Trace| trace.reaches(to_us, PAYLOAD_RATE * 0.9).unwrap() - to_us;
        // Short enough to tell a window that starts again from one that does not.
        good &= agrees("old rate", rate(kernel), rate(&model), 0.15, 60);
        good &= agrees("all of it", kernel.end_us, model.end_us, 0.05, 0);
    }
    assert!(good);
}
