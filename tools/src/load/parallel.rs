//! A few pieces of work on a few threads.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::load::error::{LoadError, Result};
use crate::load::job::Job;

/// Calls `work` for every number below `count`, on as many threads as the load has; the results come in the order of
/// the numbers. After an error no further number is begun.
///
/// # Errors
/// Of those of `work`, the one with the least number; `Stopped` if the user wants to stop.
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
    // A thread that saw another one fail says `Stopped`: what counts is why the other one failed.
    let is_consequence = |outcome: &Result<R>| matches!(outcome, Err(LoadError::Stopped));
    all.sort_by_key(|(number, outcome)| (is_consequence(outcome), *number));
    all.into_iter().map(|(_, outcome)| outcome).collect()
}
