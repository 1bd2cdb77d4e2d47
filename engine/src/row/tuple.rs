//! A packed list of values, any one of which can be read without the others.
//!
//! ```text
//! header     1 byte: high half = format (1); low half = bytes per end offset (0 without variable columns, 1, 2, 4)
//! nulls      one bit per nullable column, in order, least significant first; set = NULL; padded with zeros
//! fixed      the values of all fixed-width columns, little-endian, zeros for NULL
//! ends       for each variable column the end of its bytes, counted from the start of the last section
//! variable   the bytes of all variable columns
//! ```
//!
//! The place of a fixed column is known beforehand, that of a variable one takes two offsets: no column costs more to
//! read than another, and a NULL costs its bit and the width of its column. The row ([`super::row_codec`]) puts a
//! schema version before it; the included columns of an index entry are one such list.

use alluvium_base::Result;

use super::convert::{decimal_of_scaled, scaled};
use super::temporal::{Date, Time, Timestamp};
use super::types::{Type, Width};
use super::value::{ValueRef, canonical_f32, canonical_f64};

const FORMAT: u8 = 1 << 4;

/// Where a column's value lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Offset in the fixed section.
    Fixed { offset: usize, bytes: usize },
    /// Number among the variable columns.
    Variable { ordinal: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slot {
    ty: Type,
    null_bit: Option<usize>,
    place: Place,
}

/// The layout of a list of values of given types.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TupleLayout {
    slots: Vec<Slot>,
    null_bits: usize,
    fixed_bytes: usize,
    variables: usize,
}

impl TupleLayout {
    /// The layout for columns of these types, each nullable or not.
    pub(super) fn new(columns: impl IntoIterator<Item = (Type, bool)>) -> TupleLayout {
        let mut layout = TupleLayout::default();
        for (ty, nullable) in columns {
            let null_bit = nullable.then_some(layout.null_bits);
            layout.null_bits += usize::from(nullable);
            let place = match ty.width() {
                Width::Fixed(bytes) => {
                    let offset = layout.fixed_bytes;
                    layout.fixed_bytes += bytes;
                    Place::Fixed { offset, bytes }
                }
                Width::Variable => {
                    layout.variables += 1;
                    Place::Variable { ordinal: layout.variables - 1 }
                }
            };
            layout.slots.push(Slot { ty, null_bit, place });
        }
        layout
    }

    /// Number of columns.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Appends the values that `value` gives for each column. They must be in canonical form.
    ///
    /// # Errors
    /// Those of `value`; `refuse(column)` for a NULL or a value of a type that the column does not hold.
    pub(super) fn encode<'v>(
        &self,
        value: impl Fn(usize) -> Result<ValueRef<'v>>,
        refuse: impl Fn(usize) -> alluvium_base::Error,
        out: &mut Vec<u8>,
    ) -> Result<()> {
        let mut variable_bytes = 0;
        for (column, slot) in self.slots.iter().enumerate() {
            if let Place::Variable { .. } = slot.place {
                variable_bytes += variable(value(column)?).map_or(0, <[u8]>::len);
            }
        }
        let width = self.offset_bytes(variable_bytes);
        out.push(FORMAT | width as u8);
        let nulls_at = out.len();
        let fixed_at = nulls_at + self.null_bits.div_ceil(8);
        let ends_at = fixed_at + self.fixed_bytes;
        out.resize(ends_at + self.variables * width, 0);
        let mut end = 0usize;
        for (column, slot) in self.slots.iter().enumerate() {
            let value = value(column)?;
            if value.is_null() {
                let bit = slot.null_bit.ok_or_else(|| refuse(column))?;
                if let Some(byte) = out.get_mut(nulls_at + bit / 8) {
                    *byte |= 1 << (bit % 8);
                }
            }
            match slot.place {
                Place::Fixed { offset, bytes } if !value.is_null() => {
                    let raw = fixed(value, slot.ty).ok_or_else(|| refuse(column))?;
                    if let Some(to) = out.get_mut(fixed_at + offset..fixed_at + offset + bytes) {
                        to.iter_mut().zip(raw.to_le_bytes()).for_each(|(to, from)| *to = from);
                    }
                }
                Place::Fixed { .. } => {}
                Place::Variable { ordinal } => {
                    if !value.is_null() {
                        let bytes = variable_of(value, slot.ty).ok_or_else(|| refuse(column))?;
                        out.extend_from_slice(bytes);
                        end += bytes.len();
                    }
                    let at = ends_at + ordinal * width;
                    if let Some(to) = out.get_mut(at..at + width) {
                        to.iter_mut().zip((end as u64).to_le_bytes()).for_each(|(to, from)| *to = from);
                    }
                }
            }
        }
        Ok(())
    }

    fn offset_bytes(&self, variable_bytes: usize) -> usize {
        match variable_bytes {
            _ if self.variables == 0 => 0,
            0..=0xff => 1,
            0x100..=0xffff => 2,
            _ => 4,
        }
    }

    /// Finds the sections of an encoded list; `None` if the bytes are not one.
    pub(super) fn parse<'a>(&self, bytes: &'a [u8]) -> Option<Tuple<'a>> {
        let (&header, rest) = bytes.split_first()?;
        let width = usize::from(header & 0x0f);
        let known = if self.variables == 0 { width == 0 } else { matches!(width, 1 | 2 | 4) };
        if header & 0xf0 != FORMAT || !known {
            return None;
        }
        let (nulls, rest) = rest.split_at_checked(self.null_bits.div_ceil(8))?;
        let (fixed, rest) = rest.split_at_checked(self.fixed_bytes)?;
        let (ends, variable) = rest.split_at_checked(self.variables * width)?;
        let tuple = Tuple { nulls, fixed, ends, width, variable };
        let end = self.variables.checked_sub(1).map_or(Some(0), |last| tuple.end(last))?;
        (end == variable.len()).then_some(tuple)
    }
}

/// The sections of an encoded list.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuple<'a> {
    nulls: &'a [u8],
    fixed: &'a [u8],
    ends: &'a [u8],
    width: usize,
    variable: &'a [u8],
}

impl<'a> Tuple<'a> {
    /// The value of a column; `None` if its bytes are no value of its type.
    pub(super) fn get(&self, layout: &TupleLayout, column: usize) -> Option<ValueRef<'a>> {
        let slot = layout.slots.get(column)?;
        if let Some(bit) = slot.null_bit
            && self.nulls.get(bit / 8)? >> (bit % 8) & 1 == 1
        {
            return Some(ValueRef::Null);
        }
        match slot.place {
            Place::Fixed { offset, bytes } => decode_fixed(slot.ty, self.fixed.get(offset..offset + bytes)?),
            Place::Variable { ordinal } => {
                let start = ordinal.checked_sub(1).map_or(Some(0), |before| self.end(before))?;
                let bytes = self.variable.get(start..self.end(ordinal)?)?;
                match slot.ty {
                    Type::Bytes => Some(ValueRef::Bytes(bytes)),
                    Type::Text => std::str::from_utf8(bytes).ok().map(ValueRef::Text),
                    Type::Json => std::str::from_utf8(bytes).ok().map(ValueRef::Json),
                    _ => None,
                }
            }
        }
    }

    /// End of a variable column's bytes.
    fn end(&self, ordinal: usize) -> Option<usize> {
        let at = ordinal * self.width;
        Some(little_endian(self.ends.get(at..at + self.width)?) as usize)
    }
}

fn little_endian(bytes: &[u8]) -> u128 {
    bytes.iter().rev().fold(0, |value, &byte| value << 8 | u128::from(byte))
}

/// The bytes of a variable value.
fn variable(value: ValueRef<'_>) -> Option<&[u8]> {
    match value {
        ValueRef::Text(text) | ValueRef::Json(text) => Some(text.as_bytes()),
        ValueRef::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

fn variable_of(value: ValueRef<'_>, ty: Type) -> Option<&[u8]> {
    let fits = matches!(
        (value, ty),
        (ValueRef::Text(_), Type::Text) | (ValueRef::Bytes(_), Type::Bytes) | (ValueRef::Json(_), Type::Json)
    );
    fits.then(|| variable(value))?
}

/// The bits of a fixed value, in as many low bytes as its type has; `None` if it is of another type.
fn fixed(value: ValueRef<'_>, ty: Type) -> Option<u128> {
    Some(match (value, ty) {
        (ValueRef::Bool(value), Type::Bool) => u128::from(value),
        (ValueRef::Int(value), Type::I8 | Type::I16 | Type::I32 | Type::I64) => value as u128,
        (ValueRef::UInt(value), Type::U8 | Type::U16 | Type::U32 | Type::U64) => u128::from(value),
        (ValueRef::F32(value), Type::F32) => u128::from(value.to_bits()),
        (ValueRef::F64(value), Type::F64) => u128::from(value.to_bits()),
        (ValueRef::Decimal(_), Type::Decimal { scale, .. }) => scaled(value, u32::from(scale))? as u128,
        (ValueRef::Date(date), Type::Date) => date.days() as u128,
        (ValueRef::Time(time), Type::Time) => time.micros() as u128,
        (ValueRef::Timestamp(moment), Type::Timestamp) => moment.micros() as u128,
        (ValueRef::Uuid(uuid), Type::Uuid) => u128::from_le_bytes(*uuid.as_bytes()),
        _ => return None,
    })
}

/// Undoes [`fixed`]; `None` if no value of the type has these bits.
fn decode_fixed(ty: Type, bytes: &[u8]) -> Option<ValueRef<'static>> {
    let raw = little_endian(bytes);
    let unused = 128 - bytes.len() as u32 * 8;
    let signed = ((raw << unused) as i128) >> unused;
    Some(match ty {
        Type::Bool if raw <= 1 => ValueRef::Bool(raw == 1),
        Type::I8 | Type::I16 | Type::I32 | Type::I64 => ValueRef::Int(signed as i64),
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => ValueRef::UInt(raw as u64),
        Type::F32 => ValueRef::F32(canonical_f32(f32::from_bits(raw as u32))),
        Type::F64 => ValueRef::F64(canonical_f64(f64::from_bits(raw as u64))),
        Type::Decimal { precision, scale } => ValueRef::Decimal(decimal_of_scaled(signed, precision, scale)?),
        Type::Date => ValueRef::Date(Date::from_days(signed as i32)?),
        Type::Time => ValueRef::Time(Time::from_micros(signed as i64)?),
        Type::Timestamp => ValueRef::Timestamp(Timestamp::from_micros(signed as i64)?),
        Type::Uuid => ValueRef::Uuid(uuid::Uuid::from_bytes(raw.to_le_bytes())),
        Type::Bool | Type::Text | Type::Bytes | Type::Json => return None,
    })
}

#[cfg(test)]
mod tests {
    use alluvium_base::Error;
    use proptest::prelude::*;

    use super::*;
    use crate::row::Value;
    use crate::row::testing::{any_type, any_value};

    fn encode(layout: &TupleLayout, values: &[Value]) -> Result<Vec<u8>> {
        let mut out = Vec::new();
        let refuse = |column| Error::invalid(format!("column {column}"));
        layout.encode(|column| Ok(values[column].as_ref()), refuse, &mut out)?;
        Ok(out)
    }

    fn tuples() -> impl Strategy<Value = (Vec<(Type, bool)>, Vec<Value>)> {
        let column = (any_type(), any::<bool>()).prop_flat_map(|(ty, nullable)| {
            let value = any_value(ty);
            let value = if nullable { prop_oneof![Just(Value::Null), value].boxed() } else { value };
            (Just((ty, nullable)), value)
        });
        prop::collection::vec(column, 0..12).prop_map(|columns| columns.into_iter().unzip())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(1024))]

        #[test]
        fn every_column_reads_back_alone((columns, values) in tuples()) {
            let layout = TupleLayout::new(columns);
            let bytes = encode(&layout, &values).unwrap();
            let tuple = layout.parse(&bytes).unwrap();
            for (column, value) in values.iter().enumerate() {
                prop_assert_eq!(tuple.get(&layout, column), Some(value.as_ref()));
                prop_assert_eq!(tuple.get(&layout, column).unwrap().to_string(), value.to_string());
            }
            for cut in 0..bytes.len() {
                prop_assert!(layout.parse(&bytes[..cut]).is_none());
            }
        }

        #[test]
        fn any_bytes_never_panic((columns, values) in tuples(), mut noise: Vec<u8>, at: prop::sample::Index) {
            let layout = TupleLayout::new(columns);
            let mut bytes = encode(&layout, &values).unwrap();
            let flipped = at.index(bytes.len());
            bytes[flipped] ^= 1 << (noise.len() % 8);
            noise.insert(0, FORMAT | 1);
            for bytes in [&bytes, &noise] {
                if let Some(tuple) = layout.parse(bytes) {
                    (0..layout.len()).for_each(|column| { let _ = tuple.get(&layout, column); });
                }
            }
        }
    }

    #[test]
    fn offsets_grow_with_the_text() {
        let layout = TupleLayout::new([(Type::Text, false), (Type::U8, false), (Type::Bytes, true)]);
        for (len, width) in [(0, 1), (255, 1), (256, 2), (65_535, 2), (65_536, 4)] {
            let values = [Value::from("x".repeat(len)), Value::UInt(7), Value::Null];
            let bytes = encode(&layout, &values).unwrap();
            assert_eq!(bytes.len(), 1 + 1 + 1 + 2 * width + len);
            let tuple = layout.parse(&bytes).unwrap();
            assert_eq!(tuple.get(&layout, 0), Some(values[0].as_ref()));
            assert_eq!(tuple.get(&layout, 2), Some(ValueRef::Null));
        }
    }

    #[test]
    fn nulls_and_other_types_are_refused_where_they_do_not_belong() {
        let layout = TupleLayout::new([(Type::U8, false), (Type::Text, true)]);
        for (values, column) in [
            ([Value::Null, Value::Null], 0),
            ([Value::Int(1), Value::Null], 0),
            ([Value::UInt(1), Value::Bytes(vec![])], 1),
        ] {
            assert_eq!(encode(&layout, &values).unwrap_err().to_string(), format!("column {column}"));
        }
    }
}
