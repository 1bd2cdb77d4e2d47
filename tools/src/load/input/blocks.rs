//! Unpacking on a thread of its own, so that it runs beside cutting and encoding.
//!
//! Blocks go round: the unpacking thread fills one while the reader of rows empties another, and empty ones come
//! back. Their number bounds the memory.

use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::thread::{Scope, ScopedJoinHandle};

use crate::load::error::Result;
use crate::load::input::open::OpenInput;

/// Size of a block in bytes.
pub const BLOCK_BYTES: usize = 256 << 10;

/// Blocks in flight: one being filled, one being emptied, two in between.
const BLOCKS: usize = 4;

/// A source of consecutive blocks of unpacked bytes.
pub trait BlockSource {
    /// Takes back an emptied block and gives the next one; an empty block at the end.
    ///
    /// # Errors
    /// Those of the input.
    fn next_block(&mut self, emptied: Vec<u8>) -> Result<Vec<u8>>;
}

/// Blocks unpacked by another thread.
#[derive(Debug)]
pub struct UnpackedBlocks {
    full: Receiver<Result<Vec<u8>>>,
    emptied: Sender<Vec<u8>>,
}

impl UnpackedBlocks {
    /// Starts unpacking `input` on a thread of `scope`. The thread ends with the input, or when the blocks are dropped.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        input: OpenInput,
    ) -> (UnpackedBlocks, ScopedJoinHandle<'scope, ()>) {
        let (full_sender, full) = sync_channel(BLOCKS);
        let (emptied, emptied_receiver) = channel();
        for _ in 0..BLOCKS {
            // Cannot fail: the receiver is in this function.
            let _ = emptied.send(Vec::new());
        }
        let thread = scope.spawn(move || unpack(input, &full_sender, &emptied_receiver));
        (UnpackedBlocks { full, emptied }, thread)
    }
}

fn unpack(mut input: OpenInput, full: &SyncSender<Result<Vec<u8>>>, emptied: &Receiver<Vec<u8>>) {
    while let Ok(mut block) = emptied.recv() {
        block.resize(BLOCK_BYTES, 0);
        let outcome = input.read(&mut block).map(|len| {
            block.truncate(len);
            block
        });
        let last = outcome.as_ref().map_or(true, Vec::is_empty);
        // A failed send means that nobody reads any more.
        if full.send(outcome).is_err() || last {
            return;
        }
    }
}

impl BlockSource for UnpackedBlocks {
    fn next_block(&mut self, emptied: Vec<u8>) -> Result<Vec<u8>> {
        // The thread may have ended with the input: then nobody needs the block.
        let _ = self.emptied.send(emptied);
        self.full.recv().unwrap_or_else(|_| Ok(Vec::new()))
    }
}

/// The blocks of a sample that is already in memory: all of it, then the end.
#[derive(Debug)]
pub struct SampleBlocks(Vec<u8>);

impl SampleBlocks {
    /// Yields `bytes` as one block.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> SampleBlocks {
        SampleBlocks(bytes)
    }
}

impl BlockSource for SampleBlocks {
    fn next_block(&mut self, _emptied: Vec<u8>) -> Result<Vec<u8>> {
        Ok(std::mem::take(&mut self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::load::input::open::InputName;

    fn open(bytes: Vec<u8>) -> OpenInput {
        OpenInput::from_reader(&InputName::new("x.csv"), Box::new(Cursor::new(bytes)), None).unwrap()
    }

    #[test]
    fn blocks_join_to_the_input() {
        let bytes: Vec<u8> = (0..BLOCK_BYTES * 7 + 13).map(|at| (at / 977) as u8).collect();
        let mut got = Vec::new();
        std::thread::scope(|scope| {
            let (mut blocks, _) = UnpackedBlocks::start(scope, open(bytes.clone()));
            let mut block = Vec::new();
            loop {
                block = blocks.next_block(block).unwrap();
                if block.is_empty() {
                    break;
                }
                got.extend_from_slice(&block);
            }
        });
        assert!(got == bytes);
    }

    #[test]
    fn dropping_the_blocks_ends_the_thread() {
        std::thread::scope(|scope| {
            let (blocks, thread) = UnpackedBlocks::start(scope, open(vec![b'x'; BLOCK_BYTES * 50]));
            drop(blocks);
            thread.join().unwrap();
        });
    }
}
