//! Settings of the kernel below `/proc/sys/net`: how they are read and written.
//!
//! This module does not know which settings a plan needs. The settings of a link disappear with the
//! link, so a missing setting is no error.

use std::{
    fs::{self, OpenOptions},
    io,
    path::{Component, Path, PathBuf},
};

use crate::error::Error;

const ROOT: &str = "/proc/sys/net";
/// Whether the host forwards IPv4.
pub(super) const FORWARDING_V4: &str = "ipv4/conf/all/forwarding";
/// For IPv4, a host that does not forward accepts redirects if the link's setting or "all" allows
/// them (`IN_DEV_RX_REDIRECTS`, linux/inetdevice.h). For IPv6 only the link's setting counts.
pub(super) const REDIRECTS_V4: &str = "ipv4/conf/all/accept_redirects";

/// Whether the kernel speaks IPv6 at all.
pub(super) fn has_ipv6() -> bool {
    PathBuf::from(ROOT).join("ipv6").exists()
}

/// Whether IPv6 is off on an interface.
pub(super) fn is_ipv6_off(device: &str) -> bool {
    read(&disable_ipv6(device)).is_ok_and(|value| value != "0")
}

/// Whether IPv6 is off on an interface, and this process cannot turn it on.
pub(super) fn is_ipv6_locked_off(device: &str) -> bool {
    is_ipv6_off(device) && !may_write(&disable_ipv6(device))
}

/// Turns IPv6 on for an interface of Rove.
pub(super) fn turn_ipv6_on(device: &str) -> Result<(), Error> {
    let failed = |_| Error::Ipv6Off { interface: device.to_owned() };
    write(&disable_ipv6(device), "0").map_err(failed)
}

fn disable_ipv6(device: &str) -> String {
    format!("ipv6/conf/{device}/disable_ipv6")
}

/// The path of a setting. Keys may come from the journal, which the node's user writes and root
/// reads, so no key may lead out of the network settings.
fn path(key: &str) -> io::Result<PathBuf> {
    let is_plain = Path::new(key).components().all(|part| matches!(part, Component::Normal(_)));
    match is_plain {
        true => Ok(PathBuf::from(ROOT).join(key)),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no network setting")),
    }
}

/// The present value.
pub(super) fn read(key: &str) -> io::Result<String> {
    fs::read_to_string(path(key)?).map(|value| value.trim().to_owned())
}

/// Whether a setting exists and can be changed; in containers it often cannot.
pub(super) fn may_write(key: &str) -> bool {
    path(key).and_then(|path| OpenOptions::new().write(true).open(path)).is_ok()
}

/// Sets a value if it differs. The settings of a link disappear with the link, so a missing setting
/// is no error.
pub(super) fn write(key: &str, value: &str) -> Result<(), Error> {
    if read(key).is_ok_and(|now| now == value) {
        return Ok(());
    }
    // When forwarding changes, the kernel also changes whether it accepts redirects
    // (`inet_forward_change`). Here that is a separate setting.
    let redirects = (key == FORWARDING_V4).then(|| read(REDIRECTS_V4).ok()).flatten();
    set(key, value)?;
    redirects.map_or(Ok(()), |before| set(REDIRECTS_V4, &before))
}

fn set(key: &str, value: &str) -> Result<(), Error> {
    let written = path(key).and_then(|path| fs::write(path, value));
    let Err(error) = written else { return Ok(()) };
    if error.kind() == io::ErrorKind::NotFound {
        return Ok(());
    }
    if error.kind() == io::ErrorKind::ReadOnlyFilesystem {
        return Err(Error::SettingReadOnly {
            setting: format!("net.{}", key.replace('/', ".")),
            now: read(key).unwrap_or_default(),
            wanted: value.to_owned(),
        });
    }
    Err(Error::os(format!("set {ROOT}/{key} to {value}"), error))
}
