//! Random histories of a whole database under crashes and faults, beside an oracle. See `alluvium_tests::simulation`.
//!
//! The short form runs some seeds; `ALLUVIUM_SEEDS=10000 ALLUVIUM_STEPS=1000` the long one. A failure names its seed;
//! `ALLUVIUM_FIRST_SEED=n ALLUVIUM_SEEDS=1 ALLUVIUM_REDUCE=1` shortens its history and prints the steps that are left;
//! `ALLUVIUM_TRACE=1` says on the way what happens.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects and fails where it is not so"
)]

use alluvium_tests::number;
use alluvium_tests::simulation::{Outcome, Weather, fails, plan, reduce, run};

#[test]
fn nothing_acknowledged_is_lost_and_every_answer_is_right() {
    let (first, seeds) = (number("ALLUVIUM_FIRST_SEED", 1), number("ALLUVIUM_SEEDS", 60));
    let steps = number("ALLUVIUM_STEPS", 500) as usize;
    let mut total = Outcome::default();
    for seed in first..first + seeds {
        let history = plan(seed, steps, Weather::Foul);
        let outcome = std::panic::catch_unwind(|| run(seed, seed, &history));
        let Ok(outcome) = outcome else {
            if number("ALLUVIUM_REDUCE", 0) == 1 {
                let shorter = reduce(seed, seed, &history);
                eprintln!("seed {seed}: {} of {steps} steps still fail:", shorter.len());
                shorter.iter().for_each(|step| eprintln!("  {step:?}"));
                let _ = fails(seed, seed, &shorter);
            }
            panic!(
                "seed {seed} fails; ALLUVIUM_FIRST_SEED={seed} ALLUVIUM_SEEDS=1 ALLUVIUM_STEPS={steps} \
                 ALLUVIUM_REDUCE=1 runs it alone and shortens it"
            );
        };
        total.crashes += outcome.crashes;
        total.errors += outcome.errors;
    }
    println!(
        "{seeds} seeds of {steps} steps: {} crashes, {} errors reached the caller, all as they should be",
        total.crashes, total.errors
    );
    let enough = total.crashes > seeds / 2 && total.errors > 0;
    assert!(enough || seeds < 20, "too little went wrong: {total:?}");
}

#[test]
fn a_history_replays_from_its_seed() {
    for seed in [7, 8] {
        let history = plan(seed, 200, Weather::Foul);
        let first = run(seed, seed, &history);
        assert_eq!(run(seed, seed, &history), first, "the second run of seed {seed} differs");
        assert_eq!(run(seed, seed, &history), first, "the third run of seed {seed} differs");
    }
}
