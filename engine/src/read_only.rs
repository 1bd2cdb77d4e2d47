//! A handle that only reads: beside a process that writes, or on a medium that nobody writes to.
//!
//! It reads the manifest and replays the log into its own memory, and from then on needs only the tables of its version.
//! A [`Lease`] keeps those (and, during the replay, the log) from being removed; see there. [`advance`] moves the handle
//! on to the newest state: a new read state is built beside the old one and then put in its place, so readers go on
//! meanwhile, and a failure leaves the old state as it was.
//!
//! Iterators and snapshots keep the read state that they began with: the writer knows nothing of them, so its
//! compactions do not keep old versions for them, but the tables that have these versions are kept by the lease, which
//! holds the oldest state that is still in use.
//!
//! Without a lease (see [`Lease::take`]) files may vanish while they are looked for. Whatever can come from that is tried
//! again from `CURRENT` on.

use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use alluvium_base::random::Random;
use alluvium_base::sync::Mutex;
use alluvium_base::{Error, ErrorKind, Result};
use alluvium_compaction::ManifestState;

use crate::environment::Environment;
use crate::lease::{Hold, Lease};
use crate::manifest::{Current, Position};
use crate::open;
use crate::options::Options;
use crate::read_state::{Immutable, ReadState};
use crate::replay::{Replay, ReplayFrom, replay};
use crate::tree::Tree;

/// Tries although `CURRENT` has not changed: the log may have moved on without it.
const TRIES_MIN: usize = 4;
/// Tries while `CURRENT` changes.
const TRIES_MAX: usize = 1000;

/// What a handle that only reads has. Its lock is held while the handle is refreshed.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    lease: Option<Lease>,
    /// Every read state that may still be in use, and where in history it is; oldest first, the last is the newest.
    states: Vec<(Position, Weak<ReadState>)>,
}

impl Reader {
    /// Where the oldest state is that is in use.
    fn oldest(&mut self) -> Option<Position> {
        self.states.retain(|(_, state)| state.strong_count() > 0);
        self.states.iter().map(|(position, _)| *position).min()
    }

    fn hold(&self, hold: Hold) -> Result<()> {
        self.lease.as_ref().map_or(Ok(()), |lease| lease.set(hold))
    }

    /// Holds what is in use, and nothing of the log.
    fn hold_states(&mut self) -> Result<()> {
        let position = self.oldest().unwrap_or(Hold::EVERYTHING.position);
        self.hold(Hold { position, log_from: u64::MAX })
    }

    /// True if a writer knows what this handle needs.
    pub(crate) fn has_lease(&self) -> bool {
        self.lease.is_some()
    }

    /// Gives everything free.
    pub(crate) fn release(&mut self) {
        self.lease = None;
    }
}

/// Opens the database in `directory` for reading: no lock, no thread, no write but that of its lease.
pub(crate) fn open_read_only(
    environment: Environment,
    directory: &Path,
    options: Options,
) -> Result<Arc<Tree>> {
    options.check()?;
    let fs = Arc::clone(&environment.fs);
    // Before anything is written into what may be no database.
    let current = read_current(&environment, directory)?;
    let lease = Lease::take(&fs, directory, &mut Random::new(environment.entropy))?;
    let empty = ManifestState { database_id: current.database_id, ..ManifestState::default() };
    let reader = Reader { lease, states: Vec::new() };
    let tree = open::build(environment, directory, options, empty, None, Some(Mutex::new(reader)))?;
    advance(&tree)?;
    Ok(tree)
}

fn read_current(environment: &Environment, directory: &Path) -> Result<Current> {
    Current::read(environment.fs.as_ref(), directory)?
        .ok_or_else(|| Error::not_found(format!("database in {}", directory.display())))
}

/// Moves a handle that only reads on to the newest state. Does nothing for one that writes.
pub(crate) fn advance(tree: &Arc<Tree>) -> Result<()> {
    let Some(reader) = &tree.reader else { return Ok(()) };
    let mut reader = reader.lock();
    match load_newest(tree, &mut reader) {
        Ok((position, loaded, replay)) => install(tree, &mut reader, position, loaded, replay),
        Err(error) => {
            // The lease may stay wider than needed; the next refresh makes it narrow again.
            let _ = reader.hold_states();
            Err(error)
        }
    }
}

fn load_newest(tree: &Arc<Tree>, reader: &mut Reader) -> Result<(Position, ManifestState, Replay)> {
    let mut tries = 0;
    loop {
        reader.hold(Hold::EVERYTHING)?;
        let current = read_current(&tree.environment, &tree.directory)?;
        if current.database_id != tree.database_id {
            let detail = "the directory holds another database than when it was opened; open it anew";
            return Err(Error::invalid(detail));
        }
        match load(tree, reader, &current) {
            Ok((loaded, replay)) => return Ok((current.position(), loaded, replay)),
            Err(error) if can_be_disturbance(&error) && tries < TRIES_MAX => {
                tries += 1;
                if tries > TRIES_MIN && read_current(&tree.environment, &tree.directory)? == current {
                    return Err(error);
                }
            }
            Err(error) => return Err(error),
        }
    }
}

/// True for what a writer's work at this very moment can look like.
fn can_be_disturbance(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Corrupt { .. }) || error.is_missing_file()
}

/// Reads the state that `current` names. The lease holds everything before, and that state with its log after.
fn load(tree: &Arc<Tree>, reader: &mut Reader, current: &Current) -> Result<(ManifestState, Replay)> {
    let (loaded, _) = open::load(tree.environment.fs.as_ref(), &tree.directory, current)?;
    let position = reader.oldest().map_or(current.position(), |oldest| oldest.min(current.position()));
    reader.hold(Hold { position, log_from: loaded.log_replay_start })?;
    let from = ReplayFrom::new(tree, &loaded, true);
    let replay = replay(tree, from)?;
    Ok((loaded, replay))
}

fn install(
    tree: &Arc<Tree>,
    reader: &mut Reader,
    position: Position,
    loaded: ManifestState,
    replay: Replay,
) -> Result<()> {
    let last_seqno = replay.last_seqno.max(tree.snapshots.visible());
    let immutables = replay
        .memtables
        .into_iter()
        .map(|memtable| Arc::new(Immutable { memtable, log_end: 0, newest: last_seqno }))
        .collect();
    let version = Arc::new(loaded.version.clone());
    let state = Arc::new(ReadState { active: tree.new_memtable(), immutables, version });
    tree.dropped.store(Arc::new(loaded.dropped_keyspaces.iter().copied().collect()));
    tree.any_dropped.store(!loaded.dropped_keyspaces.is_empty(), Ordering::Release);
    tree.versions.lock().durable = loaded;
    // First the sequence number: a read that finds the new state must not look at it from an older moment, of which the
    // writer's compactions have kept nothing. The old state answers the same whichever of the two is used.
    tree.snapshots.publish(last_seqno);
    tree.read_state.store(Arc::clone(&state));
    reader.states.push((position, Arc::downgrade(&state)));
    let held = reader.hold_states();
    let in_use: HashSet<u64> = reader
        .states
        .iter()
        .filter_map(|(_, state)| state.upgrade())
        .flat_map(|state| state.version.files().map(|(_, file)| file.id).collect::<Vec<_>>())
        .collect();
    tree.tables.forget_all_but(&in_use);
    held
}
