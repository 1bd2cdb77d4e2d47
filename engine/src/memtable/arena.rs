//! Where a memtable's bytes live: a bump allocator that many threads use at once and that frees everything at once.
//!
//! - The current *chunk* is claimed with one atomic addition; only when it is full does a thread take a lock to
//!   hang in the next one. A single counter is enough: every insert has already passed the log's lock.
//! - Chunks are buffers outside of the general allocator. They double from 8 KiB, so that an idle memtable is small, and
//!   then are the whole slabs of that memory. A request above 1/16 of a slab (a large value) gets a chunk of exactly its
//!   size and leaves the current one alone.
//! - Nothing is freed before the arena is dropped, and a chunk never moves. That is what lets an [`Entry`] be a pair
//!   of lengths and a pointer: whoever holds a reference with the arena's lifetime may read it.
//!
//! *Who may touch what.* Bytes of a claimed range belong to the claiming thread until it publishes them (through a
//! leaf's version, with release); from then on they are never written again.

#![expect(
    unsafe_code,
    reason = "raw memory: boxed entries cost 162 bytes per 116-byte entry and 146 ns per drop"
)]

use std::cmp::Ordering as Order;
use std::marker::PhantomData;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use alluvium_base::key::{self, Trailer};
use alluvium_base::memory::{Buffer, SLAB_BYTES, SLOT_ALIGN};
use alluvium_base::sync::Mutex;

use super::shim::Witness;

/// Size of the first chunk, in bytes: one leaf and some entries.
const CHUNK_BYTES_MIN: usize = 8 << 10;
/// Size up to which chunks double, in bytes; the next are slabs.
const CHUNK_BYTES_DOUBLED_MAX: usize = 32 << 10;
/// Larger requests, in bytes, get a chunk of their own.
const SHARED_BYTES_MAX: usize = SLAB_BYTES / 16;

/// A piece of memory with a position up to which it has been claimed.
///
/// `claimed` only grows, possibly beyond the memory's length (then the claim has failed).
#[repr(align(64))]
struct Chunk {
    claimed: AtomicUsize,
    memory: Buffer,
}

impl Chunk {
    fn new(bytes: usize) -> Chunk {
        Chunk { claimed: AtomicUsize::new(0), memory: Buffer::new(bytes) }
    }

    /// Claims `bytes` at a multiple of `align`; `None` if they don't fit.
    fn claim(&self, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let at = self.claimed.fetch_add(bytes + (align - 1), Ordering::Relaxed);
        let aligned = at.next_multiple_of(align);
        if aligned + bytes > self.memory.len() {
            return None;
        }
        // SAFETY: aligned + bytes lies within the chunk's memory.
        Some(unsafe { self.memory.as_non_null().add(aligned) })
    }
}

/// The bump allocator. See the module's text.
pub(super) struct Arena {
    /// The chunk that is being filled; owned by `chunks`.
    current: AtomicPtr<Chunk>,
    /// Every chunk, each from a box that only the arena's drop takes back.
    chunks: Mutex<Vec<NonNull<Chunk>>>,
    /// Bytes of all chunks and their headers.
    memory_bytes: AtomicUsize,
}

// SAFETY: the raw pointers are to memory that the arena owns; claims are atomic, and what is claimed belongs to one
// thread until it is published.
unsafe impl Send for Arena {}
// SAFETY: as above.
unsafe impl Sync for Arena {}

impl Arena {
    pub(super) fn new() -> Arena {
        let arena = Arena {
            current: AtomicPtr::new(ptr::null_mut()),
            chunks: Mutex::new(Vec::new()),
            memory_bytes: AtomicUsize::new(0),
        };
        let first = arena.add_chunk(&mut arena.chunks.lock(), CHUNK_BYTES_MIN);
        arena.current.store(first.as_ptr(), Ordering::Release);
        arena
    }

    /// Bytes that the arena holds, used or not.
    pub(super) fn memory_bytes(&self) -> usize {
        self.memory_bytes.load(Ordering::Relaxed)
    }

    /// Copies an entry into the arena.
    pub(super) fn entry(&self, full_key: &[u8], trailer: Trailer, value: &[u8]) -> Entry<'_> {
        let (Ok(key_bytes), Ok(value_bytes)) = (u32::try_from(full_key.len()), u32::try_from(value.len()))
        else {
            unreachable!("keys and values are held to their limits before they reach a memtable")
        };
        let front = size_of::<Witness>();
        let at = self.claim(front + full_key.len() + value.len(), align_of::<Witness>());
        // SAFETY: the claimed range is ours alone, aligned for a witness, and long enough for witness, key and value.
        let start = unsafe {
            at.cast::<Witness>().write(Witness::written());
            let start = at.add(front);
            ptr::copy_nonoverlapping(full_key.as_ptr(), start.as_ptr(), full_key.len());
            ptr::copy_nonoverlapping(value.as_ptr(), start.as_ptr().add(full_key.len()), value.len());
            start
        };
        Entry { start, key_bytes, value_bytes, trailer, arena: PhantomData }
    }

    /// Moves `value` into the arena, where it stays, without being dropped, until the arena goes.
    pub(super) fn place<T>(&self, value: T) -> &T {
        debug_assert!(cfg!(loom) || !std::mem::needs_drop::<T>(), "the arena drops nothing");
        let at = self.claim(size_of::<T>(), align_of::<T>()).cast::<T>();
        // SAFETY: the claimed range is ours alone, large enough and aligned for a T; it is written before it is
        // lent out, and stays for as long as the arena.
        unsafe {
            at.write(value);
            at.as_ref()
        }
    }

    fn claim(&self, bytes: usize, align: usize) -> NonNull<u8> {
        debug_assert!(align <= SLOT_ALIGN, "chunks are aligned to cache lines only");
        if bytes > SHARED_BYTES_MAX {
            let own = self.add_chunk(&mut self.chunks.lock(), bytes);
            // SAFETY: headers live as long as the arena. The range is the whole chunk, and nobody else knows it.
            return unsafe { own.as_ref() }.memory.as_non_null();
        }
        let mut current = self.current.load(Ordering::Acquire);
        loop {
            // SAFETY: `current` is never null after `new`, and headers live as long as the arena.
            if let Some(at) = unsafe { &*current }.claim(bytes, align) {
                return at;
            }
            current = self.next_chunk(current, bytes + align);
        }
    }

    /// Hangs in a chunk after `full` that has room for `bytes`, unless another thread has hung one in already.
    #[cold]
    fn next_chunk(&self, full: *mut Chunk, bytes: usize) -> *mut Chunk {
        let mut chunks = self.chunks.lock();
        let current = self.current.load(Ordering::Acquire);
        if current != full {
            return current;
        }
        // SAFETY: headers live as long as the arena.
        let doubled = (2 * unsafe { &*full }.memory.len()).max(bytes.next_power_of_two());
        let size = if doubled <= CHUNK_BYTES_DOUBLED_MAX { doubled } else { SLAB_BYTES };
        let next = self.add_chunk(&mut chunks, size);
        self.current.store(next.as_ptr(), Ordering::Release);
        next.as_ptr()
    }

    fn add_chunk(&self, chunks: &mut Vec<NonNull<Chunk>>, bytes: usize) -> NonNull<Chunk> {
        let chunk = Chunk::new(bytes);
        self.memory_bytes.fetch_add(chunk.memory.memory_bytes() + size_of::<Chunk>(), Ordering::Relaxed);
        let chunk = NonNull::from(Box::leak(Box::new(chunk)));
        chunks.push(chunk);
        chunk
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        for chunk in self.chunks.get_mut().drain(..) {
            // SAFETY: the header came from a box, and nobody else takes it back.
            drop(unsafe { Box::from_raw(chunk.as_ptr()) });
        }
    }
}

/// An entry in an arena of lifetime `'a`: key and value one after the other.
#[derive(Clone, Copy)]
pub(super) struct Entry<'a> {
    start: NonNull<u8>,
    key_bytes: u32,
    value_bytes: u32,
    trailer: Trailer,
    arena: PhantomData<&'a [u8]>,
}

// SAFETY: an entry is a shared reference to bytes that are no longer written.
unsafe impl Send for Entry<'_> {}
// SAFETY: as above.
unsafe impl Sync for Entry<'_> {}

impl<'a> Entry<'a> {
    pub(super) fn key(self) -> &'a [u8] {
        self.witness().read();
        // SAFETY: an entry is made by `Arena::entry` or from the words of one: the bytes are there and initialised,
        // and the arena outlives 'a.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.key_bytes as usize) }
    }

    pub(super) fn value(self) -> &'a [u8] {
        self.witness().read();
        // SAFETY: as in `key`; the value follows the key.
        unsafe {
            let start = self.start.add(self.key_bytes as usize);
            std::slice::from_raw_parts(start.as_ptr(), self.value_bytes as usize)
        }
    }

    pub(super) fn trailer(self) -> Trailer {
        self.trailer
    }

    /// Calls for the entry's bytes, which will be read soon.
    pub(super) fn prefetch(self) {
        prefetch(self.start.as_ptr());
    }

    /// The place of the entry in the order, to be kept beyond `'a` by what lives in the same arena.
    pub(super) fn bound(self) -> Bound {
        Bound::new(self.key(), self.trailer)
    }

    fn witness(self) -> &'a Witness {
        // SAFETY: `Arena::entry` wrote a witness right in front of the key.
        unsafe { self.start.sub(size_of::<Witness>()).cast::<Witness>().as_ref() }
    }

    /// The entry as three words (address, both lengths, trailer), for the slots of a leaf.
    pub(super) fn to_words(self) -> (*mut u8, u64, u64) {
        let lengths = u64::from(self.value_bytes) << 32 | u64::from(self.key_bytes);
        (self.start.as_ptr(), lengths, self.trailer.0)
    }

    /// The entry whose words these are; `None` for the null address of a slot that was never filled.
    ///
    /// # Safety
    /// The entry may be *made* from any words, but read (`key`, `value`, `bound`) only if they are what `to_words`
    /// returned for one entry whose arena outlives `'a`.
    pub(super) unsafe fn from_words(start: *mut u8, lengths: u64, trailer: u64) -> Option<Entry<'a>> {
        let start = NonNull::new(start)?;
        let (key_bytes, value_bytes) = (lengths as u32, (lengths >> 32) as u32);
        Some(Entry { start, key_bytes, value_bytes, trailer: Trailer(trailer), arena: PhantomData })
    }
}

/// Calls for the cache line at `at`, which will be read soon.
pub(super) fn prefetch<T>(at: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint; it reads nothing and cannot fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(at.cast::<i8>());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Number of words of a key that stand in a [`Bound`] itself.
pub(super) const BOUND_WORDS: usize = 3;

/// A place in the order of entries, with the first 24 bytes of its key inline: most comparisons touch no key.
///
/// Ordered like [`key::compare`]. Whoever keeps a bound makes sure that the key's bytes outlive it (leaves and the
/// index keep bounds of entries of their own arena, a [`Probe`] carries the lifetime).
#[derive(Clone, Copy)]
pub(super) struct Bound {
    pub(super) words: [u64; BOUND_WORDS],
    pub(super) start: *const u8,
    pub(super) key_bytes: usize,
    pub(super) trailer: Trailer,
}

// SAFETY: a bound is a shared reference to bytes that are no longer written.
unsafe impl Send for Bound {}
// SAFETY: as above.
unsafe impl Sync for Bound {}

impl Bound {
    fn new(full_key: &[u8], trailer: Trailer) -> Bound {
        let after = |from: usize| key::head(full_key.get(from..).unwrap_or_default());
        let words = [after(0), after(8), after(16)];
        Bound { words, start: full_key.as_ptr(), key_bytes: full_key.len(), trailer }
    }

    pub(super) fn key(&self) -> &[u8] {
        // SAFETY: the bytes outlive the bound, see the type.
        unsafe { std::slice::from_raw_parts(self.start, self.key_bytes) }
    }
}

impl Ord for Bound {
    fn cmp(&self, other: &Bound) -> Order {
        // Equal words decide nothing: they are padded with zeros.
        self.words
            .cmp(&other.words)
            .then_with(|| key::compare(self.key(), self.trailer, other.key(), other.trailer))
    }
}

impl PartialOrd for Bound {
    fn partial_cmp(&self, other: &Bound) -> Option<Order> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Bound {
    fn eq(&self, other: &Bound) -> bool {
        self.cmp(other) == Order::Equal
    }
}

impl Eq for Bound {}

/// A bound that is looked for: its key is borrowed from the caller.
pub(super) struct Probe<'p> {
    bound: Bound,
    key: PhantomData<&'p [u8]>,
}

impl<'p> Probe<'p> {
    pub(super) fn new(full_key: &'p [u8], trailer: Trailer) -> Probe<'p> {
        Probe { bound: Bound::new(full_key, trailer), key: PhantomData }
    }

    pub(super) fn bound(&self) -> &Bound {
        &self.bound
    }

    pub(super) fn key(&self) -> &[u8] {
        self.bound.key()
    }

    pub(super) fn trailer(&self) -> Trailer {
        self.bound.trailer
    }
}
