//! Levels, picking, merging and dropping: everything about the shape of the tree and how it changes.
//!
//! - [`version`]: which files make up the tree ([`Version`]), and edits of it as the manifest stores them.
//!
//! Decisions here are pure functions of values and are tested as such. *Architecture invariants:* this crate knows
//! nothing of the engine, starts no thread, reads no clock, and reaches files only through `base::fs`.

pub mod drop_rules;
pub mod iterate;
pub mod key_ranges;
pub mod picker;
mod summary;
#[cfg(test)]
mod testing;
pub mod version;

pub use iterate::{ConcatIterator, MergingIterator};
pub use key_ranges::KeyRanges;
pub use summary::{KeyspaceProperties, TableSummary};
pub use version::{
    AcceptedEnd, BOTTOM_LEVEL, CatalogChange, FileMeta, ManifestState, Run, Version, VersionEdit, file_name,
};
