//! Opening a database: from a directory of files to a running tree.
//!
//! 1. Take the directory's lock (not when read-only).
//! 2. Read `CURRENT` and the manifest; every table that it names must be there, with its size.
//! 3. Replay the log from the manifest's replay start into memtables; one that is full is flushed on the way, so that
//!    replay needs no more memory than running does.
//! 4. Make a new incarnation durable, with what was flushed and where the previous incarnation ended.
//! 5. Start the log at a fresh address, then the workers. What is left of the replayed entries is a frozen memtable
//!    like any other, and is flushed in the background.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use alluvium_base::key::KeyspaceId;
use alluvium_base::random::Random;
use alluvium_base::sync::{Mutex, RwLock, WaitPoint, WaitReason, WaitStatistics};
use alluvium_base::{Error, ErrorKind, Result};
use alluvium_compaction::{AcceptedEnd, FileMeta, ManifestState, VersionEdit};
use alluvium_sstable::BlockCache;
use alluvium_sstable::cache::CacheOptions;
use alluvium_wal::{Log, LogOptions, RecoveryMode, RecoveryOptions};
use arc_swap::ArcSwap;

use crate::commit::{AdmissionControl, Publisher};
use crate::environment::Environment;
use crate::executor::Executor;
use crate::layout;
use crate::lease::LeaseView;
use crate::manifest::{self, Current, Manifest};
use crate::memtable::Memtable;
use crate::options::Options;
use crate::read_only::Reader;
use crate::read_state::{Immutable, ReadState};
use crate::replay::{Replay, ReplayFrom, replay};
use crate::row::Latches;
use crate::snapshot::SnapshotRegistry;
use crate::statistics::Counters;
use crate::table_store::TableStore;
use crate::tree::{Tree, TreeState, Versions};

/// How long the log's ring lets a reader of blocks expect an entry to be, until real ones are measured.
const AVERAGE_BLOCK_BYTES: usize = 4096;

/// Longest that an open which has failed waits for workers that it has started.
const START_FAILED_TIMEOUT: Duration = Duration::from_secs(10);

/// Opens or creates the database in `directory` for writing, and starts its workers.
pub(crate) fn open(environment: Environment, directory: &Path, options: Options) -> Result<Arc<Tree>> {
    options.check()?;
    let fs = Arc::clone(&environment.fs);
    if options.create_if_missing {
        fs.create_directory_all(directory)?;
    } else if !fs.exists(&layout::current(directory))? {
        return Err(Error::not_found(format!("database in {}", directory.display())));
    }
    let lock = fs.lock(&layout::lock(directory)).map_err(|error| match error.kind() {
        ErrorKind::InUse { holder, .. } => {
            ErrorKind::InUse { path: directory.to_owned(), holder: holder.clone() }.into()
        }
        _ => error,
    })?;
    let (mut manifest, loaded) = match Current::read(fs.as_ref(), directory)? {
        Some(current) => {
            let (loaded, snapshot_bytes) = load(fs.as_ref(), directory, &current)?;
            (Manifest::open(&fs, directory, current, snapshot_bytes)?, loaded)
        }
        None => create(&environment, directory)?,
    };
    // A crash may have left tables that no edit names; their numbers are not used again while they wait for removal.
    let left_behind =
        fs.list_directory(directory)?.iter().filter_map(|entry| layout::parse_table(&entry.name)).max();
    // A reader may have seen an edit that a failing disk has forgotten: what comes now must not look like it.
    let position = manifest.position();
    if LeaseView::read(fs.as_ref(), directory, position)?.is_ahead_of(position) {
        manifest.begin_anew();
    }
    let tree = build(environment, directory, options, loaded, Some(manifest), None)?;
    tree.next_file_id.fetch_max(left_behind.map_or(0, |id| id + 1), Ordering::Relaxed);
    *tree.lock.lock() = Some(lock);
    match start(&tree) {
        Ok(()) => Ok(tree),
        Err(error) => {
            // Workers that run already hold the tree; without this the directory would stay locked by nobody.
            tree.closed.store(true, Ordering::Release);
            let _ = tree.executor.stop(START_FAILED_TIMEOUT);
            drop(tree.lock.lock().take());
            Err(error)
        }
    }
}

/// Replays the log, begins an incarnation and starts the workers.
fn start(tree: &Arc<Tree>) -> Result<()> {
    let from = ReplayFrom::new(tree, &tree.versions.lock().durable, false);
    let replay = replay(tree, from)?;
    start_incarnation(tree, replay)?;
    crate::background::start_workers(tree)
}

/// Creates an empty database. A directory that has tables or logs but no `CURRENT` is damaged, not new.
fn create(environment: &Environment, directory: &Path) -> Result<(Manifest, ManifestState)> {
    let fs = &environment.fs;
    let leftover = fs.list_directory(directory)?.into_iter().find(|entry| {
        layout::parse_table(&entry.name).is_some()
            || Path::new(&entry.name).extension().is_some_and(|e| e == "log")
    });
    if let Some(leftover) = leftover {
        return Err(Error::corrupt(
            layout::current(directory),
            0,
            format!("it is missing, but {} is there; restore it from a backup", leftover.name),
        ));
    }
    let mut random = Random::new(environment.entropy);
    let loaded = ManifestState {
        database_id: u128::from(random.next_u64()) << 64 | u128::from(random.next_u64()),
        next_file_id: 1,
        next_keyspace_id: 1,
        ..ManifestState::default()
    };
    let manifest = Manifest::create(fs, directory, loaded.database_id, 1, &loaded.to_edit())?;
    // The name of the directory itself must last, too.
    if let Some(parent) = directory.parent() {
        fs.sync_directory(parent)?;
    }
    Ok((manifest, loaded))
}

/// Reads the manifest and checks that the tables it names are there. Returns the length of its first record, too.
pub(crate) fn load(
    fs: &dyn alluvium_base::fs::Fs,
    directory: &Path,
    current: &Current,
) -> Result<(ManifestState, u64)> {
    let records = manifest::read(fs, directory, current)?;
    let path = layout::manifest(directory, current.number);
    let loaded = manifest::state_of(&records, current.database_id, &path)?;
    for (_, file) in loaded.version.files() {
        check_table(fs, directory, file)?;
    }
    let snapshot_bytes = records.first().map_or(0, |record| record.bytes);
    Ok((loaded, snapshot_bytes))
}

/// Checks that a table is there with its size.
pub(crate) fn check_table(fs: &dyn alluvium_base::fs::Fs, directory: &Path, file: &FileMeta) -> Result<()> {
    let path = layout::table(directory, file.id);
    let size = fs.file_size(&path).map_err(|error| {
        if error.is_missing_file() {
            Error::corrupt(&path, 0, "the manifest names this table, but the file is missing")
        } else {
            error
        }
    })?;
    if size != file.bytes() {
        let detail = format!("the table has {size} bytes, the manifest says {}", file.bytes());
        return Err(Error::corrupt(&path, size.min(file.bytes()), detail));
    }
    Ok(())
}

/// A tree that is open, but not started: `manifest` for one that writes, `reader` for one that reads.
pub(crate) fn build(
    environment: Environment,
    directory: &Path,
    options: Options,
    loaded: ManifestState,
    manifest: Option<Manifest>,
    reader: Option<Mutex<Reader>>,
) -> Result<Arc<Tree>> {
    let waits = Arc::new(WaitStatistics::default());
    let clock = Arc::clone(&environment.clock);
    let memory = options.split_memory(environment.memory_bytes);
    let cache_options = CacheOptions {
        capacity_bytes: memory.cache_bytes,
        cpus: environment.cpus,
        average_entry_bytes: AVERAGE_BLOCK_BYTES,
    };
    let cache: Arc<BlockCache> = BlockCache::new(cache_options, Arc::clone(&clock), Arc::clone(&waits));
    let tables = TableStore::new(Arc::clone(&environment.fs), directory.to_owned(), Arc::clone(&cache));
    let active = Memtable::new(memory.memtable_bytes);
    let version = Arc::new(loaded.version.clone());
    let read_state = ReadState { active: Arc::clone(&active), immutables: Vec::new(), version };
    let last_seqno = loaded.last_seqno;
    let identities = Random::new(environment.entropy ^ loaded.incarnation.wrapping_mul(0x9e37_79b9));
    Ok(Arc::new(Tree {
        directory: directory.to_owned(),
        reader,
        memory,
        counters: Counters::default(),
        snapshots: SnapshotRegistry::new(last_seqno, Arc::clone(&clock)),
        read_state: ArcSwap::from_pointee(read_state),
        gate: RwLock::new(active),
        database_id: loaded.database_id,
        segment_requested: AtomicBool::new(false),
        next_part_number: AtomicU64::new(0),
        next_file_id: Arc::new(AtomicU64::new(loaded.next_file_id)),
        next_keyspace_id: AtomicU32::new(loaded.next_keyspace_id),
        latches: Latches::new(&clock, &waits),
        any_dropped: AtomicBool::new(!loaded.dropped_keyspaces.is_empty()),
        dropped: ArcSwap::from_pointee(loaded.dropped_keyspaces.iter().copied().collect()),
        versions: Mutex::new(Versions { manifest, durable: loaded }),
        state: Mutex::new(TreeState::default()),
        progress: WaitPoint::new(WaitReason::Backpressure, Arc::clone(&clock), Arc::clone(&waits)),
        publisher: Publisher::new(last_seqno + 1, Arc::clone(&clock), Arc::clone(&waits)),
        next_seqno: AtomicU64::new(last_seqno + 1),
        identities: Mutex::new(identities),
        log: OnceLock::new(),
        lock: Mutex::new(None),
        tables,
        cache,
        executor: Executor::new(environment.executor.clone(), &clock, &waits),
        closed: Arc::new(AtomicBool::new(false)),
        admission: AdmissionControl::new(&options),
        waits,
        options,
        environment,
    }))
}

/// What the manifest tells recovery.
pub(crate) fn recovery_options(
    directory: &Path,
    durable: &ManifestState,
    mode: RecoveryMode,
    read_only: bool,
) -> RecoveryOptions {
    let accepted = durable.accepted_ends.iter().map(|accepted| (accepted.incarnation, accepted.end));
    RecoveryOptions {
        directory: directory.to_owned(),
        database_id: durable.database_id,
        mode,
        replay_start: durable.log_replay_start,
        last_incarnation: durable.incarnation,
        accepted_ends: accepted.collect(),
        durable_address: 0,
        read_only,
    }
}

/// Makes the new incarnation durable, then starts its log.
fn start_incarnation(tree: &Arc<Tree>, replay: Replay) -> Result<()> {
    let (previous, old_replay_start) = {
        let durable = &tree.versions.lock().durable;
        (durable.incarnation, durable.log_replay_start)
    };
    let start_address = replay.report.next_start_address;
    let replay_start = if replay.memtables.is_empty() {
        start_address
    } else {
        replay.flushed_end.unwrap_or(old_replay_start)
    };
    let incarnation = previous + 1;
    // Dropped keyspaces of which neither a file nor the log has anything any more can be forgotten.
    let purged_keyspaces = if replay.memtables.is_empty() { unused_dropped(tree) } else { Vec::new() };
    let edit = VersionEdit {
        purged_keyspaces,
        incarnation: Some(incarnation),
        accepted_ends: vec![AcceptedEnd { incarnation: previous, end: replay.report.end }],
        log_replay_start: Some(replay_start),
        last_seqno: Some(replay.last_seqno),
        added: replay.flushed.into_iter().map(|file| (0, file)).collect(),
        ..VersionEdit::default()
    };
    tree.install(&edit, None)?;
    let options = LogOptions {
        directory: tree.directory.clone(),
        database_id: tree.database_id,
        incarnation,
        start_address,
        segment_bytes: tree.options.log_segment_bytes,
        ring_bytes: tree.options.log_ring_bytes,
        // A burst fills as many as there are memtables; keeping them all means that the next burst fills none.
        segments_recycled_max: tree.options.immutable_memtables_max + 1,
    };
    let (fs, clock) = (Arc::clone(&tree.environment.fs), Arc::clone(&tree.environment.clock));
    let log = Log::create(fs, clock, Arc::clone(&tree.waits), options)?;
    if tree.log.set(log).is_err() {
        return Err(Error::invalid("the log was started twice"));
    }
    tree.next_seqno.store(replay.last_seqno + 1, Ordering::Relaxed);
    tree.publisher.restart(replay.last_seqno + 1);
    tree.snapshots.publish(replay.last_seqno);
    let state = tree.state.lock();
    let old = tree.read_state.load_full();
    let immutables = replay
        .memtables
        .into_iter()
        .map(|memtable| Arc::new(Immutable { memtable, log_end: start_address, newest: replay.last_seqno }))
        .collect();
    let (active, version) = (Arc::clone(&old.active), Arc::clone(&old.version));
    tree.read_state.store(Arc::new(ReadState { active, immutables, version }));
    drop(state);
    Ok(())
}

fn unused_dropped(tree: &Tree) -> Vec<KeyspaceId> {
    let version = tree.versions.lock().durable.version.clone();
    let is_used = |keyspace: KeyspaceId| {
        let range = crate::iter::bounds_in(keyspace, &[], None);
        version.files().any(|(_, file)| file.range().overlaps(&range))
    };
    tree.dropped.load().iter().copied().filter(|&keyspace| !is_used(keyspace)).collect()
}

/// Notes what a crash left in the directory, to be removed: files that no version needs.
pub(crate) fn find_orphans(tree: &Tree) -> Result<()> {
    let (live, position) = {
        let versions = tree.versions.lock();
        let live: HashSet<u64> = versions.durable.version.files().map(|(_, file)| file.id).collect();
        (live, versions.manifest.as_ref().map(Manifest::position).unwrap_or_default())
    };
    let entries = tree.environment.fs.list_directory(&tree.directory)?;
    let manifests = entries.iter().filter_map(|entry| layout::parse_manifest(&entry.name));
    let old = manifests.filter(|&number| number != position.number).collect();
    let files = entries
        .iter()
        .filter(|entry| {
            layout::parse_table(&entry.name).is_some_and(|id| !live.contains(&id))
                || entry.name.ends_with(".tmp")
        })
        .map(|entry| tree.directory.join(&entry.name))
        .collect();
    let mut state = tree.state.lock();
    state.obsolete.add_manifests(old, position);
    state.obsolete.add_orphans(files, position);
    Ok(())
}
