//! Generators for property tests.

use proptest::prelude::*;
use rust_decimal::Decimal;
use uuid::Uuid;

use super::value::{canonical_f32, canonical_f64};
use super::{Date, Json, Time, Timestamp, Type, Value};

/// Any type.
pub(super) fn any_type() -> impl Strategy<Value = Type> {
    prop_oneof![
        Just(Type::Bool),
        Just(Type::I8),
        Just(Type::I16),
        Just(Type::I32),
        Just(Type::I64),
        Just(Type::U8),
        Just(Type::U16),
        Just(Type::U32),
        Just(Type::U64),
        Just(Type::F32),
        Just(Type::F64),
        (1u8..=28).prop_flat_map(|precision| {
            (Just(precision), 0..=precision).prop_map(|(precision, scale)| Type::Decimal { precision, scale })
        }),
        Just(Type::Text),
        Just(Type::Bytes),
        Just(Type::Date),
        Just(Type::Time),
        Just(Type::Timestamp),
        Just(Type::Uuid),
        Just(Type::Json),
    ]
}

/// Any type that can be part of a key.
pub(super) fn key_type() -> impl Strategy<Value = Type> {
    any_type().prop_filter("JSON is no key", |ty| ty.can_be_key())
}

fn floats() -> impl Strategy<Value = f64> {
    prop_oneof![
        any::<u64>().prop_map(f64::from_bits),
        (-3i8..3).prop_map(|half| f64::from(half) / 2.0),
        Just(-0.0),
        Just(f64::NAN),
        Just(f64::INFINITY),
        Just(f64::NEG_INFINITY),
        Just(f64::MIN_POSITIVE),
        Just(-5e-324),
    ]
}

/// Text that likes to hold what breaks key codecs: zero characters, the last code points, common prefixes.
fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        prop::collection::vec(prop_oneof!["\0", "\u{1}", "a", "b", "é", "\u{7f}", "\u{10ffff}"], 0..6)
            .prop_map(|parts| parts.concat()),
        any::<String>(),
    ]
}

fn byte_strings() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(prop_oneof![Just(0u8), Just(1), Just(0xfe), Just(0xff), any::<u8>()], 0..6)
}

fn integers(min: i64, max: i64) -> impl Strategy<Value = i64> {
    prop_oneof![min..=max, Just(min), Just(max), min.max(-2)..=max.min(2)]
}

/// Any value of `ty` in canonical form, edges included; never NULL.
pub(super) fn any_value(ty: Type) -> BoxedStrategy<Value> {
    let int = |min: i64, max: i64| integers(min, max).prop_map(Value::Int).boxed();
    let uint = |max: u64| prop_oneof![0..=max, Just(max), 0..=2u64].prop_map(Value::UInt).boxed();
    match ty {
        Type::Bool => any::<bool>().prop_map(Value::Bool).boxed(),
        Type::I8 => int(i64::from(i8::MIN), i64::from(i8::MAX)),
        Type::I16 => int(i64::from(i16::MIN), i64::from(i16::MAX)),
        Type::I32 => int(i64::from(i32::MIN), i64::from(i32::MAX)),
        Type::I64 => int(i64::MIN, i64::MAX),
        Type::U8 => uint(u64::from(u8::MAX)),
        Type::U16 => uint(u64::from(u16::MAX)),
        Type::U32 => uint(u64::from(u32::MAX)),
        Type::U64 => uint(u64::MAX),
        Type::F32 => floats().prop_map(|value| Value::F32(canonical_f32(value as f32))).boxed(),
        Type::F64 => floats().prop_map(|value| Value::F64(canonical_f64(value))).boxed(),
        Type::Decimal { precision, scale } => {
            let limit = 10i128.pow(u32::from(precision)) - 1;
            prop_oneof![-limit..=limit, Just(-limit), Just(limit), -2i128..=2]
                .prop_map(move |scaled| {
                    Value::Decimal(Decimal::from_i128_with_scale(scaled, u32::from(scale)))
                })
                .boxed()
        }
        Type::Text => texts().prop_map(Value::Text).boxed(),
        Type::Bytes => byte_strings().prop_map(Value::Bytes).boxed(),
        Type::Date => integers(i64::from(Date::MIN.days()), i64::from(Date::MAX.days()))
            .prop_map(|days| Value::Date(Date::from_days(days as i32).unwrap()))
            .boxed(),
        Type::Time => integers(0, Time::MAX.micros())
            .prop_map(|micros| Value::Time(Time::from_micros(micros).unwrap()))
            .boxed(),
        Type::Timestamp => integers(Timestamp::MIN.micros(), Timestamp::MAX.micros())
            .prop_map(|micros| Value::Timestamp(Timestamp::from_micros(micros).unwrap()))
            .boxed(),
        Type::Uuid => any::<u128>().prop_map(|bits| Value::Uuid(Uuid::from_u128(bits))).boxed(),
        Type::Json => prop_oneof![
            texts().prop_map(|text| Json::from(&serde_json::Value::from(text))),
            (floats(), any::<i64>(), texts()).prop_map(|(float, int, text)| {
                Json::from(&serde_json::json!({ (text): [float, int, null] }))
            }),
        ]
        .prop_map(Value::Json)
        .boxed(),
    }
}
