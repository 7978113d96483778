//! Every slot that the store granted, by the nonce of its permit: what a call at the vendor must be able to show.

use std::collections::HashMap;

use call_budget::policy::Instant;

use super::spacing::Slot;
use crate::time::True;
use crate::world::ProcessId;

/// A slot that was granted to somebody.
#[derive(Clone, Copy, Debug)]
pub struct Grant {
    pub process: ProcessId,
    pub budget: usize,
    pub slot: Slot,
    pub decided: True,
    pub send_window: i64,
    /// By which steps of its server's clock it was decided.
    pub steps: u64,
    pub timeline: i64,
    /// Between these moments of the caller's clock, if the answer came to a lane.
    pub delivered: Option<(Instant, Instant)>,
    /// What the call costs for which a permit came of it.
    pub units: Option<u32>,
}

#[derive(Default)]
pub struct Grants {
    by_nonce: HashMap<u64, Grant>,
    pub decided: u64,
}

impl Grants {
    pub fn decided(&mut self, nonce: u64, grant: Grant) {
        self.decided += 1;
        self.by_nonce.insert(nonce, grant);
    }

    pub fn get(&mut self, nonce: u64) -> Option<&mut Grant> {
        self.by_nonce.get_mut(&nonce)
    }

    /// How many slots were granted to each process before this moment and never came with an answer.
    pub fn undelivered(&self, before: True) -> HashMap<ProcessId, u64> {
        let mut undelivered = HashMap::new();
        for grant in self.by_nonce.values().filter(|grant| grant.delivered.is_none() && grant.decided < before) {
            *undelivered.entry(grant.process).or_default() += 1;
        }
        undelivered
    }

    /// Whoever sends, spends it: there is no second time.
    pub fn spend(&mut self, nonce: u64) -> Option<Grant> {
        self.by_nonce.remove(&nonce)
    }
}
