//! What must hold of tables as a whole, tested over a sorted map.

mod checking;
mod committing;
mod concurrency;
mod format;
mod model;
mod reading;
mod spy;

use super::*;

/// Commits one operation.
fn write<S: Store<Durability = ()>>(
    store: &S,
    record: impl FnOnce(&mut Batch<S>) -> alluvium_base::Result<()>,
) -> alluvium_base::Result<()> {
    let mut batch = Batch::new(store);
    record(&mut batch)?;
    batch.commit(())
}

/// Asserts that every index agrees with the rows.
fn assert_clean<S: Store, R: Row>(table: &Table<S, R>) {
    let check = table.check_indexes().unwrap();
    assert!(check.is_clean(), "{check:#?}");
}
