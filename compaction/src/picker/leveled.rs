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
        let is_small = self.are_small(&files, level + 1);
        if overlapped.is_empty() && !is_small && self.may_move(file, level + 1) {
            return self.plan(PlanKind::Move, reason, vec![PlanInput { level, files }], level + 1);
        }
        self.take_neighbours(level, &mut files, &overlapped);
        let kind = match files.as_slice() {
            [file] if overlapped.is_empty() && self.may_move(file, level + 1) => PlanKind::Move,
            _ => PlanKind::Merge,
        };
        let inputs = vec![PlanInput { level, files }, PlanInput { level: level + 1, files: overlapped }];
        self.plan(kind, reason, inputs, level + 1)
    }

    /// Adds more files of `level`, beside the one in `files`, as long as the job rewrites nothing more of the next level
    /// for them: all within the hull of `overlapped`, or if that is empty, small neighbours.
    fn take_neighbours(&self, level: u8, files: &mut Vec<Arc<FileMeta>>, overlapped: &[Arc<FileMeta>]) {
        let all = self.version.level(level).files();
        let Some(at) = all.iter().position(|file| file.id == files[0].id) else { return };
        let hull = KeyRange::hull(overlapped.iter().map(|file| file.range()));
        let fits = |file: &Arc<FileMeta>, grown: &[Arc<FileMeta>]| {
            let bytes: u64 = grown.iter().chain(overlapped).map(|file| file.bytes()).sum();
            let wanted = match &hull {
                Some(hull) => hull.overlaps(file.range()) && bytes <= self.inputs.shape.job_bytes_max,
                None => self.are_small(grown, level + 1),
            };
            let same_below = || {
                self.take_output_level(level, grown, level + 1)
                    .is_some_and(|now| now.len() == overlapped.len())
            };
            wanted && !self.claims.holds(file) && same_below()
        };
        // From the chosen file outwards, so that the job's files stay neighbours.
        for outwards in
            [Box::new((0..at).rev()) as Box<dyn Iterator<Item = usize>>, Box::new(at + 1..all.len())]
        {
            for file in outwards.filter_map(|at| all.get(at)) {
                let mut grown = files.clone();
                grown.push(file.clone());
                if !fits(file, &grown) {
                    break;
                }
                *files = grown;
            }
        }
        files.sort_unstable_by(|a, b| a.range().start.cmp(&b.range().start));
    }
}
