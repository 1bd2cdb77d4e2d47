//! Typed rows with secondary indexes over an ordered store.

mod convert;
mod encoder;
mod evolution;
mod index_codec;
mod json;
mod key_codec;
mod row_codec;
mod schema;
mod schema_builder;
mod schema_codec;
mod temporal;
#[cfg(test)]
mod testing;
mod text;
mod tuple;
mod types;
mod value;
mod view;

pub use encoder::RowEncoder;
pub use json::Json;
pub use rust_decimal::Decimal;
pub use schema::{Column, ColumnId, Index, IndexId, IndexSchema, KeyPart, Schema, SchemaBuilder};
pub use schema_builder::NAME_BYTES_MAX;
pub use temporal::{Date, Time, Timestamp};
pub use text::ParseFailure;
pub use types::{DECIMAL_PRECISION_MAX, Type};
pub use uuid::Uuid;
pub use value::{Value, ValueRef};
pub use view::RowView;
