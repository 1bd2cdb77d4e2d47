//! A leaf: up to `N` entries in order, read without locks while one writer changes it.
//!
//! # Layout
//! Two arrays: `heads` (the eight bytes of each key behind the leaf's [`Prefix`]; a search runs over these alone)
//! and `slots` (address in the arena, lengths, trailer). A leaf covers the places `low ≤ place < high`; `next` is the
//! leaf that begins at `high`.
//!
//! # Who may touch what
//! - `low` never changes.
//! - `version`, `shape`, `high`, `next`, `heads`, `slots` are written only by the holder of `lock`, and only while
//!   `version` is odd ([`Section`](super::writer)). They are relaxed atomics, so a racing read is a stale or mixed
//!   value, never undefined behaviour.
//! - A reader ([`Leaf::read`]) takes no lock. It notes an even version, reads what it likes, and believes it only if
//!   the version is still the same after an acquire fence. *No address may be followed before that check*: a mixed
//!   pair of address and length would lead anywhere. Hence [`View`] hands out entries and leaves only after it.
//! - The writer's release of `version` and the reader's acquire make the entries' bytes, written before they were
//!   put into the leaf, visible to whoever sees the new version.
//! - `prev` is a hint, written with release by whoever splits the leaf on the left, read with acquire: some leaf to
//!   the left, usually the neighbour.
//!
//! # Splits
//! A split fills a new leaf to the right, links it (`next`) and lowers `high` in one odd section, and then enters the
//! new leaf into the index. A reader or writer that finds its place at or above `high`, because the index did not
//! know the new leaf yet, moves right. Leaves are never merged, moved or freed before the whole memtable is.

#![expect(
    unsafe_code,
    reason = "lock-free reads: 569 ns per get where a skip list of entries takes 1,701 ns"
)]

use std::cmp::Ordering as Order;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering;

use alluvium_base::key;

use super::arena::{BOUND_WORDS, Bound, Entry, Probe, prefetch};
use super::prefix::Prefix;
use super::shim::{AtomicPtr, AtomicU64, Lock, SPINS_MAX, fence};
use super::writer::{Run, Writer};

/// Heads in a cache line.
const HEADS_PER_LINE: usize = 8;
/// How many lines of heads a search calls for: those of a leaf filled to three quarters.
const HEAD_LINES_PREFETCHED: usize = 12;

/// Number of entries and prefix of a leaf, packed into one word: count 16 bits, prefix length 32, checked 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape {
    pub(super) count: usize,
    pub(super) prefix: Prefix,
}

impl Shape {
    /// A leaf without entries: its first key decides.
    pub(super) const EMPTY: Shape = Shape { count: 0, prefix: Prefix { bytes: 0, checked: true } };

    pub(super) fn to_word(self) -> u64 {
        u64::from(self.prefix.checked) << 63 | (self.prefix.bytes as u64) << 16 | self.count as u64
    }

    fn from_word(word: u64) -> Shape {
        let bytes = (word >> 16) as u32 as usize;
        Shape { count: word as u16 as usize, prefix: Prefix { bytes, checked: word >> 63 == 1 } }
    }
}

/// Where the entry is and what its trailer is: the words of [`Entry::to_words`].
pub(super) struct Slot {
    start: AtomicPtr<u8>,
    lengths: AtomicU64,
    trailer: AtomicU64,
}

impl Slot {
    fn empty() -> Slot {
        Slot {
            start: AtomicPtr::new(ptr::null_mut()),
            lengths: AtomicU64::new(0),
            trailer: AtomicU64::new(0),
        }
    }

    pub(super) fn words(&self) -> (*mut u8, u64, u64) {
        (
            self.start.load(Ordering::Relaxed),
            self.lengths.load(Ordering::Relaxed),
            self.trailer.load(Ordering::Relaxed),
        )
    }

    pub(super) fn set(&self, (start, lengths, trailer): (*mut u8, u64, u64)) {
        self.start.store(start, Ordering::Relaxed);
        self.lengths.store(lengths, Ordering::Relaxed);
        self.trailer.store(trailer, Ordering::Relaxed);
    }
}

/// The high bound of a leaf; a null address means that there is none.
pub(super) struct High {
    words: [AtomicU64; BOUND_WORDS],
    start: AtomicPtr<u8>,
    key_bytes: AtomicU64,
    trailer: AtomicU64,
}

impl High {
    fn new(bound: Option<Bound>) -> High {
        let high = High {
            words: std::array::from_fn(|_| AtomicU64::new(0)),
            start: AtomicPtr::new(ptr::null_mut()),
            key_bytes: AtomicU64::new(0),
            trailer: AtomicU64::new(0),
        };
        if let Some(bound) = bound {
            high.set(bound);
        }
        high
    }

    pub(super) fn set(&self, bound: Bound) {
        for (word, new) in self.words.iter().zip(bound.words) {
            word.store(new, Ordering::Relaxed);
        }
        self.start.store(bound.start.cast_mut(), Ordering::Relaxed);
        self.key_bytes.store(bound.key_bytes as u64, Ordering::Relaxed);
        self.trailer.store(bound.trailer.0, Ordering::Relaxed);
    }

    fn exists(&self) -> bool {
        !self.start.load(Ordering::Relaxed).is_null()
    }

    fn words(&self) -> [u64; BOUND_WORDS] {
        std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed))
    }

    /// The bound, or a mixture of several: follow its address only once the leaf's version has been checked.
    fn get(&self) -> Option<Bound> {
        let start = self.start.load(Ordering::Relaxed);
        (!start.is_null()).then(|| Bound {
            words: self.words(),
            start,
            key_bytes: self.key_bytes.load(Ordering::Relaxed) as usize,
            trailer: key::Trailer(self.trailer.load(Ordering::Relaxed)),
        })
    }
}

/// Up to `N` entries in order. See the module's text for who may touch which field when.
#[repr(C, align(64))]
pub(super) struct Leaf<const N: usize> {
    pub(super) version: AtomicU64,
    pub(super) shape: AtomicU64,
    pub(super) high: High,
    pub(super) next: AtomicPtr<Leaf<N>>,
    prev: AtomicPtr<Leaf<N>>,
    low: Bound,
    lock: Lock<Run>,
    pub(super) heads: [AtomicU64; N],
    pub(super) slots: [Slot; N],
}

/// What was read does not belong together: the leaf was changed meanwhile. Read again.
#[derive(Debug)]
pub(super) struct Torn;

/// The answer to a question asked of one leaf: here it is, or ask the leaf to the right.
pub(super) enum Found<'a, T, const N: usize> {
    Here(T),
    Right(&'a Leaf<N>),
}

/// What [`Leaf::copy`] found out beside the entries.
pub(super) struct Copied<'a, const N: usize> {
    /// Index of the first entry at or after the place asked for.
    pub(super) position: usize,
    /// The leaf to the right at the time of the copy.
    pub(super) next: Option<&'a Leaf<N>>,
}

impl<const N: usize> Leaf<N> {
    /// A leaf without entries, not yet reachable.
    pub(super) fn new(low: Bound, high: Option<Bound>, run: Run) -> Leaf<N> {
        Leaf {
            version: AtomicU64::new(0),
            shape: AtomicU64::new(Shape::EMPTY.to_word()),
            high: High::new(high),
            next: AtomicPtr::new(ptr::null_mut()),
            prev: AtomicPtr::new(ptr::null_mut()),
            low,
            lock: Lock::new(run),
            heads: std::array::from_fn(|_| AtomicU64::new(0)),
            slots: std::array::from_fn(|_| Slot::empty()),
        }
    }

    /// The first place that the leaf covers.
    pub(super) fn low(&self) -> &Bound {
        &self.low
    }

    /// Some leaf to the left, usually the neighbour; `None` for the leftmost leaf.
    pub(super) fn prev_hint(&self) -> Option<&Leaf<N>> {
        // SAFETY: only `set_prev_hint` writes it, with a leaf of the same arena; that arena outlives `self`.
        unsafe { self.prev.load(Ordering::Acquire).as_ref() }
    }

    /// `left` must live in the same arena and lie to the left.
    pub(super) fn set_prev_hint(&self, left: &Leaf<N>) {
        self.prev.store(ptr::from_ref(left).cast_mut(), Ordering::Release);
    }

    /// Calls for the lines that a search of the heads may touch, all at once and beside the leaf's first line. Measured
    /// at 600 k random keys: 0.8 of the time of a get, 0.9 of that of an insert.
    fn prefetch_heads(&self) {
        for line in self.heads.chunks(HEADS_PER_LINE).take(HEAD_LINES_PREFETCHED) {
            prefetch(line.as_ptr());
        }
    }

    /// Locks the leaf against other writers; readers go on.
    pub(super) fn writer(&self) -> Writer<'_, N> {
        self.prefetch_heads();
        let run = self.lock.lock();
        Writer::new(View { leaf: self, version: self.version.load(Ordering::Relaxed) }, run)
    }

    /// Runs `attempt` until it has read a state that was not changed meanwhile.
    pub(super) fn read<'a, T>(&'a self, mut attempt: impl FnMut(View<'a, N>) -> Result<T, Torn>) -> T {
        let mut spins = 0;
        loop {
            let view = View { leaf: self, version: self.version.load(Ordering::Acquire) };
            if view.version & 1 == 0
                && let Ok(read) = attempt(view)
                && view.check().is_ok()
            {
                return read;
            }
            if spins == SPINS_MAX {
                // The writer may have lost its CPU in the middle of a change: sleep until it is through.
                drop(self.lock.lock());
                spins = 0;
            } else {
                spins += 1;
                std::hint::spin_loop();
            }
        }
    }

    /// The first entry at or after `probe`, provided that it has the probe's key.
    pub(super) fn find<'a>(&'a self, probe: &Probe<'_>) -> Found<'a, Option<Entry<'a>>, N> {
        self.prefetch_heads();
        self.read(|view| {
            if let Some(right) = view.right_of(probe)? {
                return Ok(Found::Right(right));
            }
            let shape = view.shape();
            let at = view.lower_bound(probe)?;
            if at < shape.count {
                if view.head(at) != head_of(probe.key(), shape.prefix) {
                    return Ok(Found::Here(None));
                }
                let entry = view.entry(at)?;
                return Ok(Found::Here((entry.key() == probe.key()).then_some(entry)));
            }
            // The versions of a key may go on in the next leaf, which then begins with this key.
            Ok(match view.next_if_it_begins_with(probe)? {
                Some(next) => Found::Right(next),
                None => Found::Here(None),
            })
        })
    }

    /// Copies all entries into `out` (which is emptied first), if the leaf covers `probe`. Without a probe the
    /// position is 0.
    pub(super) fn copy<'a>(
        &'a self,
        probe: Option<&Probe<'_>>,
        out: &mut Vec<Entry<'a>>,
    ) -> Found<'a, Copied<'a, N>, N> {
        self.read(|view| {
            let mut position = 0;
            if let Some(probe) = probe {
                if let Some(right) = view.right_of(probe)? {
                    return Ok(Found::Right(right));
                }
                position = view.lower_bound(probe)?;
            }
            view.copy_entries(out)?;
            Ok(Found::Here(Copied { position, next: view.next()? }))
        })
    }

    /// Copies all entries into `out`, if `right` is the neighbour to the right.
    pub(super) fn copy_left_of<'a>(&'a self, right: &Leaf<N>, out: &mut Vec<Entry<'a>>) -> Found<'a, (), N> {
        self.read(|view| match view.next()? {
            Some(next) if !ptr::eq(next, right) => Ok(Found::Right(next)),
            _ => view.copy_entries(out).map(Found::Here),
        })
    }
}

/// The head of `key` in a leaf with this prefix.
pub(super) fn head_of(key: &[u8], prefix: Prefix) -> u64 {
    key::head(key.get(prefix.bytes..).unwrap_or_default())
}

/// A leaf as of one version. Under [`Leaf::read`] any answer may be wrong until the version has been checked; a
/// writer, who holds the lock, can rely on it.
pub(super) struct View<'a, const N: usize> {
    pub(super) leaf: &'a Leaf<N>,
    pub(super) version: u64,
}

impl<const N: usize> Clone for View<'_, N> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<const N: usize> Copy for View<'_, N> {}

impl<'a, const N: usize> View<'a, N> {
    /// All that was read before this call belongs together, or `Torn`.
    fn check(self) -> Result<(), Torn> {
        fence(Ordering::Acquire);
        if self.leaf.version.load(Ordering::Relaxed) == self.version { Ok(()) } else { Err(Torn) }
    }

    pub(super) fn shape(self) -> Shape {
        Shape::from_word(self.leaf.shape.load(Ordering::Relaxed))
    }

    pub(super) fn head(self, at: usize) -> u64 {
        self.leaf.heads[at].load(Ordering::Relaxed)
    }

    /// The entry at `at`, which is less than the count.
    pub(super) fn entry(self, at: usize) -> Result<Entry<'a>, Torn> {
        let (start, lengths, trailer) = self.leaf.slots[at].words();
        self.check()?;
        // SAFETY: the version is unchanged since before the words were loaded, so they are those of one entry, and
        // its bytes were written before. Leaves hold only entries of their own arena, which outlives 'a.
        unsafe { Entry::from_words(start, lengths, trailer) }.ok_or(Torn)
    }

    fn copy_entries(self, out: &mut Vec<Entry<'a>>) -> Result<(), Torn> {
        out.clear();
        for slot in self.leaf.slots.get(..self.shape().count).unwrap_or_default() {
            let (start, lengths, trailer) = slot.words();
            // SAFETY: made, but not read before `Leaf::read` has checked the version; on failure `out` is emptied
            // by the next attempt. Leaves hold only entries of their own arena, which outlives 'a.
            out.push(unsafe { Entry::from_words(start, lengths, trailer) }.ok_or(Torn)?);
        }
        Ok(())
    }

    /// The neighbour to the right.
    pub(super) fn next(self) -> Result<Option<&'a Leaf<N>>, Torn> {
        let next = NonNull::new(self.leaf.next.load(Ordering::Relaxed));
        self.check()?;
        // SAFETY: after the check the pointer is one that a split has stored after it made the leaf; leaves live as
        // long as their arena, which outlives 'a.
        Ok(next.map(|next| unsafe { next.as_ref() }))
    }

    /// The leaf's high bound.
    pub(super) fn high(self) -> Result<Option<Bound>, Torn> {
        let high = self.leaf.high.get();
        self.check()?;
        Ok(high)
    }

    /// The neighbour to the right, if `probe` lies at or above `high`.
    pub(super) fn right_of(self, probe: &Probe<'_>) -> Result<Option<&'a Leaf<N>>, Torn> {
        let high = &self.leaf.high;
        if !high.exists() {
            return Ok(None);
        }
        let below = match probe.bound().words.cmp(&high.words()) {
            Order::Equal => self.high()?.is_none_or(|high| *probe.bound() < high),
            order => order == Order::Less,
        };
        if below { Ok(None) } else { self.next() }
    }

    /// The neighbour to the right, if the probe's key is the one that it begins with.
    fn next_if_it_begins_with(self, probe: &Probe<'_>) -> Result<Option<&'a Leaf<N>>, Torn> {
        let high = &self.leaf.high;
        if !high.exists() || high.words() != probe.bound().words {
            return Ok(None);
        }
        match self.high()? {
            Some(high) if high.key() == probe.key() => self.next(),
            _ => Ok(None),
        }
    }

    /// Index of the first entry at or after `probe`, which the leaf covers; the count if there is none.
    pub(super) fn lower_bound(self, probe: &Probe<'_>) -> Result<usize, Torn> {
        let Shape { count, prefix } = self.shape();
        let count = count.min(N);
        if prefix.checked {
            if count == 0 {
                return Ok(0);
            }
            let first = self.entry(0)?.key();
            let shared = first.get(..prefix.bytes).unwrap_or_default();
            if !probe.key().starts_with(shared) {
                return Ok(if probe.key() < shared { 0 } else { count });
            }
        }
        let head = head_of(probe.key(), prefix);
        let mut from = self.heads_below(0, count, |other| other < head);
        if from == count || self.head(from) != head {
            return Ok(from);
        }
        // Heads that are equal decide nothing: compare the entries among them.
        let mut to = from + self.heads_below(from, count, |other| other == head);
        while from < to {
            let middle = from.midpoint(to);
            let entry = self.entry(middle)?;
            match key::compare(entry.key(), entry.trailer(), probe.key(), probe.trailer()) {
                Order::Less => from = middle + 1,
                Order::Equal | Order::Greater => to = middle,
            }
        }
        Ok(from)
    }

    /// How many heads from index `from` on satisfy `below`, which holds for some first ones and for none behind.
    fn heads_below(self, from: usize, to: usize, below: impl Fn(u64) -> bool) -> usize {
        let heads = self.leaf.heads.get(from..to).unwrap_or_default();
        let (mut base, mut size) = (0, heads.len());
        // The answer is in base..=base + size. Written without a branch on the outcome, which is a coin toss.
        while size > 1 {
            let half = size / 2;
            base += if below(heads[base + half - 1].load(Ordering::Relaxed)) { half } else { 0 };
            size -= half;
        }
        base + usize::from(size == 1 && below(heads[base].load(Ordering::Relaxed)))
    }
}
