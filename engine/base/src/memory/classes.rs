//! The sizes that slots come in: a pure function of the bytes that are asked for.
//!
//! Sixteen sizes per doubling, so that rounding up wastes at most 1/16; all are multiples of a cache line, so a slot is
//! aligned to one.

/// Memory that is handed to one size at a time, in bytes. Small, because each size in use has one that is partly empty;
/// large enough that giving one back to the machine is worth a system call.
pub const SLAB_BYTES: usize = 256 << 10;
/// Largest slot beside that of a whole slab, in bytes.
pub(super) const SLOT_BYTES_MAX: usize = 32 << 10;
/// Smallest slot, in bytes.
pub(super) const SLOT_BYTES_MIN: usize = 256;
/// Every slot is aligned to this many bytes: a cache line.
pub const SLOT_ALIGN: usize = 64;
/// Sizes up to this many bytes are a cache line apart.
const LINEAR_BYTES: usize = 1024;
const LINEAR_CLASSES: usize = (LINEAR_BYTES - SLOT_BYTES_MIN) / SLOT_ALIGN + 1;
const CLASSES_PER_DOUBLING: usize = 16;
const DOUBLINGS: usize = (SLOT_BYTES_MAX / LINEAR_BYTES).ilog2() as usize;
/// Number of sizes, that of a whole slab included.
pub(super) const CLASSES: usize = LINEAR_CLASSES + DOUBLINGS * CLASSES_PER_DOUBLING + 1;
/// The size of which a slab holds one.
pub(super) const WHOLE_SLAB: usize = CLASSES - 1;
/// Most slots that a slab can have.
pub(super) const SLOTS_MAX: usize = SLAB_BYTES / SLOT_BYTES_MIN;

/// Number of the smallest size that holds `bytes`; `None` if a slot of that size would waste much or does not exist.
pub(super) fn class_of(bytes: usize) -> Option<usize> {
    if bytes <= LINEAR_BYTES {
        return Some(bytes.saturating_sub(SLOT_BYTES_MIN).div_ceil(SLOT_ALIGN));
    }
    if bytes <= SLOT_BYTES_MAX {
        let doubling = ((bytes - 1) / LINEAR_BYTES).ilog2() as usize;
        let base = LINEAR_BYTES << doubling;
        let step = base / CLASSES_PER_DOUBLING;
        return Some(LINEAR_CLASSES + doubling * CLASSES_PER_DOUBLING + (bytes - base).div_ceil(step) - 1);
    }
    (SLAB_BYTES - SLAB_BYTES / 16..=SLAB_BYTES).contains(&bytes).then_some(WHOLE_SLAB)
}

/// Bytes of a slot of size `class`.
pub(super) fn slot_bytes(class: usize) -> usize {
    if class < LINEAR_CLASSES {
        return SLOT_BYTES_MIN + class * SLOT_ALIGN;
    }
    if class >= WHOLE_SLAB {
        return SLAB_BYTES;
    }
    let above = class - LINEAR_CLASSES;
    let base = LINEAR_BYTES << (above / CLASSES_PER_DOUBLING);
    base + (above % CLASSES_PER_DOUBLING + 1) * (base / CLASSES_PER_DOUBLING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_gets_the_smallest_slot_that_holds_it_and_wastes_a_sixteenth_at_most() {
        for bytes in 0..=SLOT_BYTES_MAX {
            let class = class_of(bytes).unwrap();
            let slot = slot_bytes(class);
            assert!(slot >= bytes, "{bytes} in {slot}");
            assert!(class == 0 || slot_bytes(class - 1) < bytes, "{bytes} would fit below {slot}");
            assert!(slot - bytes < (bytes / 16).max(SLOT_ALIGN) || bytes < SLOT_BYTES_MIN, "{bytes}: {slot}");
            assert!(slot.is_multiple_of(SLOT_ALIGN));
        }
        assert_eq!(class_of(SLAB_BYTES), Some(WHOLE_SLAB));
        assert_eq!(class_of(SLOT_BYTES_MAX + 1), None);
        assert_eq!(class_of(SLAB_BYTES + 1), None);
        assert_eq!(slot_bytes(WHOLE_SLAB), SLAB_BYTES);
        assert_eq!(slot_bytes(WHOLE_SLAB - 1), SLOT_BYTES_MAX);
    }
}
