//! Typed rows with secondary indexes over an ordered store.
//!
//! - **Describe**: a [`Schema`] has typed columns, a primary key and indexes; the catalog keeps it as a
//!   [`TableDefinition`], which says everything needed to read the table. [`Row`](derive@Row) derives one from a struct.
//! - **Write**: a [`Batch`] records operations; its commit latches the rows, reads the old ones, checks, and hands the
//!   store one batch of rows and index entries that belong together (`commit.rs`). A bulk load encodes with
//!   [`RowEncoder`] instead.
//! - **Read**: [`Table::get`], or a scan by primary key or by a named index ([`Table::scan`]), planned by a pure function
//!   (`plan.rs`) and streamed.
//! - **Bytes**: keys sort as bytes like their values (`key_codec.rs`); rows and index entries are packed so that one
//!   column is read without the others (`tuple.rs`, `row_codec.rs`, `index_codec.rs`). `design/formats/row.md` has them
//!   byte by byte.
//!
//! *Architecture invariants.* Below is a [`Store`] and nothing else of the engine is visible: no thread, no file, no
//! clock. Nothing is collected or sorted behind the caller's back. A value is converted exactly or refused. What is
//! wrong with a row alone is an error when it is recorded; everything else comes from the commit, which happens
//! altogether or not at all.

mod as_value;
mod batch;
mod catalog;
mod commit;
mod continuation;
mod convert;
mod decoder;
mod encoder;
mod evolution;
mod explain;
mod index_check;
mod index_codec;
mod index_rebuild;
mod json;
mod key_codec;
mod key_decoder;
mod latches;
mod map_store;
mod overlay;
mod plan;
mod premise;
mod record;
mod row_codec;
mod scan;
mod schema;
mod schema_builder;
mod schema_codec;
mod schema_rules;
mod store;
mod table;
mod temporal;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod text;
mod transaction;
mod tuple;
mod types;
mod value;
mod view;

pub use alluvium_derive::Row;
pub use as_value::{AsValue, ColumnType, KeyValues};
pub use batch::{Batch, UpdateOutcome};
pub use catalog::{TableDefinition, alter_table, create_table, drop_table, find_table, list_tables};
pub use continuation::Continuation;
pub use decoder::{IndexEntry, RowDecoder};
pub use encoder::RowEncoder;
pub use explain::Explanation;
pub use index_check::{IndexCheck, IndexProblem, IndexReport};
pub use index_rebuild::IndexRebuild;
pub use json::Json;
pub use latches::{LatchClass, LatchGuard, Latches};
pub use map_store::{MapBatch, MapIter, MapSnapshot, MapStore, MapValue};
pub use overlay::OverlayIter;
pub use premise::{Premise, ReadRange};
pub use record::{Binding, DynamicRow, Row, TypedRow, check_same_schema};
pub use rust_decimal::Decimal;
pub use scan::{Scan, ScanBuilder};
pub use schema::{Column, ColumnId, Index, IndexId, IndexSchema, KeyPart, Schema, SchemaBuilder};
pub use schema_rules::NAME_BYTES_MAX;
pub use store::{CatalogChange, Store, StoreBatch, StoreIter};
pub use table::{RowRef, Table};
pub use temporal::{Date, Time, Timestamp};
pub use text::ParseFailure;
pub(crate) use transaction::Purpose;
pub use transaction::{Isolation, Transaction, TransactionValue};
pub use types::{DECIMAL_PRECISION_MAX, Type};
pub use uuid::Uuid;
pub use value::{Value, ValueRef};
pub use view::RowView;
