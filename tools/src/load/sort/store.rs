//! Where sealed runs gather, and what is spilled when there are too many.

use std::path::PathBuf;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use alluvium_base::Result;

use crate::load::sort::budget::Budget;
use crate::load::sort::buffer::MemoryRun;
use crate::load::sort::merge::{Merge, Run};
use crate::load::sort::spill::{DiskRun, SpillFile};

/// The runs of all targets while rows are being read. Shared by the workers.
#[derive(Debug)]
pub struct RunStore {
    budget: Budget,
    spill_directory: PathBuf,
    state: Mutex<State>,
    /// Signalled when a spill ends.
    spilled: Condvar,
}

#[derive(Debug)]
struct State {
    targets: Vec<TargetRuns>,
    /// Bytes of all runs in memory, those that are being spilled included.
    memory_bytes: usize,
    /// Spills under way.
    spilling: usize,
    /// A spill failed: the load ends, waiting for room would never end.
    failed: bool,
}

#[derive(Debug, Default)]
struct TargetRuns {
    memory: Vec<MemoryRun>,
    memory_bytes: usize,
    disk: Vec<Run>,
}

/// One worker's means to spill: its temporary file, created when first needed.
#[derive(Debug, Default)]
pub struct Spiller {
    file: Option<SpillFile>,
}

impl RunStore {
    /// An empty store for `targets` sorts. Temporary files go to `spill_directory`.
    #[must_use]
    pub fn new(budget: Budget, targets: usize, spill_directory: PathBuf) -> RunStore {
        RunStore {
            budget,
            spill_directory,
            state: Mutex::new(State {
                targets: (0..targets).map(|_| TargetRuns::default()).collect(),
                memory_bytes: 0,
                spilling: 0,
                failed: false,
            }),
            spilled: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a sealed run. If memory runs are then over their share, merges those of the largest target to disk, or
    /// waits for other workers that are doing so. Returns the number of bytes that it wrote to disk.
    ///
    /// # Errors
    /// Those of writing temporary files.
    pub fn add(&self, target: usize, run: MemoryRun, spiller: &mut Spiller) -> Result<u64> {
        let mut spilled_bytes = 0;
        if run.is_empty() {
            return Ok(0);
        }
        let mut state = self.lock();
        let bytes = run.used_bytes();
        state.memory_bytes += bytes;
        let runs = &mut state.targets[target];
        runs.memory_bytes += bytes;
        runs.memory.push(run);
        while state.memory_bytes > self.budget.runs_bytes && !state.failed {
            let largest = (0..state.targets.len()).max_by_key(|&target| state.targets[target].memory_bytes);
            match largest.filter(|&target| state.targets[target].memory_bytes > 0) {
                Some(largest) => state = self.spill_target(state, largest, spiller, &mut spilled_bytes)?,
                None if state.spilling == 0 => break,
                None => state = self.spilled.wait(state).unwrap_or_else(PoisonError::into_inner),
            }
        }
        Ok(spilled_bytes)
    }

    fn spill_target<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        target: usize,
        spiller: &mut Spiller,
        spilled_bytes: &mut u64,
    ) -> Result<MutexGuard<'a, State>> {
        let runs = &mut state.targets[target];
        let bytes = std::mem::take(&mut runs.memory_bytes);
        let taken: Vec<Run> = std::mem::take(&mut runs.memory).into_iter().map(Run::Memory).collect();
        state.spilling += 1;
        drop(state);
        let outcome = self.merge_to_disk(&taken, spiller);
        drop(taken);
        let mut state = self.lock();
        state.spilling -= 1;
        state.memory_bytes -= bytes;
        state.failed |= outcome.is_err();
        self.spilled.notify_all();
        let run = outcome?;
        *spilled_bytes += run.as_ref().map_or(0, DiskRun::stored_bytes);
        state.targets[target].disk.extend(run.map(Run::Disk));
        Ok(state)
    }

    fn merge_to_disk(&self, runs: &[Run], spiller: &mut Spiller) -> Result<Option<DiskRun>> {
        if spiller.file.is_none() {
            spiller.file = Some(SpillFile::create(&self.spill_directory)?);
        }
        let Some(file) = &mut spiller.file else { return Ok(None) };
        let mut writer = file.start_run(self.budget.block_bytes);
        let mut merge = Merge::new(runs);
        while merge.advance()? {
            writer.add(merge.key(), merge.value(), merge.place())?;
        }
        writer.finish()
    }

    /// Takes the runs of `target`, at most the fan-in of them on disk: more are merged until they are few enough.
    ///
    /// # Errors
    /// Those of reading and writing temporary files.
    pub fn take(&self, target: usize, spiller: &mut Spiller) -> Result<Vec<Run>> {
        let taken = std::mem::take(&mut self.lock().targets[target]);
        let mut disk = taken.disk;
        while disk.len() > self.budget.fan_in {
            // The oldest are the smallest or as small as any; merged ones go to the end, so each entry is rewritten
            // about once per level of the tree of merges.
            let excess = disk.len() - self.budget.fan_in + 1;
            let few: Vec<Run> = disk.drain(..excess.min(self.budget.fan_in)).collect();
            disk.extend(self.merge_to_disk(&few, spiller)?.map(Run::Disk));
        }
        disk.extend(taken.memory.into_iter().map(Run::Memory));
        Ok(disk)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::place::Place;
    use crate::load::sort::buffer::Buffer;

    fn tiny() -> Budget {
        Budget { buffer_bytes: 500, runs_bytes: 1500, block_bytes: 100, fan_in: 3 }
    }

    fn fill(store: &RunStore, worker: u64, workers: u64, rows: u64) -> u64 {
        let mut spiller = Spiller::default();
        let mut spilled = 0;
        for target in 0..2 {
            let mut buffer = Buffer::new(tiny().buffer_bytes);
            for row in (worker..rows).step_by(workers as usize) {
                let key = (row * 7919 % rows).to_be_bytes();
                if !buffer.has_room(key.len(), 3) {
                    spilled += store.add(target, buffer.seal(), &mut spiller).unwrap();
                }
                buffer.push(&key, b"abc", Place::new(0, row));
            }
            spilled += store.add(target, buffer.seal(), &mut spiller).unwrap();
        }
        spilled
    }

    #[test]
    fn nothing_is_lost_over_spills_and_merge_levels() {
        let rows = 2003;
        let store = RunStore::new(tiny(), 2, std::env::temp_dir());
        let spilled: u64 = std::thread::scope(|scope| {
            let fill_part = |worker| {
                scope.spawn({
                    let store = &store;
                    move || fill(store, worker, 3, rows)
                })
            };
            let workers: Vec<_> = (0..3).map(fill_part).collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).sum()
        });
        assert!(spilled > 0);
        for target in 0..2 {
            let runs = store.take(target, &mut Spiller::default()).unwrap();
            let on_disk = runs.iter().filter(|run| matches!(run, Run::Disk(_))).count();
            assert!((1..=tiny().fan_in).contains(&on_disk), "{on_disk}");
            let mut merge = Merge::new(&runs);
            for key in 0..rows {
                assert!(merge.advance().unwrap());
                assert_eq!(merge.key(), key.to_be_bytes());
            }
            assert!(!merge.advance().unwrap());
        }
    }

    #[test]
    fn what_fits_the_budget_never_touches_the_disk() {
        let store = RunStore::new(Budget { runs_bytes: 1 << 20, ..tiny() }, 2, "/nonexistent".into());
        assert_eq!(fill(&store, 0, 1, 100), 0);
    }

    #[test]
    fn a_failing_disk_is_an_error_for_the_worker_that_spills() {
        let store = RunStore::new(Budget { runs_bytes: 10, ..tiny() }, 1, "/nonexistent".into());
        let mut buffer = Buffer::new(100);
        buffer.push(b"k", b"v", Place::new(0, 1));
        let error = store.add(0, buffer.seal(), &mut Spiller::default()).unwrap_err();
        assert!(error.to_string().contains("/nonexistent"), "{error}");
    }
}
