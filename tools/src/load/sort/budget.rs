//! How one memory budget is divided: a pure function of the budget, the threads and the number of targets.
//!
//! A quarter goes to the open buffers of the workers (one per worker and target), half to the sealed runs that wait
//! in memory, and the last quarter to everything that moves: blocks and batches of the input, the blocks of a spill
//! being written, and the blocks that a merge has open.

/// Least budget, in bytes (16 MiB).
pub const MEMORY_BYTES_MIN: u64 = 16 << 20;

/// Buffers larger than this gain nothing: a run of 4 MiB sorts within the second-level cache's reach, and the merge
/// is as fast over a few hundred runs.
const BUFFER_BYTES_BEST: u64 = 4 << 20;
/// Smaller buffers would seal so often that sealing costs more than filling.
const BUFFER_BYTES_MIN: u64 = 16 << 10;
/// Size of a spilled block before compression, where the budget allows it: large enough that a merge reads in
/// stretches, small enough that hundreds can be open.
const BLOCK_BYTES_BEST: u64 = 64 << 10;
const BLOCK_BYTES_MIN: u64 = 4 << 10;
const FAN_IN_MAX: u64 = 512;

/// The shares of one budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Size of each worker's buffer per target, in bytes.
    pub buffer_bytes: usize,
    /// Most bytes of sealed runs in memory before some are spilled.
    pub runs_bytes: usize,
    /// Size of a spilled block before compression, in bytes.
    pub block_bytes: usize,
    /// Most runs on disk that one merge reads at once.
    pub fan_in: usize,
}

/// Divides `memory_bytes` between `threads` workers and `targets` sorts.
///
/// # Errors
/// The least number of bytes that would do, if this is too little.
pub fn divide(memory_bytes: u64, threads: usize, targets: usize) -> Result<Budget, u64> {
    let buffers = (threads * targets) as u64;
    let least = MEMORY_BYTES_MIN.max(4 * BUFFER_BYTES_MIN * buffers);
    if memory_bytes < least {
        return Err(least);
    }
    let quarter = memory_bytes / 4;
    let block = (memory_bytes / 1024).clamp(BLOCK_BYTES_MIN, BLOCK_BYTES_BEST);
    // A cursor holds its block twice (stored and unpacked), and as many merges run as there are threads.
    let fan_in = quarter / (2 * block * threads as u64);
    Ok(Budget {
        buffer_bytes: (quarter / buffers).min(BUFFER_BYTES_BEST) as usize,
        runs_bytes: (memory_bytes / 2) as usize,
        block_bytes: block as usize,
        fan_in: fan_in.clamp(2, FAN_IN_MAX) as usize,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_never_exceed_the_budget() {
        for memory in [16 << 20, 64 << 20, 1 << 30, 1 << 36] {
            for threads in [1, 2, 16, 64] {
                for targets in [1, 5, 257] {
                    let Ok(budget) = divide(memory, threads, targets) else { continue };
                    let open = budget.buffer_bytes * threads * targets;
                    let cursors = 2 * budget.block_bytes * budget.fan_in * threads;
                    assert!(
                        open + budget.runs_bytes <= memory as usize * 3 / 4,
                        "{memory} {threads} {targets}"
                    );
                    assert!(cursors <= (memory as usize / 4).max(4 * BLOCK_BYTES_BEST as usize * threads));
                }
            }
        }
    }

    #[test]
    fn too_little_is_refused_with_what_would_do() {
        assert_eq!(divide(1 << 20, 2, 5), Err(16 << 20));
        let least = divide(16 << 20, 64, 257).unwrap_err();
        assert!(divide(least, 64, 257).is_ok());
    }

    #[test]
    fn a_common_load_gets_the_best_sizes() {
        let budget = divide(1 << 30, 2, 5).unwrap();
        assert_eq!(budget.buffer_bytes as u64, BUFFER_BYTES_BEST);
        assert_eq!(budget.block_bytes as u64, BLOCK_BYTES_BEST);
        assert_eq!(budget.fan_in as u64, FAN_IN_MAX);
    }
}
