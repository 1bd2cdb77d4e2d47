//! Keys back to values; see [`super::key_codec`] for the encoding.
//!
//! Only what [`KeyColumn::encode`] writes is taken: bytes that decode encode to the same bytes again.

use std::ops::Range;

use super::convert::decimal_of_scaled;
use super::key_codec::{FIXED_BYTES_MAX, KeyColumn, NULL, PRESENT, TERMINATOR, ZERO};
use super::temporal::{Date, Time, Timestamp};
use super::types::{Type, Width};
use super::value::{ValueRef, canonical_f32, canonical_f64};

/// A decoded part.
#[derive(Clone, Debug)]
enum Part {
    Fixed(ValueRef<'static>),
    /// A range of [`DecodedKey::text`].
    Text(Range<usize>),
    /// A range of [`DecodedKey::bytes`].
    Bytes(Range<usize>),
}

/// The values of a key. Reused from key to key it allocates nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct DecodedKey {
    parts: Vec<Part>,
    text: String,
    bytes: Vec<u8>,
}

impl DecodedKey {
    /// Decodes the parts of `columns` at the front of `key` and returns their length; `None` if `key` does not begin
    /// with such parts.
    pub(super) fn decode(&mut self, columns: &[KeyColumn], key: &[u8]) -> Option<usize> {
        self.parts.clear();
        self.text.clear();
        self.bytes.clear();
        let mut at = 0;
        for column in columns {
            let rest = key.get(at..)?;
            let len = column.part_len(rest)?;
            self.decode_part(column, rest.get(..len)?)?;
            at += len;
        }
        Some(at)
    }

    fn decode_part(&mut self, column: &KeyColumn, part: &[u8]) -> Option<()> {
        let mask = column.mask();
        let mut part = part;
        if column.nullable {
            let (marker, rest) = part.split_first()?;
            match marker ^ mask {
                NULL => {
                    self.parts.push(Part::Fixed(ValueRef::Null));
                    return Some(());
                }
                PRESENT => part = rest,
                _ => return None,
            }
        }
        if let Width::Fixed(_) = column.ty.width() {
            let mut plain = [0; FIXED_BYTES_MAX];
            let plain = plain.get_mut(..part.len())?;
            plain.iter_mut().zip(part).for_each(|(to, from)| *to = from ^ mask);
            self.parts.push(Part::Fixed(decode_fixed(column.ty, plain)?));
            return Some(());
        }
        let start = self.bytes.len();
        let escaped = part.get(..part.len().checked_sub(TERMINATOR.len())?)?;
        let mut after_zero = false;
        for byte in escaped.iter().map(|byte| byte ^ mask) {
            // `part_len` has checked that 0xff follows every zero.
            if !after_zero {
                self.bytes.push(byte);
            }
            after_zero = !after_zero && byte == ZERO;
        }
        if column.ty == Type::Text {
            let text_start = self.text.len();
            self.text.push_str(std::str::from_utf8(self.bytes.get(start..)?).ok()?);
            self.bytes.truncate(start);
            self.parts.push(Part::Text(text_start..self.text.len()));
        } else {
            self.parts.push(Part::Bytes(start..self.bytes.len()));
        }
        Some(())
    }

    /// The value of the part with this number; NULL if there is none.
    pub(super) fn get(&self, part: usize) -> ValueRef<'_> {
        match self.parts.get(part) {
            None => ValueRef::Null,
            Some(Part::Fixed(value)) => *value,
            Some(Part::Text(range)) => ValueRef::Text(self.text.get(range.clone()).unwrap_or_default()),
            Some(Part::Bytes(range)) => ValueRef::Bytes(self.bytes.get(range.clone()).unwrap_or_default()),
        }
    }

    /// The values, as `(1, abc)`.
    pub(super) fn show(&self) -> String {
        let values: Vec<String> = (0..self.parts.len()).map(|part| self.get(part).to_string()).collect();
        format!("({})", values.join(", "))
    }
}

/// A key for people: its values if it can be decoded, else hexadecimal.
pub(super) fn show_key(columns: &[KeyColumn], key: &[u8]) -> String {
    let mut decoded = DecodedKey::default();
    match decoded.decode(columns, key) {
        Some(_) => decoded.show(),
        None => ValueRef::Bytes(key).to_string(),
    }
}

/// Undoes `put_low_bytes`.
fn low_bytes(bytes: &[u8]) -> u128 {
    bytes.iter().fold(0, |value, &byte| value << 8 | u128::from(byte))
}

/// Undoes `put_signed`.
fn signed(bytes: &[u8]) -> i128 {
    let unused = 128 - bytes.len() as u32 * 8;
    let value = low_bytes(bytes) ^ 1 << (bytes.len() * 8 - 1);
    // Shifted up and down again, the number's sign bit fills the unused bits.
    ((value << unused) as i128) >> unused
}

/// The value of a fixed part (not inverted any more); `None` if no value of the type has this encoding.
fn decode_fixed(ty: Type, bytes: &[u8]) -> Option<ValueRef<'static>> {
    Some(match ty {
        Type::Bool => match bytes {
            [0] => ValueRef::Bool(false),
            [1] => ValueRef::Bool(true),
            _ => return None,
        },
        Type::I8 | Type::I16 | Type::I32 | Type::I64 => ValueRef::Int(signed(bytes) as i64),
        Type::U8 | Type::U16 | Type::U32 | Type::U64 => ValueRef::UInt(low_bytes(bytes) as u64),
        Type::F32 => {
            let stored = low_bytes(bytes) as u32;
            let flip = if stored >> 31 == 0 { u32::MAX } else { 1 << 31 };
            let value = f32::from_bits(stored ^ flip);
            (canonical_f32(value).to_bits() == value.to_bits()).then_some(ValueRef::F32(value))?
        }
        Type::F64 => {
            let stored = low_bytes(bytes) as u64;
            let flip = if stored >> 63 == 0 { u64::MAX } else { 1 << 63 };
            let value = f64::from_bits(stored ^ flip);
            (canonical_f64(value).to_bits() == value.to_bits()).then_some(ValueRef::F64(value))?
        }
        Type::Decimal { precision, scale } => {
            ValueRef::Decimal(decimal_of_scaled(signed(bytes), precision, scale)?)
        }
        Type::Date => ValueRef::Date(Date::from_days(signed(bytes) as i32)?),
        Type::Time => ValueRef::Time(Time::from_micros(signed(bytes) as i64)?),
        Type::Timestamp => ValueRef::Timestamp(Timestamp::from_micros(signed(bytes) as i64)?),
        Type::Uuid => ValueRef::Uuid(uuid::Uuid::from_u128(low_bytes(bytes))),
        Type::Text | Type::Bytes | Type::Json => return None,
    })
}
