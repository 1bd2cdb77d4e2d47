//! The atomics and the lock of the leaf protocol under one set of names, so that the very same protocol code runs
//! in production and inside a loom model.
//!
//! Only what the protocol's correctness rests on goes through here: leaf fields, fences, the writers' lock, and a
//! [`Witness`] in front of every entry that lets loom see unordered accesses to arena bytes. The arena's own
//! bookkeeping is not part of the models and uses `std` directly.

#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU64, fence};

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicPtr, AtomicU64, fence};

/// How often a reader looks again at a leaf that is being changed before it waits for the writer at its lock.
#[cfg(not(loom))]
pub(super) const SPINS_MAX: u32 = 64;
#[cfg(loom)]
pub(super) const SPINS_MAX: u32 = 0;

/// A lock that one writer of a leaf holds at a time.
#[cfg(not(loom))]
pub(super) struct Lock<T>(alluvium_base::sync::Mutex<T>);
#[cfg(not(loom))]
pub(super) type LockGuard<'a, T> = alluvium_base::sync::MutexGuard<'a, T>;

#[cfg(not(loom))]
impl<T> Lock<T> {
    pub(super) fn new(value: T) -> Lock<T> {
        Lock(alluvium_base::sync::Mutex::new(value))
    }

    pub(super) fn lock(&self) -> LockGuard<'_, T> {
        self.0.lock()
    }
}

#[cfg(loom)]
pub(super) struct Lock<T>(loom::sync::Mutex<T>);
#[cfg(loom)]
pub(super) type LockGuard<'a, T> = loom::sync::MutexGuard<'a, T>;

#[cfg(loom)]
impl<T> Lock<T> {
    pub(super) fn new(value: T) -> Lock<T> {
        Lock(loom::sync::Mutex::new(value))
    }

    pub(super) fn lock(&self) -> LockGuard<'_, T> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Stands in front of an entry's bytes. Nothing in production; under loom a cell that reports every read of the
/// bytes that does not happen after they were written.
#[cfg(not(loom))]
pub(super) struct Witness;

#[cfg(not(loom))]
impl Witness {
    pub(super) fn written() -> Witness {
        Witness
    }

    pub(super) fn read(&self) {}
}

#[cfg(loom)]
pub(super) struct Witness(loom::cell::UnsafeCell<()>);

#[cfg(loom)]
impl Witness {
    pub(super) fn written() -> Witness {
        let cell = loom::cell::UnsafeCell::new(());
        cell.with_mut(|_| ());
        Witness(cell)
    }

    pub(super) fn read(&self) {
        self.0.with(|_| ());
    }
}
