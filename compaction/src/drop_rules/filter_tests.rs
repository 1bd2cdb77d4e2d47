//! The filter against a reader's answers: whatever it drops, nobody may notice.

use alluvium_base::KeyRange;
use alluvium_base::key::{KeyspaceId, Kind, Seqno, Trailer};
use alluvium_base::range_tombstone::RangeTombstone;
use proptest::prelude::*;

use super::*;

/// A version of the one key of these tests. `value` is what the version was written with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stored {
    seqno: Seqno,
    kind: Kind,
    value: Seqno,
}

fn stored(seqno: Seqno, kind: Kind) -> Stored {
    Stored { seqno, kind, value: seqno }
}

fn key() -> Vec<u8> {
    KeyspaceId(1).full_key(b"k")
}

fn over_key(seqno: Seqno) -> RangeTombstone {
    RangeTombstone { start: KeyspaceId(1).full_key(b""), end: KeyspaceId(2).full_key(b""), seqno }
}

/// What a reader gets: the base value with the operands merged onto it, newest first.
fn read(versions: &[Stored], tombstones: &[Seqno], snapshot: Seqno) -> Vec<Seqno> {
    let hidden_below = tombstones.iter().copied().filter(|&seqno| seqno <= snapshot).max().unwrap_or(0);
    let mut answer = Vec::new();
    let mut newest_first = versions.to_vec();
    newest_first.sort_by_key(|version| std::cmp::Reverse((version.seqno, version.kind)));
    for version in newest_first.iter().filter(|version| version.seqno <= snapshot) {
        if version.seqno < hidden_below || version.kind.is_point_tombstone() {
            break;
        }
        answer.push(version.value);
        if version.kind == Kind::Put {
            break;
        }
    }
    answer
}

struct Outcome {
    versions: Vec<Stored>,
    tombstones: Vec<Seqno>,
    counts: DropCounts,
    broken: u64,
}

/// Runs a job over `versions` (newest first) and range `tombstones`.
fn run(versions: &[Stored], tombstones: &[Seqno], snapshots: &[Seqno], at_bottom: bool) -> Outcome {
    let tombstones: Vec<_> = tombstones.iter().map(|&seqno| over_key(seqno)).collect();
    let below = if at_bottom { Below::Within(KeyRanges::default()) } else { Below::Anywhere };
    let rules = DropRules::new(Snapshots::new(snapshots.to_vec()), below, vec![], &tombstones);
    let mut filter = EntryFilter::new(rules);
    let mut out = Vec::new();
    let values =
        |seqno: Seqno| versions.iter().find(|version| version.seqno == seqno).map_or(0, |found| found.value);
    let write = |out: &mut Vec<Stored>, trailer: Trailer, value: Seqno| {
        let version = Stored { seqno: trailer.seqno(), kind: trailer.kind().unwrap(), value };
        if let Some(last) = out.last() {
            assert!(last.seqno > version.seqno, "{last:?} before {version:?}");
        }
        out.push(version);
    };
    filter.start_key(&key());
    for version in versions {
        if let Verdict::Keep(trailer) = filter.offer(version.seqno, version.kind) {
            std::iter::from_fn(|| filter.release_one())
                .for_each(|held| write(&mut out, held, values(held.seqno())));
            write(&mut out, trailer, version.value);
        }
    }
    filter.finish_key();
    std::iter::from_fn(|| filter.release_one()).for_each(|held| write(&mut out, held, values(held.seqno())));
    assert_eq!(
        versions.len() as u64,
        out.len() as u64 + filter.counts().total(),
        "every entry is accounted for"
    );
    let kept = filter.rules().kept_tombstones();
    Outcome {
        versions: out,
        tombstones: kept.to_tombstones().map(|tombstone| tombstone.seqno).collect(),
        counts: *filter.counts(),
        broken: filter.broken_pairs().0,
    }
}

/// Checks that readers at `snapshots`, and the latest one, cannot tell `after` from `before`.
fn same_answers(
    before: (&[Stored], &[Seqno]),
    after: (&[Stored], &[Seqno]),
    snapshots: &[Seqno],
) -> Result<(), TestCaseError> {
    for &snapshot in snapshots.iter().chain(&[1000]) {
        let (expected, got) = (read(before.0, before.1, snapshot), read(after.0, after.1, snapshot));
        prop_assert_eq!(expected, got, "at {}: {:?} became {:?}", snapshot, before, after);
    }
    Ok(())
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop_oneof![3 => Just(Kind::Put), 2 => Just(Kind::Delete), 1 => Just(Kind::Merge)]
}

/// Kinds with distinct sequence numbers, newest first.
fn history(kinds: Vec<Kind>, gaps: &[u64]) -> Vec<Stored> {
    let mut seqno = 0;
    let mut versions = Vec::new();
    for (kind, gap) in kinds.into_iter().zip(gaps) {
        seqno += gap;
        versions.push(stored(seqno, kind));
    }
    versions.reverse();
    versions
}

/// Two jobs over a history that is cut in `older` versions below and the rest above: first the newer part alone, then
/// everything, with fewer snapshots, at the bottom.
fn two_jobs(
    versions: &[Stored],
    tombstones: &[Seqno],
    older: usize,
    snapshots: &[Seqno],
    later: &[Seqno],
) -> Result<Outcome, TestCaseError> {
    let (newer, older) = versions.split_at(versions.len() - older.min(versions.len()));
    // A tombstone lies no deeper than what is newer than it.
    let oldest_newer = newer.last().map_or(Seqno::MAX, |version| version.seqno);
    let (above, below): (Vec<_>, Vec<_>) =
        tombstones.iter().partition(|&&seqno| seqno > oldest_newer || older.is_empty());
    let above: Vec<Seqno> =
        above.into_iter().filter(|&seqno| older.iter().all(|version| version.seqno < seqno)).collect();
    let below: Vec<Seqno> = below;
    let all: Vec<Seqno> = above.iter().chain(&below).copied().collect();
    let first = run(newer, &above, snapshots, false);
    let merged = [first.versions.as_slice(), older].concat();
    let merged_tombstones = [first.tombstones.as_slice(), &below].concat();
    same_answers((versions, &all), (&merged, &merged_tombstones), snapshots)?;
    let second = run(&merged, &merged_tombstones, later, true);
    same_answers((versions, &all), (&second.versions, &second.tombstones), later)?;
    Ok(second)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn nobody_notices_what_is_dropped(
        kinds in prop::collection::vec(any_kind(), 0..8),
        gaps in prop::collection::vec(1u64..4, 8),
        tombstones in prop::collection::btree_set(1u64..25, 0..3),
        snapshots in prop::collection::btree_set(0u64..25, 0..4),
        keep_snapshot in prop::collection::vec(any::<bool>(), 4),
        older in 0usize..8,
    ) {
        let versions = history(kinds, &gaps);
        let free = |seqno: &u64| versions.iter().all(|version| version.seqno != *seqno);
        let tombstones: Vec<Seqno> = tombstones.into_iter().filter(free).collect();
        let snapshots: Vec<Seqno> = snapshots.into_iter().collect();
        let later: Vec<Seqno> =
            snapshots.iter().zip(&keep_snapshot).filter(|(_, keep)| **keep).map(|(&seqno, _)| seqno).collect();
        let end = two_jobs(&versions, &tombstones, older, &snapshots, &later)?;
        prop_assert_eq!(end.broken, 0);
    }

    #[test]
    fn nobody_notices_that_delete_once_and_put_vanish(
        length in 0usize..10,
        gaps in prop::collection::vec(1u64..4, 10),
        snapshots in prop::collection::btree_set(0u64..25, 0..4),
        keep_snapshot in prop::collection::vec(any::<bool>(), 4),
        older in 0usize..8,
    ) {
        let alternating = [Kind::Put, Kind::DeleteOnce].into_iter().cycle().take(length).collect();
        let versions = history(alternating, &gaps);
        let snapshots: Vec<Seqno> = snapshots.into_iter().collect();
        let later: Vec<Seqno> =
            snapshots.iter().zip(&keep_snapshot).filter(|(_, keep)| **keep).map(|(&seqno, _)| seqno).collect();
        let end = two_jobs(&versions, &[], older, &snapshots, &later)?;
        prop_assert_eq!(end.broken, 0);
        if later.is_empty() {
            prop_assert_eq!(end.versions.len(), length % 2, "at rest only the last put, if any, is left");
        }
    }

    #[test]
    fn broken_alternation_within_a_job_is_reported_and_still_answered_right(
        kinds in prop::collection::vec(prop_oneof![any_kind(), Just(Kind::DeleteOnce)], 0..8),
        gaps in prop::collection::vec(1u64..4, 8),
        snapshots in prop::collection::btree_set(0u64..25, 0..4),
        at_bottom: bool,
    ) {
        let versions = history(kinds, &gaps);
        let snapshots: Vec<Seqno> = snapshots.into_iter().collect();
        let outcome = run(&versions, &[], &snapshots, at_bottom);
        same_answers((&versions, &[]), (&outcome.versions, &outcome.tombstones), &snapshots)?;
        let wrong = versions.array_windows::<2>().any(|[newer, older]| {
            newer.kind == Kind::DeleteOnce && older.kind != Kind::Put
        });
        prop_assert!(!wrong || outcome.broken > 0);
    }
}

fn kinds(outcome: &Outcome) -> Vec<(Seqno, Kind)> {
    outcome.versions.iter().map(|version| (version.seqno, version.kind)).collect()
}

#[test]
fn what_goes_and_what_stays() {
    use Kind::{Delete, DeleteOnce, Merge, Put};
    // (versions newest first, range tombstones, snapshots, at bottom?, output)
    type Case<'a> = (&'a [(Seqno, Kind)], &'a [Seqno], &'a [Seqno], bool, &'a [(Seqno, Kind)]);
    let cases: &[Case<'_>] = &[
        (&[(9, Put), (5, Put)], &[], &[], false, &[(9, Put)]),
        (&[(9, Put), (5, Put)], &[], &[], true, &[(0, Put)]),
        (&[(9, Put), (5, Put)], &[], &[7], true, &[(9, Put), (0, Put)]),
        (&[(9, Put), (5, Put)], &[], &[9], true, &[(0, Put)]),
        (&[(9, Put), (5, Put)], &[], &[4], true, &[(9, Put)]),
        (&[(9, Delete), (5, Put)], &[], &[], false, &[(9, Delete)]),
        (&[(9, Delete), (5, Put)], &[], &[], true, &[]),
        (&[(9, Delete), (5, Put)], &[], &[5], true, &[(9, Delete), (0, Put)]),
        // Whoever holds snapshot 4 may ask whether the key was written since.
        (&[(9, Delete), (5, Put)], &[], &[4], true, &[(9, Delete)]),
        (&[(9, Delete), (5, Put)], &[], &[9], true, &[]),
        (&[(9, Delete), (7, Delete), (5, Put)], &[], &[5, 8], true, &[(9, Delete), (7, Delete), (0, Put)]),
        (&[(9, Put)], &[10], &[], false, &[]),
        (&[(9, Put)], &[10], &[9], false, &[(9, Put)]),
        (&[(9, Put), (5, Put)], &[7], &[9], true, &[(0, Put)]),
        // A tombstone that stays keeps its distance from what is newer.
        (&[(9, Put), (5, Put)], &[7], &[6], true, &[(9, Put), (5, Put)]),
        (&[(9, DeleteOnce), (5, Put)], &[], &[], false, &[]),
        (&[(9, DeleteOnce), (5, Put)], &[], &[5], false, &[(9, DeleteOnce), (5, Put)]),
        (&[(9, DeleteOnce)], &[], &[], false, &[(9, DeleteOnce)]),
        (&[(9, Put), (7, DeleteOnce)], &[], &[], false, &[(9, Put), (7, DeleteOnce)]),
        (&[(9, Put), (7, DeleteOnce), (5, Put)], &[], &[], false, &[(9, Put)]),
        (&[(9, Merge), (7, Merge), (5, Put), (3, Put)], &[], &[], true, &[(9, Merge), (7, Merge), (0, Put)]),
        (&[(9, Merge), (7, Delete)], &[], &[], true, &[(9, Merge)]),
    ];
    for (versions, tombstones, snapshots, at_bottom, expected) in cases {
        let versions: Vec<_> = versions.iter().map(|&(seqno, kind)| stored(seqno, kind)).collect();
        let outcome = run(&versions, tombstones, snapshots, *at_bottom);
        assert_eq!(kinds(&outcome), *expected, "{versions:?} {tombstones:?} {snapshots:?} {at_bottom}");
    }
}

#[test]
fn a_lone_delete_once_at_the_bottom_is_reported() {
    let outcome = run(&[stored(9, Kind::DeleteOnce)], &[], &[], true);
    assert_eq!((outcome.versions.len(), outcome.broken), (0, 1));
    assert_eq!(outcome.counts.get(DropReason::TombstoneAtBottom), 1);
}

#[test]
fn entries_of_a_dropped_keyspace_go_whatever_the_snapshots() {
    let rules = DropRules::new(Snapshots::new(vec![5]), Below::Anywhere, vec![KeyspaceId(1)], &[]);
    let mut filter = EntryFilter::new(rules);
    filter.start_key(&key());
    assert_eq!(filter.offer(5, Kind::Put), Verdict::Skip);
    filter.finish_key();
    filter.start_key(&KeyspaceId(2).full_key(b""));
    assert_eq!(filter.offer(5, Kind::Put), Verdict::Keep(Trailer::new(5, Kind::Put)));
    assert_eq!(filter.counts().get(DropReason::DroppedKeyspace), 1);
}

#[test]
fn below_is_asked_key_by_key() {
    let occupied =
        KeyRanges::union(&[KeyRange::new(KeyspaceId(1).full_key(b"d"), KeyspaceId(1).full_key(b"f"))]);
    let rules = DropRules::new(Snapshots::default(), Below::Within(occupied), vec![], &[]);
    let mut filter = EntryFilter::new(rules);
    let mut kept = Vec::new();
    for user_key in [b"a", b"d", b"e", b"f"] {
        filter.start_key(&KeyspaceId(1).full_key(user_key));
        if let Verdict::Keep(trailer) = filter.offer(9, Kind::Delete) {
            kept.push((*user_key, trailer.seqno()));
        }
        filter.finish_key();
        assert_eq!(filter.release_one(), None);
    }
    assert_eq!(kept, [(*b"d", 9), (*b"e", 9)]);
}
