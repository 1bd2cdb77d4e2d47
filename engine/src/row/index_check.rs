//! Checking that indexes and rows agree, both ways, in bounded memory.
//!
//! 1. Stream the rows once: for each index compute the entry that each row should have, and add its hash to a sum that
//!    does not depend on the order.
//! 2. Stream each index: add the hashes of the entries that are there. Equal counts and equal 128-bit sums: the index
//!    agrees, and nothing was sorted or looked up.
//! 3. Only for an index that differs, find out how: look up the row of each entry, and the entry of each row.
//!
//! Everything is read at one snapshot, so writers may go on meanwhile.

use std::fmt;

use alluvium_base::checksum::checksum;
use alluvium_base::key::KeyspaceId;
use alluvium_base::{Error, Result};

use super::index_codec::IndexCodec;
use super::key_decoder::{DecodedKey, show_key};
use super::record::Row;
use super::store::{Store, StoreIter};
use super::table::{Table, TableCore};
use super::view::RowView;

/// Differences that are described one by one, per index; the others are only counted.
const PROBLEMS_SHOWN_MAX: usize = 100;

/// How an index and the rows differ in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum IndexProblem {
    /// A row has no entry, or (in a unique index) another row has it.
    MissingEntry {
        /// The row's primary key, as text.
        primary_key: String,
    },
    /// An entry has no row.
    MissingRow {
        /// The entry's indexed values, as text.
        entry: String,
        /// The primary key that it names, as text.
        primary_key: String,
    },
    /// An entry is not the one that its row should have.
    WrongEntry {
        /// The entry's indexed values, as text.
        entry: String,
        /// The row's primary key, as text.
        primary_key: String,
    },
    /// An entry cannot be read.
    DamagedEntry {
        /// The entry's key, as text.
        entry: String,
    },
}

impl fmt::Display for IndexProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IndexProblem::MissingEntry { primary_key } => write!(f, "row {primary_key} has no entry"),
            IndexProblem::MissingRow { entry, primary_key } => {
                write!(f, "entry {entry} names row {primary_key}, which does not exist")
            }
            IndexProblem::WrongEntry { entry, primary_key } => {
                write!(f, "entry {entry} is not the one that row {primary_key} should have")
            }
            IndexProblem::DamagedEntry { entry } => write!(f, "entry {entry} cannot be read"),
        }
    }
}

/// The result for one index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexReport {
    /// Name of the index.
    pub index: String,
    /// Entries that are there.
    pub entries: u64,
    /// True if they are exactly those that the rows should have.
    pub agrees: bool,
    /// Differences found.
    pub problem_count: u64,
    /// The first of them.
    pub problems: Vec<IndexProblem>,
}

/// The result of [`Table::check_indexes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexCheck {
    /// Name of the table.
    pub table: String,
    /// Rows whose key and layout could be read.
    pub rows: u64,
    /// Rows that are there but damaged, with the first error.
    pub damaged_rows: u64,
    /// The first error met in reading a row.
    pub first_damage: Option<String>,
    /// One report per index.
    pub indexes: Vec<IndexReport>,
}

impl IndexCheck {
    /// True if every row can be read and every index agrees with the rows.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.damaged_rows == 0 && self.indexes.iter().all(|index| index.agrees)
    }
}

/// Count and order-independent hash of a set of entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    entries: u64,
    hashes: u128,
}

impl Sum {
    fn add(&mut self, key: &[u8], value: &[u8]) {
        // Each half hashes key and value with seeds of its own; the value's seed is the key's hash, so that the two
        // belong together.
        let half = |number: u64| checksum(checksum(number, key), value);
        self.entries += 1;
        self.hashes = self.hashes.wrapping_add(u128::from(half(1)) << 64 | u128::from(half(2)));
    }
}

impl<S: Store, R: Row> Table<S, R> {
    /// Checks that each index has exactly the entries that the rows should have, at one snapshot. Reads the table and
    /// its indexes once, and once more those that differ.
    ///
    /// # Errors
    /// Those of the store. Differences and damaged rows are not errors but in the result.
    pub fn check_indexes(&self) -> Result<IndexCheck> {
        let core = &*self.core;
        let snapshot = core.store.snapshot()?;
        let codec = &core.codec;
        let mut check = IndexCheck {
            table: codec.schema.name().to_owned(),
            rows: 0,
            damaged_rows: 0,
            first_damage: None,
            indexes: Vec::new(),
        };
        let mut expected = vec![Sum::default(); codec.indexes.len()];
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let damage = for_each_row(core, &snapshot, |primary_key, row, damage| {
            check.rows += 1;
            for (index, sum) in codec.indexes.iter().zip(&mut expected) {
                match entry_of(core, index, row, primary_key, &mut key, &mut value) {
                    Ok(()) => sum.add(&key, &value),
                    Err(error) => return damage.note(error),
                }
            }
            Ok(())
        })?;
        check.damaged_rows = damage.count;
        check.first_damage = damage.first;
        for ((index, keyspace), expected) in
            codec.indexes.iter().zip(core.definition.keyspaces().skip(1)).zip(expected)
        {
            let mut found = Sum::default();
            let mut iter = core.store.scan(&snapshot, keyspace, &[], None)?;
            while iter.next()? {
                found.add(iter.key(), iter.value());
            }
            let mut report = IndexReport {
                index: index.name.clone(),
                entries: found.entries,
                agrees: found == expected,
                problem_count: 0,
                problems: Vec::new(),
            };
            if !report.agrees {
                find_wrong_entries(core, &snapshot, index, keyspace, &mut report)?;
                find_missing_entries(core, &snapshot, index, keyspace, &mut report)?;
            }
            check.indexes.push(report);
        }
        Ok(check)
    }
}

impl IndexReport {
    fn push(&mut self, problem: IndexProblem) {
        self.problem_count += 1;
        if self.problems.len() < PROBLEMS_SHOWN_MAX {
            self.problems.push(problem);
        }
    }
}

/// Damaged rows met on the way.
#[derive(Default)]
struct Damage {
    count: u64,
    first: Option<String>,
}

impl Damage {
    /// Counts a row that cannot be read; any other error ends the check.
    fn note(&mut self, error: Error) -> Result<()> {
        if !error.is_corrupt() {
            return Err(error);
        }
        self.count += 1;
        self.first.get_or_insert_with(|| error.to_string());
        Ok(())
    }
}

/// Calls `each` with every row whose key and layout can be read; damage that it finds in the columns it notes itself.
fn for_each_row<S: Store>(
    core: &TableCore<S>,
    snapshot: &S::Snapshot,
    mut each: impl FnMut(&[u8], &RowView<'_>, &mut Damage) -> Result<()>,
) -> Result<Damage> {
    let mut damage = Damage::default();
    let mut decoded = DecodedKey::default();
    let mut iter = core.store.scan(snapshot, core.definition.primary_keyspace(), &[], None)?;
    while iter.next()? {
        let row = core.codec.decode_primary_key(iter.key(), &mut decoded);
        match row.and_then(|()| core.codec.view(&decoded, iter.value())) {
            Ok(row) => each(iter.key(), &row, &mut damage)?,
            Err(error) => damage.note(error)?,
        }
    }
    Ok(damage)
}

/// Encodes the entry that a row should have.
fn entry_of<S: Store>(
    core: &TableCore<S>,
    index: &IndexCodec,
    row: &RowView<'_>,
    primary_key: &[u8],
    key: &mut Vec<u8>,
    value: &mut Vec<u8>,
) -> Result<()> {
    key.clear();
    value.clear();
    index.encode(&core.codec, row, primary_key, key, value).map(|_| ())
}

/// Reports each entry whose row is missing or should have another entry.
fn find_wrong_entries<S: Store>(
    core: &TableCore<S>,
    snapshot: &S::Snapshot,
    index: &IndexCodec,
    keyspace: KeyspaceId,
    report: &mut IndexReport,
) -> Result<()> {
    let codec = &core.codec;
    let mut decoded = DecodedKey::default();
    let (mut key, mut value) = (Vec::new(), Vec::new());
    let mut iter = core.store.scan(snapshot, keyspace, &[], None)?;
    while iter.next()? {
        let shown = || show_key(&index.parts, iter.key());
        let Ok(entry) = index.split(codec, iter.key(), iter.value()) else {
            report.push(IndexProblem::DamagedEntry { entry: shown() });
            continue;
        };
        let primary_key = codec.show_primary_key(entry.primary_key);
        let Some(row) =
            core.store.get(Some(snapshot), core.definition.primary_keyspace(), entry.primary_key)?
        else {
            report.push(IndexProblem::MissingRow { entry: shown(), primary_key });
            continue;
        };
        // A row that cannot be read is counted elsewhere; nothing can be said of its entry.
        let encoded = codec.decode_primary_key(entry.primary_key, &mut decoded).and_then(|()| {
            let view = codec.view(&decoded, &row)?;
            entry_of(core, index, &view, entry.primary_key, &mut key, &mut value)
        });
        if encoded.is_ok() && (iter.key() != key || iter.value() != value) {
            report.push(IndexProblem::WrongEntry { entry: shown(), primary_key });
        }
    }
    Ok(())
}

/// Reports each row whose entry is missing.
fn find_missing_entries<S: Store>(
    core: &TableCore<S>,
    snapshot: &S::Snapshot,
    index: &IndexCodec,
    keyspace: KeyspaceId,
    report: &mut IndexReport,
) -> Result<()> {
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for_each_row(core, snapshot, |primary_key, row, damage| {
        if let Err(error) = entry_of(core, index, row, primary_key, &mut key, &mut value) {
            return damage.note(error);
        }
        let found = core.store.get(Some(snapshot), keyspace, &key)?;
        // An entry of this row with other included columns has been reported as wrong already.
        let owner = match &found {
            Some(value) => {
                index.split(&core.codec, &key, value).ok().map(|entry| entry.primary_key == primary_key)
            }
            None => Some(false),
        };
        if owner == Some(false) {
            report.push(IndexProblem::MissingEntry { primary_key: core.codec.show_primary_key(primary_key) });
        }
        Ok(())
    })?;
    Ok(())
}
