//! A batch of row operations. Building one reads nothing and locks nothing: what can be said of a row alone (a key too
//! long, a value of the wrong type) is an error here, everything else comes from [`Batch::commit`].

use std::ops::Range;
use std::sync::Arc;

use alluvium_base::Result;
use alluvium_base::limits::KEY_BYTES_MAX;

use super::as_value::KeyValues;
use super::commit::commit;
use super::key_codec::part_bytes_max;
use super::key_decoder::DecodedKey;
use super::record::Row;
use super::row_codec::TableCodec;
use super::store::{Store, check_same_store};
use super::table::{Table, TableCore};
use super::view::RowView;

/// What an update does to a row: reads the old one and appends the new one, without its primary key, which must stay
/// the same.
pub(super) type Change = Box<dyn FnOnce(&RowView<'_>, &[u8], &mut Vec<u8>) -> Result<()> + Send>;

pub(super) enum Action {
    /// The row's bytes; it must not exist yet.
    Insert(Range<usize>),
    /// The row's bytes.
    Put(Range<usize>),
    Update(Change),
    Delete,
}

pub(super) struct Operation {
    /// Number of the table in the batch.
    pub(super) table: usize,
    /// The primary key's bytes.
    pub(super) key: Range<usize>,
    pub(super) action: Action,
}

/// Row operations on tables of one store that happen together or not at all.
///
/// Operations take effect in the order in which they were recorded, and each sees those before it. Uniqueness is judged
/// once, for the state after all of them: a batch may swap two unique values, or delete their owner and insert another.
///
/// ```
/// # use alluvium::row::{Batch, MapStore, Schema, Table, Type};
/// # let store = MapStore::new();
/// # let schema = Schema::table("t").column("id", Type::U64).column("n", Type::I64).primary_key(["id"]).build()?;
/// # let table: Table<MapStore> = Table::create(&store, schema)?;
/// let mut batch = Batch::new(&store);
/// batch.insert(&table, &table.row_of([7.into(), 1.into()])?)?;
/// batch.update(&table, 7, |row| row.set("n", 2))?;
/// batch.delete(&table, 8)?;
/// batch.commit(())?;
/// assert_eq!(table.get(7)?.map(|row| row.values()[1].to_string()).as_deref(), Some("2"));
/// # Ok::<(), alluvium_base::Error>(())
/// ```
pub struct Batch<S: Store> {
    pub(super) store: S,
    pub(super) tables: Vec<Arc<TableCore<S>>>,
    pub(super) operations: Vec<Operation>,
    /// Keys and rows of the operations.
    pub(super) bytes: Vec<u8>,
}

impl<S: Store> std::fmt::Debug for Batch<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Batch of {} operations, {} bytes", self.operations.len(), self.bytes.len())
    }
}

/// What the closure of an update may return: nothing, or a result.
pub trait UpdateOutcome {
    /// The outcome as a result.
    ///
    /// # Errors
    /// The closure's own.
    fn into_result(self) -> Result<()>;
}

impl UpdateOutcome for () {
    fn into_result(self) -> Result<()> {
        Ok(())
    }
}

impl UpdateOutcome for Result<()> {
    fn into_result(self) -> Result<()> {
        self
    }
}

impl<S: Store> Batch<S> {
    /// An empty batch for tables of `store`.
    #[must_use]
    pub fn new(store: &S) -> Batch<S> {
        Batch { store: store.clone(), tables: Vec::new(), operations: Vec::new(), bytes: Vec::new() }
    }

    /// Number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.operations.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Writes a row that must not exist yet.
    ///
    /// # Errors
    /// `TypeMismatch`, `KeyTooLong`, `ValueTooLong`; the batch is then as it was. `KeyExists` comes from
    /// [`commit`](Batch::commit).
    pub fn insert<R: Row>(&mut self, table: &Table<S, R>, row: &R) -> Result<()> {
        self.record_row(table, row, Action::Insert)
    }

    /// Writes a row, in place of one with the same primary key if there is one.
    ///
    /// # Errors
    /// `TypeMismatch`, `KeyTooLong`, `ValueTooLong`; the batch is then as it was.
    pub fn put<R: Row>(&mut self, table: &Table<S, R>, row: &R) -> Result<()> {
        self.record_row(table, row, Action::Put)
    }

    /// Changes a row. `change` runs once, in [`commit`](Batch::commit), with the row latched: it must be quick and must
    /// not touch the store. It must leave the primary key as it is. It may return a result; its error, or its panic,
    /// makes the commit fail.
    ///
    /// # Errors
    /// `TypeMismatch`, `InvalidArgument` if `key` is no primary key; the batch is then as it was. `NotFound` comes
    /// from `commit`, if there is no such row.
    pub fn update<R: Row, O: UpdateOutcome>(
        &mut self,
        table: &Table<S, R>,
        key: impl KeyValues,
        change: impl FnOnce(&mut R) -> O + Send + 'static,
    ) -> Result<()> {
        let table = table.clone();
        let core = Arc::clone(&table.core);
        let change = move |old: &RowView<'_>, key: &[u8], out: &mut Vec<u8>| {
            let mut row = R::read(old, &table.binding)?;
            change(&mut row).into_result()?;
            let mut new_key = Vec::with_capacity(key.len());
            table.core.encode(&table.binding, &row, &mut new_key, out)?;
            if new_key != key {
                let (from, to) = (old.codec.show_primary_key(key), old.codec.show_primary_key(&new_key));
                return Err(alluvium_base::Error::invalid(format!(
                    "an update of {} changed the primary key from {from} to {to}; delete and insert instead",
                    table.name()
                )));
            }
            Ok(())
        };
        self.record_key(&core, &key, Action::Update(Box::new(change)))
    }

    /// Removes the row with this primary key, if there is one.
    ///
    /// # Errors
    /// `TypeMismatch`, `InvalidArgument` if `key` is no primary key; the batch is then as it was.
    pub fn delete<R: Row>(&mut self, table: &Table<S, R>, key: impl KeyValues) -> Result<()> {
        self.record_key(&table.core, &key, Action::Delete)
    }

    /// Applies all operations and waits until that is as durable as `durability` says.
    ///
    /// # Errors
    /// `KeyExists`, `UniqueViolation`, `NotFound` (an update of a row that does not exist), `Panicked` or an error of
    /// an update's closure, `Corrupt` if an old row cannot be read, those of the store: nothing has happened then.
    /// Only `DurabilityUnknown` comes after the batch has become visible.
    pub fn commit(self, durability: S::Durability) -> Result<()> {
        let store = self.store.clone();
        let ticket = commit(self, None, durability)?;
        store.wait(ticket)
    }

    /// Applies all operations and returns as soon as they are visible. Pass the ticket to [`Store::wait`] to wait for
    /// their durability.
    ///
    /// # Errors
    /// As [`commit`](Batch::commit), but for `DurabilityUnknown`.
    pub fn apply(self, durability: S::Durability) -> Result<S::Ticket> {
        commit(self, None, durability)
    }

    fn record_row<R: Row>(
        &mut self,
        table: &Table<S, R>,
        row: &R,
        action: impl FnOnce(Range<usize>) -> Action,
    ) -> Result<()> {
        check_same_store(&self.store, &table.core.store, table.name())?;
        let start = self.bytes.len();
        let mut encoded = Vec::new();
        let recorded = (|| {
            table.core.encode(&table.binding, row, &mut self.bytes, &mut encoded)?;
            let key = start..self.bytes.len();
            check_entry_lengths(
                &table.core.codec,
                self.bytes.get(key.clone()).unwrap_or_default(),
                &encoded,
            )?;
            self.bytes.extend_from_slice(&encoded);
            Ok(key)
        })();
        match recorded {
            Ok(key) => {
                let action = action(key.end..self.bytes.len());
                self.push(&table.core, key, action);
                Ok(())
            }
            Err(error) => {
                self.bytes.truncate(start);
                Err(error)
            }
        }
    }

    fn record_key(&mut self, core: &Arc<TableCore<S>>, key: &impl KeyValues, action: Action) -> Result<()> {
        check_same_store(&self.store, &core.store, core.codec.schema.name())?;
        let start = self.bytes.len();
        if let Err(error) = core.encode_key(key, &mut self.bytes) {
            self.bytes.truncate(start);
            return Err(error);
        }
        self.push(core, start..self.bytes.len(), action);
        Ok(())
    }

    fn push(&mut self, core: &Arc<TableCore<S>>, key: Range<usize>, action: Action) {
        let table = self.tables.iter().position(|known| Arc::ptr_eq(known, core)).unwrap_or_else(|| {
            self.tables.push(Arc::clone(core));
            self.tables.len() - 1
        });
        self.operations.push(Operation { table, key, action });
    }
}

/// Refuses a row one of whose index entries would have too long a key. Entries are encoded only if the row is so large
/// that one could.
pub(super) fn check_entry_lengths(codec: &TableCodec, primary_key: &[u8], row: &[u8]) -> Result<()> {
    let columns = codec.schema.columns().len();
    let longest = columns * part_bytes_max(0) + 2 * row.len() + 3 * primary_key.len();
    if codec.indexes.is_empty() || longest <= KEY_BYTES_MAX {
        return Ok(());
    }
    let mut key = DecodedKey::default();
    codec.decode_primary_key(primary_key, &mut key)?;
    let view = codec.view(&key, row)?;
    let (mut entry_key, mut entry_value) = (Vec::new(), Vec::new());
    for index in &codec.indexes {
        entry_key.clear();
        entry_value.clear();
        index.encode(codec, &view, primary_key, &mut entry_key, &mut entry_value)?;
    }
    Ok(())
}
