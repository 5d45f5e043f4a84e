//! Programs that keep the machine busy, one for each core, at the same priority as the tested
//! programs or at raised priority. They end with the testbed.

use super::{START, Testbed};
use crate::ground::Load;
use crate::programs::{Report, report};

/// The niceness of programs at raised priority. They get nine times the share of a normal program.
const RAISED: i32 = -10;
/// The time limit of one program in seconds, in case nothing ends it.
const SECONDS_MAX: u64 = 3_600;

impl Testbed {
    /// Starts the programs that keep the machine busy.
    ///
    /// # Errors
    /// A program cannot be started, or not at this priority.
    pub fn keep_busy(&mut self, load: Load) -> anyhow::Result<()> {
        let nice = match load {
            Load::None => return Ok(()),
            Load::Equal => 0,
            Load::Raised => RAISED,
        };
        for _ in 0..std::thread::available_parallelism()?.get() {
            let host = self.network.host(self.services);
            let mut command = host.command_at(&self.lab, nice)?;
            command.args(["program", "spin", "--seconds", &SECONDS_MAX.to_string()]);
            command.arg(format!("--nice={nice}"));
            let mut spinning = host.spawn("spin", command)?;
            spinning.line_where(START, |line| (report(line)? == Report::Ready).then_some(()))?;
            self.spinning.push(spinning);
        }
        Ok(())
    }

    /// Lets these programs rest, or go on. Beside them a client takes up to a minute to end: the
    /// kernel frees its firewall rules before `nft` may end, and does that when it has time.
    pub fn rest(&self, resting: bool) {
        for spinning in &self.spinning {
            spinning.pause(resting);
        }
    }
}
