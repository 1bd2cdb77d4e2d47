//! The whole crate against a model: random writes, flushed and compacted by whatever the picker says, in jobs that run
//! beside each other a quantum at a time; at every step every reader gets the model's answer, by a lookup that stops
//! at the first version it finds, as the engine's does.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use alluvium_base::checksum::key_hash;
use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{KeyspaceId, Kind, Seqno, Trailer};
use alluvium_base::random::Random;
use alluvium_base::range_tombstone::RangeTombstone;
use alluvium_base::{KeyRange, Result};
use alluvium_sstable::ReadPurpose;

use crate::drop_rules::{DropReason, Snapshots};
use crate::iterate::{LevelIterator, MergingIterator};
use crate::job::{JobOutput, MergeJob, Progress};
use crate::picker::{
    CompactionPlan, ManualCompaction, ManualStep, PickInputs, PlanKind, Scope, TombstoneSource, TreeShape,
    covered_files, pick, scores,
};
use crate::testing::{Entry, Store};
use crate::version::{BOTTOM_LEVEL, ManifestState, Version, VersionEdit};

const PLAIN: KeyspaceId = KeyspaceId(1);
const ONCE: KeyspaceId = KeyspaceId(2);
const DROPPED: KeyspaceId = KeyspaceId(3);
const KEYS: u64 = 40;
const LATEST: Seqno = 1 << 40;

fn shape() -> TreeShape {
    TreeShape {
        base_bytes: 6000,
        multiplier: 3,
        level_0_sublevels: 2,
        file_bytes_min: 900,
        file_bytes_max: 2000,
        overlap_max: 3,
        job_bytes_max: 20_000,
        tombstone_share: 0.5,
        garbage_share: 0.2,
    }
}

/// `None` if deleted.
type Value = Option<Vec<u8>>;

/// What was written: by key, every version, oldest first. A range delete is a delete of every key in its range.
#[derive(Default)]
struct Model {
    versions: BTreeMap<Vec<u8>, Vec<(Seqno, Value)>>,
}

impl Model {
    fn get(&self, key: &[u8], snapshot: Seqno) -> Option<&[u8]> {
        let versions = self.versions.get(key)?;
        let newest = versions.iter().rev().find(|(seqno, _)| *seqno <= snapshot)?;
        newest.1.as_deref()
    }
}

struct Running {
    plan: CompactionPlan,
    /// One job per part of the plan, with its output once it is done.
    parts: Vec<(Option<MergeJob>, Option<JobOutput>)>,
}

struct Tree {
    store: Store,
    shape: TreeShape,
    state: ManifestState,
    seqno: Seqno,
    memtable: Vec<Entry>,
    memtable_tombstones: Vec<RangeTombstone>,
    snapshots: BTreeSet<Seqno>,
    running: Vec<Running>,
    keyspace_dropped: bool,
    model: Model,
    random: Random,
    annihilated: u64,
    discarded: u64,
    moved: u64,
    intra: u64,
}

impl Tree {
    fn new(seed: u64) -> Tree {
        Tree {
            store: Store::new(seed),
            shape: shape(),
            state: ManifestState::default(),
            seqno: 0,
            memtable: Vec::new(),
            memtable_tombstones: Vec::new(),
            snapshots: BTreeSet::new(),
            running: Vec::new(),
            keyspace_dropped: false,
            model: Model::default(),
            random: Random::new(seed),
            annihilated: 0,
            discarded: 0,
            moved: 0,
            intra: 0,
        }
    }

    fn version(&self) -> &Version {
        &self.state.version
    }

    fn snapshots(&self) -> Snapshots {
        Snapshots::new(self.snapshots.iter().copied().collect())
    }

    fn install(&mut self, edit: &VersionEdit) {
        self.state.apply(edit).unwrap();
        let mut encoded = Vec::new();
        self.state.to_edit().encode(&mut encoded);
        let decoded = VersionEdit::decode(&encoded, std::path::Path::new("MANIFEST"), 0).unwrap();
        let mut again = ManifestState::default();
        again.apply(&decoded).unwrap();
        let files =
            |version: &Version| version.files().map(|(level, file)| (level, file.id)).collect::<Vec<_>>();
        assert_eq!(files(&again.version), files(self.version()), "a rewritten manifest gives the same tree");
    }

    // ---- writing ----

    fn record(&mut self, key: &[u8], kind: Kind, value: Vec<u8>) {
        self.seqno += 1;
        let stored = (kind == Kind::Put).then(|| value.clone());
        self.model.versions.entry(key.to_vec()).or_default().push((self.seqno, stored));
        self.memtable.push((key.to_vec(), Trailer::new(self.seqno, kind), value));
    }

    fn write(&mut self) {
        let user_key = format!("key-{:04}", self.random.below(KEYS));
        let value_len = 20 + self.random.index(60);
        let value = || vec![b'v'; value_len];
        match self.random.below(20) {
            0..8 => self.record(&PLAIN.full_key(user_key.as_bytes()), Kind::Put, value()),
            8..12 => self.record(&PLAIN.full_key(user_key.as_bytes()), Kind::Delete, vec![]),
            12 => self.delete_range(),
            13 if !self.keyspace_dropped => {
                self.record(&DROPPED.full_key(user_key.as_bytes()), Kind::Put, value());
            }
            _ => {
                let key = ONCE.full_key(user_key.as_bytes());
                let kind = if self.model.get(&key, LATEST).is_some() { Kind::DeleteOnce } else { Kind::Put };
                let value = if kind == Kind::Put { value() } else { vec![] };
                self.record(&key, kind, value);
            }
        }
    }

    fn delete_range(&mut self) {
        let from = self.random.below(KEYS);
        let longest = if self.random.one_in(4) { KEYS } else { 6 };
        let to = from + 1 + self.random.below(longest);
        let bound = |number: u64| PLAIN.full_key(format!("key-{number:04}").as_bytes());
        let (start, end) = (bound(from), bound(to));
        self.seqno += 1;
        for (_, versions) in self.model.versions.range_mut(start.clone()..end.clone()) {
            versions.push((self.seqno, None));
        }
        self.memtable_tombstones.push(RangeTombstone { start, end, seqno: self.seqno });
    }

    fn flush(&mut self) {
        let entries = std::mem::take(&mut self.memtable);
        let tombstones = std::mem::take(&mut self.memtable_tombstones);
        if entries.is_empty() && tombstones.is_empty() {
            return;
        }
        let (snapshots, version) = (self.snapshots(), self.version().clone());
        let output = self
            .store
            .flush(entries, tombstones, self.seqno, snapshots, (&version, &self.shape))
            .run()
            .unwrap();
        self.note(&output);
        let mut edit = VersionEdit::default();
        output.files.iter().for_each(|file| edit.add(0, file.clone()));
        self.install(&edit);
    }

    fn drop_keyspace(&mut self) {
        self.keyspace_dropped = true;
        self.model.versions.retain(|key, _| KeyspaceId::of(key) != Some(DROPPED));
        self.memtable.retain(|entry| KeyspaceId::of(&entry.0) != Some(DROPPED));
        self.install(&VersionEdit { dropped_keyspaces: vec![DROPPED], ..VersionEdit::default() });
    }

    // ---- compacting ----

    fn with_inputs<T>(&self, scope: Scope, ask: impl FnOnce(&PickInputs<'_>) -> T) -> T {
        let in_flight: Vec<_> = self.running.iter().map(|running| running.plan.claim()).collect();
        let dropped: Vec<_> = self.state.dropped_keyspaces.iter().copied().collect();
        let sources: Vec<TombstoneSource> = (self.version().files())
            .filter(|(_, file)| file.summary.range_tombstones > 0)
            .map(|(level, file)| TombstoneSource {
                level,
                order: file.order,
                tombstones: self.store.open(file).range_tombstones().clone(),
            })
            .collect();
        let covered = covered_files(self.version(), &sources, &self.snapshots());
        ask(&PickInputs {
            shape: &self.shape,
            in_flight: &in_flight,
            oldest_snapshot: self.snapshots.first().copied(),
            dropped_keyspaces: &dropped,
            covered_files: &covered,
            scope,
        })
    }

    /// Starts the best job beside those running; false if there is none.
    fn start(&mut self, scope: Scope) -> bool {
        let Some(plan) = self.with_inputs(scope, |inputs| pick(self.version(), inputs)) else { return false };
        self.begin(plan);
        true
    }

    fn begin(&mut self, plan: CompactionPlan) {
        match plan.kind {
            PlanKind::Move => self.moved += 1,
            PlanKind::Discard => self.discarded += 1,
            PlanKind::Merge => {
                self.intra += u64::from(plan.output_level == 0);
                let bounds = match self.random.below(3) {
                    0 => plan.split(3).into_iter().map(Some).collect(),
                    _ => vec![None],
                };
                let version = self.version().clone();
                let dropped: Vec<_> = self.state.dropped_keyspaces.iter().copied().collect();
                let parts = bounds.into_iter().map(|bounds| {
                    let job = MergeJob::compaction(
                        self.store.environment.clone(),
                        self.store.job_random(),
                        &plan,
                        bounds,
                        &version,
                        (Snapshots::new(self.snapshots.iter().copied().collect()), dropped.clone()),
                        &self.shape,
                    );
                    (Some(job.unwrap()), None)
                });
                let parts = parts.collect();
                self.running.push(Running { plan, parts });
                return;
            }
        }
        self.install(&plan.edit(&[]));
    }

    /// Gives some running job up.
    fn abandon_job(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.random.index(self.running.len());
        for (job, output) in self.running.swap_remove(at).parts {
            if let Some(job) = job {
                job.abandon().unwrap();
            }
            // The files of a part that is done are ours.
            for file in output.iter().flat_map(|output| &output.files) {
                let path = self.store.environment.directory.join(file.file_name());
                self.store.environment.fs.remove_file(&path).unwrap();
            }
        }
    }

    /// Runs one quantum of some running job.
    fn step_job(&mut self) {
        if self.running.is_empty() {
            return;
        }
        let at = self.random.index(self.running.len());
        let quantum = 1 + self.random.below(3000);
        let running = &mut self.running[at];
        if let Some((slot, output)) = running.parts.iter_mut().find(|(job, _)| job.is_some()) {
            if let Progress::Done(done) = slot.as_mut().unwrap().run_quantum(quantum).unwrap() {
                *slot = None;
                *output = Some(done);
            }
            return;
        }
        let Running { plan, parts } = self.running.swap_remove(at);
        let outputs = parts.into_iter().map(|(_, output)| output.unwrap()).collect();
        let output = JobOutput::join(&plan, outputs, &self.store.environment.directory).unwrap();
        self.note(&output);
        self.install(&plan.edit(&output.files));
    }

    fn note(&mut self, output: &JobOutput) {
        assert_eq!(output.statistics.broken_pairs, 0, "{:?}", output.broken_pairs);
        self.annihilated += output.statistics.dropped.get(DropReason::Annihilated);
    }

    fn finish_jobs(&mut self) {
        while !self.running.is_empty() {
            self.step_job();
        }
    }

    /// Compacts until the picker has nothing to say.
    fn rest(&mut self) {
        for _ in 0..2000 {
            self.finish_jobs();
            if !self.start(Scope::All) {
                return;
            }
        }
        panic!("the tree does not come to rest: {:?}", self.levels());
    }

    fn levels(&self) -> Vec<(u8, Vec<u64>)> {
        let runs = self.version().runs_newest_first();
        runs.map(|(level, run)| (level, run.files().iter().map(|file| file.id).collect())).collect()
    }

    // ---- reading ----

    /// Reads like the engine: newest run first, stopping at the first version found.
    fn get(&self, key: &[u8], snapshot: Seqno) -> Option<Vec<u8>> {
        let mut hidden_below = 0;
        let memtable_tombstones = self.memtable_tombstones.iter().filter(|tombstone| {
            tombstone.seqno <= snapshot && tombstone.start.as_slice() <= key && key < tombstone.end.as_slice()
        });
        hidden_below = memtable_tombstones.map(|tombstone| tombstone.seqno).max().unwrap_or(hidden_below);
        let in_memtable = self.memtable.iter().filter(|entry| entry.0 == key && entry.1.seqno() <= snapshot);
        let mut found = in_memtable.max_by_key(|entry| entry.1).map(|entry| (entry.1, entry.2.clone()));
        for (_, run) in self.version().runs_newest_first() {
            if found.is_some() {
                break;
            }
            let Some(file) = run.file_of(key) else { continue };
            let table = self.store.open(file);
            let covering = table.range_tombstones().newest_covering(key, snapshot).unwrap_or(0);
            hidden_below = hidden_below.max(covering);
            let got = table.get(key, key_hash(key), snapshot).unwrap();
            found = got.map(|(trailer, value)| (trailer, value.to_vec()));
        }
        let (trailer, value) = found?;
        (trailer.kind() == Some(Kind::Put) && trailer.seqno() >= hidden_below).then_some(value)
    }

    fn check_answers(&mut self, keys: u64) {
        let snapshots: Vec<Seqno> = self.snapshots.iter().copied().chain([LATEST]).collect();
        for _ in 0..keys {
            let user_key = format!("key-{:04}", self.random.below(KEYS));
            for keyspace in [PLAIN, ONCE, DROPPED] {
                if keyspace == DROPPED && self.keyspace_dropped {
                    continue;
                }
                let key = keyspace.full_key(user_key.as_bytes());
                for &snapshot in &snapshots {
                    let (expected, got) = (self.model.get(&key, snapshot), self.get(&key, snapshot));
                    assert_eq!(
                        got.as_deref(),
                        expected,
                        "key {:?} at {snapshot}: history {:?}, levels {:?}",
                        key.escape_ascii().to_string(),
                        self.model.versions.get(&key).map(|versions| versions
                            .iter()
                            .map(|v| (v.0, v.1.is_some()))
                            .collect::<Vec<_>>()),
                        self.levels(),
                    );
                }
            }
        }
    }

    /// Checks, for every key, that what is newer lies nearer to the top.
    fn check_order(&self) {
        let mut newest_below: BTreeMap<Vec<u8>, Seqno> = BTreeMap::new();
        let runs: Vec<_> = self.version().runs_newest_first().collect();
        for (level, run) in runs.into_iter().rev() {
            let opener = self.store.environment.opener.clone();
            let mut iter = LevelIterator::over_tables(run.clone(), None, opener, ReadPurpose::Verify);
            let mut newest_here: BTreeMap<Vec<u8>, Seqno> = BTreeMap::new();
            iter.seek_to_first().unwrap();
            while iter.valid() {
                let seqno = iter.trailer().seqno();
                if let Some(below) = newest_below.get(iter.key()) {
                    assert!(seqno > *below, "level {level} has {seqno} above {below}");
                }
                let newest = newest_here.entry(iter.key().to_vec()).or_default();
                *newest = seqno.max(*newest);
                iter.next().unwrap();
            }
            newest_below.append(&mut newest_here);
        }
        for (_, file) in self.version().files() {
            self.store.open(file).verify().unwrap();
        }
    }

    /// Checks that a scan over everything shows the same as the model.
    fn check_scan(&self) -> Result<()> {
        let opener = &self.store.environment.opener;
        let runs = self.version().runs_newest_first();
        let over = |run: &Arc<_>| {
            LevelIterator::over_tables(Arc::clone(run), None, opener.clone(), ReadPurpose::Scan)
        };
        let mut merged = MergingIterator::new(runs.map(|(_, run)| over(run)).collect());
        let mut shown: BTreeSet<Vec<u8>> = BTreeSet::new();
        merged.seek_to_first()?;
        while merged.valid() {
            shown.insert(merged.key().to_vec());
            merged.next()?;
        }
        let live = self.model.versions.keys().filter(|key| self.model.get(key, LATEST).is_some());
        assert!(live.into_iter().all(|key| shown.contains(key)), "every live key is somewhere");
        Ok(())
    }
}

fn history(seed: u64, steps: u64) -> Tree {
    let mut tree = Tree::new(seed);
    for step in 0..steps {
        match tree.random.below(100) {
            0..60 => tree.write(),
            60..65 => tree.flush(),
            65..73 => {
                let scope = [Scope::All, Scope::Level0, Scope::Deep][tree.random.index(3)];
                tree.start(scope);
            }
            73..89 => tree.step_job(),
            89 => tree.abandon_job(),
            90..92 => {
                tree.snapshots.insert(tree.seqno);
            }
            92..95 => {
                if let Some(at) = tree.snapshots.len().checked_sub(1) {
                    let nth = tree.random.index(at + 1);
                    let released = *tree.snapshots.iter().nth(nth).unwrap();
                    tree.snapshots.remove(&released);
                }
            }
            95 if step > steps / 2 && !tree.keyspace_dropped && tree.random.one_in(4) => tree.drop_keyspace(),
            _ => tree.check_answers(2),
        }
        if step % 200 == 199 {
            tree.check_answers(KEYS);
            tree.check_order();
        }
    }
    tree
}

/// Brings everything to rest and checks what must be true then.
fn settle(tree: &mut Tree) {
    tree.flush();
    tree.rest();
    tree.check_answers(KEYS);
    tree.check_order();
    tree.with_inputs(Scope::All, |inputs| {
        let scores = scores(tree.version(), inputs);
        assert!(
            scores.scores.iter().all(|score| *score < 1.0),
            "levels are within their targets: {scores:?}"
        );
    });
    tree.check_scan().unwrap();
    // Without readers nothing but the live rows is left once everything has been compacted.
    tree.snapshots.clear();
    let range = KeyRange::new(PLAIN.full_key(b""), KeyspaceId(9).full_key(b""));
    let mut manual = ManualCompaction::new(range, tree.version());
    loop {
        let step = tree.with_inputs(Scope::All, |inputs| manual.next(tree.version(), inputs));
        match step {
            ManualStep::Run(plan) => tree.begin(plan),
            ManualStep::Blocked => panic!("nothing else is running"),
            ManualStep::Done => break,
        }
        tree.finish_jobs();
    }
    tree.check_answers(KEYS);
    tree.check_order();
    let entries: u64 = tree.version().files().map(|(_, file)| file.summary.entries).sum();
    let live = tree.model.versions.keys().filter(|key| tree.model.get(key, LATEST).is_some()).count();
    assert_eq!(entries, live as u64, "levels {:?}", tree.levels());
    let no_tombstones = tree.version().files().all(|(_, file)| !file.has_tombstones());
    assert!(no_tombstones, "no tombstone outlives what it hid");
    assert_eq!(tree.version().level_bytes(0), 0);
    let mut named: Vec<String> = tree.version().files().map(|(_, file)| file.file_name()).collect();
    named.sort();
    let dead: Vec<String> = tree.store.files().into_iter().filter(|name| !named.contains(name)).collect();
    assert!(
        named.iter().all(|name| tree.store.files().contains(name)),
        "no named file is gone; dead: {dead:?}"
    );
}

/// Runs the histories of `seeds`, in the short form a few, in the long form
/// (`ALLUVIUM_COMPACTION_SEEDS=1000 cargo test -p alluvium-compaction tree_tests`) as many as asked for.
#[test]
fn every_reader_gets_the_models_answer_at_every_step() {
    let seeds =
        std::env::var("ALLUVIUM_COMPACTION_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(12);
    let (mut moved, mut discarded, mut intra, mut annihilated, mut deepest) = (0, 0, 0, 0, BOTTOM_LEVEL);
    for seed in 0..seeds {
        let result = std::panic::catch_unwind(|| {
            let mut tree = history(seed, 1500);
            settle(&mut tree);
            tree
        });
        let Ok(tree) = result else { panic!("history {seed} failed, see above") };
        moved += tree.moved;
        discarded += tree.discarded;
        intra += tree.intra;
        annihilated += tree.annihilated;
        deepest = deepest.min(tree.version().files().map(|(level, _)| level).min().unwrap_or(BOTTOM_LEVEL));
    }
    let all =
        format!("{moved} moves, {discarded} discards, {intra} within level 0, {annihilated} annihilated");
    assert!(
        moved > 0 && discarded > 0 && intra > 0 && annihilated > 0,
        "the histories miss something: {all}"
    );
}
