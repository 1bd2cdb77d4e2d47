//! Alluvium: an embedded, write-optimised storage engine with typed rows and secondary indexes.
//!
//! A [`Db`] is one log-structured merge tree with one log, one manifest and one block cache. In it live *keyspaces*
//! (ordered maps from bytes to bytes, [`Db::keyspace`]) and *tables* of typed rows with secondary indexes
//! ([`Db::create_table`]), each of whose indexes is a keyspace.
//!
//! The way of a write: [`Db::write`] → admission ([`admission`]) → log → memtable ([`memtable`]) → visible → durable. The
//! way of a read: memtables, newest first → level 0 → deeper levels. In the background ([`executor`]) full memtables
//! are flushed to tables and tables are merged into deeper levels.
//!
//! `design/ARCHITECTURE.md` is the map of the house; `design/GLOSSARY.md` the words in it.
//!
//! *Architecture invariants.* This crate is the only one that starts threads, and only [`executor`] does; nothing blocks
//! but through [`base::sync`]; files are reached through [`base::fs`] only. So a whole database runs on one thread, on an
//! in-memory file system, in an order given by one seed ([`Environment::simulated`]).

pub use alluvium_base as base;
pub use alluvium_base::{Error, ErrorKind, Result};
pub use alluvium_sstable::Compression;
pub use alluvium_wal::RecoveryMode;

/// Doors to parsers that have no public one, for fuzz targets only. No part of the API.
#[doc(hidden)]
pub mod fuzzing {
    pub use alluvium_sstable::fuzzing as table;
    pub use alluvium_wal::fuzzing as log;
}

pub mod admission;
mod background;
pub mod backup;
mod batch;
mod bulk;
mod checkpoint;
mod commit;
mod db;
mod environment;
pub mod executor;
pub mod inspect;
mod iter;
mod keyspace;
mod layout;
mod lease;
mod manifest;
pub mod memtable;
mod new_directory;
mod obsolete;
mod open;
mod options;
mod parts;
mod premise;
mod read;
mod read_only;
mod read_state;
pub mod repair;
mod replay;
pub mod row;
mod snapshot;
mod statistics;
mod store;
mod table_store;
mod tables;
mod transactions;
mod tree;

pub use batch::RawBatch;
pub use bulk::{BulkLoad, BulkWriter, BulkWritten, Visit};
pub use checkpoint::Checkpoint;
pub use commit::CommitTicket;
pub use db::Db;
pub use environment::Environment;
pub use iter::Iter;
pub use keyspace::{Keyspace, Snapshot, WriteBatch};
pub use options::{Durability, Options};
pub use read_state::PinnedValue;
pub use row::{
    Continuation, Decimal, DynamicRow, Explanation, Index, Isolation, Row, RowView, Schema, Type, TypedRow,
    Value, ValueRef,
};
pub use statistics::{LevelStatistics, Statistics};
pub use tables::{Batch, Scan, ScanBuilder, Table};
pub use transactions::{
    Transaction, TransactionIter, TransactionKeyspace, TransactionOptions, TransactionValue,
};
pub use tree::BackgroundError;
