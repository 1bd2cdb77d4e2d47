//! The second phase: which rows must go because another row has their key.
//!
//! Equal keys stand next to each other once the runs of a target are merged, so one walk finds them; nothing is
//! written. Two steps, in this order, so that the outcome can be foretold from the input alone:
//!
//! 1. **Primary key.** Of the rows with one key, the first (or with `last` the last) in the order of the input stays.
//! 2. **Unique indexes**, among the rows that stayed: in the order of the input, a row goes if one of its unique keys
//!    belongs to an earlier row that stays. A row that goes because of one index holds no key in the others. That
//!    takes all unique indexes together, so their equal keys are collected first and then gone through by place.
//!
//! The rows that go are the *losers*: their places, sorted. Every target leaves out the entries of losers when it is
//! written. Memory is eight bytes for each loser, and for each row whose unique key is not its own.

use std::sync::Arc;

use alluvium::row::{KeyPart, RowDecoder, Value};

use crate::load::cli::OnDuplicate;
use crate::load::error::{LoadError, Result};
use crate::load::job::{Job, Ticker};
use crate::load::parallel;
use crate::load::place::Place;
use crate::load::progress::Phase;
use crate::load::rejects::Reject;
use crate::load::sort::merge::{Merge, Run};
use crate::load::target::LoadTarget;

/// The search ends when the load is bound to fail and so many have been found.
const ERRORS_MAX: u64 = 1000;

/// Rows that are not loaded although they were read well: sorted places.
#[derive(Debug, Default)]
pub struct Losers {
    places: Vec<Place>,
    /// Rows that made room for another row with the same primary key.
    pub superseded: u64,
}

impl Losers {
    /// True if the row at `place` is not loaded.
    #[must_use]
    pub fn contains(&self, place: Place) -> bool {
        !self.places.is_empty() && self.places.binary_search(&place).is_ok()
    }

    /// Number of rows.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.places.len() as u64
    }

    /// True if all rows are loaded.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn add(&mut self, more: impl IntoIterator<Item = Place>) {
        self.places.extend(more);
        self.places.sort_unstable();
    }
}

/// Rows with the same key in one target, in the order of the input.
struct Group {
    target: usize,
    key: Box<[u8]>,
    places: Vec<Place>,
}

enum Walk {
    On,
    Stop,
}

/// Finds the losers among the rows of `runs` (by target), and puts those that count as errors on record.
///
/// # Errors
/// `TooManyErrors` if `--on-duplicate` or `--max-errors` does not allow them; `Stopped`; those of reading runs.
pub fn find<T: LoadTarget>(job: &Job<'_, T>, runs: &[Vec<Run>], rows: u64) -> Result<Losers> {
    let mode = job.settings.on_duplicate;
    let decoder = RowDecoder::new(Arc::clone(job.target.encoder().schema()));
    let mut losers = Losers::default();
    let mut gone = Vec::new();
    for_each_group(job, runs, 0, &losers, |key, places| {
        let (keeper, others) = match (mode, places) {
            (OnDuplicate::Last, [others @ .., last]) => (*last, others),
            (_, [first, others @ ..]) => (*first, others),
            (_, []) => return Ok(Walk::On),
        };
        gone.extend_from_slice(others);
        if matches!(mode, OnDuplicate::Error | OnDuplicate::Reject) {
            others.iter().try_for_each(|&place| reject(job, &decoder, 0, key, place, keeper))?;
        }
        Ok(next_step(job, 0))
    })?;
    if matches!(mode, OnDuplicate::First | OnDuplicate::Last) {
        losers.superseded = gone.len() as u64;
    }
    losers.add(gone);
    if matches!(next_step(job, 0), Walk::On) {
        let rejected = find_in_unique_indexes(job, runs, &losers, &decoder)?;
        losers.add(rejected);
    }
    if mode == OnDuplicate::Error && !losers.is_empty() {
        job.rejects.publish()?;
        return Err(duplicates_error(job, losers.len()));
    }
    job.rejects.check(rows)?;
    Ok(losers)
}

/// Whether to look for more: not if the load is bound to fail, and there are as many errors to tell as anyone will read.
/// `more` errors are certain, but not yet on record.
fn next_step<T>(job: &Job<'_, T>, more: u64) -> Walk {
    let count = job.rejects.count() + more;
    let will_fail =
        job.settings.on_duplicate == OnDuplicate::Error || job.rejects.would_be_too_many_for_good(count);
    if !will_fail || count < ERRORS_MAX {
        return Walk::On;
    }
    job.rejects.stop_early();
    Walk::Stop
}

fn find_in_unique_indexes<T: LoadTarget>(
    job: &Job<'_, T>,
    runs: &[Vec<Run>],
    losers: &Losers,
    decoder: &RowDecoder,
) -> Result<Vec<Place>> {
    let indexes = job.plan.schema.indexes().iter().enumerate();
    let targets: Vec<usize> = indexes.filter(|(_, index)| index.is_unique()).map(|(at, _)| at + 1).collect();
    let collect = |number: usize| {
        let target = targets[number];
        let mut groups = Vec::new();
        let mut violations = 0;
        for_each_group(job, runs, target, losers, |key, places| {
            groups.push(Group { target, key: key.into(), places: places.to_vec() });
            // Of n rows with one key, n − 1 will have to go.
            violations += places.len() as u64 - 1;
            Ok(next_step(job, violations))
        })?;
        Ok(groups)
    };
    let groups: Vec<Group> = parallel::for_each(job, targets.len(), collect)?.into_iter().flatten().collect();
    let mut claims: Vec<(Place, usize)> = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        claims.extend(group.places.iter().map(|&place| (place, number)));
    }
    claims.sort_unstable();
    let mut holders: Vec<Option<Place>> = vec![None; groups.len()];
    let mut gone = Vec::new();
    for row in claims.chunk_by(|a, b| a.0 == b.0) {
        let Some(&(place, _)) = row.first() else { continue };
        match row.iter().find_map(|&(_, group)| Some((group, holders[group]?))) {
            Some((group, holder)) => {
                gone.push(place);
                reject(job, decoder, groups[group].target, &groups[group].key, place, holder)?;
            }
            None => row.iter().for_each(|&(_, group)| holders[group] = Some(place)),
        }
    }
    Ok(gone)
}

/// Calls `each` with every key that several rows have, and their places; rows that are losers already do not count.
fn for_each_group<T: LoadTarget>(
    job: &Job<'_, T>,
    runs: &[Vec<Run>],
    target: usize,
    losers: &Losers,
    mut each: impl FnMut(&[u8], &[Place]) -> Result<Walk>,
) -> Result<()> {
    let mut merge = Merge::new(runs.get(target).map_or(&[], Vec::as_slice));
    let mut ticker = Ticker::new(job, Phase::Check);
    let (mut key, mut places) = (Vec::new(), Vec::new());
    while merge.advance()? {
        ticker.tick()?;
        if losers.contains(merge.place()) {
            continue;
        }
        if places.is_empty() || merge.key() != key {
            if places.len() > 1 && matches!(each(&key, &places)?, Walk::Stop) {
                return Ok(());
            }
            key.clear();
            key.extend_from_slice(merge.key());
            places.clear();
        }
        places.push(merge.place());
    }
    if places.len() > 1 {
        each(&key, &places)?;
    }
    Ok(())
}

/// Puts on record that the row at `place` has the key that belongs to the row at `holder`.
fn reject<T: LoadTarget>(
    job: &Job<'_, T>,
    decoder: &RowDecoder,
    target: usize,
    key: &[u8],
    place: Place,
    holder: Place,
) -> Result<()> {
    let schema = &job.plan.schema;
    let index = target.checked_sub(1).and_then(|number| schema.indexes().get(number));
    let (what, parts, values) = match index {
        Some(index) => {
            let values = decoder.index_entry(target - 1, key, None)?.parts;
            (format!("key in unique index {}", index.name()), index.parts(), values)
        }
        None => ("primary key".to_owned(), schema.primary_key(), decoder.primary_key(key)?),
    };
    let values: Vec<String> = values.iter().map(Value::to_string).collect();
    let column_of = |part: &KeyPart| Some(schema.columns().get(schema.position_of(part.column())?)?.name());
    let columns: Vec<&str> = parts.iter().filter_map(column_of).collect();
    job.rejects.add(Reject {
        place,
        byte: None,
        column: Some(columns.join(",")),
        expected: None,
        text: Some(values.join(", ")),
        reason: format!("same {what} as {}", job.rejects.describe_place(holder)),
        advice: None,
    })
}

fn duplicates_error<T>(job: &Job<'_, T>, count: u64) -> LoadError {
    let rows = match count {
        1 => "1 row has".to_owned(),
        _ if count >= ERRORS_MAX => format!("at least {count} rows have"),
        _ => format!("{count} rows have"),
    };
    LoadError::TooManyErrors(format!(
        "nothing was loaded: {rows} a key that an earlier row has\n{}\n  \
         help: --on-duplicate first, last or reject says which row to load; see --help",
        job.rejects.describe()
    ))
}
