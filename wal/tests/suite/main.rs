//! The log through its public interface. One file per kind of scenario.
#![expect(clippy::unwrap_used, reason = "helpers of tests may panic like tests")]

mod basic;
mod support;
