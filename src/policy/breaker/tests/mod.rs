//! What the machine promises, each promise a test.

mod probes;
mod world;
