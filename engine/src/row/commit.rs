//! Committing a batch of row operations.
//!
//! 1. **Admission**, before any latch is held.
//! 2. **Row latches** on the primary keys of all operations, sorted.
//! 3. **Old rows** are read, and the operations run over them in order, each seeing those before it: inserts check that
//!    there is no row, update closures run. The result per row is its old and its new bytes.
//! 4. **Index entries** of the old and the new row are compared; one that stays the same is left alone. One that goes is
//!    deleted once, one that comes is put, one whose included columns change is deleted once *and* put.
//! 5. **Unique latches** on the unique keys that are new, sorted; each must be free, or given up in this batch.
//! 6. **Apply**: rows, then entries that go, then entries that come, as one batch of the store. It is visible when that
//!    returns. The latches are released; waiting for durability is the caller's last step.
//!
//! The commit of a transaction is the same, with the final state of each row that it wrote as operations, its writes to
//! plain keyspaces added to the batch, and step 6 done only if what it relies on still holds
//! ([`Store::apply_if`]). Under the row latches of step 2 the rows that it writes cannot be changed by others any more.
//!
//! An error or a panic up to 6 leaves nothing behind. Because every writer of a row holds its latch from reading the old
//! row until the new one is visible, no index entry is left stale, and *per key of an index, put and delete-once strictly
//! alternate*, for unique indexes too: whoever gives a unique key up and whoever takes it are ordered by the store's
//! visibility. See [`super::latches`] for why this cannot deadlock and why a key that is given up needs no latch.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use alluvium_base::checksum::key_hash;
use alluvium_base::key::KeyspaceId;
use alluvium_base::{Error, ErrorKind, Result};

use super::batch::{Action, Batch, Change};
use super::index_codec::IndexCodec;
use super::key_decoder::{DecodedKey, show_key};
use super::latches::LatchClass;
use super::overlay::Written;
use super::premise::Premise;
use super::row_codec::TableCodec;
use super::store::{Store, StoreBatch};
use super::table::TableCore;

/// What admission adds per operation for the keys and framing of each of its index entries, in bytes.
const ENTRY_BYTES_GUESS: usize = 64;

/// One row that the batch touches.
struct Target<'b, S: Store> {
    table: usize,
    key: &'b [u8],
    old: Option<S::Value>,
    new: New<'b>,
}

/// A row after the operations so far.
enum New<'b> {
    /// As it was.
    Same,
    Absent,
    Row(Cow<'b, [u8]>),
}

impl<S: Store> Target<'_, S> {
    fn current(&self) -> Option<&[u8]> {
        match &self.new {
            New::Same => self.old.as_deref(),
            New::Absent => None,
            New::Row(bytes) => Some(bytes),
        }
    }
}

/// What a transaction adds to the commit of its rows.
pub(super) struct Tied<'a, S: Store> {
    /// What must not have been written since the transaction began.
    pub(super) premise: &'a Premise<S::Snapshot>,
    /// Its writes to plain keyspaces; `None` removes a key.
    pub(super) plain: &'a [(KeyspaceId, Vec<u8>, Written)],
}

impl<S: Store> Tied<'_, S> {
    fn bytes(&self) -> usize {
        self.plain.iter().map(|(_, key, value)| key.len() + value.as_ref().map_or(0, |v| v.len())).sum()
    }

    fn fill(&self, writes: &mut S::Batch) -> Result<()> {
        self.plain.iter().try_for_each(|(keyspace, key, value)| match value {
            Some(value) => writes.put(*keyspace, key, value),
            None => writes.delete(*keyspace, key),
        })
    }
}

/// Commits a batch; returns when it is visible.
pub(super) fn commit<S: Store>(
    batch: Batch<S>,
    tied: Option<&Tied<'_, S>>,
    durability: S::Durability,
) -> Result<S::Ticket> {
    let Batch { store, tables, operations, bytes } = batch;
    let indexes = |table: usize| tables.get(table).map_or(0, |core| core.codec.indexes.len());
    let entries: usize = operations.iter().map(|operation| 1 + indexes(operation.table)).sum();
    let plain_bytes = tied.map_or(0, Tied::bytes);
    store.admit((bytes.len() + plain_bytes + entries * ENTRY_BYTES_GUESS) as u64)?;

    let slice = |range: &Range<usize>| bytes.get(range.clone()).unwrap_or_default();
    let mut targets: Vec<Target<'_, S>> = Vec::with_capacity(operations.len());
    let mut numbers: HashMap<(KeyspaceId, &[u8]), usize> = HashMap::with_capacity(operations.len());
    let mut steps = Vec::with_capacity(operations.len());
    for operation in operations {
        let key = slice(&operation.key);
        let Some(core) = tables.get(operation.table) else { continue };
        let number = *numbers.entry((core.definition.primary_keyspace(), key)).or_insert_with(|| {
            targets.push(Target { table: operation.table, key, old: None, new: New::Same });
            targets.len() - 1
        });
        steps.push((number, operation.table, operation.action));
    }

    let hashes = numbers.keys().map(|(keyspace, key)| key_hash(&keyspace.full_key(key)));
    let _row_latches = store.latches().acquire(LatchClass::Primary, hashes);
    for target in &mut targets {
        if let Some(core) = tables.get(target.table) {
            target.old = store.get(None, core.definition.primary_keyspace(), target.key)?;
        }
    }
    for (number, table, action) in steps {
        if let (Some(target), Some(core)) = (targets.get_mut(number), tables.get(table)) {
            run(target, core, action, &slice)?;
        }
    }

    let mut entries = EntryChanges::default();
    for (number, target) in targets.iter().enumerate() {
        if let Some(core) = tables.get(target.table) {
            entries.add(number, target, core)?;
        }
    }
    let guarded = entries.changes.iter().filter(|change| change.guarded);
    let hashes = guarded.map(|change| key_hash(&change.keyspace.full_key(entries.key(&change.key))));
    let _unique_latches = store.latches().acquire(LatchClass::Unique, hashes);
    if let Err(error) = check_unique(&store, &tables, &targets, &entries) {
        // A transaction that would not be let through anyway may do better when it is tried again.
        tied.map_or(Ok(()), |tied| store.check(tied.premise))?;
        return Err(error);
    }

    let mut writes = S::Batch::default();
    // A transaction writes a row even if it stays as it was: others that write it meanwhile must conflict.
    fill(&mut writes, &tables, &targets, &entries, |target| tied.is_some() || changes(target))?;
    match tied {
        None => store.apply(&writes, durability),
        Some(tied) => {
            tied.fill(&mut writes)?;
            store.apply_if(&writes, tied.premise, durability)
        }
    }
}

/// Runs one operation on its row.
fn run<'b, S: Store>(
    target: &mut Target<'b, S>,
    core: &TableCore<S>,
    action: Action,
    slice: &impl Fn(&Range<usize>) -> &'b [u8],
) -> Result<()> {
    let (codec, table) = (&core.codec, || core.codec.schema.name().to_owned());
    target.new = match action {
        Action::Insert(_) if target.current().is_some() => {
            let key = codec.show_primary_key(target.key);
            return Err(ErrorKind::KeyExists { table: table(), key }.into());
        }
        Action::Insert(row) | Action::Put(row) => New::Row(Cow::Borrowed(slice(&row))),
        Action::Delete => New::Absent,
        Action::Update(change) => {
            let Some(old) = target.current() else {
                let key = codec.show_primary_key(target.key);
                return Err(Error::not_found(format!("row {key} to update in {}", table())));
            };
            New::Row(Cow::Owned(changed(codec, target.key, old, change)?))
        }
    };
    Ok(())
}

/// The row that an update makes of `old`. A panic of its closure is an error of this commit alone.
fn changed(codec: &TableCodec, key: &[u8], old: &[u8], change: Change) -> Result<Vec<u8>> {
    let mut decoded = DecodedKey::default();
    codec.decode_primary_key(key, &mut decoded)?;
    let view = codec.view(&decoded, old)?;
    let mut row = Vec::with_capacity(old.len());
    // Nothing that the closure may have left half-done is looked at after a panic: `row` is dropped.
    let outcome = catch_unwind(AssertUnwindSafe(|| change(&view, key, &mut row)));
    match outcome {
        Ok(result) => result.map(|()| row),
        Err(payload) => {
            let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
            let message = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
            Err(ErrorKind::Panicked { what: "the closure of an update", message }.into())
        }
    }
}

/// One index entry that changes.
struct EntryChange {
    keyspace: KeyspaceId,
    /// Numbers of the row and of the index.
    target: usize,
    index: usize,
    /// False: the entry goes; true: it comes.
    comes: bool,
    /// It comes, and its key must not be anyone else's.
    guarded: bool,
    /// The row had this key before, with another value.
    kept: bool,
    key: Range<usize>,
    value: Range<usize>,
}

/// The index entries that a batch changes.
#[derive(Default)]
struct EntryChanges {
    keys: Vec<u8>,
    values: Vec<u8>,
    changes: Vec<EntryChange>,
}

/// An encoded entry in [`EntryChanges`].
struct Encoded {
    key: Range<usize>,
    value: Range<usize>,
    guarded: bool,
}

impl EntryChanges {
    fn key(&self, range: &Range<usize>) -> &[u8] {
        self.keys.get(range.clone()).unwrap_or_default()
    }

    fn value(&self, range: &Range<usize>) -> &[u8] {
        self.values.get(range.clone()).unwrap_or_default()
    }

    /// Adds what the new state of a row changes in the table's indexes.
    fn add<S: Store>(&mut self, number: usize, target: &Target<'_, S>, core: &TableCore<S>) -> Result<()> {
        if !changes(target) || core.codec.indexes.is_empty() {
            return Ok(());
        }
        let codec = &core.codec;
        let mut decoded = DecodedKey::default();
        codec.decode_primary_key(target.key, &mut decoded)?;
        let view = |bytes| codec.view(&decoded, bytes);
        let old = target.old.as_deref().map(view).transpose()?;
        let new = target.current().map(view).transpose()?;
        for (index, (compiled, keyspace)) in
            codec.indexes.iter().zip(core.definition.keyspaces().skip(1)).enumerate()
        {
            let old = old.map(|view| self.encode(codec, compiled, &view, target.key)).transpose()?;
            let new = new.map(|view| self.encode(codec, compiled, &view, target.key)).transpose()?;
            let same_key = match (&old, &new) {
                (Some(old), Some(new)) => self.key(&old.key) == self.key(&new.key),
                _ => false,
            };
            if let (true, Some(old), Some(new)) = (same_key, &old, &new)
                && self.value(&old.value) == self.value(&new.value)
            {
                continue;
            }
            let mut push = |entry: Option<Encoded>, comes: bool| {
                if let Some(Encoded { key, value, guarded }) = entry {
                    let (guarded, kept) = (comes && guarded, same_key);
                    let change =
                        EntryChange { keyspace, target: number, index, comes, guarded, kept, key, value };
                    self.changes.push(change);
                }
            };
            push(old, false);
            push(new, true);
        }
        Ok(())
    }

    fn encode(
        &mut self,
        codec: &TableCodec,
        index: &IndexCodec,
        row: &super::RowView<'_>,
        primary_key: &[u8],
    ) -> Result<Encoded> {
        let (key, value) = (self.keys.len(), self.values.len());
        let guarded = index.encode(codec, row, primary_key, &mut self.keys, &mut self.values)?;
        Ok(Encoded { key: key..self.keys.len(), value: value..self.values.len(), guarded })
    }
}

/// True if the row is not what it was.
fn changes<S: Store>(target: &Target<'_, S>) -> bool {
    !matches!(target.new, New::Same) && target.old.as_deref() != target.current()
}

/// Every unique key that comes must come once within the batch, and be free or given up by the batch in the store.
fn check_unique<S: Store>(
    store: &S,
    tables: &[Arc<TableCore<S>>],
    targets: &[Target<'_, S>],
    entries: &EntryChanges,
) -> Result<()> {
    let place = |change: &EntryChange| (change.keyspace, entries.key(&change.key));
    let gone: HashSet<_> = entries.changes.iter().filter(|change| !change.comes).map(place).collect();
    let mut come: HashMap<(KeyspaceId, &[u8]), &[u8]> = HashMap::new();
    // Keys that their rows keep come first: whoever else wants one is the one that violates.
    let guarded =
        |kept: bool| entries.changes.iter().filter(move |change| change.guarded && change.kept == kept);
    for change in guarded(true).chain(guarded(false)) {
        let Some(target) = targets.get(change.target) else { continue };
        let Some(core) = tables.get(target.table) else { continue };
        let (keyspace, key) = place(change);
        if let Some(existing) = come.insert((keyspace, key), target.key) {
            return Err(violation(&core.codec, change.index, key, existing));
        }
        if gone.contains(&(keyspace, key)) {
            continue;
        }
        let Some(value) = store.get(None, keyspace, key)? else { continue };
        let Some(index) = core.codec.indexes.get(change.index) else { continue };
        let owner = index.split(&core.codec, key, &value)?.primary_key;
        if owner == target.key {
            let (name, row) = (&index.name, core.codec.show_primary_key(owner));
            let detail = format!("index {name} has an entry that row {row} does not have; check the indexes");
            return Err(core.codec.corrupt(0, detail));
        }
        return Err(violation(&core.codec, change.index, key, owner));
    }
    Ok(())
}

fn violation(codec: &TableCodec, index: usize, key: &[u8], existing: &[u8]) -> Error {
    let (name, parts) =
        codec.indexes.get(index).map_or(("", &[][..]), |index| (index.name.as_str(), &index.parts));
    ErrorKind::UniqueViolation {
        table: codec.schema.name().to_owned(),
        index: name.to_owned(),
        key: show_key(parts, key),
        existing: codec.show_primary_key(existing),
    }
    .into()
}

/// Writes down what changes. Entries that go stand before those that come: a unique key may pass from one row to another.
fn fill<S: Store>(
    writes: &mut S::Batch,
    tables: &[Arc<TableCore<S>>],
    targets: &[Target<'_, S>],
    entries: &EntryChanges,
    is_written: impl Fn(&Target<'_, S>) -> bool,
) -> Result<()> {
    for target in targets.iter().filter(|target| is_written(target)) {
        let Some(core) = tables.get(target.table) else { continue };
        match target.current() {
            Some(row) => writes.put(core.definition.primary_keyspace(), target.key, row)?,
            None => writes.delete(core.definition.primary_keyspace(), target.key)?,
        }
    }
    for change in entries.changes.iter().filter(|change| !change.comes) {
        writes.delete_once(change.keyspace, entries.key(&change.key))?;
    }
    for change in entries.changes.iter().filter(|change| change.comes) {
        writes.put(change.keyspace, entries.key(&change.key), entries.value(&change.value))?;
    }
    Ok(())
}
