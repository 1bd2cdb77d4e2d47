//! The simulator: a whole database on one thread, on an in-memory disk that fails and crashes, beside an oracle.
//!
//! A *history* is a list of [`Step`]s, each a kind and a seed of its own: a step draws all of its details from that seed and
//! from the state that it meets, so steps can be taken out without changing what the others mean. That is what lets
//! [`reduce`] shorten a failing history. The scheduling of background work follows from one more seed.
//!
//! The oracle ([`state`]) is outside of the database. It knows every commit and what the caller was told about it, and
//! demands after a crash that what is found is the state after some number of commits: at least those that were
//! acknowledged (as durable, if the machine lost power). So it finds lost commits, holes, halves of batches, and index
//! entries without rows. While the database runs, every answer must be that of the oracle.
//!
//! Crashes come at any change that the process makes to its files, stores into mappings included, in the midst of writes, and
//! again during recovery. Faults break calls of one kind for a while; then every error must follow from the fault, and once
//! the disk is whole, writing must resume by itself.
#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a test harness fails where it is not as it should be"
)]

mod loaded;
mod rows;
pub mod state;
mod views;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use alluvium::base::random::Random;
use alluvium::base::sync::Simulation;
use alluvium::{Durability, Error, WriteBatch};

use rows::Expected;
use state::{Change, Crash, State};
use views::View;
use world::World;

/// What a step does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Commits a batch of puts, deletes and range deletes.
    Write,
    /// Commits a batch of row operations.
    WriteRows,
    /// Gets a key, now and at a snapshot.
    Get,
    /// Goes through a range both ways.
    Scan,
    /// Reads a row or scans an index.
    ReadRows,
    /// Takes a snapshot or drops one.
    Snapshot,
    /// Opens an iterator, moves one, or drops one.
    View,
    /// Flushes.
    Flush,
    /// Compacts everything.
    Compact,
    /// Lets background work run.
    Background,
    /// Lets time pass.
    Time,
    /// Bulk-loads a keyspace.
    Load,
    /// Drops a loaded keyspace.
    Drop,
    /// Compares everything.
    Check,
    /// Closes and opens again, with other options.
    Reopen,
    /// Lets the process or the machine die at one of the next changes of files.
    Crash,
    /// Breaks the disk.
    Break,
    /// Repairs it.
    Heal,
}

/// One step of a history.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What it does.
    pub kind: Kind,
    /// Where its details come from.
    pub seed: u64,
}

/// What may happen in a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Neither faults nor crashes.
    Fair,
    /// Everything.
    Foul,
}

/// The steps of a seed.
#[must_use]
pub fn plan(seed: u64, steps: usize, weather: Weather) -> Vec<Step> {
    const KINDS: [(Kind, u64); 18] = [
        (Kind::Write, 270),
        (Kind::WriteRows, 200),
        (Kind::Get, 90),
        (Kind::Scan, 50),
        (Kind::ReadRows, 90),
        (Kind::Snapshot, 25),
        (Kind::View, 40),
        (Kind::Flush, 15),
        (Kind::Compact, 4),
        (Kind::Background, 90),
        (Kind::Time, 20),
        (Kind::Load, 3),
        (Kind::Drop, 2),
        (Kind::Check, 6),
        (Kind::Reopen, 8),
        (Kind::Crash, 16),
        (Kind::Break, 10),
        (Kind::Heal, 20),
    ];
    let allowed = |kind| weather == Weather::Foul || !matches!(kind, Kind::Crash | Kind::Break | Kind::Heal);
    let total: u64 = KINDS.iter().filter(|(kind, _)| allowed(*kind)).map(|(_, weight)| weight).sum();
    let mut random = Random::new(seed);
    let mut draw = || {
        let mut number = random.below(total);
        for (kind, weight) in KINDS.into_iter().filter(|(kind, _)| allowed(*kind)) {
            if number < weight {
                return Step { kind, seed: random.next_u64() };
            }
            number -= weight;
        }
        unreachable!("the weights add up")
    };
    (0..steps).map(|_| draw()).collect()
}

/// What a history came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Everything that the database answered, folded into one number.
    pub transcript: u64,
    /// Every choice of the scheduler since the last open, folded into one number.
    pub trace: u64,
    /// Crashes that happened.
    pub crashes: u64,
    /// Errors that reached the caller.
    pub errors: u64,
}

/// Runs a history. `seed` drives the scheduler, `options_seed` the options of every open.
///
/// # Panics
/// If the database does anything that it must not.
#[must_use]
pub fn run(seed: u64, options_seed: u64, steps: &[Step]) -> Outcome {
    let mut world = World::new(seed, options_seed);
    for step in steps {
        let mut random = Random::new(step.seed);
        if world.trace {
            eprintln!("{step:?}");
        }
        world.step(step.kind, &mut random);
        world.recover_if_crashed(&mut random);
    }
    world.heal_disk();
    // A crash that is still armed may come at any time; its recovery is the last thing to see.
    let mut random = Random::new(seed);
    world.recover_if_crashed(&mut random);
    world.faults.remove_all();
    world.check_all();
    let outcome = Outcome {
        transcript: world.transcript,
        trace: world.opened().executor.trace(),
        crashes: world.crashes,
        errors: world.errors,
    };
    world.views.clear();
    world.snapshots.clear();
    world.open = None;
    outcome
}

/// True if the history fails.
#[must_use]
pub fn fails(seed: u64, options_seed: u64, steps: &[Step]) -> bool {
    catch_unwind(AssertUnwindSafe(|| run(seed, options_seed, steps))).is_err()
}

/// Takes steps out of a failing history as long as it still fails: halves first, then single steps.
#[must_use]
pub fn reduce(seed: u64, options_seed: u64, steps: &[Step]) -> Vec<Step> {
    let mut steps = steps.to_vec();
    let mut size = steps.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < steps.len() {
            let end = (at + size).min(steps.len());
            let shorter: Vec<Step> = steps[..at].iter().chain(&steps[end..]).copied().collect();
            if fails(seed, options_seed, &shorter) {
                steps = shorter;
            } else {
                at = end;
            }
        }
        size = if size == 1 { 0 } else { size.div_ceil(2) };
    }
    steps
}

fn random_key(random: &mut Random) -> Vec<u8> {
    match random.below(10) {
        0 => Vec::new(),
        1 => vec![0; random.index(4)],
        2 => vec![0xff; random.index(3)],
        _ => format!("key{:03}", random.below(150)).into_bytes(),
    }
}

fn random_value(random: &mut Random) -> Vec<u8> {
    let len = match random.below(30) {
        0 => 0,
        1 => 3000,
        2 => 70_000,
        _ => random.index(100),
    };
    let mut value = vec![0; len];
    random.fill(&mut value);
    value
}

fn random_durability(random: &mut Random) -> Durability {
    if random.one_in(4) { Durability::Sync } else { Durability::Buffered }
}

impl World {
    fn step(&mut self, kind: Kind, random: &mut Random) {
        match kind {
            Kind::Write => self.write(random),
            Kind::WriteRows => self.write_rows(random),
            Kind::Get => self.look(|world| world.get(random)),
            Kind::Scan => self.look(|world| world.scan(random)),
            Kind::ReadRows => self.look(|world| world.read_rows(random)),
            Kind::Snapshot => self.snapshot(random),
            Kind::View => self.view(random),
            Kind::Flush => self.look(|world| world.opened().db.flush()),
            Kind::Compact => self.look(|world| world.opened().db.compact(None)),
            Kind::Background => _ = self.opened().executor.run(random.index(20)),
            Kind::Time => {
                self.opened().executor.advance(Some(Duration::from_millis(random.below(2000))));
            }
            Kind::Load | Kind::Drop => self.load_or_drop(kind, random),
            Kind::Check => self.check_all(),
            Kind::Reopen => self.reopen(),
            Kind::Crash => {
                let crash = if random.one_in(2) { Crash::Kill } else { Crash::PowerLoss };
                let bytes = random.one_in(2).then(|| random.index(6000));
                let within = [8, 80, 400][random.index(3)];
                let number = random.below(within);
                self.arm_crash(crash, number, bytes, random.next_u64());
            }
            Kind::Break => self.break_disk(random),
            Kind::Heal => self.heal_disk(),
        }
    }

    /// A step that changes nothing of what should be there. It may fail while the disk is broken.
    fn look(&mut self, step: impl FnOnce(&mut World) -> Result<(), Error>) {
        if let Err(error) = step(self) {
            self.accept(&error);
        }
    }

    fn write(&mut self, random: &mut Random) {
        let mut batch = WriteBatch::new();
        let mut after = State { maps: self.history.now.maps.clone(), ..State::default() };
        let mut changes = Vec::new();
        for _ in 0..=random.index(4) {
            let which = random.index(2);
            let keyspace = &self.opened().keyspaces[which];
            let key = random_key(random);
            let mut made = Vec::new();
            match random.below(12) {
                0..7 => {
                    let value = random_value(random);
                    batch.put(keyspace, &key, &value).expect("put");
                    made.push(Change::Key(which, key, Some(value)));
                }
                7..11 => {
                    batch.delete(keyspace, &key).expect("delete");
                    made.push(Change::Key(which, key, None));
                }
                _ => {
                    let end = random_key(random);
                    batch.delete_range(keyspace, key.as_slice()..end.as_slice()).expect("delete range");
                    let gone = after.maps[which].keys().filter(|k| **k >= key && **k < end);
                    made.extend(gone.map(|key| Change::Key(which, key.clone(), None)));
                }
            }
            made.iter().for_each(|change| after.apply(change));
            changes.append(&mut made);
        }
        let durability = random_durability(random);
        let written = self.opened().db.write(&batch, durability);
        self.note(u64::from(written.is_ok()));
        self.committed(written, changes, durability);
    }

    fn write_rows(&mut self, random: &mut Random) {
        let open = self.open.as_ref().expect("open");
        let filled = open.db.batch().and_then(|mut batch| {
            let (changes, expected) = rows::fill(&mut batch, &open.table, &self.history.now, random)?;
            Ok((batch, changes, expected))
        });
        let (batch, changes, expected) = match filled {
            Ok(filled) => filled,
            Err(error) => return self.accept(&error),
        };
        let durability = random_durability(random);
        let result = batch.commit(durability);
        let outcome = match &result {
            Ok(()) => Some(Expected::Success),
            Err(error) => Expected::of(error),
        };
        self.note(outcome.map_or(99, |outcome| outcome as u64));
        match outcome {
            Some(outcome) if outcome != Expected::Success => {
                if !self.has_crashed() {
                    assert_eq!(outcome, expected, "a batch of rows: {result:?}");
                }
            }
            _ => {
                if result.is_ok() && !self.has_crashed() {
                    assert_eq!(expected, Expected::Success, "a batch of rows went through");
                }
                // A batch that must not go through has not changed anything, whatever else went wrong.
                let changes = if expected == Expected::Success { changes } else { Vec::new() };
                self.committed(result, changes, durability);
            }
        }
    }

    fn get(&mut self, random: &mut Random) -> Result<(), Error> {
        let (which, key) = (random.index(2), random_key(random));
        let got = self.opened().keyspaces[which].get_owned(&key)?;
        assert_eq!(got.as_ref(), self.history.now.maps[which].get(&key), "get {key:?}");
        self.note(got.map_or(1, |value| value.len() as u64 + 2));
        if !self.snapshots.is_empty() {
            let (snapshot, state) = &self.snapshots[random.index(self.snapshots.len())];
            let got = self.opened().keyspaces[which].get_at(snapshot, &key)?;
            let expected = state.maps[which].get(&key).map(Vec::as_slice);
            assert_eq!(got.as_deref(), expected, "get {key:?} at a snapshot");
        }
        Ok(())
    }

    fn scan(&mut self, random: &mut Random) -> Result<(), Error> {
        let which = random.index(2);
        let (mut start, mut end) = (random_key(random), random_key(random));
        if start > end {
            std::mem::swap(&mut start, &mut end);
        }
        let keyspace = &self.opened().keyspaces[which];
        let (mut iter, state) = if self.snapshots.is_empty() || random.one_in(2) {
            (keyspace.range(start.as_slice()..end.as_slice())?, &self.history.now)
        } else {
            let (snapshot, state) = &self.snapshots[random.index(self.snapshots.len())];
            (keyspace.range_at(snapshot, start.as_slice()..end.as_slice())?, state)
        };
        let expected: Vec<(&[u8], &[u8])> = state.maps[which]
            .range(start.clone()..end.clone())
            .map(|(key, value)| (key.as_slice(), value.as_slice()))
            .collect();
        let mut count = 0;
        for (key, value) in &expected {
            assert!(iter.next()?, "a range ends after {count} of {} entries", expected.len());
            assert_eq!((iter.key(), iter.value()), (*key, *value));
            count += 1;
        }
        assert!(!iter.next()?, "a range goes on: {:?}", iter.key());
        for (key, value) in expected.iter().rev() {
            assert!(iter.prev()?, "a range ends early backwards");
            assert_eq!((iter.key(), iter.value()), (*key, *value));
        }
        assert!(!iter.prev()?, "a range goes on backwards: {:?}", iter.key());
        drop(iter);
        self.note(count);
        Ok(())
    }

    fn read_rows(&mut self, random: &mut Random) -> Result<(), Error> {
        let table = &self.opened().table;
        if self.snapshots.is_empty() || random.one_in(2) {
            rows::check(table, &self.history.now.rows, None, random)
        } else {
            let (snapshot, state) = &self.snapshots[random.index(self.snapshots.len())];
            rows::check(table, &state.rows, Some(snapshot), random)
        }
    }

    fn snapshot(&mut self, random: &mut Random) {
        if self.snapshots.len() < 4 {
            let taken = self.opened().db.snapshot();
            match taken {
                Ok(snapshot) => self.snapshots.push((snapshot, self.history.now.clone())),
                Err(error) => self.accept(&error),
            }
        } else {
            let index = random.index(self.snapshots.len());
            self.snapshots.swap_remove(index);
        }
    }

    fn view(&mut self, random: &mut Random) {
        if self.views.is_empty() || (self.views.len() < 3 && random.one_in(3)) {
            let which = random.index(2);
            let view = View::new(&self.opened().keyspaces[which], &self.history.now.maps[which]);
            match view {
                Ok(view) => self.views.push(view),
                Err(error) => return self.accept(&error),
            }
        }
        let index = random.index(self.views.len());
        let mut keys = Random::new(random.next_u64());
        let walked = self.views[index].walk(random, &mut || random_key(&mut keys));
        if let Err(error) = &walked {
            self.accept(error);
        }
        if walked.is_err() || random.one_in(8) {
            self.views.swap_remove(index);
        }
    }

    fn load_or_drop(&mut self, kind: Kind, random: &mut Random) {
        let before = self.loaded.copy();
        let db = self.opened().db.clone();
        let result =
            if kind == Kind::Load { self.loaded.load(&db) } else { self.loaded.drop_one(&db, random) };
        drop(db);
        if self.has_crashed() {
            self.loaded.doubt_last(&before);
        } else if let Err(error) = result {
            self.accept(&error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_means_the_same_when_others_are_gone() {
        let steps = plan(1, 100, Weather::Foul);
        let longer = plan(1, 200, Weather::Foul);
        assert!(steps.iter().zip(&longer).all(|(a, b)| a.kind == b.kind && a.seed == b.seed));
        assert!(plan(2, 500, Weather::Fair).iter().all(|step| step.kind != Kind::Crash));
    }
}
