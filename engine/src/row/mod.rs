//! Typed rows with secondary indexes over an ordered store.

mod as_value;
mod catalog;
mod convert;
mod encoder;
mod evolution;
mod index_codec;
mod json;
mod key_codec;
mod latches;
mod map_store;
mod row_codec;
mod schema;
mod schema_builder;
mod schema_codec;
mod store;
mod temporal;
#[cfg(test)]
mod testing;
mod text;
mod tuple;
mod types;
mod value;
mod view;

pub use as_value::{AsValue, ColumnType, KeyValues};
pub use catalog::{TableDefinition, alter_table, create_table, drop_table, find_table, list_tables};
pub use encoder::RowEncoder;
pub use json::Json;
pub use latches::{LatchClass, LatchGuard, Latches};
pub use map_store::{MapBatch, MapIter, MapSnapshot, MapStore, MapValue};
pub use rust_decimal::Decimal;
pub use schema::{Column, ColumnId, Index, IndexId, IndexSchema, KeyPart, Schema, SchemaBuilder};
pub use schema_builder::NAME_BYTES_MAX;
pub use store::{CatalogChange, Store, StoreBatch, StoreIter};
pub use temporal::{Date, Time, Timestamp};
pub use text::ParseFailure;
pub use types::{DECIMAL_PRECISION_MAX, Type};
pub use uuid::Uuid;
pub use value::{Value, ValueRef};
pub use view::RowView;
