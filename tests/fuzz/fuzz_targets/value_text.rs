//! `alluvium_tests::fuzz`, target `value_text`, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| alluvium_tests::fuzz::run("value_text", bytes));
