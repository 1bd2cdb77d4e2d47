//! A stand-in for the engine: appends, syncs, "flushes", answers failures, and knows what a recovery must find.

use std::sync::Arc;

use alluvium_base::fs::Fs;
use alluvium_base::fs::memory::MemoryFs;
use alluvium_base::random::Random;
use alluvium_base::sync::Mutex;
use alluvium_base::{ErrorKind, Result};
use alluvium_wal::{Log, RecoveryOptions, RecoveryReport, recover};

use crate::support::{create_on, options, payload, recovery_options};

#[derive(Clone, Debug)]
pub(crate) struct Written {
    pub(crate) address: u64,
    pub(crate) end: u64,
    pub(crate) seqno: u64,
    pub(crate) payload: Vec<u8>,
}

/// What is kept outside of the log: the manifest, and what was promised.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    pub(crate) incarnation: u64,
    pub(crate) accepted_ends: Vec<(u64, u64)>,
    pub(crate) replay_start: u64,
    /// Appended and not flushed.
    pub(crate) records: Vec<Written>,
    /// Being appended.
    pub(crate) pending: Option<(u64, Vec<u8>)>,
    /// Everything below was acknowledged as durable.
    pub(crate) acknowledged: u64,
    /// Everything below was acknowledged as safe from a kill; `u64::MAX` where the ring is mapped.
    pub(crate) secured: u64,
    /// The machine was restarted since the log was last written.
    pub(crate) power_was_lost: bool,
    pub(crate) next_seqno: u64,
}

impl Model {
    pub(crate) fn shared(mappable: bool) -> Arc<Mutex<Model>> {
        let secured = if mappable { u64::MAX } else { 0 };
        Arc::new(Mutex::new(Model { next_seqno: 1, secured, ..Model::default() }))
    }

    pub(crate) fn recovery_options(&self) -> RecoveryOptions {
        let mut options = recovery_options(self.incarnation, &self.accepted_ends);
        options.replay_start = self.replay_start;
        options
    }

    /// What a recovery of `fs` gives; checked against what it must give.
    pub(crate) fn check(&self, fs: &Arc<dyn Fs>, power_was_lost: bool) -> Result<RecoveryReport> {
        let complete = self.records.iter().map(|written| (written.seqno, &written.payload));
        let pending = self.pending.iter().map(|(seqno, payload)| (*seqno, payload));
        let mut possible = complete.chain(pending);
        let mut count = 0;
        let report = recover(fs, &self.recovery_options(), &mut |record| {
            let (seqno, payload) = possible.next().expect("a record that was never appended");
            assert_eq!((record.seqno, record.payload), (seqno, payload.as_slice()));
            count += 1;
            Ok(())
        })?;
        let promised_end = match power_was_lost || self.power_was_lost {
            true => self.acknowledged,
            false => self.acknowledged.max(self.secured),
        };
        let promised = self.records.iter().filter(|written| written.end <= promised_end).count();
        assert!(count >= promised, "{count} records of {promised} that were promised");
        Ok(report)
    }

    /// What a restart makes of the model: what was recovered counts as accepted.
    pub(crate) fn restart(&mut self, report: &RecoveryReport) {
        self.pending = None;
        self.records.truncate(report.records as usize);
        if let Some(last) = self.records.last() {
            self.next_seqno = last.seqno + 1;
        }
        self.accepted_ends.push((self.incarnation, report.end));
        self.incarnation += 1;
        self.acknowledged = report.end;
        self.power_was_lost = false;
    }

    fn flush_before(&mut self, address: u64) {
        self.records.retain(|written| written.address >= address);
        self.replay_start = self.replay_start.max(address);
    }
}

pub(crate) struct Engine {
    pub(crate) log: Log,
    pub(crate) model: Arc<Mutex<Model>>,
    random: Random,
}

impl Engine {
    /// Recovers and starts the next incarnation; tries again while calls fail.
    pub(crate) fn open(fs: Arc<dyn Fs>, model: Arc<Mutex<Model>>, random: Random) -> Engine {
        for _ in 0..10 {
            let before = model.lock().clone();
            let Ok(report) = before.check(&fs, false) else { continue };
            let incarnation = {
                let mut model = model.lock();
                model.restart(&report);
                model.incarnation
            };
            // A failed attempt uses up its incarnation, as one that crashed here would.
            if let Ok(log) = create_on(Arc::clone(&fs), options(incarnation, report.next_start_address)) {
                return Engine { log, model, random };
            }
        }
        panic!("the log does not open although only one call fails");
    }

    /// One random step.
    pub(crate) fn step(&mut self) {
        match self.random.below(100) {
            0..70 => self.append(),
            70..82 => self.sync(),
            82..84 => drop(self.log.drain()),
            84..88 => drop(self.log.prepare_segment()),
            88..94 => self.secure(),
            _ => self.flush_and_release(),
        }
        self.answer_failure();
    }

    fn append(&mut self) {
        let len = match self.random.below(10) {
            0 => self.random.below(40_000),
            1..3 => 0,
            _ => self.random.below(1500),
        };
        let seqno = self.model.lock().next_seqno;
        let payload = payload(seqno, len as usize);
        let pending = (seqno, payload.clone());
        let model = Arc::clone(&self.model);
        let result = self.log.append(&payload, || {
            let mut model = model.lock();
            model.pending = Some(pending);
            model.next_seqno += 1;
            seqno
        });
        let mut model = self.model.lock();
        match result {
            Ok(appended) => {
                model.pending = None;
                let (address, end) = (appended.address, appended.end);
                model.records.push(Written { address, end, seqno, payload });
            }
            Err(error) => {
                assert!(model.pending.is_none(), "a failed append was given a sequence number");
                assert!(self.log.failure().is_some(), "{error}");
            }
        }
    }

    fn sync(&mut self) {
        let end = self.log.end_address();
        match self.log.sync(end) {
            Ok(()) => self.model.lock().acknowledged = end,
            Err(error) => {
                assert!(matches!(error.kind(), ErrorKind::DurabilityUnknown { .. }), "{error}");
                assert!(self.log.failure().is_some());
            }
        }
    }

    fn secure(&mut self) {
        let end = self.log.end_address();
        if self.log.secure(end).is_ok() {
            let mut model = self.model.lock();
            model.secured = model.secured.max(end);
        }
    }

    fn flush_and_release(&mut self) {
        let address = {
            let mut model = self.model.lock();
            let Some(index) = (!model.records.is_empty()).then(|| self.random.index(model.records.len()))
            else {
                return;
            };
            let address = model.records[index].address;
            model.flush_before(address);
            address
        };
        let _ = self.log.release_before(address);
    }

    /// Does what the engine must do after a failure. Now and then it takes its time.
    fn answer_failure(&mut self) {
        let Some(failure) = self.log.failure() else { return };
        if self.random.one_in(3) {
            return;
        }
        assert!(
            self.log.sync(self.log.end_address()).is_err()
                || self.log.durable_address() == self.log.end_address()
        );
        let mut model = self.model.lock();
        // Flushing the memtables covers what was appended until then, or just what it must.
        let flushed = if self.random.one_in(2) { self.log.end_address() } else { failure.flush_before };
        model.flush_before(flushed);
        model.acknowledged = model.acknowledged.max(failure.flush_before);
        drop(model);
        let _ = self.log.resume();
    }
}

impl Engine {
    /// Answers what failure there still is, now that calls succeed again, and shows that syncs do too.
    pub(crate) fn heal(&mut self) {
        for _ in 0..100 {
            self.answer_failure();
            let end = self.log.end_address();
            if self.log.sync(end).is_ok() {
                self.model.lock().acknowledged = end;
                return;
            }
        }
        panic!("the log does not recover although calls succeed: {:?}", self.log.failure());
    }
}

/// Takes a copy of the files as they are, as a new machine.
pub(crate) fn copy(fs: &MemoryFs) -> (MemoryFs, Arc<dyn Fs>) {
    let copy = fs.fork();
    let shared = copy.shared();
    (copy, shared)
}
