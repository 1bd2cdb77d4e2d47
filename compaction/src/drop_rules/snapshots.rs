//! Who may still be reading, as far as dropping is concerned.

use alluvium_base::key::Seqno;
use alluvium_base::limits::SEQNO_MAX;

/// The live snapshots, which cut the sequence numbers into *stripes*: two versions of a key lie in one stripe if no
/// snapshot can tell them apart. Stripe 0 holds what is at or below the oldest snapshot, the last stripe what only
/// the latest reader sees.
///
/// Every sequence number at which a reader may stand or may yet come to stand must be among the snapshots, except
/// those at or above everything that the job reads (a snapshot taken later is one of these). So a durable position at
/// which snapshots of the durable state are taken counts as a snapshot, and so does the one of an index build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshots {
    ascending: Vec<Seqno>,
}

impl Snapshots {
    /// The given snapshots, in any order.
    #[must_use]
    pub fn new(mut seqnos: Vec<Seqno>) -> Snapshots {
        seqnos.sort_unstable();
        seqnos.dedup();
        Snapshots { ascending: seqnos }
    }

    /// Number of the stripe that `seqno` lies in: the number of snapshots below it.
    #[must_use]
    pub fn stripe(&self, seqno: Seqno) -> usize {
        match self.ascending.as_slice() {
            [] => 0,
            snapshots => snapshots.partition_point(|&snapshot| snapshot < seqno),
        }
    }

    /// The greatest sequence number of stripe `stripe`: where its readers stand.
    #[must_use]
    pub fn stripe_end(&self, stripe: usize) -> Seqno {
        self.ascending.get(stripe).copied().unwrap_or(SEQNO_MAX)
    }

    /// True if some snapshot lies at or above `from` and below `to`.
    #[must_use]
    pub fn any_within(&self, from: Seqno, to: Seqno) -> bool {
        self.ascending.get(self.stripe(from)).is_some_and(|&snapshot| snapshot < to)
    }

    /// The oldest snapshot; `None` if everyone reads the latest state.
    #[must_use]
    pub fn oldest(&self) -> Option<Seqno> {
        self.ascending.first().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_ends_its_stripe() {
        let snapshots = Snapshots::new(vec![20, 10, 10]);
        let stripes: Vec<usize> = [0, 10, 11, 20, 21].map(|seqno| snapshots.stripe(seqno)).into();
        assert_eq!(stripes, [0, 0, 1, 1, 2]);
        assert_eq!([0, 1, 2].map(|stripe| snapshots.stripe_end(stripe)), [10, 20, SEQNO_MAX]);
        assert!(snapshots.any_within(10, 11) && !snapshots.any_within(11, 20) && snapshots.any_within(5, 30));
        assert_eq!((snapshots.oldest(), Snapshots::default().oldest()), (Some(10), None));
    }
}
