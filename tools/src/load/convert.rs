//! From the fields of a row to values of the columns' types.

use alluvium::row::{Type, Value, ValueRef};

use crate::load::input::rows::Row;
use crate::load::null_strings::NullStrings;
use crate::load::plan::Plan;
use crate::load::rejects::{Advice, Reject};

/// Turns rows of one plan into values. Shared by the workers.
pub struct Converter<'p> {
    columns: Vec<Column<'p>>,
    nulls: &'p NullStrings,
    row_id: bool,
    /// Between the fields, for showing a row that has too few or too many.
    delimiter: char,
}

struct Column<'p> {
    name: &'p str,
    ty: Type,
    nullable: bool,
    in_key: bool,
}

/// Space for values that own memory; reused from row to row.
#[derive(Debug, Default)]
pub struct Owned(Vec<(usize, Value)>);

impl<'p> Converter<'p> {
    /// A converter for the columns of `plan`.
    #[must_use]
    pub fn new(plan: &'p Plan) -> Converter<'p> {
        let in_key = |name: &str| {
            let id = plan.schema.column(name).map(alluvium::row::Column::id);
            plan.schema.primary_key().iter().any(|part| Some(part.column()) == id)
        };
        let columns = plan.columns.iter().map(|column| Column {
            name: &column.name,
            ty: column.ty,
            nullable: column.nullable,
            in_key: in_key(&column.name),
        });
        let delimiter = plan.inputs.first().map_or(',', |input| char::from(input.dialect.delimiter));
        Converter { columns: columns.collect(), nulls: &plan.nulls, row_id: plan.row_id, delimiter }
    }

    /// The values of `row`, in the order of the schema. `number` counts all rows from 0.
    ///
    /// Text is borrowed from the row, JSON and bytes from `owned`; everything else is copied. `spent` is the vector of
    /// an earlier row, whose allocation is used again.
    ///
    /// # Errors
    /// What to put on record about the row, if a field is not a value of its column.
    pub fn convert<'a>(
        &self,
        row: Row<'a>,
        number: u64,
        owned: &'a mut Owned,
        spent: Vec<ValueRef<'_>>,
    ) -> Result<Vec<ValueRef<'a>>, Box<Reject>> {
        if let Some(byte) = row.malformed_byte {
            return Err(self.text_behind_a_quote(row, byte));
        }
        if row.len() != self.columns.len() {
            return Err(self.wrong_number_of_fields(row));
        }
        let mut values = recycled(spent);
        owned.0.clear();
        if self.row_id {
            values.push(ValueRef::UInt(number + 1));
        }
        for (column, field) in self.columns.iter().zip(row.fields()) {
            if self.nulls.is_null(field, column.ty) {
                if !column.nullable {
                    return Err(column.missing_value(row, field));
                }
                values.push(ValueRef::Null);
                continue;
            }
            let text = std::str::from_utf8(field).map_err(|_| column.not_utf8(row, field))?;
            if column.ty == Type::Text {
                values.push(ValueRef::Text(text));
                continue;
            }
            let value =
                column.ty.parse(text).map_err(|failure| column.bad_value(row, text, failure.reason))?;
            values.push(copied(&value).unwrap_or_else(|| {
                owned.0.push((values.len(), value));
                ValueRef::Null
            }));
        }
        for (at, value) in &owned.0 {
            values[*at] = value.as_ref();
        }
        Ok(values)
    }

    fn text_behind_a_quote(&self, row: Row<'_>, byte: u64) -> Box<Reject> {
        Box::new(Reject {
            place: row.place,
            byte: Some(row.byte),
            column: None,
            expected: None,
            text: Some(self.joined(row)),
            reason: format!(
                "text behind a closing quote, at byte {byte} (a quote inside of a quoted field must be doubled)"
            ),
            advice: None,
        })
    }

    /// The fields of a row with delimiters between them.
    fn joined(&self, row: Row<'_>) -> String {
        let fields: Vec<_> = row.fields().map(String::from_utf8_lossy).collect();
        fields.join(&self.delimiter.to_string())
    }

    fn wrong_number_of_fields(&self, row: Row<'_>) -> Box<Reject> {
        let plural = |count: usize| if count == 1 { "field" } else { "fields" };
        let (found, expected) = (row.len(), self.columns.len());
        Box::new(Reject {
            place: row.place,
            byte: Some(row.byte),
            column: None,
            expected: Some(format!("{expected} {}", plural(expected))),
            text: Some(self.joined(row)),
            reason: format!("the row has {found} {}", plural(found)),
            advice: None,
        })
    }
}

impl Column<'_> {
    fn reject(&self, row: Row<'_>, text: String, reason: &str, advice: Option<Advice>) -> Box<Reject> {
        Box::new(Reject {
            place: row.place,
            byte: Some(row.byte),
            column: Some(self.name.to_owned()),
            expected: Some(self.ty.to_string()),
            text: Some(text),
            reason: reason.to_owned(),
            advice,
        })
    }

    fn missing_value(&self, row: Row<'_>, field: &[u8]) -> Box<Reject> {
        let text = String::from_utf8_lossy(field).into_owned();
        let reason = if self.in_key {
            "no value, but the column is part of the primary key"
        } else {
            "no value, but --not-null names the column"
        };
        self.reject(row, text, reason, None)
    }

    fn not_utf8(&self, row: Row<'_>, field: &[u8]) -> Box<Reject> {
        let text = String::from_utf8_lossy(field).into_owned();
        self.reject(row, text, "not UTF-8 text", Some(Advice::Encoding))
    }

    fn bad_value(&self, row: Row<'_>, text: &str, reason: &str) -> Box<Reject> {
        self.reject(row, text.to_owned(), reason, Some(Advice::Type { accepts: type_for(self.ty, text) }))
    }
}

/// The same vector without its elements, for elements that borrow from elsewhere.
#[must_use]
pub fn recycled<'a>(mut spent: Vec<ValueRef<'_>>) -> Vec<ValueRef<'a>> {
    spent.clear();
    // Collecting in place keeps the allocation (a documented optimisation of `Vec`; without it nothing breaks).
    spent.into_iter().map(|_| ValueRef::Null).collect()
}

/// The value, if it does not own memory.
fn copied(value: &Value) -> Option<ValueRef<'static>> {
    Some(match *value {
        Value::Null => ValueRef::Null,
        Value::Bool(value) => ValueRef::Bool(value),
        Value::Int(value) => ValueRef::Int(value),
        Value::UInt(value) => ValueRef::UInt(value),
        Value::F32(value) => ValueRef::F32(value),
        Value::F64(value) => ValueRef::F64(value),
        Value::Decimal(value) => ValueRef::Decimal(value),
        Value::Date(value) => ValueRef::Date(value),
        Value::Time(value) => ValueRef::Time(value),
        Value::Timestamp(value) => ValueRef::Timestamp(value),
        Value::Uuid(value) => ValueRef::Uuid(value),
        Value::Text(_) | Value::Bytes(_) | Value::Json(_) => return None,
    })
}

/// The next wider type that holds values of `ty` and also `text`.
fn type_for(ty: Type, text: &str) -> Type {
    const WHOLE: &[Type] = &[
        Type::I64,
        Type::U64,
        Type::Decimal { precision: alluvium::row::DECIMAL_PRECISION_MAX, scale: 0 },
        Type::F64,
    ];
    let wider = match ty {
        Type::I8 | Type::I16 | Type::I32 | Type::I64 | Type::U8 | Type::U16 | Type::U32 | Type::U64 => WHOLE,
        Type::F32 | Type::Decimal { .. } => &[Type::F64],
        Type::Date => &[Type::Timestamp],
        _ => &[],
    };
    wider.iter().copied().find(|ty| ty.parse(text).is_ok()).unwrap_or(Type::Text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suggested_type_is_the_next_that_holds_the_text() {
        for (ty, text, expected) in [
            (Type::I8, "300", "i64"),
            (Type::I64, "9223372036854775808", "u64"),
            (Type::U64, "-1", "i64"),
            (Type::I64, "99999999999999999999", "decimal(28,0)"),
            (Type::I64, "1.5", "f64"),
            (Type::I64, "NA", "text"),
            (Type::Date, "2013-01-01 10:00", "timestamp"),
            (Type::Decimal { precision: 5, scale: 2 }, "1.005", "f64"),
            (Type::Bool, "yes", "text"),
        ] {
            assert_eq!(type_for(ty, text).to_string(), expected, "{ty} {text}");
        }
    }

    #[test]
    fn a_recycled_vector_keeps_its_allocation() {
        let spent = vec![ValueRef::Int(1); 20];
        let (place, capacity) = (spent.as_ptr() as usize, spent.capacity());
        let empty = recycled(spent);
        assert!(empty.is_empty());
        assert_eq!((empty.as_ptr() as usize, empty.capacity()), (place, capacity));
    }
}
