//! One history under many sets of options: block sizes, compression, filters, memtables, levels, threads. Every answer must
//! be the same.
//!
//! The short form runs some histories under a few sets of options; `ALLUVIUM_SEEDS=500 ALLUVIUM_OPTIONS=20` the long one.
#![allow(
    clippy::expect_used,
    clippy::panic,
    reason = "a test says what it expects and fails where it is not so"
)]

use alluvium_tests::number;
use alluvium_tests::simulation::{Weather, plan, run};

#[test]
fn any_options_give_the_same_answers() {
    let (first, seeds) = (number("ALLUVIUM_FIRST_SEED", 1), number("ALLUVIUM_SEEDS", 8));
    let sets = number("ALLUVIUM_OPTIONS", 4);
    for seed in first..first + seeds {
        let history = plan(seed, 400, Weather::Fair);
        let mut transcripts = Vec::new();
        for options in 0..sets {
            let outcome = std::panic::catch_unwind(|| run(seed, seed * 1000 + options, &history));
            let Ok(outcome) = outcome else { panic!("seed {seed} fails under option set {options}") };
            transcripts.push(outcome.transcript);
        }
        assert!(
            transcripts.windows(2).all(|pair| pair[0] == pair[1]),
            "seed {seed}: answers depend on the options: {transcripts:?}"
        );
    }
    println!("{seeds} histories, each the same under {sets} sets of options");
}
