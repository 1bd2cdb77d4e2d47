//! Memory of no file, straight from the machine.

use memmap2::{MmapOptions, MmapRaw};

/// Mapped memory that belongs to no file, zero at first. Pages that were never touched take no room.
#[derive(Debug)]
pub struct AnonymousMapping {
    map: MmapRaw,
}

impl AnonymousMapping {
    /// Maps `bytes` bytes, at least one; `None` if the machine has no room or the process too many mappings.
    #[must_use]
    pub fn new(bytes: usize) -> Option<AnonymousMapping> {
        let map = MmapOptions::new().len(bytes).map_anon().ok()?;
        Some(AnonymousMapping { map: map.into() })
    }

    /// The first byte. Valid, initialised and aligned to a page for as long as the mapping lives.
    #[must_use]
    pub fn start(&self) -> *mut u8 {
        self.map.as_mut_ptr()
    }

    /// Gives the pages of a range back to the machine. Its bytes are lost; they read as anything until written.
    ///
    /// Does nothing where the machine refuses or knows no such call: then the memory merely stays resident.
    ///
    /// # Safety
    /// Nobody may hold a reference into the range or use it during the call.
    #[expect(unsafe_code, reason = "a freed memtable must not stay resident: the budget is a promise")]
    pub unsafe fn give_back(&self, offset: usize, bytes: usize) {
        #[cfg(unix)]
        // SAFETY: as the caller promises; a range outside the mapping is refused by the callee.
        unsafe {
            let _ = self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, offset, bytes);
        }
        #[cfg(not(unix))]
        let _ = (offset, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_no_machine_has_is_refused() {
        assert!(AnonymousMapping::new(1 << 62).is_none());
        assert!(AnonymousMapping::new(4096).is_some());
    }

    #[test]
    fn pages_that_were_given_back_can_be_used_again() {
        let mapping = AnonymousMapping::new(8192).unwrap();
        let start = mapping.start();
        // SAFETY: within the mapping, which nobody else knows; given back while nobody holds a reference into it.
        #[expect(unsafe_code, reason = "what is tested is raw memory")]
        unsafe {
            start.add(4096).write(7);
            mapping.give_back(4096, 4096);
            start.add(4096).write(8);
            assert_eq!((start.add(4096).read(), start.add(8191).read()), (8, 0));
        }
    }

    /// See `memory/tests.rs`: the sanitizer must complain.
    #[cfg(planted_fault)]
    #[test]
    #[expect(unsafe_code, reason = "the fault is the point")]
    fn planted_fault_two_threads_write_one_page() {
        let mapping = AnonymousMapping::new(4096).unwrap();
        let start = mapping.start() as usize;
        let write = || {
            for n in 0..1000_u64 {
                // SAFETY: none. The other thread writes the same word.
                unsafe { (start as *mut u64).write_volatile(n) };
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(write);
            scope.spawn(write);
        });
    }
}
