//! Transactions over the tables and keyspaces of a database.
//!
//! [`Db::transact`] runs a closure, commits, and does both again after a conflict; [`Db::transaction`] leaves that to
//! the caller. What a transaction sees and when it conflicts is decided in `row/transaction.rs` and `premise.rs`.
//!
//! *Beside transactions.* Every other write (row batches, [`Db::write`], [`Keyspace::put`], range deletes) is a commit
//! like theirs: a transaction that relies on what such a write changed gets `Conflict`. Those writes themselves are
//! blind; they never conflict, and they win over what was there.

use std::ops::RangeBounds;
use std::time::Duration;

use alluvium_base::sync::{WaitReason, sleep};
use alluvium_base::{Error, ErrorKind, Result};

use crate::batch::check_entry;
use crate::db::Db;
use crate::executor::catch_panic;
use crate::iter::Iter;
use crate::keyspace::{Keyspace, half_open};
use crate::options::Durability;
use crate::read_state::PinnedValue;
use crate::row::{self, Isolation, OverlayIter, Purpose, ReadRange, Store, StoreIter};

/// Reads and writes of a database that happen together or not at all. See [`Db::transaction`].
pub type Transaction = row::Transaction<Db>;
/// A value as a transaction sees it.
pub type TransactionValue = row::TransactionValue<PinnedValue>;

/// Wait before the second attempt; it doubles with each.
const BACKOFF_MICROS: u64 = 50;
/// Doublings after which the wait grows no more: 6.4 ms.
const BACKOFF_DOUBLINGS_MAX: u32 = 7;

/// How [`Db::transact_with`] goes about its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TransactionOptions {
    /// What the transaction is protected from.
    pub isolation: Isolation,
    /// How durable it is when the call returns.
    pub durability: Durability,
    /// How often it is tried before the conflict is handed to the caller; at least once.
    pub attempts_max: u32,
}

impl Default for TransactionOptions {
    /// Snapshot isolation, `Sync`, 100 attempts: less than a second of waiting.
    fn default() -> TransactionOptions {
        TransactionOptions { isolation: Isolation::Snapshot, durability: Durability::Sync, attempts_max: 100 }
    }
}

impl Db {
    /// Begins a transaction. Dropping it without [`commit`](row::Transaction::commit) undoes it. It holds a snapshot:
    /// while it lives, compaction keeps what it sees.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// # use alluvium::{Db, Durability, ErrorKind, Isolation, Options};
    /// # let db = Db::open(directory.path(), Options::default())?;
    /// let stock = db.keyspace("stock")?;
    /// stock.put(b"lamps", b"3", Durability::Buffered)?;
    /// let mut tx = db.transaction(Isolation::Serializable)?;
    /// assert_eq!(tx.keyspace(&stock).get(b"lamps")?.as_deref(), Some(b"3".as_slice()));
    /// tx.keyspace(&stock).put(b"sold", b"1")?;
    /// stock.put(b"lamps", b"2", Durability::Buffered)?; // somebody else
    /// let refused = tx.commit(Durability::Sync).unwrap_err();
    /// assert!(matches!(refused.kind(), ErrorKind::Conflict { .. }));
    /// # Ok::<(), alluvium::Error>(())
    /// ```
    ///
    /// # Errors
    /// `Closed`.
    pub fn transaction(&self, isolation: Isolation) -> Result<Transaction> {
        Transaction::begin(self, isolation)
    }

    /// Runs `work` in a transaction under snapshot isolation and commits it, durable as `Sync` says. After a conflict it
    /// runs again, from a new snapshot, so it must have no other effects. An error of `work` undoes the transaction and
    /// is returned; so is its panic, as `Panicked`.
    ///
    /// ```
    /// # let directory = tempfile::tempdir().unwrap();
    /// use alluvium::{Db, Error, Options, Schema, Type, Value};
    /// let db = Db::open(directory.path(), Options::default())?;
    /// let schema = Schema::table("accounts").column("id", Type::U64).column("cents", Type::I64);
    /// let accounts = db.create_table(schema.primary_key(["id"]).build()?)?;
    /// db.transact(|tx| {
    ///     tx.insert(&accounts, &accounts.row_of([Value::from(1u64), Value::from(500i64)])?)?;
    ///     tx.insert(&accounts, &accounts.row_of([Value::from(2u64), Value::from(0i64)])?)
    /// })?;
    /// let moved = db.transact(|tx| {
    ///     let Some(row) = tx.get_for_update(&accounts, 1)? else { return Err(Error::not_found("account 1")) };
    ///     let Value::Int(cents) = *row.get("cents")? else { return Err(Error::invalid("no amount")) };
    ///     tx.update(&accounts, 1, |row| row.set("cents", 0))?;
    ///     tx.update(&accounts, 2, |row| row.set("cents", cents))?;
    ///     Ok(cents)
    /// })?;
    /// assert_eq!(moved, 500);
    /// # Ok::<(), alluvium::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of `work`; `Conflict` after 100 attempts; those of [`commit`](row::Transaction::commit).
    pub fn transact<T>(&self, work: impl FnMut(&mut Transaction) -> Result<T>) -> Result<T> {
        self.transact_with(TransactionOptions::default(), work)
    }

    /// [`transact`](Db::transact) with another isolation, durability or number of attempts.
    ///
    /// # Errors
    /// As [`transact`](Db::transact).
    pub fn transact_with<T>(
        &self,
        options: TransactionOptions,
        mut work: impl FnMut(&mut Transaction) -> Result<T>,
    ) -> Result<T> {
        let mut attempt = 1;
        loop {
            let mut transaction = self.transaction(options.isolation)?;
            let result = catch_panic("the closure of a transaction", || work(&mut transaction))?;
            match transaction.apply(options.durability) {
                Ok(None) => return Ok(result),
                Ok(Some(ticket)) => return self.wait(ticket).map(|()| result),
                Err(error) if !matches!(error.kind(), ErrorKind::Conflict { .. }) => return Err(error),
                Err(error) if attempt >= options.attempts_max => {
                    return Err(error.context(format!("transaction given up after {attempt} attempts")));
                }
                Err(_) => self.back_off(attempt)?,
            }
            attempt += 1;
        }
    }

    /// Waits before the attempt after number `attempt`: a random time, so that rivals do not meet again.
    fn back_off(&self, attempt: u32) -> Result<()> {
        let tree = self.tree()?;
        let longest = BACKOFF_MICROS << (attempt - 1).min(BACKOFF_DOUBLINGS_MAX);
        let micros = longest / 2 + tree.identities.lock().below(longest / 2 + 1);
        let (clock, wait) = (tree.environment.clock.as_ref(), Duration::from_micros(micros));
        sleep(clock, &tree.waits, WaitReason::Retry, wait);
        Ok(())
    }
}

impl Transaction {
    /// A keyspace as this transaction sees and changes it.
    pub fn keyspace<'a>(&'a mut self, keyspace: &'a Keyspace) -> TransactionKeyspace<'a> {
        TransactionKeyspace { transaction: self, keyspace }
    }
}

/// A keyspace inside of a transaction. See [`Transaction::keyspace`](row::Transaction::keyspace).
#[derive(Debug)]
pub struct TransactionKeyspace<'a> {
    transaction: &'a mut Transaction,
    keyspace: &'a Keyspace,
}

impl TransactionKeyspace<'_> {
    /// The value of `key`: the transaction's own, or the one at its snapshot.
    ///
    /// # Errors
    /// `InvalidArgument` if the keyspace belongs to another database; as [`Keyspace::get`].
    pub fn get(&self, key: &[u8]) -> Result<Option<TransactionValue>> {
        self.belongs()?;
        self.transaction.read(self.keyspace.id, key)
    }

    /// As [`get`](TransactionKeyspace::get), and the commit fails with `Conflict` if anyone has written the key since
    /// the snapshot, even if this transaction does not write it.
    ///
    /// # Errors
    /// As [`get`](TransactionKeyspace::get).
    pub fn get_for_update(&mut self, key: &[u8]) -> Result<Option<TransactionValue>> {
        self.belongs()?;
        self.transaction.read_for(Purpose::Update, self.keyspace.id, key)
    }

    /// Sets `key` to `value` when the transaction commits.
    ///
    /// # Errors
    /// `KeyTooLong`, `ValueTooLong`; `InvalidArgument` if the keyspace belongs to another database.
    pub fn put(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        self.write(key, Some(value))
    }

    /// Removes `key` when the transaction commits.
    ///
    /// # Errors
    /// As [`put`](TransactionKeyspace::put).
    pub fn delete(&mut self, key: &[u8]) -> Result<()> {
        self.write(key, None)
    }

    /// Goes over the keys in `range`: those at the snapshot, with what the transaction has written so far. Under
    /// [`Isolation::Serializable`] the commit checks as much of the range as has been gone over.
    ///
    /// # Errors
    /// As [`Keyspace::range`]; `InvalidArgument` if the keyspace belongs to another database.
    pub fn range<K: AsRef<[u8]>>(&self, range: impl RangeBounds<K>) -> Result<TransactionIter> {
        self.belongs()?;
        let (start, end) = half_open(&range);
        let range = ReadRange { keyspace: self.keyspace.id, start, end };
        let end = range.end.as_deref().map(|end| end.max(&range.start));
        let transaction = &self.transaction;
        let stored = transaction.store.scan(transaction.snapshot(), range.keyspace, &range.start, end)?;
        Ok(TransactionIter(OverlayIter::within(stored, transaction.within(), range)))
    }

    fn write(&mut self, key: &[u8], value: Option<&[u8]>) -> Result<()> {
        self.belongs()?;
        let Keyspace { id, name, .. } = self.keyspace;
        check_entry(*id, key, value.unwrap_or_default())
            .map_err(|error| error.context(format!("writing to keyspace {name}")))?;
        self.transaction.write_plain(*id, name, key, value.map(Into::into));
        Ok(())
    }

    fn belongs(&self) -> Result<()> {
        let (ours, theirs) = (self.transaction.store.tree()?, self.keyspace.db.tree()?);
        if ours.database_id != theirs.database_id {
            return Err(Error::invalid(format!(
                "keyspace {} belongs to another database than the transaction",
                self.keyspace.name
            )));
        }
        Ok(())
    }
}

/// A cursor over a keyspace as a transaction sees it. It goes in one direction, the one of its first step, and shows the
/// writes that the transaction had made when it was created.
#[derive(Debug)]
pub struct TransactionIter(OverlayIter<Iter>);

impl TransactionIter {
    /// Moves to the next entry, at first to the first one; false if there is none.
    ///
    /// # Errors
    /// As [`Iter::next`]; `InvalidArgument` after a [`prev`](TransactionIter::prev).
    #[expect(
        clippy::should_implement_trait,
        reason = "a cursor lends what it shows, which `Iterator` cannot"
    )]
    pub fn next(&mut self) -> Result<bool> {
        self.0.next()
    }

    /// Moves to the previous entry, at first to the last one; false if there is none.
    ///
    /// # Errors
    /// As [`Iter::prev`]; `InvalidArgument` after a [`next`](TransactionIter::next).
    pub fn prev(&mut self) -> Result<bool> {
        self.0.prev()
    }

    /// The current key; empty if there is none.
    #[must_use]
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// The current value; empty if there is none.
    #[must_use]
    pub fn value(&self) -> &[u8] {
        self.0.value()
    }
}
