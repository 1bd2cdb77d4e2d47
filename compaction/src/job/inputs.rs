//! What a job reads: memtables for a flush, tables for a compaction.

use std::sync::Arc;

use alluvium_base::iter::InternalIterator;
use alluvium_base::key::{KeyspaceId, Seqno};
use alluvium_base::random::Random;
use alluvium_base::range_tombstone::RangeTombstone;
use alluvium_base::{KeyRange, Result};
use alluvium_sstable::ReadPurpose;

use super::{JobEnvironment, MergeJob, OutputShape};
use crate::drop_rules::{Below, DropRules, EntryFilter, Snapshots};
use crate::iterate::{LevelIterator, TableOpener};
use crate::picker::{CompactionPlan, LevelTargets, TreeShape};
use crate::version::{FileMeta, Run, Version, stack};

/// Iterators over everything that a job reads.
pub struct Readers {
    /// Sorted inputs.
    pub iterators: Vec<Box<dyn InternalIterator>>,
    /// All of their range tombstones.
    pub tombstones: Vec<RangeTombstone>,
    /// Only keys in here count.
    pub bounds: Option<KeyRange>,
    /// Point entries that the inputs hold, if all of them are read.
    pub entries: Option<u64>,
}

impl std::fmt::Debug for Readers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Readers")
            .field("iterators", &self.iterators.len())
            .field("tombstones", &self.tombstones.len())
            .field("bounds", &self.bounds)
            .field("entries", &self.entries)
            .finish()
    }
}

/// What is flushed.
#[derive(Debug)]
pub struct Flush {
    /// Memtables, whose contents are complete and published.
    pub readers: Readers,
    /// The greatest sequence number that the memtables can hold: greater than anything that was flushed before and
    /// smaller than anything that will be. Becomes [`FileMeta::order`].
    pub order: Seqno,
    /// Who may still be reading.
    pub snapshots: Snapshots,
    /// Keyspaces that were dropped.
    pub dropped_keyspaces: Vec<KeyspaceId>,
}

impl MergeJob {
    /// A job that writes memtables as files of level 0. They are cut where files of the base level begin, so that
    /// intervals of level 0 can be compacted on their own.
    #[must_use]
    pub fn flush(
        environment: JobEnvironment,
        random: Random,
        flush: Flush,
        version: &Version,
        shape: &TreeShape,
    ) -> MergeJob {
        let targets = LevelTargets::new(version, shape);
        let Flush { readers, order, snapshots, dropped_keyspaces } = flush;
        let rules = DropRules::new(snapshots, Below::Anywhere, dropped_keyspaces, &readers.tombstones);
        let outputs = OutputShape {
            order,
            file_bytes: targets.file_bytes(0, shape),
            overlap_bytes_max: targets.overlap_bytes_max(0, shape),
            grandparents: version.level(targets.base_level).clone(),
        };
        MergeJob::new(environment, random, readers, EntryFilter::new(rules), outputs)
    }

    /// A job that carries out `plan`, or the part of it within `bounds` (one of
    /// [`CompactionPlan::split`]). `version` is the one that the plan was made from.
    ///
    /// # Errors
    /// Those of opening the inputs that have range tombstones.
    pub fn compaction(
        environment: JobEnvironment,
        random: Random,
        plan: &CompactionPlan,
        bounds: Option<KeyRange>,
        version: &Version,
        (snapshots, dropped_keyspaces): (Snapshots, Vec<KeyspaceId>),
        shape: &TreeShape,
    ) -> Result<MergeJob> {
        let readers = Readers::of_plan(plan, bounds, &environment.opener)?;
        let rules = DropRules::new(snapshots, plan.below(version), dropped_keyspaces, &readers.tombstones);
        let outputs = OutputShape {
            order: plan.output_order,
            file_bytes: plan.file_bytes,
            overlap_bytes_max: plan.overlap_bytes_max,
            grandparents: plan.grandparents(version, shape),
        };
        Ok(MergeJob::new(environment, random, readers, EntryFilter::new(rules), outputs))
    }
}

impl Readers {
    fn of_plan(
        plan: &CompactionPlan,
        bounds: Option<KeyRange>,
        opener: &Arc<dyn TableOpener>,
    ) -> Result<Readers> {
        let mut runs: Vec<Arc<Run>> = Vec::new();
        for input in &plan.inputs {
            match input.level {
                0 => runs.extend(stack(input.files.clone(), &[])?.iter().cloned()),
                _ => {
                    let run = Run::new(input.files.clone());
                    let level = input.level;
                    let wrap = |overlap| {
                        alluvium_base::Error::invalid(format!("inputs of level {level}: {overlap}"))
                    };
                    runs.push(Arc::new(run.map_err(wrap)?));
                }
            }
        }
        let mut tombstones = Vec::new();
        for (_, file) in plan.files() {
            tombstones.extend(range_tombstones(file, bounds.as_ref(), &**opener)?);
        }
        let open = |run: Arc<Run>| -> Box<dyn InternalIterator> {
            let purpose = ReadPurpose::Compaction;
            Box::new(LevelIterator::over_tables(run, bounds.as_ref(), opener.clone(), purpose))
        };
        Ok(Readers {
            iterators: runs.into_iter().map(open).collect(),
            tombstones,
            entries: bounds.is_none().then(|| plan.input_entries()),
            bounds,
        })
    }
}

/// The range tombstones of `file`, as far as they lie within its range and within `bounds`.
fn range_tombstones(
    file: &Arc<FileMeta>,
    bounds: Option<&KeyRange>,
    opener: &dyn TableOpener,
) -> Result<Vec<RangeTombstone>> {
    if file.summary.range_tombstones == 0 {
        return Ok(Vec::new());
    }
    let table = opener.open(file).map_err(|error| error.context(format!("opening {}", file.file_name())))?;
    let clip = |tombstone: RangeTombstone| {
        let seqno = tombstone.seqno;
        let range = KeyRange::new(tombstone.start, tombstone.end).intersection(file.range())?;
        let range = bounds.map_or(Some(range.clone()), |bounds| range.intersection(bounds))?;
        Some(RangeTombstone { start: range.start, end: range.end, seqno })
    };
    Ok(table.range_tombstones().to_tombstones().filter_map(clip).collect())
}
