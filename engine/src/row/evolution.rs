//! Changes of a schema: each makes a new schema with the next version and leaves every stored row as it is.
//!
//! A column that is added is filled in, when an older row is read, by the default it was added with. A column that is
//! dropped stays known by number and type, so that older rows can be stepped over. A column that is renamed keeps its
//! number. A column that a key or an index uses cannot be dropped: drop the index first.

use alluvium_base::Result;

use super::schema::{Column, ColumnId, DroppedColumn, IndexSchema, Schema};
use super::schema_builder::{Index, canonical_defaults, push_index};
use super::schema_rules::validate;
use super::types::Type;
use super::value::Value;

impl Schema {
    fn successor(&self) -> Result<Schema> {
        let version =
            self.version.checked_add(1).ok_or_else(|| self.mismatch("schema versions are used up"))?;
        Ok(Schema { version, ..self.clone() })
    }

    /// The schema with another column behind the others. Rows that are there already have `default` in it, or NULL.
    ///
    /// # Errors
    /// `SchemaMismatch` if the name is taken, or if the column is neither nullable nor has a default.
    pub fn with_column(
        &self,
        name: &str,
        ty: Type,
        nullable: bool,
        default: Option<Value>,
    ) -> Result<Schema> {
        if !nullable && default.is_none() {
            return Err(
                self.mismatch(format!("column {name} needs a default, since rows without it may exist"))
            );
        }
        let mut schema = self.successor()?;
        let id = ColumnId(schema.next_column);
        schema.next_column =
            id.0.checked_add(1).ok_or_else(|| self.mismatch("column numbers are used up"))?;
        let added_in = schema.version;
        schema.columns.push(Column { id, name: name.to_owned(), ty, nullable, default, added_in });
        canonical_defaults(&mut schema)?;
        validate(&schema)?;
        Ok(schema)
    }

    /// The schema without a column.
    ///
    /// # Errors
    /// `NotFound` if there is no such column; `SchemaMismatch` if the primary key or an index uses it.
    pub fn without_column(&self, name: &str) -> Result<Schema> {
        let position = self.require_position(name)?;
        let mut schema = self.successor()?;
        let Column { id, ty, nullable, added_in, .. } = schema.columns.remove(position);
        if self.is_primary(id) {
            return Err(self.mismatch(format!("column {name} is part of the primary key")));
        }
        let uses = |index: &&IndexSchema| {
            index.parts.iter().any(|part| part.column == id) || index.include.contains(&id)
        };
        if let Some(index) = self.indexes.iter().find(uses) {
            return Err(
                self.mismatch(format!("column {name} is used by index {}; drop that first", index.name))
            );
        }
        schema.dropped.push(DroppedColumn { id, ty, nullable, added_in, dropped_in: schema.version });
        validate(&schema)?;
        Ok(schema)
    }

    /// The schema with a column under another name.
    ///
    /// # Errors
    /// `NotFound` if there is no such column; `SchemaMismatch` if the new name is taken.
    pub fn with_renamed_column(&self, from: &str, to: &str) -> Result<Schema> {
        let position = self.require_position(from)?;
        let mut schema = self.successor()?;
        if let Some(column) = schema.columns.get_mut(position) {
            column.name = to.to_owned();
        }
        validate(&schema)?;
        Ok(schema)
    }

    /// The schema with another index. Filling it is the caller's business.
    ///
    /// # Errors
    /// `SchemaMismatch` if the index is not valid or its name is taken.
    pub fn with_index(&self, index: &Index) -> Result<Schema> {
        let mut schema = self.successor()?;
        push_index(&mut schema, index)?;
        validate(&schema)?;
        Ok(schema)
    }

    /// The schema without an index.
    ///
    /// # Errors
    /// `NotFound` if there is no such index.
    pub fn without_index(&self, name: &str) -> Result<Schema> {
        let id = self.require_index(name)?.id;
        let mut schema = self.successor()?;
        schema.indexes.retain(|index| index.id != id);
        Ok(schema)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base() -> Schema {
        Schema::table("t")
            .column("id", Type::U64)
            .column("a", Type::U8)
            .nullable("b", Type::Text)
            .primary_key(["id"])
            .index(Index::on("by_b").asc("b").include(["a"]))
            .build()
            .unwrap()
    }

    fn stored(schema: &Schema, version: u32) -> Vec<u32> {
        schema.columns_at(version).iter().map(|column| column.id.0).collect()
    }

    #[test]
    fn every_version_keeps_its_columns() {
        let schema = base().with_column("c", Type::I32, false, Some(Value::from(7))).unwrap();
        let schema = schema.without_index("by_b").unwrap().without_column("a").unwrap();
        let schema = schema.with_renamed_column("b", "a").unwrap();
        assert_eq!(schema.version(), 5);
        assert_eq!(stored(&schema, 1), [1, 2]);
        assert_eq!(stored(&schema, 2), [1, 2, 3]);
        assert_eq!(stored(&schema, 3), [1, 2, 3]);
        assert_eq!(stored(&schema, 4), [2, 3]);
        assert_eq!(schema.column("a").unwrap().id(), ColumnId(2));
    }

    #[test]
    fn numbers_are_never_reused() {
        let schema = base().without_index("by_b").unwrap().with_index(&Index::on("by_b").asc("b")).unwrap();
        assert_eq!(schema.index("by_b").unwrap().id().0, 1);
        let schema = schema.without_column("a").unwrap().with_column("a", Type::U8, true, None).unwrap();
        assert_eq!(schema.column("a").unwrap().id(), ColumnId(3));
    }

    #[test]
    fn changes_that_would_break_rows_or_indexes_are_refused() {
        let refused = |result: Result<Schema>| result.unwrap_err().to_string();
        assert!(refused(base().with_column("c", Type::U8, false, None)).contains("column c needs a default"));
        assert!(refused(base().with_column("a", Type::U8, true, None)).contains("two columns are called a"));
        assert!(refused(base().without_column("id")).contains("part of the primary key"));
        assert!(refused(base().without_column("a")).contains("used by index by_b"));
        assert!(refused(base().without_column("x")).contains("no column x in t; it has id, a, b"));
        assert!(refused(base().with_renamed_column("a", "b")).contains("two columns are called b"));
        assert!(refused(base().without_index("x")).contains("no index x on t; it has by_b"));
        assert!(
            refused(base().with_index(&Index::on("by_b").asc("a"))).contains("two indexes are called by_b")
        );
    }
}
