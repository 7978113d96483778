//! Who is compared.

mod control;
mod failsafe;
mod ours;
mod recloser;
mod tower_resilience;

use crate::subject::Kind;

pub const ALL: [&dyn Kind; 6] = [
    &ours::Ours,
    &tower_resilience::TowerResilience,
    &recloser::Recloser,
    &failsafe::Failsafe,
    &control::TwoState,
    &control::Naive,
];
