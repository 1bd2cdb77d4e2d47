//! One job at a time: where its output is cut, what fails it, and that it leaves nothing behind then.

use std::collections::BTreeMap;

use alluvium_base::ErrorKind;
use alluvium_base::fs::fault::{Action, Failure, FaultFs, Rule};
use alluvium_base::fs::memory::MemoryFs;
use alluvium_base::fs::operation::Operation;
use alluvium_base::key::{KeyspaceId, Seqno};
use alluvium_base::range_tombstone::{FragmentedTombstones, RangeTombstone};

use super::*;
use crate::drop_rules::{DropReason, Snapshots};
use crate::picker::{PickInputs, PlanKind, Scope, TreeShape, pick};
use crate::testing::{Entry, Store, VecIterator, sorted};
use crate::version::{Version, VersionEdit};

const KEYSPACE: KeyspaceId = KeyspaceId(1);

fn shape() -> TreeShape {
    TreeShape {
        level_0_sublevels: 1,
        file_bytes_min: 2000,
        file_bytes_max: 2000,
        overlap_max: 2,
        ..TreeShape::default()
    }
}

fn key(number: u64) -> Vec<u8> {
    KEYSPACE.full_key(format!("{number:06}").as_bytes())
}

fn put(number: u64, seqno: Seqno) -> Entry {
    (key(number), Trailer::new(seqno, Kind::Put), format!("value of {number} at {seqno}").into_bytes())
}

fn tombstone(from: u64, to: u64, seqno: Seqno) -> RangeTombstone {
    RangeTombstone { start: key(from), end: key(to), seqno }
}

/// Flushes and installs.
fn flush(
    store: &mut Store,
    version: &Version,
    entries: Vec<Entry>,
    tombstones: Vec<RangeTombstone>,
) -> Version {
    let order =
        entries.iter().map(|entry| entry.1.seqno()).chain(tombstones.iter().map(|t| t.seqno)).max().unwrap();
    let job = store.flush(entries, tombstones, order, Snapshots::default(), (version, &shape()));
    let mut edit = VersionEdit::default();
    job.run().unwrap().files.iter().for_each(|file| edit.add(0, file.clone()));
    version.apply(&edit).unwrap()
}

fn plan(version: &Version) -> CompactionPlan {
    let shape = shape();
    let inputs = PickInputs {
        shape: &shape,
        in_flight: &[],
        oldest_snapshot: None,
        dropped_keyspaces: &[],
        covered_files: &[],
        scope: Scope::All,
    };
    pick(version, &inputs).unwrap()
}

fn compaction(
    store: &mut Store,
    version: &Version,
    plan: &CompactionPlan,
    bounds: Option<KeyRange>,
) -> Result<MergeJob> {
    let (environment, random) = (store.environment.clone(), store.job_random());
    MergeJob::compaction(environment, random, plan, bounds, version, (Snapshots::default(), vec![]), &shape())
}

/// Every entry of the files, in order.
fn contents(store: &Store, files: &[Arc<FileMeta>]) -> Vec<Entry> {
    let mut entries = Vec::new();
    for file in files {
        let mut iter = store.open(file).iter(alluvium_sstable::ReadPurpose::Verify);
        iter.seek_to_first().unwrap();
        while iter.valid() {
            entries.push((iter.key().to_vec(), iter.trailer(), iter.value().to_vec()));
            iter.next().unwrap();
        }
    }
    entries
}

/// Two levels: 300 keys in level 6, and newer versions of every third of them in level 0.
fn two_levels(store: &mut Store) -> Version {
    let entries = (0..300).map(|number| put(number, 1 + number)).collect();
    let mut version = flush(store, &Version::new(), entries, vec![]);
    while version.level_bytes(0) > 0 {
        // Rewrite what could be moved, so that sequence numbers become zero.
        let plan = CompactionPlan { kind: PlanKind::Merge, ..plan(&version) };
        let output = compaction(store, &version, &plan, None).unwrap().run().unwrap();
        version = version.apply(&plan.edit(&output.files)).unwrap();
    }
    flush(store, &version, (0..100).map(|number| put(3 * number, 1000 + number)).collect(), vec![])
}

#[test]
fn a_flush_writes_what_it_was_given() {
    let mut store = Store::new(1);
    let entries: Vec<Entry> = (0..300).map(|number| put(number, 1 + number)).collect();
    let version = flush(&mut store, &Version::new(), entries.clone(), vec![]);
    let files: Vec<_> = version.files().map(|(_, file)| file.clone()).collect();
    assert_eq!(contents(&store, &files), entries);
    assert!(files.len() > 3, "{} files", files.len());
    assert!(files.iter().all(|file| file.order == 300 && file.bytes() < 4000), "cut at about 2,000 bytes");
}

#[test]
fn a_job_with_nothing_to_write_makes_no_file() {
    let mut store = Store::new(1);
    let once = vec![(key(1), Trailer::new(9, Kind::DeleteOnce), vec![]), put(1, 5)];
    for entries in [vec![], once] {
        let job = store.flush(entries, vec![], 9, Snapshots::default(), (&Version::new(), &shape()));
        assert_eq!(job.run().unwrap().files, []);
    }
    assert_eq!(store.files(), [""; 0]);
}

#[test]
fn all_versions_of_a_key_share_a_file() {
    let mut store = Store::new(1);
    let mut entries: Vec<Entry> = (1..300).map(|seqno| put(7, seqno)).collect();
    entries.extend((8..20).map(|number| put(number, 500)));
    let snapshots = Snapshots::new((1..300).collect());
    let output =
        store.flush(entries.clone(), vec![], 500, snapshots, (&Version::new(), &shape())).run().unwrap();
    assert!(output.files.len() > 1);
    assert_eq!(contents(&store, &output.files[..1]).iter().filter(|entry| entry.0 == key(7)).count(), 299);
    assert_eq!(output.files[0].old_versions, 298);
    assert_eq!(contents(&store, &output.files), sorted(entries));
}

#[test]
fn a_quantum_ends_after_its_bytes() {
    let mut store = Store::new(1);
    let version = two_levels(&mut store);
    let plan = plan(&version);
    let mut job = compaction(&mut store, &version, &plan, None).unwrap();
    let (mut quanta, mut read) = (0, 0);
    let output = loop {
        match job.run_quantum(500).unwrap() {
            Progress::Done(output) => break output,
            Progress::Again => {
                let now = job.statistics().read_bytes;
                assert!(now <= read + 500 + 40, "{read} to {now}");
                (read, quanta) = (now, quanta + 1);
            }
        }
    };
    assert!(quanta > 10, "{quanta}");
    let newer: u64 = plan.inputs[0].files.iter().map(|file| file.summary.entries).sum();
    let older = plan.input_entries() - newer;
    let JobStatistics { read_entries, written_entries, zeroed_entries, dropped, .. } = output.statistics;
    assert_eq!((read_entries, written_entries, zeroed_entries), (newer + older, older, newer));
    assert_eq!((dropped.total(), dropped.get(DropReason::Shadowed)), (newer, newer));
    assert!(matches!(job.run_quantum(1).unwrap_err().kind(), ErrorKind::InvalidArgument { .. }));
}

#[test]
fn parts_of_a_plan_make_together_what_one_job_makes() {
    let mut store = Store::new(1);
    let version = two_levels(&mut store);
    let plan = plan(&version);
    let whole = compaction(&mut store, &version, &plan, None).unwrap().run().unwrap();
    let ranges = plan.split(4);
    assert!(ranges.len() > 1);
    let run = |range| compaction(&mut store, &version, &plan, Some(range)).unwrap().run().unwrap();
    let mut parts: Vec<JobOutput> = ranges.into_iter().map(run).collect();
    let directory = store.environment.directory.clone();
    let joined = JobOutput::join(&plan, parts.clone(), &directory).unwrap();
    assert_eq!(contents(&store, &joined.files), contents(&store, &whole.files));
    version.apply(&plan.edit(&joined.files)).unwrap();
    parts.pop();
    assert!(JobOutput::join(&plan, parts, &directory).unwrap_err().is_corrupt(), "a part is missing");
}

#[test]
fn files_end_where_grandparents_begin() {
    let mut store = Store::new(1);
    let version = two_levels(&mut store);
    let base = version.level(6);
    assert!(base.files().len() > 3);
    let next =
        flush(&mut store, &version, (0..300).map(|number| put(number, 5000 + number)).collect(), vec![]);
    let starts: Vec<_> = base.files().iter().map(|file| &file.range().start).collect();
    let flushed = next.sublevels().last().unwrap().files();
    let aligned = flushed.iter().filter(|file| starts.contains(&&file.range().start)).count();
    assert!(aligned * 2 >= flushed.len(), "{aligned} of {}", flushed.len());
    assert!(flushed.iter().all(|file| base.overlapping_bytes(file.range()) <= 2 * 2000 + 2000));
}

#[test]
fn a_wide_range_tombstone_is_cut_where_grandparents_begin() {
    let mut store = Store::new(1);
    let version = two_levels(&mut store);
    let base = version.level(6).clone();
    let deleted = vec![tombstone(10, 290, 9000), tombstone(20, 30, 9001)];
    let next = flush(&mut store, &version, vec![put(5, 8000), put(295, 8001)], deleted);
    let flushed: Vec<_> = next.files_of(0).filter(|file| file.order == 9001).cloned().collect();
    assert!(flushed.len() >= base.files().len() / 2, "{} files over {}", flushed.len(), base.files().len());
    for file in &flushed {
        assert!(base.overlapping_bytes(file.range()) <= 3 * 2000, "{:?}", file.range());
    }
    let newest = [tombstone(10, 20, 9000), tombstone(20, 30, 9001), tombstone(30, 290, 9000)];
    let pieces: Vec<RangeTombstone> = flushed
        .iter()
        .flat_map(|file| store.open(file).range_tombstones().to_tombstones().collect::<Vec<_>>())
        .collect();
    assert_eq!(
        FragmentedTombstones::new(&pieces),
        FragmentedTombstones::new(&newest),
        "nothing is lost at the cuts"
    );
    assert_eq!(contents(&store, &flushed).len(), 2);
}

#[test]
fn small_keyspaces_share_files_and_large_ones_have_their_own() {
    let mut store = Store::new(1);
    let shape = TreeShape { file_bytes_min: 1 << 20, file_bytes_max: 1 << 20, ..shape() };
    let row = |keyspace: u32, row: u64| {
        let key = KeyspaceId(keyspace).full_key(&row.to_be_bytes());
        (key, Trailer::new(1 + row, Kind::Put), row.to_le_bytes().to_vec())
    };
    let entries: Vec<Entry> =
        (1..=4000).flat_map(|keyspace| (0..100).map(move |number| row(keyspace, number))).collect();
    let job = store.flush(entries, vec![], 100, Snapshots::default(), (&Version::new(), &shape));
    let files = job.run().unwrap().files;
    assert!(files.len() <= 20, "{} files", files.len());
    let entries = (1..=3).flat_map(|keyspace| (0..40_000).map(move |number| row(keyspace, number))).collect();
    let job = store.flush(entries, vec![], 40_000, Snapshots::default(), (&Version::new(), &shape));
    let shared = job.run().unwrap().files.into_iter().filter(|file| file.summary.keyspaces.len() > 1).count();
    assert_eq!(shared, 0, "each of the three fills more than a quarter of a file");
}

#[test]
fn a_range_tombstone_of_the_next_keyspace_is_in_its_file() {
    let mut store = Store::new(1);
    let mut entries: Vec<Entry> = (0..80).map(|number| put(number, 1 + number)).collect();
    let next = KeyspaceId(KEYSPACE.0 + 1);
    entries.push((next.full_key(b"m"), Trailer::new(90, Kind::Put), vec![]));
    let deleted = RangeTombstone { start: next.full_key(b"a"), end: next.full_key(b"z"), seqno: 80 };
    let shape = TreeShape { file_bytes_min: 6000, file_bytes_max: 6000, ..shape() };
    let job = store.flush(entries, vec![deleted], 90, Snapshots::default(), (&Version::new(), &shape));
    let files = job.run().unwrap().files;
    assert_eq!(files.iter().map(|file| file.summary.keyspaces.len()).collect::<Vec<_>>(), [1, 1]);
    assert_eq!(files[1].range().start, next.full_key(b"a"));
}

#[test]
fn broken_pairs_are_reported() {
    let mut store = Store::new(1);
    let entries = vec![
        (key(1), Trailer::new(9, Kind::DeleteOnce), vec![]),
        (key(1), Trailer::new(8, Kind::Delete), vec![]),
    ];
    let output =
        store.flush(entries, vec![], 9, Snapshots::default(), (&Version::new(), &shape())).run().unwrap();
    assert_eq!(output.statistics.broken_pairs, 1);
    assert!(
        output.broken_pairs[0].to_string().contains("should cover one put"),
        "{}",
        output.broken_pairs[0]
    );
}

// ---- what must not go unnoticed ----

/// A flush of what `input` shows, of which `entries` is said to be the number.
fn flush_of(store: &mut Store, input: Vec<Entry>, entries: u64) -> MergeJob {
    let flush = Flush {
        readers: Readers {
            iterators: vec![Box::new(VecIterator::new(input.into()))],
            tombstones: vec![],
            bounds: None,
            entries: Some(entries),
        },
        order: 1000,
        snapshots: Snapshots::default(),
        dropped_keyspaces: vec![],
    };
    MergeJob::flush(store.environment.clone(), store.job_random(), flush, &Version::new(), &shape())
}

#[test]
fn entries_that_are_missing_fail_the_job() {
    let mut store = Store::new(1);
    let error = flush_of(&mut store, vec![put(1, 5), put(2, 6)], 3).run().unwrap_err();
    assert!(error.is_corrupt() && error.to_string().contains("should hold 3"), "{error}");
    assert_eq!(store.files(), [""; 0], "nothing is left behind");
}

#[test]
fn inputs_out_of_order_fail_the_job() {
    let mut store = Store::new(1);
    for input in [vec![put(2, 5), put(1, 6)], vec![put(1, 5), put(1, 6)], vec![put(1, 5), put(1, 5)]] {
        let error = flush_of(&mut store, input, 2).run().unwrap_err();
        assert!(error.is_corrupt(), "{error}");
        assert_eq!(store.files(), [""; 0]);
    }
}

/// A store whose files can be made to fail, and its tree.
fn fallible() -> (Store, MemoryFs, FaultFs, Version) {
    let memory = MemoryFs::new();
    let faults = FaultFs::over_memory(&memory);
    let mut store = Store::over(faults.shared(), 1);
    let version = two_levels(&mut store);
    (store, memory, faults, version)
}

#[test]
fn any_call_that_fails_fails_the_job_and_leaves_nothing_behind() {
    let (mut store, _, faults, version) = fallible();
    let plan = plan(&version);
    let before = store.files();
    let run = |store: &mut Store| compaction(store, &version, &plan, None).and_then(MergeJob::run);
    let actions = [
        Action::Fail(Failure::Io),
        Action::FailAfter(Failure::DiskFull),
        Action::ShortWrite { bytes: 7, failure: Failure::DiskFull },
    ];
    let operations = [
        Operation::Open,
        Operation::Create,
        Operation::Read,
        Operation::Write,
        Operation::Sync,
        Operation::SyncDirectory,
        Operation::Len,
    ];
    for (action, operation) in
        actions.iter().flat_map(|action| operations.map(|operation| (action, operation)))
    {
        for call in 0.. {
            let rule = Rule::new(action.clone()).on(&[operation]).from_call(call).times(1);
            let id = faults.add(rule);
            let result = run(&mut store);
            let hit = faults.matched(id) > call;
            faults.remove_all();
            match result {
                Err(error) => {
                    assert!(hit, "{error}, without a fault");
                    assert_eq!(store.files(), before, "{action:?} at {operation:?} {call}");
                }
                Ok(output) => {
                    assert!(!hit, "{action:?} at {operation:?} {call} went unnoticed");
                    // The outputs are ours.
                    for file in &output.files {
                        faults
                            .shared()
                            .remove_file(&store.environment.directory.join(file.file_name()))
                            .unwrap();
                    }
                    break;
                }
            }
        }
    }
}

#[test]
fn damage_of_an_input_gives_an_error_or_the_right_output() {
    let (mut store, memory, _, version) = fallible();
    let plan = plan(&version);
    let run = |store: &mut Store| compaction(store, &version, &plan, None).and_then(MergeJob::run);
    let expected = run(&mut store).unwrap();
    let expected = contents(&store, &expected.files);
    for (_, file) in plan.files() {
        let path = store.environment.directory.join(file.file_name());
        let good = memory.contents(&path).unwrap();
        for at in (0..good.len()).step_by(64) {
            memory.patch(&path, at as u64, &[good[at] ^ 0x41]).unwrap();
            match run(&mut store) {
                Ok(output) => assert_eq!(contents(&store, &output.files), expected, "{path:?} at {at}"),
                Err(error) => assert!(error.to_string().contains(&file.file_name()), "{error}"),
            }
            memory.patch(&path, at as u64, &good[at..=at]).unwrap();
        }
    }
}

#[test]
fn outputs_are_durable_when_the_job_is_done() {
    let (mut store, memory, _, version) = fallible();
    let plan = plan(&version);
    let output = compaction(&mut store, &version, &plan, None).unwrap().run().unwrap();
    let paths = output.files.iter().map(|file| store.environment.directory.join(file.file_name()));
    let written: BTreeMap<_, _> = paths.map(|path| (path.clone(), memory.contents(&path).unwrap())).collect();
    for seed in 0..50 {
        let crashed = memory.fork();
        crashed.power_loss(seed);
        for (path, bytes) in &written {
            assert!(crashed.contents(path).unwrap() == *bytes, "{path:?} after crash {seed}");
        }
    }
}

#[test]
fn an_output_that_cannot_be_read_back_fails_the_job() {
    // The bytes change on their way to the device.
    let (mut store, memory, _, version) = fallible();
    let plan = plan(&version);
    let before = store.files();
    let mut job = compaction(&mut store, &version, &plan, None).unwrap();
    while !matches!(job.state, State::Checking(_)) {
        assert!(matches!(job.run_quantum(1000).unwrap(), Progress::Again));
    }
    let new = store.files().into_iter().find(|name| !before.contains(name)).unwrap();
    memory.patch(&store.environment.directory.join(new), 20, b"?").unwrap();
    let error = loop {
        match job.run_quantum(1000) {
            Ok(Progress::Again) => {}
            Ok(Progress::Done(_)) => panic!("a damaged output was handed over"),
            Err(error) => break error,
        }
    };
    assert!(error.is_corrupt(), "{error}");
    job.abandon().unwrap();
    assert_eq!(store.files(), before);
}

#[test]
fn a_job_that_is_given_up_removes_its_files() {
    let mut store = Store::new(1);
    let version = two_levels(&mut store);
    let plan = plan(&version);
    let before = store.files();
    for quanta in [0, 1, 5, 9] {
        for explicit in [true, false] {
            let mut job = compaction(&mut store, &version, &plan, None).unwrap();
            for _ in 0..quanta {
                job.run_quantum(700).unwrap();
            }
            if explicit {
                job.abandon().unwrap()
            } else {
                drop(job)
            }
            assert_eq!(store.files(), before, "after {quanta} quanta");
        }
    }
}
