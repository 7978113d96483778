//! Which faults happened: what a plan names is no fault before it has done something.

use std::collections::{BTreeMap, BTreeSet};

use super::Kind;
use crate::world::State;

/// Those of one seed.
#[derive(Debug, Default)]
pub struct Happened {
    by_kind: BTreeMap<Kind, u64>,
    /// Begun, and without an effect so far.
    to_come: BTreeSet<Kind>,
}

impl Happened {
    pub fn by_kind(&self) -> &BTreeMap<Kind, u64> {
        &self.by_kind
    }

    pub fn begins(&mut self, kind: Kind) {
        self.to_come.insert(kind);
    }
}

impl State {
    /// A fault of this kind does something. It counts once each time that it began.
    pub fn takes_effect(&mut self, kind: Kind) {
        if self.happened.to_come.remove(&kind) {
            *self.happened.by_kind.entry(kind).or_default() += 1;
        }
    }

    /// Whether a spell of this kind strikes now, which is its effect.
    pub fn hits(&mut self, kind: Kind) -> bool {
        let hits = self.spells.hits(kind, self.now, &mut self.rng);
        if hits {
            self.takes_effect(kind);
        }
        hits
    }
}
