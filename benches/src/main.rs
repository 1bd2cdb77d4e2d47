//! Measures Alluvium. The rivals are in `benches/compare`.

use alluvium_benches::engine::AlluviumFactory;
use alluvium_benches::{Arguments, run};
use clap::Parser;

fn main() -> std::process::ExitCode {
    match run(&Arguments::parse(), &[Box::new(AlluviumFactory)]) {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("alluvium-bench: {error}");
            std::process::ExitCode::FAILURE
        }
    }
}
