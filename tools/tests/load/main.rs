//! Whole loads, into a target that keeps everything in memory.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod command;
mod equals_sorting;
mod flights;
mod inputs;
mod messages;
mod process;
mod support;
