//! The vendor: it weighs what arrives in the closed window that ends at each call. Whoever is over the limit gets 429 with
//! Retry-After, and nobody an answer before that is over.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use call_budget::clock::{Clock, SystemClock};
use call_budget::policy::Instant;

use crate::server::{Reply, Server};

const RETRY_AFTER: Duration = Duration::from_secs(2);

pub struct WeighingVendor {
    server: Server,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    recent: VecDeque<(Instant, u32)>,
    weight: u32,
    worst: u32,
    refused_at: Option<Instant>,
    arrived_while_banned: u32,
    next_after_ban: Option<Instant>,
}

/// What a call of this kind weighs.
pub fn weight_of(kind: &str) -> u32 {
    if kind == "depth" { 5 } else { 1 }
}

impl WeighingVendor {
    pub async fn start(limit: u32, window: Duration) -> io::Result<Self> {
        let log = Arc::<Mutex<Log>>::default();
        let kept = Arc::clone(&log);
        let server = Server::start(move |line| {
            let weight = weight_of(if line.starts_with("GET /depth ") { "depth" } else { "price" });
            locked(&kept).answer(SystemClock.now(), weight, limit, window)
        })
        .await?;
        Ok(Self { server, log })
    }

    pub fn url(&self, kind: &str) -> String {
        self.server.url(&format!("/{kind}"))
    }

    /// All that has arrived.
    pub fn weight(&self) -> u32 {
        locked(&self.log).weight
    }

    /// The most in any closed window.
    pub fn worst_window(&self) -> u32 {
        locked(&self.log).worst
    }

    pub fn arrived_while_banned(&self) -> u32 {
        locked(&self.log).arrived_while_banned
    }

    /// From the refusal to the next call that arrived.
    pub fn quiet_after_refusal(&self) -> Duration {
        let log = locked(&self.log);
        match (log.refused_at, log.next_after_ban) {
            (Some(refused), Some(next)) => next.saturating_since(refused),
            _ => Duration::ZERO,
        }
    }
}

impl Log {
    fn answer(&mut self, now: Instant, weight: u32, limit: u32, window: Duration) -> Reply {
        self.recent.push_back((now, weight));
        while self.recent.front().is_some_and(|(at, _)| *at + window < now) {
            self.recent.pop_front();
        }
        let inside = self.recent.iter().map(|(_, weight)| weight).sum();
        self.weight += weight;
        self.worst = self.worst.max(inside);
        if let Some(refused) = self.refused_at {
            self.next_after_ban.get_or_insert(now);
            if now < refused + RETRY_AFTER {
                self.arrived_while_banned += 1;
                return too_much();
            }
        }
        if inside > limit {
            self.refused_at = Some(now);
            return too_much();
        }
        Reply { status: 200, headers: format!("X-Used-Weight: {inside}\r\n"), body: r#"{"price":"71200"}"#.into() }
    }
}

fn too_much() -> Reply {
    Reply {
        status: 429,
        headers: format!("Retry-After: {}\r\n", RETRY_AFTER.as_secs()),
        body: r#"{"code":-1003,"msg":"Too much request weight used."}"#.into(),
    }
}

fn locked(log: &Mutex<Log>) -> MutexGuard<'_, Log> {
    log.lock().unwrap_or_else(PoisonError::into_inner)
}
