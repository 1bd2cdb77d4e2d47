//! External sort of index entries within one memory budget.
//!
//! There is one sort per *target*: the primary index (target 0) and each secondary index.
//!
//! 1. Each worker appends (key, value, place) to a [`buffer::Buffer`] of its own per target. A full buffer is sealed:
//!    sorted in place, which makes it a run in memory.
//! 2. Runs gather in the [`store::RunStore`]. When they exceed their share of the budget, the worker that noticed
//!    merges the runs of the largest target into one run on disk ([`spill`]).
//! 3. At the end [`merge::Merge`] walks all runs of a target as one sorted sequence. It borrows the runs, so they can
//!    be walked more than once: the search for duplicates is a walk that writes nothing.
//!
//! Input that fits the budget never touches the disk. Equal keys come out next to each other in the order of their
//! places, whatever thread read them: the outcome does not depend on timing.

pub mod budget;
pub mod buffer;
pub mod merge;
pub mod spill;
pub mod store;
