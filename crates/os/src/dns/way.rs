//! In which way name servers are set, and doing so as root.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::{
    file::{self, Named, Replaced},
    resolved,
};
use crate::{
    error::Error,
    plan::{Dns, Places},
};

/// In which way the settings are made. It says nothing about what they replaced: the journal, which
/// has this value, belongs to the node's user, and root restores nothing that this user chose.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Way {
    /// systemd-resolved keeps settings per link: reverting the link's is enough.
    Resolved,
    /// The resolver's file, which carries what it replaced.
    File(Carried),
    /// The same file, which names a forwarder at this address.
    Forwarder(Ipv4Addr),
}

impl Way {
    /// What the file shall name; `None` if the file stays as it is.
    pub(super) fn named(self, dns: &Dns) -> Option<Named<'_>> {
        match self {
            Self::Resolved => None,
            Self::File(_) => Some(Named::Tunnel(dns)),
            Self::Forwarder(address) => Some(Named::Forwarder(address)),
        }
    }

    pub(super) fn names_forwarder(self) -> bool {
        matches!(self, Self::Forwarder(_))
    }

    /// Refuses a forwarder that is not on this host.
    pub(super) fn check(self) -> Result<(), Error> {
        match self {
            Self::Forwarder(address) if !address.is_loopback() => {
                Err(Error::BadPlan { why: format!("{address} is no loopback address") })
            }
            Self::Resolved | Self::File(_) | Self::Forwarder(_) => Ok(()),
        }
    }
}

/// Journals of earlier versions have the replaced text here. It is not read any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Carried {}

/// Installs the settings.
pub(super) fn install_here(
    (device, dns): (&str, &Dns),
    way: Way,
    places: &Places,
    replaced: &mut Replaced,
) -> Result<(), Error> {
    match way.named(dns) {
        None => resolved::install(device, dns),
        Some(named) => file::install(named, &places.resolv_conf, replaced),
    }
}

/// Takes them back.
pub(super) fn remove_here(
    device: &str,
    way: Way,
    places: &Places,
    replaced: &Replaced,
) -> Result<(), Error> {
    match way {
        Way::Resolved => resolved::remove(device),
        Way::File(_) | Way::Forwarder(_) => file::remove(&places.resolv_conf, replaced),
    }
}
