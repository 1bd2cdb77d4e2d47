//! One pass over the entries of a job, key by key, newest version first.
//!
//! Per key: [`start_key`](EntryFilter::start_key), then [`offer`](EntryFilter::offer) for every version, then
//! [`finish_key`](EntryFilter::finish_key). Tombstones may be held back; what [`release_one`](EntryFilter::release_one)
//! hands out is to be written before whatever comes next: before the version that `offer` just kept, or at the end of
//! the key.

use std::fmt;

use alluvium_base::key::{KeyspaceId, Kind, Seqno, Trailer};
use alluvium_base::range_tombstone::Fragment;

use super::{Below, DropCounts, DropReason, DropRules};

/// Broken pairs that are reported in full; further ones are only counted.
const BROKEN_PAIRS_REPORTED_MAX: usize = 16;

/// What to do with an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Write what is released, then the entry with this trailer.
    Keep(Trailer),
    /// Do nothing: the entry is dropped, or a tombstone that is held back.
    Skip,
}

/// A delete-once that does not cover exactly one put: someone broke the contract of alternation, or a put was lost.
/// The entries are treated as if the delete-once were a plain delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokenPair {
    /// The full key.
    pub key: Vec<u8>,
    /// The delete-once.
    pub delete_once: Trailer,
    /// What lies below it: not a put, or a second put. `None` if there is nothing.
    pub below: Option<Trailer>,
}

impl fmt::Display for BrokenPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "key \"{}\": {:?} should cover one put, but covers ",
            self.key.escape_ascii(),
            self.delete_once
        )?;
        match self.below {
            Some(below) if below.kind() == Some(Kind::Put) => write!(f, "another one, {below:?}, too"),
            Some(below) => write!(f, "{below:?}"),
            None => f.write_str("nothing"),
        }
    }
}

/// The version offered before the current one, if it is half of a possible pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Previous {
    /// A delete-once, which is held.
    Once(Trailer),
    /// A put that vanished with this delete-once.
    Pair(Trailer),
    Other,
}

/// Applies [`DropRules`] to the entries of a job.
#[derive(Debug)]
pub struct EntryFilter {
    rules: DropRules,
    counts: DropCounts,
    zeroed: u64,
    broken_pairs: Vec<BrokenPair>,
    broken_pair_count: u64,
    /// Places in the rules' sorted lists; keys only grow.
    covering_at: usize,
    kept_at: usize,
    below_at: usize,

    // The current key.
    key: Vec<u8>,
    in_dropped_keyspace: bool,
    /// Whether nothing older can lie below; asked at most once per key.
    at_bottom: Option<bool>,
    /// The stripe of the newest version that hides what is older.
    shadowed_stripe: Option<usize>,
    /// Tombstones that are to be written before the next kept entry.
    held: Vec<Trailer>,
    previous: Previous,
}

impl EntryFilter {
    /// A filter at the start of a job.
    #[must_use]
    pub fn new(rules: DropRules) -> EntryFilter {
        EntryFilter {
            rules,
            counts: DropCounts::default(),
            zeroed: 0,
            broken_pairs: Vec::new(),
            broken_pair_count: 0,
            covering_at: 0,
            kept_at: 0,
            below_at: 0,
            key: Vec::new(),
            in_dropped_keyspace: false,
            at_bottom: None,
            shadowed_stripe: None,
            held: Vec::new(),
            previous: Previous::Other,
        }
    }

    /// The rules that are applied.
    #[must_use]
    pub fn rules(&self) -> &DropRules {
        &self.rules
    }

    /// The current key.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        &self.key
    }

    /// Entries dropped so far.
    #[must_use]
    pub fn counts(&self) -> &DropCounts {
        &self.counts
    }

    /// Entries kept with a sequence number of zero so far.
    #[must_use]
    pub fn zeroed(&self) -> u64 {
        self.zeroed
    }

    /// Number of broken pairs met, and the first few of them.
    #[must_use]
    pub fn broken_pairs(&self) -> (u64, &[BrokenPair]) {
        (self.broken_pair_count, &self.broken_pairs)
    }

    /// Goes on to the next key, which is greater than all before. The last one must be finished.
    pub fn start_key(&mut self, key: &[u8]) {
        debug_assert!(self.held.is_empty(), "the previous key was not finished");
        let same_keyspace = KeyspaceId::of(key) == KeyspaceId::of(&self.key) && !self.key.is_empty();
        if !same_keyspace {
            self.in_dropped_keyspace =
                KeyspaceId::of(key).is_some_and(|keyspace| self.rules.is_dropped(keyspace));
        }
        self.key.clear();
        self.key.extend_from_slice(key);
        self.at_bottom = None;
        self.shadowed_stripe = None;
        self.previous = Previous::Other;
    }

    /// Decides on the next version of the current key; versions come newest first.
    pub fn offer(&mut self, seqno: Seqno, kind: Kind) -> Verdict {
        let previous = std::mem::replace(&mut self.previous, Previous::Other);
        if self.in_dropped_keyspace {
            return self.drop_for(DropReason::DroppedKeyspace);
        }
        let stripe = self.rules.snapshots.stripe(seqno);
        if self.is_covered(seqno, stripe) {
            return self.drop_for(DropReason::RangeCovered);
        }
        let trailer = Trailer::new(seqno, kind);
        let mut shadowed = self.shadowed_stripe == Some(stripe);
        match previous {
            Previous::Once(once) if kind == Kind::Put => {
                if self.rules.snapshots.stripe(once.seqno()) == stripe {
                    return self.annihilate(once);
                }
            }
            Previous::Once(once) => self.report(once, Some(trailer)),
            Previous::Pair(once) if matches!(kind, Kind::Put | Kind::Merge) => {
                self.report(once, Some(trailer));
                shadowed = shadowed || self.reinstate(once) == stripe;
            }
            Previous::Pair(_) | Previous::Other => {}
        }
        match kind {
            Kind::DeleteOnce => {
                self.held.push(trailer);
                self.previous = Previous::Once(trailer);
                Verdict::Skip
            }
            _ if shadowed => self.drop_for(DropReason::Shadowed),
            Kind::Put => {
                self.shadowed_stripe = Some(stripe);
                self.keep_put(trailer, stripe)
            }
            Kind::Delete => {
                self.shadowed_stripe = Some(stripe);
                if self.is_at_bottom() {
                    self.held.push(trailer);
                    Verdict::Skip
                } else {
                    Verdict::Keep(trailer)
                }
            }
            Kind::Merge | Kind::RangeDelete => Verdict::Keep(trailer),
        }
    }

    /// Drops the delete-once `once`, which is held, and the put below it, which was just offered.
    fn annihilate(&mut self, once: Trailer) -> Verdict {
        self.held.pop();
        self.counts.increment(DropReason::Annihilated);
        self.previous = Previous::Pair(once);
        self.drop_for(DropReason::Annihilated)
    }

    /// Takes back that `once` vanished with its put, since there is more below that it hid: it returns as a plain
    /// delete. Nothing older than it has been written yet, so it still can. Returns the stripe that it shadows.
    fn reinstate(&mut self, once: Trailer) -> usize {
        self.counts.decrement(DropReason::Annihilated);
        self.held.push(Trailer::new(once.seqno(), Kind::Delete));
        let stripe = self.rules.snapshots.stripe(once.seqno());
        self.shadowed_stripe = Some(stripe);
        stripe
    }

    fn keep_put(&mut self, put: Trailer, stripe: usize) -> Verdict {
        if stripe == 0 && put.seqno() > 0 && self.is_at_bottom() && !self.is_under_kept_tombstone() {
            self.zeroed += 1;
            return Verdict::Keep(Trailer::new(0, Kind::Put));
        }
        Verdict::Keep(put)
    }

    /// Ends the current key: drops the tombstones that are held back if nothing is below and no snapshot is older, else
    /// releases them.
    pub fn finish_key(&mut self) {
        if self.held.is_empty() || !self.is_at_bottom() {
            return;
        }
        if let Previous::Once(once) = self.previous
            && fragment_at(self.rules.tombstones.fragments(), &mut self.covering_at, &self.key).is_none()
        {
            self.report(once, None);
        }
        let held = self.held.len();
        // Whoever holds an older snapshot may ask whether the key was written since.
        let snapshots = &self.rules.snapshots;
        self.held.retain(|tombstone| snapshots.stripe(tombstone.seqno()) > 0);
        for _ in self.held.len()..held {
            self.counts.increment(DropReason::TombstoneAtBottom);
        }
    }

    /// The next tombstone of the current key that must be written now; newest first.
    pub fn release_one(&mut self) -> Option<Trailer> {
        (!self.held.is_empty()).then(|| self.held.remove(0))
    }

    fn drop_for(&mut self, reason: DropReason) -> Verdict {
        self.counts.increment(reason);
        Verdict::Skip
    }

    fn report(&mut self, delete_once: Trailer, below: Option<Trailer>) {
        self.broken_pair_count += 1;
        if self.broken_pairs.len() < BROKEN_PAIRS_REPORTED_MAX {
            self.broken_pairs.push(BrokenPair { key: self.key.clone(), delete_once, below });
        }
    }

    /// True if a range tombstone hides a version of the current key from every reader of its stripe.
    fn is_covered(&mut self, seqno: Seqno, stripe: usize) -> bool {
        let newest_reader = self.rules.snapshots.stripe_end(stripe);
        fragment_at(self.rules.tombstones.fragments(), &mut self.covering_at, &self.key)
            .and_then(|fragment| fragment.newest_at(newest_reader))
            .is_some_and(|tombstone| tombstone > seqno)
    }

    fn is_under_kept_tombstone(&mut self) -> bool {
        fragment_at(self.rules.kept_tombstones.fragments(), &mut self.kept_at, &self.key).is_some()
    }

    fn is_at_bottom(&mut self) -> bool {
        match (self.at_bottom, &self.rules.below) {
            (Some(known), _) => known,
            (None, Below::Anywhere) => false,
            (None, Below::Within(ranges)) => {
                let at_bottom = !ranges.contains_ascending(&self.key, &mut self.below_at);
                self.at_bottom = Some(at_bottom);
                at_bottom
            }
        }
    }
}

/// The fragment over `key`; `at` remembers the place between calls with growing keys.
fn fragment_at<'a>(fragments: &'a [Fragment], at: &mut usize, key: &[u8]) -> Option<&'a Fragment> {
    while let Some(fragment) = fragments.get(*at) {
        if key < fragment.end.as_slice() {
            return (fragment.start.as_slice() <= key).then_some(fragment);
        }
        *at += 1;
    }
    None
}
