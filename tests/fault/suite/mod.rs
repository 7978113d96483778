//! What the cases are written with, and what runs and judges them.

pub mod caller;
pub mod case;
pub mod error;
pub mod expect;
pub mod ground;
pub mod judge;
pub mod leaks;
pub mod member;
pub mod options;
pub mod proof;
pub mod proxied;
pub mod report;
pub mod round;
pub mod run;
pub mod sight;
pub mod stand_in;
pub mod superuser;
pub mod vendor;
pub mod verdict;

pub use caller::{Caller, Ended, Sent};
pub use case::{Case, HEALS, HEALS_SOON, How, Length, nothing};
pub use expect::{says, served};
pub use ground::{DATABASE_NAME, Database};
pub use judge::Account;
pub use member::Member;
pub use proxied::Proxied;
pub use round::{CLASS, FAST, Round};
