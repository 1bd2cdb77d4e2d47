//! Plans in words.

use std::fmt;
use std::ops::Bound;

use super::plan::{Condition, Plan};
use super::schema::{KeyPart, Schema};
use super::value::ValueRef;

/// The plan of a scan, as [`explain`](super::ScanBuilder::explain) gives it. `Display` shows it as text; the same
/// request always gives the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The table.
    pub table: String,
    /// The index; `None` for the primary key.
    pub index: Option<String>,
    /// The columns by which the rows come, as text.
    pub order: String,
    /// True if they come in the opposite order.
    pub reverse: bool,
    /// The conditions that bound the keys, as text: none means that every key is visited.
    pub conditions: Vec<String>,
    /// The conditions that are checked for each row again, because the index holds only prefixes.
    pub rechecks: Vec<String>,
    /// The columns asked for.
    pub columns: Vec<String>,
    /// True if the row of each index entry is read.
    pub reads_rows: bool,
    /// At most so many rows.
    pub limit: Option<u64>,
    /// The keyspace that is scanned.
    pub keyspace: u32,
    /// The keys in it: from the first (inclusive) to the second (exclusive); `None` if no key can match.
    pub keys: Option<(Vec<u8>, Option<Vec<u8>>)>,
}

/// Describes a plan.
pub(super) fn explain(schema: &Schema, plan: &Plan) -> Explanation {
    let index = plan.index.and_then(|number| schema.indexes().get(number));
    let parts = index.map_or(schema.primary_key(), |index| index.parts());
    let name = |part: Option<&KeyPart>| {
        part.map_or_else(|| "?".to_owned(), |part| schema.column_name(part.column()))
    };
    let mut conditions = Vec::new();
    for (part, value) in parts.iter().zip(&plan.eq) {
        conditions.push(show_condition(&name(Some(part)), &Condition::Equals(value.clone())));
    }
    if let Some(range) = &plan.range {
        conditions.push(show_condition(&name(parts.get(plan.eq.len())), range));
    }
    let column =
        |position: &usize| schema.columns().get(*position).map_or("?", |column| column.name()).to_owned();
    let all = || schema.columns().iter().map(|column| column.name().to_owned()).collect();
    Explanation {
        table: schema.name().to_owned(),
        index: index.map(|index| index.name().to_owned()),
        order: schema.show_parts(parts),
        reverse: plan.reverse,
        conditions,
        rechecks: plan.recheck.iter().map(|r| show_condition(&column(&r.position), &r.condition)).collect(),
        columns: plan.columns.as_ref().map_or_else(all, |columns| columns.iter().map(column).collect()),
        reads_rows: plan.reads_rows,
        limit: plan.limit,
        keyspace: plan.keyspace.0,
        keys: plan.keys.clone(),
    }
}

fn show_condition(column: &str, condition: &Condition) -> String {
    match condition {
        Condition::Equals(value) => format!("{column} = {value}"),
        Condition::Between(lower, upper) => {
            let lower = match lower {
                Bound::Included(value) => Some(format!("{column} >= {value}")),
                Bound::Excluded(value) => Some(format!("{column} > {value}")),
                Bound::Unbounded => None,
            };
            let upper = match upper {
                Bound::Included(value) => Some(format!("{column} <= {value}")),
                Bound::Excluded(value) => Some(format!("{column} < {value}")),
                Bound::Unbounded => None,
            };
            lower.into_iter().chain(upper).collect::<Vec<_>>().join(" and ")
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by =
            self.index.as_ref().map_or_else(|| "primary key".to_owned(), |index| format!("index {index}"));
        let direction = if self.reverse { ", reverse" } else { "" };
        writeln!(f, "scan {} by {by} ({}){direction}", self.table, self.order)?;
        match (&self.keys, self.conditions.is_empty()) {
            (None, _) => writeln!(f, "  keys: none can match {}", self.conditions.join(" and "))?,
            (Some(_), true) => writeln!(f, "  keys: all (full scan)")?,
            (Some(_), false) => writeln!(f, "  keys: {}", self.conditions.join(" and "))?,
        }
        if let Some((start, end)) = &self.keys {
            let end =
                end.as_ref().map_or_else(|| "the end".to_owned(), |end| ValueRef::Bytes(end).to_string());
            writeln!(f, "  keyspace {}: from {} to {end}", self.keyspace, ValueRef::Bytes(start))?;
        }
        writeln!(f, "  columns: {}", self.columns.join(", "))?;
        match (&self.index, self.reads_rows) {
            (None, _) => writeln!(f, "  rows: read in order")?,
            (Some(_), false) => writeln!(f, "  rows: not read, the index covers the columns")?,
            (Some(_), true) => writeln!(f, "  rows: one read by primary key per entry")?,
        }
        if !self.rechecks.is_empty() {
            writeln!(f, "  checked again: {} (the index holds a prefix)", self.rechecks.join(" and "))?;
        }
        if let Some(limit) = self.limit {
            writeln!(f, "  limit: {limit}")?;
        }
        Ok(())
    }
}
