//! Changing a leaf: the steps of an insert and of a split. [`leaf`](super::leaf) has the rules that they keep.
//!
//! An insert into a leaf with room searches under the lock, then makes the version odd, moves the entries behind the
//! place up by one, stores the new one and makes the version even again. A full leaf is split first:
//!
//! 1. Decide where ([`split_point`]): in the middle; or, where keys arrive in order, at the place of the new entry,
//!    so that the entries already there stay together and leaves fill up.
//! 2. Make the new leaf with the upper entries, the old leaf's `high` and `next`, and its own heads. Nobody knows it.
//! 3. In one odd section: link it, lower `high` to its first entry, drop the upper entries, cut the heads anew if the
//!    narrower bounds share a longer prefix.
//! 4. Point the right neighbour's `prev` at it, release the lock, enter it into the index.
//!
//! The new entry goes into whichever half it belongs to as part of steps 2 or 3.

use std::ptr;
use std::sync::atomic::Ordering;

use alluvium_base::key::common_prefix_len;

use super::arena::{Arena, Entry, Probe};
use super::leaf::{Leaf, Shape, Torn, View, head_of};
use super::prefix::{self, Prefix};
use super::shim::{LockGuard, fence};

/// From this many inserts in a row that are each next to the one before, keys count as arriving in order.
const RUN_MIN: u32 = 4;

/// Whether the latest inserts into a leaf came in order. Guarded by the leaf's lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Run {
    /// Index of the latest insert.
    last: usize,
    /// How many inserts in a row landed right behind (ascending) or right before (descending) the one before.
    ascending: u32,
    descending: u32,
}

impl Run {
    fn note(&mut self, at: usize) {
        self.ascending = if at == self.last + 1 { self.ascending + 1 } else { 0 };
        self.descending = if at == self.last { self.descending + 1 } else { 0 };
        self.last = at;
    }
}

/// Which half of a split leaf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Half {
    Left,
    Right,
}

/// Where to split a leaf of `count` entries into which the next one belongs at index `at`: how many entries stay on
/// the left, and which half gets the new one.
fn split_point(count: usize, at: usize, run: Run, is_last_leaf: bool) -> (usize, Half) {
    let ascending = run.ascending >= RUN_MIN && at == run.last + 1;
    let descending = run.descending >= RUN_MIN && at == run.last;
    if ascending || (is_last_leaf && at == count) {
        (at, Half::Right)
    } else if descending {
        (at, Half::Left)
    } else {
        let middle = count / 2;
        (middle, if at > middle { Half::Right } else { Half::Left })
    }
}

/// The right to change a leaf: holds its lock.
pub(super) struct Writer<'a, const N: usize> {
    view: View<'a, N>,
    run: LockGuard<'a, Run>,
}

/// A time during which the leaf's version is odd and readers' findings are void.
struct Section<'a, const N: usize> {
    /// The leaf at its odd version.
    view: View<'a, N>,
}

impl<'a, const N: usize> Section<'a, N> {
    /// Begins at the leaf's even version; the caller holds the leaf's lock, or alone knows the leaf.
    fn begin(even: View<'a, N>) -> Section<'a, N> {
        let view = View { version: even.version + 1, ..even };
        view.leaf.version.store(view.version, Ordering::Relaxed);
        // A reader that sees any store below also sees, after its acquire fence, at least this version.
        fence(Ordering::Release);
        Section { view }
    }

    fn set_shape(&self, count: usize, prefix: Prefix) {
        self.view.leaf.shape.store(Shape { count, prefix }.to_word(), Ordering::Relaxed);
    }

    fn set(&self, at: usize, entry: Entry<'a>, prefix: Prefix) {
        self.view.leaf.heads[at].store(head_of(entry.key(), prefix), Ordering::Relaxed);
        self.view.leaf.slots[at].set(entry.to_words());
    }

    /// Moves the entries `from..to` up by one.
    fn move_up(&self, from: usize, to: usize) {
        let Leaf { heads, slots, .. } = self.view.leaf;
        for at in (from..to).rev() {
            heads[at + 1].store(heads[at].load(Ordering::Relaxed), Ordering::Relaxed);
            slots[at + 1].set(slots[at].words());
        }
    }

    /// Cuts the heads of the first `count` entries anew.
    fn cut_heads(&self, count: usize, prefix: Prefix) {
        for at in 0..count {
            let head = head_of(sure(self.view.entry(at)).key(), prefix);
            self.view.leaf.heads[at].store(head, Ordering::Relaxed);
        }
    }
}

impl<const N: usize> Drop for Section<'_, N> {
    fn drop(&mut self) {
        // Whoever sees the new version sees everything that the writer did before.
        self.view.leaf.version.store(self.view.version + 1, Ordering::Release);
    }
}

/// Under the lock nothing is torn.
fn sure<T>(read: Result<T, Torn>) -> T {
    match read {
        Ok(read) => read,
        Err(Torn) => unreachable!("a leaf changed although its lock is held"),
    }
}

impl<'a, const N: usize> Writer<'a, N> {
    pub(super) fn new(view: View<'a, N>, run: LockGuard<'a, Run>) -> Writer<'a, N> {
        Writer { view, run }
    }

    /// The neighbour to the right, if `probe` belongs there or beyond.
    pub(super) fn right_of(&self, probe: &Probe<'_>) -> Option<&'a Leaf<N>> {
        sure(self.view.right_of(probe))
    }

    /// Puts in `entry`, whose place `probe` the leaf covers. If that took a split, returns the new leaf, which is to
    /// be entered into the index.
    pub(super) fn insert(
        mut self,
        entry: Entry<'a>,
        probe: &Probe<'_>,
        arena: &'a Arena,
    ) -> Option<&'a Leaf<N>> {
        let at = sure(self.view.lower_bound(probe));
        if self.view.shape().count == N {
            return Some(self.split(at, entry, arena));
        }
        self.run.note(at);
        self.insert_at(at, entry);
        None
    }

    fn entry(&self, at: usize) -> Entry<'a> {
        sure(self.view.entry(at))
    }

    fn insert_at(&self, at: usize, entry: Entry<'a>) {
        let Shape { count, prefix } = self.view.shape();
        let prefix = self.shorten(count, prefix, entry.key());
        let section = Section::begin(self.view);
        if prefix != self.view.shape().prefix {
            section.cut_heads(count, prefix);
        }
        section.move_up(at, count);
        section.set(at, entry, prefix);
        section.set_shape(count + 1, prefix);
    }

    /// The leaf's prefix as far as `key` shares it.
    fn shorten(&self, count: usize, prefix: Prefix, key: &[u8]) -> Prefix {
        if !prefix.checked {
            return prefix;
        }
        let bytes = match count {
            0 => key.len(),
            _ => common_prefix_len(self.entry(0).key(), key).min(prefix.bytes),
        };
        Prefix { bytes, ..prefix }
    }

    fn split(&mut self, at: usize, entry: Entry<'a>, arena: &'a Arena) -> &'a Leaf<N> {
        let next = sure(self.view.next());
        let (stay, half) = split_point(N, at, *self.run, next.is_none());
        let right = self.make_right(stay, (half == Half::Right).then_some((at, entry)), arena);
        let boundary = *right.low();
        let new = (half == Half::Left).then_some((at, entry));
        let (first, last) = self.ends(0, stay, new);
        let bounds = Some((self.view.leaf.low().key(), boundary.key()));
        let prefix = prefix::choose(bounds, first.key(), last.key());
        let cut = prefix != self.view.shape().prefix;
        {
            let section = Section::begin(self.view);
            section.view.leaf.next.store(ptr::from_ref(right).cast_mut(), Ordering::Relaxed);
            section.view.leaf.high.set(boundary);
            if cut {
                section.cut_heads(stay, prefix);
            }
            if let Some((at, entry)) = new {
                section.move_up(at, stay);
                section.set(at, entry, prefix);
            }
            section.set_shape(stay + usize::from(new.is_some()), prefix);
        }
        if let Some(next) = next {
            next.set_prev_hint(right);
        }
        match half {
            Half::Left => self.run.note(at),
            Half::Right => *self.run = Run::default(),
        }
        right
    }

    /// A leaf with the entries from index `stay` on, and with `new` at its index, if it is given.
    fn make_right(&self, stay: usize, new: Option<(usize, Entry<'a>)>, arena: &'a Arena) -> &'a Leaf<N> {
        let (first, last) = self.ends(stay, N, new);
        let high = sure(self.view.high());
        let low = first.bound();
        let bounds = high.as_ref().map(|high| (low.key(), high.key()));
        let prefix = prefix::choose(bounds, first.key(), last.key());
        let run = new.map_or(Run::default(), |(at, _)| Run { last: at - stay, ..*self.run });
        let right = arena.place(Leaf::new(low, high, run));
        right.set_prev_hint(self.view.leaf);
        let next = self.view.leaf.next.load(Ordering::Relaxed);
        right.next.store(next, Ordering::Relaxed);
        // Nobody else knows the leaf yet; the section of the left one will publish it.
        let section = Section::begin(View { leaf: right, version: 0 });
        let mut count = 0;
        let mut add = |entry| {
            section.set(count, entry, prefix);
            count += 1;
        };
        for index in stay..N {
            if let Some((at, entry)) = new
                && at == index
            {
                add(entry);
            }
            add(self.entry(index));
        }
        if let Some((at, entry)) = new
            && at == N
        {
            add(entry);
        }
        section.set_shape(count, prefix);
        right
    }

    /// First and last of the entries `from..to` with `new` put in at its index, if it is given.
    fn ends(&self, from: usize, to: usize, new: Option<(usize, Entry<'a>)>) -> (Entry<'a>, Entry<'a>) {
        match new {
            Some((_, entry)) if from == to => (entry, entry),
            Some((at, entry)) if at == from => (entry, self.entry(to - 1)),
            Some((at, entry)) if at == to => (self.entry(from), entry),
            _ => (self.entry(from), self.entry(to - 1)),
        }
    }
}
