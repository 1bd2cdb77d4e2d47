//! Any single call fails, in any of the ways that calls fail: nothing acknowledged is lost, and writing goes on.

use std::sync::Arc;

use alluvium_base::ErrorKind;
use alluvium_base::fs::fault::{Action, Failure, FaultFs, Rule};
use alluvium_base::fs::memory::MemoryFs;
use alluvium_base::fs::operation::Operation;
use alluvium_base::random::Random;

use crate::engine::{Engine, Model};
use crate::support::{create_on, options, payload, recover_with, recovery_options, seeds};

const STEPS: usize = 120;

fn actions() -> Vec<Action> {
    vec![
        Action::Fail(Failure::Io),
        Action::Fail(Failure::DiskFull),
        Action::FailAfter(Failure::Io),
        Action::FailDroppingDirty,
        Action::FailEvictingDirty,
        Action::ShortWrite { bytes: 700, failure: Failure::DiskFull },
    ]
}

/// How a run ends.
#[derive(Clone, Copy)]
struct Crash {
    /// A failure that is still there is answered first.
    heal: bool,
    lose_power: bool,
}

/// Runs the history of `seed` with the rule, in two incarnations that both crash. Returns how many calls could have
/// failed.
fn run(seed: u64, rule: Option<Rule>, crash: Crash) -> u64 {
    let memory = MemoryFs::new();
    let faulty = FaultFs::over_memory(&memory);
    let model = Model::shared(true);
    rule.map(|rule| faulty.add(rule));
    for half in 0..2 {
        let mut engine = Engine::open(faulty.shared(), Arc::clone(&model), Random::new(seed + half));
        for _ in 0..STEPS / 2 {
            engine.step();
        }
        if crash.heal {
            engine.heal();
        }
        drop(engine);
        if crash.lose_power {
            memory.power_loss(seed);
            model.lock().power_was_lost = true;
        } else {
            memory.process_kill();
        }
    }
    model.lock().check(&memory.shared(), false).unwrap();
    faulty.calls().fallible()
}

#[test]
fn any_single_failing_call_loses_nothing_acknowledged() {
    for seed in seeds(2) {
        let calls = run(seed, None, Crash { heal: true, lose_power: false });
        for action in actions() {
            for call in 0..calls {
                let rule = Rule::new(action.clone()).from_call(call).times(1);
                run(seed, Some(rule), Crash { heal: true, lose_power: call % 2 == 0 });
            }
        }
    }
}

#[test]
fn several_failing_calls_in_a_row_lose_nothing_acknowledged() {
    for seed in seeds(40) {
        for action in actions() {
            let mut random = Random::new(seed);
            let first = 40 + random.below(100);
            let rule = Rule::new(action).from_call(first).times(1 + random.below(8));
            run(seed, Some(rule), Crash { heal: true, lose_power: random.one_in(2) });
        }
    }
}

/// What the ring or the page cache still has is found, and made durable although a sync of it failed before. (Where the
/// failed sync also drops it from the page cache, a kill before the flush loses what has left the ring.)
#[test]
fn crash_before_a_failure_is_answered_loses_nothing_promised() {
    for seed in seeds(40) {
        let mut random = Random::new(seed);
        for action in [Action::FailDroppingDirty, Action::Fail(Failure::Io), actions().remove(5)] {
            let rule = Rule::new(action)
                .on(&[Operation::Write, Operation::Sync])
                .path_ends_with(".log")
                .from_call(random.below(60));
            run(seed, Some(rule.times(1)), Crash { heal: false, lose_power: random.one_in(2) });
        }
        let rule = Rule::new(Action::FailEvictingDirty)
            .on(&[Operation::Sync])
            .path_ends_with(".log")
            .from_call(random.below(30));
        run(seed, Some(rule.times(1)), Crash { heal: false, lose_power: true });
    }
}

#[test]
fn failed_sync_refuses_every_sync_until_resumed() {
    let memory = MemoryFs::new();
    let faulty = FaultFs::over_memory(&memory);
    let log = create_on(faulty.shared(), options(1, 0)).unwrap();
    let first = log.append(&payload(1, 5000), || 1).unwrap();
    log.sync(first.end).unwrap();
    faulty.add(Rule::new(Action::FailDroppingDirty).on(&[Operation::Sync]).times(1));
    let second = log.append(&payload(2, 5000), || 2).unwrap();
    for _ in 0..2 {
        let error = log.sync(second.end).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::DurabilityUnknown { .. }), "{error}");
        assert!(log.drain().is_err());
        assert!(log.close().is_err());
    }
    log.sync(first.end).unwrap();
    assert_eq!(log.failure().unwrap().flush_before, second.end);
}

#[test]
fn after_a_failure_appends_go_on_in_the_ring_and_are_kept() {
    let memory = MemoryFs::new();
    let faulty = FaultFs::over_memory(&memory);
    let log = create_on(faulty.shared(), options(1, 0)).unwrap();
    let first = log.append(&payload(1, 5000), || 1).unwrap();
    let rule =
        faulty.add(Rule::new(Action::Fail(Failure::Io)).on(&[Operation::Write]).path_ends_with(".log"));
    assert!(log.sync(first.end).is_err());
    let failure = log.failure().unwrap();
    let mut expected = Vec::new();
    let full = loop {
        let seqno = 2 + expected.len() as u64;
        match log.append(&payload(seqno, 5000), || seqno) {
            Ok(_) => expected.push((seqno, payload(seqno, 5000))),
            Err(error) => break error,
        }
    };
    assert!(matches!(full.kind(), ErrorKind::Io { .. }), "{full}");
    assert!(expected.len() > 10, "the ring has room for more than {}", expected.len());
    faulty.remove(rule);
    log.resume().unwrap();
    assert!(log.failure().is_none());
    log.sync(log.end_address()).unwrap();
    memory.power_loss(3);
    let mut after_flush = recovery_options(1, &[]);
    after_flush.replay_start = failure.flush_before;
    let (records, report) = recover_with(&memory, &after_flush).unwrap();
    assert_eq!(records, expected);
    assert!(report.dropped.is_empty());
}

#[test]
fn a_full_disk_stops_nothing_that_has_its_space_already() {
    let memory = MemoryFs::new();
    let log = create_on(memory.shared(), options(1, 0)).unwrap();
    log.prepare_segment().unwrap();
    memory.set_capacity(Some(0));
    let mut seqno = 0;
    // Two segments are filled already.
    while log.end_address() < 120 << 10 {
        seqno += 1;
        let appended = log.append(&payload(seqno, 3000), || seqno).unwrap();
        log.sync(appended.end).unwrap();
    }
    // The third is not, so the sync that needs it fails; with space the log goes on.
    let error = loop {
        seqno += 1;
        let appended = log.append(&payload(seqno, 3000), || seqno).unwrap();
        if let Err(error) = log.sync(appended.end) {
            break error;
        }
    };
    assert!(error.to_string().contains("no space left"), "{error}");
    let flush_before = log.failure().unwrap().flush_before;
    assert!(log.resume().is_err());
    let kept = log.append(&payload(seqno + 1, 3000), || seqno + 1).unwrap();
    memory.set_capacity(None);
    log.resume().unwrap();
    log.sync(kept.end).unwrap();
    memory.power_loss(1);
    let mut after_flush = recovery_options(1, &[]);
    after_flush.replay_start = flush_before;
    let (records, _) = recover_with(&memory, &after_flush).unwrap();
    assert_eq!(records, [(seqno + 1, payload(seqno + 1, 3000))]);
}
