//! Placeholder while the crate is being written.

pub mod cache;
