//! Building schemas.
//!
//! The builder only records; [`SchemaBuilder::build`] resolves names to numbers and then checks everything with
//! [`validate`].

use alluvium_base::Result;

use super::convert::type_mismatch;
use super::schema::{Column, ColumnId, IndexId, IndexSchema, KeyPart, Schema, mismatch};
use super::schema_rules::validate;
use super::types::Type;
use super::value::Value;

/// One key column by name.
#[derive(Clone, Debug)]
struct NamedPart {
    column: String,
    descending: bool,
    prefix: Option<u32>,
}

/// An index to be: columns by name.
///
/// ```
/// use alluvium::row::Index;
/// let recent = Index::on("recent").asc("tenant").desc("placed").include(["total"]);
/// let by_email = Index::on("by_email").asc("email").unique();
/// let by_note = Index::on("by_note").prefix("note", 16);
/// ```
#[derive(Clone, Debug)]
pub struct Index {
    name: String,
    parts: Vec<NamedPart>,
    unique: bool,
    include: Vec<String>,
}

impl Index {
    /// An index of this name, without columns yet. Its columns follow, most significant first.
    #[must_use]
    pub fn on(name: impl Into<String>) -> Index {
        Index { name: name.into(), parts: Vec::new(), unique: false, include: Vec::new() }
    }

    /// Sorts by `column` next, ascending; NULL comes first.
    #[must_use]
    pub fn asc(self, column: impl Into<String>) -> Index {
        self.part(column, false, None)
    }

    /// Sorts by `column` next, descending; NULL comes last.
    #[must_use]
    pub fn desc(self, column: impl Into<String>) -> Index {
        self.part(column, true, None)
    }

    /// Sorts by the first `len` characters (of text) or bytes of `column` next, ascending.
    #[must_use]
    pub fn prefix(self, column: impl Into<String>, len: u32) -> Index {
        self.part(column, false, Some(len))
    }

    /// Sorts by `column` next, with everything given explicitly: for tools.
    #[must_use]
    pub fn part(mut self, column: impl Into<String>, descending: bool, prefix: Option<u32>) -> Index {
        self.parts.push(NamedPart { column: column.into(), descending, prefix });
        self
    }

    /// No two rows may have the same key. Keys with a NULL never collide; of a prefix part only the prefix counts.
    #[must_use]
    pub fn unique(mut self) -> Index {
        self.unique = true;
        self
    }

    /// Lets entries carry these columns, so that a scan that needs only them and the key does not read the row.
    #[must_use]
    pub fn include<I: IntoIterator<Item = N>, N: Into<String>>(mut self, columns: I) -> Index {
        self.include.extend(columns.into_iter().map(Into::into));
        self
    }
}

/// A schema in the making; see [`Schema::table`].
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until build() is called"]
pub struct SchemaBuilder {
    table: String,
    columns: Vec<Column>,
    primary_key: Vec<String>,
    indexes: Vec<Index>,
    /// `default` was called before any column.
    stray_default: bool,
}

impl SchemaBuilder {
    pub(super) fn new(table: String) -> SchemaBuilder {
        SchemaBuilder {
            table,
            columns: Vec::new(),
            primary_key: Vec::new(),
            indexes: Vec::new(),
            stray_default: false,
        }
    }

    /// Adds a column that always has a value.
    pub fn column(self, name: impl Into<String>, ty: Type) -> SchemaBuilder {
        self.add_column(name, ty, false)
    }

    /// Adds a column that can be NULL.
    pub fn nullable(self, name: impl Into<String>, ty: Type) -> SchemaBuilder {
        self.add_column(name, ty, true)
    }

    /// Adds a column, with everything given explicitly: for tools.
    pub fn add_column(mut self, name: impl Into<String>, ty: Type, nullable: bool) -> SchemaBuilder {
        let id = ColumnId(self.columns.len() as u32);
        self.columns.push(Column { id, name: name.into(), ty, nullable, default: None, added_in: 1 });
        self
    }

    /// Gives the column added last a default: what a row gets that does not name the column.
    pub fn default(mut self, value: impl Into<Value>) -> SchemaBuilder {
        match self.columns.last_mut() {
            Some(column) => column.default = Some(value.into()),
            None => self.stray_default = true,
        }
        self
    }

    /// The columns of the primary key, most significant first.
    pub fn primary_key<I: IntoIterator<Item = N>, N: Into<String>>(mut self, columns: I) -> SchemaBuilder {
        self.primary_key = columns.into_iter().map(Into::into).collect();
        self
    }

    /// Adds a secondary index.
    pub fn index(mut self, index: Index) -> SchemaBuilder {
        self.indexes.push(index);
        self
    }

    /// Checks everything and makes the schema, with version 1.
    ///
    /// # Errors
    /// `SchemaMismatch` that says what is wrong: no columns or no primary key, a name that is used twice or unknown, a
    /// key over a JSON or (for the primary key) nullable column, a prefix of something that has none, a default of
    /// another type, too many columns or indexes.
    pub fn build(self) -> Result<Schema> {
        if self.stray_default {
            return Err(mismatch(&self.table, "a default was given before any column"));
        }
        let mut schema = Schema {
            table: self.table,
            version: 1,
            next_column: self.columns.len() as u32,
            columns: self.columns,
            dropped: Vec::new(),
            primary_key: Vec::new(),
            indexes: Vec::new(),
            next_index: 0,
        };
        for name in &self.primary_key {
            let column = resolve(&schema, name, "the primary key")?;
            schema.primary_key.push(KeyPart { column, descending: false, prefix: None });
        }
        for index in &self.indexes {
            push_index(&mut schema, index)?;
        }
        canonical_defaults(&mut schema)?;
        validate(&schema)?;
        Ok(schema)
    }
}

/// Gives `index` the next number and adds it to `schema`; the caller validates.
pub(super) fn push_index(schema: &mut Schema, index: &Index) -> Result<()> {
    let place = format!("index {}", index.name);
    let mut parts = Vec::with_capacity(index.parts.len());
    for part in &index.parts {
        let column = resolve(schema, &part.column, &place)?;
        parts.push(KeyPart { column, descending: part.descending, prefix: part.prefix });
    }
    let include = index.include.iter().map(|name| resolve(schema, name, &place)).collect::<Result<_>>()?;
    let id = IndexId(schema.next_index);
    schema.next_index = id.0.checked_add(1).ok_or_else(|| schema.mismatch("index numbers are used up"))?;
    schema.indexes.push(IndexSchema { id, name: index.name.clone(), parts, unique: index.unique, include });
    Ok(())
}

fn resolve(schema: &Schema, name: &str, place: &str) -> Result<ColumnId> {
    let column = schema.column(name);
    column
        .map(Column::id)
        .ok_or_else(|| schema.mismatch(format!("{place} names column {name}, which does not exist")))
}

/// Brings every default into the canonical form of its column.
pub(super) fn canonical_defaults(schema: &mut Schema) -> Result<()> {
    for column in &mut schema.columns {
        if let Some(default) = &column.default {
            let canonical = default.coerce(column.ty);
            let canonical = canonical.ok_or_else(|| type_mismatch(&column.name, column.ty, default.as_ref()));
            column.default =
                Some(canonical.map_err(|error| mismatch(&schema.table, format!("default: {error}")))?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use alluvium_base::limits;

    use super::*;

    fn base() -> SchemaBuilder {
        Schema::table("t").column("id", Type::U64).nullable("note", Type::Text).column("doc", Type::Json)
    }

    fn refused(builder: SchemaBuilder) -> String {
        builder.build().unwrap_err().to_string()
    }

    #[test]
    fn each_mistake_is_named() {
        let keyed = || base().primary_key(["id"]);
        for (builder, expected) in [
            (Schema::table("t"), "a table needs at least one column"),
            (base(), "a table needs a primary key"),
            (base().primary_key(["nope"]), "the primary key names column nope, which does not exist"),
            (base().primary_key(["id", "id"]), "the primary key names column id twice"),
            (base().primary_key(["note"]), "column note is part of the primary key and must not be nullable"),
            (
                base().primary_key(["doc"]),
                "the primary key names column doc, but json has no order to sort by",
            ),
            (keyed().column("id", Type::U8), "two columns are called id"),
            (
                keyed().column("", Type::U8),
                "column name \"\" is not usable; a name has 1 to 255 bytes and no control characters",
            ),
            (
                keyed().column("x", Type::U8).default(300),
                "default: column x holds u8, but the value is integer 300",
            ),
            (
                keyed().column("x", Type::U8).default(Value::Null),
                "column x has the default NULL but is not nullable",
            ),
            (keyed().index(Index::on("i")), "index i has no columns"),
            (keyed().index(Index::on("i").asc("nope")), "index i names column nope, which does not exist"),
            (keyed().index(Index::on("i").asc("id").desc("id")), "index i names column id twice"),
            (
                keyed().index(Index::on("i").prefix("id", 2)),
                "index i has a prefix of column id, but u64 has none; only text and bytes have",
            ),
            (
                keyed().index(Index::on("i").prefix("note", 0)),
                "index i has a prefix of length 0 of column note",
            ),
            (
                keyed().index(Index::on("i").asc("id").include(["doc", "doc"])),
                "index i includes column doc twice",
            ),
            (
                keyed().index(Index::on("i").asc("id")).index(Index::on("i").asc("note")),
                "two indexes are called i",
            ),
            (
                keyed().column("d", Type::Decimal { precision: 3, scale: 4 }),
                "column d is decimal(3,4); a decimal has 1 to 28 digits, of which at most all are behind the point",
            ),
        ] {
            assert_eq!(refused(builder), format!("schema of t: {expected}"));
        }
        assert!(refused(Schema::table("t").default(1).column("id", Type::U8)).contains("before any column"));
    }

    #[test]
    fn too_many_columns_or_indexes_are_refused() {
        let many =
            (0..=limits::COLUMNS_MAX).fold(Schema::table("t"), |b, i| b.column(format!("c{i}"), Type::U8));
        assert!(refused(many.primary_key(["c0"])).contains("4097 columns"));
        let many =
            (0..=limits::INDEXES_MAX).fold(base(), |b, i| b.index(Index::on(format!("i{i}")).asc("id")));
        assert!(refused(many.primary_key(["id"])).contains("257 indexes"));
    }

    #[test]
    fn defaults_are_brought_into_canonical_form() {
        let schema = base()
            .column("x", Type::I16)
            .default(5u64)
            .column("y", Type::F64)
            .default(-0.0)
            .primary_key(["id"]);
        let schema = schema.build().unwrap();
        assert!(matches!(schema.column("x").unwrap().default_value(), Some(Value::Int(5))));
        assert_eq!(schema.column("y").unwrap().default_value().unwrap().to_string(), "0");
        assert_eq!(schema.column("id").unwrap().default_value(), None);
        assert_eq!(schema.column("note").unwrap().default_value(), Some(Value::Null));
    }
}
