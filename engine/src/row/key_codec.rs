//! Keys as bytes whose order, compared byte by byte, is the order of the values.
//!
//! Each column of a key is encoded by itself, one behind the other:
//!
//! ```text
//! part     = [0x00 for NULL | 0x01]   (only if the column is nullable)   then, unless NULL:
//! fixed    = big-endian, sign bit inverted; floats: all bits inverted if negative, else the sign bit
//! variable = bytes with each 0x00 written as 0x00 0xff, then 0x00 0x00
//! descending: all of this inverted, bit by bit
//! ```
//!
//! Why it works: fixed parts of one column have one length, and of two variable parts neither is a prefix of the other
//! (the terminator `00 00` cannot occur inside, where 00 is followed by ff). So *no encoding is a prefix of another*,
//! hence the first differing byte of two keys lies within the same column of both, and decides. The terminator is less
//! than every continuation (`00 ff`, or a byte above 00), so `"a"` sorts before `"a\0"` and `("a", "bc")` differs from
//! `("ab", "c")`. Because no part is a prefix of another, inverting a part exactly reverses its order; inverting before
//! escaping would put the terminator on the wrong side.
//!
//! The escape is that of FoundationDB's tuple layer; the two-byte terminator, which keeps parts prefix-free, that of
//! CockroachDB's key encoding.

use super::convert::scaled;
use super::types::{Type, Width};
use super::value::ValueRef;

pub(super) const NULL: u8 = 0x00;
pub(super) const PRESENT: u8 = 0x01;
pub(super) const ZERO: u8 = 0x00;
const ESCAPED: u8 = 0xff;
pub(super) const TERMINATOR: [u8; 2] = [ZERO, 0x00];
/// Bytes of the widest fixed type.
pub(super) const FIXED_BYTES_MAX: usize = 16;

/// One column of a key: where its value comes from and how it is encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct KeyColumn {
    /// Position of the column in the schema.
    pub(super) position: usize,
    pub(super) ty: Type,
    pub(super) nullable: bool,
    pub(super) descending: bool,
    /// Keep only so many characters (of text) or bytes.
    pub(super) prefix: Option<u32>,
}

impl KeyColumn {
    /// Appends the encoding of `value`, which must be in the canonical form of the column's type; `None` if it is of
    /// another type, or NULL in a column that has none (`out` then holds rubbish at its end).
    pub(super) fn encode(&self, value: ValueRef<'_>, out: &mut Vec<u8>) -> Option<()> {
        let start = out.len();
        if self.nullable {
            out.push(if value.is_null() { NULL } else { PRESENT });
        }
        if !(self.nullable && value.is_null()) {
            encode_present(self.cut(value), self.ty, out)?;
        }
        if self.descending {
            out.iter_mut().skip(start).for_each(|byte| *byte = !*byte);
        }
        Some(())
    }

    /// The part of a value that is kept in the key.
    pub(super) fn cut<'a>(&self, value: ValueRef<'a>) -> ValueRef<'a> {
        let Some(len) = self.prefix else { return value };
        let len = len as usize;
        match value {
            ValueRef::Text(text) => {
                let end = text.char_indices().nth(len).map_or(text.len(), |(at, _)| at);
                ValueRef::Text(text.get(..end).unwrap_or(text))
            }
            ValueRef::Bytes(bytes) => ValueRef::Bytes(bytes.get(..len).unwrap_or(bytes)),
            other => other,
        }
    }

    /// Length of this column's part at the front of `key`; `None` if the bytes are not such a part.
    pub(super) fn part_len(&self, key: &[u8]) -> Option<usize> {
        let mask = self.mask();
        let marker = usize::from(self.nullable);
        if self.nullable && key.first()? ^ mask == NULL {
            return Some(1);
        }
        match self.ty.width() {
            Width::Fixed(bytes) => (key.len() >= marker + bytes).then_some(marker + bytes),
            Width::Variable => {
                let mut at = marker;
                loop {
                    at += key.get(at..)?.iter().position(|byte| byte ^ mask == ZERO)?;
                    let follower = key.get(at + 1)? ^ mask;
                    at += 2;
                    match follower {
                        0x00 => return Some(at),
                        ESCAPED => {}
                        _ => return None,
                    }
                }
            }
        }
    }

    /// What the bytes of a descending part are combined with.
    pub(super) fn mask(&self) -> u8 {
        if self.descending { 0xff } else { 0x00 }
    }
}

/// Length of the parts of `columns` at the front of `key`; `None` if they are not there.
pub(super) fn parts_len(columns: &[KeyColumn], key: &[u8]) -> Option<usize> {
    columns.iter().try_fold(0, |at, column| Some(at + column.part_len(key.get(at..)?)?))
}

/// The longest encoding that one column can have if its value takes `value_bytes` in a row: every byte escaped, plus
/// marker and terminator.
pub(super) fn part_bytes_max(value_bytes: usize) -> usize {
    value_bytes.max(FIXED_BYTES_MAX) * 2 + 1 + TERMINATOR.len()
}

fn encode_present(value: ValueRef<'_>, ty: Type, out: &mut Vec<u8>) -> Option<()> {
    match (value, ty) {
        (ValueRef::Text(text), Type::Text) => encode_escaped(text.as_bytes(), out),
        (ValueRef::Bytes(bytes), Type::Bytes) => encode_escaped(bytes, out),
        (ValueRef::Uuid(uuid), Type::Uuid) => out.extend_from_slice(uuid.as_bytes()),
        (ValueRef::Bool(value), Type::Bool) => out.push(u8::from(value)),
        (ValueRef::Decimal(_), Type::Decimal { scale, .. }) => {
            let Width::Fixed(bytes) = ty.width() else { return None };
            put_signed(scaled(value, u32::from(scale))?, bytes, out);
        }
        (ValueRef::Int(value), Type::I8 | Type::I16 | Type::I32 | Type::I64) => {
            let Width::Fixed(bytes) = ty.width() else { return None };
            put_signed(i128::from(value), bytes, out);
        }
        (ValueRef::UInt(value), Type::U8 | Type::U16 | Type::U32 | Type::U64) => {
            let Width::Fixed(bytes) = ty.width() else { return None };
            put_low_bytes(u128::from(value), bytes, out);
        }
        (ValueRef::Date(date), Type::Date) => put_signed(i128::from(date.days()), 4, out),
        (ValueRef::Time(time), Type::Time) => put_signed(i128::from(time.micros()), 8, out),
        (ValueRef::Timestamp(moment), Type::Timestamp) => put_signed(i128::from(moment.micros()), 8, out),
        (ValueRef::F32(value), Type::F32) => {
            let bits = value.to_bits();
            let flip = if value.is_sign_negative() { u32::MAX } else { 1 << 31 };
            out.extend_from_slice(&(bits ^ flip).to_be_bytes());
        }
        (ValueRef::F64(value), Type::F64) => {
            let bits = value.to_bits();
            let flip = if value.is_sign_negative() { u64::MAX } else { 1 << 63 };
            out.extend_from_slice(&(bits ^ flip).to_be_bytes());
        }
        _ => return None,
    }
    Some(())
}

fn encode_escaped(mut bytes: &[u8], out: &mut Vec<u8>) {
    while let Some(zero) = bytes.iter().position(|&byte| byte == ZERO) {
        let (before, rest) = bytes.split_at(zero);
        out.extend_from_slice(before);
        out.extend_from_slice(&[ZERO, ESCAPED]);
        bytes = rest.get(1..).unwrap_or_default();
    }
    out.extend_from_slice(bytes);
    out.extend_from_slice(&TERMINATOR);
}

/// Appends the low `bytes` bytes, most significant first.
fn put_low_bytes(value: u128, bytes: usize, out: &mut Vec<u8>) {
    let all = value.to_be_bytes();
    out.extend_from_slice(all.get(all.len() - bytes..).unwrap_or(&all));
}

/// Appends a signed number of `bytes` bytes, its sign bit inverted.
fn put_signed(value: i128, bytes: usize, out: &mut Vec<u8>) {
    put_low_bytes(value as u128 ^ 1 << (bytes * 8 - 1), bytes, out);
}

#[cfg(test)]
mod tests {
    use std::cmp::Ordering;

    use proptest::prelude::*;

    use super::*;
    use crate::row::Value;
    use crate::row::key_decoder::{DecodedKey, show_key};
    use crate::row::testing::{any_value, key_type};

    fn column(ty: Type, nullable: bool, descending: bool) -> KeyColumn {
        KeyColumn { position: 0, ty, nullable, descending, prefix: None }
    }

    fn encode(columns: &[KeyColumn], values: &[Value]) -> Vec<u8> {
        let mut out = Vec::new();
        for (column, value) in columns.iter().zip(values) {
            column.encode(value.as_ref(), &mut out).unwrap();
        }
        out
    }

    /// Columns with two keys over them, some of whose values are equal.
    fn keys() -> impl Strategy<Value = (Vec<KeyColumn>, Vec<Value>, Vec<Value>)> {
        let part = (key_type(), any::<bool>(), any::<bool>()).prop_flat_map(|(ty, nullable, descending)| {
            let value = move || {
                if nullable {
                    prop_oneof![1 => Just(Value::Null), 4 => any_value(ty)].boxed()
                } else {
                    any_value(ty)
                }
            };
            let pair = prop_oneof![value().prop_map(|value| (value.clone(), value)), (value(), value())];
            (Just(column(ty, nullable, descending)), pair)
        });
        prop::collection::vec(part, 1..4).prop_map(|parts| {
            let (columns, pairs): (Vec<_>, Vec<_>) = parts.into_iter().unzip();
            let (a, b) = pairs.into_iter().unzip();
            (columns, a, b)
        })
    }

    fn expected_order(columns: &[KeyColumn], a: &[Value], b: &[Value]) -> Ordering {
        columns.iter().zip(a.iter().zip(b)).fold(Ordering::Equal, |order, (column, (a, b))| {
            order.then_with(|| if column.descending { b.cmp(a) } else { a.cmp(b) })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]

        #[test]
        fn bytes_order_like_values_and_none_is_a_prefix_of_another((columns, a, b) in keys()) {
            let (key_a, key_b) = (encode(&columns, &a), encode(&columns, &b));
            let order = expected_order(&columns, &a, &b);
            prop_assert_eq!(key_a.cmp(&key_b), order);
            prop_assert_eq!(key_a.starts_with(&key_b), order.is_eq());
            prop_assert_eq!(key_b.starts_with(&key_a), order.is_eq());
        }

        #[test]
        fn keys_round_trip_even_with_more_behind_them((columns, a, b) in keys()) {
            let mut key = encode(&columns, &a);
            let len = key.len();
            key.extend(encode(&columns, &b));
            let mut decoded = DecodedKey::default();
            prop_assert_eq!(decoded.decode(&columns, &key), Some(len));
            prop_assert_eq!(parts_len(&columns, &key), Some(len));
            for (part, value) in a.iter().enumerate() {
                prop_assert_eq!(decoded.get(part), value.as_ref());
                prop_assert_eq!(decoded.get(part).to_string(), value.to_string());
            }
            for cut in 0..len {
                prop_assert_eq!(decoded.decode(&columns, &key[..cut]), None);
            }
        }

        #[test]
        fn what_decodes_encodes_to_the_same_bytes((columns, _, _) in keys(), bytes: Vec<u8>) {
            let mut decoded = DecodedKey::default();
            if let Some(len) = decoded.decode(&columns, &bytes) {
                let values: Vec<Value> = (0..columns.len()).map(|part| decoded.get(part).to_value()).collect();
                prop_assert_eq!(encode(&columns, &values), &bytes[..len]);
            }
            let _ = show_key(&columns, &bytes);
        }

        #[test]
        fn a_part_never_exceeds_its_bound((ty, value) in key_type().prop_flat_map(|ty| (Just(ty), any_value(ty)))) {
            let stored = match &value {
                Value::Text(text) => text.len(),
                Value::Bytes(bytes) => bytes.len(),
                _ => 0,
            };
            prop_assert!(encode(&[column(ty, true, true)], &[value]).len() <= part_bytes_max(stored));
        }
    }

    #[test]
    fn columns_do_not_run_into_each_other() {
        let columns = [column(Type::Text, false, false), column(Type::Text, false, false)];
        let key = |a: &str, b: &str| encode(&columns, &[a.into(), b.into()]);
        assert_ne!(key("a", "bc"), key("ab", "c"));
        assert!(key("a", "bc") < key("ab", "c"));
        assert!(key("a", "\u{10ffff}") < key("a\0", ""));
        assert!(key("a\0", "b") < key("a\u{1}", "a"));
    }

    #[test]
    fn floats_sort_totally_with_one_nan() {
        for (ty, values) in [
            (
                Type::F64,
                [f64::NEG_INFINITY, -1.0, -5e-324, 0.0, 5e-324, 1.0, f64::INFINITY, f64::NAN]
                    .map(Value::from),
            ),
            (
                Type::F32,
                [f32::NEG_INFINITY, -1.0, -1e-45, 0.0, 1e-45, 1.0, f32::INFINITY, f32::NAN].map(Value::from),
            ),
        ] {
            let keys = values.map(|value| encode(&[column(ty, false, false)], &[value]));
            assert!(keys.is_sorted_by(|a, b| a < b));
        }
        let key = |value: f64| {
            encode(&[column(Type::F64, false, false)], &[Value::F64(value).coerce(Type::F64).unwrap()])
        };
        assert_eq!(key(-0.0), key(0.0));
        assert_eq!(key(-f64::NAN), key(f64::NAN));
    }

    #[test]
    fn nulls_come_first_ascending_and_last_descending() {
        for descending in [false, true] {
            let column = column(Type::I64, true, descending);
            let null = encode(&[column], &[Value::Null]);
            let least = encode(&[column], &[Value::Int(i64::MIN)]);
            assert_eq!(null < least, !descending);
        }
    }

    #[test]
    fn a_prefix_counts_characters_of_text_and_bytes_of_bytes() {
        let prefix = |ty, len| KeyColumn { prefix: Some(len), ..column(ty, false, false) };
        let text = prefix(Type::Text, 2);
        assert_eq!(encode(&[text], &["é\0x".into()]), encode(&[text], &["é\0".into()]));
        assert_ne!(encode(&[text], &["é".into()]), encode(&[text], &["é\0".into()]));
        let bytes = prefix(Type::Bytes, 2);
        assert_eq!(encode(&[bytes], &[b"abc".into()]), encode(&[bytes], &[b"ab".into()]));
    }

    #[test]
    fn a_value_of_another_type_is_refused() {
        let mut out = Vec::new();
        assert_eq!(column(Type::U8, false, false).encode(ValueRef::Null, &mut out), None);
        assert_eq!(column(Type::U8, false, false).encode(ValueRef::Int(1), &mut out), None);
        assert_eq!(column(Type::Text, true, false).encode(ValueRef::Bytes(b""), &mut out), None);
    }
}
