//! `headers`: bytes on a link beyond the inner packet, for each kind of flow, if both ends leave
//! out headers that the other one knows; and what that is worth for one download over two links.
//!
//! One session over two links of 10 Mbit/s carries in turn a TCP download over IPv4 and one over
//! IPv6, one over QUIC, a call in RTP, and telemetry: requests of 125 bytes of UDP payload, which
//! are returned. Counted is what the gateway sends: the layer-3 length that most datagrams have of
//! those that are at least as long as the flow's full inner packet, less that packet. So feedback
//! is not counted, in datagrams of its own or in those with a packet, nor are the first packets of
//! a flow, which travel whole.
//!
//! Between namespaces nothing runs over IPv6 inside the tunnel.

use super::paper::Paper;
use super::record::Limit;
use super::settings::{Setting, Settings};
use super::{About, CALM_NS, Key, Outcome, Scenario, Stage};
use crate::emu::{LinkConfig, MS, SECOND};
use crate::ground::{
    Call, Clock, Congestion, Connections, Datagrams, Ground, Mode, Receiver, Talk, Terrain,
    Transfer, Trouble, Version, What,
};
use std::collections::BTreeMap;

/// Each of the two links, in Mbit/s and milliseconds of round trip.
const LINK: (u64, u64) = (10, 20);
/// The beginning of the download that does not count, because its sender still searches for the
/// rate.
const FIRST_NS: u64 = 5 * SECOND;
/// The length of the other flows. Of the shortest, telemetry, 60 packets are counted.
const FLOW_NS: u64 = 6 * SECOND;
/// Bytes of the longest inner packet, which all but the last of a download's are.
const FULL: usize = 1_420;
/// Bytes of IPv4 and UDP header inside the tunnel.
const INNER_HEADERS: usize = 28;
/// Telemetry: a request every 100 ms.
const TELEMETRY: Talk = Talk::Echo { every_ns: 100 * MS, bytes: 125 };

/// Payload that both links carry at least, in Mbit/s. With all headers Rove has 18.4.
const GOODPUT_MIN_MBPS: f64 = 18.6;

/// The keys of the kinds.
const TCP_V4: &str = "bytes_beyond_inner_bulk_v4";
const TCP_V6: &str = "bytes_beyond_inner_bulk_v6";
const QUIC: &str = "bytes_beyond_inner_quic_v4";
const RTP: &str = "bytes_beyond_inner_rtp_v4";
const REQUESTS: &str = "bytes_beyond_inner_telemetry_v4";
/// What they may be at most, with IPv4 outside: 54 bytes of IPv4, UDP and the datagram's own, 6 to
/// 9 of the frame, and the fields that vary, less the headers that are left out.
const LIMITS: [(&str, u64); 3] = [(TCP_V4, 34), (QUIC, 38), (RTP, 34)];
/// The same for [`TCP_V6`].
const LIMIT_V6: u64 = 14;

/// The settings.
const SETTINGS: &[Setting] =
    &[Setting::number("seconds", 15, (6, 60), "how long the first download is carried")];

/// The keys at least.
const KEYS: &[Key] = &[
    Key::lower_is_better(TCP_V4),
    Key::lower_is_better(TCP_V6),
    Key::lower_is_better(QUIC),
    Key::lower_is_better(RTP),
    Key::lower_is_better(REQUESTS),
    Key::higher_is_better("goodput_mbps"),
    Key::must_hold("checksum_ok"),
];

/// The scenario.
#[derive(Debug)]
pub(super) struct Headers;

impl Scenario for Headers {
    fn about(&self) -> About {
        About {
            name: "headers",
            summary: "bytes beyond the inner packet by kind of flow, and a download over two links",
            settings: SETTINGS,
            keys: KEYS,
        }
    }

    fn paper(&self, _settings: &Settings) -> Paper {
        Paper::of("what others measured over two links of 10 Mbit/s and 20 ms, CUBIC, no loss")
            .cite("mqvpn_hybrid", 18.5, "Mbit/s", "others, mqvpn's lane of streams")
            .beside("goodput_mbps")
            .note("of a file of 16,331,410 bytes; there the lane ends each connection")
    }

    fn limits(&self, _settings: &Settings) -> Vec<Limit> {
        let beyond = LIMITS.iter().map(|&(key, most)| Limit::at_most(key, most));
        let others =
            [Limit::at_least("goodput_mbps", GOODPUT_MIN_MBPS), Limit::equal("checksum_ok", true)];
        beyond.chain(others).collect()
    }

    fn bound_ms(&self, _settings: &Settings) -> f64 {
        100.0
    }

    fn run(&self, stage: &Stage<'_>) -> anyhow::Result<Outcome> {
        let link = LinkConfig::lossless(LINK.0 * 1_000_000, LINK.1 * MS);
        // In a control all headers travel.
        let elides = !stage.control();
        let terrain =
            Terrain { beside: vec![link.clone()], mode: Mode::Full, elides, ..Terrain::of(link) };
        stage.on_ground(&terrain, &mut |ground, outcome| tell(ground, stage, outcome))
    }
}

/// The run: one flow after the other.
fn tell(ground: &mut dyn Ground, stage: &Stage<'_>, outcome: &mut Outcome) -> Result<(), Trouble> {
    let length_ns = stage.settings.number("seconds") * SECOND;
    (stage.tell)("TCP over IPv4");
    let (transfer, beyond) = download(ground, Version::V4, length_ns)?;
    outcome.measure("goodput_mbps", transfer.mbps_within(FIRST_NS, length_ns));
    outcome.measure(TCP_V4, beyond);
    let mut intact = transfer.intact;
    if ground.clock() == Clock::Virtual {
        (stage.tell)("TCP over IPv6");
        let (transfer, beyond) = download(ground, Version::V6, FLOW_NS)?;
        outcome.measure(TCP_V6, beyond);
        outcome.ask(Limit::at_most(TCP_V6, LIMIT_V6));
        intact &= transfer.intact;
    } else {
        outcome.skip(TCP_V6, "between namespaces there is no IPv6 inside the tunnel");
    }
    (stage.tell)("QUIC");
    let (was_intact, beyond) = pour(ground)?;
    outcome.measure(QUIC, beyond);
    for (key, talk) in [(RTP, Talk::Voice), (REQUESTS, TELEMETRY)] {
        (stage.tell)(if key == RTP { "RTP" } else { "telemetry" });
        outcome.measure(key, call(ground, talk)?);
    }
    outcome.hold("checksum_ok", intact && was_intact);
    Ok(())
}

/// One TCP download, and the bytes beyond its packets.
fn download(
    ground: &mut dyn Ground,
    version: Version,
    length_ns: u64,
) -> Result<(Transfer, Option<f64>), Trouble> {
    let bulk = Connections::outlasting(Receiver::Client, 2 * LINK.0, length_ns);
    let kind = Connections { version, ..bulk };
    let longest_ns = length_ns + Connections::OPENING_NS;
    let (transfers, lengths) = noted(ground, |ground| ground.connect(&[kind], longest_ns, &[]))?;
    Ok((Transfer::together(transfers.concat()), beyond(&lengths, FULL)))
}

/// A download over QUIC: whether all of it was right, and the bytes beyond its packets.
fn pour(ground: &mut dyn Ground) -> Result<(bool, Option<f64>), Trouble> {
    let what = What::Quic { congestion: Congestion::Cubic };
    let datagrams = Datagrams { to: Receiver::Client, what, length_ns: FLOW_NS, skip_ns: 0 };
    let (run, lengths) = noted(ground, |ground| ground.pour(datagrams))?;
    Ok((run.transfer.intact, beyond(&lengths, run.longest + INNER_HEADERS)))
}

/// A call, and the bytes beyond its packets.
fn call(ground: &mut dyn Ground, talk: Talk) -> Result<Option<f64>, Trouble> {
    let call = Call { talk, silence_ns: 0, length_ns: FLOW_NS };
    let (_, lengths) = noted(ground, |ground| ground.call(call, &[], &[]))?;
    Ok(beyond(&lengths, usize::from(talk.bytes()) + INNER_HEADERS))
}

/// Runs a flow, and notes the length of each datagram that the gateway sends meanwhile. What
/// earlier flows left in the queues has gone before.
fn noted<T>(
    ground: &mut dyn Ground,
    run: impl FnOnce(&mut dyn Ground) -> Result<T, Trouble>,
) -> Result<(T, Vec<usize>), Trouble> {
    ground.pause(CALM_NS)?;
    ground.note_lengths()?;
    let told = run(ground)?;
    Ok((told, ground.noted_lengths()?))
}

/// The bytes beyond an inner packet of `inner` bytes that most datagrams have that can carry one;
/// `None` if there is no such datagram. Of two numbers that are as frequent, the greater one.
fn beyond(lengths: &[usize], inner: usize) -> Option<f64> {
    let mut times: BTreeMap<usize, u64> = BTreeMap::new();
    for length in lengths.iter().filter(|length| **length >= inner) {
        *times.entry(length - inner).or_default() += 1;
    }
    let (bytes, _) = times.into_iter().max_by_key(|&(_, count)| count)?;
    Some(bytes as f64)
}

#[cfg(test)]
mod tests {
    use super::beyond;

    #[test]
    fn the_most_frequent_length_counts_of_those_that_carry_a_packet() {
        let lengths = [&[60; 50][..], &[1_480; 4], &[1_453; 90], &[1_500; 3]].concat();
        assert_eq!(beyond(&lengths, 1_420), Some(33.0));
        assert_eq!(beyond(&lengths, 1_490), Some(10.0));
        assert_eq!(beyond(&[1_480, 1_453], 1_420), Some(60.0), "as frequent");
        assert_eq!(beyond(&lengths, 1_501), None);
    }
}
