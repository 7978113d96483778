//! What a vendor's answers mean, as data: TOML tables, so that a vendor is added without code.

use crate::policy::Wall;
use crate::policy::verdict::{Broken, Finding};

/// A vendor table, read and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Vendor {}

/// How one attempt ended.
pub enum Ended<'a> {
    Answer { status: u16, header: &'a dyn Fn(&str) -> Option<&'a str>, body: &'a [u8] },
    Broken(Broken),
}

impl Vendor {
    /// A table that comes along: `kis`, `http-shared-key`, `http-own-keys`.
    pub fn named(name: &str) -> Option<Self> {
        let _ = name;
        todo!()
    }

    /// The names that [`Vendor::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        [].into_iter()
    }

    /// Reads a table.
    ///
    /// # Errors
    /// What is wrong, and in which rule, in a sentence.
    pub fn parse(toml: &str) -> Result<Self, String> {
        let _ = toml;
        todo!()
    }

    /// Whose failure this was. `wall`: now, since a Retry-After may be a date.
    pub fn classify(&self, ended: &Ended<'_>, wall: Wall) -> Finding {
        let _ = (ended, wall);
        todo!()
    }

    /// What the answer's Retry-After asks for, capped as the table says.
    pub fn retry_after(&self, ended: &Ended<'_>, wall: Wall) -> Option<std::time::Duration> {
        let _ = (ended, wall);
        todo!()
    }
}
