//! The bytes that `design/formats/row.md` shows. A change here is a change of format.

use super::*;
use std::sync::Arc;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02X}")).collect()
}

#[test]
fn keys_rows_and_entries_are_the_documented_bytes() {
    let schema = Schema::table("t")
        .column("a", Type::U8)
        .nullable("b", Type::Text)
        .column("c", Type::Text)
        .nullable("n", Type::I16)
        .column("id", Type::U32)
        .primary_key(["id"])
        .index(Index::on("plain").asc("c").desc("n").include(["a", "id"]))
        .index(Index::on("unique").asc("n").unique().include(["b"]))
        .build()
        .unwrap();
    let encoder = RowEncoder::new(Arc::new(schema));
    let row = |n: ValueRef<'static>| [5.into(), ValueRef::Null, ValueRef::Text("a\0b"), n, 7.into()];
    let entry = |index: usize, n: ValueRef<'static>| {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        encoder.encode_index_entry(index, &row(n), &[0, 0, 0, 7], &mut key, &mut value).unwrap();
        (hex(&key), hex(&value))
    };
    let (mut key, mut value) = (Vec::new(), Vec::new());
    encoder.encode_row(&row((-3).into()), &mut key, &mut value).unwrap();
    assert_eq!(hex(&key), "00000007");
    // Version 1; packed: header, nulls, a and n, ends of b and c, "a\0b".
    assert_eq!(hex(&value), "01".to_owned() + "11" + "01" + "05FDFF" + "0003" + "610062");
    assert_eq!(entry(0, (-3).into()), ("6100FF620000".to_owned() + "FE8002" + "00000007", "1005".to_owned()));
    assert_eq!(entry(0, ValueRef::Null), ("6100FF620000".to_owned() + "FF" + "00000007", "1005".to_owned()));
    let primary_key_and_included = "0400000007".to_owned() + "110100";
    assert_eq!(entry(1, (-3).into()), ("017FFD".to_owned(), primary_key_and_included.clone()));
    assert_eq!(entry(1, ValueRef::Null), ("0000000007".to_owned(), primary_key_and_included));
}

#[test]
fn the_table_definition_is_the_documented_bytes() {
    let schema = Schema::table("t")
        .column("id", Type::U32)
        .nullable("x", Type::Decimal { precision: 4, scale: 1 })
        .default(5)
        .primary_key(["id"])
        .index(Index::on("i").part("x", true, None).unique())
        .build()
        .unwrap();
    let store = MapStore::new();
    let change = TableDefinition::allocate(&store, schema).unwrap().creation();
    assert_eq!(change.key, b"tt");
    let schema = "01".to_owned()
        + "0174"
        + "01"
        + "02"
        + "01"
        + "02"
        + "00"
        + "026964"
        + "08"
        + "00"
        + "01"
        + "01"
        + "0178"
        + "0C0401"
        + "03"
        + "01"
        + "04"
        + "01352E30"
        + "00"
        + "01"
        + "0000"
        + "01"
        + "00"
        + "0169"
        + "01"
        + "01"
        + "0101"
        + "00";
    let length = format!("{:02X}", schema.len() / 2);
    assert_eq!(hex(&change.value.unwrap()), "01".to_owned() + "01" + "01" + "0002" + &length + &schema);
}
