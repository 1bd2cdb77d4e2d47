//! Jobs that give space back, or spare readers the tombstones, when no level is too large.

use std::sync::Arc;

use alluvium_base::range_tombstone::FragmentedTombstones;

use super::Tree;
use super::plan::{CompactionPlan, PickReason, PlanInput, PlanKind};
use crate::drop_rules::Snapshots;
use crate::version::{BOTTOM_LEVEL, FileMeta, Version};

impl Tree<'_> {
    /// Files that can go without being read.
    pub(super) fn pick_discard(&self) -> Option<CompactionPlan> {
        if self.inputs.dropped_keyspaces.is_empty() && self.inputs.covered_files.is_empty() {
            return None;
        }
        let free = || self.version.files().filter(|(_, file)| !self.claims.holds(file));
        let is_dead = |file: &FileMeta| {
            let mut keyspaces =
                file.summary.keyspaces.iter().map(|properties| properties.keyspace).peekable();
            keyspaces.peek().is_some() && keyspaces.all(|keyspace| self.is_dropped(keyspace))
        };
        let discard = |level: u8, file: &Arc<FileMeta>, reason| {
            self.plan(PlanKind::Discard, reason, vec![PlanInput { level, files: vec![file.clone()] }], level)
        };
        let dead = free().find(|(_, file)| is_dead(file));
        if let Some((level, file)) = dead {
            return discard(level, file, PickReason::DroppedKeyspace);
        }
        let covered = free().find(|(_, file)| self.inputs.covered_files.contains(&file.id));
        covered.and_then(|(level, file)| discard(level, file, PickReason::RangeCovered))
    }

    pub(super) fn pick_housekeeping(&self) -> Option<CompactionPlan> {
        self.pick_tombstones().or_else(|| self.pick_garbage())
    }

    /// Files that are mostly tombstones go down, to meet what they hide.
    fn pick_tombstones(&self) -> Option<CompactionPlan> {
        let share = self.inputs.shape.tombstone_share;
        let is_dense = |file: &FileMeta| {
            let summary = &file.summary;
            summary.tombstones > 0 && summary.tombstones as f64 >= share * summary.entries as f64
        };
        let deeper = self.version.files().filter(|(level, _)| (1..BOTTOM_LEVEL).contains(level));
        deeper
            .filter(|(_, file)| is_dense(file))
            .find_map(|(level, file)| self.plan_down(level, file, PickReason::Tombstones))
            .or_else(|| self.pick_to_base(PickReason::Tombstones, is_dense))
    }

    /// Files that are rewritten where they are, since much of them can be dropped by now.
    fn pick_garbage(&self) -> Option<CompactionPlan> {
        let leveled = || self.version.files().filter(|(level, _)| *level > 0);
        leveled()
            .filter(|(_, file)| self.is_half_dropped(file))
            .find_map(|(level, file)| self.rewrite(level, file, PickReason::DroppedKeyspace))
            .or_else(|| {
                leveled()
                    .filter(|&(level, file)| self.is_garbage(level, file, self.inputs.shape.garbage_share))
                    .find_map(|(level, file)| self.rewrite(level, file, PickReason::Garbage))
            })
    }

    /// True if a good part of the file's bytes belongs to dropped keyspaces.
    fn is_half_dropped(&self, file: &FileMeta) -> bool {
        if self.inputs.dropped_keyspaces.is_empty() {
            return false;
        }
        let dropped = file.summary.keyspaces.iter().filter(|properties| self.is_dropped(properties.keyspace));
        let bytes: u64 = dropped.map(|properties| properties.stored_bytes).sum();
        bytes > 0 && bytes as f64 >= self.inputs.shape.garbage_share * file.bytes() as f64
    }

    /// True if at least `share` of the file are tombstones and old versions, and all of them can be dropped: nothing
    /// lies below, and every snapshot is newer. Range tombstones always count, since they cost every reader of the file.
    pub(super) fn is_garbage(&self, level: u8, file: &FileMeta, share: f64) -> bool {
        let summary = &file.summary;
        let dead = summary.tombstones.saturating_add(file.old_versions);
        let enough =
            summary.range_tombstones > 0 || (dead > 0 && dead as f64 >= share * summary.entries as f64);
        let no_snapshot = self.inputs.oldest_snapshot.is_none_or(|oldest| summary.seqno_max <= oldest);
        enough && no_snapshot && self.is_nothing_below(level, file)
    }

    /// A plan that writes `file` anew into its own level (from 1).
    pub(super) fn rewrite(
        &self,
        level: u8,
        file: &Arc<FileMeta>,
        reason: PickReason,
    ) -> Option<CompactionPlan> {
        if self.claims.holds(file) || self.claims.block_output(level, level, file.range()) {
            return None;
        }
        self.plan(PlanKind::Merge, reason, vec![PlanInput { level, files: vec![file.clone()] }], level)
    }
}

/// The range tombstones of one file, and where the file lies.
#[derive(Clone, Debug)]
pub struct TombstoneSource {
    /// Level of the file.
    pub level: u8,
    /// [`FileMeta::order`] of the file.
    pub order: u64,
    /// Its range tombstones.
    pub tombstones: Arc<FragmentedTombstones>,
}

/// Ids of the files of which nobody can see anything, because range tombstones that lie above hide every key that they
/// may hold from everyone. They can be removed without being read ([`PickInputs::covered_files`](super::PickInputs)).
#[must_use]
pub fn covered_files(version: &Version, sources: &[TombstoneSource], snapshots: &Snapshots) -> Vec<u64> {
    if sources.is_empty() {
        return Vec::new();
    }
    let is_covered = |level: u8, file: &FileMeta| {
        let lies_above = |source: &&TombstoneSource| {
            source.level < level || (source.level == 0 && level == 0 && source.order > file.order)
        };
        // The smallest sequence number that hides all of the file leaves the least room for a snapshot between.
        let hides = |seqnos: &[u64]| {
            let newer = seqnos.partition_point(|&seqno| seqno > file.summary.seqno_max);
            newer
                .checked_sub(1)
                .and_then(|at| seqnos.get(at))
                .copied()
                .filter(|&seqno| !snapshots.any_within(file.summary.seqno_min, seqno))
        };
        let mut at = file.range().start.as_slice();
        while at < file.range().end.as_slice() {
            let mut above =
                sources.iter().filter(lies_above).filter_map(|source| source.tombstones.fragment_at(at));
            match above.find(|fragment| hides(&fragment.seqnos).is_some()) {
                Some(fragment) => at = &fragment.end,
                None => return false,
            }
        }
        true
    };
    version.files().filter(|(level, file)| is_covered(*level, file)).map(|(_, file)| file.id).collect()
}
