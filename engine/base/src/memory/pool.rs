//! Where slots come from: slabs of one size each, carved out of large mappings.
//!
//! One pool for the whole process, since memory that one database frees is as good for another. Each size has a lock of
//! its own, held for some ten nanoseconds. A slot comes from the lowest slab that has a free one: use gathers in few
//! slabs, and the others empty out (the first fit by address of Wilson et al., "Dynamic Storage Allocation: A Survey and
//! Critical Review", 1995). An empty slab may be taken by any size. As many as are in use may wait for one and
//! stay resident, since the next memtable needs them again (a page that is given back costs 0.7 µs to touch anew); the rest
//! goes back to the machine. New slabs are made only when none waits, so what is resident never exceeds what was once in
//! use at the same time, and each size keeps at most one slab that is empty.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::MemoryStatistics;
use super::classes::{CLASSES, SLAB_BYTES, SLOT_ALIGN, SLOTS_MAX, class_of, slot_bytes};
use crate::fs::anonymous::AnonymousMapping;
use crate::sync::Mutex;

/// Slabs of one mapping: 128 MiB. Untouched pages take no room, so a small process does not pay for it.
const SLABS_PER_REGION: usize = 512;
/// Mappings at most: 512 GiB in all. Beyond that, every piece is a mapping of its own.
const REGIONS_MAX: usize = 1 << 12;
/// Empty slabs that stay resident in any case: 4 MiB.
const SPARE_SLABS_MIN: usize = 16;

/// The slab number of memory that lies in no slab.
pub(super) const NO_SLAB: u32 = u32::MAX;

/// Which slots of a slab are free. Its lock is taken under that of its size.
struct SlabState {
    class: usize,
    free_slots: usize,
    /// Bit set = free.
    bits: [u64; SLOTS_MAX / 64],
}

impl SlabState {
    const UNUSED: SlabState = SlabState { class: 0, free_slots: 0, bits: [0; SLOTS_MAX / 64] };

    fn slots(class: usize) -> usize {
        SLAB_BYTES / slot_bytes(class)
    }

    /// Becomes a slab of free slots of size `class`.
    fn reset(&mut self, class: usize) {
        let slots = SlabState::slots(class);
        self.class = class;
        self.free_slots = slots;
        for (number, word) in self.bits.iter_mut().enumerate() {
            *word = match slots.saturating_sub(number * 64) {
                0 => 0,
                rest if rest >= 64 => u64::MAX,
                rest => (1 << rest) - 1,
            };
        }
    }

    fn take(&mut self) -> Option<usize> {
        let (number, word) = self.bits.iter_mut().enumerate().find(|(_, word)| **word != 0)?;
        let bit = word.trailing_zeros() as usize;
        *word &= *word - 1;
        self.free_slots -= 1;
        Some(number * 64 + bit)
    }

    fn give(&mut self, slot: usize) {
        if let Some(word) = self.bits.get_mut(slot / 64) {
            debug_assert!(*word >> (slot % 64) & 1 == 0, "a slot is freed twice");
            *word |= 1 << (slot % 64);
            self.free_slots += 1;
        }
    }

    fn is_empty(&self) -> bool {
        self.free_slots == SlabState::slots(self.class)
    }
}

struct Region {
    mapping: AnonymousMapping,
    slabs: Box<[Mutex<SlabState>]>,
}

impl Region {
    fn new() -> Option<Region> {
        let mapping = AnonymousMapping::new(SLABS_PER_REGION * SLAB_BYTES)?;
        let slabs = (0..SLABS_PER_REGION).map(|_| Mutex::new(SlabState::UNUSED)).collect();
        Some(Region { mapping, slabs })
    }
}

/// The slabs of one size that have a free slot. Nearly all work happens in `current`.
struct Class {
    current: Option<u32>,
    partial: BTreeSet<u32>,
}

/// Slabs of no size.
struct Spare {
    /// Still resident, the last freed at the back.
    resident: VecDeque<u32>,
    given_back: BTreeSet<u32>,
    /// Slabs from this number on were never used.
    fresh: u32,
    /// Slabs that have a size.
    in_use: usize,
}

impl Spare {
    /// The longest unused slab, if too many are resident.
    fn surplus(&mut self) -> Option<u32> {
        let too_many = self.resident.len() > self.in_use.max(SPARE_SLABS_MIN);
        if too_many { self.resident.pop_front() } else { None }
    }
}

pub(super) struct Pool {
    regions: [OnceLock<Region>; REGIONS_MAX],
    classes: [Mutex<Class>; CLASSES],
    spare: Mutex<Spare>,
    /// Memory that is too large for slots, by address. Without a mapping, because the process has too many, it is the
    /// general allocator's.
    large: Mutex<BTreeMap<usize, Option<AnonymousMapping>>>,
    large_bytes: AtomicUsize,
}

/// The pool of this process.
pub(super) static POOL: Pool = Pool {
    regions: [const { OnceLock::new() }; REGIONS_MAX],
    classes: [const { Mutex::new(Class { current: None, partial: BTreeSet::new() }) }; CLASSES],
    spare: Mutex::new(Spare { resident: VecDeque::new(), given_back: BTreeSet::new(), fresh: 0, in_use: 0 }),
    large: Mutex::new(BTreeMap::new()),
    large_bytes: AtomicUsize::new(0),
};

impl Pool {
    /// At least `bytes` bytes of initialised memory that is the caller's alone, aligned to a cache line, and the
    /// number of its slab.
    pub(super) fn allocate(&self, bytes: usize) -> (NonNull<u8>, u32) {
        // A sanitizer sees the use of freed memory only where every piece comes from the allocator that it watches.
        let class = if cfg!(general_allocator) { None } else { class_of(bytes) };
        class.and_then(|class| self.allocate_slot(class)).unwrap_or_else(|| self.allocate_large(bytes))
    }

    /// Frees what `allocate` returned for `bytes`. Nobody may use it any more.
    pub(super) fn free(&self, start: NonNull<u8>, slab: u32, bytes: usize) {
        if slab == NO_SLAB {
            return self.free_large(start, bytes);
        }
        let Some((region, state)) = self.slab(slab) else { return };
        // A slab with a slot in use keeps its size.
        let class = state.lock().class;
        let offset = start.as_ptr() as usize - region.mapping.start() as usize - slab_offset(slab);
        let Some(mut sizes) = self.classes.get(class).map(Mutex::lock) else { return };
        let mut state = state.lock();
        if state.free_slots == 0 {
            sizes.partial.insert(slab);
        }
        state.give(offset / slot_bytes(class));
        if state.is_empty() && sizes.current != Some(slab) {
            drop(state);
            sizes.partial.remove(&slab);
            drop(sizes);
            self.free_slab(slab);
        }
    }

    /// Bytes that memory from `allocate` takes when `bytes` were asked for.
    pub(super) fn footprint(bytes: usize) -> usize {
        class_of(bytes).map_or(bytes.next_multiple_of(4096), slot_bytes)
    }

    pub(super) fn statistics(&self) -> MemoryStatistics {
        let spare = self.spare.lock();
        MemoryStatistics {
            slab_bytes: (spare.in_use * SLAB_BYTES) as u64,
            spare_bytes: (spare.resident.len() * SLAB_BYTES) as u64,
            large_bytes: self.large_bytes.load(Ordering::Relaxed) as u64,
        }
    }

    fn allocate_slot(&self, class: usize) -> Option<(NonNull<u8>, u32)> {
        let mut sizes = self.classes.get(class)?.lock();
        let slab = match sizes.current {
            Some(slab) => slab,
            None => self.choose(&mut sizes, class)?,
        };
        let (region, state) = self.slab(slab)?;
        let mut state = state.lock();
        let slot = state.take()?;
        if state.free_slots == 0 {
            sizes.partial.remove(&slab);
            sizes.current = None;
        }
        let start = region.mapping.start().wrapping_add(slab_offset(slab) + slot * slot_bytes(class));
        NonNull::new(start).map(|start| (start, slab))
    }

    /// Makes the lowest slab with a free slot the current one, or else an empty slab.
    fn choose(&self, sizes: &mut Class, class: usize) -> Option<u32> {
        let slab = match sizes.partial.first() {
            Some(&lowest) => lowest,
            None => {
                let slab = self.take_slab()?;
                self.slab(slab)?.1.lock().reset(class);
                sizes.partial.insert(slab);
                slab
            }
        };
        sizes.current = Some(slab);
        Some(slab)
    }

    fn slab(&self, number: u32) -> Option<(&Region, &Mutex<SlabState>)> {
        let region = self.regions.get(number as usize / SLABS_PER_REGION)?.get()?;
        Some((region, region.slabs.get(number as usize % SLABS_PER_REGION)?))
    }

    fn take_slab(&self) -> Option<u32> {
        let mut spare = self.spare.lock();
        let slab = match spare.resident.pop_back().or_else(|| spare.given_back.pop_first()) {
            Some(slab) => slab,
            None => {
                let slab = spare.fresh;
                let place = self.regions.get(slab as usize / SLABS_PER_REGION)?;
                if place.get().is_none() {
                    // Only whoever holds the lock of the spare slabs sets it.
                    let _ = place.set(Region::new()?);
                }
                spare.fresh += 1;
                slab
            }
        };
        spare.in_use += 1;
        Some(slab)
    }

    fn free_slab(&self, slab: u32) {
        let mut spare = self.spare.lock();
        spare.in_use -= 1;
        spare.resident.push_back(slab);
        while let Some(surplus) = spare.surplus() {
            drop(spare);
            self.give_back(surplus);
            spare = self.spare.lock();
            spare.given_back.insert(surplus);
        }
    }

    #[expect(unsafe_code, reason = "a freed memtable must not stay resident: the budget is a promise")]
    fn give_back(&self, slab: u32) {
        if let Some((region, _)) = self.slab(slab) {
            // SAFETY: no slot of the slab is in use, and only its caller knows the slab now.
            unsafe { region.mapping.give_back(slab_offset(slab), SLAB_BYTES) }
        }
    }

    fn allocate_large(&self, bytes: usize) -> (NonNull<u8>, u32) {
        let mapping = if cfg!(general_allocator) { None } else { AnonymousMapping::new(bytes) };
        let start = mapping.as_ref().map_or_else(|| allocate_general(bytes), AnonymousMapping::start);
        let Some(start) = NonNull::new(start) else { handle_alloc_error(general_layout(bytes)) };
        self.large_bytes.fetch_add(Pool::footprint(bytes), Ordering::Relaxed);
        self.large.lock().insert(start.as_ptr() as usize, mapping);
        (start, NO_SLAB)
    }

    #[expect(unsafe_code, reason = "the counterpart of `allocate_general`")]
    fn free_large(&self, start: NonNull<u8>, bytes: usize) {
        let freed = self.large.lock().remove(&(start.as_ptr() as usize));
        self.large_bytes.fetch_sub(Pool::footprint(bytes), Ordering::Relaxed);
        if let Some(None) = freed {
            // SAFETY: `allocate_general` returned `start` for as many bytes, and only its owner frees it, once.
            unsafe { dealloc(start.as_ptr(), general_layout(bytes)) }
        }
    }
}

/// Memory from the general allocator, for when there can be no mapping.
#[expect(unsafe_code, reason = "a boxed slice would have to be owned, and so be touched, by the pool")]
fn allocate_general(bytes: usize) -> *mut u8 {
    // SAFETY: the layout is not empty.
    unsafe { alloc_zeroed(general_layout(bytes)) }
}

fn general_layout(bytes: usize) -> Layout {
    Layout::from_size_align(bytes.max(1), SLOT_ALIGN)
        .unwrap_or_else(|_| handle_alloc_error(Layout::new::<u8>()))
}

/// Where a slab begins in its region, in bytes.
fn slab_offset(slab: u32) -> usize {
    slab as usize % SLABS_PER_REGION * SLAB_BYTES
}
