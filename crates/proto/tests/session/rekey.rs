//! New keys while several links carry: nothing is lost, repeated or out of order over them.

use std::net::IpAddr;

use crate::pair::Pair;
use crate::pair::bulk::{self, arrived, flow};
use rove_proto::error::DropReason;
use rove_proto::time::Duration;

const WIFI: [u8; 4] = [203, 0, 113, 5];
const CABLE: [u8; 4] = [192, 0, 2, 130];
/// New keys are asked for when the old ones are so old and something is sent.
const REKEYS: Duration = Duration::from_secs(125);

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A session by two links of different length, of which it is known how much they carry.
fn bonded() -> Pair {
    let mut pair = Pair::up();
    pair.farther = Some((IpAddr::from(CABLE), ms(15)));
    bulk::bonded(pair, &[WIFI, CABLE])
}

/// Loses this part of all datagrams, the same every time (xorshift, Marsaglia).
fn lossy(pair: &mut Pair, part: f64) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    pair.filter = Box::new(move |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        #[expect(clippy::cast_precision_loss, reason = "a chance")]
        let chance = (state >> 11) as f64 / (1u64 << 53) as f64;
        chance >= part
    });
}

/// Bursts over one change of keys after the other, of which this part is lost. Returns how many
/// packets left each way.
fn over_new_keys(pair: &mut Pair, changes: u32, part: f64) -> u32 {
    let mut from = 0;
    for _ in 0..changes {
        pair.run(REKEYS);
        lossy(pair, part);
        flow(pair, from..from + 260);
        pair.filter = Box::new(|_| true);
        flow(pair, from + 260..from + 320); // the last that was lost is missed by what follows
        pair.run(ms(500));
        from += 320;
    }
    from
}

#[test]
fn nothing_is_lost_or_out_of_order_over_new_keys() {
    for part in [0.0, 0.01, 0.03] {
        let mut pair = bonded();
        let sent = over_new_keys(&mut pair, 15, part);
        assert!(pair.epochs() > 15, "{} changes of keys", pair.epochs());
        for numbers in arrived(&pair) {
            let missing = (0..sent).filter(|number| !numbers.contains(number)).count();
            let early = numbers.windows(2).filter(|two| two[1] < two[0]).count();
            assert_eq!((missing, early), (0, 0), "lost and out of order, {part} lost on the way");
            assert_eq!(numbers, Vec::from_iter(0..sent));
        }
    }
}

#[test]
fn who_has_the_old_keys_no_more_is_not_sent_again_under_them_what_was_lost() {
    let mut pair = bonded();
    flow(&mut pair, 0..1_000);
    pair.restart_gateway();
    let mut number = 1_000;
    while pair.epochs() < 2 {
        flow(&mut pair, number..number + 1);
        number += 1;
        assert!(number < 6_000, "no new session");
    }
    // What was on its way when the new keys came.
    flow(&mut pair, number..number + 200);
    let before = pair.gateway.drops().of(DropReason::UnknownIndex);
    flow(&mut pair, number + 200..number + 6_200); // for as long as it would be worth it
    let unknown = pair.gateway.drops().of(DropReason::UnknownIndex) - before;
    assert!(unknown < 5, "{unknown} for nobody");
    pair.run(ms(500));
    let [up, down] = arrived(&pair);
    for numbers in [up, down] {
        let since: Vec<_> = numbers.into_iter().filter(|&it| it >= number + 200).collect();
        assert_eq!(since, Vec::from_iter(number + 200..number + 6_200));
    }
}

#[test]
fn what_a_link_takes_along_that_dies_just_before_new_keys_leaves_again_after_them() {
    let mut pair = bonded();
    pair.run(REKEYS);
    // The burst asks for new keys, which come a round trip later; one of the links dies until then.
    flow(&mut pair, 0..60);
    let dead = IpAddr::from(CABLE);
    pair.filter = Box::new(move |datagram| datagram.from.ip() != dead && datagram.to.ip() != dead);
    pair.cut(CABLE);
    let before = pair.epochs();
    flow(&mut pair, 60..3_000);
    pair.run(ms(800));
    assert_eq!(pair.epochs(), before + 1);
    for numbers in arrived(&pair) {
        assert_eq!(numbers, Vec::from_iter(0..3_000));
    }
}
