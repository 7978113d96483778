//! The parts of the fault suite, each tried on its own: a fault that does not do what it says proves nothing.

mod judge;
