//! Placeholder while the crate is being written.

pub mod memtable;
pub mod row;
