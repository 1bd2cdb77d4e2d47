//! What is fuzzed: every parser of bytes, one [`Target`] each.
//!
//! The bodies are plain functions, so that the same code runs in two ways: `tests/tests/fuzz_replay.rs` replays seeds and
//! regressions and mutates them for some seconds, on any toolchain; the nested workspace `tests/fuzz` hands the functions
//! to libFuzzer, which follows the branches that an input takes.
//!
//! A target panics if an oracle does not hold. Not panicking is the first one; the others are: what is decoded encodes to
//! something that decodes to the same; where the format has one encoding per value, to the same bytes; what is ordered
//! comes out in order; and (the replay watches it) memory stays within four times the input and 64 MiB.
//!
//! Checksums would keep nearly every mutation out. Where a format has them, the target puts them right first: it stands
//! for bytes that were damaged before they were written, or made by somebody who knows the format.

mod files;
pub mod mutate;
mod parts;
mod rows;
mod texts;

/// One thing that is fuzzed.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its folders of inputs.
    pub name: &'static str,
    /// Takes any bytes; panics if an oracle does not hold.
    pub run: fn(&[u8]),
    /// Inputs to begin with, made by the real writers.
    pub seeds: fn() -> Vec<Vec<u8>>,
}

/// All targets.
pub const TARGETS: [Target; 16] = [
    Target { name: "log_record", run: parts::log_record, seeds: parts::log_record_seeds },
    Target { name: "log_payload", run: parts::log_payload, seeds: parts::log_payload_seeds },
    Target { name: "log_files", run: files::log_files, seeds: files::patch_seeds },
    Target { name: "manifest_edit", run: parts::manifest_edit, seeds: parts::manifest_edit_seeds },
    Target { name: "manifest_file", run: files::manifest_file, seeds: parts::manifest_edit_seeds },
    Target { name: "block", run: parts::block, seeds: parts::block_seeds },
    Target { name: "compressed", run: parts::compressed, seeds: parts::compressed_seeds },
    Target { name: "point_filter", run: parts::point_filter, seeds: parts::point_filter_seeds },
    Target { name: "prefix_filter", run: parts::prefix_filter, seeds: parts::prefix_filter_seeds },
    Target { name: "table_file", run: files::table_file, seeds: files::patch_seeds },
    Target { name: "row", run: rows::row, seeds: rows::row_seeds },
    Target { name: "key", run: rows::key, seeds: rows::key_seeds },
    Target { name: "schema", run: rows::schema, seeds: rows::schema_seeds },
    Target { name: "continuation", run: rows::continuation, seeds: rows::continuation_seeds },
    Target { name: "csv", run: texts::csv, seeds: texts::csv_seeds },
    Target { name: "value_text", run: texts::value_text, seeds: texts::value_text_seeds },
];

/// Runs a target by its name; what libFuzzer calls.
///
/// # Panics
/// If there is no such target, or an oracle does not hold.
pub fn run(name: &str, bytes: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    assert!(target.is_some(), "there is no target {name}");
    if let Some(target) = target {
        (target.run)(bytes);
    }
}
