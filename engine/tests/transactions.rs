//! Transactions over keyspaces and tables: what they see, when they conflict, and that nothing is half-done.
#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test says what it expects and fails where it is not so"
)]

use alluvium::base::fs::memory::MemoryFs;
use alluvium::base::sync::enter_simulation;
use alluvium::{
    Db, Durability, Environment, Error, ErrorKind, Index, Isolation, Keyspace, Options, Result, Schema,
    Table, Transaction, TransactionOptions, Type, Value,
};

const BUFFERED: Durability = Durability::Buffered;

/// Runs a test on a database in a simulation.
fn with_db(test: impl FnOnce(&Db)) {
    let (environment, executor, _) = Environment::simulated(MemoryFs::new().shared(), 11);
    let _simulation = enter_simulation(executor);
    let db = Db::open_in(environment, "/db", Options::default()).unwrap();
    test(&db);
    db.close(std::time::Duration::from_secs(10)).unwrap();
}

fn with_keyspace(test: impl FnOnce(&Db, &Keyspace)) {
    with_db(|db| test(db, &db.keyspace("k").unwrap()));
}

fn people(db: &Db) -> Table {
    let schema = Schema::table("people")
        .column("id", Type::U64)
        .column("email", Type::Text)
        .column("age", Type::I64)
        .primary_key(["id"])
        .index(Index::on("by_email").asc("email").unique())
        .index(Index::on("by_age").desc("age").include(["email"]))
        .build()
        .unwrap();
    db.create_table(schema).unwrap()
}

fn person(table: &Table, id: u64, email: &str, age: i64) -> alluvium::DynamicRow {
    table.row_of([Value::from(id), Value::from(email), Value::from(age)]).unwrap()
}

fn is_conflict<T: std::fmt::Debug>(result: Result<T>) -> bool {
    let error = result.expect_err("a conflict");
    assert!(matches!(error.kind(), ErrorKind::Conflict { .. }), "{error}");
    true
}

/// Ids of the people, as a transaction sees them by one index.
fn ids(tx: &Transaction, table: &Table, index: Option<&str>, reverse: bool) -> Vec<String> {
    let mut scan = tx.scan(table);
    if let Some(index) = index {
        scan = scan.index(index);
    }
    if reverse {
        scan = scan.reverse();
    }
    let mut scan = scan.run().unwrap();
    let mut found = Vec::new();
    while let Some(row) = scan.next().unwrap() {
        found.push(format!("{}:{}", row.get("id").unwrap(), row.get("email").unwrap()));
    }
    found
}

#[test]
fn a_transaction_sees_its_own_writes_and_nobody_elses() {
    with_keyspace(|db, keyspace| {
        for key in [b"a", b"b", b"c", b"d"] {
            keyspace.put(key, b"old", BUFFERED).unwrap();
        }
        let mut tx = db.transaction(Isolation::Snapshot).unwrap();
        keyspace.put(b"d", b"other", BUFFERED).unwrap();
        let mut view = tx.keyspace(keyspace);
        view.put(b"aa", b"mine").unwrap();
        view.put(b"b", b"mine").unwrap();
        view.delete(b"c").unwrap();
        view.put(b"e", b"mine").unwrap();
        assert_eq!(view.get(b"aa").unwrap().as_deref(), Some(b"mine".as_slice()));
        assert!(view.get(b"c").unwrap().is_none());
        assert_eq!(view.get(b"d").unwrap().as_deref(), Some(b"old".as_slice()));
        let expected = ["a=old", "aa=mine", "b=mine", "d=old", "e=mine"];
        let show = |key: &[u8], value: &[u8]| format!("{}={}", key.escape_ascii(), value.escape_ascii());
        let (mut forward, mut backward) = (Vec::new(), Vec::new());
        let mut iter = view.range::<&[u8]>(..).unwrap();
        view.put(b"later", b"unseen by the running scan").unwrap();
        while iter.next().unwrap() {
            forward.push(show(iter.key(), iter.value()));
        }
        assert!(iter.prev().is_err(), "one direction only");
        view.delete(b"later").unwrap();
        let mut iter = view.range::<&[u8]>(..).unwrap();
        while iter.prev().unwrap() {
            backward.push(show(iter.key(), iter.value()));
        }
        backward.reverse();
        assert_eq!(
            (forward, backward),
            (expected.map(String::from).to_vec(), expected.map(String::from).to_vec())
        );
        assert!(keyspace.get(b"aa").unwrap().is_none(), "nobody sees it before the commit");
        tx.commit(BUFFERED).unwrap();
        assert_eq!(keyspace.get_owned(b"aa").unwrap().as_deref(), Some(b"mine".as_slice()));
        assert!(keyspace.get(b"c").unwrap().is_none());
    });
}

#[test]
fn the_first_committer_wins_whatever_the_other_write_was() {
    with_keyspace(|db, keyspace| {
        type Write = fn(&Db, &Keyspace);
        let others: [(&str, bool, Write); 5] = [
            ("put", true, |_, k| k.put(b"x", b"2", BUFFERED).unwrap()),
            ("delete", true, |_, k| k.delete(b"x", BUFFERED).unwrap()),
            ("range delete", true, |_, k| k.delete_range(b"a".as_slice()..b"z", BUFFERED).unwrap()),
            ("transaction", true, |db, k| db.transact(|tx| tx.keyspace(k).put(b"x", b"2")).unwrap()),
            ("put of another key", false, |_, k| k.put(b"y", b"2", BUFFERED).unwrap()),
        ];
        type Settle = fn(&Db);
        let settled: [(&str, Settle); 3] = [
            ("in memory", |_| ()),
            ("flushed", |db| db.flush().unwrap()),
            ("compacted", |db| db.compact(None).unwrap()),
        ];
        for (other, conflicts, write) in others {
            for (place, settle) in settled {
                keyspace.put(b"x", b"0", BUFFERED).unwrap();
                settle(db);
                let mut tx = db.transaction(Isolation::Snapshot).unwrap();
                write(db, keyspace);
                settle(db);
                tx.keyspace(keyspace).put(b"x", b"1").unwrap();
                let result = tx.commit(BUFFERED);
                assert_eq!(result.is_err(), conflicts, "{other}, {place}");
                if conflicts {
                    let text = result.as_ref().unwrap_err().to_string();
                    assert!(is_conflict(result) && text.contains("key \"x\" of keyspace k"), "{text}");
                }
                let value = keyspace.get_owned(b"x").unwrap();
                assert_eq!(value.as_deref() == Some(b"1"), !conflicts, "{other}, {place}: nothing half-done");
            }
        }
    });
}

#[test]
fn a_put_and_its_delete_are_remembered_through_a_compaction() {
    with_keyspace(|db, keyspace| {
        let mut tx = db.transaction(Isolation::Snapshot).unwrap();
        tx.keyspace(keyspace).put(b"lock", b"mine").unwrap();
        keyspace.put(b"lock", b"theirs", BUFFERED).unwrap();
        db.flush().unwrap();
        keyspace.delete(b"lock", BUFFERED).unwrap();
        db.compact(None).unwrap();
        assert!(is_conflict(tx.commit(BUFFERED)));
        db.compact(None).unwrap();
        assert_eq!(db.statistics().unwrap().levels.iter().map(|level| level.entries).sum::<u64>(), 0);
    });
}

#[test]
fn absent_rows_are_guarded_too() {
    with_db(|db| {
        let table = people(db);
        let mut one = db.transaction(Isolation::Snapshot).unwrap();
        let mut two = db.transaction(Isolation::Snapshot).unwrap();
        one.insert(&table, &person(&table, 1, "a", 30)).unwrap();
        two.insert(&table, &person(&table, 1, "b", 31)).unwrap();
        let again = two.insert(&table, &person(&table, 1, "b", 31)).unwrap_err();
        assert!(matches!(again.kind(), ErrorKind::KeyExists { .. }), "{again}");
        one.commit(BUFFERED).unwrap();
        assert!(is_conflict(two.commit(BUFFERED)));
        assert_eq!(table.get(1).unwrap().unwrap().get("email").unwrap(), &Value::from("a"));
        assert!(table.check_indexes().unwrap().is_clean());
        assert_eq!(db.statistics().unwrap().conflicts, 1);
    });
}

#[test]
fn scans_inside_of_a_transaction_see_its_rows_by_every_index() {
    with_db(|db| {
        let table = people(db);
        db.transact(|tx| {
            (1..5).try_for_each(|id| tx.insert(&table, &person(&table, id, &format!("p{id}"), id as i64)))
        })
        .unwrap();
        let mut tx = db.transaction(Isolation::Snapshot).unwrap();
        // Two rows swap their unique values, one goes, one comes, one moves in an index.
        tx.update(&table, 1, |row| row.set("email", "p2")).unwrap();
        tx.update(&table, 2, |row| row.set("email", "p1")).unwrap();
        tx.delete(&table, 3).unwrap();
        tx.put(&table, &person(&table, 9, "p9", 0)).unwrap();
        tx.update(&table, 4, |row| row.set("age", -4)).unwrap();
        assert_eq!(ids(&tx, &table, None, false), ["1:p2", "2:p1", "4:p4", "9:p9"]);
        assert_eq!(ids(&tx, &table, None, true), ["9:p9", "4:p4", "2:p1", "1:p2"]);
        assert_eq!(ids(&tx, &table, Some("by_email"), false), ["2:p1", "1:p2", "4:p4", "9:p9"]);
        assert_eq!(ids(&tx, &table, Some("by_age"), false), ["2:p1", "1:p2", "9:p9", "4:p4"]);
        assert_eq!(tx.scan(&table).index("by_email").eq("p3").count().unwrap(), 0);
        assert_eq!(table.scan().index("by_email").eq("p3").count().unwrap(), 1, "others see the old state");
        let missing = tx.update(&table, 3, |row| row.set("age", 1)).unwrap_err();
        assert!(matches!(missing.kind(), ErrorKind::NotFound { .. }), "{missing}");
        tx.commit(BUFFERED).unwrap();
        let after = db.transaction(Isolation::Snapshot).unwrap();
        assert_eq!(ids(&after, &table, Some("by_age"), true), ["4:p4", "9:p9", "1:p2", "2:p1"]);
        assert!(table.check_indexes().unwrap().is_clean());
    });
}

#[test]
fn a_transaction_may_span_tables_and_keyspaces() {
    with_db(|db| {
        let (table, log) = (people(db), db.keyspace("log").unwrap());
        let refused = db.transact(|tx| {
            tx.insert(&table, &person(&table, 1, "a", 1))?;
            tx.keyspace(&log).put(b"1", b"inserted")?;
            Err::<(), Error>(Error::invalid("thought better of it"))
        });
        assert!(refused.is_err() && table.get(1).unwrap().is_none() && log.get(b"1").unwrap().is_none());
        db.transact(|tx| {
            tx.insert(&table, &person(&table, 1, "a", 1))?;
            tx.keyspace(&log).put(b"1", b"inserted")
        })
        .unwrap();
        assert!(table.get(1).unwrap().is_some() && log.get(b"1").unwrap().is_some());
        let violation = db.transact(|tx| {
            tx.keyspace(&log).put(b"2", b"inserted")?;
            tx.insert(&table, &person(&table, 2, "a", 1))
        });
        assert!(matches!(violation.unwrap_err().kind(), ErrorKind::UniqueViolation { .. }));
        assert!(log.get(b"2").unwrap().is_none(), "nothing half-done");
    });
}

#[test]
fn a_row_that_is_written_as_it_was_still_conflicts() {
    with_db(|db| {
        let table = people(db);
        db.transact(|tx| tx.insert(&table, &person(&table, 1, "a", 1))).unwrap();
        let mut one = db.transaction(Isolation::Snapshot).unwrap();
        let mut two = db.transaction(Isolation::Snapshot).unwrap();
        one.update(&table, 1, |_| ()).unwrap();
        two.update(&table, 1, |_| ()).unwrap();
        one.commit(BUFFERED).unwrap();
        assert!(is_conflict(two.commit(BUFFERED)));
        assert!(table.check_indexes().unwrap().is_clean());
    });
}

/// Each of two transactions reads `x` and `y` and writes one of them.
fn write_skew(db: &Db, isolation: Isolation, read: impl Fn(&mut Transaction, &[u8])) -> Result<()> {
    let keyspace = db.keyspace("k").unwrap();
    let mut one = db.transaction(isolation).unwrap();
    let mut two = db.transaction(isolation).unwrap();
    for tx in [&mut one, &mut two] {
        read(tx, b"x");
        read(tx, b"y");
    }
    one.keyspace(&keyspace).put(b"x", b"1").unwrap();
    two.keyspace(&keyspace).put(b"y", b"1").unwrap();
    one.commit(BUFFERED).unwrap();
    two.commit(BUFFERED)
}

#[test]
fn write_skew_is_refused_when_serialisable_or_read_for_update() {
    with_keyspace(|db, k| {
        let get = |tx: &mut Transaction, key: &[u8]| drop(tx.keyspace(k).get(key).unwrap());
        let update = |tx: &mut Transaction, key: &[u8]| drop(tx.keyspace(k).get_for_update(key).unwrap());
        let scan = |tx: &mut Transaction, key: &[u8]| {
            let mut iter = tx.keyspace(k).range(key..=key).unwrap();
            while iter.next().unwrap() {}
        };
        let back = |tx: &mut Transaction, key: &[u8]| {
            let mut iter = tx.keyspace(k).range(..=key).unwrap();
            while iter.prev().unwrap() {}
        };
        write_skew(db, Isolation::Snapshot, get).unwrap();
        for present in [false, true] {
            let clear = || {
                for key in [b"x", b"y"] {
                    match present {
                        true => k.put(key, b"0", BUFFERED).unwrap(),
                        false => k.delete(key, BUFFERED).unwrap(),
                    }
                }
            };
            clear();
            assert!(is_conflict(write_skew(db, Isolation::Snapshot, update)));
            clear();
            assert!(is_conflict(write_skew(db, Isolation::Serializable, get)));
            clear();
            assert!(is_conflict(write_skew(db, Isolation::Serializable, scan)));
            clear();
            assert!(is_conflict(write_skew(db, Isolation::Serializable, back)));
        }
    });
}

#[test]
fn only_what_a_scan_has_gone_over_is_guarded() {
    with_keyspace(|db, keyspace| {
        for key in [b"b", b"d", b"f"] {
            keyspace.put(key, b"", BUFFERED).unwrap();
        }
        for (forward, phantom, conflicts) in [
            (true, b"a", true),
            (true, b"c", true),
            (true, b"e", false),
            (true, b"d", true),
            (false, b"g", true),
            (false, b"e", true),
            (false, b"c", false),
            (false, b"d", true),
        ] {
            let mut tx = db.transaction(Isolation::Serializable).unwrap();
            let mut iter = tx.keyspace(keyspace).range::<&[u8]>(..).unwrap();
            for _ in 0..2 {
                assert!(if forward { iter.next().unwrap() } else { iter.prev().unwrap() });
            }
            assert_eq!(iter.key(), b"d");
            tx.keyspace(keyspace).put(b"zz", b"").unwrap();
            keyspace.put(phantom, b"1", BUFFERED).unwrap();
            assert_eq!(tx.commit(BUFFERED).is_err(), conflicts, "{forward} {phantom:?}");
            if [b"a", b"c", b"e", b"g"].contains(&phantom) {
                keyspace.delete(phantom, BUFFERED).unwrap();
            }
            keyspace.delete(b"zz", BUFFERED).unwrap();
        }
    });
}

#[test]
fn phantoms_and_changed_rows_behind_an_index_are_conflicts() {
    with_db(|db| {
        let table = people(db);
        let set = |id: u64, email: &str, age: i64| {
            let mut batch = db.batch().unwrap();
            batch.put(&table, &person(&table, id, email, age)).unwrap();
            batch.commit(BUFFERED).unwrap();
        };
        set(1, "a", 30);
        set(2, "b", 40);
        let adults_then = |meanwhile: &dyn Fn()| {
            let mut tx = db.transaction(Isolation::Serializable).unwrap();
            let mut scan = tx.scan(&table).index("by_age").range(30..).columns(["id", "age"]).run().unwrap();
            while scan.next().unwrap().is_some() {}
            tx.keyspace(&db.keyspace("k").unwrap()).put(b"report", b"2 adults").unwrap();
            meanwhile();
            tx.commit(BUFFERED)
        };
        adults_then(&|| set(3, "c", 20)).unwrap();
        assert!(is_conflict(adults_then(&|| set(4, "d", 50))));
        assert!(is_conflict(adults_then(&|| set(2, "b", 20))));
        // An entry stays as it is while its row changes: the scan that reads rows must notice.
        let emails_then = |meanwhile: &dyn Fn()| {
            let mut tx = db.transaction(Isolation::Serializable).unwrap();
            assert!(tx.scan(&table).index("by_email").eq("a").run().unwrap().next_row().unwrap().is_some());
            tx.keyspace(&db.keyspace("k").unwrap()).put(b"report", b"age of a").unwrap();
            meanwhile();
            tx.commit(BUFFERED)
        };
        emails_then(&|| set(4, "d", 51)).unwrap();
        assert!(is_conflict(emails_then(&|| set(1, "a", 31))));
    });
}

#[test]
fn a_transaction_that_writes_nothing_always_commits() {
    with_keyspace(|db, keyspace| {
        let mut tx = db.transaction(Isolation::Serializable).unwrap();
        assert!(tx.keyspace(keyspace).get(b"x").unwrap().is_none());
        keyspace.put(b"x", b"1", BUFFERED).unwrap();
        assert!(tx.keyspace(keyspace).get(b"x").unwrap().is_none(), "reads repeat");
        tx.commit(BUFFERED).unwrap();
    });
}

#[test]
fn transact_tries_again_and_gives_up_in_the_end() {
    with_keyspace(|db, keyspace| {
        let mut attempts = 0;
        let seen = db.transact(|tx| {
            attempts += 1;
            let seen = tx.keyspace(keyspace).get(b"x")?.map(|value| value.to_vec());
            if attempts < 4 {
                keyspace.put(b"x", &[attempts], BUFFERED)?;
            }
            tx.keyspace(keyspace).put(b"x", b"mine")?;
            Ok(seen)
        });
        assert_eq!((seen.unwrap(), attempts), (Some(vec![3]), 4), "each attempt reads anew");
        let mut attempts = 0;
        let options = TransactionOptions { attempts_max: 5, ..TransactionOptions::default() };
        let refused = db.transact_with(options, |tx| {
            attempts += 1;
            keyspace.put(b"x", b"theirs", BUFFERED)?;
            tx.keyspace(keyspace).put(b"x", b"mine")
        });
        assert!(refused.as_ref().unwrap_err().to_string().contains("given up after 5 attempts"));
        assert!(is_conflict(refused) && attempts == 5);
        let waits = db.statistics().unwrap().waits;
        let retries =
            waits.iter().find(|(reason, ..)| *reason == alluvium::base::sync::WaitReason::Retry).unwrap();
        assert!(retries.1 == 3 + 4 && retries.2 > 0, "{retries:?}");
    });
}

#[test]
fn a_panic_in_the_closure_leaves_a_working_database() {
    with_db(|db| {
        let table = people(db);
        let panicked = db.transact(|tx| {
            tx.insert(&table, &person(&table, 1, "a", 1))?;
            tx.update(&table, 1, |_| {
                if db.options().create_if_missing {
                    panic!("in the closure")
                }
            })
        });
        assert!(matches!(panicked.unwrap_err().kind(), ErrorKind::Panicked { .. }));
        assert!(table.get(1).unwrap().is_none());
        assert_eq!(db.statistics().unwrap().snapshots.0, 0, "its snapshot is let go");
        db.transact(|tx| tx.insert(&table, &person(&table, 1, "b", 1))).unwrap();
        assert!(table.check_indexes().unwrap().is_clean());
    });
}

#[test]
fn a_keyspace_of_another_database_is_refused() {
    with_keyspace(|db, _| {
        let (environment, _, _) = Environment::simulated(MemoryFs::new().shared(), 12);
        let other = Db::open_in(environment, "/other", Options::default()).unwrap();
        let theirs = other.keyspace("k").unwrap();
        let mut tx = db.transaction(Isolation::Snapshot).unwrap();
        assert!(tx.keyspace(&theirs).put(b"x", b"1").is_err() && tx.keyspace(&theirs).get(b"x").is_err());
        drop(theirs);
        other.close(std::time::Duration::from_secs(1)).unwrap();
    });
}
