//! The rules that every schema keeps, wherever it comes from: a builder, a change, or the catalog.

use std::collections::HashSet;

use alluvium_base::{Result, limits};

use super::schema::{IndexSchema, KeyPart, Schema};
use super::types::DECIMAL_PRECISION_MAX;
use super::value::Value;

/// Longest name of a table, column or index, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Every rule that a schema keeps.
pub(super) fn validate(schema: &Schema) -> Result<()> {
    check_name(schema, "table", &schema.table)?;
    check_columns(schema)?;
    check_primary_key(schema)?;
    if schema.indexes.len() > limits::INDEXES_MAX {
        return Err(schema.mismatch(format!(
            "{} indexes; at most {} are allowed",
            schema.indexes.len(),
            limits::INDEXES_MAX
        )));
    }
    let mut names = HashSet::new();
    let mut ids = HashSet::new();
    for index in &schema.indexes {
        check_name(schema, "index", &index.name)?;
        if !names.insert(index.name.as_str()) {
            return Err(schema.mismatch(format!("two indexes are called {}", index.name)));
        }
        if !ids.insert(index.id) || index.id.0 >= schema.next_index {
            return Err(schema.mismatch(format!("index {} has a number that is not its own", index.name)));
        }
        check_index(schema, index)?;
    }
    Ok(())
}

fn check_name(schema: &Schema, what: &str, name: &str) -> Result<()> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX || name.chars().any(char::is_control) {
        return Err(schema.mismatch(format!(
            "{what} name {name:?} is not usable; a name has 1 to {NAME_BYTES_MAX} bytes and no control characters"
        )));
    }
    Ok(())
}

fn check_columns(schema: &Schema) -> Result<()> {
    if schema.columns.is_empty() {
        return Err(schema.mismatch("a table needs at least one column"));
    }
    if schema.columns.len() > limits::COLUMNS_MAX {
        let (found, max) = (schema.columns.len(), limits::COLUMNS_MAX);
        return Err(schema.mismatch(format!("{found} columns; at most {max} are allowed")));
    }
    let mut names = HashSet::new();
    let mut ids = HashSet::new();
    for column in &schema.columns {
        check_name(schema, "column", &column.name)?;
        if !names.insert(column.name.as_str()) {
            return Err(schema.mismatch(format!("two columns are called {}", column.name)));
        }
        if !ids.insert(column.id) || column.id.0 >= schema.next_column {
            return Err(schema.mismatch(format!("column {} has a number that is not its own", column.name)));
        }
        if !column.ty.is_valid() {
            return Err(schema.mismatch(format!(
                "column {} is {}; a decimal has 1 to {} digits, of which at most all are behind the point",
                column.name, column.ty, DECIMAL_PRECISION_MAX
            )));
        }
        if column.added_in == 0 || column.added_in > schema.version {
            return Err(schema.mismatch(format!("column {} is newer than the schema", column.name)));
        }
        if column.default.as_ref().is_some_and(Value::is_null) && !column.nullable {
            return Err(
                schema.mismatch(format!("column {} has the default NULL but is not nullable", column.name))
            );
        }
    }
    for column in &schema.dropped {
        let lived =
            0 < column.added_in && column.added_in < column.dropped_in && column.dropped_in <= schema.version;
        if !lived || !ids.insert(column.id) || column.id.0 >= schema.next_column {
            return Err(schema.mismatch(format!("dropped column {} does not fit", column.id.0)));
        }
    }
    Ok(())
}

fn check_primary_key(schema: &Schema) -> Result<()> {
    if schema.primary_key.is_empty() {
        return Err(schema.mismatch("a table needs a primary key"));
    }
    check_parts(schema, "the primary key", &schema.primary_key)?;
    for part in &schema.primary_key {
        let Some(column) = schema.columns.iter().find(|column| column.id == part.column) else { continue };
        if column.nullable {
            return Err(schema.mismatch(format!(
                "column {} is part of the primary key and must not be nullable",
                column.name
            )));
        }
        if column.added_in != 1 || part.descending || part.prefix.is_some() {
            return Err(schema.mismatch(format!(
                "column {} of the primary key must be there from the start, ascending and whole",
                column.name
            )));
        }
    }
    Ok(())
}

fn check_index(schema: &Schema, index: &IndexSchema) -> Result<()> {
    let place = format!("index {}", index.name);
    if index.parts.is_empty() {
        return Err(schema.mismatch(format!("{place} has no columns")));
    }
    check_parts(schema, &place, &index.parts)?;
    let mut included = HashSet::new();
    for &id in &index.include {
        if schema.position_of(id).is_none() {
            return Err(schema.mismatch(format!("{place} includes column {}, which does not exist", id.0)));
        }
        if !included.insert(id) {
            return Err(schema.mismatch(format!("{place} includes column {} twice", schema.column_name(id))));
        }
    }
    Ok(())
}

fn check_parts(schema: &Schema, place: &str, parts: &[KeyPart]) -> Result<()> {
    let mut seen = HashSet::new();
    for part in parts {
        let Some(column) = schema.columns.iter().find(|column| column.id == part.column) else {
            return Err(
                schema.mismatch(format!("{place} names column {}, which does not exist", part.column.0))
            );
        };
        let name = &column.name;
        if !seen.insert(part.column) {
            return Err(schema.mismatch(format!("{place} names column {name} twice")));
        }
        if !column.ty.can_be_key() {
            return Err(schema.mismatch(format!(
                "{place} names column {name}, but {} has no order to sort by",
                column.ty
            )));
        }
        match part.prefix {
            Some(0) => {
                return Err(schema.mismatch(format!("{place} has a prefix of length 0 of column {name}")));
            }
            Some(_) if !column.ty.has_prefixes() => {
                return Err(schema.mismatch(format!(
                    "{place} has a prefix of column {name}, but {} has none; only text and bytes have",
                    column.ty
                )));
            }
            _ => {}
        }
    }
    Ok(())
}
