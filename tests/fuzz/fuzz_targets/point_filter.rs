//! `alluvium_tests::fuzz`, target `point_filter`, under libFuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| alluvium_tests::fuzz::run("point_filter", bytes));
