//! The write side: queues of cached blocks, in shards by hash, each under a mutex of its own.
//!
//! Lookups never come here. A shard's mutex is held while a ticket is put into a queue or taken out, some ten
//! nanoseconds: never while an entry is looked at (a cache miss of the processor), a block is dropped, or I/O is done, and
//! never together with another shard's. Whoever has taken a ticket out alone decides what becomes of its entry.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use alluvium_base::clock::Clock;
use alluvium_base::sync::{Mutex, MutexGuard, RwLock};

use super::ghost::Ghost;
use super::queue::{Queue, Ticket};
use super::sizing::SHARDS_MAX;

/// The two queues of S3-FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueKind {
    /// New data blocks, until they are used again or evicted.
    Probation,
    /// Blocks that have proved useful, and index and filter blocks.
    Main,
}

#[derive(Default)]
pub(super) struct Queues {
    probation: Queue,
    main: Queue,
}

impl Queues {
    pub(super) fn queue(&mut self, kind: QueueKind) -> &mut Queue {
        match kind {
            QueueKind::Probation => &mut self.probation,
            QueueKind::Main => &mut self.main,
        }
    }
}

/// On cache lines of its own, so that threads in different shards do not disturb each other.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct Shard {
    queues: Mutex<Queues>,
    /// Sequence number of the oldest ticket of each queue, `u64::MAX` if it is empty. A hint for choosing a shard.
    oldest_probation: AtomicU64,
    oldest_main: AtomicU64,
    /// Tickets whose entries were erased or replaced, about.
    stale: AtomicI64,
    pub(super) lock_waits: AtomicU64,
    pub(super) lock_wait_nanos: AtomicU64,
}

impl Shard {
    fn new(queues: Queues) -> Shard {
        let shard = Shard { queues: Mutex::new(queues), ..Shard::default() };
        shard.publish(&shard.queues.lock());
        shard
    }

    /// Puts a ticket into a queue.
    pub(super) fn push(
        &self,
        clock: &dyn Clock,
        kind: QueueKind,
        ticket: Ticket,
        live: impl Fn(Ticket) -> bool,
    ) {
        let mut queues = self.lock(clock);
        queues.queue(kind).push(ticket);
        if self.has_many_stale(&queues) && queues.queue(kind).sweep_step(live) {
            self.stale.store(0, Ordering::Relaxed);
        }
        self.publish(&queues);
    }

    /// Takes the oldest ticket out of a queue; first puts one that was let off into the main queue.
    pub(super) fn pop(
        &self,
        clock: &dyn Clock,
        kind: QueueKind,
        reprieved: Option<Ticket>,
    ) -> Option<Ticket> {
        let mut queues = self.lock(clock);
        reprieved.into_iter().for_each(|ticket| queues.main.push(ticket));
        let ticket = queues.queue(kind).pop();
        self.publish(&queues);
        ticket
    }

    /// Notes that a ticket became stale, or with -1 that a stale one was met and is gone.
    pub(super) fn count_stale(&self, change: i64) {
        self.stale.fetch_add(change, Ordering::Relaxed);
    }

    pub(super) fn oldest(&self, kind: QueueKind) -> u64 {
        match kind {
            QueueKind::Probation => self.oldest_probation.load(Ordering::Relaxed),
            QueueKind::Main => self.oldest_main.load(Ordering::Relaxed),
        }
    }

    fn has_many_stale(&self, queues: &Queues) -> bool {
        const STALE_MIN: i64 = 1024;
        let stale = self.stale.load(Ordering::Relaxed);
        stale > STALE_MIN && stale > (queues.probation.len() + queues.main.len()) as i64 / 4
    }

    /// Locks the queues; only a wait costs a look at the clock.
    fn lock(&self, clock: &dyn Clock) -> MutexGuard<'_, Queues> {
        if let Some(queues) = self.queues.try_lock() {
            return queues;
        }
        let start = clock.monotonic_nanos();
        let queues = self.queues.lock();
        self.lock_waits.fetch_add(1, Ordering::Relaxed);
        self.lock_wait_nanos.fetch_add(clock.monotonic_nanos().saturating_sub(start), Ordering::Relaxed);
        queues
    }

    /// Tells the others how old the oldest blocks here are. Called before the lock is released.
    fn publish(&self, queues: &Queues) {
        self.oldest_probation.store(queues.probation.oldest(), Ordering::Relaxed);
        self.oldest_main.store(queues.main.oldest(), Ordering::Relaxed);
    }

    /// The tickets of both queues, to count them.
    #[cfg(test)]
    pub(super) fn tickets(&self) -> Vec<Ticket> {
        let queues = self.queues.lock();
        queues.probation.iter().chain(queues.main.iter()).collect()
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

    /// The number of the shard of an entry: the top bits of its hash, or the number after the last if it is large.
    pub(super) fn number(&self, hash: u64, large: bool) -> usize {
        if large { self.shards.len() } else { shard_of(hash, self.shards.len()) }
    }

    /// The shard with this number.
    pub(super) fn nth(&self, number: usize) -> &Shard {
        self.shards.get(number).unwrap_or(&self.large)
    }

    /// Distributes the same blocks over another number of shards (a power of two), keeping their order.
    pub(super) fn reshard(&mut self, shards: usize) {
        let mut new: Vec<Queues> = (0..shards).map(|_| Queues::default()).collect();
        let (mut probation, mut main) = (Vec::new(), Vec::new());
        for shard in std::mem::take(&mut self.shards) {
            let queues = shard.queues.into_inner();
            probation.extend(queues.probation.into_tickets());
            main.extend(queues.main.into_tickets());
        }
        for (kind, mut tickets) in [(QueueKind::Probation, probation), (QueueKind::Main, main)] {
            tickets.sort_by_key(|ticket| ticket.sequence);
            for ticket in tickets {
                new[shard_of(ticket.hash, shards)].queue(kind).push(ticket);
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
