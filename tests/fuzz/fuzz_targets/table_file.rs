//! `alluvium_tests::fuzz`, target `table_file`, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| alluvium_tests::fuzz::run("table_file", bytes));
