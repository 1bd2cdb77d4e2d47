//! What a commit takes for granted.
//!
//! A transaction reads at a snapshot and writes later. Its commit is right only if what it relies on has not been
//! written in between: under snapshot isolation the keys that it writes itself (the first committer wins), under
//! serialisable isolation also every key and every range that it read, absent keys included. That list is a
//! [`Premise`]; the store checks it and applies the batch in one step
//! ([`Store::apply_if`](super::Store::apply_if)).

use std::collections::BTreeMap;

use alluvium_base::key::KeyspaceId;
use alluvium_base::{Error, ErrorKind};

/// Bytes of a key that a message shows.
const SHOWN_BYTES_MAX: usize = 24;

/// Keys and ranges that must not have been written since the snapshot `since`.
#[derive(Clone, Debug)]
pub struct Premise<N> {
    /// What the transaction read at.
    pub since: N,
    /// Keys; whether they are there does not matter.
    pub keys: Vec<(KeyspaceId, Vec<u8>)>,
    /// Ranges of keys.
    pub ranges: Vec<ReadRange>,
    /// What keyspaces are called in messages.
    pub names: BTreeMap<KeyspaceId, String>,
}

/// The keys `[start, end)` of a keyspace, or those from `start` on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReadRange {
    /// Whose keys.
    pub keyspace: KeyspaceId,
    /// The first key.
    pub start: Vec<u8>,
    /// The first key that is not meant; `None` for all keys from `start` on.
    pub end: Option<Vec<u8>>,
}

impl ReadRange {
    /// True if there can be no key in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.end.as_ref().is_some_and(|end| *end <= self.start)
    }
}

impl<N> Premise<N> {
    /// The error that says that `key` has been written.
    #[must_use]
    pub fn broken(&self, keyspace: KeyspaceId, key: &[u8]) -> Error {
        let name = self.names.get(&keyspace).cloned().unwrap_or_else(|| format!("keyspace {}", keyspace.0));
        let shown = key.get(..SHOWN_BYTES_MAX).unwrap_or(key).escape_ascii();
        let more = if key.len() > SHOWN_BYTES_MAX { "…" } else { "" };
        ErrorKind::Conflict { what: format!("key \"{shown}{more}\" of {name}") }.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conflict_names_the_key_and_where_it_lies() {
        let names = BTreeMap::from([(KeyspaceId(3), "table orders".to_owned())]);
        let premise = Premise { since: (), keys: vec![], ranges: vec![], names };
        let text = premise.broken(KeyspaceId(3), b"a\0").to_string();
        assert!(text.contains("key \"a\\x00\" of table orders"), "{text}");
        assert!(premise.broken(KeyspaceId(4), &[b'x'; 99]).to_string().contains("…\" of keyspace 4"));
    }
}
