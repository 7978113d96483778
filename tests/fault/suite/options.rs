//! The command line: `cargo test --test fault -- OPTIONS`.

use clap::Parser;

use super::case::Case;

/// Tries every fault once and says which cases keep their bounds.
#[derive(Clone, Debug, Parser)]
#[command(name = "fault", no_binary_name = false)]
pub struct Options {
    /// 20 rounds of a case whose round takes under 2 s, 3 of a long one.
    #[arg(long)]
    pub long: bool,
    /// Rounds of each case, whatever its length.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: Option<u32>,
    /// On stdout: the versions under test, then a line for each case.
    #[arg(long)]
    pub json: bool,
    /// Lists the cases and runs none.
    #[arg(long)]
    pub list: bool,
    /// Only the cases of this row; may be repeated.
    #[arg(long, value_name = "ROW", value_parser = clap::value_parser!(u8).range(1..=36))]
    pub row: Vec<u8>,
    /// Shows what did not pass alone.
    #[arg(long, short)]
    pub quiet: bool,
    /// What `cargo test -- --nocapture --test-threads N` says to all test binaries: nothing is captured here, and cases run
    /// one at a time.
    #[arg(long, hide = true)]
    pub nocapture: bool,
    #[arg(long, hide = true)]
    pub test_threads: Option<u32>,
    /// Started by the suite: one case, its row on stdout, and the end when stdin ends.
    #[arg(long, hide = true)]
    pub in_own_process: bool,
    /// A caller of a case, in a process of its own.
    #[arg(long, hide = true)]
    pub member: bool,
    /// Only these cases.
    #[arg(value_name = "ID")]
    pub ids: Vec<String>,
}

impl Options {
    pub fn rounds(&self, case: &Case) -> u32 {
        self.repeats.unwrap_or(if self.long { case.length.repeats() } else { 1 })
    }

    /// Nothing was picked out.
    pub fn all(&self) -> bool {
        self.ids.is_empty() && self.row.is_empty()
    }

    /// The cases that were asked for: all where none was named.
    ///
    /// # Errors
    /// A name that no case has, or nothing to run: a suite that ran nothing has not passed.
    pub fn choose<'a>(&self, all: &[&'a Case]) -> Result<Vec<&'a Case>, String> {
        if let Some(unknown) = self.ids.iter().find(|id| all.iter().all(|case| case.id != id.as_str())) {
            return Err(format!("there is no case \"{unknown}\": --list shows them"));
        }
        let chosen: Vec<&Case> = all
            .iter()
            .copied()
            .filter(|case| self.row.is_empty() || self.row.contains(&case.row))
            .filter(|case| self.ids.is_empty() || self.ids.iter().any(|id| id == case.id))
            .collect();
        if chosen.is_empty() { Err("no case fits: --list shows them".into()) } else { Ok(chosen) }
    }
}
