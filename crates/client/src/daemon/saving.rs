//! How bytes are saved: as the configuration says, and with `data = "auto"` by whether the link in
//! use is metered.

use rove_host::data::Handle;
use rove_proto::codec::SavingConfig;
use rove_proto::id::PeerKey;
use rove_proto::node::Command;

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
