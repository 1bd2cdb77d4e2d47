//! The vocabulary that every crate of Alluvium shares.
//!
//! Here live the things that two or more crates must agree on to the letter: how a key sorts ([`key`]), what an
//! error says ([`error`]), how bytes are framed and checked ([`coding`], [`checksum`]), how the machine is reached
//! ([`fs`], [`clock`]), how anything waits ([`sync`]), and every limit as a named constant ([`limits`]).
//!
//! *Architecture invariants.* This crate depends on no other crate of the workspace. Only [`fs`] names `std::fs` or
//! maps memory, only [`clock`] reads the clock, only [`sync`] blocks a thread. Everything above gets those three as
//! values, so that a test can fail, delay, lose or reorder anything, and a simulation can replay it from one seed.

#[cfg(not(all(target_pointer_width = "64", target_endian = "little")))]
compile_error!(
    "Alluvium supports 64-bit little-endian targets only: its memory layouts and file mappings assume both"
);

pub mod checksum;
pub mod clock;
pub mod coding;
pub mod error;
pub mod fs;
pub mod iter;
pub mod key;
pub mod key_range;
pub mod limits;
pub mod memory;
pub mod metrics;
pub mod random;
pub mod range_tombstone;
pub mod rate_limiter;
pub mod sync;

pub use error::{Error, ErrorKind, Result};
pub use key_range::KeyRange;
