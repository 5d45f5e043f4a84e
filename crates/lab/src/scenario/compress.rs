//! `compress`: downloads that compression shortens, and others, through a tunnel that compresses
//! nothing, everything, all flows if they pay together, or each flow that pays.
//!
//! The cases are those of Alshalan 2017, section 5.7: one file of a single letter (Fig. 5.12), one
//! of random bytes (Fig. 5.13), both at once (Fig. 5.14), and a mix of flows (Fig. 5.16). In the
//! mix nine public files (`testdata/payloads`) travel beside as many flows of random bytes, since
//! most of what phones transfer is encrypted. Rove compresses by Zstandard here. Bytes count at
//! layer 3, and operations are packets that were compressed, whether they got smaller or not.
//!
//! In virtual time only, which knows no processor time: what an operation costs is for a benchmark.

use super::record::Limit;
use super::settings::{Setting, Settings};
use super::stage::Story;
use super::table::{self, Row, TABLE, figure};
use super::{About, Key, Outcome, Scenario, Stage};
use crate::emu::{LinkConfig, MS, SECOND};
use crate::ground::{Compress, Connections, Ground, Mode, Receiver, Terrain, Transfer, Trouble};
use crate::tcp::Content;
use serde_json::Value;

/// The link, in Mbit/s and milliseconds of round trip.
const LINK: (u64, u64) = (25, 30);
/// Bytes of IPv4 and UDP headers around a datagram.
const HEADERS: u64 = 28;
/// Slower than this, in Mbit/s, no download is waited for.
const SLOWEST_MBPS: u64 = 2;

/// Who decides what is compressed, by name.
const DECIDES: [(&str, Compress); 4] = [
    ("none", Compress::Off),
    ("all", Compress::All),
    ("tunnel", Compress::Together),
    ("flow", Compress::PerFlow),
];

/// One letter, again and again.
const LETTER: Content = Content::Repeated(b"a");
/// Files of different kinds.
const FILES: [Content; 9] = [
    Content::Repeated(include_bytes!("../../testdata/payloads/text_alice29.txt")),
    Content::Repeated(include_bytes!("../../testdata/payloads/html_page.html")),
    Content::Repeated(include_bytes!("../../testdata/payloads/urls_10k.txt")),
    Content::Repeated(include_bytes!("../../testdata/payloads/json_citm_catalog.json")),
    Content::Repeated(include_bytes!("../../testdata/payloads/json_twitter.json")),
    Content::Repeated(include_bytes!("../../testdata/payloads/bin_protobuf.bin")),
    Content::Repeated(include_bytes!("../../testdata/payloads/bin_chess_gtb.bin")),
    Content::Repeated(include_bytes!("../../testdata/payloads/comp_photo.jpeg")),
    Content::Repeated(include_bytes!("../../testdata/payloads/comp_paper.pdf")),
];

/// Files of this length show all of the paper's figures, in megabytes. The paper's had 75.
const WHOLE_MEGABYTES: u64 = 40;

/// The settings.
const SETTINGS: &[Setting] = &[Setting::number(
    "megabytes",
    WHOLE_MEGABYTES,
    (4, 75),
    "the length of a file, and of all of the mix",
)];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::lower_is_better("bytes_share"),
    Key::lower_is_better("operations_share"),
    Key::higher_is_better("goodput_share"),
    Key::lower_is_better("bytes_against_none"),
    Key::lower_is_better("incompressible_cost_share"),
    Key::higher_is_better("letter_saved_share"),
    Key::lower_is_better("incompressible_operations_share"),
    Key::lower_is_better("both_bytes_share"),
    Key::lower_is_better("both_operations_share"),
    Key::lower_is_better("operations"),
    Key::higher_is_better("mean_datagram_bytes"),
    Key::must_hold("checksum_ok"),
    Key::higher_is_better(TABLE),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct CompressFlows;

/// What is downloaded at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Case {
    Letter,
    Random,
    Both,
    Mix,
}

/// What a case took with one way to decide.
#[derive(Clone, Copy, Debug, Default)]
struct Taken {
    /// Layer-3 bytes that left the gateway, in so many datagrams.
    bytes: u64,
    datagrams: u64,
    operations: u64,
    mbps: f64,
}

impl Scenario for CompressFlows {
    fn about(&self) -> About {
        About {
            name: "compress",
            summary: "downloads that compression shortens or not: bytes, operations and goodput by \
                      who decides",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn limits(&self, settings: &Settings) -> Vec<Limit> {
        let mut limits = vec![
            Limit::at_most("both_bytes_share", 1.0),
            Limit::at_most("bytes_against_none", 1.0 - 0.1758),
            // Half of the mix pays and stays on. The paper's mix had fewer such flows: 0.3345.
            Limit::at_most("operations_share", 0.55),
            Limit::equal("checksum_ok", true),
        ];
        // Samples and beginnings are a larger part of shorter downloads.
        if settings.number("megabytes") >= WHOLE_MEGABYTES {
            limits.extend([
                Limit::at_least("letter_saved_share", 0.9444),
                Limit::at_least("mean_datagram_bytes", 1_300.0),
                Limit::at_most("incompressible_operations_share", 0.06),
                Limit::at_most("both_operations_share", 1.0 - 0.4686),
            ]);
        }
        limits
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        100.0
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let mut outcome = Outcome::default();
        let mut rows = Vec::new();
        let mut intact = true;
        for case in [Case::Letter, Case::Random, Case::Both, Case::Mix] {
            let mut all = [Taken::default(); DECIDES.len()];
            for (taken, (name, compress)) in all.iter_mut().zip(DECIDES) {
                // A control has no decision for each flow.
                let is_broken = stage.control() && compress == Compress::PerFlow;
                let compress = if is_broken { Compress::Together } else { compress };
                let (told, was_intact) = case.tell(stage, compress, &mut outcome)?;
                *taken = told;
                intact &= was_intact;
                let row = case.row(name, told);
                (stage.tell)(&table::line(&row));
                rows.push(Value::Object(row));
            }
            case.judge(all, &mut outcome);
        }
        outcome.hold("checksum_ok", intact);
        outcome.measured.insert(TABLE.to_owned(), Value::Array(rows));
        Ok(outcome)
    }
}

impl Case {
    const fn name(self) -> &'static str {
        match self {
            Self::Letter => "letter",
            Self::Random => "random",
            Self::Both => "both",
            Self::Mix => "mix",
        }
    }

    /// What each connection carries.
    fn contents(self) -> Vec<Content> {
        match self {
            Self::Letter => vec![LETTER],
            Self::Random => vec![Content::Random],
            Self::Both => vec![LETTER, Content::Random],
            Self::Mix => FILES.into_iter().flat_map(|file| [file, Content::Random]).collect(),
        }
    }

    /// Bytes of each connection.
    fn length(self, settings: &Settings) -> u64 {
        let whole = settings.number("megabytes") * 1_000_000;
        match self {
            Self::Letter | Self::Random | Self::Both => whole,
            Self::Mix => whole / (2 * FILES.len() as u64),
        }
    }

    /// Downloads everything. Returns what that took, and whether all arrived.
    fn tell(
        self,
        stage: &Stage<'_>,
        compress: Compress,
        outcome: &mut Outcome,
    ) -> anyhow::Result<(Taken, bool)> {
        let link = LinkConfig::lossless(LINK.0 * 1_000_000, LINK.1 * MS);
        let terrain = Terrain { mode: Mode::Full, compress, ..Terrain::of(link) };
        let length = self.length(stage.settings);
        let (mut taken, mut intact) = (Taken::default(), false);
        let story: Story<'_> = &mut |ground: &mut dyn Ground, _| -> Result<(), Trouble> {
            let of =
                |content| Connections { content, ..Connections::bulk(Receiver::Client, length) };
            let kinds: Vec<_> = self.contents().into_iter().map(of).collect();
            let longest_ns = kinds.len() as u64 * length * 8 / SLOWEST_MBPS * 1_000;
            let before = count(ground)?;
            let transfers = ground.connect(&kinds, longest_ns, &[])?.concat();
            let after = count(ground)?;
            intact = transfers.iter().all(|one| one.complete && one.intact);
            taken = Taken {
                bytes: after.bytes - before.bytes,
                datagrams: after.datagrams - before.datagrams,
                operations: after.operations - before.operations,
                mbps: mbps(&transfers, length),
            };
            Ok(())
        };
        let told = stage.on_ground(&terrain, story)?;
        outcome.absorb(told);
        Ok((taken, intact))
    }

    fn row(self, decides: &str, taken: Taken) -> Row {
        table::row([
            ("case", self.name().into()),
            ("decides", decides.into()),
            ("bytes", taken.bytes.into()),
            ("operations", taken.operations.into()),
            ("datagram_bytes", figure(Some(taken.datagram()))),
            ("goodput_mbps", figure(Some(taken.mbps))),
        ])
    }

    /// The figures of the case, as the paper has them.
    fn judge(self, [none, all, _, flow]: [Taken; DECIDES.len()], outcome: &mut Outcome) {
        let mut measure = |key: &str, value| outcome.measure(key, Some(value));
        let share = |part: u64, of: u64| part as f64 / (of as f64).max(1.0);
        let (bytes, operations) =
            (share(flow.bytes, all.bytes), share(flow.operations, all.operations));
        match self {
            Self::Letter => {
                measure("letter_saved_share", 1.0 - share(flow.bytes, none.bytes));
                measure("mean_datagram_bytes", flow.datagram());
            }
            Self::Random => {
                measure("incompressible_cost_share", 1.0 - flow.mbps / none.mbps.max(1e-9));
                measure("incompressible_operations_share", operations);
            }
            Self::Both => {
                measure("both_operations_share", operations);
                measure("both_bytes_share", bytes);
            }
            Self::Mix => {
                measure("bytes_share", bytes);
                measure("operations_share", operations);
                measure("goodput_share", flow.mbps / all.mbps.max(1e-9));
                measure("bytes_against_none", share(flow.bytes, none.bytes));
                measure("operations", flow.operations as f64);
            }
        }
    }
}

impl Taken {
    /// Bytes of the mean datagram.
    fn datagram(self) -> f64 {
        self.bytes as f64 / (self.datagrams as f64).max(1.0)
    }
}

/// What has left the gateway so far.
fn count(ground: &mut dyn Ground) -> Result<Taken, Trouble> {
    let paths = ground.reported(Receiver::Server)?;
    let datagrams: u64 = paths.iter().map(|path| path.left_datagrams).sum();
    let payload: u64 = paths.iter().map(|path| path.left_bytes).sum();
    let operations = ground.gateway_work()?.compressions;
    Ok(Taken { bytes: payload + datagrams * HEADERS, datagrams, operations, mbps: 0.0 })
}

/// The rate of all downloads together, until the last one ends.
fn mbps(transfers: &[Transfer], length: u64) -> f64 {
    let begin_ns = transfers.iter().map(|one| one.start_ns).min().unwrap_or(0);
    let end_ns = transfers.iter().map(|one| one.end_ns).max().unwrap_or(0);
    let bits = transfers.len() as u64 * length * 8;
    bits as f64 / 1e6 / (end_ns.saturating_sub(begin_ns).max(1) as f64 / SECOND as f64)
}
