//! The write side: queues of cached blocks, in shards by hash, each under a mutex of its own.
//!
//! Lookups never come here. A shard's mutex is held while one block is put into a queue or one victim is chosen, never
//! across I/O, never together with another shard's. An entry's [`Place`](super::segment::Place) and its ticket in a
//! queue share a sequence number; a ticket whose entry is gone or has moved on is *stale* and skipped.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_base::clock::Clock;
use alluvium_base::sync::{Mutex, MutexGuard, RwLock};

use super::ghost::Ghost;
use super::sizing::SHARDS_MAX;

/// The two queues of S3-FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueKind {
    /// New data blocks, until they are used again or evicted.
    Probation,
    /// Blocks that have proved useful, and index and filter blocks.
    Main,
}

/// An entry's place in a queue.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    pub(super) hash: u64,
    /// From one counter for the whole cache, so it tells the order among all shards.
    pub(super) sequence: u64,
}

/// Oldest first.
#[derive(Default)]
pub(super) struct Queues {
    probation: VecDeque<Ticket>,
    main: VecDeque<Ticket>,
    /// At this many tickets the stale ones are swept out.
    sweep_at: usize,
}

impl Queues {
    pub(super) fn queue(&mut self, kind: QueueKind) -> &mut VecDeque<Ticket> {
        match kind {
            QueueKind::Probation => &mut self.probation,
            QueueKind::Main => &mut self.main,
        }
    }

    /// Erased blocks leave stale tickets; in a cache that never fills nothing else would ever remove them.
    pub(super) fn sweep_if_long(&mut self, live: impl Fn(&Ticket) -> bool) {
        const SLACK: usize = 1024;
        if self.probation.len() + self.main.len() < self.sweep_at.max(SLACK) {
            return;
        }
        for queue in [&mut self.probation, &mut self.main] {
            queue.retain(&live);
            queue.shrink_to(queue.len() * 2);
        }
        self.sweep_at = (self.probation.len() + self.main.len()) * 2 + SLACK;
    }
}

/// On a cache line of its own, so that threads in different shards do not disturb each other.
#[repr(align(64))]
#[derive(Default)]
pub(super) struct Shard {
    queues: Mutex<Queues>,
    /// Sequence number of the oldest ticket of each queue, `u64::MAX` if it is empty. A hint for choosing a shard.
    oldest_probation: AtomicU64,
    oldest_main: AtomicU64,
    pub(super) lock_waits: AtomicU64,
    pub(super) lock_wait_nanos: AtomicU64,
}

impl Shard {
    pub(super) fn new(queues: Queues) -> Shard {
        let shard = Shard { queues: Mutex::new(queues), ..Shard::default() };
        shard.publish(&shard.queues.lock());
        shard
    }

    /// Locks the queues; only a wait costs a look at the clock.
    pub(super) fn lock(&self, clock: &dyn Clock) -> MutexGuard<'_, Queues> {
        if let Some(queues) = self.queues.try_lock() {
            return queues;
        }
        let start = clock.monotonic_nanos();
        let queues = self.queues.lock();
        self.lock_waits.fetch_add(1, Ordering::Relaxed);
        self.lock_wait_nanos.fetch_add(clock.monotonic_nanos().saturating_sub(start), Ordering::Relaxed);
        queues
    }

    /// Tells the others how old this shard's oldest blocks are. To be called before the lock is released.
    pub(super) fn publish(&self, queues: &Queues) {
        let oldest = |queue: &VecDeque<Ticket>| queue.front().map_or(u64::MAX, |ticket| ticket.sequence);
        self.oldest_probation.store(oldest(&queues.probation), Ordering::Relaxed);
        self.oldest_main.store(oldest(&queues.main), Ordering::Relaxed);
    }

    pub(super) fn oldest(&self, kind: QueueKind) -> u64 {
        match kind {
            QueueKind::Probation => self.oldest_probation.load(Ordering::Relaxed),
            QueueKind::Main => self.oldest_main.load(Ordering::Relaxed),
        }
    }

    fn into_queues(self) -> Queues {
        self.queues.into_inner()
    }
}

/// The shards. Whoever inserts or evicts holds the lock around it shared; changing the number of shards takes it
/// exclusively. Lookups do not know it.
pub(super) struct Topology {
    pub(super) shards: Box<[Shard]>,
    /// Entries above 1/256 of the capacity, so that a few large values do not unbalance the shards.
    pub(super) large: Shard,
    pub(super) ghost: Ghost,
}

impl Topology {
    pub(super) fn new(shards: usize, ghost_entries: usize) -> Topology {
        Topology {
            shards: (0..shards).map(|_| Shard::new(Queues::default())).collect(),
            large: Shard::new(Queues::default()),
            ghost: Ghost::new(ghost_entries),
        }
    }

    /// The number of the shard that a hash belongs to: its top bits.
    pub(super) fn shard_of(&self, hash: u64) -> usize {
        shard_of(hash, self.shards.len())
    }

    /// The shard with this number; the one after the last is that of the large entries.
    pub(super) fn nth(&self, number: usize) -> &Shard {
        self.shards.get(number).unwrap_or(&self.large)
    }

    /// Distributes the same blocks over another number of shards (a power of two), keeping their order.
    pub(super) fn reshard(&mut self, shards: usize) {
        let old = std::mem::take(&mut self.shards);
        let mut all = Queues::default();
        for shard in old {
            let mut queues = shard.into_queues();
            all.probation.append(&mut queues.probation);
            all.main.append(&mut queues.main);
        }
        let mut new: Vec<Queues> = (0..shards).map(|_| Queues::default()).collect();
        for kind in [QueueKind::Probation, QueueKind::Main] {
            let tickets = all.queue(kind).make_contiguous();
            tickets.sort_by_key(|ticket| ticket.sequence);
            for ticket in tickets {
                new[shard_of(ticket.hash, shards)].queue(kind).push_back(*ticket);
            }
        }
        self.shards = new.into_iter().map(Shard::new).collect();
    }
}

/// Shared for changes of one block, exclusive for changes of the shards.
pub(super) type SharedTopology = RwLock<Topology>;

fn shard_of(hash: u64, shards: usize) -> usize {
    debug_assert!(shards.is_power_of_two() && shards <= SHARDS_MAX);
    // Rotating instead of shifting: a shift by 64 would overflow with one shard.
    hash.rotate_left(shards.trailing_zeros()) as usize & (shards - 1)
}
