//! Levels, picking, merging and dropping: everything about the shape of the tree and how it changes.
//!
//! A byte's way through here: a memtable is full → [`job`] flushes it into files of level 0 → the edit that names them
//! makes the next [`version`] → [`picker`] sees that level 0 is too high and makes a plan → [`job`] carries it out:
//! [`iterate`] merges the inputs, [`drop_rules`] decides what is kept → the next edit → … → the bottom level.
//!
//! - [`version`]: which files make up the tree ([`Version`]), and edits of it as the manifest stores them.
//! - [`picker`]: what to compact next.
//! - [`iterate`]: merging iterator, and iterator over a level.
//! - [`drop_rules`]: what may be left out, and why.
//! - [`job`]: one flush or compaction, a quantum at a time.
//!
//! Decisions here are pure functions of values and are tested as such. *Architecture invariants:* this crate knows
//! nothing of the engine, starts no thread, reads no clock, and reaches files only through `base::fs`.

pub mod drop_rules;
pub mod iterate;
pub mod job;
pub mod key_ranges;
pub mod picker;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tree_tests;
pub mod version;

pub use drop_rules::{DropCounts, DropReason, Snapshots};
pub use iterate::{LevelIterator, MergingIterator, TableOpener};
pub use job::{Flush, JobEnvironment, JobOutput, JobStatistics, MergeJob, Progress, Readers};
pub use key_ranges::KeyRanges;
pub use picker::{
    Claim, CompactionPlan, ManualCompaction, ManualStep, PickInputs, PlanKind, TreeShape, pick,
};
pub use version::{
    AcceptedEnd, BOTTOM_LEVEL, CatalogChange, FileMeta, ManifestState, Run, Version, VersionEdit, file_name,
};
