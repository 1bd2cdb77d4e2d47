//! Schemas as bytes, for the catalog. `design/formats/row.md` has the layout byte by byte.
//!
//! The first byte is the version of this format. Counts are followed by as many items; nothing is allocated for a
//! count that the bytes at hand cannot hold. What has been read is validated by the rules of the builder, so that a
//! schema in memory is always a valid one.

use std::path::Path;

use alluvium_base::coding::{Reader, put_bytes, put_varint};
use alluvium_base::{Error, ErrorKind, Result};

use super::schema::{Column, ColumnId, DroppedColumn, IndexId, IndexSchema, KeyPart, Schema};
use super::schema_rules::validate;
use super::types::Type;
use super::value::Value;

/// Version of the format written here.
const FORMAT: u8 = 1;

const COLUMN_NULLABLE: u8 = 1;
const COLUMN_DEFAULT: u8 = 2;
const PART_DESCENDING: u8 = 1;
const PART_PREFIX: u8 = 2;
const INDEX_UNIQUE: u8 = 1;

impl Schema {
    /// Appends the schema as bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(FORMAT);
        put_bytes(out, self.table.as_bytes());
        put_varint(out, u64::from(self.version));
        put_varint(out, u64::from(self.next_column));
        put_varint(out, u64::from(self.next_index));
        put_varint(out, self.columns.len() as u64);
        for column in &self.columns {
            put_varint(out, u64::from(column.id.0));
            put_bytes(out, column.name.as_bytes());
            column.ty.encode(out);
            out.push(flag(column.nullable, COLUMN_NULLABLE) | flag(column.default.is_some(), COLUMN_DEFAULT));
            put_varint(out, u64::from(column.added_in));
            if let Some(default) = &column.default {
                put_default(out, default);
            }
        }
        put_varint(out, self.dropped.len() as u64);
        for column in &self.dropped {
            put_varint(out, u64::from(column.id.0));
            column.ty.encode(out);
            out.push(flag(column.nullable, COLUMN_NULLABLE));
            put_varint(out, u64::from(column.added_in));
            put_varint(out, u64::from(column.dropped_in));
        }
        encode_parts(&self.primary_key, out);
        put_varint(out, self.indexes.len() as u64);
        for index in &self.indexes {
            put_varint(out, u64::from(index.id.0));
            put_bytes(out, index.name.as_bytes());
            out.push(flag(index.unique, INDEX_UNIQUE));
            encode_parts(&index.parts, out);
            put_varint(out, index.include.len() as u64);
            index.include.iter().for_each(|id| put_varint(out, u64::from(id.0)));
        }
    }

    /// Reads what [`encode`](Schema::encode) wrote. `place` names where the bytes come from, for errors.
    ///
    /// # Errors
    /// `UnsupportedFormat` for a newer format; `Corrupt` with the offset where the bytes stop making sense;
    /// `SchemaMismatch` if they make a schema that is not valid.
    pub fn decode(bytes: &[u8], place: impl AsRef<Path>) -> Result<Schema> {
        let place = place.as_ref();
        let mut reader = Reader::new(bytes);
        match reader.u8() {
            Some(FORMAT) => {}
            Some(found) if found > FORMAT => {
                let (file, supported) = (place.to_owned(), u32::from(FORMAT));
                return Err(ErrorKind::UnsupportedFormat { file, found: u32::from(found), supported }.into());
            }
            _ => return Err(Error::corrupt(place, 0, "no schema begins here")),
        }
        let schema = decode_body(&mut reader).filter(|_| reader.is_empty());
        let schema =
            schema.ok_or_else(|| Error::corrupt(place, reader.position() as u64, "schema is damaged"))?;
        validate(&schema)?;
        Ok(schema)
    }
}

fn flag(set: bool, bit: u8) -> u8 {
    if set { bit } else { 0 }
}

/// A default is stored as its canonical text: the one form of a value that depends on no codec. An empty item is
/// NULL, anything else begins with a byte 1.
fn put_default(out: &mut Vec<u8>, default: &Value) {
    if default.is_null() {
        put_bytes(out, b"");
    } else {
        put_bytes(out, format!("\u{1}{default}").as_bytes());
    }
}

fn encode_parts(parts: &[KeyPart], out: &mut Vec<u8>) {
    put_varint(out, parts.len() as u64);
    for part in parts {
        put_varint(out, u64::from(part.column.0));
        out.push(flag(part.descending, PART_DESCENDING) | flag(part.prefix.is_some(), PART_PREFIX));
        if let Some(len) = part.prefix {
            put_varint(out, u64::from(len));
        }
    }
}

fn number(reader: &mut Reader<'_>) -> Option<u32> {
    u32::try_from(reader.varint()?).ok()
}

/// A byte in which no other bits than those of `known` are set.
fn flags(reader: &mut Reader<'_>, known: u8) -> Option<u8> {
    reader.u8().filter(|byte| byte & !known == 0)
}

/// A count and as many items. Every item takes at least one byte, which bounds the count by the bytes left.
fn items<T>(reader: &mut Reader<'_>, mut item: impl FnMut(&mut Reader<'_>) -> Option<T>) -> Option<Vec<T>> {
    let count = reader.length(reader.remaining())?;
    let mut items = Vec::new();
    for _ in 0..count {
        items.push(item(reader)?);
    }
    Some(items)
}

fn decode_body(reader: &mut Reader<'_>) -> Option<Schema> {
    Some(Schema {
        table: reader.text()?.to_owned(),
        version: number(reader)?,
        next_column: number(reader)?,
        next_index: number(reader)?,
        columns: items(reader, decode_column)?,
        dropped: items(reader, decode_dropped)?,
        primary_key: items(reader, decode_part)?,
        indexes: items(reader, decode_index)?,
    })
}

fn decode_column(reader: &mut Reader<'_>) -> Option<Column> {
    let id = ColumnId(number(reader)?);
    let name = reader.text()?.to_owned();
    let ty = Type::decode(reader)?;
    let flags = flags(reader, COLUMN_NULLABLE | COLUMN_DEFAULT)?;
    let added_in = number(reader)?;
    let default = if flags & COLUMN_DEFAULT == 0 { None } else { Some(decode_default(reader, ty)?) };
    Some(Column { id, name, ty, nullable: flags & COLUMN_NULLABLE != 0, default, added_in })
}

fn decode_default(reader: &mut Reader<'_>, ty: Type) -> Option<Value> {
    let text = reader.text()?;
    if text.is_empty() {
        return Some(Value::Null);
    }
    ty.parse(text.strip_prefix('\u{1}')?).ok()
}

fn decode_dropped(reader: &mut Reader<'_>) -> Option<DroppedColumn> {
    Some(DroppedColumn {
        id: ColumnId(number(reader)?),
        ty: Type::decode(reader)?,
        nullable: flags(reader, COLUMN_NULLABLE)? != 0,
        added_in: number(reader)?,
        dropped_in: number(reader)?,
    })
}

fn decode_part(reader: &mut Reader<'_>) -> Option<KeyPart> {
    let column = ColumnId(number(reader)?);
    let flags = flags(reader, PART_DESCENDING | PART_PREFIX)?;
    let prefix = if flags & PART_PREFIX == 0 { None } else { Some(number(reader)?) };
    Some(KeyPart { column, descending: flags & PART_DESCENDING != 0, prefix })
}

fn decode_index(reader: &mut Reader<'_>) -> Option<IndexSchema> {
    Some(IndexSchema {
        id: IndexId(number(reader)?),
        name: reader.text()?.to_owned(),
        unique: flags(reader, INDEX_UNIQUE)? != 0,
        parts: items(reader, decode_part)?,
        include: items(reader, |reader| number(reader).map(ColumnId))?,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::row::Index;
    use crate::row::testing::{any_type, any_value};

    fn sample() -> Schema {
        let schema = Schema::table("orders")
            .column("tenant", Type::U32)
            .column("id", Type::U64)
            .column("total", Type::Decimal { precision: 12, scale: 2 })
            .default(5)
            .nullable("note", Type::Text)
            .default("")
            .nullable("tag", Type::Bytes)
            .default(Value::Null)
            .primary_key(["tenant", "id"])
            .index(Index::on("by_note").prefix("note", 16).desc("total").unique())
            .index(Index::on("by_total").asc("total").include(["tag", "note"]))
            .build()
            .unwrap();
        let schema = schema.with_column("extra", Type::F64, false, Some(Value::from(f64::NAN))).unwrap();
        schema.without_index("by_total").unwrap().without_column("tag").unwrap()
    }

    fn encoded(schema: &Schema) -> Vec<u8> {
        let mut out = Vec::new();
        schema.encode(&mut out);
        out
    }

    #[test]
    fn a_schema_with_history_round_trips() {
        let schema = sample();
        assert_eq!(Schema::decode(&encoded(&schema), "catalog").unwrap(), schema);
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let error = Schema::decode(&[2, 0], "catalog").unwrap_err();
        assert!(
            matches!(error.kind(), ErrorKind::UnsupportedFormat { found: 2, supported: 1, .. }),
            "{error}"
        );
    }

    #[test]
    fn every_cut_and_every_flipped_bit_is_an_error_or_a_valid_schema() {
        let bytes = encoded(&sample());
        for len in 0..bytes.len() {
            assert!(Schema::decode(&bytes[..len], "catalog").is_err(), "cut at {len}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            if let Ok(schema) = Schema::decode(&flipped, "catalog") {
                validate(&schema).unwrap();
            }
        }
    }

    proptest! {
        #[test]
        fn defaults_of_every_type_round_trip((ty, value) in any_type().prop_flat_map(|ty| (Just(ty), any_value(ty)))) {
            let schema = Schema::table("t").column("id", Type::U8).nullable("x", ty).default(value).primary_key(["id"]);
            let schema = schema.build().unwrap();
            prop_assert_eq!(Schema::decode(&encoded(&schema), "catalog").unwrap(), schema);
        }

        #[test]
        fn any_bytes_never_panic(mut bytes: Vec<u8>) {
            let _ = Schema::decode(&bytes, "catalog");
            bytes.insert(0, FORMAT);
            let _ = Schema::decode(&bytes, "catalog");
        }
    }
}
