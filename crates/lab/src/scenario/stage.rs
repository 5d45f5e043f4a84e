//! Builds the backend of a run, and interprets its end.

use super::addresses::Family;
use super::binary::Binary;
use super::deploy::Deployment;
use super::hosts::Hosts;
use super::settings::Settings;
use super::testbed::Testbed;
use super::{Grid, Outcome};
use crate::ground::{Compress, Ground, Load, Terrain, Trouble};
use crate::netns::Entered;
use crate::world::{ABLATES, Heuristic, Hold, Journey, StreamsKnown};
use anyhow::{Context as _, ensure};
use std::cell::Cell;
use std::path::{Path, PathBuf};

/// How both ends treat open connections, and how long a silent session is kept, in seconds, in
/// scenarios about something else.
pub(super) const USUALLY: (Hold, u64) = (Hold::Full, Journey::DAY_S);

/// The conditions of a run.
pub struct Stage<'a> {
    /// The seed of all chance.
    pub seed: u64,
    /// The settings.
    pub settings: &'a Settings,
    /// The part of the grid to cover.
    pub grid: Grid,
    /// The namespaces for hosts; `None` in virtual time.
    pub entered: Option<&'a Entered>,
    /// The binary under test; `None` for the bare link, and in virtual time, which runs the linked
    /// core.
    pub rove: Option<&'a Binary>,
    /// The number of runs whose packets were written to files.
    pub captured: Cell<u32>,
    /// Reports progress to people.
    pub tell: &'a dyn Fn(&str),
}

impl<'a> Stage<'a> {
    /// In virtual time, without reports of progress.
    pub(super) fn quiet(seed: u64, settings: &'a Settings, grid: Grid) -> Self {
        let (entered, rove, captured) = (None, None, Cell::new(0));
        Self { seed, settings, grid, entered, rove, captured, tell: &|_| {} }
    }
}

/// A run. It adds its results to the outcome as they come, so that they are kept if it fails.
pub(super) type Story<'a> = &'a mut dyn FnMut(&mut dyn Ground, &mut Outcome) -> Result<(), Trouble>;

impl Stage<'_> {
    /// The family that the tunnel uses outside.
    pub fn family(&self) -> Family {
        if self.settings.text("family") == "6" { Family::V6 } else { Family::V4 }
    }

    /// Other load on the machines of client and gateway.
    pub fn load(&self) -> Load {
        Load::named(self.settings.text("busy"))
    }

    /// Whether the mechanism is broken on purpose, so that the run must fail.
    pub fn control(&self) -> bool {
        self.settings.flag("control")
    }

    /// The heuristic that the tunnel leaves out.
    fn without(&self) -> Option<&'static str> {
        let word = self.settings.text("without");
        Heuristic::NAMES.iter().copied().find(|name| *name == word)
    }

    /// Runs in networks like `terrain`: on hosts, with Rove as the README deploys it, or in virtual
    /// time.
    ///
    /// # Errors
    /// The reason why it could not run. A failure of the program under test is no error.
    pub(super) fn on_ground(&self, terrain: &Terrain, story: Story<'_>) -> anyhow::Result<Outcome> {
        match self.entered {
            Some(entered) => {
                let deploy = |testbed: &_| Deployment::start(testbed, self.rove);
                self.on_hosts(entered, terrain, &deploy, story)
            }
            None => self.in_virtual_time(terrain, StreamsKnown::Direct, USUALLY, story),
        }
    }

    /// Runs on hosts, over the deployment that `deploy` makes.
    ///
    /// # Errors
    /// As above.
    pub(super) fn on_hosts(
        &self,
        entered: &Entered,
        terrain: &Terrain,
        deploy: &dyn Fn(&Testbed) -> anyhow::Result<Deployment>,
        story: Story<'_>,
    ) -> anyhow::Result<Outcome> {
        let captures = !self.settings.text("capture").is_empty();
        ensure!(!captures, "--set capture=... is told in virtual time only");
        ensure!(terrain.judges_offload, "offload is always judged in namespaces");
        ensure!(terrain.compress == Compress::Off, "compression is told in virtual time only");
        ensure!(terrain.aggregates, "packets always share datagrams in namespaces");
        ensure!(terrain.reorders, "--set reorder=off is told in virtual time only");
        ensure!(self.without().is_none(), "--set without=... is told in virtual time only");
        let mut testbed = Testbed::new(entered, terrain, self.family(), self.seed)?;
        (self.tell)("deploying");
        let deployment = deploy(&testbed)?;
        testbed.keep_busy(self.load())?;
        let mut hosts = Hosts::new(testbed, deployment, terrain, self.seed);
        let mut outcome = Outcome::default();
        let told = story(&mut hosts, &mut outcome).and_then(|()| hosts.check());
        outcome.broke = what_broke(told)?;
        outcome.timekeeping = Some(hosts.testbed().network.take_timekeeping()?);
        Ok(outcome)
    }

    /// Runs in virtual time. Clients know these streams from their next start on. The tunnel ends
    /// treat open connections like this, and keep a silent session for this many seconds.
    ///
    /// # Errors
    /// As above.
    pub(super) fn in_virtual_time(
        &self,
        terrain: &Terrain,
        streams: StreamsKnown,
        (hold, timeout_s): (Hold, u64),
        story: Story<'_>,
    ) -> anyhow::Result<Outcome> {
        for (set, what) in [
            (self.settings.flag("bare"), "bare=true"),
            (self.family() == Family::V6, "family=6"),
            (!self.settings.text("rove").is_empty(), "rove=..."),
        ] {
            ensure!(!set, "--set {what} is told in namespaces only");
        }
        let transport = terrain.transport;
        let is_there = ["auto", "udp"].contains(&transport);
        ensure!(is_there, "--set transport={transport} is told in namespaces only");
        let without = self.without();
        let needs = "needs a lab that is built with --features rove-lab/ablation";
        ensure!(ABLATES || without.is_none(), "--set without=... {needs}");
        let terrain = &Terrain { without: without.or(terrain.without), ..terrain.clone() };
        let mut outcome = Outcome::default();
        let told = Journey::holding(self.seed, terrain, hold, timeout_s).and_then(|mut journey| {
            journey.know_streams(streams);
            journey.keep_busy(self.load());
            let path = self.settings.text("capture");
            if !path.is_empty() {
                journey.capture();
            }
            let told = story(&mut journey, &mut outcome);
            self.write_captured(Path::new(path), &journey)?;
            told
        });
        outcome.broke = what_broke(told)?;
        Ok(outcome)
    }

    /// Writes the packets at the client's end of this run's connections to a file, and those at the
    /// server's end to another beside it.
    fn write_captured(&self, path: &Path, journey: &Journey) -> anyhow::Result<()> {
        let Some([client, server]) = journey.captured() else { return Ok(()) };
        self.captured.update(|stories| stories + 1);
        let path = numbered(path, self.seed, self.captured.get());
        let mut beside = path.clone().into_os_string();
        beside.push(".server");
        for (path, packets) in [(path, client), (beside.into(), server)] {
            let failed = || format!("cannot write {}", path.display());
            std::fs::write(&path, packets).with_context(failed)?;
        }
        Ok(())
    }
}

/// A path with the seed and the number of the run before its extension: a scenario may have many
/// runs, and several seeds at once.
fn numbered(path: &Path, seed: u64, story: u32) -> PathBuf {
    let mut name = path.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-{seed}-{story}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// What failed in the program under test, if anything.
fn what_broke(told: Result<(), Trouble>) -> anyhow::Result<Option<String>> {
    match told {
        Ok(()) => Ok(None),
        Err(Trouble::UnderTest(what)) => Ok(Some(what)),
        Err(Trouble::Lab(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::{Stage, numbered};
    use crate::emu::{LinkConfig, MS};
    use crate::ground::Terrain;
    use crate::scenario::Grid;
    use crate::scenario::settings::Settings;
    use std::path::Path;

    #[test]
    fn a_number_stands_before_the_extension() {
        let all = ["a/b.pcap", "b", "a.b/c.d.e"].map(|path| numbered(Path::new(path), 7, 2));
        assert_eq!(all, ["a/b-7-2.pcap", "b-7-2", "a.b/c.d-7-2.e"].map(Path::new));
    }

    #[test]
    fn each_story_has_files_of_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let set = format!("capture={}", directory.path().join("of.pcap").display());
        let settings = Settings::parse(&[], &[set]).unwrap();
        let stage = Stage::quiet(3, &settings, Grid::Default);
        let terrain = Terrain::of(LinkConfig::lossless(10_000_000, 20 * MS));
        for _ in 0..2 {
            stage.on_ground(&terrain, &mut |ground, _| ground.pause(MS)).unwrap();
        }
        let files = std::fs::read_dir(directory.path()).unwrap();
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name()).collect();
        names.sort();
        let of = ["of-3-1.pcap", "of-3-1.pcap.server", "of-3-2.pcap", "of-3-2.pcap.server"];
        assert_eq!(names, of);
    }
}
