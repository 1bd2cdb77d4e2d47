//! Picking from a level that is a sorted run: the file that costs least per byte moved goes one level down.
//!
//! The cost is what has to be rewritten with it, its overlap with the next level. This spreads over the key space by
//! itself, since a range that was just pushed down overlaps more than one that was not. Tombstones count for what they
//! free, so files full of them go early.

use std::sync::Arc;

use alluvium_base::KeyRange;

use super::Tree;
use super::plan::{CompactionPlan, PickReason, PlanInput, PlanKind};
use crate::version::FileMeta;

impl Tree<'_> {
    /// The best plan that moves something from `level` (1 to one above the bottom) to the next level.
    pub(super) fn pick_level(&self, level: u8, score: f64) -> Option<CompactionPlan> {
        let next = self.version.level(level + 1);
        let free = self.version.level(level).files().iter().filter(|file| !self.claims.holds(file));
        let mut by_cost: Vec<(f64, &Arc<FileMeta>)> = free
            .map(|file| {
                let overlap = next.overlapping_bytes(file.range());
                (overlap as f64 / file.compensated_bytes().max(1) as f64, file)
            })
            .collect();
        by_cost.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.id.cmp(&b.1.id)));
        let mut plan =
            by_cost.into_iter().find_map(|(_, file)| self.plan_down(level, file, PickReason::LevelSize))?;
        plan.score = score;
        Some(plan)
    }

    /// A plan that takes `file` from `level` to the next one; `None` if it is blocked.
    pub(super) fn plan_down(
        &self,
        level: u8,
        file: &Arc<FileMeta>,
        reason: PickReason,
    ) -> Option<CompactionPlan> {
        if self.claims.holds(file) {
            return None;
        }
        let mut files = vec![file.clone()];
        let overlapped = self.take_output_level(level, &files, level + 1)?;
        if overlapped.is_empty() && self.may_move(file, level + 1) {
            return self.plan(PlanKind::Move, reason, vec![PlanInput { level, files }], level + 1);
        }
        self.take_neighbours(level, &mut files, &overlapped);
        let inputs = vec![PlanInput { level, files }, PlanInput { level: level + 1, files: overlapped }];
        self.plan(PlanKind::Merge, reason, inputs, level + 1)
    }

    /// Adds more files of `level` as long as the job rewrites nothing more of the next level for them.
    fn take_neighbours(&self, level: u8, files: &mut Vec<Arc<FileMeta>>, overlapped: &[Arc<FileMeta>]) {
        let Some(hull) = KeyRange::hull(overlapped.iter().map(|file| file.range())) else { return };
        let candidates = self.version.level(level).overlapping(&hull);
        let mut bytes: u64 = files.iter().chain(overlapped).map(|file| file.bytes()).sum();
        let Some(at) = candidates.iter().position(|file| file.id == files[0].id) else { return };
        let (before, after) = candidates.split_at(at);
        // From the chosen file outwards, so that the job's files stay neighbours.
        let sides: [Vec<&Arc<FileMeta>>; 2] = [before.iter().rev().collect(), after.iter().skip(1).collect()];
        for side in sides {
            for file in side {
                bytes += file.bytes();
                let mut grown = files.clone();
                grown.push(file.clone());
                let fits = !self.claims.holds(file) && bytes <= self.inputs.shape.job_bytes_max;
                let same_below = || {
                    self.take_output_level(level, &grown, level + 1)
                        .is_some_and(|now| now.len() == overlapped.len())
                };
                if !fits || !same_below() {
                    break;
                }
                *files = grown;
            }
        }
        files.sort_unstable_by(|a, b| a.range().start.cmp(&b.range().start));
    }
}
