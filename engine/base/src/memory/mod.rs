//! Memory for what is large and lives long: cached blocks and memtables.
//!
//! A [`Buffer`] comes from mapped chunks of slots of one size ([`pool`], [`classes`]) instead of the general allocator.
//! The memory budget is a promise about what the process really takes, and general allocators break it: with glibc's,
//! which keeps a heap per thread and gives back only what is free at a heap's end, a budget of 1 GiB over 10 million keys
//! stood at 1.7 GiB after random reads, overwrites and reads (`design/decisions/0011-mapped-memory.md`).
//!
//! Built with `--cfg general_allocator`, every buffer comes from the general allocator, so that AddressSanitizer sees
//! where freed memory is used.

mod classes;
mod pool;

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

pub use classes::{SLAB_BYTES, SLOT_ALIGN};
use pool::{NO_SLAB, POOL, Pool};

/// What a [`Buffer`] may hold: numbers, of which every pattern of bits is one.
///
/// Sealed: soundness rests on it.
pub trait Plain: sealed::Plain + Copy + Send + Sync + fmt::Debug + 'static {}

impl Plain for u8 {}
impl Plain for u64 {}

mod sealed {
    pub trait Plain {}
    impl Plain for u8 {}
    impl Plain for u64 {}
}

/// A boxed slice of numbers, outside of the general allocator and aligned to a cache line.
///
/// ```
/// use alluvium_base::memory::Buffer;
/// let mut buffer = Buffer::<u8>::new(5);
/// buffer.copy_from_slice(b"hello");
/// buffer.truncate(4);
/// assert_eq!(&*buffer, b"hell");
/// assert_eq!(buffer.memory_bytes(), 256);
/// ```
pub struct Buffer<T: Plain = u8> {
    start: NonNull<T>,
    /// Elements in use.
    len: u32,
    /// Elements that were asked for.
    capacity: u32,
    slab: u32,
}

// SAFETY: a buffer owns its memory as a box does.
#[expect(unsafe_code, reason = "owns its memory as a box does")]
unsafe impl<T: Plain> Send for Buffer<T> {}
// SAFETY: as above; shared access is read-only.
#[expect(unsafe_code, reason = "owns its memory as a box does")]
unsafe impl<T: Plain> Sync for Buffer<T> {}

impl<T: Plain> Buffer<T> {
    /// A buffer without elements or memory.
    pub const EMPTY: Buffer<T> = Buffer { start: NonNull::dangling(), len: 0, capacity: 0, slab: NO_SLAB };

    /// A buffer of `len` elements that may be anything: write before you read.
    ///
    /// # Panics
    /// If `len` is above `u32::MAX`; no block or memtable comes near. As with a box, the process ends if there is no
    /// memory.
    #[must_use]
    pub fn new(len: usize) -> Buffer<T> {
        if len == 0 {
            return Buffer::EMPTY;
        }
        let elements = u32::try_from(len).ok().filter(|&len| len < u32::MAX);
        assert!(elements.is_some(), "a buffer of {len} elements");
        let len = elements.unwrap_or_default();
        let (start, slab) = POOL.allocate(Buffer::<T>::bytes(len));
        Buffer { start: start.cast(), len, capacity: len, slab }
    }

    /// A copy of `elements`.
    #[must_use]
    pub fn copy_of(elements: &[T]) -> Buffer<T> {
        let mut buffer = Buffer::new(elements.len());
        buffer.copy_from_slice(elements);
        buffer
    }

    /// Shortens the buffer; its memory stays. Does nothing if it is no longer than `len` already.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(u32::try_from(len).unwrap_or(u32::MAX));
    }

    /// Memory that the buffer takes beside itself, in bytes, what rounding adds included.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        if self.capacity == 0 { 0 } else { Pool::footprint(Buffer::<T>::bytes(self.capacity)) }
    }

    /// The first element, for those who share out the memory themselves. It stays where it is while the buffer lives, and
    /// is valid for the length that was asked for.
    #[must_use]
    pub fn as_non_null(&self) -> NonNull<T> {
        self.start
    }

    fn bytes(len: u32) -> usize {
        len as usize * size_of::<T>()
    }
}

impl<T: Plain> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.capacity == 0 {
            return;
        }
        if cfg!(debug_assertions) {
            // Whoever still reads it shall notice.
            self.poison();
        }
        POOL.free(self.start.cast(), self.slab, Buffer::<T>::bytes(self.capacity));
    }
}

impl<T: Plain> Buffer<T> {
    #[expect(unsafe_code, reason = "writes all of its own memory")]
    fn poison(&mut self) {
        // SAFETY: the memory is the buffer's own, as long as its capacity, and any byte is a part of a number.
        unsafe { self.start.as_ptr().write_bytes(0xa5, self.capacity as usize) }
    }
}

impl<T: Plain> Deref for Buffer<T> {
    type Target = [T];

    #[expect(unsafe_code, reason = "the view of its own memory")]
    fn deref(&self) -> &[T] {
        // SAFETY: `start` is valid and aligned for `capacity` >= `len` elements, which mapped memory initialises and for
        // which any bits do; without elements it is dangling and aligned, which is what an empty slice asks for.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len as usize) }
    }
}

impl<T: Plain> DerefMut for Buffer<T> {
    #[expect(unsafe_code, reason = "the view of its own memory")]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` is the only way to it.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len as usize) }
    }
}

impl<T: Plain> Default for Buffer<T> {
    fn default() -> Buffer<T> {
        Buffer::EMPTY
    }
}

impl<T: Plain> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// What buffers take in this process, over all databases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryStatistics {
    /// Chunks that hold slots, in bytes; a chunk that is partly empty counts whole.
    pub slab_bytes: u64,
    /// Empty chunks that wait to be used again, in bytes.
    pub spare_bytes: u64,
    /// Buffers too large for slots, in bytes.
    pub large_bytes: u64,
}

/// What buffers take in this process at the moment.
#[must_use]
pub fn statistics() -> MemoryStatistics {
    POOL.statistics()
}

#[cfg(test)]
mod tests;
