//! Parts that the commands run: servers and processes. They hold no acquire logic.

pub mod http;
pub mod mock_vendor;
pub mod scratch_postgres;
