//! Name servers of the tunnel: through systemd-resolved where it resolves for this host, else in
//! resolv.conf.
//!
//! It decides which of the two, and keeps what was there before. It refuses to know why a name
//! goes into the tunnel. Limits: resolv.conf(5) knows no split, so without systemd-resolved servers
//! for some domains only are refused: the tunnel's servers would be asked for every name, those of
//! the local network too. A program that speaks DNS by itself is held by routes and kill switch,
//! not by this.

pub(crate) mod bus;
mod file;
pub(crate) mod keeper;
pub(crate) mod resolved;

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    error::Error,
    plan::{Dns, Places},
};

/// What the settings replaced, and in which way they were made.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Saved {
    /// systemd-resolved keeps settings per link: reverting the link's is enough.
    Resolved,
    /// The resolver's file.
    File(file::Saved),
}

impl Saved {
    /// The change was made: only its result is to be expected from now on.
    pub(crate) fn settle(&mut self) {
        match self {
            Self::Resolved => {}
            Self::File(saved) => saved.settle(),
        }
    }
}

/// Finds the way, and saves what is there, before anything is changed. `earlier` is what was
/// saved for the settings that are to be replaced.
pub(crate) fn save(dns: &Dns, earlier: Option<&Saved>, places: &Places) -> Result<Saved, Error> {
    let can_split = || places.resolved && resolved::resolves_for_this_host(&places.resolv_conf);
    if !dns.all && !can_split() {
        return Err(Error::NamesCannotBeSplit);
    }
    keeper::save(dns, earlier).unwrap_or_else(|| save_here(dns, earlier, places))
}

fn save_here(dns: &Dns, earlier: Option<&Saved>, places: &Places) -> Result<Saved, Error> {
    if places.resolved && resolved::resolves_for_this_host(&places.resolv_conf) {
        return Ok(Saved::Resolved);
    }
    let earlier = match earlier {
        Some(Saved::File(saved)) => Some(saved),
        Some(Saved::Resolved) | None => None,
    };
    file::save(dns, earlier, &places.resolv_conf).map(Saved::File)
}

/// The directory and file that are written, now that nothing has been changed.
pub(crate) fn written(places: &Places) -> Vec<PathBuf> {
    if places.resolved && resolved::resolves_for_this_host(&places.resolv_conf) {
        return Vec::new();
    }
    let directory = places.resolv_conf.parent().map(Path::to_owned);
    let linked = fs::canonicalize(&places.resolv_conf).ok();
    let linked = linked.filter(|path| path.parent() != places.resolv_conf.parent());
    directory.into_iter().chain(linked).collect()
}

/// Whether the settings are still there. What resolved was told it keeps, also over its restart.
pub(crate) fn is_in_place(saved: &Saved, places: &Places) -> Result<bool, Error> {
    match saved {
        Saved::Resolved => Ok(true),
        Saved::File(saved) => file::is_in_place(saved, &places.resolv_conf),
    }
}

/// Installs the settings, through the [`keeper`] if this process is no longer root.
pub(crate) fn install(
    device: &str,
    dns: &Dns,
    saved: &Saved,
    places: &Places,
) -> Result<(), Error> {
    let kept = keeper::install(device, dns, saved);
    kept.unwrap_or_else(|| install_here(device, dns, saved, places))
}

fn install_here(device: &str, dns: &Dns, saved: &Saved, places: &Places) -> Result<(), Error> {
    match saved {
        Saved::Resolved => resolved::install(device, dns),
        Saved::File(_) => file::install(dns, &places.resolv_conf),
    }
}

/// The servers that this host asks beside the tunnel. `inside` are the tunnel's settings that are
/// in place, and what they replaced.
pub(crate) fn outside_servers(inside: Option<(&Dns, &Saved)>, places: &Places) -> Vec<SocketAddr> {
    let saved = match inside {
        Some((_, Saved::File(saved))) => Some(saved),
        Some((_, Saved::Resolved)) | None => None,
    };
    let mut servers = file::servers(saved, &places.resolv_conf);
    if places.resolved && servers.iter().all(|server| server.ip().is_loopback()) {
        servers = file::servers(None, Path::new(resolved::UPSTREAM));
    }
    let ours = inside.map_or(&[][..], |(dns, _)| &dns.servers);
    servers.retain(|server| !server.ip().is_loopback() && !ours.contains(&server.ip()));
    servers
}

/// Takes them back.
pub(crate) fn remove(device: &str, saved: &Saved, places: &Places) -> Result<(), Error> {
    let kept = keeper::remove(device, saved);
    kept.unwrap_or_else(|| remove_here(device, saved, places))
}

fn remove_here(device: &str, saved: &Saved, places: &Places) -> Result<(), Error> {
    match saved {
        Saved::Resolved => resolved::remove(device),
        Saved::File(saved) => file::remove(saved, &places.resolv_conf),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_what_a_plan_replaces_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        let resolv_conf = dir.path().join("resolv.conf");
        let state = dir.path().to_owned();
        let places = Places { state, resolv_conf: resolv_conf.clone(), resolved: true };
        assert_eq!(written(&places), [dir.path()], "a file that is not there yet");
        fs::write(&resolv_conf, "nameserver 192.0.2.53\n").unwrap();
        assert_eq!(written(&places), [dir.path()]);
        fs::remove_file(&resolv_conf).unwrap();
        let target = fs::canonicalize(elsewhere.path()).unwrap().join("resolv.conf");
        fs::write(&target, "nameserver 192.0.2.53\n").unwrap();
        symlink(&target, &resolv_conf).unwrap();
        assert_eq!(written(&places), [dir.path().to_owned(), target]);
    }
}
