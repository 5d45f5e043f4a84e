use super::*;
use crate::arrivals::Gap;
use crate::emu::MS;
use crate::ground::Act;

fn gap(from_ms: u64, to_ms: u64) -> Gap {
    Gap { from_ns: from_ms * MS, to_ns: to_ms * MS }
}

fn moment(act: Act, began_ms: u64, done_ms: u64) -> Moment {
    Moment::new(act, began_ms * MS, done_ms * MS)
}

/// 1 MB a second from 0 to 20 s, but for outages from 6 to 8 s and from 12 to 13 s, after which it
/// takes 50 ms and 1 s until something comes.
fn interrupted() -> Transfer {
    let progress = |second: u64| {
        let up_s = match second {
            0..=6 => second,
            7 | 8 => 6,
            9..=12 => second - 2,
            13 | 14 => 10,
            _ => second - 4,
        };
        (second * SECOND, up_s * 1_000_000)
    };
    Transfer {
        end_ns: 20 * SECOND,
        complete: true,
        progress: (0..=20).map(progress).collect(),
        gaps: vec![gap(6_000, 8_050), gap(11_990, 14_000)],
        moments: vec![
            moment(Act::Swallow(0), 6_000, 6_000),
            moment(Act::Return(0), 8_000, 8_000),
            moment(Act::Unplug(0), 12_000, 12_010),
            moment(Act::Replug(0), 12_995, 13_000),
        ],
        ..Transfer::default()
    }
}

#[test]
fn so_many_bytes_have_come_when_the_news_of_them_has() {
    let transfer = Transfer { start_ns: SECOND, ..interrupted() };
    assert_eq!(transfer.seconds_until(6_000_000), Some(5.0));
    assert_eq!(transfer.seconds_until(6_000_001), Some(8.0), "after the outage");
    assert_eq!(transfer.seconds_until(17_000_000), None, "there were 16");
}

#[test]
fn a_restart_counts_from_the_links_return_to_the_next_byte() {
    assert_eq!(interrupted().restart_ms(), [50.0, 1_000.0]);
}

#[test]
fn what_never_comes_back_counts_to_the_end() {
    let mut dead = Transfer { gaps: vec![gap(6_000, 20_000)], ..interrupted() };
    assert_eq!(dead.restart_ms(), [4_000.0, 7_000.0], "the first up to the next outage");
    dead.moments.truncate(1);
    assert!(dead.restart_ms().is_empty(), "the link never returned");
}

#[test]
fn goodput_is_counted_over_the_time_that_the_link_was_up() {
    let transfer = interrupted();
    assert_eq!(transfer.outages().count(), 2);
    // From second 5 on: 11 MB in 15 s less 3 s, and one second of that in silence.
    let up = transfer.while_up(5 * SECOND).unwrap();
    assert_eq!(up.mbps(), 11.0 * 8.0 / 12.0);
    assert_eq!(up.windows.len(), 3);
    // A link that carries 2 MB a second before second 10, and 1 MB after it.
    let capacity = |from_ns: u64, to_ns: u64| {
        let early_ns = to_ns.min(10 * SECOND) - from_ns.min(10 * SECOND);
        (to_ns - from_ns + early_ns) as f64 / SECOND as f64 * 1e6
    };
    assert_eq!(up.share_of(&capacity), 11.0 / (12.0 + 3.0));
    assert_eq!(transfer.while_up(21 * SECOND), None, "it did not last that long");
    let incomplete = Transfer { complete: false, ..transfer };
    assert_eq!(incomplete.while_up(5 * SECOND), None);
}

#[test]
fn an_outage_in_the_first_moment_that_counts_counts() {
    // Nothing is heard between 5.9 s and 8.05 s.
    let mut transfer = interrupted();
    transfer.progress.retain(|(at_ns, _)| !(6 * SECOND..9 * SECOND).contains(at_ns));
    // 10 MB and what came in the last second before, in 14 s less 3 s.
    assert_eq!(transfer.while_up(6 * SECOND).unwrap().mbps(), 11.0 * 8.0 / 11.0);
}

#[test]
fn rates_show_when_nothing_came() {
    let rates = interrupted().rates_mbps(2 * SECOND);
    assert_eq!(rates[..5], [4.0, 8.0, 8.0, 4.0, 4.0]);
    assert_eq!(rates.len(), 11);
}

#[test]
fn what_broke_broke_so_long_after_the_link() {
    let mut transfer = Transfer { end_ns: 19 * SECOND, ..interrupted() };
    assert_eq!(transfer.broke_after_s(), None);
    transfer.broke = Some("Connection timed out".to_owned());
    assert_eq!(transfer.broke_after_s(), Some(7.0));
    transfer.moments.clear();
    assert_eq!(transfer.broke_after_s(), None, "no outage is to blame");
}

#[test]
fn without_outages_it_is_the_goodput_of_the_transfer() {
    let transfer = Transfer { moments: Vec::new(), ..interrupted() };
    let up = transfer.while_up(5 * SECOND).unwrap();
    assert_eq!(Some(up.mbps()), transfer.goodput_mbps(5 * SECOND));
}

#[test]
fn goodput_is_measured_after_the_start() {
    let mut transfer = Transfer {
        progress: (0..=10)
            .map(|s| (s * SECOND, if s < 5 { 0 } else { (s - 5) * 1_000_000 }))
            .collect(),
        ..Transfer::default()
    };
    assert_eq!(transfer.goodput_mbps(0), None, "it has not ended");
    (transfer.complete, transfer.end_ns) = (true, 10 * SECOND);
    assert_eq!(transfer.goodput_mbps(5 * SECOND), Some(8.0));
    assert_eq!(transfer.goodput_mbps(11 * SECOND), None);
    assert_eq!(transfer.seconds(), Some(10.0));
}

#[test]
fn between_two_moments_it_need_not_have_ended() {
    let transfer = Transfer { complete: false, ..interrupted() };
    // A second of the second that counts fell into an outage.
    assert_eq!(transfer.mbps_within(5 * SECOND, 10 * SECOND), Some(3.0 * 8.0 / 5.0));
    assert_eq!(transfer.mbps_within(5 * SECOND, 20 * SECOND), Some(11.0 * 8.0 / 15.0));
    assert_eq!(transfer.mbps_within(5 * SECOND, 21 * SECOND), None, "it was given up before");
    assert_eq!(transfer.mbps_within(5 * SECOND, 5 * SECOND), None);
    assert_eq!(Transfer::default().mbps_within(0, SECOND), None);
}

#[test]
fn a_download_that_dies_after_the_move_stood_still_to_the_end() {
    let gaps = crate::ground::enclosed(0, 9 * SECOND, Some((20 * MS, 1_000 * MS)), vec![]);
    let transfer = Transfer { end_ns: 9 * SECOND, gaps, ..Transfer::default() };
    assert_eq!(transfer.still_ms(), None, "nothing was done in it");
    let transfer = Transfer { moments: vec![moment(Act::Relocate, 990, 1_000)], ..transfer };
    assert_eq!(transfer.still_ms(), Some(8_000.0));
    assert_eq!(transfer.seconds(), None);
}

#[test]
fn connections_side_by_side_add_up_and_one_that_breaks_is_seen() {
    let one = Transfer {
        start_ns: SECOND,
        end_ns: 9 * SECOND,
        complete: true,
        intact: true,
        progress: vec![(2 * SECOND, 10), (4 * SECOND, 30)],
        segments: Some(Segments { sent: 5, again: 1 }),
        ..Transfer::default()
    };
    let other = Transfer {
        start_ns: 2 * SECOND,
        end_ns: 8 * SECOND,
        complete: false,
        progress: vec![(3 * SECOND, 5), (5 * SECOND, 7)],
        broke: Some("reset".to_owned()),
        ..one.clone()
    };
    let both = Transfer::together(vec![one.clone(), other]);
    let second = |(at_ns, bytes): &(u64, u64)| (at_ns / SECOND, *bytes);
    let progress: Vec<_> = both.progress.iter().map(second).collect();
    assert_eq!(progress, [(2, 10), (3, 15), (4, 35), (5, 37)]);
    assert_eq!((both.start_ns / SECOND, both.end_ns / SECOND), (1, 8));
    assert_eq!((both.complete, both.intact, both.broke.as_deref()), (false, true, Some("reset")));
    assert_eq!(both.segments, Some(Segments { sent: 10, again: 2 }));
    assert_eq!(Transfer::together(vec![one.clone()]), one);
}
