//! `alluvium_tests::fuzz`, target `prefix_filter`, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| alluvium_tests::fuzz::run("prefix_filter", bytes));
