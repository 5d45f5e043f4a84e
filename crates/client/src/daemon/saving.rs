//! How bytes are saved: as the configuration says, and with `data = "auto"` by whether the link in
//! use is metered.

use rove_api::Problem;
use rove_host::data::Handle;
use rove_host::time::ago;
use rove_proto::codec::SavingConfig;
use rove_proto::id::PeerKey;
use rove_proto::node::{Command, PeerStatus};
use rove_proto::time::Instant;

use super::link_order::LinkOrder;
use crate::config::Config;

/// Tells the core how bytes are saved, unless it was `told` so before. Called when the
/// configuration, the link in use or its tariff may have changed.
pub(super) fn tell(
    told: &mut Option<SavingConfig>,
    config: &Config,
    (data, gateway): (&Handle, PeerKey),
    links: &LinkOrder,
) {
    let snapshot = data.status(Some(vec![gateway]));
    let session = snapshot.as_ref().and_then(|snapshot| snapshot.peers.first());
    let path = session.and_then(|session| session.paths.first()).filter(|path| path.in_use);
    let link = path.and_then(|path| path.link);
    let is_metered = link.is_some_and(|link| links.is_metered(link.0, &config.links));
    let saving = config.saving.core(is_metered);
    if told.as_ref() != Some(&saving) {
        *told = Some(saving.clone());
        data.command(Command::SetSaving(saving));
    }
}

/// The problem that a rule names a dictionary that the gateway does not have, or has otherwise.
pub(super) fn problem(session: &PeerStatus, now: Instant, config: &Config) -> Option<Problem> {
    let name = config.saving.lacking(session.dictionaries?)?;
    Some(Problem {
        part: Some("other".to_owned()),
        what: format!("client and gateway do not have the same dictionary {name}"),
        since: ago(now.saturating_since(session.established?)).0,
        cause: "the lists `dictionaries` in [saving] of client.toml and gateway.toml differ, or \
                changed after the start; packets are compressed without that dictionary"
            .to_owned(),
        cure: "write the same line into both files, and restart both".to_owned(),
    })
}
