//! Makes the counts of `testdata/linktraces` of a recorded link: how many packets of 1,500 bytes it
//! could deliver in each tenth of a second.
//!
//! ```text
//! cargo run --release -p rove-lab --example link_counts RECORDING > COUNTS
//! ```
//!
//! A recording is a text as mahimahi has it.

#![expect(clippy::print_stdout, reason = "that is what it is for")]

use anyhow::Context as _;
use rove_lab::emu::Trace;

fn main() -> anyhow::Result<()> {
    let path = std::env::args().nth(1).context("name the recording")?;
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let trace = Trace::parse(&text).with_context(|| format!("{path} is no recording"))?;
    trace.counts().iter().for_each(|count| println!("{count}"));
    Ok(())
}
