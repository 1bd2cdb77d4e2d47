//! Compacting a key range on request, level by level, until what it holds lies as deep as it can and nothing that is
//! dead is left of it (as far as snapshots allow).

use alluvium_base::KeyRange;
use alluvium_base::key::Seqno;

use super::plan::{CompactionPlan, PickReason};
use super::{PickInputs, Tree};
use crate::version::{BOTTOM_LEVEL, FileMeta, Version};

/// What to do next for a requested compaction.
#[derive(Clone, Debug, PartialEq)]
pub enum ManualStep {
    /// Run this, then ask again.
    Run(CompactionPlan),
    /// A running job is in the way: ask again when one has ended.
    Blocked,
    /// Nothing is left to do.
    Done,
}

/// A requested compaction of a key range. Works on what is there when it is made; it ends however much is written
/// meanwhile, because it passes each level once, in key order.
#[derive(Clone, Debug)]
pub struct ManualCompaction {
    range: KeyRange,
    /// Level 0 is done up to this order.
    newest_order: Seqno,
    level: u8,
    /// In the current level, everything before this key is done.
    done_before: Vec<u8>,
}

impl ManualCompaction {
    /// A compaction of what `version` holds in `range`.
    #[must_use]
    pub fn new(range: KeyRange, version: &Version) -> ManualCompaction {
        let newest_order = version.files_of(0).map(|file| file.order).max().unwrap_or(0);
        ManualCompaction { done_before: range.start.clone(), range, newest_order, level: 0 }
    }

    /// The next step. The plan of the last one must have been carried out (or have failed) before asking again.
    pub fn next(&mut self, version: &Version, inputs: &PickInputs<'_>) -> ManualStep {
        let tree = Tree::new(version, inputs);
        while self.level <= BOTTOM_LEVEL {
            let step = if self.level == 0 { self.next_of_level_0(&tree) } else { self.next_of_level(&tree) };
            if let Some(step) = step {
                return step;
            }
            self.level += 1;
            self.done_before.clone_from(&self.range.start);
        }
        ManualStep::Done
    }

    fn next_of_level_0(&self, tree: &Tree<'_>) -> Option<ManualStep> {
        let is_asked =
            |file: &FileMeta| file.order <= self.newest_order && file.range().overlaps(&self.range);
        if !tree.version.files_of(0).any(|file| is_asked(file)) {
            return None;
        }
        Some(tree.pick_to_base(PickReason::Manual, is_asked).map_or(ManualStep::Blocked, ManualStep::Run))
    }

    fn next_of_level(&mut self, tree: &Tree<'_>) -> Option<ManualStep> {
        let rest = KeyRange::new(self.done_before.as_slice(), self.range.end.as_slice());
        let goes_deeper = (self.level + 1..=BOTTOM_LEVEL)
            .any(|deeper| !tree.version.level(deeper).overlapping(&self.range).is_empty());
        for file in tree.version.level(self.level).overlapping(&rest) {
            let plan = if goes_deeper {
                tree.plan_down(self.level, file, PickReason::Manual)
            } else if tree.is_garbage(self.level, file, 0.0) || self.has_dropped(tree, file) {
                tree.rewrite(self.level, file, PickReason::Manual)
            } else {
                continue;
            };
            let Some(plan) = plan else { return Some(ManualStep::Blocked) };
            // What the plan takes from this level are neighbours, of which `file` is one.
            if let Some(last) = plan.inputs.first().and_then(|input| input.files.last()) {
                self.done_before.clone_from(&last.range().end);
            }
            return Some(ManualStep::Run(plan));
        }
        None
    }

    fn has_dropped(&self, tree: &Tree<'_>, file: &FileMeta) -> bool {
        file.summary.keyspaces.iter().any(|properties| tree.is_dropped(properties.keyspace))
    }
}
