//! `alluvium_tests::fuzz`, target `manifest_file`, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| alluvium_tests::fuzz::run("manifest_file", bytes));
