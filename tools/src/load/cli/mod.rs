//! The command line of `alluvium-load`.

pub mod size;
pub mod spec;
