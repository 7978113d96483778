//! Parts that the commands run: servers and processes. They hold no acquire logic.

pub mod scratch_postgres;
