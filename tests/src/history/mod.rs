//! Histories of concurrent transactions, and what must not be found in them.
//!
//! Every key holds a list; writing means appending a value that nobody else appends (*list-append*, as Elle does it:
//! Kingsbury and Alvaro, VLDB 2020). So a read tells which writes it has seen and in which order, and the lists at the
//! end tell the order of all writes of a key. A scan is a read of every key that it could have found, the absent ones
//! included, as empty lists.
//!
//! First each read is looked at alone ([`check`]): did it see what was never committed, half of a transaction, another
//! order than the final one, something else than the same transaction saw before? Is a committed write missing at the
//! end? What is left is the order of whole transactions: a graph of dependencies, in which there must be no cycle
//! (`graph.rs`).

mod graph;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::fmt;

pub use graph::{Cycle, Edge, EdgeKind};

/// A key of a list.
pub type Key = u64;
/// A value; appended once in a history.
pub type Value = u64;

/// What a transaction did to a key, in its order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Appended a value to the list.
    Append(Key, Value),
    /// Saw the list, with the transaction's own values.
    Read(Key, Vec<Value>),
}

/// What the database promised to a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Promise {
    /// Snapshot isolation.
    Snapshot,
    /// Serialisable.
    Serializable,
    /// It only changes what is there when it commits, row by row: a batch of updates.
    Latest,
}

/// One transaction of a history.
#[derive(Clone, Debug)]
pub struct Record {
    /// What was promised to it.
    pub promise: Promise,
    /// When it began, on a clock that all clients share.
    pub began: u64,
    /// When its commit was known, on the same clock.
    pub ended: u64,
    /// Whether it committed; if not, nobody may see anything of it.
    pub committed: bool,
    /// What it did.
    pub operations: Vec<Operation>,
}

/// Everything that happened.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The transactions, in any order.
    pub records: Vec<Record>,
    /// The lists when all was over.
    pub last: BTreeMap<Key, Vec<Value>>,
}

/// Something that must not happen. Numbers of transactions are their places in [`History::records`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Anomaly {
    /// A transaction saw a value of one that did not commit (G1a).
    AbortedRead {
        /// Who saw it.
        reader: usize,
        /// The list.
        key: Key,
        /// What was seen.
        value: Value,
    },
    /// A transaction saw only the first of the values that another one appended to a list (G1b).
    IntermediateRead {
        /// Who saw it.
        reader: usize,
        /// The list.
        key: Key,
        /// The last value that was seen.
        value: Value,
    },
    /// A committed value is not in its list at the end.
    LostUpdate {
        /// Whose value it was.
        writer: usize,
        /// The list.
        key: Key,
        /// The value.
        value: Value,
    },
    /// A transaction read a list twice and saw something else, its own values aside.
    UnrepeatableRead {
        /// Who read.
        reader: usize,
        /// The list.
        key: Key,
    },
    /// A transaction saw a list that is no beginning of the final one.
    IncompatibleRead {
        /// Who read.
        reader: usize,
        /// The list.
        key: Key,
    },
    /// Transactions depend on each other in a circle.
    Cycle(Cycle),
}

impl fmt::Display for Anomaly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Anomaly::Cycle(cycle) => cycle.fmt(f),
            other => write!(f, "{other:?}"),
        }
    }
}

/// What a transaction saw of others in one list: so many values of the final list.
#[derive(Clone, Copy, Debug)]
struct View {
    reader: usize,
    key: Key,
    seen: usize,
}

/// Checks a history against what was promised to each of its transactions; returns the anomalies found: of the reads
/// alone, or else the first cycle.
#[must_use]
pub fn check(history: &History) -> Vec<Anomaly> {
    let writers = writers(history);
    let mut anomalies = lost_updates(history);
    let mut views = Vec::new();
    for (reader, record) in history.records.iter().enumerate().filter(|(_, record)| record.committed) {
        check_reads(history, &writers, reader, record, &mut views, &mut anomalies);
    }
    if anomalies.is_empty() {
        anomalies.extend(graph::find_cycle(history, &writers, &views).map(Anomaly::Cycle));
    }
    anomalies
}

/// Who appended which value.
fn writers(history: &History) -> HashMap<Value, usize> {
    let mut writers = HashMap::new();
    for (number, record) in history.records.iter().enumerate() {
        for operation in &record.operations {
            if let Operation::Append(_, value) = operation {
                assert!(writers.insert(*value, number).is_none(), "value {value} is appended twice");
            }
        }
    }
    writers
}

fn lost_updates(history: &History) -> Vec<Anomaly> {
    let mut lost = Vec::new();
    for (writer, record) in history.records.iter().enumerate().filter(|(_, record)| record.committed) {
        for operation in &record.operations {
            if let Operation::Append(key, value) = operation
                && !history.last.get(key).is_some_and(|list| list.contains(value))
            {
                lost.push(Anomaly::LostUpdate { writer, key: *key, value: *value });
            }
        }
    }
    lost
}

/// Looks at the reads of one transaction, and adds what they saw of others to `views`.
fn check_reads(
    history: &History,
    writers: &HashMap<Value, usize>,
    reader: usize,
    record: &Record,
    views: &mut Vec<View>,
    anomalies: &mut Vec<Anomaly>,
) {
    let mut own: BTreeMap<Key, Vec<Value>> = BTreeMap::new();
    let mut foreign: BTreeMap<Key, &[Value]> = BTreeMap::new();
    for operation in &record.operations {
        let (key, seen) = match operation {
            Operation::Append(key, value) => {
                own.entry(*key).or_default().push(*value);
                continue;
            }
            Operation::Read(key, seen) => (*key, seen.as_slice()),
        };
        let mine = own.get(&key).map_or(&[][..], Vec::as_slice);
        let Some(others) = seen.strip_suffix(mine) else {
            anomalies.push(Anomaly::UnrepeatableRead { reader, key });
            continue;
        };
        if *foreign.entry(key).or_insert(others) != others {
            anomalies.push(Anomaly::UnrepeatableRead { reader, key });
            continue;
        }
        let committed = |value: &Value| {
            writers.get(value).and_then(|&writer| history.records.get(writer)).is_some_and(|r| r.committed)
        };
        if let Some(&value) = others.iter().find(|value| !committed(value)) {
            anomalies.push(Anomaly::AbortedRead { reader, key, value });
            continue;
        }
        let last = history.last.get(&key).map_or(&[][..], Vec::as_slice);
        if !last.starts_with(others) {
            anomalies.push(Anomaly::IncompatibleRead { reader, key });
            continue;
        }
        let next_writer = last.get(others.len()).and_then(|value| writers.get(value));
        if let Some(&value) = others.last()
            && next_writer.is_some_and(|next| writers.get(&value) == Some(next))
        {
            anomalies.push(Anomaly::IntermediateRead { reader, key, value });
            continue;
        }
        views.push(View { reader, key, seen: others.len() });
    }
}
