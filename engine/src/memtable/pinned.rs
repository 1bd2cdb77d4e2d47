//! A value that stays readable after the memtable has been flushed and forgotten.

use std::ops::Deref;
use std::ptr::NonNull;
use std::sync::Arc;

use super::Memtable;

/// A value in a memtable that keeps the memtable alive, so that nothing is copied. For large values: a small one that
/// is held long would keep a whole memtable in memory.
#[derive(Clone)]
pub struct MemtableValue {
    bytes: NonNull<[u8]>,
    /// Owns the arena that `bytes` lies in.
    _memtable: Arc<Memtable>,
}

impl MemtableValue {
    /// Pins `value`, which must come from `memtable`: the closure gets the memtable and returns one of its values.
    pub(crate) fn pin(
        memtable: &Arc<Memtable>,
        value: impl FnOnce(&Memtable) -> Option<&[u8]>,
    ) -> Option<MemtableValue> {
        let bytes = NonNull::from(value(memtable)?);
        Some(MemtableValue { bytes, _memtable: Arc::clone(memtable) })
    }
}

#[expect(unsafe_code, reason = "copying a value of 64 KiB costs 5 µs at 12 GB/s, more than finding it")]
// SAFETY: the bytes are never written after their entry was inserted, and `Memtable` is `Sync`; sharing or sending the
// pointer together with the `Arc` that keeps its target alive is sharing or sending `&[u8]`.
unsafe impl Send for MemtableValue {}

#[expect(unsafe_code, reason = "as for `Send`")]
// SAFETY: as for `Send`.
unsafe impl Sync for MemtableValue {}

impl Deref for MemtableValue {
    type Target = [u8];

    #[expect(unsafe_code, reason = "copying a value of 64 KiB costs 5 µs at 12 GB/s, more than finding it")]
    fn deref(&self) -> &[u8] {
        // SAFETY: `pin` got the bytes as a borrow of the memtable (a closure from `&Memtable` to `&[u8]` can return
        // nothing shorter-lived); arena chunks neither move nor go before the memtable does, which `_memtable` keeps.
        unsafe { self.bytes.as_ref() }
    }
}

#[cfg(test)]
#[cfg(not(loom))]
mod tests {
    use alluvium_base::checksum::key_hash;
    use alluvium_base::key::{Kind, Trailer};

    use super::*;

    #[test]
    fn a_pinned_value_outlives_every_other_handle_of_its_memtable() {
        let memtable = Memtable::new(1 << 20);
        let value = vec![7; 100_000];
        memtable.insert(b"0000key", key_hash(b"0000key"), Trailer::new(1, Kind::Put), &value);
        let pinned = MemtableValue::pin(&memtable, |memtable| {
            memtable.get(b"0000key", key_hash(b"0000key"), 9).map(|(_, value)| value)
        });
        drop(memtable);
        let pinned = pinned.unwrap();
        std::thread::spawn(move || assert_eq!(&*pinned, value.as_slice())).join().unwrap();
    }
}
