//! Every fuzz target on this toolchain: its seeds, the corpus and the regressions in `tests/fuzz`, then mutations of them
//! for some seconds. The oracles are in the targets; here memory is watched.
//!
//! The short form takes five seconds over all targets; `ALLUVIUM_FUZZ_SECONDS=600` is the long form. A failure writes its
//! input to a file and names it: put it into `tests/fuzz/regressions/<target>/`, and it is replayed for ever.
#![allow(clippy::panic, reason = "a test says what it expects and fails where it is not so")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use alluvium::base::memory;
use alluvium::base::random::Random;
use alluvium_tests::fuzz::mutate::mutate;
use alluvium_tests::fuzz::{TARGETS, Target};
use alluvium_tests::sources::root;

/// Counts what the general allocator hands out.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

fn grow(bytes: usize) {
    let live = LIVE.fetch_add(bytes, Ordering::Relaxed) + bytes;
    PEAK.fetch_max(live, Ordering::Relaxed);
}

// SAFETY: everything is handed on to the system's allocator unchanged.
#[expect(unsafe_code, reason = "an allocator that counts")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grow(layout.size());
        // SAFETY: the caller's promises are handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are handed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        grow(new_size);
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's promises are handed on.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Memory that an input may take beside four times its length, in bytes.
const MEMORY_BYTES: usize = 64 << 20;

/// Runs one input; a failure is told with the file that holds it.
fn run(target: &Target, input: &[u8]) {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let mapped_before = memory::statistics().large_bytes;
    let outcome = std::panic::catch_unwind(|| (target.run)(input));
    let taken = PEAK.load(Ordering::Relaxed) - before;
    let mapped = memory::statistics().large_bytes.saturating_sub(mapped_before) as usize;
    let limit = 4 * input.len() + MEMORY_BYTES;
    if outcome.is_err() || taken + mapped > limit {
        let file = std::env::temp_dir().join(format!("fuzz-{}-{}", target.name, std::process::id()));
        let _ = std::fs::write(&file, input);
        panic!(
            "{}: {} with the input in {} ({} bytes; memory {taken} + {mapped}, limit {limit})",
            target.name,
            if outcome.is_err() { "an oracle does not hold" } else { "it takes too much memory" },
            file.display(),
            input.len()
        );
    }
}

fn folder(kind: &str, target: &Target) -> PathBuf {
    root().join("tests/fuzz").join(kind).join(target.name)
}

fn inputs_in(folder: &Path) -> Vec<Vec<u8>> {
    let mut paths: Vec<PathBuf> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
        .iter()
        .map(|path| std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        .collect()
}

/// Seeds, corpus and regressions.
fn inputs(target: &Target) -> Vec<Vec<u8>> {
    let mut inputs = (target.seeds)();
    assert!(!inputs.is_empty(), "{} has no seed", target.name);
    inputs.extend(["corpus", "regressions"].iter().flat_map(|kind| inputs_in(&folder(kind, target))));
    inputs
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn seeds_regressions_and_mutations_keep_every_oracle() {
    let only = std::env::var("ALLUVIUM_FUZZ_TARGET").ok();
    let targets: Vec<&Target> =
        TARGETS.iter().filter(|target| only.as_ref().is_none_or(|only| only == target.name)).collect();
    let each = Duration::from_secs(number("ALLUVIUM_FUZZ_SECONDS", 5)) / targets.len().max(1) as u32;
    for target in targets {
        let mut pool = inputs(target);
        pool.iter().for_each(|input| run(target, input));
        let mut random = Random::new(number("ALLUVIUM_FIRST_SEED", 1));
        let (start, mut runs) = (Instant::now(), pool.len());
        while start.elapsed() < each {
            let (at, other) = (random.index(pool.len()), random.index(pool.len()));
            let input = mutate(&mut random, &pool[at], &pool[other]);
            run(target, &input);
            runs += 1;
            // Without coverage to follow, mutations of mutations are kept by chance.
            if random.one_in(64) {
                let at = if pool.len() < 256 { pool.len() } else { random.index(pool.len()) };
                pool.truncate(256);
                if at < pool.len() { pool[at] = input } else { pool.push(input) }
            }
        }
        println!("{}: {runs} runs", target.name);
    }
}

#[test]
fn every_target_has_a_libfuzzer_program() {
    for target in &TARGETS {
        let path = root().join(format!("tests/fuzz/fuzz_targets/{}.rs", target.name));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(text.contains(&format!("run(\"{}\"", target.name)), "{} runs something else", path.display());
    }
}

#[test]
#[ignore = "writes the seeds for libFuzzer: cargo test -p alluvium-tests --test fuzz_replay -- --ignored write_the_seeds"]
fn write_the_seeds() {
    for target in &TARGETS {
        let folder = folder("corpus", target);
        std::fs::create_dir_all(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for (number, seed) in (target.seeds)().iter().enumerate() {
            let path = folder.join(format!("seed-{number:02}"));
            std::fs::write(&path, seed).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        }
    }
}
