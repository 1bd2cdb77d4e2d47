//! Beside a process that has the database open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use alluvium::Durability;

use crate::support::{closed, delivery};

#[test]
fn a_database_that_is_being_written_can_be_looked_at() {
    let sample = closed();
    let db = sample.open();
    let table = db.table("deliveries").unwrap();
    let stop = AtomicBool::new(false);
    /// Ends the writer whatever happens, so that a failing test ends.
    struct StopAtEnd<'a>(&'a AtomicBool);
    impl Drop for StopAtEnd<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut number = 1000;
            while !stop.load(Ordering::Relaxed) {
                let mut batch = db.batch().unwrap();
                batch.put(&table, &table.row_of(delivery(number)).unwrap()).unwrap();
                batch.commit(Durability::Buffered).unwrap();
                number += 1;
                if number % 500 == 0 {
                    db.flush().unwrap();
                }
            }
            number
        });
        let at_end = StopAtEnd(&stop);
        for _ in 0..5 {
            let overview = sample.ask("overview");
            assert_eq!(overview.code, 0, "{overview:#?}");
            assert!(overview.out.contains("open for writing in process"), "{}", overview.out);
            let count = sample.ask("rows deliveries --count --json");
            assert_eq!(count.code, 0, "{count:#?}");
            assert!(count.document()["rows"].as_u64().unwrap() >= 300);
            for words in ["tables", "manifest dump", "wal dump", "index-check"] {
                let answer = sample.ask(words);
                assert_eq!(answer.code, 0, "{words}: {answer:#?}");
            }
        }
        drop(at_end);
        assert!(writer.join().unwrap() > 1000);
    });
    db.close(Duration::from_secs(30)).unwrap();
    assert!(sample.ask("overview").fine().out.contains("closed in order"));
    sample.ask("verify --deep").fine();
    sample.ask("index-check").fine();
}
