//! Picking from level 0.
//!
//! *To the base level.* A plan starts from a file that rests on no older one, takes the files above it sublevel by
//! sublevel, each with every older file that it overlaps, and stops when the job would grow too large or meet another
//! job's files. So several such jobs run at once in different key intervals, and a sequential table whose files
//! overlap nothing is not dragged along by a hot one (Pebble's interval picking).
//!
//! *Within level 0.* If no such plan can be made, the newest files over an interval become one: a plan starts from a file
//! below no newer one, and takes the files beneath it, each with every *newer* file that it overlaps. The output has
//! the greatest order of its inputs, so it lies above everything older, and below what is flushed meanwhile.
//!
//! Either way the chosen files hang together (each overlaps another), so what overlaps their hull overlaps one of them.

use std::sync::Arc;

use alluvium_base::KeyRange;

use super::Tree;
use super::plan::{CompactionPlan, PickReason, PlanInput, PlanKind};
use crate::version::{FileMeta, stack_height};

/// Sublevels that a compaction within level 0 must replace by one to be worth its writing.
const INTRA_SUBLEVELS_MIN: usize = 4;

impl Tree<'_> {
    /// How full level 0 is: its height against the limit, or its bytes against the base level's size.
    pub(super) fn level_0_score(&self) -> f64 {
        let free: Vec<Arc<FileMeta>> =
            self.version.files_of(0).filter(|file| !self.claims.holds(file)).cloned().collect();
        let bytes: u64 = free.iter().map(|file| file.compensated_bytes()).sum();
        let height = stack_height(free) as f64 / self.inputs.shape.level_0_sublevels.max(1) as f64;
        height.max(bytes as f64 / self.inputs.shape.base_bytes.max(1) as f64)
    }

    pub(super) fn pick_level_0(&self, score: f64) -> Option<CompactionPlan> {
        let mut plan = self.pick_to_base(PickReason::Level0, |_| true).or_else(|| self.pick_intra())?;
        plan.score = score;
        Some(plan)
    }

    /// The best plan from level 0 to the base level that brings files that `asked` accepts nearer to it: such a file,
    /// or one that it rests on.
    pub(super) fn pick_to_base(
        &self,
        reason: PickReason,
        asked: impl Fn(&FileMeta) -> bool,
    ) -> Option<CompactionPlan> {
        let stack = Stack::new(self);
        let mut needed = vec![false; stack.files.len()];
        for at in (0..stack.files.len()).filter(|&at| asked(stack.files[at])) {
            needed = stack.with_all(&needed, at, Stack::older);
        }
        let mut seeds: Vec<usize> = (0..stack.files.len())
            .filter(|&at| needed[at] && !stack.claimed[at] && stack.older(at).next().is_none())
            .collect();
        // The interval that is highest first; of equal ones the oldest.
        seeds.sort_by_cached_key(|&at| {
            (std::cmp::Reverse(stack.height_over(stack.files[at].range())), stack.files[at].order)
        });
        seeds.into_iter().find_map(|seed| self.to_base_from(&stack, seed, reason))
    }

    fn to_base_from(&self, stack: &Stack<'_>, seed: usize, reason: PickReason) -> Option<CompactionPlan> {
        let mut chosen = vec![false; stack.files.len()];
        let mut overlapped = None;
        // Files come sublevel by sublevel, oldest first, so what lies over the seed is tried in that order.
        for at in
            (0..stack.files.len()).filter(|&at| stack.files[at].range().overlaps(stack.files[seed].range()))
        {
            let grown = stack.with_all(&chosen, at, Stack::older);
            if let Some(below) = self.fits(stack, &grown, overlapped.is_none()) {
                overlapped = Some(below);
                chosen = grown;
            }
        }
        let overlapped = overlapped?;
        if overlapped.is_empty() {
            self.take_small_neighbours(stack, seed, &mut chosen);
        } else {
            self.take_within_hull(stack, &mut chosen, &overlapped);
        }
        let files = stack.chosen(&chosen);
        let base_level = self.targets.base_level;
        let kind = match files.as_slice() {
            [file] if overlapped.is_empty() && self.may_move(file, base_level) => PlanKind::Move,
            _ => PlanKind::Merge,
        };
        let inputs = vec![PlanInput { level: 0, files }, PlanInput { level: base_level, files: overlapped }];
        self.plan(kind, reason, inputs, base_level)
    }

    /// What the chosen files overlap in the base level, if they may go there. The size counts only if there is a
    /// smaller choice.
    fn fits(&self, stack: &Stack<'_>, chosen: &[bool], is_smallest: bool) -> Option<Vec<Arc<FileMeta>>> {
        let files = stack.chosen(chosen);
        if self.claims.holds_any(&files) {
            return None;
        }
        let overlapped = self.take_output_level(0, &files, self.targets.base_level)?;
        let bytes: u64 = files.iter().chain(&overlapped).map(|file| file.bytes()).sum();
        (is_smallest || bytes <= self.inputs.shape.job_bytes_max).then_some(overlapped)
    }

    /// Adds what comes for free: files within the hull of the job's ranges, as long as the job stays the same below.
    fn take_within_hull(&self, stack: &Stack<'_>, chosen: &mut Vec<bool>, overlapped: &[Arc<FileMeta>]) {
        let files = stack.chosen(chosen);
        let Some(hull) = KeyRange::hull(files.iter().chain(overlapped).map(|file| file.range())) else {
            return;
        };
        for at in 0..stack.files.len() {
            if chosen[at]
                || !hull.covers(stack.files[at].range())
                || stack.older(at).any(|older| !chosen[older])
            {
                continue;
            }
            let mut grown = chosen.clone();
            grown[at] = true;
            if let Some(below) = self.fits(stack, &grown, false)
                && below.len() == overlapped.len()
            {
                *chosen = grown;
            }
        }
    }

    /// Adds small files beside the seed, if nothing of the base level lies between, so that they become one file there.
    fn take_small_neighbours(&self, stack: &Stack<'_>, seed: usize, chosen: &mut Vec<bool>) {
        let mut beside: Vec<usize> =
            (0..stack.files.len()).filter(|&at| stack.older(at).next().is_none()).collect();
        beside.sort_unstable_by(|&a, &b| stack.files[a].range().start.cmp(&stack.files[b].range().start));
        let Some(middle) = beside.iter().position(|&at| at == seed) else { return };
        let (before, after) = beside.split_at(middle);
        let sides: [Vec<usize>; 2] = [before.iter().rev().copied().collect(), after.to_vec()];
        for side in sides {
            for at in side {
                let mut grown = chosen.clone();
                grown[at] = true;
                let small = self.are_small(&stack.chosen(&grown), self.targets.base_level);
                if !small || self.fits(stack, &grown, false).is_none_or(|overlapped| !overlapped.is_empty()) {
                    break;
                }
                *chosen = grown;
            }
        }
    }

    /// A plan that makes the newest files of an interval one.
    fn pick_intra(&self) -> Option<CompactionPlan> {
        let stack = Stack::new(self);
        let mut seeds: Vec<usize> = (0..stack.files.len())
            .filter(|&at| stack.newer(at).next().is_none() && !stack.claimed[at])
            .collect();
        seeds.sort_by_cached_key(|&at| std::cmp::Reverse(stack.height_over(stack.files[at].range())));
        seeds.into_iter().find_map(|seed| self.intra_from(&stack, seed))
    }

    fn intra_from(&self, stack: &Stack<'_>, seed: usize) -> Option<CompactionPlan> {
        let mut chosen = vec![false; stack.files.len()];
        let over_seed = |&at: &usize| stack.files[at].range().overlaps(stack.files[seed].range());
        // Newest first: from the top of the stack down.
        for at in (0..stack.files.len()).rev().filter(over_seed) {
            let grown = stack.with_all(&chosen, at, Stack::newer);
            let files = stack.chosen(&grown);
            let bytes: u64 = files.iter().map(|file| file.bytes()).sum();
            if self.claims.holds_any(&files) || bytes > self.inputs.shape.job_bytes_max {
                break;
            }
            chosen = grown;
        }
        let files = stack.chosen(&chosen);
        if stack_height(files.clone()) < INTRA_SUBLEVELS_MIN {
            return None;
        }
        self.plan(PlanKind::Merge, PickReason::Level0Intra, vec![PlanInput { level: 0, files }], 0)
    }
}

/// The files of level 0, oldest sublevel first.
struct Stack<'a> {
    files: Vec<&'a Arc<FileMeta>>,
    sublevels: Vec<usize>,
    claimed: Vec<bool>,
}

impl<'a> Stack<'a> {
    fn new(tree: &Tree<'a>) -> Stack<'a> {
        let numbered = tree.version.sublevels().iter().enumerate();
        let files = numbered.flat_map(|(sublevel, run)| run.files().iter().map(move |file| (sublevel, file)));
        let (sublevels, files): (Vec<usize>, Vec<&Arc<FileMeta>>) = files.unzip();
        let claimed = files.iter().map(|file| tree.claims.holds(file)).collect();
        Stack { files, sublevels, claimed }
    }

    /// Older files that file `at` overlaps.
    fn older(&self, at: usize) -> Box<dyn Iterator<Item = usize> + '_> {
        Box::new(
            (0..at)
                .filter(move |&other| self.sublevels[other] < self.sublevels[at] && self.overlap(at, other)),
        )
    }

    /// Newer files that file `at` overlaps.
    fn newer(&self, at: usize) -> Box<dyn Iterator<Item = usize> + '_> {
        let rest = at + 1..self.files.len();
        Box::new(
            rest.filter(move |&other| self.sublevels[other] > self.sublevels[at] && self.overlap(at, other)),
        )
    }

    fn overlap(&self, a: usize, b: usize) -> bool {
        self.files[a].range().overlaps(self.files[b].range())
    }

    /// `chosen` with `at`, and with all that `needs` says each new file needs.
    fn with_all<'s>(
        &'s self,
        chosen: &[bool],
        at: usize,
        needs: impl Fn(&'s Stack<'a>, usize) -> Box<dyn Iterator<Item = usize> + 's>,
    ) -> Vec<bool> {
        let mut grown = chosen.to_vec();
        let mut pending = vec![at];
        while let Some(next) = pending.pop() {
            if !std::mem::replace(&mut grown[next], true) {
                pending.extend(needs(self, next));
            }
        }
        grown
    }

    fn chosen(&self, chosen: &[bool]) -> Vec<Arc<FileMeta>> {
        self.files
            .iter()
            .zip(chosen)
            .filter(|(_, chosen)| **chosen)
            .map(|(file, _)| (*file).clone())
            .collect()
    }

    /// Number of unclaimed files that overlap `range`.
    fn height_over(&self, range: &KeyRange) -> usize {
        let over = self.files.iter().zip(&self.claimed);
        over.filter(|(file, claimed)| !**claimed && file.range().overlaps(range)).count()
    }
}
