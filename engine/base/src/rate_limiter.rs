//! A pacing rate limiter: how long to wait before `n` more bytes, as a pure function of time.

use std::time::Duration;

use crate::sync::Mutex;

/// Gives every caller a place on a time line at a fixed rate (a virtual-scheduling leaky bucket, ITU-T I.371), so
/// that a wait is computed once and nobody polls. The rate may change at any time.
#[derive(Debug)]
pub struct RateLimiter {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    bytes_per_second: f64,
    /// When everything granted so far is paid for, in nanoseconds of the monotonic clock.
    paid_until_nanos: f64,
}

impl RateLimiter {
    /// A limiter of `bytes_per_second`; infinity for no limit.
    #[must_use]
    pub fn new(bytes_per_second: f64) -> RateLimiter {
        RateLimiter { state: Mutex::new(State { bytes_per_second, paid_until_nanos: 0.0 }) }
    }

    /// Changes the rate for what is asked from now on.
    pub fn set_rate(&self, bytes_per_second: f64) {
        self.state.lock().bytes_per_second = bytes_per_second;
    }

    /// The current rate, in bytes per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        self.state.lock().bytes_per_second
    }

    /// Takes `bytes` at time `now_nanos` and returns how long the caller must wait before using them. Unused time is
    /// not saved up: a burst after a pause starts at once, but runs at the rate.
    pub fn take(&self, bytes: u64, now_nanos: u64) -> Duration {
        let mut state = self.state.lock();
        let now = now_nanos as f64;
        if !state.bytes_per_second.is_finite() {
            state.paid_until_nanos = now;
            return Duration::ZERO;
        }
        let start = state.paid_until_nanos.max(now);
        let cost_nanos = bytes as f64 / state.bytes_per_second.max(1.0) * 1e9;
        state.paid_until_nanos = start + cost_nanos;
        Duration::from_nanos((start - now) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_add_up_to_the_rate() {
        let limiter = RateLimiter::new(1000.0);
        assert_eq!(limiter.take(500, 0), Duration::ZERO);
        assert_eq!(limiter.take(500, 0), Duration::from_millis(500));
        assert_eq!(limiter.take(1, 5_000_000_000), Duration::ZERO, "a pause is forgiven");
    }

    #[test]
    fn lifting_the_limit_forgives_the_debt() {
        let limiter = RateLimiter::new(1.0);
        limiter.take(1_000_000, 0);
        limiter.set_rate(f64::INFINITY);
        assert_eq!(limiter.take(1, 0), Duration::ZERO);
    }
}
