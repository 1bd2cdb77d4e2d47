//! Schemas: what a table's rows look like and which indexes it has.
//!
//! A schema is a value: built with [`Schema::table`], validated once in [`build`](SchemaBuilder::build), never changed
//! afterwards. A change of a table makes a new schema with the next version (see [`super::evolution`]).
//!
//! *Invariants.* A column is its number ([`ColumnId`]), an index is its number ([`IndexId`]); numbers are never reused
//! and names can change. A row carries the version of the schema it was written under, and [`Schema::columns_at`]
//! tells which columns rows of any earlier version have: a column knows since when it exists, and a dropped one until
//! when. So rows are never rewritten because of a change of schema. Columns of the primary key are in every version.

use std::fmt;

use alluvium_base::{Error, ErrorKind, Result};

use super::types::Type;
use super::value::Value;

pub use super::schema_builder::{Index, SchemaBuilder};

/// The number of a column within its table. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ColumnId(pub u32);

/// The number of an index within its table. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IndexId(pub u32);

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Column {
    pub(super) id: ColumnId,
    pub(super) name: String,
    pub(super) ty: Type,
    pub(super) nullable: bool,
    pub(super) default: Option<Value>,
    pub(super) added_in: u32,
}

impl Column {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> ColumnId {
        self.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its type.
    #[must_use]
    pub fn ty(&self) -> Type {
        self.ty
    }

    /// True if it can hold NULL.
    #[must_use]
    pub fn is_nullable(&self) -> bool {
        self.nullable
    }

    /// What a row that does not name the column gets, and what rows older than the column have: its default, or NULL
    /// for a nullable column without one. `None` if a value must be given.
    #[must_use]
    pub fn default_value(&self) -> Option<Value> {
        self.default.clone().or_else(|| self.nullable.then_some(Value::Null))
    }

    /// The version of the schema that brought the column.
    #[must_use]
    pub fn added_in(&self) -> u32 {
        self.added_in
    }
}

/// What is left of a dropped column: enough to step over it in old rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DroppedColumn {
    pub(super) id: ColumnId,
    pub(super) ty: Type,
    pub(super) nullable: bool,
    pub(super) added_in: u32,
    /// First version without the column.
    pub(super) dropped_in: u32,
}

/// A column as rows of one schema version store it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredColumn {
    pub(super) id: ColumnId,
    pub(super) ty: Type,
    pub(super) nullable: bool,
}

/// One column of a key, with its direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyPart {
    pub(super) column: ColumnId,
    pub(super) descending: bool,
    pub(super) prefix: Option<u32>,
}

impl KeyPart {
    /// The column.
    #[must_use]
    pub fn column(&self) -> ColumnId {
        self.column
    }

    /// True if greater values come first.
    #[must_use]
    pub fn is_descending(&self) -> bool {
        self.descending
    }

    /// If only the beginning of the value is part of the key: its length, in characters of text or in bytes.
    #[must_use]
    pub fn prefix_len(&self) -> Option<u32> {
        self.prefix
    }
}

/// A secondary index of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSchema {
    pub(super) id: IndexId,
    pub(super) name: String,
    pub(super) parts: Vec<KeyPart>,
    pub(super) unique: bool,
    pub(super) include: Vec<ColumnId>,
}

impl IndexSchema {
    /// Its number.
    #[must_use]
    pub fn id(&self) -> IndexId {
        self.id
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The columns that it sorts by, most significant first.
    #[must_use]
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// True if no two rows may have the same key in it. Keys with a NULL are never the same; of a prefix part only
    /// the prefix counts.
    #[must_use]
    pub fn is_unique(&self) -> bool {
        self.unique
    }

    /// Further columns that its entries carry, so that a scan that needs only them does not read the row.
    #[must_use]
    pub fn include(&self) -> &[ColumnId] {
        &self.include
    }
}

/// The description of a table.
///
/// ```
/// use alluvium::row::{Index, Schema, Type};
/// let orders = Schema::table("orders")
///     .column("tenant", Type::U32)
///     .column("id", Type::U64)
///     .column("email", Type::Text)
///     .column("placed", Type::Timestamp)
///     .column("total", Type::Decimal { precision: 12, scale: 2 })
///     .nullable("note", Type::Bytes)
///     .primary_key(["tenant", "id"])
///     .index(Index::on("by_email").asc("tenant").asc("email").unique())
///     .index(Index::on("recent").asc("tenant").desc("placed").include(["total"]))
///     .index(Index::on("by_note").prefix("note", 16))
///     .build()?;
/// assert_eq!(orders.columns().len(), 6);
/// assert_eq!(orders.index("recent").map(|index| index.parts().len()), Some(2));
/// # Ok::<(), alluvium_base::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schema {
    pub(super) table: String,
    pub(super) version: u32,
    pub(super) columns: Vec<Column>,
    pub(super) dropped: Vec<DroppedColumn>,
    pub(super) primary_key: Vec<KeyPart>,
    pub(super) indexes: Vec<IndexSchema>,
    pub(super) next_column: u32,
    pub(super) next_index: u32,
}

impl Schema {
    /// Starts the schema of a new table.
    pub fn table(name: impl Into<String>) -> SchemaBuilder {
        SchemaBuilder::new(name.into())
    }

    /// Name of the table.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.table
    }

    /// Version of the schema: 1 for a new table, one more with each change.
    #[must_use]
    pub fn version(&self) -> u32 {
        self.version
    }

    /// The columns, in the order in which they were declared or added. A *position* is an index into this.
    #[must_use]
    pub fn columns(&self) -> &[Column] {
        &self.columns
    }

    /// The primary key, most significant column first.
    #[must_use]
    pub fn primary_key(&self) -> &[KeyPart] {
        &self.primary_key
    }

    /// The secondary indexes.
    #[must_use]
    pub fn indexes(&self) -> &[IndexSchema] {
        &self.indexes
    }

    /// The index of this name.
    #[must_use]
    pub fn index(&self, name: &str) -> Option<&IndexSchema> {
        self.indexes.iter().find(|index| index.name == name)
    }

    /// The column of this name.
    #[must_use]
    pub fn column(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// Position of the column of this name.
    #[must_use]
    pub fn position(&self, name: &str) -> Option<usize> {
        self.columns.iter().position(|column| column.name == name)
    }

    /// Position of the column of this name.
    ///
    /// # Errors
    /// `NotFound` if there is none; it lists the columns that there are.
    pub fn require_position(&self, name: &str) -> Result<usize> {
        self.position(name).ok_or_else(|| {
            let names: Vec<&str> = self.columns.iter().map(Column::name).collect();
            Error::not_found(format!("column {name} in {}; it has {}", self.table, names.join(", ")))
        })
    }

    /// The index of this name.
    ///
    /// # Errors
    /// `NotFound` if there is none; it lists the indexes that there are.
    pub fn require_index(&self, name: &str) -> Result<&IndexSchema> {
        self.index(name).ok_or_else(|| {
            let names: Vec<&str> = self.indexes.iter().map(IndexSchema::name).collect();
            Error::not_found(format!("index {name} on {}; it has {}", self.table, names.join(", ")))
        })
    }

    /// Position of the column with this number; `None` if it has been dropped.
    #[must_use]
    pub fn position_of(&self, id: ColumnId) -> Option<usize> {
        self.columns.iter().position(|column| column.id == id)
    }

    /// Name of the column with this number (`#n` if it has been dropped).
    pub(super) fn column_name(&self, id: ColumnId) -> String {
        self.columns
            .iter()
            .find(|column| column.id == id)
            .map_or_else(|| format!("#{}", id.0), |c| c.name.clone())
    }

    /// True if the column is part of the primary key: then it lives in the key and not in the row.
    pub(super) fn is_primary(&self, id: ColumnId) -> bool {
        self.primary_key.iter().any(|part| part.column == id)
    }

    /// The columns that rows written under `version` store, by ascending number. Columns of the primary key are not
    /// among them.
    pub(super) fn columns_at(&self, version: u32) -> Vec<StoredColumn> {
        let live = self
            .columns
            .iter()
            .filter(|column| column.added_in <= version && !self.is_primary(column.id))
            .map(|column| StoredColumn { id: column.id, ty: column.ty, nullable: column.nullable });
        let dropped = self
            .dropped
            .iter()
            .filter(|column| column.added_in <= version && version < column.dropped_in)
            .map(|column| StoredColumn { id: column.id, ty: column.ty, nullable: column.nullable });
        let mut stored: Vec<StoredColumn> = live.chain(dropped).collect();
        stored.sort_unstable_by_key(|column| column.id);
        stored
    }

    /// The error that says that this schema is not valid or not the expected one.
    pub(super) fn mismatch(&self, difference: impl Into<String>) -> Error {
        mismatch(&self.table, difference)
    }
}

/// A `SchemaMismatch` of `table`.
pub(super) fn mismatch(table: &str, difference: impl Into<String>) -> Error {
    ErrorKind::SchemaMismatch { table: table.to_owned(), difference: difference.into() }.into()
}

impl fmt::Display for Schema {
    /// The schema as a person would write it down, one column, key or index per line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "table {} (version {})", self.table, self.version)?;
        for column in &self.columns {
            write!(f, "  {} {}", column.name, column.ty)?;
            if column.nullable {
                write!(f, " null")?;
            }
            if let Some(default) = &column.default {
                write!(f, " default {default}")?;
            }
            writeln!(f)?;
        }
        writeln!(f, "  primary key ({})", self.show_parts(&self.primary_key))?;
        for index in &self.indexes {
            writeln!(f, "  {}", self.show_index(index))?;
        }
        Ok(())
    }
}

impl Schema {
    /// An index as text: `unique index i (a, b desc) include (c)`.
    #[must_use]
    pub fn show_index(&self, index: &IndexSchema) -> String {
        let unique = if index.unique { "unique " } else { "" };
        let mut text = format!("{unique}index {} ({})", index.name, self.show_parts(&index.parts));
        if !index.include.is_empty() {
            let names: Vec<String> = index.include.iter().map(|&id| self.column_name(id)).collect();
            text.push_str(&format!(" include ({})", names.join(", ")));
        }
        text
    }

    /// Key parts as text: `tenant, placed desc, note:16`.
    #[must_use]
    pub fn show_parts(&self, parts: &[KeyPart]) -> String {
        let show = |part: &KeyPart| {
            let prefix = part.prefix.map_or_else(String::new, |len| format!(":{len}"));
            let direction = if part.descending { " desc" } else { "" };
            format!("{}{prefix}{direction}", self.column_name(part.column))
        };
        parts.iter().map(show).collect::<Vec<_>>().join(", ")
    }
}
