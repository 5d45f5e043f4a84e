//! Work on several threads, whose results are handed over in order. Knows nothing of what is done.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;

/// Does `work` for each number below `count`, on so many threads, and hands over what came of it,
/// in the order of the numbers. After the first error nothing more is begun.
///
/// # Errors
/// The first that there was, of `work` or of `take`.
pub(super) fn in_order<T: Send>(
    count: usize,
    threads: usize,
    work: impl Fn(usize) -> anyhow::Result<T> + Sync,
    mut take: impl FnMut(T) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let (next, is_over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let (sender, receiver) = mpsc::channel();
    let turns = |sender: mpsc::Sender<_>| {
        while !is_over.load(Ordering::Relaxed)
            && let place = next.fetch_add(1, Ordering::Relaxed)
            && place < count
            && sender.send((place, work(place))).is_ok()
        {}
    };
    std::thread::scope(|scope| {
        for _ in 0..threads.clamp(1, count.max(1)) {
            let sender = sender.clone();
            scope.spawn(|| turns(sender));
        }
        drop(sender);
        let (mut early, mut taken) = (BTreeMap::new(), 0);
        let mut take_next = |(place, done)| {
            early.insert(place, done?);
            while let Some(done) = early.remove(&taken) {
                taken += 1;
                take(done)?;
            }
            Ok(())
        };
        let done = receiver.into_iter().try_for_each(&mut take_next);
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_done_early_is_handed_over_in_its_turn() {
        let mut taken = Vec::new();
        let work = |place: usize| {
            // The first of each pair is done after the second.
            std::thread::sleep(Duration::from_millis(10 * (1 - place as u64 % 2)));
            Ok(place * place)
        };
        in_order(7, 2, work, |square| {
            taken.push(square);
            Ok(())
        })
        .unwrap();
        assert_eq!(taken, [0, 1, 4, 9, 16, 25, 36]);
    }

    #[test]
    fn after_an_error_nothing_more_is_begun_or_handed_over() {
        let begun = AtomicUsize::new(0);
        let work = |place: usize| {
            begun.fetch_add(1, Ordering::Relaxed);
            anyhow::ensure!(place != 2, "the third");
            // Whoever works must not be done with all before anybody looks.
            std::thread::sleep(Duration::from_millis(1));
            Ok(place)
        };
        let mut taken = Vec::new();
        let error = in_order(1_000, 1, work, |place| {
            taken.push(place);
            Ok(())
        });
        assert_eq!(error.unwrap_err().to_string(), "the third");
        assert_eq!(taken, [0, 1]);
        assert!(begun.into_inner() < 1_000);
        let full = in_order(3, 2, Ok, |place| anyhow::bail!("no room for {place}"));
        assert_eq!(full.unwrap_err().to_string(), "no room for 0");
    }
}
