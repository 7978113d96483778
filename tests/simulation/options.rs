//! What to play, as the command line says it.

use crate::checks::{Name, Tallies};

pub const HELP: &str = "\
Plays seeds of the simulation and prints one line a check: \"ok  NAME  ...\" or \"FAILED  NAME  ...\".

  --seeds N         so many seeds (400)
  --sends N         seeds until so many calls were sent in all
  --seconds N       no new seed is begun after so long
  --from N          the first seed (1)
  --seed N          this seed alone
  --trace           what happens in it, line by line (with --seed)
  --stop-at-first   no new seed is begun once a check has failed
  --stop-at NAME    no new seed is begun once this check has failed
  --threads N       seeds at once (as many as there are cores)
  --json            the report on stdout, for programs
";

#[derive(Clone, Debug)]
pub struct Options {
    pub from: u64,
    pub seeds: u64,
    pub sends: Option<u64>,
    pub seconds: Option<u64>,
    pub one: Option<u64>,
    pub trace: bool,
    pub stop_at_first: bool,
    pub stop_at: Option<Name>,
    pub threads: usize,
    pub json: bool,
}

impl Options {
    /// None: help was asked for.
    pub fn of(words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut options = Self {
            from: 1,
            seeds: 400,
            sends: None,
            seconds: None,
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
                "--help" | "-h" => return Ok(None),
                "--seeds" => options.seeds = number()?,
                "--sends" => options.sends = Some(number()?),
                "--seconds" => options.seconds = Some(number()?),
                "--from" => options.from = number()?,
                "--seed" => options.one = Some(number()?),
                "--threads" => options.threads = usize::try_from(number()?.clamp(1, 256)).unwrap_or(1),
                "--trace" => options.trace = true,
                "--stop-at" => {
                    let name = words.next().unwrap_or_default();
                    options.stop_at = Some(Name::of_str(&name).ok_or_else(|| format!("\"{name}\" is no check"))?);
                }
                "--stop-at-first" => options.stop_at_first = true,
                "--json" => options.json = true,
                _ => return Err(format!("\"{word}\" is not known here")),
            }
        }
        if let Some(seed) = options.one {
            (options.from, options.seeds, options.threads) = (seed, 1, 1);
        } else if options.trace {
            return Err("--trace is for one seed: say which with --seed".into());
        }
        if options.sends.is_some() {
            options.seeds = u64::MAX;
        }
        Ok(Some(options))
    }

    /// Whether a seed with these tallies is the last to be begun.
    pub fn stops_at(&self, tallies: &Tallies) -> bool {
        self.stop_at_first && tallies.any_failed() || self.stop_at.is_some_and(|name| tallies.has_failed(name))
    }
}
