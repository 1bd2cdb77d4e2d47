//! Replaying the log: records become entries of memtables, and memtables that are full become tables.
//!
//! Reading the log is sequential; inserting is not. Records are gathered until they are worth it, then inserted by all
//! processors at once: entries carry their sequence numbers, so the order in which they arrive does not matter. A
//! memtable that is full is flushed on the way, so replay needs no more memory than running does.

use std::path::PathBuf;
use std::sync::Arc;

use alluvium_base::key::{KeyspaceId, Kind, Seqno};
use alluvium_base::{Error, ErrorKind, Result};
use alluvium_compaction::{FileMeta, ManifestState};
use alluvium_wal::{RecoveredRecord, RecoveryOptions, RecoveryReport, recover};

use crate::batch::Operations;
use crate::commit::apply_operation;
use crate::executor::Pool;
use crate::memtable::Memtable;
use crate::open::recovery_options;
use crate::parts::{Joiner, Payload};
use crate::tree::Tree;

/// Bytes of records that are inserted together.
const GATHER_BYTES: usize = 1 << 20;

/// What the log gave back.
pub(crate) struct Replay {
    /// Replayed entries that are not in a table yet, oldest first.
    pub(crate) memtables: Vec<Arc<Memtable>>,
    /// Tables made of those that did not fit.
    pub(crate) flushed: Vec<Arc<FileMeta>>,
    /// Everything below this address is in `flushed` (or was in a table before).
    pub(crate) flushed_end: Option<u64>,
    pub(crate) last_seqno: Seqno,
    pub(crate) report: RecoveryReport,
}

/// A batch of the log that waits to be inserted.
struct Gathered {
    address: u64,
    first_seqno: Seqno,
    batch: Vec<u8>,
}

struct Replayer<'a> {
    tree: &'a Arc<Tree>,
    /// A memtable that is full becomes a table at once.
    may_flush: bool,
    pool: Pool,
    dropped: Vec<KeyspaceId>,
    joiner: Joiner,
    gathered: Vec<Gathered>,
    gathered_bytes: usize,
    memtables: Vec<Arc<Memtable>>,
    /// The newest sequence number in the last memtable: what its tables are ordered by.
    newest: Seqno,
    flushed: Vec<Arc<FileMeta>>,
    flushed_end: Option<u64>,
}

/// Where a replay begins: what the manifest says of the log.
pub(crate) struct ReplayFrom {
    options: RecoveryOptions,
    last_seqno: Seqno,
    dropped: Vec<KeyspaceId>,
}

impl ReplayFrom {
    /// The replay that `durable` asks for. If it is `read_only` nothing is written, and memory has to hold all of it.
    pub(crate) fn new(tree: &Tree, durable: &ManifestState, read_only: bool) -> ReplayFrom {
        let options = recovery_options(&tree.directory, durable, tree.options.recovery_mode, read_only);
        let dropped = durable.dropped_keyspaces.iter().copied().collect();
        ReplayFrom { options, last_seqno: durable.last_seqno, dropped }
    }
}

/// Replays the log from the manifest's replay start on.
pub(crate) fn replay(tree: &Arc<Tree>, from: ReplayFrom) -> Result<Replay> {
    let ReplayFrom { options, last_seqno, dropped } = from;
    let mut replayer = Replayer {
        tree,
        may_flush: !options.read_only,
        pool: Pool::new(&tree.environment.executor, tree.environment.cpus)?,
        dropped,
        joiner: Joiner::default(),
        gathered: Vec::new(),
        gathered_bytes: 0,
        memtables: vec![tree.new_memtable()],
        newest: 0,
        flushed: Vec::new(),
        flushed_end: None,
    };
    let report = recover(&tree.environment.fs, &options, &mut |record| replayer.take(record))?;
    replayer.insert_gathered()?;
    let Replayer { mut memtables, newest, flushed, flushed_end, .. } = replayer;
    memtables.retain(|memtable| !memtable.is_empty());
    let last_seqno = last_seqno.max(report.highest_seqno).max(newest);
    Ok(Replay { memtables, flushed, flushed_end, last_seqno, report })
}

impl Replayer<'_> {
    fn take(&mut self, record: RecoveredRecord<'_>) -> Result<()> {
        // A batch in parts must not be cut by a new replay start.
        let between_batches = self.joiner.is_empty();
        let batch = match self.joiner.take(record.incarnation, record.payload) {
            Payload::Whole(batch) => batch.to_vec(),
            Payload::Joined(batch) => batch,
            Payload::Pending => return Ok(()),
            Payload::Unknown => return Err(self.not_understood(record.address)),
        };
        if self.gathered_bytes >= GATHER_BYTES {
            self.insert_gathered()?;
            if between_batches {
                self.flush_if_full(record.address)?;
            }
        }
        self.gathered_bytes += batch.len();
        self.gathered.push(Gathered { address: record.address, first_seqno: record.seqno, batch });
        Ok(())
    }

    fn insert_gathered(&mut self) -> Result<()> {
        let Some(memtable) = self.memtables.last() else { return Ok(()) };
        self.pool.try_for_each(&self.gathered, |gathered| {
            let mut operations = Operations::of_record(&gathered.batch);
            for (seqno, operation) in (gathered.first_seqno..).zip(operations.by_ref()) {
                // What was written to a keyspace that was dropped later is gone with it.
                if KeyspaceId::of(operation.key).is_none_or(|keyspace| !self.dropped.contains(&keyspace)) {
                    apply_operation(memtable, &operation, seqno);
                }
            }
            match operations.unknown_kind() {
                None if operations.is_complete() => Ok(()),
                None => Err(self.not_understood(gathered.address)),
                Some(kind) => Err(self.newer(gathered.address, kind)),
            }
        })?;
        if let Some(last) = self.gathered.last() {
            let count = Operations::of_record(&last.batch).count() as u64;
            self.newest = last.first_seqno + count.saturating_sub(1);
        }
        self.gathered.clear();
        self.gathered_bytes = 0;
        Ok(())
    }

    /// Makes room in memory once the memtable is full; `address` is where the next batch begins.
    fn flush_if_full(&mut self, address: u64) -> Result<()> {
        let Some(memtable) = self.memtables.last() else { return Ok(()) };
        if memtable.memory_bytes() < self.tree.memory.memtable_bytes {
            return Ok(());
        }
        if self.may_flush {
            self.flushed.extend(crate::background::flush_now(self.tree, memtable, self.newest)?);
            self.flushed_end = Some(address);
            self.memtables.clear();
        }
        self.memtables.push(self.tree.new_memtable());
        Ok(())
    }

    fn not_understood(&self, address: u64) -> Error {
        let detail = format!("the log record at address {address} has a valid checksum but makes no sense");
        let (file, offset) = self.place(address);
        Error::corrupt(file, offset, detail)
    }

    /// The record holds an operation that this build does not know.
    fn newer(&self, address: u64, kind: u8) -> Error {
        let (file, offset) = self.place(address);
        let (found, supported) = (u32::from(kind), u32::from(Kind::NEWEST as u8));
        let newer = Error::from(ErrorKind::UnsupportedFormat { file, found, supported });
        newer.context(format!("the log record at byte {offset} has an operation of kind {kind}"))
    }

    /// File and offset of a record.
    fn place(&self, address: u64) -> (PathBuf, u64) {
        let (fs, directory) = (self.tree.environment.fs.as_ref(), &self.tree.directory);
        alluvium_wal::place_of(fs, directory, address).unwrap_or_else(|_| (directory.clone(), address))
    }
}
