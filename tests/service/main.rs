//! The servers, over real sockets.

mod mock_vendor;
mod mock_vendor_command;
mod wire;
