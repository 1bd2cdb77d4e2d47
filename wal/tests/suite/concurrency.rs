//! Many threads on the machine's file system; and the one thread of a simulation.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use alluvium_base::clock::SystemClock;
use alluvium_base::fs::Fs;
use alluvium_base::fs::memory::MemoryFs;
use alluvium_base::fs::real::RealFs;
use alluvium_base::random::Random;
use alluvium_base::sync::{Simulation, WaitStatistics, enter_simulation};
use alluvium_wal::{Log, LogOptions, RecoveryOptions, recover};

use crate::engine::{Engine, Model};
use crate::support::{DATABASE_ID, options, payload, seeds};

const THREADS: u64 = 8;

/// Appends from many threads, most of them syncing, while another one makes and releases segments. Returns the log's
/// order of (seqno, payload) as a recovery sees it.
fn run_threads(fs: Arc<dyn Fs>, options: LogOptions, each: u64, sync_every: u64) -> Log {
    let waits = Arc::new(WaitStatistics::default());
    let log = Log::create(Arc::clone(&fs), SystemClock::shared(), waits, options.clone()).unwrap();
    let next_seqno = AtomicU64::new(1);
    let acknowledged = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let housekeeper = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                if log.wants_segment() {
                    log.prepare_segment().unwrap();
                }
                log.drain().unwrap();
                std::thread::yield_now();
            }
        });
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (log, next_seqno, acknowledged) = (&log, &next_seqno, &acknowledged);
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for _ in 0..each {
                        let bytes = payload(random.next_u64(), random.below(700) as usize);
                        let appended =
                            log.append(&bytes, || next_seqno.fetch_add(1, Ordering::Relaxed)).unwrap();
                        if random.one_in(sync_every) {
                            log.sync(appended.end).unwrap();
                            assert!(log.durable_address() >= appended.end);
                            acknowledged.fetch_max(appended.end, Ordering::Relaxed);
                        }
                    }
                })
            })
            .collect();
        let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
        done.store(true, Ordering::Relaxed);
        ended.into_iter().for_each(|writer| writer.unwrap());
        housekeeper.join().unwrap();
    });
    assert!(log.durable_address() >= acknowledged.load(Ordering::Relaxed));
    let mut expected = 1;
    let recovery = RecoveryOptions {
        last_incarnation: 1,
        read_only: true,
        ..RecoveryOptions::new(&options.directory, DATABASE_ID)
    };
    let report = recover(&fs, &recovery, &mut |record| {
        assert_eq!(record.seqno, expected, "the order of the log is not that of sequence numbers");
        expected += 1;
        Ok(())
    })
    .unwrap();
    assert_eq!(report.records, THREADS * each);
    assert_eq!(report.end, log.end_address());
    log
}

#[test]
fn log_order_is_seqno_order_and_all_acknowledged_is_there() {
    let directory = tempfile::tempdir().unwrap();
    let options = LogOptions { directory: directory.path().into(), segment_bytes: 1 << 20, ..options(1, 0) };
    let log = run_threads(RealFs::shared(), options, 1000, 2);
    let statistics = log.statistics();
    assert!(statistics.syncs > 0 && statistics.sync_group_sizes.sum >= statistics.syncs);
    assert!(statistics.sync_group_sizes.max > 1, "no group ever had two members");
}

#[test]
fn appends_outrun_the_ring_and_wait_for_it() {
    for seed in seeds(3) {
        let fs = MemoryFs::new();
        let log = run_threads(fs.shared(), options(1, 0), 1500, 50 + seed);
        assert!(log.statistics().bytes_appended > 2 * options(1, 0).ring_bytes as u64);
    }
}

#[test]
fn a_group_that_fails_fails_for_all_and_wakes_all() {
    use alluvium_base::fs::fault::{Action, Failure, FaultFs, Rule};
    use alluvium_base::fs::operation::Operation;
    for seed in seeds(20) {
        let faulty = FaultFs::over_memory(&MemoryFs::new());
        let waits = Arc::new(WaitStatistics::default());
        let log = Log::create(faulty.shared(), SystemClock::shared(), waits, options(1, 0)).unwrap();
        let rule = Rule::new(Action::Fail(Failure::Io)).on(&[Operation::Sync]).path_ends_with(".log");
        faulty.add(rule.from_call(seed % 5).times(1));
        let seqno = AtomicU64::new(1);
        let failed = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let appended = log.append(b"x", || seqno.fetch_add(1, Ordering::Relaxed)).unwrap();
                        if log.sync(appended.end).is_err() {
                            failed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        let failure = log.failure().unwrap();
        assert!(failed.load(Ordering::Relaxed) >= THREADS, "those who came after the failure were refused");
        assert!(log.durable_address() < failure.flush_before);
        log.resume().unwrap();
        log.sync(log.end_address()).unwrap();
    }
}

/// A simulation in which no job can ever run: any wait is a deadlock.
#[derive(Debug)]
struct Alone;

impl Simulation for Alone {
    fn run_one(&self) -> bool {
        false
    }

    fn advance(&self, _limit: Option<Duration>) -> bool {
        false
    }
}

#[test]
fn a_lone_thread_never_waits_for_itself() {
    let _simulation = enter_simulation(Arc::new(Alone));
    for seed in seeds(20) {
        for mappable in [true, false] {
            let fs = MemoryFs::new();
            fs.set_mappable(mappable);
            let mut engine = Engine::open(fs.shared(), Model::shared(mappable), Random::new(seed));
            for _ in 0..300 {
                engine.step();
            }
            engine.heal();
            engine.log.close().unwrap();
        }
    }
}

/// Writes and syncs fail now and then while eight threads append; a ninth flushes and resumes. Nobody hangs, and at the
/// end everything that was not flushed is there, in order.
#[test]
fn failures_under_load_are_got_over() {
    use alluvium_base::fs::fault::{Action, Failure, FaultFs, Rule};
    use alluvium_base::fs::operation::Operation;
    for seed in seeds(10) {
        let memory = MemoryFs::new();
        let faulty = FaultFs::over_memory(&memory);
        let waits = Arc::new(WaitStatistics::default());
        let log = Log::create(faulty.shared(), SystemClock::shared(), waits, options(1, 0)).unwrap();
        for call in 0..6 {
            let action =
                [Action::Fail(Failure::DiskFull), Action::FailDroppingDirty][call as usize % 2].clone();
            let rule = Rule::new(action).on(&[Operation::Write, Operation::Sync, Operation::Rename]);
            faulty.add(rule.from_call(20 + seed + call * 37).times(1));
        }
        let (next_seqno, replay_start, done) = (AtomicU64::new(1), AtomicU64::new(0), AtomicBool::new(false));
        let answer = || {
            if let Some(failure) = log.failure() {
                replay_start.fetch_max(failure.flush_before, Ordering::Relaxed);
                let _ = log.resume();
            }
        };
        std::thread::scope(|scope| {
            let writers: Vec<_> = (0..THREADS)
                .map(|thread| {
                    let (log, next_seqno) = (&log, &next_seqno);
                    scope.spawn(move || {
                        let mut random = Random::new(seed << 8 | thread);
                        let mut refused = 0;
                        while refused < 1000 {
                            let bytes = payload(random.next_u64(), random.below(2000) as usize);
                            match log.append(&bytes, || next_seqno.fetch_add(1, Ordering::Relaxed)) {
                                Ok(appended) if appended.seqno > 3000 => return,
                                Ok(appended) if random.one_in(8) => drop(log.sync(appended.end)),
                                Ok(_) => {}
                                // The ring is full and cannot be drained at present.
                                Err(_) => {
                                    refused += 1;
                                    std::thread::sleep(Duration::from_millis(1));
                                }
                            }
                        }
                        panic!("the log was refused for a second");
                    })
                })
                .collect();
            let housekeeper = scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    answer();
                    let _ = log.prepare_segment();
                    std::thread::yield_now();
                }
            });
            let ended: Vec<_> = writers.into_iter().map(|writer| writer.join()).collect();
            done.store(true, Ordering::Relaxed);
            ended.into_iter().for_each(|writer| writer.unwrap());
            housekeeper.join().unwrap();
        });
        faulty.remove_all();
        answer();
        log.sync(log.end_address()).unwrap();
        memory.power_loss(seed);
        let mut recovery = crate::support::recovery_options(1, &[]);
        recovery.replay_start = replay_start.load(Ordering::Relaxed);
        let (records, _) = crate::support::recover_with(&memory, &recovery).unwrap();
        assert!(log.statistics().failures > 0);
        assert!(records.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0), "a hole");
        assert_eq!(records.last().map(|record| record.0 + 1), Some(next_seqno.load(Ordering::Relaxed)));
    }
}
