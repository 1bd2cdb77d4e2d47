//! A few pieces of work on a few threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::load::error::Result;
use crate::load::job::Job;

/// Calls `work` for every number below `count`, on as many threads as the load has; the results come in the order of
/// the numbers. After an error no further number is begun, and the error with the least number is returned.
///
/// # Errors
/// The first one of `work`; `Stopped` if the user wants to stop.
pub fn for_each<T: Sync, R: Send>(
    job: &Job<'_, T>,
    count: usize,
    work: impl Fn(usize) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        while !job.is_over() {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                break;
            }
            let outcome = work(number);
            if outcome.is_err() {
                job.fail();
            }
            done.push((number, outcome));
        }
        done
    };
    let mut all = Vec::with_capacity(count);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..job.settings.threads.min(count)).map(|_| scope.spawn(run)).collect();
        for thread in threads {
            match thread.join() {
                Ok(done) => all.extend(done),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
    });
    job.check_stop()?;
    all.sort_by_key(|(number, _)| *number);
    all.into_iter().map(|(_, outcome)| outcome).collect()
}
