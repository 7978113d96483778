//! What a vendor's answers mean, as data: TOML tables, so that a vendor is added without code.

mod body;
mod retry_after;
mod table;
#[cfg(test)]
mod tests;

use std::time::Duration;

use body::Reading;

use crate::policy::Wall;
use crate::policy::verdict::{Broken, Facts, Finding, Seen, Table};

/// The tables that come along.
const TABLES: [(&str, &str); 3] = [
    ("kis", include_str!("kis.toml")),
    ("http-shared-key", include_str!("http-shared-key.toml")),
    ("http-own-keys", include_str!("http-own-keys.toml")),
];

/// A vendor table, read and checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Vendor {
    reading: Reading,
    retry_after_max: Duration,
    table: Table,
}

/// How one attempt ended.
pub enum Ended<'a> {
    /// The whole answer came. `header` gives the header of a name, in whatever case.
    Answer {
        status: u16,
        header: &'a dyn Fn(&str) -> Option<&'a str>,
        body: &'a [u8],
    },
    /// The whole answer came to somebody else, who tells what a table asks for.
    Told {
        status: u16,
        code: Option<&'a str>,
        text: Option<&'a str>,
        retry_after: Option<Duration>,
    },
    Broken(Broken),
}

impl Vendor {
    /// A table that comes along: `kis`, `http-shared-key`, `http-own-keys`.
    pub fn named(name: &str) -> Option<Self> {
        let (_, toml) = TABLES.iter().find(|(known, _)| *known == name)?;
        Some(Self::parse(toml).expect("the tables that come along are read by a test"))
    }

    /// The names that [`Vendor::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        TABLES.iter().map(|(name, _)| *name)
    }

    /// Reads a table: docs/vendors.md tells how to write one.
    ///
    /// # Errors
    /// What is wrong, and in which rule, in a sentence.
    pub fn parse(toml: &str) -> Result<Self, String> {
        table::read(toml)
    }

    /// Whose failure this was. `wall`: now, since a Retry-After may be a date.
    pub fn classify(&self, ended: &Ended<'_>, wall: Wall) -> Finding {
        match ended {
            Ended::Broken(how) => self.table.judge(Seen::Broken(*how)),
            Ended::Told { status, code, text, .. } => self.table.judge(Seen::Answer(Facts {
                status: *status,
                well_formed: true,
                code: code.filter(|code| body::is_code(code)),
                text: text.filter(|text| !text.is_empty()),
                retry_after: self.retry_after(ended, wall),
            })),
            Ended::Answer { status, body, .. } => {
                let found = self.reading.of(body);
                self.table.judge(Seen::Answer(Facts {
                    status: *status,
                    well_formed: found.well_formed || has_no_body(*status),
                    code: found.code.as_deref(),
                    text: found.text.as_deref(),
                    retry_after: self.retry_after(ended, wall),
                }))
            }
        }
    }

    /// What the answer's Retry-After asks for, capped as the table says. None for one that asks for no wait at all.
    pub fn retry_after(&self, ended: &Ended<'_>, wall: Wall) -> Option<Duration> {
        let wait = match ended {
            Ended::Answer { header, .. } => retry_after::read(header("retry-after")?, wall)?,
            Ended::Told { retry_after, .. } => (*retry_after)?,
            Ended::Broken(_) => return None,
        };
        Some(wait.min(self.retry_after_max))
    }
}

/// HTTP allows no body with these.
fn has_no_body(status: u16) -> bool {
    matches!(status, 204 | 205 | 304)
}
