//! Table files and the block cache.
//!
//! A table is an immutable, sorted file of entries (full key, trailer, value) and range tombstones, with an index,
//! filters and properties. A [`TableWriter`] makes one from entries in order and says what it made
//! ([`TableSummary`]); a [`Table`] answers point reads, hands out iterators in both directions and verifies itself.
//! [`TableSplitter`] decides where an output of several tables is cut. Blocks are kept in the [`BlockCache`]
//! ([`cache`]), which all tables of a database share.
//!
//! *Architecture invariants.* This crate knows nothing of levels, logs or databases: it gets files as
//! [`File`](alluvium_base::fs::File)s and settings as a [`SettingsSource`]. Bytes that come from a file are believed
//! only after they are checked. The format is described byte by byte in `design/formats/table.md`.
#![cfg_attr(not(test), deny(clippy::indexing_slicing))]

mod block;
#[cfg_attr(
    not(test),
    expect(
        clippy::indexing_slicing,
        reason = "its indexes come from its own hashes and counts, never from a file"
    )
)]
pub mod cache;
mod cached;
mod compress;
mod filter;
mod footer;
mod frame;
#[doc(hidden)]
pub mod fuzzing;
mod iter;
mod properties;
mod settings;
mod splitter;
mod table;
mod writer;

pub use alluvium_base::key_range::KeyRange;
pub use cached::{BlockCache, CachedBlock, PinnedValue};
pub use footer::{FORMAT_VERSION, ends_like_a_table};
pub use frame::{BlockHandle, BlockKind};
pub use iter::{ReadPurpose, TableIterator};
pub use properties::{KeyspaceProperties, TableProperties, TableSummary};
pub use settings::{Compression, Fixed, KeyspaceSettings, SettingsSource};
pub use splitter::TableSplitter;
pub use table::{BlockInfo, Table, TableVerification};
pub use writer::TableWriter;
