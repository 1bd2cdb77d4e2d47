//! Whole loads, into a target that keeps everything in memory.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that cannot go on fails")]

mod equals_sorting;
mod messages;
mod support;
