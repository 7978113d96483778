//! What the machine promises, each promise a test.

mod by_hand;
mod episode;
mod faults;
mod presets;
mod probes;
mod random;
mod rules;
mod schedule;
mod slow;
mod table;
mod trip;
mod windows;
mod world;
