//! What a store must offer to be measured.

use std::path::Path;
use std::time::Duration;

use alluvium::{Db, Durability, Keyspace, Options};

use crate::Result;

/// What every engine gets alike.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// Memory for caches and write buffers together, in bytes.
    pub memory_bytes: usize,
    /// Size of one write buffer, in bytes.
    pub write_buffer_bytes: usize,
}

/// Makes databases of one kind.
pub trait Factory: Send + Sync {
    /// The engine's name.
    fn name(&self) -> &'static str;
    /// Opens or creates the database in `directory`.
    ///
    /// # Errors
    /// Whatever the engine fails with.
    fn open(&self, directory: &Path, config: &Config) -> Result<Box<dyn Engine>>;
}

/// A visitor of key-value pairs.
pub type Visit<'a> = &'a mut dyn FnMut(&[u8], &[u8]);

/// An open key-value store, used by many threads at once.
pub trait Engine: Send + Sync {
    /// Sets a key; with `sync`, durably.
    ///
    /// # Errors
    /// Whatever the engine fails with; so for all methods.
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()>;
    /// Removes a key.
    ///
    /// # Errors
    /// As [`put`](Engine::put).
    fn delete(&self, key: &[u8]) -> Result<()>;
    /// Looks a key up and returns the length of its value.
    ///
    /// # Errors
    /// As [`put`](Engine::put).
    fn get(&self, key: &[u8]) -> Result<Option<usize>>;
    /// Visits up to `limit` entries from `start` on (or from the end backwards) and returns how many.
    ///
    /// # Errors
    /// As [`put`](Engine::put).
    fn scan(&self, start: Option<&[u8]>, reverse: bool, limit: u64, visit: Visit<'_>) -> Result<u64>;
    /// Loads entries that come in key order into the empty store, the fastest way there is.
    ///
    /// # Errors
    /// As [`put`](Engine::put).
    fn bulk_load(&self, next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool) -> Result<()>;
    /// Waits until background work is at rest.
    ///
    /// # Errors
    /// As [`put`](Engine::put).
    fn settle(&self) -> Result<()>;
    /// Closes in order.
    ///
    /// # Errors
    /// As [`put`](Engine::put).
    fn close(self: Box<Self>) -> Result<()>;
}

/// Alluvium, with its defaults apart from the sizes that all engines share.
#[derive(Debug)]
pub struct AlluviumFactory;

struct AlluviumEngine {
    db: Db,
    keyspace: Keyspace,
}

impl Factory for AlluviumFactory {
    fn name(&self) -> &'static str {
        "alluvium"
    }

    fn open(&self, directory: &Path, config: &Config) -> Result<Box<dyn Engine>> {
        let options = Options {
            memory_bytes: Some(config.memory_bytes),
            memtable_bytes: Some(config.write_buffer_bytes),
            ..Options::default()
        };
        let db = Db::open(directory, options)?;
        let keyspace = db.keyspace("bench")?;
        Ok(Box::new(AlluviumEngine { db, keyspace }))
    }
}

impl Engine for AlluviumEngine {
    fn put(&self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        Ok(self.keyspace.put(key, value, if sync { Durability::Sync } else { Durability::Buffered })?)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.keyspace.delete(key, Durability::Buffered)?)
    }

    fn get(&self, key: &[u8]) -> Result<Option<usize>> {
        Ok(self.keyspace.get(key)?.map(|value| value.len()))
    }

    fn scan(&self, start: Option<&[u8]>, reverse: bool, limit: u64, visit: Visit<'_>) -> Result<u64> {
        let mut iter = self.keyspace.iter()?;
        let mut seen = 0;
        let mut valid = match (start, reverse) {
            (Some(start), false) => iter.seek(start)?,
            (Some(start), true) => iter.seek_before(start)?,
            (None, false) => iter.seek_to_first()?,
            (None, true) => iter.seek_to_last()?,
        };
        while valid && seen < limit {
            visit(iter.key(), iter.value());
            seen += 1;
            valid = if reverse { iter.prev()? } else { iter.next()? };
        }
        Ok(seen)
    }

    fn bulk_load(&self, next: &mut dyn FnMut(&mut Vec<u8>, &mut Vec<u8>) -> bool) -> Result<()> {
        Ok(self.db.bulk_load_keyspace("bulk", next).map(|_| ())?)
    }

    fn settle(&self) -> Result<()> {
        self.db.flush()?;
        Ok(self.db.wait_until_settled()?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.db.close(Duration::from_secs(60))?)
    }
}
