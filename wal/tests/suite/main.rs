//! The log through its public interface. One file per kind of scenario.
#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "helpers of tests may panic like tests"
)]

mod basic;
mod concurrency;
mod crash;
mod damage;
mod engine;
mod failure;
mod measure;
mod recycling;
mod support;
