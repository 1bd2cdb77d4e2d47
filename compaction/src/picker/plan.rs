//! A job that has been decided on, as a value: what it reads, where its output goes, and what that implies.

use std::sync::Arc;

use alluvium_base::KeyRange;
use alluvium_base::key::Seqno;

use super::claims::Claim;
use super::shape::{LevelTargets, TreeShape};
use crate::KeyRanges;
use crate::drop_rules::Below;
use crate::version::{FileMeta, Run, Version, VersionEdit};

/// How a plan is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlanKind {
    /// Read the inputs, write new files.
    Merge,
    /// Only move the input to the output level, by an edit.
    Move,
    /// Only remove the inputs, by an edit: nobody can see anything in them any more.
    Discard,
}

/// Why a plan was made; for people, and for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PickReason {
    /// Level 0 is too high or too large.
    Level0,
    /// Level 0 is too high and cannot be compacted into the base level now: its newest files become one.
    Level0Intra,
    /// A level is larger than its target.
    LevelSize,
    /// A file consists of tombstones to a large part.
    Tombstones,
    /// A file at the bottom holds tombstones that hide nothing, or versions that nobody reads.
    Garbage,
    /// A file holds data of dropped keyspaces.
    DroppedKeyspace,
    /// Newer range tombstones hide all of a file.
    RangeCovered,
    /// Someone asked for it.
    Manual,
}

/// Files of one level that a job reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlanInput {
    /// The level.
    pub level: u8,
    /// The files; for level 0 oldest first, else in key order.
    pub files: Vec<Arc<FileMeta>>,
}

/// A job to be done.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactionPlan {
    /// How.
    pub kind: PlanKind,
    /// Why.
    pub reason: PickReason,
    /// How urgent, as far as that is a number: 1 is where it begins to matter.
    pub score: f64,
    /// What is read, by level, topmost first.
    pub inputs: Vec<PlanInput>,
    /// Level of the outputs.
    pub output_level: u8,
    /// Hull of the inputs: where the outputs lie.
    pub range: KeyRange,
    /// Size that output files should have, in bytes.
    pub file_bytes: u64,
    /// Most that an output file should overlap in the level below, in bytes.
    pub overlap_bytes_max: u64,
    /// [`FileMeta::order`] of the outputs.
    pub output_order: Seqno,
}

impl CompactionPlan {
    /// A plan over `inputs`; empty ones are left out. `None` if there is nothing to do.
    pub(super) fn new(
        kind: PlanKind,
        reason: PickReason,
        mut inputs: Vec<PlanInput>,
        output_level: u8,
        (targets, shape): (&LevelTargets, &TreeShape),
    ) -> Option<CompactionPlan> {
        inputs.retain(|input| !input.files.is_empty());
        let files = || inputs.iter().flat_map(|input| &input.files);
        let range = KeyRange::hull(files().map(|file| file.range()))?;
        let output_order = files().map(|file| file.order).max().unwrap_or(0);
        Some(CompactionPlan {
            kind,
            reason,
            score: 0.0,
            output_level,
            range,
            file_bytes: targets.file_bytes(output_level, shape),
            overlap_bytes_max: targets.overlap_bytes_max(output_level, shape),
            output_order,
            inputs,
        })
    }

    /// Every input file with its level.
    pub fn files(&self) -> impl Iterator<Item = (u8, &Arc<FileMeta>)> {
        self.inputs.iter().flat_map(|input| input.files.iter().map(|file| (input.level, file)))
    }

    /// Sum of the sizes of the inputs, in bytes.
    #[must_use]
    pub fn input_bytes(&self) -> u64 {
        self.files().map(|(_, file)| file.bytes()).sum()
    }

    /// Sum of the point entries of the inputs.
    #[must_use]
    pub fn input_entries(&self) -> u64 {
        self.files().map(|(_, file)| file.summary.entries).sum()
    }

    /// What the job claims while it runs.
    #[must_use]
    pub fn claim(&self) -> Claim {
        Claim {
            files: self.files().map(|(_, file)| file.id).collect(),
            from_level: self.inputs.iter().map(|input| input.level).min().unwrap_or(self.output_level),
            output_level: self.output_level,
            range: self.range.clone(),
        }
    }

    /// The edit that installs the result: the inputs go, `outputs` come. A move needs no outputs.
    #[must_use]
    pub fn edit(&self, outputs: &[Arc<FileMeta>]) -> VersionEdit {
        let mut edit = VersionEdit::default();
        for (level, file) in self.files() {
            edit.remove(level, file.id);
            if self.kind == PlanKind::Move {
                edit.add(self.output_level, file.clone());
            }
        }
        outputs.iter().for_each(|file| edit.add(self.output_level, file.clone()));
        edit
    }

    /// Where entries older than the inputs' may exist outside of them. `version` is the one that the plan was made
    /// from. It stays right while other jobs run: they move older data only within where it is or further down, and
    /// new data is newer.
    #[must_use]
    pub fn below(&self, version: &Version) -> Below {
        let is_below = |level: u8, file: &FileMeta| match (level, self.output_level) {
            (0, 0) => file.order < self.output_order,
            (level, output_level) => level > output_level,
        };
        let is_input = |file: &FileMeta| self.files().any(|(_, input)| input.id == file.id);
        let below = version.files().filter(|&(level, file)| {
            is_below(level, file) && file.range().overlaps(&self.range) && !is_input(file)
        });
        Below::Within(KeyRanges::union(below.map(|(_, file)| file.range())))
    }

    /// The level whose files the outputs should not overlap too much.
    #[must_use]
    pub fn grandparents(&self, version: &Version, shape: &TreeShape) -> Arc<Run> {
        let level = match self.output_level {
            0 => LevelTargets::new(version, shape).base_level,
            level => level + 1,
        };
        version.level(level).clone()
    }

    /// Cuts the plan's range into at most `parts` ranges of about the same number of input bytes, to be merged by as
    /// many jobs at once. The ranges join without gaps and hold every input key; cuts lie at the first keys of input
    /// files, which never separate two versions of a key.
    #[must_use]
    pub fn split(&self, parts: usize) -> Vec<KeyRange> {
        let mut files: Vec<&FileMeta> = self.files().map(|(_, file)| file.as_ref()).collect();
        files.sort_unstable_by(|a, b| a.range().start.cmp(&b.range().start));
        let part_bytes = self.input_bytes().div_ceil(parts.max(1) as u64).max(1);
        let mut cuts = vec![self.range.start.as_slice()];
        let mut bytes = 0;
        for file in files {
            let start = file.range().start.as_slice();
            if bytes >= part_bytes && cuts.len() < parts && cuts.last().is_some_and(|last| *last < start) {
                cuts.push(start);
                bytes = 0;
            }
            bytes += file.bytes();
        }
        cuts.push(&self.range.end);
        cuts.array_windows::<2>().map(|[start, end]| KeyRange::new(*start, *end)).collect()
    }
}
