//! Range tombstones, cut into fragments that do not overlap.
//!
//! A range delete hides every older version of every key in `[start, end)`. Ranges overlap freely, which makes "is
//! this key hidden?" expensive. [`FragmentedTombstones`] therefore cuts them at each other's bounds, once, into
//! fragments that are disjoint and sorted, each with all the sequence numbers that cover it; a question is then one
//! binary search.

use crate::key::Seqno;

/// One range delete: hides versions older than `seqno` of keys in `[start, end)`. Bounds are full keys of one
/// keyspace (`end` may be the start of the next keyspace).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RangeTombstone {
    /// First full key that is hidden.
    pub start: Vec<u8>,
    /// First full key after `start` that is not hidden.
    pub end: Vec<u8>,
    /// Versions with a smaller sequence number are hidden.
    pub seqno: Seqno,
}

/// A piece of the key range with every sequence number that covers it, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// First full key of the piece.
    pub start: Vec<u8>,
    /// First full key after the piece.
    pub end: Vec<u8>,
    /// Sequence numbers of the tombstones over the piece, descending, without repeats; never empty.
    pub seqnos: Vec<Seqno>,
}

impl Fragment {
    /// The newest tombstone over the piece that a reader at `snapshot` sees.
    #[must_use]
    pub fn newest_at(&self, snapshot: Seqno) -> Option<Seqno> {
        let first_visible = self.seqnos.partition_point(|&seqno| seqno > snapshot);
        self.seqnos.get(first_visible).copied()
    }
}

/// Disjoint fragments in key order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FragmentedTombstones {
    fragments: Vec<Fragment>,
}

impl FragmentedTombstones {
    /// Cuts `tombstones` (in any order; empty or inverted ranges hide nothing) into fragments.
    #[must_use]
    pub fn new(tombstones: &[RangeTombstone]) -> FragmentedTombstones {
        let live = || tombstones.iter().filter(|tombstone| tombstone.start < tombstone.end);
        let mut bounds: Vec<&[u8]> = live().flat_map(|t| [t.start.as_slice(), t.end.as_slice()]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        let mut seqnos: Vec<Vec<Seqno>> = vec![Vec::new(); bounds.len().saturating_sub(1)];
        for tombstone in live() {
            let from = bounds.partition_point(|bound| *bound < tombstone.start.as_slice());
            let to = bounds.partition_point(|bound| *bound < tombstone.end.as_slice());
            for covered in seqnos.iter_mut().take(to).skip(from) {
                covered.push(tombstone.seqno);
            }
        }
        let mut fragments: Vec<Fragment> = Vec::new();
        for (window, mut seqnos) in bounds.windows(2).zip(seqnos) {
            let &[start, end] = window else { continue };
            if seqnos.is_empty() {
                continue;
            }
            seqnos.sort_unstable_by(|a, b| b.cmp(a));
            seqnos.dedup();
            match fragments.last_mut() {
                Some(last) if last.end == start && last.seqnos == seqnos => last.end = end.to_vec(),
                _ => fragments.push(Fragment { start: start.to_vec(), end: end.to_vec(), seqnos }),
            }
        }
        FragmentedTombstones { fragments }
    }

    /// The fragments, in key order.
    #[must_use]
    pub fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.fragments.is_empty()
    }

    /// The fragment that contains `full_key`.
    #[must_use]
    pub fn fragment_at(&self, full_key: &[u8]) -> Option<&Fragment> {
        let after = self.fragments.partition_point(|fragment| fragment.start.as_slice() <= full_key);
        self.fragments.get(after.checked_sub(1)?).filter(|fragment| full_key < fragment.end.as_slice())
    }

    /// Sequence number of the newest tombstone over `full_key` that a reader at `snapshot` sees; versions of the key
    /// with a smaller sequence number are hidden from that reader.
    #[must_use]
    pub fn newest_covering(&self, full_key: &[u8], snapshot: Seqno) -> Option<Seqno> {
        self.fragment_at(full_key)?.newest_at(snapshot)
    }

    /// The fragments as tombstones again: disjoint or equal ranges, sorted by start, newest first.
    pub fn to_tombstones(&self) -> impl Iterator<Item = RangeTombstone> + '_ {
        self.fragments.iter().flat_map(|fragment| {
            fragment.seqnos.iter().map(|&seqno| RangeTombstone {
                start: fragment.start.clone(),
                end: fragment.end.clone(),
                seqno,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn fragments_answer_like_the_tombstones(
            ranges in prop::collection::vec((0u8..20, 0u8..20, 1u64..30), 0..12),
            key in 0u8..20,
            snapshot in 0u64..32,
        ) {
            let tombstones: Vec<RangeTombstone> = ranges
                .iter()
                .map(|&(start, end, seqno)| RangeTombstone { start: vec![start], end: vec![end], seqno })
                .collect();
            let expected = ranges
                .iter()
                .filter(|&&(start, end, seqno)| start <= key && key < end && seqno <= snapshot)
                .map(|&(_, _, seqno)| seqno)
                .max();
            let fragmented = FragmentedTombstones::new(&tombstones);
            prop_assert_eq!(fragmented.newest_covering(&[key], snapshot), expected);
            for pair in fragmented.fragments().windows(2) {
                prop_assert!(pair[0].end <= pair[1].start);
            }
            let again: Vec<RangeTombstone> = fragmented.to_tombstones().collect();
            prop_assert_eq!(FragmentedTombstones::new(&again), fragmented);
        }
    }
}
