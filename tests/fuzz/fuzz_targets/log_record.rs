//! `alluvium_tests::fuzz`, target `log_record`, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| alluvium_tests::fuzz::run("log_record", bytes));
