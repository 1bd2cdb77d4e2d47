//! What a job may leave out of its output, and why.
//!
//! A job reads some entries of a key, newest first; entries of the key above them (newer) and below them (older) stay
//! where they are. Leaving out an entry is right if no reader, at a snapshot or at the latest state, gets another
//! answer, now or after any later job. The rules, by [`DropReason`]:
//!
//! 1. `DroppedKeyspace`: nobody may read it any more.
//! 2. `RangeCovered`: a range tombstone of the job's inputs is newer, and no snapshot stands between the two. The
//!    tombstone goes wherever the output goes, so whatever it hid stays hidden.
//! 3. `Shadowed`: the job has seen a newer put or delete in the same snapshot stripe.
//! 4. `Annihilated`: a delete-once and the put that it covers, next to each other in one stripe, vanish together, at any
//!    level. By its contract nothing of the key but another such pair lies below. A delete-once is never dropped as
//!    shadowed: without it, the put that it covers would come back when a newer pair annihilates.
//! 5. `TombstoneAtBottom`: a tombstone with nothing left to hide: no older entry of the key is kept by the job, none
//!    can exist below, and no snapshot is older than the tombstone. A tombstone is therefore *held* until the next kept
//!    entry of its key is met. Why the snapshot: a transaction asks whether a key was written since it began, and a put
//!    and its delete, both younger, must not vanish from under the question.
//!
//! Range tombstones ([`kept_tombstones`](DropRules::kept_tombstones)) go when nothing below overlaps them and no
//! snapshot is older; of several over one key only the newest of each stripe is kept.
//!
//! *Sequence numbers become zero* where no snapshot and nothing below can tell: the trailer column of a bottom table
//! then takes no space. Not under a range tombstone that is kept, which would then look newer.
//!
//! Operands of merges are passed on as they are, unless covered or shadowed.

mod filter;
#[cfg(test)]
mod filter_tests;
mod snapshots;

use alluvium_base::KeyRange;
use alluvium_base::key::KeyspaceId;
use alluvium_base::range_tombstone::{FragmentedTombstones, RangeTombstone};

use crate::KeyRanges;

pub use filter::{BrokenPair, EntryFilter, Verdict};
pub use snapshots::Snapshots;

/// Why an entry is not in the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum DropReason {
    /// A newer version of the key hides it from everyone.
    Shadowed,
    /// A range tombstone hides it from everyone.
    RangeCovered,
    /// One half of a delete-once and its put.
    Annihilated,
    /// A tombstone that hides nothing.
    TombstoneAtBottom,
    /// Its keyspace was dropped.
    DroppedKeyspace,
}

/// Number of [`DropReason`]s.
pub const DROP_REASONS: usize = DropReason::DroppedKeyspace as usize + 1;

/// Entries dropped, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DropCounts([u64; DROP_REASONS]);

impl DropCounts {
    /// Entries dropped for `reason`.
    #[must_use]
    pub fn get(&self, reason: DropReason) -> u64 {
        self.0.get(reason as usize).copied().unwrap_or(0)
    }

    /// Entries dropped for any reason.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Adds the counts of another job.
    pub fn add(&mut self, other: &DropCounts) {
        self.0.iter_mut().zip(other.0).for_each(|(count, more)| *count += more);
    }

    fn increment(&mut self, reason: DropReason) {
        if let Some(count) = self.0.get_mut(reason as usize) {
            *count += 1;
        }
    }

    fn decrement(&mut self, reason: DropReason) {
        if let Some(count) = self.0.get_mut(reason as usize) {
            *count = count.saturating_sub(1);
        }
    }
}

/// Where entries older than a job's may exist outside of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Below {
    /// Anywhere. For flushes: what lies below may change while they run.
    Anywhere,
    /// Only in these ranges.
    Within(KeyRanges),
}

impl Below {
    /// True if an older entry of some key of `range` may exist.
    #[must_use]
    pub fn overlaps(&self, range: &KeyRange) -> bool {
        match self {
            Below::Anywhere => true,
            Below::Within(ranges) => ranges.overlaps(range),
        }
    }
}

/// Everything that decides what a job may drop.
#[derive(Clone, Debug)]
pub struct DropRules {
    snapshots: Snapshots,
    below: Below,
    /// Ascending.
    dropped_keyspaces: Vec<KeyspaceId>,
    /// Every range tombstone of the inputs.
    tombstones: FragmentedTombstones,
    kept_tombstones: FragmentedTombstones,
}

impl DropRules {
    /// Rules for a job that reads `tombstones` among its inputs, given who may read, what may lie below, and which
    /// keyspaces are gone.
    #[must_use]
    pub fn new(
        snapshots: Snapshots,
        below: Below,
        mut dropped_keyspaces: Vec<KeyspaceId>,
        tombstones: &[RangeTombstone],
    ) -> DropRules {
        dropped_keyspaces.sort_unstable();
        let mut rules = DropRules {
            snapshots,
            below,
            dropped_keyspaces,
            tombstones: FragmentedTombstones::new(tombstones),
            kept_tombstones: FragmentedTombstones::default(),
        };
        rules.kept_tombstones = rules.keep_tombstones();
        rules
    }

    /// The range tombstones that the output must carry.
    #[must_use]
    pub fn kept_tombstones(&self) -> &FragmentedTombstones {
        &self.kept_tombstones
    }

    /// True if `keyspace` was dropped.
    #[must_use]
    pub fn is_dropped(&self, keyspace: KeyspaceId) -> bool {
        self.dropped_keyspaces.binary_search(&keyspace).is_ok()
    }

    fn keep_tombstones(&self) -> FragmentedTombstones {
        let mut kept = Vec::new();
        for fragment in self.tombstones.fragments() {
            if KeyspaceId::of(&fragment.start).is_some_and(|keyspace| self.is_dropped(keyspace)) {
                continue;
            }
            let range = KeyRange::new(fragment.start.as_slice(), fragment.end.as_slice());
            let at_bottom = !self.below.overlaps(&range);
            let mut newer_stripe = None;
            // Newest first.
            for &seqno in &fragment.seqnos {
                let stripe = self.snapshots.stripe(seqno);
                let says_something_new = newer_stripe.replace(stripe) != Some(stripe);
                let hides_something = !at_bottom || stripe > 0;
                if says_something_new && hides_something {
                    kept.push(RangeTombstone { start: range.start.clone(), end: range.end.clone(), seqno });
                }
            }
        }
        FragmentedTombstones::new(&kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(snapshots: &[u64], below: Below, tombstones: &[(u8, u8, u64)]) -> Vec<(u8, u8, u64)> {
        let tombstone = |&(start, end, seqno)| RangeTombstone {
            start: KeyspaceId(1).full_key(&[start]),
            end: KeyspaceId(1).full_key(&[end]),
            seqno,
        };
        let tombstones: Vec<_> = tombstones.iter().map(tombstone).collect();
        let rules =
            DropRules::new(Snapshots::new(snapshots.to_vec()), below, vec![KeyspaceId(2)], &tombstones);
        rules.kept_tombstones().to_tombstones().map(|kept| (kept.start[4], kept.end[4], kept.seqno)).collect()
    }

    #[test]
    fn a_range_tombstone_lives_until_nothing_is_below_and_no_snapshot_is_older() {
        let nothing = || Below::Within(KeyRanges::default());
        let something = || Below::Within(KeyRanges::union(&[KeyRange::point(&KeyspaceId(1).full_key(&[5]))]));
        assert_eq!(kept(&[], nothing(), &[(0, 9, 7)]), []);
        assert_eq!(kept(&[7], nothing(), &[(0, 9, 7)]), []);
        assert_eq!(kept(&[6], nothing(), &[(0, 9, 7)]), [(0, 9, 7)]);
        assert_eq!(kept(&[], Below::Anywhere, &[(0, 9, 7)]), [(0, 9, 7)]);
        assert_eq!(kept(&[], something(), &[(0, 5, 7), (5, 9, 8), (6, 9, 9)]), [(5, 6, 8)]);
    }

    #[test]
    fn one_range_tombstone_per_stripe_is_enough() {
        assert_eq!(kept(&[], Below::Anywhere, &[(0, 9, 7), (0, 9, 8)]), [(0, 9, 8)]);
        assert_eq!(
            kept(&[7], Below::Anywhere, &[(0, 9, 6), (0, 9, 7), (0, 9, 8), (0, 9, 9)]),
            [(0, 9, 9), (0, 9, 7)]
        );
    }

    #[test]
    fn range_tombstones_of_dropped_keyspaces_are_gone() {
        let tombstone =
            RangeTombstone { start: KeyspaceId(2).full_key(b""), end: KeyspaceId(3).full_key(b""), seqno: 9 };
        let rules =
            DropRules::new(Snapshots::new(vec![1]), Below::Anywhere, vec![KeyspaceId(2)], &[tombstone]);
        assert!(rules.kept_tombstones().is_empty());
    }
}
