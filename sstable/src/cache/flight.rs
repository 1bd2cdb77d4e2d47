//! Single flight: while one thread loads a block, others that want it wait for that load instead of repeating it.
//!
//! 1. A miss *boards*: if nobody loads the key, the caller becomes its loader and gets a [`Ticket`]; otherwise it waits
//!    for that flight to land and takes its outcome.
//! 2. The loader reads without any lock, puts the block into the cache, then lands the flight. So a newcomer finds the
//!    block in the cache or the flight in the air.
//! 3. Dropping the ticket unlanded (a panic in the loader) abandons the flight: its waiters try again themselves.
//!
//! A failed load fails those who waited for it if another read would have failed too (I/O error, damage). Any other
//! error belongs to the loader alone (its deadline, its cancellation); the waiters try again.
//!
//! A flight of the *same thread* is never waited for: under simulation every job shares one thread, so the loader
//! stands further down on this very stack and could not go on; the caller then loads the block itself.

use std::sync::Arc;
use std::thread::ThreadId;

use alluvium_base::clock::Clock;
use alluvium_base::sync::{Mutex, WaitPoint, WaitReason, WaitStatistics};
use alluvium_base::{Error, ErrorKind};

use super::key::{BlockKey, FillPolicy};

enum Outcome<V> {
    Loading,
    Loaded(Arc<V>),
    Failed(Error),
    Abandoned,
}

struct Flight<V> {
    number: u64,
    key: BlockKey,
    loader: ThreadId,
    waiters: usize,
    /// A waiter wants the block to stay in the cache, even if its loader does not.
    fill_wanted: bool,
    outcome: Outcome<V>,
}

struct Airspace<V> {
    flights: Vec<Flight<V>>,
    next_number: u64,
}

#[repr(align(128))]
struct Lane<V> {
    airspace: Mutex<Airspace<V>>,
    landed: WaitPoint,
}

/// Loads in progress, in lanes by hash.
pub(super) struct Flights<V> {
    lanes: Box<[Lane<V>]>,
}

/// What boarding led to.
pub(super) enum Boarded<'a, V> {
    /// The caller is the loader.
    Load(Ticket<'a, V>),
    /// This very thread is loading the block already: load it without a flight.
    LoadAlone,
    /// Another thread loaded it.
    Loaded(Arc<V>),
    /// Another thread failed, and so would this one.
    Failed(Error),
    /// Another thread gave up; look again.
    Retry,
}

impl<V> Flights<V> {
    pub(super) fn new(cpus: usize, clock: &Arc<dyn Clock>, waits: &Arc<WaitStatistics>) -> Flights<V> {
        let lane = |_| Lane {
            airspace: Mutex::new(Airspace { flights: Vec::new(), next_number: 0 }),
            landed: WaitPoint::new(WaitReason::CacheFill, Arc::clone(clock), Arc::clone(waits)),
        };
        Flights { lanes: (0..(cpus * 4).next_power_of_two().clamp(8, 256)).map(lane).collect() }
    }

    pub(super) fn board(&self, hash: u64, key: BlockKey, fill: FillPolicy) -> Boarded<'_, V> {
        let lane = &self.lanes[(hash >> 48) as usize & (self.lanes.len() - 1)];
        let me = std::thread::current().id();
        let mut airspace = lane.airspace.lock();
        let in_the_air =
            |flight: &&mut Flight<V>| flight.key == key && matches!(flight.outcome, Outcome::Loading);
        let Some(flight) = airspace.flights.iter_mut().find(in_the_air) else {
            let number = airspace.next_number;
            airspace.next_number += 1;
            airspace.flights.push(Flight {
                number,
                key,
                loader: me,
                waiters: 0,
                fill_wanted: false,
                outcome: Outcome::Loading,
            });
            return Boarded::Load(Ticket { lane, number });
        };
        if flight.loader == me {
            return Boarded::LoadAlone;
        }
        let number = flight.number;
        flight.waiters += 1;
        flight.fill_wanted |= fill == FillPolicy::Fill;
        lane.landed.wait_while(&mut airspace, |airspace| {
            airspace.find(number).is_some_and(|flight| matches!(flight.outcome, Outcome::Loading))
        });
        airspace.disembark(number)
    }

    /// Loads in progress.
    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        self.lanes.iter().map(|lane| lane.airspace.lock().flights.len()).sum()
    }

    /// Threads waiting for one.
    #[cfg(test)]
    pub(super) fn waiters(&self) -> usize {
        let waiters = |lane: &Lane<V>| -> usize {
            lane.airspace.lock().flights.iter().map(|flight| flight.waiters).sum()
        };
        self.lanes.iter().map(waiters).sum()
    }
}

impl<V> Airspace<V> {
    fn find(&mut self, number: u64) -> Option<&mut Flight<V>> {
        self.flights.iter_mut().find(|flight| flight.number == number)
    }

    /// One waiter takes the outcome; the last removes the flight.
    fn disembark<'a>(&mut self, number: u64) -> Boarded<'a, V> {
        let Some(flight) = self.find(number) else { return Boarded::Retry };
        let outcome = match &flight.outcome {
            Outcome::Loaded(value) => Boarded::Loaded(Arc::clone(value)),
            Outcome::Failed(error) => Boarded::Failed(error.clone()),
            Outcome::Loading | Outcome::Abandoned => Boarded::Retry,
        };
        flight.waiters -= 1;
        if flight.waiters == 0 {
            self.flights.retain(|flight| flight.number != number);
        }
        outcome
    }
}

/// The duty to land a flight; dropping it abandons the flight.
pub(super) struct Ticket<'a, V> {
    lane: &'a Lane<V>,
    number: u64,
}

impl<V> Ticket<'_, V> {
    /// Does a waiter want the block to stay in the cache?
    pub(super) fn fill_wanted(&self) -> bool {
        self.lane.airspace.lock().find(self.number).is_some_and(|flight| flight.fill_wanted)
    }

    pub(super) fn land(self, result: Result<&Arc<V>, &Error>) {
        self.finish(match result {
            Ok(value) => Outcome::Loaded(Arc::clone(value)),
            Err(error) if fails_everyone(error) => Outcome::Failed(error.clone()),
            Err(_) => Outcome::Abandoned,
        });
    }

    fn finish(&self, outcome: Outcome<V>) {
        let mut airspace = self.lane.airspace.lock();
        let Some(flight) = airspace.find(self.number) else { return };
        if !matches!(flight.outcome, Outcome::Loading) {
            return;
        }
        if flight.waiters == 0 {
            airspace.flights.retain(|flight| flight.number != self.number);
        } else {
            flight.outcome = outcome;
            self.lane.landed.notify_all();
        }
    }
}

impl<V> Drop for Ticket<'_, V> {
    fn drop(&mut self) {
        self.finish(Outcome::Abandoned);
    }
}

fn fails_everyone(error: &Error) -> bool {
    error.is_corrupt() || matches!(error.kind(), ErrorKind::Io { .. })
}
