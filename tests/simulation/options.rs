//! What to play, as the command line says it.

use crate::checks::{Name, Tallies};

pub const HELP: &str = "\
Plays seeds of the simulation and prints one line a check: \"ok  NAME  ...\" or \"FAILED  NAME  ...\".

Without a word about how much: for 75 s, and 50 seeds at the least.

  --seeds N         so many seeds
  --sends N         seeds until so many calls were sent in all
  --seconds N       no new seed is begun after so long
  --from N          the first seed (1)
  --seed N          this seed alone
  --trace           what happens in it, line by line (with --seed)
  --stop-at-first   no new seed is begun once a check has failed
  --stop-at NAME    no new seed is begun once this check has failed
  --threads N       seeds at once (as many as there are cores); --test-threads is the same
  --json            the report on stdout, for programs

--nocapture and --quiet, which `cargo test` says to all, change nothing. A word that names a test names none of this: nothing
is played then.
";

/// How long the run takes that nobody said anything about.
const SHARE_S: u64 = 75;
/// In so many every kind of fault happens, and each check has something to look at.
const FEWEST: u64 = 50;

/// What the command line asks for.
pub enum Asked {
    Help,
    /// A test of this name, which is another binary's.
    Other(String),
    Play(Options),
}

#[derive(Clone, Debug)]
pub struct Options {
    pub from: u64,
    /// This many at the most.
    pub seeds: u64,
    pub sends: Option<u64>,
    pub seconds: Option<u64>,
    /// This many, however long they take.
    pub fewest: u64,
    pub one: Option<u64>,
    pub trace: bool,
    pub stop_at_first: bool,
    pub stop_at: Option<Name>,
    pub threads: usize,
    pub json: bool,
}

impl Options {
    pub fn of(words: impl Iterator<Item = String>) -> Result<Asked, String> {
        let mut options = Self {
            from: 1,
            seeds: u64::MAX,
            sends: None,
            seconds: None,
            fewest: 0,
            one: None,
            trace: false,
            stop_at_first: false,
            stop_at: None,
            threads: std::thread::available_parallelism().map_or(1, usize::from),
            json: false,
        };
        let mut words = words;
        while let Some(word) = words.next() {
            let mut number = || -> Result<u64, String> {
                let value = words.next().ok_or_else(|| format!("{word} needs a number"))?;
                value.parse().map_err(|_| format!("{word} needs a number, not \"{value}\""))
            };
            match word.as_str() {
                "--help" | "-h" => return Ok(Asked::Help),
                "--nocapture" | "--quiet" | "-q" => {}
                "--seeds" => options.seeds = number()?,
                "--sends" => options.sends = Some(number()?),
                "--seconds" => options.seconds = Some(number()?),
                "--from" => options.from = number()?,
                "--seed" => options.one = Some(number()?),
                "--threads" | "--test-threads" => {
                    options.threads = usize::try_from(number()?.clamp(1, 256)).unwrap_or(1)
                }
                "--trace" => options.trace = true,
                "--stop-at" => {
                    let name = words.next().unwrap_or_default();
                    options.stop_at = Some(Name::of_str(&name).ok_or_else(|| format!("\"{name}\" is no check"))?);
                }
                "--stop-at-first" => options.stop_at_first = true,
                "--json" => options.json = true,
                _ if word.starts_with('-') => return Err(format!("\"{word}\" is not known here")),
                _ => return Ok(Asked::Other(word)),
            }
        }
        if let Some(seed) = options.one {
            (options.from, options.seeds, options.threads) = (seed, 1, 1);
        } else if options.trace {
            return Err("--trace is for one seed: say which with --seed".into());
        }
        if options.seeds == u64::MAX && options.sends.is_none() && options.seconds.is_none() {
            (options.seconds, options.fewest) = (Some(SHARE_S), FEWEST);
        }
        Ok(Asked::Play(options))
    }

    /// Whether a seed with these tallies is the last to be begun.
    pub fn stops_at(&self, tallies: &Tallies) -> bool {
        self.stop_at_first && tallies.any_failed() || self.stop_at.is_some_and(|name| tallies.has_failed(name))
    }
}
