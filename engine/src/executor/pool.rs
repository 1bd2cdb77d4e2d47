//! A private rayon pool for work that needs processors and nothing else.
//!
//! Nothing that it runs does I/O, waits or holds a lock across a call. Under simulation, and with one processor, there is
//! no pool: the caller does the work itself, in order.

use alluvium_base::{Error, Result};
use rayon::iter::{IntoParallelRefIterator, ParallelIterator};

use super::{ExecutorKind, catch_panic};

/// See the module's documentation. Dropping it ends its threads.
pub(crate) struct Pool(Option<rayon::ThreadPool>);

impl Pool {
    /// A pool of one thread per processor.
    ///
    /// # Errors
    /// If the system gives no threads.
    pub(crate) fn new(kind: &ExecutorKind, cpus: usize) -> Result<Pool> {
        if matches!(kind, ExecutorKind::Simulated(_)) || cpus < 2 {
            return Ok(Pool(None));
        }
        let pool = rayon::ThreadPoolBuilder::new()
            .num_threads(cpus)
            .thread_name(|number| format!("alluvium-cpu{number}"))
            // A panic of a task comes back to who waits for it; nobody waits for anything else.
            .panic_handler(|_| {})
            .build();
        match pool {
            Ok(pool) => Ok(Pool(Some(pool))),
            // What the system gives when it has no more threads.
            Err(_) => Err(Error::io("start threads for", "a pool", &std::io::ErrorKind::WouldBlock.into())),
        }
    }

    /// Does `work` for every item, in any order; stops early after an error.
    ///
    /// # Errors
    /// One of those of `work`; `Panicked` if it panics.
    pub(crate) fn try_for_each<T: Sync>(
        &self,
        items: &[T],
        work: impl Fn(&T) -> Result<()> + Sync + Send,
    ) -> Result<()> {
        catch_panic("parallel work", || match &self.0 {
            None => items.iter().try_for_each(work),
            Some(pool) => pool.install(|| items.par_iter().try_for_each(work)),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use alluvium_base::ErrorKind;

    use super::*;

    #[test]
    fn every_item_is_worked_on_and_errors_and_panics_come_back() {
        for cpus in [1, 4] {
            let pool = Pool::new(&ExecutorKind::Threads, cpus).unwrap();
            let items: Vec<u64> = (0..1000).collect();
            let sum = AtomicU64::new(0);
            let add = |item: &u64| {
                sum.fetch_add(*item, Ordering::Relaxed);
                Ok(())
            };
            pool.try_for_each(&items, add).unwrap();
            assert_eq!(sum.into_inner(), 499_500);
            let refuse = |item: &u64| if *item == 7 { Err(Error::invalid("seven")) } else { Ok(()) };
            assert!(pool.try_for_each(&items, refuse).unwrap_err().to_string().contains("seven"));
            let panics = |item: &u64| if *item == 8 { panic!("eight") } else { Ok(()) };
            let error = pool.try_for_each(&items, panics).unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::Panicked { .. }), "{error:?}");
        }
    }
}
