//! The signal strength at which a Wi-Fi link receives its access point, in dBm.
//!
//! It comes from the kernel's nl80211 (linux/nl80211.h), by one request: the stations of an
//! interface, which for a client is its access point alone. The request needs no privilege and
//! sends nothing. This module does not decide which signal is weak.
//!
//! Limits: modems are missing, since the kernel does not know their signal. The kernel can also
//! report a crossed threshold (`NL80211_CMD_SET_CQM`). But there is one threshold per interface,
//! and it belongs to the program that manages the Wi-Fi, so callers have to poll.

use std::io;

use crate::{
    error::Error,
    netlink::generic::{Attributes, Generic, Question, attribute},
};

/// `NL80211_CMD_GET_STATION`.
const GET_STATION: u8 = 17;
/// `NL80211_ATTR_IFINDEX`, four bytes.
const IFINDEX: u16 = 3;
/// `NL80211_ATTR_STA_INFO`, nested.
const STA_INFO: u16 = 21;
/// `NL80211_STA_INFO_SIGNAL`: of the last frame, one byte, dBm with sign.
const SIGNAL: u16 = 7;
/// `NL80211_STA_INFO_SIGNAL_AVG`: a moving average, if the driver has it.
const SIGNAL_AVG: u16 = 13;

/// What can be the strength of a radio signal. Drivers that know none say 0.
const PLAUSIBLE: std::ops::RangeInclusive<i8> = -120..=-1;

/// Where the strength of signals is asked for.
#[derive(Debug)]
pub struct Radio {
    netlink: Generic,
    family: u16,
}

impl Radio {
    /// Opens it in the present network namespace; `None` where the kernel has no Wi-Fi.
    ///
    /// # Errors
    /// [`Error::Os`] where a sandbox forbids netlink.
    pub fn open() -> Result<Option<Self>, Error> {
        let mut netlink = Generic::open()?;
        let family = netlink.family("nl80211");
        let family = family.map_err(|error| Error::os("ask the kernel for Wi-Fi", error))?;
        Ok(family.map(|family| Self { netlink, family }))
    }

    /// The strength in dBm with which the interface with this index hears its access point. `None`
    /// while it has none, for what is no Wi-Fi, and for drivers that do not tell.
    ///
    /// # Errors
    /// [`Error::Os`] when the kernel does not answer.
    pub fn signal(&mut self, index: u32) -> Result<Option<i8>, Error> {
        let attributes = &attribute(IFINDEX, &index.to_ne_bytes());
        let family = self.family;
        let question = Question { family, command: GET_STATION, dump: true, attributes };
        let mut stations = Stations::default();
        match self.netlink.ask(question, |station| stations.take(station)) {
            Ok(()) => Ok(stations.only()),
            // It is gone, or no Wi-Fi, or one that does not know its stations.
            Err(error) if is_no_answer(&error) => Ok(None),
            Err(error) => Err(Error::os("ask for a Wi-Fi link's signal", error)),
        }
    }
}

fn is_no_answer(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENODEV | libc::EOPNOTSUPP | libc::ENOLINK | libc::ENOENT | libc::ENONET)
    )
}

/// What was told of an interface's stations.
#[derive(Default)]
pub(crate) struct Stations {
    count: usize,
    signal: Option<i8>,
}

impl Stations {
    pub(crate) fn take(&mut self, mut station: Attributes<'_>) {
        self.count += 1;
        self.signal = station.find_map(|(kind, value)| {
            (kind == STA_INFO).then(|| signal_of(Attributes(value))).flatten()
        });
    }

    /// Several are a mesh, or clients of an access point that this host is: no way out.
    pub(crate) fn only(&self) -> Option<i8> {
        self.signal.filter(|_| self.count == 1)
    }
}

fn signal_of(info: Attributes<'_>) -> Option<i8> {
    let dbm = |kind| match info.find(kind)? {
        &[byte] => Some(i8::from_ne_bytes([byte])).filter(|dbm| PLAUSIBLE.contains(dbm)),
        _ => None,
    };
    dbm(SIGNAL_AVG).or_else(|| dbm(SIGNAL))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the kernel tells of a station (net/wireless/nl80211.c, nl80211_send_station), with its
    /// nested attributes.
    fn station(info: &[(u16, &[u8])]) -> Vec<u8> {
        let nested: Vec<u8> =
            info.iter().flat_map(|(kind, value)| attribute(*kind, value)).collect();
        [
            attribute(IFINDEX, &3u32.to_ne_bytes()),
            attribute(6, &[2, 0, 0, 0, 1, 0]),
            attribute(46, &77u32.to_ne_bytes()),
            // With the flag for nested attributes.
            attribute(STA_INFO | 0x8000, &nested),
        ]
        .concat()
    }

    fn signal(stations: &[Vec<u8>]) -> Option<i8> {
        let mut seen = Stations::default();
        stations.iter().for_each(|bytes| seen.take(Attributes(bytes)));
        seen.only()
    }

    const INACTIVE: (u16, &[u8]) = (1, &[20, 0, 0, 0]);
    const BYTES: (u16, &[u8]) = (2, &[0, 0, 1, 0]);

    #[test]
    fn the_average_counts_before_the_last_frame() {
        let both = station(&[INACTIVE, BYTES, (SIGNAL, &[0xb2]), (SIGNAL_AVG, &[0xb0])]);
        assert_eq!(signal(&[both]), Some(-80));
        let last = station(&[INACTIVE, (SIGNAL, &[0xb2])]);
        assert_eq!(signal(&[last]), Some(-78));
    }

    #[test]
    fn what_is_no_strength_is_none() {
        assert_eq!(signal(&[]), None, "not associated");
        assert_eq!(signal(&[station(&[INACTIVE])]), None, "a driver that does not tell");
        let good = station(&[(SIGNAL, &[0xc0])]);
        assert_eq!(signal(&[good.clone(), good.clone()]), None, "not a client");
        for value in [&[0][..], &[5], &[0x80], &[], &[0xb0, 0xff, 0xff, 0xff]] {
            assert_eq!(signal(&[station(&[(SIGNAL, value)])]), None, "{value:?}");
        }
        for cut in 0..good.len() {
            assert!(signal(&[good[..cut].to_vec()]).is_none_or(|dbm| dbm == -64));
        }
    }

    #[test]
    fn a_host_without_wifi_has_none_to_tell_of() {
        // Where there is Wi-Fi the loopback still has no access point.
        if let Some(mut radio) = Radio::open().unwrap() {
            assert_eq!(radio.signal(1).unwrap(), None);
        }
    }

    proptest! {
        #[test]
        fn hostile_messages_give_no_strength_that_cannot_be(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            info in proptest::collection::vec(any::<u8>(), 0..60),
        ) {
            for station in [bytes, attribute(STA_INFO, &info)] {
                prop_assert!(signal(&[station]).is_none_or(|dbm| PLAUSIBLE.contains(&dbm)));
            }
        }
    }
}
