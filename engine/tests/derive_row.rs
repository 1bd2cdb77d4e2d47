//! `#[derive(Row)]`: a struct is the same table as the schema that one would write by hand.

#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(
    clippy::duplicated_attributes,
    reason = "clippy compares what stands in attributes of different indexes"
)]

use alluvium::row::{
    Batch, Date, Decimal, Index, Json, MapStore, Row, Schema, Table, Time, Timestamp, Type, TypedRow, Uuid,
    Value,
};
use alluvium::{Db, Durability, ErrorKind, Options};

#[derive(Clone, Debug, PartialEq, Row)]
#[row(table = "orders", key(tenant, id))]
#[index(name = "by_email", on(tenant, email), unique)]
#[index(name = "recent", on(tenant, desc(placed)), include(total))]
#[index(name = "by_note", on(prefix(note, 16)))]
struct Order {
    tenant: u32,
    id: u64,
    email: String,
    placed: Timestamp,
    total: Decimal,
    note: Option<Vec<u8>>,
}

fn by_hand() -> Schema {
    Schema::table("orders")
        .column("tenant", Type::U32)
        .column("id", Type::U64)
        .column("email", Type::Text)
        .column("placed", Type::Timestamp)
        .column("total", Type::Decimal { precision: 12, scale: 2 })
        .nullable("note", Type::Bytes)
        .primary_key(["tenant", "id"])
        .index(Index::on("by_email").asc("tenant").asc("email").unique())
        .index(Index::on("recent").asc("tenant").desc("placed").include(["total"]))
        .index(Index::on("by_note").prefix("note", 16))
        .build()
        .unwrap()
}

fn order(id: u64, day: i64) -> Order {
    Order {
        tenant: 7,
        id,
        email: format!("u{id}@example.org"),
        placed: Timestamp::from_micros(day * 86_400_000_000).unwrap(),
        total: Decimal::new(995, 2),
        note: id.is_multiple_of(2).then(|| vec![0, id as u8]),
    }
}

#[test]
fn a_struct_reads_and_writes_a_table_made_by_hand() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::open(directory.path(), Options::default()).unwrap();
    db.create_table(by_hand()).unwrap();
    let table: alluvium::Table<Order> = db.open_or_create().unwrap();
    let mut batch = db.batch().unwrap();
    for id in 0..10 {
        batch.insert(&table, &order(id, id as i64)).unwrap();
    }
    batch.commit(Durability::Sync).unwrap();
    let mut batch = db.batch().unwrap();
    batch.update(&table, (7, 4), |row| row.total += Decimal::from(5)).unwrap();
    batch.update(&table, (7, 5), |row| row.note = None).unwrap();
    batch.delete(&table, (7, 6)).unwrap();
    batch.commit(Durability::Buffered).unwrap();

    assert_eq!(table.get((7u32, 3u64)).unwrap(), Some(order(3, 3)));
    assert_eq!(table.get((7, 6)).unwrap(), None);
    let pinned = table.get_ref((7, 4)).unwrap().unwrap();
    assert_eq!(pinned.total().unwrap().to_string(), "14.95");
    assert_eq!((pinned.id().unwrap(), pinned.note().unwrap()), (4, Some(vec![0, 4])));
    let mut scan =
        table.scan().index("recent").eq(7u32).range(order(0, 2).placed..).reverse().limit(2).run().unwrap();
    assert_eq!(scan.next_row().unwrap(), Some(order(2, 2)));
    assert_eq!(scan.next_row().unwrap(), Some(order(3, 3)));
    assert_eq!(scan.next_row().unwrap(), None);
    assert!(table.check_indexes().unwrap().is_clean());
    let dynamic = db.table("orders").unwrap();
    assert_eq!(dynamic.get((7, 3)).unwrap().unwrap().get("email").unwrap(), &Value::from("u3@example.org"));
}

#[derive(Clone, Debug, PartialEq, Row)]
#[row(table = "everything", key(uuid))]
#[index(name = "mixed", on(desc(prefix(text, 3)), wide, desc(money)), include(json, r#type))]
struct Everything {
    uuid: Uuid,
    flag: bool,
    tiny: i8,
    small: i16,
    medium: i32,
    wide: i64,
    u_tiny: u8,
    u_small: u16,
    float: f32,
    double: Option<f64>,
    #[column(decimal(9, 3))]
    money: Decimal,
    text: Box<str>,
    date: Date,
    time: Option<Time>,
    json: Json,
    #[column(rename = "kind", default = 3u8)]
    r#type: u8,
}

#[test]
fn every_type_of_field_survives_the_way_through_a_table() {
    let store = MapStore::new();
    let table: Table<MapStore, Everything> = Table::open_or_create(&store).unwrap();
    let row = Everything {
        uuid: Uuid::from_u128(5),
        flag: true,
        tiny: i8::MIN,
        small: -2,
        medium: i32::MAX,
        wide: i64::MIN,
        u_tiny: 255,
        u_small: 7,
        float: 0.1,
        double: Some(f64::INFINITY),
        money: Decimal::new(-1005, 3),
        text: "é\0x".into(),
        date: Date::from_ymd(2013, 2, 28).unwrap(),
        time: None,
        json: Json::parse(r#"{"a": [1, null]}"#).unwrap(),
        r#type: 9,
    };
    let mut batch = Batch::new(&store);
    batch.insert(&table, &row).unwrap();
    batch.commit(()).unwrap();
    assert_eq!(table.get(row.uuid).unwrap().as_ref(), Some(&row));
    let mut scan = table.scan().index("mixed").eq(("é\0x", i64::MIN)).run().unwrap();
    assert_eq!(scan.next_row().unwrap(), Some(row));
    assert_eq!(
        Everything::schema().unwrap().to_string().lines().last(),
        Some("  index mixed (text:3 desc, wide, money desc) include (json, kind)")
    );
    assert_eq!(Everything::schema().unwrap().column("kind").unwrap().default_value(), Some(Value::UInt(3)));
    let again: Table<MapStore, Everything> = Table::open_or_create(&store).unwrap();
    assert_eq!(again.scan().count().unwrap(), 1);
}

/// `orders` as somebody remembers it.
#[derive(Debug, Row)]
#[row(table = "orders", key(tenant))]
#[index(name = "by_email", on(email))]
struct Wrong {
    tenant: u32,
    email: Option<String>,
    amount: i64,
}

#[test]
fn a_struct_that_is_not_the_stored_table_is_told_every_difference() {
    let store = MapStore::new();
    Table::<MapStore>::create(&store, by_hand()).unwrap();
    let error = Table::<MapStore, Wrong>::open_or_create(&store).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::SchemaMismatch { .. }));
    assert_eq!(
        error.to_string(),
        "schema of orders: column email is text in the table, text null in the type; column amount is not in the table; \
         column id is not in the type; column placed is not in the type; column total is not in the type; column note \
         is not in the type; the primary key is (tenant, id) in the table, (tenant) in the type; unique index by_email \
         (tenant, email) is on the table, index by_email (email) on the type; index recent (tenant, placed desc) \
         include (total) is not on the type; index by_note (note:16) is not on the type"
    );
}
