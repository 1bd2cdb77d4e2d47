//! Planning a scan: a pure function of the schema and of what the caller asked for.
//!
//! Nothing is chosen here. The caller names the index, or scans by the primary key; the plan only says which keys that
//! means and whether rows must be read. So a plan never changes because of statistics or load, and a full scan happens
//! only where no condition was given. Values are converted to their column's type here, once, or refused.
//!
//! **Equality** binds the first columns of the key, one value each; NULL equals NULL here. **A range** binds the next
//! one, in terms of its values whatever its direction. A range that is bounded on at least one side never holds NULL
//! (as in SQL), unless a bound is itself NULL, which then counts as the smallest value.
//!
//! With `P` the encoded equality values and `enc` the encoding of the range's column, the keys are `[start, end)`:
//!
//! | bound | as start | as end |
//! |---|---|---|
//! | none | `P`, or `P` ‖ first non-NULL | end of prefix `P`, or `P` ‖ NULL if that comes last |
//! | inclusive v | `P ‖ enc(v)` | end of prefix `P ‖ enc(v)` |
//! | exclusive v | end of prefix `P ‖ enc(v)` | `P ‖ enc(v)` |
//!
//! For a descending column the upper bound gives the start. Of a column of which the index holds only a prefix, the
//! cut value is used, always inclusively, and the row's own value is checked again.

use std::ops::Bound;

use alluvium_base::checksum::{checksum, seed};
use alluvium_base::key::{KeyspaceId, prefix_end};
use alluvium_base::{Error, Result};

use super::catalog::TableDefinition;
use super::continuation::Continuation;
use super::index_codec::EntryPlace;
use super::key_codec::KeyColumn;
use super::row_codec::TableCodec;
use super::schema::{KeyPart, Schema};
use super::value::{Value, ValueRef};

/// The first key, and the first one after it that is not meant; without the latter, all keys from the first on.
pub(super) type KeyBounds = (Vec<u8>, Option<Vec<u8>>);

/// What a caller asks of a scan.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) index: Option<String>,
    pub(super) eq: Vec<Value>,
    pub(super) range: Option<(Bound<Value>, Bound<Value>)>,
    pub(super) reverse: bool,
    pub(super) limit: Option<u64>,
    /// `None` for all.
    pub(super) columns: Option<Vec<String>>,
    pub(super) after: Option<Continuation>,
}

/// What the row's own value must satisfy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Equals(Value),
    Between(Bound<Value>, Bound<Value>),
}

impl Condition {
    pub(super) fn holds(&self, value: ValueRef<'_>) -> bool {
        match self {
            Condition::Equals(wanted) => value == wanted.as_ref(),
            Condition::Between(lower, upper) => {
                let names_null = |bound: &Bound<Value>| bound_value(bound).is_some_and(Value::is_null);
                let above = match lower {
                    Bound::Unbounded => true,
                    Bound::Included(bound) => value >= bound.as_ref(),
                    Bound::Excluded(bound) => value > bound.as_ref(),
                };
                let below = match upper {
                    Bound::Unbounded => true,
                    Bound::Included(bound) => value <= bound.as_ref(),
                    Bound::Excluded(bound) => value < bound.as_ref(),
                };
                above && below && (!value.is_null() || names_null(lower) || names_null(upper))
            }
        }
    }
}

fn bound_value(bound: &Bound<Value>) -> Option<&Value> {
    match bound {
        Bound::Included(value) | Bound::Excluded(value) => Some(value),
        Bound::Unbounded => None,
    }
}

/// A condition with the position of the column it is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Recheck {
    pub(super) position: usize,
    pub(super) condition: Condition,
}

/// How a scan is carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Number of the index; `None` for the primary key.
    pub(super) index: Option<usize>,
    pub(super) keyspace: KeyspaceId,
    /// The keys in `[start, end)`; `None` if no key can match.
    pub(super) keys: Option<KeyBounds>,
    pub(super) reverse: bool,
    pub(super) limit: Option<u64>,
    /// Positions of the columns asked for; `None` for all.
    pub(super) columns: Option<Vec<usize>>,
    /// True if the row of each entry must be read.
    pub(super) reads_rows: bool,
    /// Conditions that the entry's key cannot decide.
    pub(super) recheck: Vec<Recheck>,
    /// The equality values, in canonical form.
    pub(super) eq: Vec<Value>,
    /// Condition on the column after those.
    pub(super) range: Option<Condition>,
    /// Identifies keyspace, keys, direction and conditions.
    pub(super) fingerprint: u64,
}

/// The key by which a scan goes.
struct Access<'a> {
    /// Number of the index; `None` for the primary key.
    index: Option<usize>,
    keyspace: KeyspaceId,
    parts: &'a [KeyColumn],
    key: &'a [KeyPart],
    schema: &'a Schema,
    /// For error messages.
    name: String,
}

fn access<'a>(
    codec: &'a TableCodec,
    definition: &TableDefinition,
    index: Option<&str>,
) -> Result<Access<'a>> {
    let schema = &*codec.schema;
    let Some(wanted) = index else {
        let (keyspace, name) = (definition.primary_keyspace(), "the primary key".to_owned());
        return Ok(Access {
            index: None,
            keyspace,
            parts: &codec.primary,
            key: schema.primary_key(),
            schema,
            name,
        });
    };
    let index = schema.require_index(wanted)?;
    let number = schema.indexes().iter().position(|other| other.id() == index.id());
    let found = number
        .and_then(|number| Some((number, definition.index_keyspace(number)?, codec.indexes.get(number)?)));
    let Some((number, keyspace, compiled)) = found else {
        return Err(Error::not_found(format!("keyspace of index {wanted} on {}", schema.name())));
    };
    let (parts, key, name) = (&compiled.parts, index.parts(), format!("index {wanted}"));
    Ok(Access { index: Some(number), keyspace, parts, key, schema, name })
}

/// Plans a scan of a table.
pub(super) fn plan(codec: &TableCodec, definition: &TableDefinition, request: &Request) -> Result<Plan> {
    let access = access(codec, definition, request.index.as_deref())?;
    let parts = access.parts;
    let eq = equal_values(&access, request)?;
    let range = range_condition(&access, request)?;
    let keys = key_bounds(codec, parts, &eq, range.as_ref())?;

    let equal = parts.iter().zip(&eq).map(|(part, value)| (part, Condition::Equals(value.clone())));
    let next = parts.get(eq.len()).zip(range.clone());
    let recheck: Vec<Recheck> = equal
        .chain(next)
        .filter(|(part, _)| part.prefix.is_some())
        .map(|(part, condition)| Recheck { position: part.position, condition })
        .collect();
    let columns = match &request.columns {
        None => None,
        Some(names) => {
            Some(names.iter().map(|name| access.schema.require_position(name)).collect::<Result<Vec<_>>>()?)
        }
    };
    let mut plan = Plan {
        index: access.index,
        keyspace: access.keyspace,
        keys,
        reverse: request.reverse,
        limit: request.limit,
        reads_rows: false,
        columns,
        recheck,
        range,
        eq,
        fingerprint: 0,
    };
    plan.reads_rows = plan.must_read_rows(codec);
    plan.fingerprint = plan.compute_fingerprint();
    if let Some(token) = &request.after {
        plan.resume(token)?;
    }
    Ok(plan)
}

/// The keys that satisfy the conditions on `parts`; `None` if there can be none.
fn key_bounds(
    codec: &TableCodec,
    parts: &[KeyColumn],
    eq: &[Value],
    range: Option<&Condition>,
) -> Result<Option<KeyBounds>> {
    let mut prefix = Vec::new();
    for (part, value) in parts.iter().zip(eq) {
        if value.is_null() && !part.nullable {
            return Ok(None);
        }
        codec.encode_part(part, value.as_ref(), &mut prefix)?;
    }
    let keys = match (parts.get(eq.len()), range) {
        (Some(part), Some(Condition::Between(lower, upper))) => {
            range_keys(codec, part, lower, upper, &prefix)?
        }
        _ => {
            let end = prefix_end(&prefix);
            Some((prefix, end))
        }
    };
    Ok(keys.filter(|(start, end)| end.as_ref().is_none_or(|end| start < end)))
}

fn equal_values(access: &Access<'_>, request: &Request) -> Result<Vec<Value>> {
    if request.eq.len() > access.parts.len() {
        let (given, name, columns) = (request.eq.len(), &access.name, access.schema.show_parts(access.key));
        return Err(Error::invalid(format!("{given} values given to eq, but {name} has only ({columns})")));
    }
    access.parts.iter().zip(&request.eq).map(|(part, value)| coerce(access.schema, part, value)).collect()
}

fn coerce(schema: &Schema, part: &KeyColumn, value: &Value) -> Result<Value> {
    let column = schema.columns().get(part.position).map_or("?", |column| column.name());
    value.as_ref().coerce_for(column, part.ty).map(ValueRef::to_value)
}

fn range_condition(access: &Access<'_>, request: &Request) -> Result<Option<Condition>> {
    let Some((lower, upper)) = &request.range else { return Ok(None) };
    let Some(part) = access.parts.get(request.eq.len()) else {
        let (bound, name, columns) = (request.eq.len(), &access.name, access.schema.show_parts(access.key));
        return Err(Error::invalid(format!(
            "eq binds all {bound} columns of {name} ({columns}); none is left for a range"
        )));
    };
    let convert = |bound: &Bound<Value>| -> Result<Bound<Value>> {
        Ok(match bound {
            Bound::Unbounded => Bound::Unbounded,
            Bound::Included(value) => Bound::Included(coerce(access.schema, part, value)?),
            Bound::Excluded(value) => Bound::Excluded(coerce(access.schema, part, value)?),
        })
    };
    if let (Bound::Unbounded, Bound::Unbounded) = (lower, upper) {
        return Ok(None);
    }
    Ok(Some(Condition::Between(convert(lower)?, convert(upper)?)))
}

/// The keys `[start, end)` that a range on `part` means behind `prefix`; `None` if there can be none.
fn range_keys(
    codec: &TableCodec,
    part: &KeyColumn,
    lower: &Bound<Value>,
    upper: &Bound<Value>,
    prefix: &[u8],
) -> Result<Option<KeyBounds>> {
    let names_null = [lower, upper].into_iter().any(|bound| bound_value(bound).is_some_and(Value::is_null));
    let skip_nulls = part.nullable && !names_null;
    // On a column without NULLs, a bound NULL lies below everything.
    let below_all = |bound: &Bound<Value>| !part.nullable && bound_value(bound).is_some_and(Value::is_null);
    if below_all(upper) {
        return Ok(None);
    }
    let lower = if below_all(lower) { &Bound::Unbounded } else { lower };
    let encoded = |value: &Value| {
        let mut key = prefix.to_vec();
        codec.encode_part(part, value.as_ref(), &mut key).map(|()| key)
    };
    let null_key = || encoded(&Value::Null);
    let (first, last) = if part.descending { (upper, lower) } else { (lower, upper) };
    let start = match first {
        Bound::Unbounded if skip_nulls && !part.descending => prefix_end(&null_key()?),
        Bound::Unbounded => Some(prefix.to_vec()),
        Bound::Excluded(value) if part.prefix.is_none() => prefix_end(&encoded(value)?),
        Bound::Included(value) | Bound::Excluded(value) => Some(encoded(value)?),
    };
    let end = match last {
        Bound::Unbounded if skip_nulls && part.descending => Some(null_key()?),
        Bound::Unbounded => prefix_end(prefix),
        Bound::Excluded(value) if part.prefix.is_none() => Some(encoded(value)?),
        Bound::Included(value) | Bound::Excluded(value) => prefix_end(&encoded(value)?),
    };
    Ok(start.map(|start| (start, end)))
}

impl Plan {
    /// True if the entries of the index do not hold everything that is asked for or checked.
    fn must_read_rows(&self, codec: &TableCodec) -> bool {
        let Some(index) = self.index.and_then(|number| codec.indexes.get(number)) else { return false };
        let held = |position: usize| index.place(position) != EntryPlace::Absent;
        let checked = self.recheck.iter().all(|recheck| held(recheck.position));
        let asked = match &self.columns {
            Some(columns) => columns.iter().all(|&position| held(position)),
            None => (0..codec.schema.columns().len()).all(held),
        };
        !(checked && asked)
    }

    /// Two plans have the same fingerprint only if they visit the same keys in the same order and keep the same rows.
    fn compute_fingerprint(&self) -> u64 {
        let mut bytes = Vec::new();
        let mut put = |item: &[u8]| alluvium_base::coding::put_bytes(&mut bytes, item);
        put(&[u8::from(self.reverse), u8::from(self.keys.is_some())]);
        if let Some((start, end)) = &self.keys {
            put(start);
            put(end.as_deref().unwrap_or_default());
        }
        for recheck in &self.recheck {
            put(format!("{:?}", recheck.condition).as_bytes());
        }
        checksum(seed(u128::from(self.keyspace.0), 0), &bytes)
    }

    /// Leaves out what a scan of this plan has returned already.
    fn resume(&mut self, token: &Continuation) -> Result<()> {
        let foreign = || {
            Error::invalid(
                "the continuation token belongs to another scan; use it with the same index and bounds",
            )
        };
        if (token.keyspace, token.fingerprint) != (self.keyspace, self.fingerprint) {
            return Err(foreign());
        }
        let Some(last) = &token.last_key else { return Ok(()) };
        let Some((start, end)) = &mut self.keys else { return Err(foreign()) };
        if last < start || end.as_ref().is_some_and(|end| last >= end) {
            return Err(foreign());
        }
        if self.reverse {
            *end = Some(last.clone());
        } else {
            start.clone_from(last);
            start.push(0);
        }
        self.keys = self.keys.take().filter(|(start, end)| end.as_ref().is_none_or(|end| start < end));
        Ok(())
    }
}
