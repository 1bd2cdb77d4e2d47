//! `alluvium_tests::fuzz`, target `key`, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| alluvium_tests::fuzz::run("key", bytes));
