//! Parts that the commands run: servers and processes, and what they tell of themselves. They hold no acquire logic.

pub mod http;
pub mod metrics;
pub mod mock_vendor;
pub mod scratch_postgres;
