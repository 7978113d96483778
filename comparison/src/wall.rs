//! Time: sleeping with a record of what was asked for, and a wall clock of this process that can be set.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

static SLEPT_US: AtomicU64 = AtomicU64::new(0);
static STEP_S: AtomicI64 = AtomicI64::new(0);

/// Whether [`step`] does anything here.
pub const CAN_STEP: bool = cfg!(target_os = "linux");

/// Sleeps, and keeps account of it.
pub fn sleep(by: Duration) {
    const HARMLESS: Duration = Duration::from_millis(10);
    if by.is_zero() {
        return;
    }
    let began = Instant::now();
    std::thread::sleep(by);
    let took = began.elapsed();
    let slept = if took > by + HARMLESS { by } else { took };
    chosen(slept);
}

/// This much time went by because the harness wanted it so.
pub fn chosen(time: Duration) {
    SLEPT_US.fetch_add(time.as_micros() as u64, Ordering::Relaxed);
}

/// All sleeps so far. One that ended late counts as what was asked for: the rest is time in which the machine was away.
pub fn slept() -> Duration {
    Duration::from_micros(SLEPT_US.load(Ordering::Relaxed))
}

/// Sets this process's wall clock, by seconds. Its monotonic clock goes on.
pub fn step(by: i64) {
    STEP_S.fetch_add(by, Ordering::Relaxed);
}

/// Stands before the C library's function of this name, for everything that is linked into this program: the one way to set
/// the wall clock under a breaker without setting the machine's.
#[cfg(target_os = "linux")]
#[unsafe(no_mangle)]
unsafe extern "C" fn clock_gettime(id: libc::clockid_t, into: *mut libc::timespec) -> libc::c_int {
    // SAFETY: the caller's arguments, handed to the kernel as they are; `into` is valid where the kernel says so.
    unsafe {
        let code = libc::syscall(libc::SYS_clock_gettime, id, into) as libc::c_int;
        if code == 0 && id == libc::CLOCK_REALTIME {
            (*into).tv_sec += STEP_S.load(Ordering::Relaxed);
        }
        code
    }
}
