//! The real target: a database's bulk load.

use std::path::Path;
use std::time::Duration;

use alluvium::row::{RowEncoder, Schema};
use alluvium::{BulkLoad, BulkWriter, BulkWritten, Db, Options};
use alluvium_base::Result;

use crate::load::target::{EachEntry, EntryWriter, LoadTarget};

/// Memory for the database while it is being loaded, in bytes (32 MiB). A load needs no memtable and reads its files
/// once; the memory is better spent on sorting.
const DATABASE_BYTES: usize = 32 << 20;

/// How long closing may wait for work in the background, which is none of the load's.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// A new table of a database.
#[derive(Debug)]
pub struct EngineTarget {
    db: Db,
    load: BulkLoad,
}

impl EngineTarget {
    /// Opens the database in `directory`, which is made if it does not exist, and begins to load a table.
    ///
    /// # Errors
    /// `InUse` if another process has it open; `AlreadyExists` if there is a table of this name; those of opening.
    pub fn open(directory: &Path, schema: Schema) -> Result<EngineTarget> {
        let options = Options { memory_bytes: Some(DATABASE_BYTES), ..Options::default() };
        let db = Db::open(directory, options)?;
        let load = db.bulk_load(schema)?;
        Ok(EngineTarget { db, load })
    }
}

impl EntryWriter for BulkWriter {
    type Written = BulkWritten;

    fn add(&mut self, key: &[u8], value: &[u8]) -> Result<()> {
        BulkWriter::add(self, key, value)
    }

    fn finish(self) -> Result<BulkWritten> {
        BulkWriter::finish(self)
    }
}

impl LoadTarget for EngineTarget {
    type Writer<'a> = BulkWriter;
    type Written = BulkWritten;

    fn encoder(&self) -> &RowEncoder {
        self.load.encoder()
    }

    fn writer(&self, target: usize) -> Result<BulkWriter> {
        self.load.writer(target)
    }

    fn read_back(&self, written: &BulkWritten, each: &mut EachEntry<'_>) -> Result<()> {
        self.load.read_back(written, each)
    }

    fn file_bytes(&self, written: &BulkWritten) -> u64 {
        written.bytes()
    }

    fn finish(self, written: Vec<BulkWritten>) -> Result<()> {
        self.load.finish(written)?;
        // The table is durable already: an error of closing would be about other work, and would look as if the load
        // had failed.
        let _ = self.db.close(CLOSE_TIMEOUT);
        Ok(())
    }
}
