//! Transactions: reads at one snapshot, writes kept aside, and a commit that happens only if nothing that the
//! transaction relies on has been written meanwhile.
//!
//! - **Reads** see the snapshot with the transaction's own writes laid over it (`overlay.rs`); so do scans, by any index,
//!   for which the index entries of written rows are computed at once. A scan sees the writes made before it started.
//! - **Writes** are checked against that view when they are recorded (`KeyExists`, `NotFound`) and kept in memory. No
//!   latch is held, so a transaction may take its time, and dropping one leaves nothing behind.
//! - **Commit** goes the way of every batch of rows (`commit.rs`): latches, old rows, index entries, unique keys; then
//!   the store checks the [`Premise`] and applies in one step.
//!
//! The premise has what was written and what was read "for update"; under [`Isolation::Serializable`] also every key and
//! range that was read. A transaction that has written nothing commits without a check: it has seen one state of the
//! database, and that is the whole promise. See `design/decisions/0013-transactions.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use alluvium_base::key::KeyspaceId;
use alluvium_base::{Error, ErrorKind, Result};

use super::as_value::KeyValues;
use super::batch::{Action, Batch, Operation, UpdateOutcome, check_entry_lengths};
use super::commit::{Tied, commit};
use super::key_decoder::DecodedKey;
use super::overlay::{Overlay, Reads, SharedReads, Within, Written};
use super::premise::Premise;
use super::record::Row;
use super::scan::ScanBuilder;
use super::store::{Store, check_same_store};
use super::table::{Table, TableCore};

/// What a transaction is protected from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Isolation {
    /// It reads one snapshot, and its commit fails with `Conflict` if a key that it writes has been written by anyone
    /// since. No dirty, non-repeatable or skewed reads, no phantoms, no lost updates. Two transactions that each read
    /// what the other writes may both commit (*write skew*), unless they read it for update.
    #[default]
    Snapshot,
    /// Its commit also fails with `Conflict` if anything that it has read has been written since, absent keys and
    /// scanned ranges included: it is as if it had happened all at once when it committed.
    Serializable,
}

/// Reads and writes that happen together or not at all, isolated from what others do meanwhile.
///
/// ```
/// use alluvium::row::{Batch, Isolation, MapStore, Schema, Table, Transaction, Type, Value};
/// let store = MapStore::new();
/// let schema = Schema::table("t").column("id", Type::U64).column("n", Type::I64).primary_key(["id"]).build()?;
/// let table: Table<MapStore> = Table::create(&store, schema)?;
/// let mut first = Transaction::begin(&store, Isolation::Snapshot)?;
/// let mut second = Transaction::begin(&store, Isolation::Snapshot)?;
/// first.insert(&table, &table.row_of([7.into(), 1.into()])?)?;
/// assert_eq!(first.get(&table, 7)?.map(|row| row.values()[1].clone()), Some(Value::from(1i64)));
/// second.put(&table, &table.row_of([7.into(), 2.into()])?)?;
/// first.commit(())?;
/// assert!(matches!(second.commit(()).unwrap_err().kind(), alluvium::ErrorKind::Conflict { .. }));
/// # Ok::<(), alluvium::Error>(())
/// ```
pub struct Transaction<S: Store> {
    pub(crate) store: S,
    snapshot: S::Snapshot,
    isolation: Isolation,
    /// Everything written, index entries included.
    overlay: Arc<Overlay>,
    /// Tables that rows were written to.
    tables: Vec<Arc<TableCore<S>>>,
    /// Rows written: the number of their table.
    rows: BTreeMap<(KeyspaceId, Vec<u8>), usize>,
    /// Keys of plain keyspaces written.
    plain: BTreeSet<(KeyspaceId, Vec<u8>)>,
    /// Keys read for update.
    for_update: BTreeSet<(KeyspaceId, Vec<u8>)>,
    reads: SharedReads,
    names: BTreeMap<KeyspaceId, String>,
}

impl<S: Store> fmt::Debug for Transaction<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction")
            .field("isolation", &self.isolation)
            .field("rows", &self.rows.len())
            .field("keys", &self.plain.len())
            .finish_non_exhaustive()
    }
}

/// A value that a transaction reads: stored, or written by itself.
#[derive(Clone, Debug)]
pub enum TransactionValue<V> {
    /// At the snapshot.
    Stored(V),
    /// Written by the transaction.
    Own(Arc<[u8]>),
}

impl<V: Deref<Target = [u8]>> Deref for TransactionValue<V> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            TransactionValue::Stored(value) => value,
            TransactionValue::Own(value) => value,
        }
    }
}

/// Why a key is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be told.
    Look,
    /// The transaction relies on it, whatever its isolation.
    Update,
    /// It is about to be written, and therefore checked anyway.
    Write,
}

impl<S: Store> Transaction<S> {
    /// Begins a transaction: takes its snapshot.
    ///
    /// # Errors
    /// `Closed`.
    pub fn begin(store: &S, isolation: Isolation) -> Result<Transaction<S>> {
        Ok(Transaction {
            store: store.clone(),
            snapshot: store.snapshot()?,
            isolation,
            overlay: Arc::default(),
            tables: Vec::new(),
            rows: BTreeMap::new(),
            plain: BTreeSet::new(),
            for_update: BTreeSet::new(),
            reads: SharedReads::default(),
            names: BTreeMap::new(),
        })
    }

    /// The snapshot that it reads at.
    #[must_use]
    pub fn snapshot(&self) -> &S::Snapshot {
        &self.snapshot
    }

    /// What it is protected from.
    #[must_use]
    pub fn isolation(&self) -> Isolation {
        self.isolation
    }

    /// The row with this primary key, as this transaction sees it.
    ///
    /// # Errors
    /// `InvalidArgument` or `TypeMismatch` if `key` is no primary key of the table; those of the store; `Corrupt`.
    pub fn get<R: Row>(&self, table: &Table<S, R>, key: impl KeyValues) -> Result<Option<R>> {
        let mut bytes = Vec::new();
        check_same_store(&self.store, &table.core.store, table.name())?;
        table.core.encode_key(&key, &mut bytes)?;
        let value = self.read(table.core.definition.primary_keyspace(), &bytes)?;
        decode(table, &bytes, value)
    }

    /// As [`get`](Transaction::get), for a row on which what is written depends: the commit fails with `Conflict` if
    /// anyone has written the row since the snapshot, even if this transaction does not write it, and also if it is
    /// absent. Nothing is locked meanwhile.
    ///
    /// # Errors
    /// As [`get`](Transaction::get).
    pub fn get_for_update<R: Row>(&mut self, table: &Table<S, R>, key: impl KeyValues) -> Result<Option<R>> {
        let mut bytes = Vec::new();
        check_same_store(&self.store, &table.core.store, table.name())?;
        table.core.encode_key(&key, &mut bytes)?;
        let keyspace = self.name_table(&table.core);
        let value = self.read_for(Purpose::Update, keyspace, &bytes)?;
        decode(table, &bytes, value)
    }

    /// Starts a scan that reads as this transaction does: at its snapshot, with the writes that it has made before the
    /// scan runs. Under [`Isolation::Serializable`] the commit checks as much of the range as the scan has gone over.
    pub fn scan<R: Row>(&self, table: &Table<S, R>) -> ScanBuilder<S, R> {
        table.scan().at(&self.snapshot).within(self.within())
    }

    /// Writes a row that must not exist yet.
    ///
    /// # Errors
    /// `KeyExists`; `TypeMismatch`, `KeyTooLong`, `ValueTooLong`. The transaction is then as it was.
    pub fn insert<R: Row>(&mut self, table: &Table<S, R>, row: &R) -> Result<()> {
        check_same_store(&self.store, &table.core.store, table.name())?;
        let (key, bytes) = encode(table, row)?;
        let keyspace = table.core.definition.primary_keyspace();
        if self.read_for(Purpose::Update, keyspace, &key)?.is_some() {
            let (table, key) = (table.name().to_owned(), table.core.codec.show_primary_key(&key));
            return Err(ErrorKind::KeyExists { table, key }.into());
        }
        self.write_row(&table.core, &key, Some(bytes.into()))
    }

    /// Writes a row, in place of one with the same primary key if there is one.
    ///
    /// # Errors
    /// `TypeMismatch`, `KeyTooLong`, `ValueTooLong`; those of reading the old row. The transaction is then as it was.
    pub fn put<R: Row>(&mut self, table: &Table<S, R>, row: &R) -> Result<()> {
        check_same_store(&self.store, &table.core.store, table.name())?;
        let (key, bytes) = encode(table, row)?;
        self.write_row(&table.core, &key, Some(bytes.into()))
    }

    /// Changes a row: `change` runs at once, on the row as this transaction sees it. It must leave the primary key as it
    /// is.
    ///
    /// # Errors
    /// `NotFound` if there is no such row; `change`'s own; as [`put`](Transaction::put). The transaction is then as it
    /// was.
    pub fn update<R: Row, O: UpdateOutcome>(
        &mut self,
        table: &Table<S, R>,
        key: impl KeyValues,
        change: impl FnOnce(&mut R) -> O,
    ) -> Result<()> {
        let mut old_key = Vec::new();
        check_same_store(&self.store, &table.core.store, table.name())?;
        table.core.encode_key(&key, &mut old_key)?;
        let keyspace = table.core.definition.primary_keyspace();
        let old = self.read_for(Purpose::Update, keyspace, &old_key)?;
        let show = |key: &[u8]| table.core.codec.show_primary_key(key);
        let Some(mut row) = decode(table, &old_key, old)? else {
            let (key, name) = (show(&old_key), table.name());
            return Err(Error::not_found(format!("row {key} to update in {name}")));
        };
        change(&mut row).into_result()?;
        check_same_store(&self.store, &table.core.store, table.name())?;
        let (new_key, bytes) = encode(table, &row)?;
        if new_key != old_key {
            let (from, to, name) = (show(&old_key), show(&new_key), table.name());
            return Err(Error::invalid(format!(
                "an update of {name} changed the primary key from {from} to {to}; delete and insert instead"
            )));
        }
        self.write_row(&table.core, &old_key, Some(bytes.into()))
    }

    /// Removes the row with this primary key, if there is one.
    ///
    /// # Errors
    /// `InvalidArgument` or `TypeMismatch` if `key` is no primary key of the table; those of reading the old row. The
    /// transaction is then as it was.
    pub fn delete<R: Row>(&mut self, table: &Table<S, R>, key: impl KeyValues) -> Result<()> {
        let mut bytes = Vec::new();
        check_same_store(&self.store, &table.core.store, table.name())?;
        table.core.encode_key(&key, &mut bytes)?;
        self.write_row(&table.core, &bytes, None)
    }

    /// Commits and waits until that is as durable as `durability` says.
    ///
    /// # Errors
    /// `Conflict` if somebody has written meanwhile what this transaction relies on: begin again. `UniqueViolation`;
    /// `Corrupt` if an old row cannot be read; those of the store. Nothing has happened then. Only `DurabilityUnknown`
    /// comes after the transaction has become visible.
    pub fn commit(self, durability: S::Durability) -> Result<()> {
        let store = self.store.clone();
        match self.apply(durability)? {
            Some(ticket) => store.wait(ticket),
            None => Ok(()),
        }
    }

    /// Commits and returns as soon as that is visible. Pass the ticket to [`Store::wait`] to wait for durability; there
    /// is none if nothing was written.
    ///
    /// # Errors
    /// As [`commit`](Transaction::commit), but for `DurabilityUnknown`.
    pub fn apply(self, durability: S::Durability) -> Result<Option<S::Ticket>> {
        if self.rows.is_empty() && self.plain.is_empty() {
            return Ok(None);
        }
        let mut keys = self.for_update;
        keys.extend(self.rows.keys().cloned());
        keys.extend(self.plain.iter().cloned());
        let mut reads = Reads::default();
        if self.isolation == Isolation::Serializable {
            reads = std::mem::take(&mut *self.reads.lock());
            keys.append(&mut reads.keys);
            reads.ranges.sort_unstable();
            reads.ranges.dedup();
        }
        let premise = Premise {
            since: self.snapshot,
            keys: keys.into_iter().collect(),
            ranges: reads.ranges,
            names: self.names,
        };
        let written = |keyspace, key: &[u8]| self.overlay.get(keyspace, key).cloned().flatten();
        let mut batch = Batch::new(&self.store);
        batch.tables = self.tables;
        for ((keyspace, key), table) in self.rows {
            let row = written(keyspace, &key);
            let start = batch.bytes.len();
            batch.bytes.extend_from_slice(&key);
            let key = start..batch.bytes.len();
            let action = match row {
                None => Action::Delete,
                Some(row) => {
                    batch.bytes.extend_from_slice(&row);
                    Action::Put(key.end..batch.bytes.len())
                }
            };
            batch.operations.push(Operation { table, key, action });
        }
        let plain = |(keyspace, key): (KeyspaceId, Vec<u8>)| {
            let value = written(keyspace, &key);
            (keyspace, key, value)
        };
        let plain: Vec<_> = self.plain.into_iter().map(plain).collect();
        commit(batch, Some(&Tied { premise: &premise, plain: &plain }), durability).map(Some)
    }

    /// What scans of this transaction need.
    pub(crate) fn within(&self) -> Within {
        let reads = (self.isolation == Isolation::Serializable).then(|| Arc::clone(&self.reads));
        Within { overlay: Arc::clone(&self.overlay), reads }
    }

    /// The value of a key as this transaction sees it.
    pub(crate) fn read(
        &self,
        keyspace: KeyspaceId,
        key: &[u8],
    ) -> Result<Option<TransactionValue<S::Value>>> {
        self.peek(Purpose::Look, keyspace, key)
    }

    /// As [`read`](Transaction::read), for a purpose that the commit has to know of.
    pub(crate) fn read_for(
        &mut self,
        purpose: Purpose,
        keyspace: KeyspaceId,
        key: &[u8],
    ) -> Result<Option<TransactionValue<S::Value>>> {
        if purpose == Purpose::Update {
            self.for_update.insert((keyspace, key.to_vec()));
        }
        self.peek(purpose, keyspace, key)
    }

    fn peek(
        &self,
        purpose: Purpose,
        keyspace: KeyspaceId,
        key: &[u8],
    ) -> Result<Option<TransactionValue<S::Value>>> {
        if let Some(own) = self.overlay.get(keyspace, key) {
            return Ok(own.clone().map(TransactionValue::Own));
        }
        if purpose == Purpose::Look && self.isolation == Isolation::Serializable {
            self.reads.lock().keys.insert((keyspace, key.to_vec()));
        }
        let stored = self.store.get(Some(&self.snapshot), keyspace, key)?;
        Ok(stored.map(TransactionValue::Stored))
    }

    /// Writes a key of a plain keyspace. The caller has checked key and value.
    pub(crate) fn write_plain(&mut self, keyspace: KeyspaceId, name: &str, key: &[u8], value: Written) {
        self.names.entry(keyspace).or_insert_with(|| format!("keyspace {name}"));
        Arc::make_mut(&mut self.overlay).set(keyspace, key, value);
        self.plain.insert((keyspace, key.to_vec()));
    }

    fn name_table(&mut self, core: &TableCore<S>) -> KeyspaceId {
        let keyspace = core.definition.primary_keyspace();
        self.names.entry(keyspace).or_insert_with(|| format!("table {}", core.codec.schema.name()));
        keyspace
    }

    /// Writes or removes a row, and what that does to the entries of its indexes, in the overlay.
    fn write_row(&mut self, core: &Arc<TableCore<S>>, key: &[u8], row: Written) -> Result<()> {
        let keyspace = self.name_table(core);
        if !core.codec.indexes.is_empty() {
            let old = self.read_for(Purpose::Write, keyspace, key)?;
            let entries = self.entry_writes(core, key, old.as_deref(), row.as_deref())?;
            let overlay = Arc::make_mut(&mut self.overlay);
            for (index, key, value) in entries {
                overlay.set(index, &key, value);
            }
        }
        Arc::make_mut(&mut self.overlay).set(keyspace, key, row);
        let known = |table: &Arc<TableCore<S>>| Arc::ptr_eq(table, core);
        let table = self.tables.iter().position(known).unwrap_or_else(|| {
            self.tables.push(Arc::clone(core));
            self.tables.len() - 1
        });
        self.rows.insert((keyspace, key.to_vec()), table);
        Ok(())
    }

    /// What a row's change from `old` to `new` does to index entries: those that go, then those that come.
    fn entry_writes(
        &self,
        core: &TableCore<S>,
        primary_key: &[u8],
        old: Option<&[u8]>,
        new: Option<&[u8]>,
    ) -> Result<Vec<(KeyspaceId, Vec<u8>, Written)>> {
        let codec = &core.codec;
        let mut decoded = DecodedKey::default();
        codec.decode_primary_key(primary_key, &mut decoded)?;
        let mut writes = Vec::new();
        for (row, comes) in [(old, false), (new, true)] {
            let Some(row) = row else { continue };
            let view = codec.view(&decoded, row)?;
            for (index, keyspace) in codec.indexes.iter().zip(core.definition.keyspaces().skip(1)) {
                let (mut key, mut value) = (Vec::new(), Vec::new());
                index.encode(codec, &view, primary_key, &mut key, &mut value)?;
                // A unique key that this transaction has already given to another row stays with that.
                if !comes
                    && let Some(Some(own)) = self.overlay.get(keyspace, &key)
                    && index.split(codec, &key, own)?.primary_key != primary_key
                {
                    continue;
                }
                writes.push((keyspace, key, comes.then(|| value.into())));
            }
        }
        Ok(writes)
    }
}

/// Primary key and row, checked.
fn encode<S: Store, R: Row>(table: &Table<S, R>, row: &R) -> Result<(Vec<u8>, Vec<u8>)> {
    let (mut key, mut bytes) = (Vec::new(), Vec::new());
    table.core.encode(&table.binding, row, &mut key, &mut bytes)?;
    check_entry_lengths(&table.core.codec, &key, &bytes)?;
    Ok((key, bytes))
}

fn decode<S: Store, R: Row>(
    table: &Table<S, R>,
    key: &[u8],
    value: Option<TransactionValue<S::Value>>,
) -> Result<Option<R>> {
    let Some(value) = value else { return Ok(None) };
    let mut decoded = DecodedKey::default();
    table.core.codec.decode_primary_key(key, &mut decoded)?;
    R::read(&table.core.codec.view(&decoded, &value)?, &table.binding).map(Some)
}
