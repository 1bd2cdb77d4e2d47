//! The atomics and the lock of the leaf protocol under one set of names, so that the very same protocol code runs
//! in production and inside a loom model.
//!
//! Only what the protocol's correctness rests on goes through here: leaf fields, fences, the writers' lock, and a
//! [`Witness`] in front of every entry that lets loom see unordered accesses to arena bytes. The arena's own
//! bookkeeping is not part of the models and uses `std` directly.

#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicPtr, AtomicU64, fence};

#[cfg(loom)]
pub(super) use self::model::{AtomicPtr, AtomicU64, fence};

/// Loom's atomics, with a remedy for loom 0.7: it tries another order of two accesses only if the earlier one is the
/// latest access to the location, whosever that is. A writer that loads a word before it stores it thereby hides the
/// reader's load from before, and most orders are never tried. Here every load is preceded by a store to a word that
/// nobody loads: it orders nothing, but any two loads of a location now count as accesses that may be swapped.
#[cfg(loom)]
mod model {
    use std::sync::atomic::Ordering;

    pub(in super::super) use loom::sync::atomic::fence;

    pub(in super::super) struct AtomicU64 {
        value: loom::sync::atomic::AtomicU64,
        turn: loom::sync::atomic::AtomicBool,
    }

    impl AtomicU64 {
        pub(in super::super) fn new(value: u64) -> AtomicU64 {
            let turn = loom::sync::atomic::AtomicBool::new(false);
            AtomicU64 { value: loom::sync::atomic::AtomicU64::new(value), turn }
        }

        pub(in super::super) fn load(&self, order: Ordering) -> u64 {
            self.turn.store(true, Ordering::Relaxed);
            self.value.load(order)
        }

        pub(in super::super) fn store(&self, value: u64, order: Ordering) {
            self.value.store(value, order);
        }
    }

    pub(in super::super) struct AtomicPtr<T> {
        value: loom::sync::atomic::AtomicPtr<T>,
        turn: loom::sync::atomic::AtomicBool,
    }

    impl<T> AtomicPtr<T> {
        pub(in super::super) fn new(value: *mut T) -> AtomicPtr<T> {
            let turn = loom::sync::atomic::AtomicBool::new(false);
            AtomicPtr { value: loom::sync::atomic::AtomicPtr::new(value), turn }
        }

        pub(in super::super) fn load(&self, order: Ordering) -> *mut T {
            self.turn.store(true, Ordering::Relaxed);
            self.value.load(order)
        }

        pub(in super::super) fn store(&self, value: *mut T, order: Ordering) {
            self.value.store(value, order);
        }

        pub(in super::super) fn replace_null(&self, value: *mut T) -> bool {
            let null = std::ptr::null_mut();
            self.value.compare_exchange(null, value, Ordering::Release, Ordering::Relaxed).is_ok()
        }
    }
}

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
