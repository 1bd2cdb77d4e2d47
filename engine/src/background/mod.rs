//! Work that nobody waits for: flushing, compacting, keeping house.
//!
//! - [`flush`]: one worker writes frozen memtables, oldest first, as tables of level 0. It has a thread of its own, so
//!   that a long compaction never delays it.
//! - [`compact`]: some workers ask the picker (a pure function) what to do next beside the jobs in flight, and do it.
//! - [`housekeeping`]: one worker syncs what was buffered for long enough, makes log segments ahead of need, brings the
//!   log back after a failure, and removes files that nobody needs any more.
//!
//! A job that fails changes nothing: its outputs are removed, the failure is recorded with its cause, and it is tried
//! again after a while. The one exception is a failure to write the manifest: the edit may or may not have reached the
//! disk, so the outputs are kept and only the installation is tried again.

mod compact;
mod flush;
mod housekeeping;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_base::Result;
use alluvium_base::random::Random;
use alluvium_compaction::iterate::TableOpener;
use alluvium_compaction::job::JobEnvironment;
use alluvium_compaction::picker::{Scope, TreeShape};
use alluvium_sstable::Fixed;

use crate::options::Options;
use crate::tree::Tree;

pub(crate) use compact::ManualRequest;
pub(crate) use flush::flush_now;

/// Bytes of input that a job handles before it looks around.
const QUANTUM_BYTES: u64 = 1 << 20;

/// Starts every worker of an open database.
pub(crate) fn start_workers(tree: &Arc<Tree>) -> Result<()> {
    let clock = &tree.environment.clock;
    tree.executor.start(Box::new(flush::FlushWorker::new(Arc::clone(tree))), clock)?;
    tree.executor.start(Box::new(housekeeping::Housekeeper::new(Arc::clone(tree))?), clock)?;
    for number in 0..tree.options.compaction_threads {
        // With several threads, the first one only drains level 0, so that deep jobs never take all of them.
        let scope =
            if number == 0 && tree.options.compaction_threads > 1 { Scope::Level0 } else { Scope::All };
        let worker = compact::CompactionWorker::new(Arc::clone(tree), number, scope);
        tree.executor.start(Box::new(worker), clock)?;
    }
    Ok(())
}

impl Tree {
    /// What jobs need from their surroundings.
    fn job_environment(&self) -> JobEnvironment {
        let ids = Arc::clone(&self.next_file_id);
        JobEnvironment {
            fs: Arc::clone(&self.environment.fs),
            directory: self.directory.clone(),
            settings: Arc::new(Fixed(self.options.keyspace_settings())),
            opener: Arc::clone(&self.tables) as Arc<dyn TableOpener>,
            next_file_id: Arc::new(move || ids.fetch_add(1, Ordering::Relaxed)),
            now_micros: self.environment.clock.wall_micros(),
        }
    }

    /// A generator for the identities of one job's tables.
    fn new_random(&self) -> Random {
        Random::new(self.identities.lock().next_u64())
    }

    /// The shape that the options ask for.
    pub(crate) fn shape(&self) -> TreeShape {
        tree_shape(&self.options)
    }
}

/// The shape that options ask for.
pub(crate) fn tree_shape(options: &Options) -> TreeShape {
    TreeShape {
        base_bytes: options.base_level_bytes,
        level_0_sublevels: options.level0_compaction_trigger,
        file_bytes_min: (options.table_bytes / 8).max(1),
        file_bytes_max: options.table_bytes,
        ..TreeShape::default()
    }
}
