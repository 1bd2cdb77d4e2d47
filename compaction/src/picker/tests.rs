//! Tables of trees and the plans that they call for, and what every plan must keep.

use alluvium_base::KeyRange;
use alluvium_base::range_tombstone::{FragmentedTombstones, RangeTombstone};
use alluvium_sstable::KeyspaceProperties;
use proptest::prelude::*;

use super::*;
use crate::drop_rules::{Below, Snapshots};
use crate::testing::{tree, tree_with};
use crate::version::VersionEdit;

fn shape() -> TreeShape {
    TreeShape {
        base_bytes: 1000,
        multiplier: 10,
        level_0_sublevels: 2,
        file_bytes_min: 100,
        file_bytes_max: 400,
        overlap_max: 10,
        job_bytes_max: 10_000,
        tombstone_share: 0.5,
        garbage_share: 0.2,
    }
}

fn inputs<'a>(shape: &'a TreeShape, in_flight: &'a [Claim]) -> PickInputs<'a> {
    PickInputs {
        shape,
        in_flight,
        oldest_snapshot: None,
        dropped_keyspaces: &[],
        covered_files: &[],
        scope: Scope::All,
    }
}

/// (kind, reason, input files by id, output level)
type Expected<'a> = Option<(PlanKind, PickReason, &'a [u64], u8)>;

fn summary(plan: &CompactionPlan) -> (PlanKind, PickReason, Vec<u64>, u8) {
    let mut files: Vec<u64> = plan.files().map(|(_, file)| file.id).collect();
    files.sort_unstable();
    (plan.kind, plan.reason, files, plan.output_level)
}

fn check(what: &str, version: &Version, inputs: &PickInputs<'_>, expected: Expected<'_>) {
    let plan = pick(version, inputs);
    let found = plan.as_ref().map(summary);
    assert_eq!(
        found,
        expected.map(|(kind, reason, files, level)| (kind, reason, files.to_vec(), level)),
        "{what}"
    );
}

/// What a job over the files with these ids, in the range given, has claimed.
fn claim(files: &[u64], from_level: u8, output_level: u8, range: &str) -> Claim {
    let (start, end) = range.split_once('-').unwrap();
    Claim { files: files.to_vec(), from_level, output_level, range: KeyRange::new(start, end) }
}

/// Gives a file of 10 entries so many tombstones.
fn with_tombstones(tombstones: u64) -> impl Fn(&mut FileMeta) {
    move |file| file.summary.tombstones = tombstones
}

/// Level, "first-end", bytes; as for [`tree`].
type Files<'a> = &'a [(u8, &'a str, u64)];

#[test]
fn level_0_goes_to_the_base_level_by_intervals() {
    use PickReason::{Level0, Level0Intra};
    use PlanKind::{Merge, Move};
    let stack_of_five: Files<'_> =
        &[(0, "a-z", 50), (0, "a-z", 50), (0, "a-z", 50), (0, "a-z", 50), (0, "a-z", 50), (6, "a-z", 90)];
    let two_stacks: Files<'_> =
        &[(0, "a-d", 50), (0, "b-c", 50), (0, "p-t", 50), (0, "q-r", 50), (6, "a-e", 90), (6, "p-s", 90)];
    let cases: &[(&str, Files<'_>, &[Claim], Expected<'_>)] = &[
        ("an empty tree rests", &[], &[], None),
        ("one sublevel is few enough", &[(0, "a-m", 50), (0, "n-z", 50)], &[], None),
        (
            "a stack goes as a whole, with what it overlaps; a file beside it stays",
            &[(0, "a-m", 50), (0, "c-d", 50), (0, "x-z", 50), (6, "b-e", 90), (6, "e-f", 90), (6, "w-y", 90)],
            &[],
            Some((Merge, Level0, &[1, 2, 4, 5], 6)),
        ),
        ("the highest interval first", two_stacks, &[], Some((Merge, Level0, &[1, 2, 5], 6))),
        (
            "another interval runs beside it",
            two_stacks,
            &[claim(&[1, 2, 5], 0, 6, "a-e")],
            // Height is counted without what is being taken away, and one stack alone is still too high.
            Some((Merge, Level0, &[3, 4, 6], 6)),
        ),
        (
            "everything older comes along, however wide",
            &[(0, "a-c", 50), (0, "x-z", 50), (0, "b-y", 50)],
            &[],
            Some((Merge, Level0, &[1, 2, 3], 6)),
        ),
        (
            "a wide young file does not glue old ones together that can go on their own",
            &[(0, "a-c", 6000), (0, "x-z", 6000), (0, "a-z", 50)],
            &[],
            Some((Move, Level0, &[1], 6)),
        ),
        (
            "the base level is busy: the newest files become one",
            stack_of_five,
            &[claim(&[6], 6, 6, "a-z")],
            Some((Merge, Level0Intra, &[1, 2, 3, 4, 5], 0)),
        ),
        (
            "files under way below stay where they are in the stack",
            stack_of_five,
            &[claim(&[1, 6], 0, 6, "a-z")],
            Some((Merge, Level0Intra, &[2, 3, 4, 5], 0)),
        ),
        ("three are not worth it", stack_of_five, &[claim(&[1, 2, 6], 0, 6, "a-z")], None),
        (
            "outputs of another job are on their way to the same place",
            &[(0, "a-m", 50), (0, "c-d", 50)],
            &[claim(&[], 0, 6, "a-z")],
            None,
        ),
        (
            "level 0 never passes older data",
            &[(0, "a-m", 50), (0, "c-d", 50), (3, "x-z", 1), (6, "a-b", 90)],
            &[],
            Some((Merge, Level0, &[1, 2], 3)),
        ),
        (
            "a file that overlaps nothing is moved",
            &[(0, "a-b", 600), (0, "c-d", 600), (6, "x-z", 90)],
            &[],
            Some((Move, Level0, &[1], 6)),
        ),
    ];
    for (what, files, in_flight, expected) in cases {
        let version = tree(files.iter().copied());
        check(what, &version, &inputs(&shape(), in_flight), *expected);
    }
}

#[test]
fn a_job_for_level_0_takes_no_more_than_it_should() {
    let shape = TreeShape { job_bytes_max: 250, ..shape() };
    let version = tree([(0, "a-z", 100), (0, "a-z", 100), (0, "a-z", 100), (0, "b-c", 10)]);
    // The youngest file needs all of those below it.
    check("height", &version, &inputs(&shape, &[]), Some((PlanKind::Merge, PickReason::Level0, &[1, 2], 6)));
    let version = tree([(0, "a-z", 100), (0, "b-d", 10), (6, "a-c", 500)]);
    check("first", &version, &inputs(&shape, &[]), Some((PlanKind::Merge, PickReason::Level0, &[1, 3], 6)));
}

#[test]
fn files_within_the_hull_come_for_free() {
    let version = tree([(0, "a-d", 50), (0, "b-c", 50), (0, "e-f", 50), (0, "y-z", 50), (6, "a-m", 90)]);
    let expected = Some((PlanKind::Merge, PickReason::Level0, [1, 2, 3, 5].as_slice(), 6));
    check("file 3 rewrites nothing more", &version, &inputs(&shape(), &[]), expected);
}

#[test]
fn a_level_above_its_target_gives_up_the_cheapest_file() {
    use PickReason::LevelSize;
    use PlanKind::{Merge, Move};
    // 20,000 bytes: the base level is 4, with 1,000 bytes; level 5 may have about 4,200.
    let bottom: Files<'_> = &[
        (6, "a-c", 6000),
        (6, "d-f", 6000),
        (6, "g-i", 6000),
        (6, "p-z", 2000),
        (5, "a-b", 600),
        (5, "k-l", 600),
    ];
    let with = |files: Files<'_>| tree([bottom, files].concat());
    let cases: &[(&str, Files<'_>, &[Claim], Expected<'_>)] = &[
        ("within targets", &[(4, "a-c", 900)], &[], None),
        // Against 600 bytes of overlap for 700, nothing for 400: the latter moves.
        ("the least overlap", &[(4, "a-c", 700), (4, "m-n", 400)], &[], Some((Move, LevelSize, &[8], 5))),
        (
            "the next best, if the best is taken",
            &[(4, "a-c", 1700), (4, "m-n", 1400)],
            &[claim(&[8], 4, 5, "m-n")],
            Some((Merge, LevelSize, &[5, 7], 5)),
        ),
        (
            "work in flight does not count",
            &[(4, "a-c", 700), (4, "m-n", 400)],
            &[claim(&[8], 4, 5, "m-n")],
            None,
        ),
        ("files of other jobs are in the way", &[(4, "a-c", 1700)], &[claim(&[1, 5], 5, 6, "a-c")], None),
        (
            "neighbours that rewrite nothing more come along",
            &[(4, "a-aa", 600), (4, "ab-b", 500), (4, "k-m", 50)],
            &[],
            Some((Merge, LevelSize, &[5, 7, 8], 5)),
        ),
        (
            "small files are merged with each other, not moved",
            &[(4, "a-b", 600), (4, "m-n", 20), (4, "o-p", 25), (4, "q-r", 900)],
            &[],
            Some((Merge, LevelSize, &[8, 9], 5)),
        ),
        (
            "unless there is none to merge with",
            &[(4, "m-n", 20), (4, "o-p", 999)],
            &[],
            Some((Move, LevelSize, &[7], 5)),
        ),
    ];
    for (what, files, in_flight, expected) in cases {
        check(what, &with(files), &inputs(&shape(), in_flight), *expected);
    }
    // Overlapping 12,000 bytes two levels down is too much for a move: the next job would pay for it.
    let version = with(&[(4, "d-i", 1500)]);
    check("grandparents", &version, &inputs(&shape(), &[]), Some((Merge, LevelSize, &[7], 5)));
}

#[test]
fn tombstones_are_not_moved_to_where_they_hide_nothing() {
    let version = tree_with([(5, "a-b", 1200, with_tombstones(1)), (6, "x-z", 2000, with_tombstones(0))]);
    let expected = Some((PlanKind::Merge, PickReason::LevelSize, [1].as_slice(), 6));
    check("rewritten, and so dropped", &version, &inputs(&shape(), &[]), expected);
}

#[test]
fn an_overfull_base_level_comes_before_level_0() {
    let files = |base: u64| tree([(0, "a-z", 50), (0, "a-z", 50), (5, "a-c", base), (6, "a-z", 7000)]);
    let pick_reason = |base, scope| {
        pick(&files(base), &PickInputs { scope, ..inputs(&shape(), &[]) }).map(|plan| plan.reason)
    };
    assert_eq!(pick_reason(1500, Scope::All), Some(PickReason::Level0));
    assert_eq!(pick_reason(2500, Scope::All), Some(PickReason::LevelSize));
    assert_eq!(pick_reason(2500, Scope::Level0), Some(PickReason::Level0));
    assert_eq!(pick_reason(1500, Scope::Deep), Some(PickReason::LevelSize));
    assert_eq!(pick_reason(500, Scope::Deep), None);
}

#[test]
fn files_of_tombstones_sink_at_once() {
    let version = tree_with([
        (5, "a-c", 50, with_tombstones(6)),
        (5, "d-e", 50, with_tombstones(4)),
        (6, "a-b", 2000, with_tombstones(0)),
    ]);
    let expected = Some((PlanKind::Merge, PickReason::Tombstones, [1, 3].as_slice(), 6));
    check("in a level", &version, &inputs(&shape(), &[]), expected);
    let version = tree_with([
        (0, "a-c", 50, with_tombstones(0)),
        (0, "b-e", 50, with_tombstones(6)),
        (0, "x-z", 50, with_tombstones(0)),
    ]);
    let lazy = TreeShape { level_0_sublevels: 9, ..shape() };
    let expected = Some((PlanKind::Merge, PickReason::Tombstones, [1, 2].as_slice(), 6));
    check("in level 0, with what it rests on", &version, &inputs(&lazy, &[]), expected);
}

#[test]
fn garbage_at_the_bottom_is_rewritten_once_no_snapshot_needs_it() {
    let garbage = |file: &mut FileMeta| {
        (file.summary.seqno_min, file.summary.seqno_max) = (10, 20);
        (file.summary.tombstones, file.old_versions) = (1, 1);
    };
    let version = tree_with([(6, "a-c", 500, garbage)]);
    let rewrite = Some((PlanKind::Merge, PickReason::Garbage, [1].as_slice(), 6));
    let at = |oldest_snapshot, expected, shape: &TreeShape, claims: &[Claim]| {
        let inputs = PickInputs { oldest_snapshot, ..inputs(shape, claims) };
        check("garbage", &version, &inputs, expected);
    };
    at(None, rewrite, &shape(), &[]);
    at(Some(20), rewrite, &shape(), &[]);
    at(Some(19), None, &shape(), &[]);
    at(None, None, &TreeShape { garbage_share: 0.3, ..shape() }, &[]);
    at(None, None, &shape(), &[claim(&[1], 6, 6, "a-c")]);
}

#[test]
fn dropped_keyspaces_take_their_files_along() {
    let keyspace = |id: u32, stored_bytes: u64| KeyspaceProperties {
        keyspace: KeyspaceId(id),
        entries: 5,
        tombstones: 0,
        raw_bytes: stored_bytes,
        stored_bytes,
    };
    let of = |keyspaces: Vec<KeyspaceProperties>| {
        move |file: &mut FileMeta| file.summary.keyspaces.clone_from(&keyspaces)
    };
    let version = tree_with([
        (6, "a-c", 500, of(vec![keyspace(1, 400), keyspace(2, 100)])),
        (6, "d-f", 500, of(vec![keyspace(2, 400)])),
        (0, "d-f", 500, of(vec![keyspace(3, 400)])),
    ]);
    let with = |dropped: &[KeyspaceId], claims: &[Claim], expected| {
        let shape = shape();
        let inputs = PickInputs { dropped_keyspaces: dropped, ..inputs(&shape, claims) };
        check("dropped", &version, &inputs, expected);
    };
    let discard = |files| Some((PlanKind::Discard, PickReason::DroppedKeyspace, files, 6));
    with(&[], &[], None);
    with(&[KeyspaceId(2)], &[], discard([2].as_slice()));
    with(
        &[KeyspaceId(2)],
        &[claim(&[2], 6, 6, "d-f")],
        Some((PlanKind::Merge, PickReason::DroppedKeyspace, [1].as_slice(), 6)),
    );
    with(&[KeyspaceId(3)], &[], Some((PlanKind::Discard, PickReason::DroppedKeyspace, [3].as_slice(), 0)));
}

#[test]
fn files_hidden_by_newer_range_tombstones_go_unread() {
    let seqnos =
        |min, max| move |file: &mut FileMeta| (file.summary.seqno_min, file.summary.seqno_max) = (min, max);
    let version = tree_with([
        (6, "a-c", 500, seqnos(1, 9)),
        (6, "c-f", 500, seqnos(0, 9)),
        (5, "a-b", 500, seqnos(1, 30)),
    ]);
    let source = |level, ranges: &[(&str, &str, u64)]| {
        let tombstone = |&(start, end, seqno): &(&str, &str, u64)| RangeTombstone {
            start: start.into(),
            end: end.into(),
            seqno,
        };
        let tombstones: Vec<_> = ranges.iter().map(tombstone).collect();
        TombstoneSource {
            level,
            order: 0,
            tombstones: std::sync::Arc::new(FragmentedTombstones::new(&tombstones)),
        }
    };
    let covered = |sources: &[TombstoneSource], snapshots: &[u64]| {
        covered_files(&version, sources, &Snapshots::new(snapshots.to_vec()))
    };
    assert_eq!(covered(&[source(5, &[("a", "f", 20)])], &[]), [1, 2]);
    assert_eq!(
        covered(&[source(5, &[("a", "b", 20)]), source(4, &[("b", "f", 10)])], &[]),
        [1, 2],
        "pieces join"
    );
    assert_eq!(covered(&[source(5, &[("a", "e", 20)])], &[]), [1]);
    assert_eq!(covered(&[source(6, &[("a", "f", 20)])], &[]), [0u64; 0], "only from above");
    assert_eq!(covered(&[source(5, &[("a", "f", 9)])], &[]), [0u64; 0], "an entry of 9 is not hidden by 9");
    assert_eq!(covered(&[source(5, &[("a", "f", 20)])], &[15]), [0u64; 0]);
    assert_eq!(covered(&[source(5, &[("a", "f", 20)])], &[20]), [1, 2]);
    assert_eq!(
        covered(&[source(5, &[("a", "f", 20), ("a", "f", 12)])], &[15]),
        [1, 2],
        "12 hides all from 15"
    );
    let shape = shape();
    let inputs = PickInputs { covered_files: &[2], ..inputs(&shape, &[]) };
    check("covered", &version, &inputs, Some((PlanKind::Discard, PickReason::RangeCovered, &[2], 6)));
}

#[test]
fn a_requested_compaction_passes_every_level_once() {
    let version = tree([
        (0, "a-m", 50),
        (0, "c-d", 50),
        (0, "x-z", 50),
        (4, "a-c", 100),
        (5, "b-f", 100),
        (6, "a-k", 100),
    ]);
    let shape = TreeShape { level_0_sublevels: 100, ..shape() };
    let mut manual = ManualCompaction::new(KeyRange::new("a", "e"), &version);
    let mut current = version;
    let mut id = 100;
    let mut steps = Vec::new();
    loop {
        match manual.next(&current, &inputs(&shape, &[])) {
            ManualStep::Run(plan) => {
                steps.push(summary(&plan).2);
                id += 1;
                let output = crate::testing::file(id, &plan.range.start, &plan.range.end);
                let outputs = if plan.kind == PlanKind::Merge { vec![output] } else { vec![] };
                current = current.apply(&plan.edit(&outputs)).unwrap();
            }
            ManualStep::Blocked => panic!("nothing is running"),
            ManualStep::Done => break,
        }
    }
    assert_eq!(steps, [vec![1, 2, 4], vec![5, 101], vec![6, 102]]);
    let left: Vec<(u8, u64)> = current.files().map(|(level, file)| (level, file.id)).collect();
    assert_eq!(left, [(0, 3), (6, 103)], "what lies outside of the range stays");
}

#[test]
fn a_requested_compaction_waits_for_what_is_running() {
    let version = tree([(0, "a-m", 50), (6, "a-k", 100)]);
    let in_flight = [claim(&[2], 6, 6, "a-k")];
    let mut manual = ManualCompaction::new(KeyRange::new("a", "e"), &version);
    assert_eq!(manual.next(&version, &inputs(&shape(), &in_flight)), ManualStep::Blocked);
    assert!(matches!(manual.next(&version, &inputs(&shape(), &[])), ManualStep::Run(_)));
}

#[test]
fn parts_of_a_plan_join_without_gaps() {
    let version = tree([(0, "a-z", 100), (0, "b-y", 100), (6, "a-f", 300), (6, "f-k", 300), (6, "m-s", 300)]);
    let plan = pick(&version, &inputs(&shape(), &[])).unwrap();
    for parts in 1..6 {
        let ranges = plan.split(parts);
        assert!(ranges.len() <= parts);
        assert_eq!((&ranges[0].start, &ranges[ranges.len() - 1].end), (&plan.range.start, &plan.range.end));
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start), "{ranges:?}");
    }
    assert_eq!(plan.split(3).len(), 3);
}

/// Any tree: level 0 in any shape, levels of disjoint files.
fn any_tree() -> impl Strategy<Value = Version> {
    let level_0 = prop::collection::vec((0u8..40, 1u8..12, 20u64..300), 0..14);
    let level = || prop::collection::vec((0u8..4, 1u8..6, 50u64..900), 0..10);
    (level_0, prop::collection::vec(level(), 3)).prop_map(|(level_0, levels)| {
        let mut edit = VersionEdit::default();
        let mut id = 0;
        let mut add = |level: u8, start: u8, end: u8, bytes: u64| {
            id += 1;
            let mut file = FileMeta::clone(&crate::testing::l0_file(id, id, &[start], &[end]));
            file.summary.bytes = bytes;
            edit.add(level, Arc::new(file));
        };
        for (start, width, bytes) in level_0 {
            add(0, start, start + width, bytes);
        }
        for (level, files) in (4u8..).zip(levels) {
            let mut at = 0;
            for (gap, width, bytes) in files {
                add(level, at + gap, at + gap + width, bytes);
                at += gap + width;
            }
        }
        Version::new().apply(&edit).unwrap()
    })
}

/// What makes a plan right, in terms of the version that it is made from.
fn check_plan(version: &Version, plan: &CompactionPlan, others: &[Claim]) -> Result<(), TestCaseError> {
    let is_input = |id: u64| plan.files().any(|(_, file)| file.id == id);
    for (level, file) in plan.files() {
        prop_assert!(version.files_of(level).any(|other| other.id == file.id), "inputs exist");
        prop_assert!(others.iter().all(|claim| !claim.files.contains(&file.id)), "inputs are free");
        prop_assert!(plan.range.covers(file.range()));
        for other in version.files_of(0).filter(|other| level == 0 && other.range().overlaps(file.range())) {
            let must_come_along =
                if plan.output_level == 0 { other.order > file.order } else { other.order < file.order };
            prop_assert!(
                !must_come_along || is_input(other.id),
                "file {} leaves {} behind",
                file.id,
                other.id
            );
        }
    }
    if plan.kind != PlanKind::Discard && plan.output_level > 0 {
        for other in version.level(plan.output_level).overlapping(&plan.range) {
            prop_assert!(is_input(other.id), "outputs would overlap file {}", other.id);
        }
        for claim in others.iter().filter(|claim| claim.output_level == plan.output_level) {
            prop_assert!(!claim.range.overlaps(&plan.range), "outputs would overlap those of {claim:?}");
        }
        let first = plan.inputs.iter().map(|input| input.level).min().unwrap_or(0);
        for between in first + 1..plan.output_level {
            prop_assert!(
                version.level(between).overlapping(&plan.range).is_empty(),
                "level {between} is passed"
            );
        }
    }
    let Below::Within(below) = plan.below(version) else { panic!("a compaction knows what is below") };
    for (level, file) in
        version.files().filter(|(_, file)| file.range().overlaps(&plan.range) && !is_input(file.id))
    {
        let older = level > plan.output_level
            || (level == 0 && plan.output_level == 0 && file.order < plan.output_order);
        prop_assert!(!older || below.covers(file.range()), "file {} lies below", file.id);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn plans_that_run_at_once_never_break_the_order(version in any_tree(), finish_first: bool) {
        let shape = shape();
        let mut version = version;
        let mut plans: Vec<CompactionPlan> = Vec::new();
        let mut id = 1000;
        for round in 0..40 {
            let claims: Vec<Claim> = plans.iter().map(CompactionPlan::claim).collect();
            let plan = pick(&version, &inputs(&shape, &claims));
            if let Some(plan) = &plan {
                check_plan(&version, plan, &claims)?;
                plans.push(plan.clone());
            } else if plans.is_empty() {
                break;
            }
            // Now and then a job ends, the first or the last one, and its result is installed.
            if plan.is_none() || round % 3 == 2 {
                let plan = if finish_first { plans.remove(0) } else { plans.pop().unwrap() };
                id += 1;
                let mut output = FileMeta::clone(&crate::testing::l0_file(id, plan.output_order, &plan.range.start, &plan.range.end));
                output.summary.bytes = plan.input_bytes();
                let outputs = if plan.kind == PlanKind::Merge { vec![Arc::new(output)] } else { vec![] };
                version = version.apply(&plan.edit(&outputs)).unwrap();
            }
        }
        prop_assert!(plans.is_empty() || plans.len() < 40);
    }
}
