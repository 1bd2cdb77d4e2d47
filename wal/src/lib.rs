//! The write-ahead log: one sequence of 64-bit addresses, never reused.
//!
//! A record is copied to its address in the *ring* under one short lock; that is all that a commit needs to survive
//! a crash of the process. The ring drains in whole pages into *segments*, files that are filled ahead of need and
//! used again; only segments are synced, one group of waiters at a time. [`recover`] reads ring and segments after a
//! crash of the process (same boot), or segments alone after a crash of the machine (another boot), and tells damage
//! from a torn tail.
//!
//! ```text
//! append ─ memcpy ─▶ ring ─ drain: pwrite ≤ 64 KiB ─▶ segments ─ sync: fdatasync ─▶ durable
//! ```
//!
//! Where things are: [`Log`] is in `log` (append), `drain` (ring to segments), `group` (sync), `supply` (segments
//! ahead of need and after use), `failure` (what follows a failed write); the bytes in `format`, `files`, `ring`;
//! reading in `recovery` and `dump`.
//!
//! *Architecture invariants.* The log does not know what its payloads mean, nor of tables or levels. It starts no
//! thread: whoever needs a drain or a sync and finds nobody at it, does it. No I/O happens under a lock that an append
//! needs. Waiting goes through [`WaitPoint`](alluvium_base::sync::WaitPoint) only, and a turn (drain, sync,
//! preparation) is never held by someone who waits for an append, so the log also runs on the one thread of a
//! simulation.
//!
//! The format is drawn in `design/formats/log.md`; why it is so stands in `design/decisions/`.

mod drain;
mod dump;
mod failure;
mod files;
mod format;
#[doc(hidden)]
pub mod fuzzing;
mod group;
mod log;
mod recovery;
mod ring;
mod statistics;
mod supply;

pub use dump::{DumpItem, RecordInfo, RingInfo, SegmentInfo, SegmentState, dump, place_of};
pub use failure::LogFailure;
pub use format::RecordKind;
pub use log::{Appended, Log, LogOptions};
pub use recovery::{
    DroppedRange, RecoveredRecord, RecoveryMode, RecoveryOptions, RecoveryReport, RecoverySource, recover,
};
pub use statistics::LogStatistics;
