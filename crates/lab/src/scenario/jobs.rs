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
