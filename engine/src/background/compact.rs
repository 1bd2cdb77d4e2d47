//! Compacting: the picker says what, a merge job does it, an edit installs the result.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use alluvium_base::{Error, ErrorKind, KeyRange, Result};
use alluvium_compaction::drop_rules::Snapshots;
use alluvium_compaction::job::{MergeJob, Progress};
use alluvium_compaction::picker::{
    Claim, CompactionPlan, ManualCompaction, ManualStep, PickInputs, PlanKind, Scope, pick, scores,
};
use alluvium_compaction::{Version, VersionEdit};

use super::QUANTUM_BYTES;
use crate::executor::{Next, Worker, catch_panic};
use crate::tree::{Tree, TreeState};

/// See the module's documentation.
pub(super) struct CompactionWorker {
    tree: Arc<Tree>,
    number: usize,
    scope: Scope,
    running: Option<Running>,
    retry_at_nanos: u64,
}

struct Running {
    plan: CompactionPlan,
    claim: Claim,
    stage: Stage,
    /// Time spent working on it, in nanoseconds.
    busy_nanos: u64,
}

enum Stage {
    Writing(Box<MergeJob>),
    /// The tables are written and synced (or none are needed); what is left is to say so in the manifest.
    Installing(Box<VersionEdit>),
}

/// A compaction that somebody asked for and waits for.
pub(crate) struct ManualRequest {
    number: u64,
    compaction: ManualCompaction,
    /// The step of it that is running.
    running: Option<Claim>,
}

impl CompactionWorker {
    pub(super) fn new(tree: Arc<Tree>, number: usize, scope: Scope) -> CompactionWorker {
        CompactionWorker { tree, number, scope, running: None, retry_at_nanos: 0 }
    }

    fn step(&mut self) -> Result<Next> {
        if self.running.is_none() {
            return self.start();
        }
        let tree = &self.tree;
        let Some(running) = &mut self.running else { return Ok(Next::Idle) };
        let start = tree.environment.clock.monotonic_nanos();
        match &mut running.stage {
            Stage::Writing(job) => {
                if let Progress::Done(output) = job.run_quantum(QUANTUM_BYTES)? {
                    tree.counters.dropped_entries.add(output.statistics.dropped.total());
                    tree.counters.broken_pairs.add(output.statistics.broken_pairs);
                    running.stage = Stage::Installing(Box::new(running.plan.edit(&output.files)));
                }
                running.busy_nanos += tree.environment.clock.monotonic_nanos() - start;
            }
            Stage::Installing(edit) => {
                if let Err(error) = tree.install(edit, None) {
                    return Err(self.refused(error));
                }
                let written: u64 = edit.added.iter().map(|(_, file)| file.bytes()).sum();
                if let Some(running) = self.running.take() {
                    tree.count_compaction(&running.plan, written, running.busy_nanos);
                    tree.release(&running.claim);
                }
                tree.record_success("compaction");
                tree.update_admission();
            }
        }
        Ok(Next::Again)
    }

    fn start(&mut self) -> Result<Next> {
        let tree = &self.tree;
        let Some((plan, claim, version)) = tree.claim_next(self.scope) else { return Ok(Next::Idle) };
        let stage = match plan.kind {
            PlanKind::Merge => tree.compaction_job(&plan, &version).map(|job| Stage::Writing(Box::new(job))),
            PlanKind::Move | PlanKind::Discard => Ok(Stage::Installing(Box::new(plan.edit(&[])))),
        };
        match stage {
            Ok(stage) => {
                self.running = Some(Running { plan, claim, stage, busy_nanos: 0 });
                Ok(Next::Again)
            }
            Err(error) => {
                tree.release(&claim);
                Err(error)
            }
        }
    }

    /// After a failed installation. An edit that no longer fits the tree (a bulk load has put a table in its way) never
    /// will: its outputs go, and the picker finds another job. Anything else is tried again with the same outputs.
    fn refused(&mut self, error: Error) -> Error {
        if !matches!(error.kind(), ErrorKind::InvalidArgument { .. }) {
            return error;
        }
        if let Some(running) = self.running.take() {
            if let (Stage::Installing(edit), PlanKind::Merge) = (&running.stage, running.plan.kind) {
                // A reader may have seen a manifest that could not be made durable and names them.
                let files = edit.added.iter().map(|(_, file)| Arc::clone(file)).collect();
                let position = self.tree.position();
                self.tree.state.lock().obsolete.add_tables(files, position);
            }
            self.tree.release(&running.claim);
        }
        error
    }

    /// Gives up a job whose tables are not complete. Complete ones are kept: the manifest may name them.
    fn give_up(&mut self) {
        // Dropping the job removes its files.
        if let Some(running) = self.running.take_if(|running| matches!(running.stage, Stage::Writing(_))) {
            self.tree.release(&running.claim);
        }
    }
}

impl Worker for CompactionWorker {
    fn name(&self) -> String {
        format!("alluvium-merge{}", self.number)
    }

    fn run_quantum(&mut self) -> Next {
        if self.tree.closed.load(Ordering::Acquire) {
            self.give_up();
            return Next::Idle;
        }
        if self.tree.environment.clock.monotonic_nanos() < self.retry_at_nanos {
            return Next::IdleUntil(self.retry_at_nanos);
        }
        match catch_panic("a compaction", || self.step()) {
            Ok(next) => next,
            Err(error) => {
                self.give_up();
                self.retry_at_nanos = self.tree.record_failure("compaction", error);
                Next::IdleUntil(self.retry_at_nanos)
            }
        }
    }
}

impl Tree {
    /// Asks the picker with everything that it depends on.
    fn with_pick_inputs<T>(
        &self,
        scope: Scope,
        claims: &[Claim],
        ask: impl FnOnce(&PickInputs<'_>) -> T,
    ) -> T {
        let shape = self.shape();
        let live = self.snapshots.live();
        let dropped = self.dropped.load();
        ask(&PickInputs {
            shape: &shape,
            in_flight: claims,
            oldest_snapshot: live.first().copied(),
            dropped_keyspaces: &dropped,
            covered_files: &[],
            scope,
        })
    }

    /// Picks the next job and claims it. The version is the one that it was picked from.
    fn claim_next(&self, scope: Scope) -> Option<(CompactionPlan, Claim, Arc<Version>)> {
        let mut state = self.state.lock();
        // Loaded under the lock under which versions are installed, so that claims and files agree.
        let version = Arc::clone(&self.read_state.load().version);
        let mut plan = None;
        if scope == Scope::All {
            plan = self.next_manual(&mut state, &version);
        }
        let plan = match plan {
            Some(plan) => plan,
            None => self.with_pick_inputs(scope, &state.claims, |inputs| pick(&version, inputs))?,
        };
        let claim = plan.claim();
        state.claims.push(claim.clone());
        Some((plan, claim, version))
    }

    /// The next step of the first manual compaction; takes those that are done off the queue.
    fn next_manual(&self, state: &mut TreeState, version: &Version) -> Option<CompactionPlan> {
        let TreeState { manual, claims, manual_done, .. } = state;
        while let Some(request) = manual.front_mut() {
            if request.running.as_ref().is_some_and(|claim| claims.contains(claim)) {
                return None;
            }
            let step =
                self.with_pick_inputs(Scope::All, claims, |inputs| request.compaction.next(version, inputs));
            match step {
                ManualStep::Run(plan) => {
                    request.running = Some(plan.claim());
                    return Some(plan);
                }
                ManualStep::Blocked => return None,
                ManualStep::Done => {
                    *manual_done = request.number;
                    manual.pop_front();
                    self.progress.notify_all();
                }
            }
        }
        None
    }

    fn compaction_job(&self, plan: &CompactionPlan, version: &Version) -> Result<MergeJob> {
        // Live now includes whoever starts to read later: nobody will read below what is visible now.
        let snapshots = Snapshots::new(self.snapshots.live());
        let dropped = self.dropped.load().to_vec();
        let (environment, random) = (self.job_environment(), self.new_random());
        MergeJob::compaction(environment, random, plan, None, version, (snapshots, dropped), &self.shape())
    }

    fn release(&self, claim: &Claim) {
        self.state.lock().claims.retain(|other| other != claim);
        self.progress.notify_all();
        self.executor.wake();
    }

    fn count_compaction(&self, plan: &CompactionPlan, written: u64, busy_nanos: u64) {
        if plan.kind == PlanKind::Merge {
            self.counters.compactions.increment();
            self.counters.compaction_read_bytes.add(plan.input_bytes());
            self.counters.compaction_written_bytes.add(written);
            self.admission.record_job(false, plan.input_bytes(), busy_nanos);
        } else {
            self.counters.trivial_moves.increment();
        }
    }

    /// Bytes that compaction has to move until every level is within its target.
    pub(crate) fn pending_compaction_bytes(&self, version: &Version) -> u64 {
        self.with_pick_inputs(Scope::All, &[], |inputs| scores(version, inputs)).pending_bytes
    }

    /// Compacts `range` (everything, if `None`) as deep as it goes, and waits for it.
    pub(crate) fn compact_range(&self, range: Option<KeyRange>) -> Result<()> {
        self.flush_and_wait()?;
        let mut state = self.state.lock();
        let version = Arc::clone(&self.read_state.load().version);
        let range = range.or_else(|| version.key_range()).unwrap_or_default();
        state.manual_requested += 1;
        let number = state.manual_requested;
        let compaction = ManualCompaction::new(range, &version);
        state.manual.push_back(ManualRequest { number, compaction, running: None });
        let failures = self.counters.background_failures.get();
        self.executor.wake();
        self.progress.wait_while(&mut state, |state| {
            let failed = self.counters.background_failures.get() > failures && !state.failures.is_empty();
            state.manual_done < number && !failed && !self.closed.load(Ordering::Acquire)
        });
        if state.manual_done >= number {
            return Ok(());
        }
        state.manual.retain(|request| request.number != number);
        match state.background_error() {
            Some(failure) => Err(failure.error.clone().context(format!("{} failed", failure.job))),
            None => Err(ErrorKind::Closed.into()),
        }
    }

    /// Waits until nothing is left to flush or to compact.
    pub(crate) fn wait_until_settled(&self) -> Result<()> {
        self.log("wait for compactions")?;
        self.executor.wake();
        let mut state = self.state.lock();
        let failures = self.counters.background_failures.get();
        self.progress.wait_while(&mut state, |state| {
            let read_state = self.read_state.load();
            let busy =
                !read_state.immutables.is_empty() || !state.claims.is_empty() || !state.manual.is_empty();
            let wanted = || {
                self.with_pick_inputs(Scope::All, &state.claims, |inputs| pick(&read_state.version, inputs))
                    .is_some()
            };
            let failed = self.counters.background_failures.get() > failures && !state.failures.is_empty();
            !failed && !self.closed.load(Ordering::Acquire) && (busy || wanted())
        });
        if let Some(failure) = state.background_error() {
            return Err(failure.error.clone().context(format!("{} failed", failure.job)));
        }
        drop(state);
        self.check_open()
    }
}
