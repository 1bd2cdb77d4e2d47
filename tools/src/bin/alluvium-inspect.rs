//! `alluvium-inspect`: see `alluvium-inspect --help`.

use std::io::{BufWriter, Write};
use std::process::ExitCode;

use alluvium_tools::inspect;
use alluvium_tools::inspect::cli::Args;
use alluvium_tools::inspect::output::Look;
use clap::Parser;

fn main() -> ExitCode {
    let args = Args::parse();
    let mut output = BufWriter::new(std::io::stdout().lock());
    let code = inspect::run(&args, Look::of_standard_output(), &mut output);
    // All is written or has failed already.
    let _ = output.flush();
    ExitCode::from(code)
}
