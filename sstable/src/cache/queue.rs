//! A first-in first-out queue of tickets, from which stale ones can be swept a few at a time.
//!
//! A ticket is *stale* when its entry was erased or replaced. Evictions drop stale tickets as they meet them, but a
//! cache that never fills evicts nothing, and would pile them up. So the queue is kept in two parts, `swept` before
//! `unswept`: a step of sweeping moves tickets from one to the other and drops the stale ones among them. When `unswept`
//! is empty, a round is over and the parts swap roles. No step takes long, and the order never changes.

use std::collections::VecDeque;

/// An entry's place in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ticket {
    pub(super) hash: u64,
    /// From one counter for the whole cache, so it tells the order among all shards.
    pub(super) sequence: u64,
}

#[derive(Default)]
pub(super) struct Queue {
    swept: VecDeque<Ticket>,
    unswept: VecDeque<Ticket>,
}

impl Queue {
    pub(super) fn len(&self) -> usize {
        self.swept.len() + self.unswept.len()
    }

    pub(super) fn push(&mut self, ticket: Ticket) {
        self.unswept.push_back(ticket);
    }

    /// Takes the oldest ticket.
    pub(super) fn pop(&mut self) -> Option<Ticket> {
        self.swept.pop_front().or_else(|| self.unswept.pop_front())
    }

    /// Sequence number of the oldest ticket, `u64::MAX` if there is none.
    pub(super) fn oldest(&self) -> u64 {
        self.swept.front().or(self.unswept.front()).map_or(u64::MAX, |ticket| ticket.sequence)
    }

    /// Sweeps a few tickets; true when that ends a round over the whole queue.
    pub(super) fn sweep_step(&mut self, live: impl Fn(Ticket) -> bool) -> bool {
        const STEP_TICKETS: usize = 4;
        for _ in 0..STEP_TICKETS {
            let Some(ticket) = self.unswept.pop_front() else {
                std::mem::swap(&mut self.swept, &mut self.unswept);
                // What was swept out leaves room that is not needed again soon.
                self.unswept.shrink_to(self.unswept.len() * 2);
                return true;
            };
            if live(ticket) {
                self.swept.push_back(ticket);
            }
        }
        false
    }

    /// All tickets, oldest first.
    pub(super) fn into_tickets(self) -> impl Iterator<Item = Ticket> {
        self.swept.into_iter().chain(self.unswept)
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = Ticket> + '_ {
        self.swept.iter().chain(&self.unswept).copied()
    }
}

#[cfg(test)]
mod tests {
    use alluvium_base::random::Random;

    use super::*;

    #[test]
    fn sweeping_drops_the_stale_and_keeps_the_order() {
        let live = |ticket: Ticket| ticket.sequence.is_multiple_of(3);
        let mut random = Random::new(1);
        let mut queue = Queue::default();
        let mut popped = Vec::new();
        for sequence in 0..10_000 {
            queue.push(Ticket { hash: 0, sequence });
            match random.below(10) {
                0 => popped.extend(queue.pop()),
                1..5 => _ = queue.sweep_step(live),
                _ => {}
            }
            assert_eq!(queue.oldest(), queue.iter().next().map_or(u64::MAX, |ticket| ticket.sequence));
        }
        while !queue.sweep_step(live) {}
        while !queue.sweep_step(live) {}
        assert!(queue.iter().all(live) && queue.len() == queue.iter().count());
        popped.extend(std::iter::from_fn(|| queue.pop()));
        assert!(popped.is_sorted_by_key(|ticket| ticket.sequence));
        let kept: Vec<_> = popped.into_iter().filter(|&ticket| live(ticket)).collect();
        assert_eq!(kept.len(), 10_000usize.div_ceil(3), "no live ticket is lost");
    }
}
