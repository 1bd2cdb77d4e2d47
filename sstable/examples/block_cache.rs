//! Measures the block cache: what a hit costs, and which share of lookups hit.
//!
//! ```text
//! cargo run --release -p alluvium-sstable --example block_cache -- cost    # nanoseconds per hit, miss and insert
//! cargo run --release -p alluvium-sstable --example block_cache -- trace   # hit ratio against LRU and CLOCK
//! cargo run --release -p alluvium-sstable --example block_cache -- shards  # hit ratio and speed by number of shards
//! ```
//!
//! The traces draw blocks by Zipf's law, mixed with scans over runs of neighbouring blocks; all from fixed seeds.
//! Results are recorded in `design/decisions/0004-block-cache.md`.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use alluvium_base::clock::SystemClock;
use alluvium_base::random::Random;
use alluvium_base::sync::WaitStatistics;
use alluvium_sstable::cache::{
    BlockClass, BlockKey, Cache, CacheOptions, Charge, ENTRY_OVERHEAD_BYTES, FillPolicy,
};

const BLOCK_BYTES: usize = 4096;

/// A block that holds its bytes, for measuring memory accesses, or only claims to, for replaying traces.
struct Block {
    bytes: Vec<u8>,
}

impl Charge for Block {
    fn charge(&self) -> usize {
        BLOCK_BYTES
    }
}

type BlockCache = Cache<Block>;

fn cache_of(entries: usize, cpus: usize) -> Arc<BlockCache> {
    let options = CacheOptions {
        capacity_bytes: entries * (BLOCK_BYTES + ENTRY_OVERHEAD_BYTES),
        cpus,
        average_entry_bytes: BLOCK_BYTES,
    };
    Cache::new(options, SystemClock::shared(), Arc::new(WaitStatistics::default()))
}

fn key(block: u64) -> BlockKey {
    BlockKey { file_id: 1 + block / 16_384, offset: block % 16_384 * BLOCK_BYTES as u64 }
}

fn main() {
    match std::env::args().nth(1).as_deref() {
        Some("cost") => cost(),
        Some("trace") => trace(),
        Some("shards") => shards(),
        _ => eprintln!("which of: cost, trace, shards"),
    }
}

/// Runs `operation` `count` times on each of `threads` threads; nanoseconds until all are done, the median of five
/// rounds.
fn nanos(threads: u64, count: u64, operation: impl Fn(u64, u64) + Sync) -> f64 {
    let clock = SystemClock::shared();
    let mut rounds = [(); 5].map(|()| {
        let start = Barrier::new(threads as usize + 1);
        let began = thread::scope(|scope| {
            for thread in 0..threads {
                let (start, operation) = (&start, &operation);
                scope.spawn(move || {
                    start.wait();
                    (0..count).for_each(|n| operation(thread, n));
                });
            }
            start.wait();
            clock.monotonic_nanos()
        });
        (clock.monotonic_nanos() - began) as f64
    });
    rounds.sort_by(f64::total_cmp);
    rounds[2]
}

fn cost() {
    const ENTRIES: u64 = 200_000;
    let cache = cache_of(ENTRIES as usize + 1000, 2);
    let fill = || {
        for block in 0..ENTRIES {
            cache.insert(key(block), BlockClass::Data, &Arc::new(Block { bytes: vec![1; BLOCK_BYTES] }));
        }
    };
    fill();
    let lookup = |block: u64| {
        let load = || Ok(Arc::new(Block { bytes: vec![1; BLOCK_BYTES] }));
        let found = cache.get_or_load(key(block), BlockClass::Data, FillPolicy::Fill, load);
        black_box(found.map(|block| block.bytes.len()).unwrap_or_default());
    };
    // A multiplicative generator that costs next to nothing.
    let uniform = |thread: u64, n: u64| {
        let mixed = (n + thread * 0x1234_5678).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        lookup(((u128::from(mixed) * u128::from(ENTRIES)) >> 64) as u64);
    };
    println!("{ENTRIES} blocks of 4 KiB, {} shards; ns per operation of each thread", cache.shards());
    let nothing = Arc::new(Block { bytes: Vec::new() });
    let fresh = AtomicU64::new(0);
    for threads in [1, 2] {
        let report = |what: &str, count: u64, operation: &(dyn Fn(u64, u64) + Sync)| {
            println!(
                "  {threads} threads: {what:18} {:7.1}",
                nanos(threads, count, operation) / count as f64
            );
        };
        report("one hot block", 10_000_000, &|_, _| lookup(7));
        report("own hot block", 10_000_000, &|thread, _| lookup(thread * 1000));
        report("64 hot blocks", 10_000_000, &|_, n| lookup(n.wrapping_mul(0x9e37_79b9) >> 8 & 63));
        report("uniform", 2_000_000, &uniform);
        report("miss, not filled", 1_000_000, &|thread, n| {
            let key = BlockKey { file_id: 1000 + thread, offset: n };
            let load = || Ok(Arc::clone(&nothing));
            black_box(cache.get_or_load(key, BlockClass::Data, FillPolicy::NoFill, load).is_ok());
        });
        report("miss and evict", 1_000_000, &|_, _| {
            let key = BlockKey { file_id: 2000, offset: fresh.fetch_add(4096, Ordering::Relaxed) };
            let load = || Ok(Arc::new(Block { bytes: Vec::new() }));
            black_box(cache.get_or_load(key, BlockClass::Data, FillPolicy::Fill, load).is_ok());
        });
        // The misses pushed the blocks out.
        fill();
    }
}

/// Draws by Zipf's law: the k-th most popular of `n` with a probability proportional to k^-exponent.
struct Zipf {
    cumulated: Vec<f64>,
}

impl Zipf {
    fn new(n: usize, exponent: f64) -> Zipf {
        let mut sum = 0.0;
        let cumulated = (1..=n)
            .map(|k| {
                sum += (k as f64).powf(-exponent);
                sum
            })
            .collect();
        Zipf { cumulated }
    }

    fn draw(&self, random: &mut Random) -> u64 {
        let total = self.cumulated.last().copied().unwrap_or(0.0);
        let point = (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64 * total;
        self.cumulated.partition_point(|&sum| sum < point) as u64
    }
}

struct Workload {
    name: &'static str,
    exponent: f64,
    /// Share of lookups that belong to scans, in percent.
    scan_percent: u64,
    scan_blocks: u64,
    /// The popular blocks change: after this many lookups another tenth of the blocks has been shuffled.
    drift: Option<usize>,
}

const BLOCKS: u64 = 200_000;
const LOOKUPS: usize = 4_000_000;

#[rustfmt::skip]
const WORKLOADS: &[Workload] = &[
    Workload { name: "zipf 0.8",                     exponent: 0.8, scan_percent: 0,  scan_blocks: 1,      drift: None },
    Workload { name: "zipf 1.0",                     exponent: 1.0, scan_percent: 0,  scan_blocks: 1,      drift: None },
    Workload { name: "zipf 1.0, scans of 100",       exponent: 1.0, scan_percent: 50, scan_blocks: 100,    drift: None },
    Workload { name: "zipf 1.0, scans of 50,000",    exponent: 1.0, scan_percent: 50, scan_blocks: 50_000, drift: None },
    Workload { name: "zipf 1.0, drifting",           exponent: 1.0, scan_percent: 0,  scan_blocks: 1,      drift: Some(100_000) },
    Workload { name: "zipf 1.0, drifting, scans",    exponent: 1.0, scan_percent: 30, scan_blocks: 5_000,  drift: Some(100_000) },
];

/// The blocks looked up, in order; true marks those of scans.
fn lookups(workload: &Workload) -> Vec<(u64, bool)> {
    let zipf = Zipf::new(BLOCKS as usize, workload.exponent);
    let mut random = Random::new(42);
    let mut by_rank: Vec<u64> = (0..BLOCKS).collect();
    for rank in (1..by_rank.len()).rev() {
        by_rank.swap(rank, random.index(rank + 1));
    }
    let mut scan = 0..0;
    let scans_per_point = workload.scan_percent as f64 / (100.0 - workload.scan_percent as f64);
    let mut owed = 0.0;
    let mut points = 0;
    let mut all = Vec::with_capacity(LOOKUPS);
    while all.len() < LOOKUPS {
        all.push((by_rank[zipf.draw(&mut random) as usize], false));
        points += 1;
        owed += scans_per_point;
        while owed >= 1.0 {
            owed -= 1.0;
            if scan.is_empty() {
                let start = random.below(BLOCKS - workload.scan_blocks);
                scan = start..start + workload.scan_blocks;
            }
            all.extend(scan.next().map(|block| (block, true)));
        }
        if workload.drift.is_some_and(|every| points % every == 0) {
            for _ in 0..BLOCKS / 20 {
                let (a, b) = (random.index(by_rank.len()), random.index(by_rank.len()));
                by_rank.swap(a, b);
            }
        }
    }
    all
}

/// Looks a block up and caches it; true for a hit.
trait Policy {
    fn lookup(&mut self, block: u64) -> bool;
}

struct Ours(Arc<BlockCache>);

impl Policy for Ours {
    fn lookup(&mut self, block: u64) -> bool {
        let mut hit = true;
        let load = || {
            hit = false;
            Ok(Arc::new(Block { bytes: Vec::new() }))
        };
        black_box(self.0.get_or_load(key(block), BlockClass::Data, FillPolicy::Fill, load).is_ok());
        hit
    }
}

/// Least recently used, exactly.
struct Lru {
    entries_max: usize,
    now: u64,
    used_at: HashMap<u64, u64>,
    by_use: BTreeMap<u64, u64>,
}

impl Policy for Lru {
    fn lookup(&mut self, block: u64) -> bool {
        self.now += 1;
        let before = self.used_at.insert(block, self.now);
        before.map(|before| self.by_use.remove(&before));
        self.by_use.insert(self.now, block);
        if self.used_at.len() > self.entries_max {
            self.by_use.pop_first().map(|(_, block)| self.used_at.remove(&block));
        }
        before.is_some()
    }
}

/// A queue in which a used block gets another round, up to three.
struct Clock3 {
    entries_max: usize,
    uses: HashMap<u64, u8>,
    queue: VecDeque<u64>,
}

impl Policy for Clock3 {
    fn lookup(&mut self, block: u64) -> bool {
        if let Some(uses) = self.uses.get_mut(&block) {
            *uses = (*uses + 1).min(3);
            return true;
        }
        while self.uses.len() >= self.entries_max {
            let Some(oldest) = self.queue.pop_front() else { break };
            match self.uses.get_mut(&oldest) {
                Some(uses) if *uses > 0 => {
                    *uses -= 1;
                    self.queue.push_back(oldest);
                }
                _ => _ = self.uses.remove(&oldest),
            }
        }
        self.uses.insert(block, 0);
        self.queue.push_back(block);
        false
    }
}

/// Shares of all lookups, and of those that belong to no scan, that hit; the first quarter warms up.
fn replay(policy: &mut dyn Policy, lookups: &[(u64, bool)]) -> (f64, f64) {
    let (mut hits, mut total, mut point_hits, mut points) = (0, 0, 0, 0);
    for (number, &(block, scan)) in lookups.iter().enumerate() {
        let hit = policy.lookup(block);
        if number >= lookups.len() / 4 {
            total += 1;
            hits += u64::from(hit);
            points += u64::from(!scan);
            point_hits += u64::from(hit && !scan);
        }
    }
    (100.0 * hits as f64 / total as f64, 100.0 * point_hits as f64 / points as f64)
}

/// Twenty rounds over some blocks, four fifths of what the cache holds, then over others: what an adaptive cache has
/// learnt is wrong again and again.
fn moving_loops(entries_max: usize) -> Vec<(u64, bool)> {
    const ROUNDS: u64 = 20;
    let length = entries_max as u64 * 4 / 5;
    let block = |n: u64| (n / (length * ROUNDS) * length + n % length, false);
    (0..LOOKUPS as u64).map(block).collect()
}

fn trace() {
    println!("hit ratio in percent, of all lookups / of those outside scans; {BLOCKS} blocks");
    println!("{:28} {:>8}   {:>13} {:>13} {:>13}", "workload", "cached", "LRU", "CLOCK", "ours");
    for workload in WORKLOADS {
        let lookups = lookups(workload);
        for share in [50, 10, 4] {
            compare(workload.name, share, &lookups);
        }
    }
    for share in [50, 10] {
        compare("moving loops", share, &moving_loops((BLOCKS / share) as usize));
    }
}

fn compare(name: &str, share: u64, lookups: &[(u64, bool)]) {
    let entries_max = (BLOCKS / share) as usize;
    let mut policies: [Box<dyn Policy>; 3] = [
        Box::new(Lru { entries_max, now: 0, used_at: HashMap::new(), by_use: BTreeMap::new() }),
        Box::new(Clock3 { entries_max, uses: HashMap::new(), queue: VecDeque::new() }),
        Box::new(Ours(cache_of(entries_max, 2))),
    ];
    print!("{name:28} {:7}%   ", 100 / share);
    for policy in &mut policies {
        let (all, points) = replay(&mut **policy, lookups);
        print!("{all:5.1} / {points:5.1} ");
    }
    println!();
}

/// RocksDB #10626: a cache of 89 MB did 5 thousand operations a second in 64 shards, 1,224 thousand in 2.
const SHARDS_CAPACITY_BYTES: usize = 89 << 20;

fn shards() {
    let entries_max = SHARDS_CAPACITY_BYTES / (BLOCK_BYTES + ENTRY_OVERHEAD_BYTES);
    println!("{}, {entries_max} of {BLOCKS} blocks cached; automatic is marked *", WORKLOADS[3].name);
    println!("shards  hit ratio   million lookups/s, 2 threads   128 threads   lock waits   fullest/mean");
    let lookups = lookups(&WORKLOADS[3]);
    let automatic = cache_of(entries_max, 2).shards();
    for shards in [1, 2, 4, 8, 16, 32, 64] {
        let cache = cache_of(entries_max, 2);
        cache.set_shards(shards);
        let (ratio, _) = replay(&mut Ours(Arc::clone(&cache)), &lookups);
        let speed = |threads: u64| {
            let count = LOOKUPS as u64 / threads;
            let nanos = nanos(threads, count, |thread, n| {
                let (block, _) = lookups[(thread * count + n) as usize];
                Ours(Arc::clone(&cache)).lookup(block);
            });
            (threads * count) as f64 * 1000.0 / nanos
        };
        let (two, many) = (speed(2), speed(128));
        let statistics = cache.statistics();
        let bytes = statistics.shards.iter().map(|shard| shard.bytes);
        let skew = bytes.clone().max().unwrap_or(0) as f64 * shards as f64 / bytes.sum::<u64>() as f64;
        let mark = if shards == automatic { '*' } else { ' ' };
        println!(
            "{shards:5}{mark} {ratio:9.2}% {two:30.2} {many:13.2} {:12} {skew:14.2}",
            statistics.lock_waits
        );
    }
}
