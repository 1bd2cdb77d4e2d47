//! Scans: rows in the order of the primary key or of an index.
//!
//! A scan streams. It holds one entry at a time, sorts and collects nothing, and lends each row to the caller until the
//! next one is asked for. It owns its snapshot: what it shows does not change while it runs. After an error it stays
//! failed.

use std::fmt;
use std::ops::{Bound, RangeBounds};

use alluvium_base::{Error, Result};

use super::as_value::{AsValue, KeyValues};
use super::continuation::Continuation;
use super::explain::{Explanation, explain};
use super::key_decoder::DecodedKey;
use super::overlay::{OverlayIter, Within};
use super::plan::{Plan, Request, plan};
use super::premise::ReadRange;
use super::record::{DynamicRow, Row};
use super::row_codec::ColumnSource;
use super::store::{Store, StoreIter};
use super::table::Table;
use super::transaction::TransactionValue;
use super::value::Value;
use super::view::{Body, RowView};

/// A scan in the making; see [`Table::scan`].
#[must_use = "a scan does nothing until run() is called"]
pub struct ScanBuilder<S: Store, R: Row = DynamicRow> {
    table: Table<S, R>,
    request: Request,
    snapshot: Option<S::Snapshot>,
    within: Option<Within>,
}

impl<S: Store, R: Row> fmt::Debug for ScanBuilder<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScanBuilder")
            .field("table", &self.table.name())
            .field("request", &self.request)
            .finish()
    }
}

impl<S: Store, R: Row> Table<S, R> {
    /// Starts a scan of the whole table by primary key; the builder's methods change index, bounds and direction.
    ///
    /// ```
    /// # use alluvium::row::{Batch, Index, MapStore, Schema, Table, Type};
    /// # let store = MapStore::new();
    /// # let schema = Schema::table("readings").column("station", Type::U32).column("at", Type::U64)
    /// #     .column("level", Type::F64).primary_key(["station", "at"])
    /// #     .index(Index::on("latest").asc("station").desc("at").include(["level"])).build()?;
    /// # let readings: Table<MapStore> = Table::create(&store, schema)?;
    /// # let mut batch = Batch::new(&store);
    /// # for at in 0..100 { batch.insert(&readings, &readings.row_of([7.into(), at.into(), (at as f64).into()])?)?; }
    /// # batch.commit(())?;
    /// let mut scan = readings.scan().index("latest").eq(7).range(10..20).limit(3).columns(["at", "level"]).run()?;
    /// let mut levels = Vec::new();
    /// while let Some(row) = scan.next()? {
    ///     levels.push(row.get("level")?.to_string());
    /// }
    /// assert_eq!(levels, ["19", "18", "17"]);
    /// let more = readings.scan().index("latest").eq(7).range(10..20).after(&scan.continuation());
    /// assert_eq!(more.count()?, 7);
    /// # Ok::<(), alluvium_base::Error>(())
    /// ```
    pub fn scan(&self) -> ScanBuilder<S, R> {
        ScanBuilder { table: self.clone(), request: Request::default(), snapshot: None, within: None }
    }
}

impl<S: Store, R: Row> ScanBuilder<S, R> {
    /// Scans by this index instead of the primary key.
    pub fn index(mut self, name: impl Into<String>) -> Self {
        self.request.index = Some(name.into());
        self
    }

    /// Only rows whose next key columns equal these values; NULL equals NULL. Several calls follow on each other.
    pub fn eq(mut self, values: impl KeyValues) -> Self {
        // The closure cannot fail, so neither can this.
        let _ = values.for_each_value(&mut |value| {
            self.request.eq.push(value.to_value());
            Ok(())
        });
        self
    }

    /// Only rows whose next key column, after those bound by [`eq`](ScanBuilder::eq), lies in this range of values.
    /// NULL lies in no range that is bounded on at least one side, unless a bound is NULL itself: then it is the
    /// smallest value.
    pub fn range<V: AsValue>(mut self, range: impl RangeBounds<V>) -> Self {
        let owned = |bound: Bound<&V>| bound.map(|value| value.as_value().to_value());
        self.request.range = Some((owned(range.start_bound()), owned(range.end_bound())));
        self
    }

    /// Visits the rows in the opposite order.
    pub fn reverse(mut self) -> Self {
        self.request.reverse = true;
        self
    }

    /// Returns at most this many rows.
    pub fn limit(mut self, rows: u64) -> Self {
        self.request.limit = Some(rows);
        self
    }

    /// Asks for these columns only. If the index holds them all, no row is read.
    pub fn columns<I: IntoIterator<Item = N>, N: Into<String>>(mut self, columns: I) -> Self {
        self.request.columns = Some(columns.into_iter().map(Into::into).collect());
        self
    }

    /// Goes on behind the position of an earlier scan with the same index, bounds and direction.
    pub fn after(mut self, token: &Continuation) -> Self {
        self.request.after = Some(token.clone());
        self
    }

    /// Reads at this snapshot instead of a new one.
    pub fn at(mut self, snapshot: &S::Snapshot) -> Self {
        self.snapshot = Some(snapshot.clone());
        self
    }

    /// Reads as the transaction that `within` belongs to.
    pub(super) fn within(mut self, within: Within) -> Self {
        self.within = Some(within);
        self
    }

    fn plan(&self) -> Result<Plan> {
        let core = &self.table.core;
        plan(&core.codec, &core.definition, &self.request)
    }

    /// What [`run`](ScanBuilder::run) would do, without doing it. Deterministic.
    ///
    /// # Errors
    /// As [`run`](ScanBuilder::run), but for those of the store.
    pub fn explain(&self) -> Result<Explanation> {
        Ok(explain(self.table.schema(), &self.plan()?))
    }

    /// Starts the scan.
    ///
    /// # Errors
    /// `NotFound` for an unknown index or column; `TypeMismatch` for a value that its column cannot hold;
    /// `InvalidArgument` for more values than key columns or a foreign continuation; those of the store.
    pub fn run(self) -> Result<Scan<S, R>> {
        let plan = self.plan()?;
        let store = &self.table.core.store;
        let snapshot = self.snapshot.map_or_else(|| store.snapshot(), Ok)?;
        let iter = match &plan.keys {
            None => None,
            Some((start, end)) => {
                let stored = store.scan(&snapshot, plan.keyspace, start, end.as_deref())?;
                let range = || ReadRange { keyspace: plan.keyspace, start: start.clone(), end: end.clone() };
                Some(match &self.within {
                    None => OverlayIter::plain(stored),
                    Some(within) => OverlayIter::within(stored, within.clone(), range()),
                })
            }
        };
        let last_key = self.request.after.and_then(|token| token.last_key);
        Ok(Scan {
            table: self.table,
            left: plan.limit.unwrap_or(u64::MAX),
            plan,
            snapshot,
            within: self.within,
            iter,
            last_key,
            primary: DecodedKey::default(),
            parts: DecodedKey::default(),
            row: None,
            failed: None,
        })
    }

    /// Counts the rows of the scan, one by one and without decoding them. Rows are read only to check a prefix again.
    ///
    /// # Errors
    /// As [`run`](ScanBuilder::run).
    pub fn count(mut self) -> Result<u64> {
        self.request.columns = Some(Vec::new());
        let mut scan = self.run()?;
        let mut count = 0;
        while scan.advance()? {
            count += 1;
        }
        Ok(count)
    }
}

/// A running scan.
pub struct Scan<S: Store, R: Row = DynamicRow> {
    table: Table<S, R>,
    plan: Plan,
    snapshot: S::Snapshot,
    within: Option<Within>,
    /// `None` once the end is reached, or if no key can match.
    iter: Option<OverlayIter<S::Iter>>,
    /// Rows that may still be returned.
    left: u64,
    /// Key of the last entry that was returned.
    last_key: Option<Vec<u8>>,
    /// The current row: its primary key, the indexed columns of its entry, and the row itself where it is read.
    primary: DecodedKey,
    parts: DecodedKey,
    row: Option<TransactionValue<S::Value>>,
    failed: Option<Error>,
}

impl<S: Store, R: Row> fmt::Debug for Scan<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan")
            .field("table", &self.table.name())
            .field("plan", &self.plan)
            .finish_non_exhaustive()
    }
}

impl<S: Store, R: Row> Scan<S, R> {
    /// The next row, or those of its columns that were asked for; lent until the next call.
    ///
    /// # Errors
    /// Those of the store; `Corrupt` if an entry or a row is damaged, or an entry has no row. Every later call fails
    /// alike.
    #[expect(clippy::should_implement_trait, reason = "a scan lends its rows, which `Iterator` cannot")]
    pub fn next(&mut self) -> Result<Option<RowView<'_>>> {
        if self.advance()? { self.view().map(Some) } else { Ok(None) }
    }

    /// The next row as a whole.
    ///
    /// # Errors
    /// As [`next`](Scan::next); `InvalidArgument` if the scan was asked for some columns only.
    pub fn next_row(&mut self) -> Result<Option<R>> {
        if !self.advance()? {
            return Ok(None);
        }
        R::read(&self.view()?, &self.table.binding).map(Some)
    }

    /// The position behind the last row that was returned; see [`ScanBuilder::after`].
    #[must_use]
    pub fn continuation(&self) -> Continuation {
        let (keyspace, fingerprint) = (self.plan.keyspace, self.plan.fingerprint);
        Continuation { keyspace, fingerprint, last_key: self.last_key.clone() }
    }

    /// The snapshot that the scan reads at.
    #[must_use]
    pub fn snapshot(&self) -> &S::Snapshot {
        &self.snapshot
    }

    /// Moves to the next row that satisfies all conditions; false at the end.
    fn advance(&mut self) -> Result<bool> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.try_advance();
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    fn try_advance(&mut self) -> Result<bool> {
        if self.left == 0 {
            return Ok(false);
        }
        while let Some(iter) = &mut self.iter {
            let moved = if self.plan.reverse { iter.prev()? } else { iter.next()? };
            if !moved {
                self.iter = None;
                return Ok(false);
            }
            self.load()?;
            if self.satisfies()? {
                if let Some(iter) = &self.iter {
                    let last = self.last_key.get_or_insert_default();
                    last.clear();
                    last.extend_from_slice(iter.key());
                }
                self.left -= 1;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Decodes what the plan needs of the current entry, and reads its row if the plan says so.
    fn load(&mut self) -> Result<()> {
        let Some(iter) = &self.iter else { return Ok(()) };
        let core = &self.table.core;
        let codec = &core.codec;
        let counting = self.plan.columns.as_ref().is_some_and(Vec::is_empty) && self.plan.recheck.is_empty();
        if counting {
            return Ok(());
        }
        let Some(index) = self.plan.index.and_then(|number| codec.indexes.get(number)) else {
            return codec.decode_primary_key(iter.key(), &mut self.primary);
        };
        if !self.plan.reads_rows {
            let parts_len = index.decode_parts(codec, iter.key(), &mut self.parts)?;
            let primary_key = index.primary_key(codec, iter.key(), iter.value(), parts_len)?;
            return codec.decode_primary_key(primary_key, &mut self.primary);
        }
        let entry = index.split(codec, iter.key(), iter.value())?;
        codec.decode_primary_key(entry.primary_key, &mut self.primary)?;
        let keyspace = core.definition.primary_keyspace();
        let own = self.within.as_ref().and_then(|within| within.overlay.get(keyspace, entry.primary_key));
        let row = match own {
            Some(own) => own.clone().map(TransactionValue::Own),
            None => {
                if let Some(reads) = self.within.as_ref().and_then(|within| within.reads.as_ref()) {
                    reads.lock().keys.insert((keyspace, entry.primary_key.to_vec()));
                }
                core.store
                    .get(Some(&self.snapshot), keyspace, entry.primary_key)?
                    .map(TransactionValue::Stored)
            }
        };
        self.row = Some(row.ok_or_else(|| {
            let (name, key) = (&index.name, self.primary.show());
            codec.corrupt(
                0,
                format!("index {name} has an entry for row {key}, which does not exist; check the indexes"),
            )
        })?);
        Ok(())
    }

    fn satisfies(&self) -> Result<bool> {
        if self.plan.recheck.is_empty() {
            return Ok(true);
        }
        let view = self.view()?;
        for recheck in &self.plan.recheck {
            if !recheck.condition.holds(view.column(recheck.position)?) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The current row.
    fn view(&self) -> Result<RowView<'_>> {
        let codec = &self.table.core.codec;
        let visible = self.plan.columns.as_deref();
        let value = self.iter.as_ref().map_or(&[][..], |iter| iter.value());
        let index = self.plan.index.and_then(|number| codec.indexes.get(number));
        match (index, &self.row) {
            (None, _) => Ok(RowView { visible, ..codec.view(&self.primary, value)? }),
            (Some(_), Some(row)) => Ok(RowView { visible, ..codec.view(&self.primary, row)? }),
            (Some(index), None) => {
                let included = index.included(codec, value)?;
                let body = Body::Entry { index, parts: &self.parts, included };
                Ok(RowView { codec, key: &self.primary, body, visible })
            }
        }
    }
}

impl<S: Store> Scan<S, DynamicRow> {
    /// All values of the next row, or of the columns that were asked for, in that order.
    ///
    /// # Errors
    /// As [`next`](Scan::next).
    pub fn next_values(&mut self) -> Result<Option<Vec<Value>>> {
        if self.advance()? { self.view()?.to_values().map(Some) } else { Ok(None) }
    }
}
