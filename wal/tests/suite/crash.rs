//! Crashes at every kind of moment: what was promised is found, and nothing else.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use alluvium_base::fs::Fs;
use alluvium_base::fs::fault::{Action, Callback, FaultFs, Rule};
use alluvium_base::fs::memory::MemoryFs;
use alluvium_base::fs::operation::Operation;
use alluvium_base::random::Random;
use alluvium_base::sync::Mutex;

use crate::engine::{Engine, Model, copy};
use crate::support::{recover_with, seeds};

/// Checks what a crash at this moment would leave: as it is (the process is killed), and after a power loss.
fn check_crash(fs: &MemoryFs, model: &Model, seed: u64) {
    let (_, killed) = copy(fs);
    model.check(&killed, false).unwrap();
    let (machine, restarted) = copy(fs);
    machine.power_loss(seed);
    model.check(&restarted, true).unwrap();
    check_crash_in_recovery(fs, model, seed);
}

/// Recovery is interrupted at one of its changes, by a kill or a power loss, twice; then it runs through. What it
/// accepts survives the next power loss.
fn check_crash_in_recovery(fs: &MemoryFs, model: &Model, seed: u64) {
    let mut random = Random::new(seed);
    let mut power_was_lost = random.one_in(2);
    let (mut machine, _) = copy(fs);
    if power_was_lost {
        machine.power_loss(seed);
    }
    for round in 0..2 {
        let interrupted = Arc::new(Mutex::new(machine.fork()));
        let faulty = FaultFs::over_memory(&machine);
        let (at, lose_power) = (random.below(6), random.one_in(2));
        let snapshot: Callback = Arc::new({
            let (machine, interrupted) = (machine.clone(), Arc::clone(&interrupted));
            move |_| *interrupted.lock() = machine.fork()
        });
        let action = match random.below(3) {
            0 => Action::CallAfter { bytes: 700, callback: snapshot },
            _ => Action::Call(snapshot),
        };
        faulty.add(Rule::new(action).on_changes().from_call(at).times(1));
        model.check(&faulty.shared(), power_was_lost).unwrap();
        machine = interrupted.lock().fork();
        if lose_power {
            machine.power_loss(seed + round);
            power_was_lost = true;
        }
    }
    let report = model.check(&machine.shared(), power_was_lost).unwrap();
    let mut accepted = model.clone();
    accepted.restart(&report);
    machine.power_loss(seed);
    let (records, again) = recover_with(&machine, &accepted.recovery_options()).unwrap();
    assert_eq!(records.len(), report.records as usize, "an accepted record was lost");
    assert_eq!(again.next_start_address, report.next_start_address);
    for (found, written) in records.iter().zip(&model.records) {
        assert_eq!((found.0, &found.1), (written.seqno, &written.payload));
    }
}

/// Runs a random history of several incarnations and checks a crash at about one in `every` changes.
fn run_history(seed: u64, every: u64, mappable: bool) {
    let memory = MemoryFs::new();
    memory.set_mappable(mappable);
    let model = Model::shared(mappable);
    let faulty = FaultFs::over_memory(&memory);
    let calls = Arc::new(AtomicU64::new(0));
    let callback = |salt: u64| -> Callback {
        let (memory, model, calls) = (memory.clone(), Arc::clone(&model), Arc::clone(&calls));
        Arc::new(move |_| {
            let number = calls.fetch_add(1, Ordering::Relaxed);
            let mut random = Random::new(seed ^ salt << 32 ^ number << 40);
            if random.one_in(every) {
                let model = model.lock().clone();
                check_crash(&memory, &model, random.next_u64());
            }
        })
    };
    faulty.add(Rule::new(Action::Call(callback(1))).on_changes());
    // Between the header of a record and its payload, and in the midst of either.
    faulty
        .add(Rule::new(Action::CallAfter { bytes: 17, callback: callback(2) }).on(&[Operation::MappedStore]));
    faulty.add(
        Rule::new(Action::CallAfter { bytes: 5000, callback: callback(3) })
            .on(&[Operation::Write])
            .path_ends_with(".log"),
    );
    let mut random = Random::new(seed);
    for _ in 0..1 + random.below(4) {
        let engine_random = Random::new(random.next_u64());
        let mut engine = Engine::open(faulty.shared(), Arc::clone(&model), engine_random);
        for _ in 0..random.below(80) {
            engine.step();
        }
        if random.one_in(4) {
            engine.log.close().unwrap();
            model.lock().acknowledged = engine.log.end_address();
        }
        drop(engine);
        if random.one_in(2) {
            memory.power_loss(random.next_u64());
            model.lock().power_was_lost = true;
        } else {
            memory.process_kill();
        }
    }
    model.lock().check(&memory.shared(), false).unwrap();
}

#[test]
fn crash_at_any_moment_keeps_what_was_promised() {
    for seed in seeds(60) {
        run_history(seed, 12, true);
    }
}

#[test]
fn without_a_mapping_what_was_secured_survives_a_kill() {
    for seed in seeds(60) {
        run_history(seed, 6, false);
    }
}

#[test]
fn a_kill_leaves_nothing_but_the_names_of_the_format() {
    let memory = MemoryFs::new();
    let model = Model::shared(true);
    let mut engine = Engine::open(memory.shared(), model, Random::new(5));
    for _ in 0..400 {
        engine.step();
    }
    for file in memory.files() {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        assert!(name == "ring" || name.ends_with(".log") || name.ends_with(".spare"), "{name}");
    }
    assert!(memory.exists(Path::new("/ring")).unwrap());
}
