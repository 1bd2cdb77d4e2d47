use std::collections::HashSet;

use super::*;
use crate::random::Random;

#[test]
fn buffers_keep_their_bytes_apart_through_a_random_history() {
    for seed in 0..4 {
        let mut random = Random::new(seed);
        let mut live: Vec<(Buffer, u8)> = Vec::new();
        for step in 0..20_000_u64 {
            if random.below(100) < 52 {
                let len = match random.below(100) {
                    0 => SLAB_BYTES,
                    1 => 40_000 + random.below(100_000) as usize,
                    2..20 => random.below(300) as usize,
                    _ => random.below(9000) as usize,
                };
                let mut buffer = Buffer::new(len);
                buffer.fill(step as u8);
                assert!(buffer.memory_bytes() >= len);
                assert!(len == 0 || (buffer.as_non_null().as_ptr() as usize).is_multiple_of(SLOT_ALIGN));
                live.push((buffer, step as u8));
            } else if !live.is_empty() {
                let (buffer, fill) = live.swap_remove(random.below(live.len() as u64) as usize);
                assert!(buffer.iter().all(|&byte| byte == fill), "seed {seed}, step {step}");
            }
        }
        assert!(live.iter().all(|(buffer, fill)| buffer.iter().all(|byte| byte == fill)), "seed {seed}");
    }
}

#[test]
fn threads_free_what_others_allocated() {
    let (sender, receiver) = std::sync::mpsc::channel::<Buffer>();
    std::thread::scope(|scope| {
        for thread in 0..3_u8 {
            let sender = sender.clone();
            scope.spawn(move || {
                for step in 0..5000 {
                    let mut buffer = Buffer::new(1000 + step % 700);
                    buffer.fill(thread);
                    sender.send(buffer).unwrap();
                }
            });
        }
        drop(sender);
        let mut received = 0;
        for buffer in receiver {
            assert!(buffer.iter().all(|&byte| byte == buffer[0]));
            received += 1;
        }
        assert_eq!(received, 15_000);
    });
}

#[test]
fn freed_slots_are_used_again() {
    // A size that no other test uses.
    let size = 31_000;
    let first: Vec<Buffer> = (0..40).map(|_| Buffer::new(size)).collect();
    let addresses: HashSet<usize> =
        first.iter().map(|buffer| buffer.as_non_null().as_ptr() as usize).collect();
    let partly: Vec<Buffer> = first.into_iter().step_by(2).collect();
    let second: Vec<Buffer> = (0..20).map(|_| Buffer::new(size)).collect();
    let again =
        second.iter().filter(|buffer| addresses.contains(&(buffer.as_non_null().as_ptr() as usize))).count();
    assert!(again >= 15 || cfg!(general_allocator), "{again} of 20");
    drop(partly);
}

#[test]
fn words_are_words() {
    let mut words = Buffer::<u64>::new(1000);
    words.iter_mut().zip(0..).for_each(|(word, number)| *word = number);
    assert!(words.iter().copied().eq(0..1000));
    assert_eq!(Buffer::copy_of(&words[10..20]).len(), 10);
    assert_eq!(Buffer::<u64>::default().memory_bytes(), 0);
    assert_eq!(format!("{:?}", Buffer::<u8>::copy_of(&[1, 2])), "[1, 2]");
}

/// Faults planted on purpose: `.ci/sanitize` runs each and fails if the sanitizer does *not* complain.
#[cfg(planted_fault)]
#[expect(unsafe_code, reason = "the fault is the point")]
mod planted_fault {
    use super::*;

    #[test]
    fn a_buffer_is_read_after_it_was_dropped() {
        let buffer = Buffer::<u8>::copy_of(b"gone soon");
        let start = buffer.as_non_null();
        drop(buffer);
        // SAFETY: none. The memory was given back.
        let byte = unsafe { start.as_ptr().read_volatile() };
        println!("read {byte}");
    }

    #[test]
    fn a_buffer_is_written_behind_its_end() {
        let buffer = Buffer::<u8>::copy_of(&[7; 64]);
        // SAFETY: none. The byte belongs to nobody.
        unsafe { buffer.as_non_null().as_ptr().add(buffer.memory_bytes()).write_volatile(1) };
    }

    #[test]
    fn two_threads_write_one_buffer() {
        let buffer = Buffer::<u64>::copy_of(&[0; 8]);
        let write = || {
            for n in 0..1000 {
                // SAFETY: none. The other thread writes the same word.
                unsafe { buffer.as_non_null().as_ptr().write_volatile(n) };
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(write);
            scope.spawn(write);
        });
    }
}
