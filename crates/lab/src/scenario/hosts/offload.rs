//! Real hosts whose segmentation offload loses datagrams.
//!
//! The kernel shows a segmented send to the packet filter as one packet, which is longer than the
//! link allows. A rule of `nft` redirects such packets to a port where nobody listens. Limits: a
//! rule cannot tell a full last segment from a shorter one.

use std::process::Command;

use anyhow::{Context as _, bail, ensure};

use super::super::testbed::Testbed;
use crate::ground::Mangled;

/// Longer at layer 3 than any packet on a link of the lab: such a packet is a segmented send.
const LEN_MAX: u32 = 1_600;
/// The discard port (RFC 863).
const NOWHERE: u16 = 9;

/// Client and gateway lose these segmented sends from now on.
///
/// # Errors
/// When `nft` is missing or refuses, or cannot tell such sends from others.
pub(super) fn mangle(testbed: &Testbed, mangled: Mangled) -> anyhow::Result<()> {
    let Mangled::EveryNth(every) = mangled else {
        bail!("full last segments are told in virtual time only");
    };
    let rules = format!(
        "add table inet lab_offload; \
         add chain inet lab_offload out {{ type filter hook output priority 0; }}; \
         add rule inet lab_offload out meta l4proto udp meta length > {LEN_MAX} \
         numgen inc mod {every} == 0 udp dport set {NOWHERE}"
    );
    for host in [testbed.client, testbed.gateway] {
        let mut nft: Command = testbed.network.host(host).command("nft")?;
        let output = nft.arg(&rules).output().context("cannot run nft: install nftables")?;
        let says = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "nft refuses a rule: {says}");
    }
    Ok(())
}
