//! Flushing: the oldest frozen memtable becomes tables of level 0.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_base::Result;
use alluvium_base::key::Seqno;
use alluvium_compaction::drop_rules::Snapshots;
use alluvium_compaction::job::{Flush, MergeJob, Progress, Readers};
use alluvium_compaction::{FileMeta, VersionEdit};

use super::QUANTUM_BYTES;
use crate::executor::{Next, Worker, catch_panic};
use crate::memtable::Memtable;
use crate::read_state::Immutable;
use crate::tree::Tree;

/// See the module's documentation.
pub(super) struct FlushWorker {
    tree: Arc<Tree>,
    running: Option<Running>,
    retry_at_nanos: u64,
}

struct Running {
    immutable: Arc<Immutable>,
    stage: Stage,
    started_nanos: u64,
}

enum Stage {
    Writing(Box<MergeJob>),
    /// The tables are written and synced; what is left is to say so in the manifest.
    Installing(Box<VersionEdit>),
}

impl FlushWorker {
    pub(super) fn new(tree: Arc<Tree>) -> FlushWorker {
        FlushWorker { tree, running: None, retry_at_nanos: 0 }
    }

    fn step(&mut self) -> Result<Next> {
        let tree = &self.tree;
        let Some(running) = &mut self.running else {
            let Some(immutable) = tree.read_state.load().immutables.first().cloned() else {
                return Ok(Next::Idle);
            };
            let job = tree.flush_job(&immutable.memtable, immutable.newest);
            let started_nanos = tree.environment.clock.monotonic_nanos();
            self.running = Some(Running { immutable, stage: Stage::Writing(Box::new(job)), started_nanos });
            return Ok(Next::Again);
        };
        match &mut running.stage {
            Stage::Writing(job) => {
                if let Progress::Done(output) = job.run_quantum(QUANTUM_BYTES)? {
                    tree.counters.dropped_entries.add(output.statistics.dropped.total());
                    tree.counters.broken_pairs.add(output.statistics.broken_pairs);
                    let edit = VersionEdit {
                        log_replay_start: Some(running.immutable.log_end),
                        last_seqno: Some(running.immutable.newest),
                        added: output.files.into_iter().map(|file| (0, file)).collect(),
                        ..VersionEdit::default()
                    };
                    running.stage = Stage::Installing(Box::new(edit));
                }
                Ok(Next::Again)
            }
            Stage::Installing(edit) => {
                tree.install(edit, Some(&running.immutable))?;
                let bytes: u64 = edit.added.iter().map(|(_, file)| file.bytes()).sum();
                let nanos = tree.environment.clock.monotonic_nanos() - running.started_nanos;
                let user_bytes = running.immutable.memtable.memory_bytes() as u64;
                self.running = None;
                tree.counters.flushes.increment();
                tree.counters.flushed_bytes.add(bytes);
                tree.admission.record_job(true, user_bytes, nanos);
                tree.record_success("flush");
                tree.update_admission();
                tree.progress.notify_all();
                Ok(Next::Again)
            }
        }
    }

    /// Gives up a flush whose tables are not complete. Complete ones are kept: the manifest may name them.
    fn give_up(&mut self) {
        // Dropping the job removes its files.
        self.running.take_if(|running| matches!(running.stage, Stage::Writing(_)));
    }
}

impl Worker for FlushWorker {
    fn name(&self) -> String {
        "alluvium-flush".to_owned()
    }

    fn run_quantum(&mut self) -> Next {
        if self.tree.closed.load(Ordering::Acquire) {
            self.give_up();
            return Next::Idle;
        }
        if self.tree.environment.clock.monotonic_nanos() < self.retry_at_nanos {
            return Next::IdleUntil(self.retry_at_nanos);
        }
        match catch_panic("a flush", || self.step()) {
            Ok(next) => next,
            Err(error) => {
                self.give_up();
                self.retry_at_nanos = self.tree.record_failure("flush", error);
                Next::IdleUntil(self.retry_at_nanos)
            }
        }
    }
}

/// Writes a memtable as tables at once, on the caller's thread; for the replay of the log.
pub(crate) fn flush_now(
    tree: &Arc<Tree>,
    memtable: &Arc<Memtable>,
    newest: Seqno,
) -> Result<Vec<Arc<FileMeta>>> {
    Ok(tree.flush_job(memtable, newest).run()?.files)
}

impl Tree {
    /// A job that writes `memtable`, of which `newest` is the newest sequence number.
    fn flush_job(&self, memtable: &Arc<Memtable>, newest: Seqno) -> MergeJob {
        let readers = Readers {
            iterators: vec![Box::new(memtable.iter())],
            tombstones: memtable.range_tombstones().to_tombstones().collect(),
            bounds: None,
            entries: Some(memtable.entries()),
        };
        // A memtable is frozen only when all of its commits are visible, so every reader to come reads at or above
        // everything in it.
        let snapshots = Snapshots::new(self.snapshots.live());
        let dropped_keyspaces = self.dropped.load().to_vec();
        let flush = Flush { readers, order: newest, snapshots, dropped_keyspaces };
        let version = Arc::clone(&self.read_state.load().version);
        MergeJob::flush(self.job_environment(), self.new_random(), flush, &version, &self.shape())
    }
}
