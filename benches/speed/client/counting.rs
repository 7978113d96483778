//! The allocator of this program: the system's, and a count of what goes through it.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};

#[global_allocator]
static COUNTED: Counted = Counted;

/// Off while others measure: a count that all threads share is not free.
static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
static LIVE_BYTES: AtomicI64 = AtomicI64::new(0);

struct Counted;

/// What was allocated while counting.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    /// A block that grew or shrank counts as another.
    pub allocations: u64,
    pub bytes: u64,
    /// Of blocks allocated less of those freed.
    pub live_bytes: i64,
}

/// Counts from zero until it is dropped, over all threads.
pub struct Counting(());

impl Counting {
    pub fn begin() -> Self {
        ALLOCATIONS.store(0, Ordering::Relaxed);
        BYTES.store(0, Ordering::Relaxed);
        LIVE_BYTES.store(0, Ordering::Relaxed);
        COUNTING.store(true, Ordering::SeqCst);
        Self(())
    }

    pub fn so_far(&self) -> Count {
        Count {
            allocations: ALLOCATIONS.load(Ordering::Relaxed),
            bytes: BYTES.load(Ordering::Relaxed),
            live_bytes: LIVE_BYTES.load(Ordering::Relaxed),
        }
    }
}

impl Drop for Counting {
    fn drop(&mut self) {
        COUNTING.store(false, Ordering::SeqCst);
    }
}

fn count(allocated: usize, freed: usize) {
    if !COUNTING.load(Ordering::Relaxed) {
        return;
    }
    if allocated > 0 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(allocated as u64, Ordering::Relaxed);
    }
    LIVE_BYTES.fetch_add(allocated as i64 - freed as i64, Ordering::Relaxed);
}

// SAFETY: everything is the system allocator's; counting allocates nothing.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size(), 0);
        // SAFETY: the caller's promises are passed on as they are.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        count(size, layout.size());
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}
