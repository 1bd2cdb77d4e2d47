//! Whole loads, into a target that keeps everything in memory.

mod equals_sorting;
mod messages;
mod support;
