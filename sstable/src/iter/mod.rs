//! Iterating over a table, both ways at the same cost.
//!
//! The iterator stands on entry `at` of a data block, which is entry `slot` of an index partition, which is entry
//! `partition` of the top index. Block and partition stay pinned until it leaves them. A step within a block is
//! arithmetic and one copy of a key suffix; a step out of it looks at the neighbouring slot.

mod read_ahead;
mod source;

use std::sync::Arc;

use alluvium_base::iter::InternalIterator;
use alluvium_base::key::Trailer;
use alluvium_base::{Error, Result};

use crate::block::EntryBlock;
use crate::cached::{EMPTY, PinnedBlock};
use crate::frame::BlockHandle;
use crate::table::Table;
pub(crate) use source::BlockSource;

/// What an iterator reads for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadPurpose {
    /// A user's scan or seek: through the cache, reading ahead when it goes on.
    Scan,
    /// A compaction: in chunks of 256 KiB past the cache, so that hot blocks stay.
    Compaction,
    /// A verification: as a compaction.
    Verify,
}

/// A cursor over the point entries of a table; see [`InternalIterator`].
#[derive(Debug)]
pub struct TableIterator {
    table: Arc<Table>,
    source: BlockSource,
    /// The pinned index partition, with its number in the top index.
    index: Option<(usize, PinnedBlock)>,
    slot: usize,
    /// The pinned data block, with its handle.
    block: Option<(BlockHandle, PinnedBlock)>,
    at: usize,
    valid: bool,
    /// Full key of the current entry.
    key: Vec<u8>,
    failed: Option<Error>,
}

impl TableIterator {
    pub(crate) fn new(table: Arc<Table>, purpose: ReadPurpose) -> TableIterator {
        TableIterator {
            table,
            source: BlockSource::new(purpose),
            index: None,
            slot: 0,
            block: None,
            at: 0,
            valid: false,
            key: Vec::new(),
            failed: None,
        }
    }

    fn entries(&self) -> &EntryBlock {
        match &self.block {
            Some((_, block)) => block,
            None => &EMPTY,
        }
    }

    /// Runs a move; an error makes the iterator invalid for good.
    fn attempt(&mut self, step: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.valid = false;
        let result = step(self);
        if let Err(error) = &result {
            self.valid = false;
            self.failed = Some(error.clone());
        }
        result
    }

    /// Pins index partition `number`; false if there is none.
    fn enter_partition(&mut self, number: usize) -> Result<bool> {
        if self.index.as_ref().is_some_and(|(current, _)| *current == number) {
            return Ok(true);
        }
        let Some(handle) = self.table.partition_handle(number)? else { return Ok(false) };
        self.index = Some((number, self.source.partition(&self.table, handle)?));
        Ok(true)
    }

    /// Pins the data block that `slot` of the current partition names.
    fn enter_block(&mut self, slot: usize) -> Result<()> {
        let Some((_, partition)) = &self.index else { return Ok(()) };
        let handle = self.table.data_handle(partition, slot)?;
        self.slot = slot;
        if self.block.as_ref().is_none_or(|(current, _)| *current != handle) {
            // Let go of the old block first: at most one is pinned.
            self.block = None;
            self.block = Some((handle, self.source.data(&self.table, handle)?));
        }
        Ok(())
    }

    /// Stands on entry `at` of the current block.
    fn stand_on(&mut self, at: usize) {
        let Some((_, block)) = &self.block else { return };
        block.read_key(at, &mut self.key);
        self.at = at;
        self.valid = true;
    }

    /// As [`TableIterator::stand_on`], coming from another entry of the same block: the prefix is in place.
    fn step_to(&mut self, at: usize) {
        let Some((_, block)) = &self.block else { return };
        self.key.truncate(block.prefix().len());
        self.key.extend_from_slice(block.suffix(at));
        self.at = at;
    }

    fn partition_slots(&self) -> usize {
        self.index.as_ref().map_or(0, |(_, partition)| partition.count())
    }

    fn partition_number(&self) -> usize {
        self.index.as_ref().map_or(0, |(number, _)| *number)
    }

    /// Stands on the first entry of the block behind the current one, if there is one.
    fn enter_next_block(&mut self) -> Result<()> {
        let slot = if self.slot + 1 < self.partition_slots() {
            self.slot + 1
        } else if self.enter_partition(self.partition_number() + 1)? {
            0
        } else {
            return Ok(());
        };
        self.enter_block(slot)?;
        self.stand_on(0);
        Ok(())
    }

    /// Stands on the last entry of the block before the current one, if there is one.
    fn enter_previous_block(&mut self) -> Result<()> {
        let slot = if let Some(slot) = self.slot.checked_sub(1) {
            slot
        } else if let Some(number) = self.partition_number().checked_sub(1) {
            self.enter_partition(number)?;
            self.partition_slots().saturating_sub(1)
        } else {
            return Ok(());
        };
        self.enter_block(slot)?;
        self.stand_on(self.entries().count().saturating_sub(1));
        Ok(())
    }

    /// Pins the only block that can hold (`key`, `trailer`), which is the first one whose separator is not before it;
    /// false if all separators are before it.
    fn enter_block_of(&mut self, key: &[u8], trailer: Trailer) -> Result<bool> {
        let number = self.table.top_index().lower_bound(key, trailer);
        if !self.enter_partition(number)? {
            return Ok(false);
        }
        let slot = self.index.as_ref().map_or(0, |(_, partition)| partition.lower_bound(key, trailer));
        if slot >= self.partition_slots() {
            return Err(self
                .table
                .corrupt(self.table.blocks_end(), "an index partition ends before its separator"));
        }
        self.enter_block(slot)?;
        Ok(true)
    }

    fn enter_last_block(&mut self) -> Result<()> {
        let Some(last) = self.table.partitions().checked_sub(1) else { return Ok(()) };
        self.enter_partition(last)?;
        self.enter_block(self.partition_slots().saturating_sub(1))?;
        self.stand_on(self.entries().count().saturating_sub(1));
        Ok(())
    }
}

impl InternalIterator for TableIterator {
    fn valid(&self) -> bool {
        self.valid
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    fn trailer(&self) -> Trailer {
        self.entries().trailer(self.at)
    }

    fn value(&self) -> &[u8] {
        self.entries().value(self.at)
    }

    fn seek_to_first(&mut self) -> Result<()> {
        self.attempt(|this| {
            if this.enter_partition(0)? {
                this.enter_block(0)?;
                this.stand_on(0);
            }
            Ok(())
        })
    }

    fn seek_to_last(&mut self) -> Result<()> {
        self.attempt(TableIterator::enter_last_block)
    }

    fn seek(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.attempt(|this| {
            if !this.enter_block_of(key, trailer)? {
                return Ok(());
            }
            let at = this.entries().lower_bound(key, trailer);
            if at < this.entries().count() {
                this.stand_on(at);
                return Ok(());
            }
            // The key lies between the block's last entry and its separator.
            this.enter_next_block()
        })
    }

    fn seek_before(&mut self, key: &[u8], trailer: Trailer) -> Result<()> {
        self.attempt(|this| {
            if !this.enter_block_of(key, trailer)? {
                return this.enter_last_block();
            }
            match this.entries().lower_bound(key, trailer).checked_sub(1) {
                Some(at) => this.stand_on(at),
                None => return this.enter_previous_block(),
            }
            Ok(())
        })
    }

    fn next(&mut self) -> Result<()> {
        if self.valid && self.at + 1 < self.entries().count() {
            self.step_to(self.at + 1);
            return Ok(());
        }
        self.attempt(TableIterator::enter_next_block)
    }

    fn prev(&mut self) -> Result<()> {
        match self.at.checked_sub(1) {
            Some(at) if self.valid => {
                self.step_to(at);
                Ok(())
            }
            _ => self.attempt(TableIterator::enter_previous_block),
        }
    }
}
