//! Rows as the program holds them: [`DynamicRow`], or a struct that derives [`Row`].

use std::sync::Arc;

use alluvium_base::{Error, Result};

use super::schema::{Column, Schema};
use super::types::Type;
use super::value::{Value, ValueRef};
use super::view::RowView;

/// Where each field of a type stands in a schema: found once, when a table is opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Binding {
    positions: Vec<usize>,
}

impl Binding {
    /// Finds the columns called `names`.
    ///
    /// # Errors
    /// `NotFound` if one does not exist.
    pub fn by_name(schema: &Schema, names: &[&str]) -> Result<Binding> {
        let positions = names.iter().map(|name| schema.require_position(name)).collect::<Result<_>>()?;
        Ok(Binding { positions })
    }

    /// Position of the column of the field with this number.
    #[must_use]
    pub fn position(&self, field: usize) -> usize {
        self.positions.get(field).copied().unwrap_or(usize::MAX)
    }

    /// Sets the value of a field among the values of a row.
    pub fn set<'a>(&self, values: &mut [ValueRef<'a>], field: usize, value: ValueRef<'a>) {
        if let Some(place) = values.get_mut(self.position(field)) {
            *place = value;
        }
    }

    /// The value of a field of a row that has been read.
    ///
    /// # Errors
    /// `TypeMismatch` if the field's type does not hold it; those of [`RowView::at`].
    pub fn get<T: super::ColumnType>(&self, row: &RowView<'_>, field: usize) -> Result<T> {
        let position = self.position(field);
        let value = row.at(position)?;
        T::from_value(value).ok_or_else(|| row.codec.refuse(position, value))
    }
}

/// A type whose values are rows of a table.
///
/// Implemented by [`DynamicRow`] for any table, and by `#[derive(Row)]` for one.
pub trait Row: Sized + Send + 'static {
    /// Finds the columns of the type's fields in the schema of a table.
    ///
    /// # Errors
    /// `SchemaMismatch` if the table does not have exactly the type's columns, key and indexes.
    fn bind(schema: &Schema) -> Result<Binding>;

    /// Sets the values of a row, which stand in the order of the schema's columns and are all NULL before.
    ///
    /// # Errors
    /// `SchemaMismatch` if the row is not one of this schema.
    fn write<'a>(&'a self, schema: &Schema, binding: &Binding, values: &mut [ValueRef<'a>]) -> Result<()>;

    /// Makes a row of what has been read.
    ///
    /// # Errors
    /// Those of [`RowView::at`].
    fn read(row: &RowView<'_>, binding: &Binding) -> Result<Self>;
}

/// A [`Row`] that knows its own schema: one that derives it.
pub trait TypedRow: Row {
    /// The schema of a new table for such rows.
    ///
    /// # Errors
    /// `SchemaMismatch` if the type's attributes make no valid schema.
    fn schema() -> Result<Schema>;
}

/// A row of any table: a value per column of its schema.
///
/// ```
/// use std::sync::Arc;
/// use alluvium::row::{DynamicRow, Schema, Type};
/// let schema = Schema::table("t").column("id", Type::U64).nullable("note", Type::Text).primary_key(["id"]).build()?;
/// let row = DynamicRow::new(Arc::new(schema)).with("id", 7)?.with("note", "silt")?;
/// assert_eq!(row.get("note")?.to_string(), "silt");
/// assert!(row.clone().with("id", -1).is_err(), "a u64 cannot hold it");
/// # Ok::<(), alluvium_base::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DynamicRow {
    schema: Arc<Schema>,
    values: Vec<Value>,
}

impl DynamicRow {
    /// A row with every column at its default; NULL where there is none.
    #[must_use]
    pub fn new(schema: Arc<Schema>) -> DynamicRow {
        let values =
            schema.columns().iter().map(|column| column.default_value().unwrap_or_default()).collect();
        DynamicRow { schema, values }
    }

    /// A row of these values, in the order of the schema's columns.
    ///
    /// # Errors
    /// `InvalidArgument` if there are more or fewer values than columns; `TypeMismatch` if one does not fit.
    pub fn of(schema: Arc<Schema>, values: impl IntoIterator<Item = Value>) -> Result<DynamicRow> {
        let values: Vec<Value> = values.into_iter().collect();
        if values.len() != schema.columns().len() {
            let (found, expected) = (values.len(), schema.columns().len());
            return Err(Error::invalid(format!(
                "{found} values given for the {expected} columns of {}",
                schema.name()
            )));
        }
        let mut row = DynamicRow { schema, values: Vec::with_capacity(values.len()) };
        for (column, value) in row.schema.columns().iter().zip(&values) {
            row.values.push(value.as_ref().coerce_for(column.name(), column.ty())?.to_value());
        }
        Ok(row)
    }

    /// The schema.
    #[must_use]
    pub fn schema(&self) -> &Arc<Schema> {
        &self.schema
    }

    /// The values, in the order of the schema's columns.
    #[must_use]
    pub fn values(&self) -> &[Value] {
        &self.values
    }

    /// The value of a column.
    ///
    /// # Errors
    /// `NotFound` if there is no such column.
    pub fn get(&self, column: &str) -> Result<&Value> {
        let position = self.schema.require_position(column)?;
        self.values.get(position).ok_or_else(|| Error::not_found(format!("value of column {column}")))
    }

    /// Sets the value of a column; it is converted if that is exact.
    ///
    /// # Errors
    /// `NotFound` if there is no such column; `TypeMismatch` if the column cannot hold the value. NULL in a column
    /// that does not allow it is found out when the row is written.
    pub fn set(&mut self, column: &str, value: impl Into<Value>) -> Result<()> {
        let position = self.schema.require_position(column)?;
        let value = value.into();
        if let (Some(column), Some(place)) =
            (self.schema.columns().get(position), self.values.get_mut(position))
        {
            *place = value.as_ref().coerce_for(Column::name(column), column.ty())?.to_value();
        }
        Ok(())
    }

    /// As [`set`](DynamicRow::set), for building a row in one expression.
    ///
    /// # Errors
    /// As [`set`](DynamicRow::set).
    pub fn with(mut self, column: &str, value: impl Into<Value>) -> Result<DynamicRow> {
        self.set(column, value)?;
        Ok(self)
    }
}

impl Row for DynamicRow {
    fn bind(_schema: &Schema) -> Result<Binding> {
        Ok(Binding::default())
    }

    fn write<'a>(&'a self, schema: &Schema, _binding: &Binding, values: &mut [ValueRef<'a>]) -> Result<()> {
        if !std::ptr::eq(schema, &*self.schema) && *schema != *self.schema {
            let own = format!("{} version {}", self.schema.name(), self.schema.version());
            return Err(
                schema.mismatch(format!("the row is one of {own}; make it with this table's new_row"))
            );
        }
        values.iter_mut().zip(&self.values).for_each(|(place, value)| *place = value.as_ref());
        Ok(())
    }

    fn read(row: &RowView<'_>, _binding: &Binding) -> Result<DynamicRow> {
        let schema = Arc::clone(&row.codec.schema);
        let values = (0..schema.columns().len()).map(|position| row.at(position).map(ValueRef::to_value));
        Ok(DynamicRow { values: values.collect::<Result<_>>()?, schema })
    }
}

/// Compares the schema of a type with the stored one of a table, whose columns may stand in another order. The columns
/// called `any_decimal` fit a decimal of any precision and scale: a Rust `Decimal` says neither.
///
/// # Errors
/// `SchemaMismatch` that lists every difference.
pub fn check_same_schema(expected: &Schema, stored: &Schema, any_decimal: &[&str]) -> Result<()> {
    let differences = differences(expected, stored, any_decimal);
    if differences.is_empty() { Ok(()) } else { Err(stored.mismatch(differences.join("; "))) }
}

fn differences(expected: &Schema, stored: &Schema, any_decimal: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    if expected.name() != stored.name() {
        found.push(format!("the type is for table {}", expected.name()));
    }
    let show = |column: &Column| {
        let nullable = if column.is_nullable() { " null" } else { "" };
        match column.ty() {
            Type::Decimal { .. } if any_decimal.contains(&column.name()) => format!("decimal{nullable}"),
            ty => format!("{ty}{nullable}"),
        }
    };
    for column in expected.columns() {
        match stored.column(column.name()) {
            None => found.push(format!("column {} is not in the table", column.name())),
            Some(other) if show(column) != show(other) => {
                found.push(format!(
                    "column {} is {} in the table, {} in the type",
                    column.name(),
                    show(other),
                    show(column)
                ));
            }
            Some(_) => {}
        }
    }
    let unknown = stored.columns().iter().filter(|column| expected.column(column.name()).is_none());
    found.extend(unknown.map(|column| format!("column {} is not in the type", column.name())));
    let (key, stored_key) =
        (expected.show_parts(expected.primary_key()), stored.show_parts(stored.primary_key()));
    if key != stored_key {
        found.push(format!("the primary key is ({stored_key}) in the table, ({key}) in the type"));
    }
    let index_text = |schema: &Schema, name: &str| schema.index(name).map(|index| schema.show_index(index));
    for index in expected.indexes() {
        let own = expected.show_index(index);
        match index_text(stored, index.name()) {
            None => found.push(format!("{own} is not on the table")),
            Some(other) if other != own => found.push(format!("{other} is on the table, {own} on the type")),
            Some(_) => {}
        }
    }
    let unknown = stored.indexes().iter().filter(|index| expected.index(index.name()).is_none());
    found.extend(unknown.map(|index| format!("{} is not on the type", stored.show_index(index))));
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Index;

    #[test]
    fn every_difference_is_listed() {
        let expected = Schema::table("t")
            .column("id", Type::U64)
            .column("a", Type::U8)
            .column("b", Type::Text)
            .primary_key(["id"])
            .index(Index::on("i").asc("a"))
            .index(Index::on("j").asc("b"))
            .build()
            .unwrap();
        let stored = Schema::table("t")
            .nullable("a", Type::U16)
            .column("id", Type::U64)
            .column("c", Type::Text)
            .primary_key(["id", "c"])
            .index(Index::on("i").desc("a").unique())
            .index(Index::on("k").asc("c"))
            .build()
            .unwrap();
        let error = check_same_schema(&expected, &stored, &[]).unwrap_err();
        assert_eq!(
            error.to_string(),
            "schema of t: column a is u16 null in the table, u8 in the type; column b is not in the table; column c is \
             not in the type; the primary key is (id, c) in the table, (id) in the type; unique index i (a desc) is on \
             the table, index i (a) on the type; index j (b) is not on the table; index k (c) is not on the type"
        );
        assert!(check_same_schema(&stored, &stored, &[]).is_ok());
    }

    #[test]
    fn a_row_of_another_schema_is_refused() {
        let schema = |version: u32| {
            let schema = Schema::table("t").column("id", Type::U64).primary_key(["id"]).build().unwrap();
            Arc::new(if version == 1 {
                schema
            } else {
                schema.with_column("x", Type::U8, true, None).unwrap()
            })
        };
        let row = DynamicRow::of(schema(1), [7.into()]).unwrap();
        let mut values = [ValueRef::Null];
        row.write(&schema(1), &Binding::default(), &mut values).unwrap();
        assert_eq!(values, [ValueRef::UInt(7)]);
        let error = row.write(&schema(2), &Binding::default(), &mut [ValueRef::Null; 2]).unwrap_err();
        assert!(error.to_string().contains("the row is one of t version 1"), "{error}");
        assert!(DynamicRow::of(schema(1), []).is_err());
        assert!(DynamicRow::of(schema(1), ["x".into()]).is_err());
    }
}
