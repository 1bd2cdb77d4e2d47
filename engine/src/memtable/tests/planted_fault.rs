//! Faults planted on purpose: `.ci/sanitize` runs each and fails if the sanitizer does *not* complain.
#![expect(unsafe_code, reason = "the fault is the point")]

use super::{Memtable, get, put};

#[test]
fn a_value_is_read_after_its_memtable_was_dropped() {
    let memtable = Memtable::new(1 << 20);
    put(&memtable, b"key", 1, &[7; 100]);
    let start = get(&memtable, b"key", 1).unwrap().1.as_ptr();
    drop(memtable);
    // SAFETY: none. The arena is gone.
    let byte = unsafe { start.read_volatile() };
    println!("read {byte}");
}

#[test]
fn an_entry_is_written_after_it_was_published() {
    let memtable = Memtable::new(1 << 20);
    put(&memtable, b"key", 1, &[7; 100]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let start = get(&memtable, b"key", 1).unwrap().1.as_ptr().cast_mut();
            // SAFETY: none. Another thread reads what is written.
            (0..1000).for_each(|n| unsafe { start.write_volatile(n as u8) });
        });
        scope.spawn(|| {
            let sum: u64 = (0..1000).map(|_| u64::from(get(&memtable, b"key", 1).unwrap().1[0])).sum();
            println!("{sum}");
        });
    });
}
