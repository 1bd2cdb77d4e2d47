//! What to compact next: pure functions from a version, the jobs in flight and a few constants to a plan.
//!
//! [`pick`] asks, in this order:
//!
//! 1. Is there a file that can simply go (its keyspaces were dropped, newer range tombstones hide all of it)?
//! 2. Is level 0 too high or too large? Then an interval of it goes to the base level; if that is blocked, its newest
//!    files become one (`level0.rs`).
//! 3. Is a level larger than its target? Then the file that costs least goes one level down (`leveled.rs`). A base
//!    level far above its target comes before level 0, whose jobs it makes dear.
//! 4. Is a file mostly tombstones, or mostly garbage (`housekeeping.rs`)?
//!
//! A plan that collides with what running jobs have claimed is not made; the next best one is tried instead.
//!
//! **What every plan must keep** (checked again by `Version::apply` and by the model test): for each key, what is newer
//! stays nearer to the top. So a plan for level 0 takes with every file all older files of level 0 that overlap it
//! (or, within level 0, all newer ones), and a plan for any level takes everything in the output level that overlaps
//! the hull of its inputs.

mod claims;
mod housekeeping;
mod level0;
mod leveled;
mod manual;
mod plan;
mod shape;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::sync::Arc;

use alluvium_base::key::{KeyspaceId, Seqno};

use claims::Claims;

use crate::version::{BOTTOM_LEVEL, FileMeta, Run, Version};

pub use claims::Claim;
pub use housekeeping::{TombstoneSource, covered_files};
pub use manual::{ManualCompaction, ManualStep};
pub use plan::{CompactionPlan, PickReason, PlanInput, PlanKind};
pub use shape::{LevelTargets, TreeShape};

/// A base level this many times its target is compacted before level 0.
const BASE_LEVEL_OVERFULL: f64 = 2.0;

/// A file below this share (one over …) of its level's file size is merged with its neighbours rather than moved.
const SMALL_FILE_SHARE: u64 = 4;

/// Which jobs are wanted, so that lanes of their own can be kept for draining level 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Any.
    #[default]
    All,
    /// Only what makes level 0 smaller.
    Level0,
    /// Only what does not read level 0.
    Deep,
}

/// Everything that a pick depends on, besides the version.
#[derive(Clone, Copy, Debug)]
pub struct PickInputs<'a> {
    /// The shape that the tree should have.
    pub shape: &'a TreeShape,
    /// What running jobs have claimed.
    pub in_flight: &'a [Claim],
    /// The oldest live snapshot; `None` if there is none.
    pub oldest_snapshot: Option<Seqno>,
    /// Keyspaces that were dropped.
    pub dropped_keyspaces: &'a [KeyspaceId],
    /// Files that newer range tombstones hide from everyone; see [`covered_files`].
    pub covered_files: &'a [u64],
    /// Which jobs are wanted.
    pub scope: Scope,
}

/// A version with all that is known about it.
struct Tree<'a> {
    version: &'a Version,
    inputs: &'a PickInputs<'a>,
    targets: LevelTargets,
    claims: Claims<'a>,
}

/// How full the levels are: 1 is where a level wants to be compacted. What running jobs take away is not counted.
#[derive(Clone, Debug, PartialEq)]
pub struct LevelScores {
    /// Targets behind the scores.
    pub targets: LevelTargets,
    /// By level. The bottom level has none.
    pub scores: [f64; BOTTOM_LEVEL as usize + 1],
    /// Estimate of the bytes that compactions have to read and write until every level is within its target, counted
    /// without what running jobs take away.
    pub pending_bytes: u64,
}

/// The best job to run next beside those in flight; `None` if nothing is worth doing or everything is blocked.
#[must_use]
pub fn pick(version: &Version, inputs: &PickInputs<'_>) -> Option<CompactionPlan> {
    Tree::new(version, inputs).pick()
}

/// How full the levels are.
#[must_use]
pub fn scores(version: &Version, inputs: &PickInputs<'_>) -> LevelScores {
    let tree = Tree::new(version, inputs);
    let mut scores = [0.0; BOTTOM_LEVEL as usize + 1];
    for (level, score) in (0u8..).zip(&mut scores).take(usize::from(BOTTOM_LEVEL)) {
        *score = if level == 0 { tree.level_0_score() } else { tree.level_score(level) };
    }
    LevelScores { scores, pending_bytes: tree.pending_bytes(), targets: tree.targets }
}

impl<'a> Tree<'a> {
    fn new(version: &'a Version, inputs: &'a PickInputs<'a>) -> Tree<'a> {
        Tree {
            version,
            inputs,
            targets: LevelTargets::new(version, inputs.shape),
            claims: Claims::new(inputs.in_flight),
        }
    }

    fn pick(&self) -> Option<CompactionPlan> {
        let deep = self.inputs.scope != Scope::Level0;
        let level_0 = self.inputs.scope != Scope::Deep;
        let base_level = self.targets.base_level;
        let level_0_score = self.level_0_score();
        let base_score = self.level_score(base_level);
        let base_first = base_score >= BASE_LEVEL_OVERFULL && base_score > level_0_score;
        let level_0 =
            || if level_0 && level_0_score >= 1.0 { self.pick_level_0(level_0_score) } else { None };
        let mut plan = if deep { self.pick_discard() } else { None };
        if deep && base_first {
            plan = plan.or_else(|| self.pick_level(base_level, base_score));
        }
        plan = plan.or_else(level_0);
        if deep {
            plan = plan.or_else(|| self.pick_full_level()).or_else(|| self.pick_housekeeping());
        }
        plan
    }

    /// The best job for a level above its target, fullest level first.
    fn pick_full_level(&self) -> Option<CompactionPlan> {
        let mut full: Vec<(f64, u8)> = (self.targets.base_level..BOTTOM_LEVEL)
            .map(|level| (self.level_score(level), level))
            .filter(|(score, _)| *score >= 1.0)
            .collect();
        full.sort_by(|a, b| b.0.partial_cmp(&a.0).unwrap_or(Ordering::Equal).then(a.1.cmp(&b.1)));
        full.into_iter().find_map(|(score, level)| self.pick_level(level, score))
    }

    /// How full `level` (from 1) is against its target. Tombstones count for what they will free.
    fn level_score(&self, level: u8) -> f64 {
        let files = self.version.level(level).files().iter();
        let bytes: u64 =
            files.filter(|file| !self.claims.holds(file)).map(|file| file.compensated_bytes()).sum();
        bytes as f64 / self.targets.bytes(level).max(1) as f64
    }

    /// See [`LevelScores::pending_bytes`]. What a level has too much of falls down level by level, and rewrites of each
    /// as much as the levels' sizes are apart.
    fn pending_bytes(&self) -> u64 {
        let free = |level: u8| -> u64 {
            self.version
                .files_of(level)
                .filter(|file| !self.claims.holds(file))
                .map(|file| file.bytes())
                .sum()
        };
        let mut falling = if self.level_0_score() >= 1.0 { free(0) as f64 } else { 0.0 };
        let mut pending = 0.0;
        let mut from = falling;
        for level in self.targets.base_level..=BOTTOM_LEVEL {
            let here = free(level) as f64;
            pending += falling * (1.0 + here / from.max(1.0)).min(1.0 + self.inputs.shape.multiplier as f64);
            falling = (here + falling - self.targets.bytes(level) as f64).max(0.0);
            from = here;
        }
        pending as u64
    }

    /// The next level's files under `inputs` (all of one level), if a job may take them and write between them.
    fn take_output_level(
        &self,
        from_level: u8,
        inputs: &[Arc<FileMeta>],
        output_level: u8,
    ) -> Option<Vec<Arc<FileMeta>>> {
        let run: &Run = self.version.level(output_level);
        let mut range = alluvium_base::KeyRange::hull(inputs.iter().map(|file| file.range()))?;
        let overlapped = run.overlapping(&range);
        overlapped.iter().for_each(|file| range.extend(file.range()));
        let blocked =
            self.claims.holds_any(overlapped) || self.claims.block_output(from_level, output_level, &range);
        (!blocked).then(|| overlapped.to_vec())
    }

    /// True if `file` may become part of `output_level` as it is, and nothing is lost by that. The caller has checked
    /// that it overlaps nothing there.
    fn may_move(&self, file: &FileMeta, output_level: u8) -> bool {
        let deeper = self.version.level(output_level + 1);
        let hides_nothing = file.has_tombstones() && self.is_nothing_below(output_level, file);
        let has_dropped =
            file.summary.keyspaces.iter().any(|properties| self.is_dropped(properties.keyspace));
        let overlap_max = self.targets.overlap_bytes_max(output_level, self.inputs.shape);
        !hides_nothing && !has_dropped && deeper.overlapping_bytes(file.range()) <= overlap_max
    }

    /// True if no level below `level` overlaps the range of `file`.
    fn is_nothing_below(&self, level: u8, file: &FileMeta) -> bool {
        (level + 1..=BOTTOM_LEVEL)
            .all(|deeper| self.version.level(deeper).overlapping(file.range()).is_empty())
    }

    /// True if `files` together are too small to be a file of `level` of their own: rather than be carried to the
    /// bottom one by one, they are merged with neighbours.
    fn are_small(&self, files: &[Arc<FileMeta>], level: u8) -> bool {
        let bytes: u64 = files.iter().map(|file| file.bytes()).sum();
        bytes < self.targets.file_bytes(level, self.inputs.shape) / SMALL_FILE_SHARE
    }

    fn is_dropped(&self, keyspace: KeyspaceId) -> bool {
        self.inputs.dropped_keyspaces.contains(&keyspace)
    }

    fn plan(
        &self,
        kind: PlanKind,
        reason: PickReason,
        inputs: Vec<PlanInput>,
        output_level: u8,
    ) -> Option<CompactionPlan> {
        CompactionPlan::new(kind, reason, inputs, output_level, (&self.targets, self.inputs.shape))
    }
}
