//! Runs the cases one after the other. A case that panics or hangs fails; the suite goes on.

use std::collections::HashSet;
use std::io::Read;
use std::panic::AssertUnwindSafe;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use futures_util::FutureExt;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::case::Case;
use super::ground::{GIVEN, Ground};
use super::judge::Measured;
use super::member;
use super::options::Options;
use super::proof::{PLANTED, Planted};
use super::report::{self, Row, Versions};
use super::round::Round;
use super::stand_in;
use super::verdict::Verdict;

/// Rounds in which the receiver stood still are repeated, so often in a row at most.
const INCONCLUSIVE_AT_MOST: u32 = 3;
/// For what surrounds a body: starting the ground, and judging.
const AROUND: Duration = Duration::from_secs(120);

/// The whole suite: command line, cases, report.
pub fn run(all: &[&'static Case]) -> ExitCode {
    if let Some(ended) = stand_in::asked() {
        return ended;
    }
    let options = Options::parse();
    if options.member {
        return member::main();
    }
    if let Some(wrong) = misnamed(all) {
        eprintln!("{wrong}");
        return ExitCode::FAILURE;
    }
    if options.list {
        for case in all {
            println!("{:<24} row {:<3} {:?} within {:?}: {}", case.id, case.row, case.how, case.deadline, case.name);
        }
        return ExitCode::SUCCESS;
    }
    // A process of its own may be one of a case that must fail.
    let planted = PLANTED.iter().map(|planted| &planted.case).filter(|_| options.in_own_process);
    let all: Vec<&Case> = all.iter().copied().chain(planted).collect();
    let cases = match options.choose(&all) {
        Ok(cases) => cases,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    note_panics();
    let suite = Suite { options, runtime: runtime(), ground: Arc::new(Ground::new()) };
    if suite.options.in_own_process {
        end_with_stdin();
        for case in cases {
            println!("{}", as_json(&suite.here(case, suite.options.rounds(case))));
        }
        return ExitCode::SUCCESS;
    }
    suite.run(&cases)
}

/// A case whose name does not say its row, or that has the name of another.
fn misnamed(all: &[&Case]) -> Option<String> {
    let mut names = HashSet::new();
    let wrong = all.iter().find(|case| {
        let row_and_word = case.id.split_once('.').is_some_and(|(row, _)| row == case.row.to_string());
        !row_and_word || !(1..=36).contains(&case.row) || !names.insert(case.id)
    })?;
    Some(format!("the case \"{}\" of row {} needs a name of its own, its row and a word", wrong.id, wrong.row))
}

struct Suite {
    options: Options,
    runtime: Runtime,
    ground: Arc<Ground>,
}

impl Suite {
    fn run(self, cases: &[&'static Case]) -> ExitCode {
        let began = Instant::now();
        if self.options.json {
            match self.within(AROUND, {
                let ground = Arc::clone(&self.ground);
                async move { ground.database().await }
            }) {
                Ok(database) => println!("{}", as_json(&Versions::of(&database))),
                Err(why) => report::line(&format!("the versions are not known: {why}")),
            }
        }
        let mut proofs = Vec::new();
        if self.options.all() {
            proofs = PLANTED.iter().map(|planted| self.prove(planted)).collect();
        }
        let mut rows = Vec::new();
        for (number, case) in cases.iter().enumerate() {
            report::running(&format!("{} of {}: {} {}", number + 1, cases.len(), case.id, case.name));
            let row = self.row(case, self.options.rounds(case));
            if !self.options.quiet || row.pass != Some(true) {
                report::line(&row.for_people());
            }
            if self.options.json {
                println!("{}", as_json(&row));
            }
            rows.push(row);
        }
        let json = self.options.json;
        // A body that blocks its thread for ever must not keep the suite.
        self.runtime.shutdown_timeout(Duration::from_secs(5));
        drop(self.ground);
        conclude(&proofs, &rows, began.elapsed(), json)
    }

    /// Whether a case that must fail does.
    fn prove(&self, planted: &'static Planted) -> bool {
        report::running(&format!("proof: {} {}", planted.case.id, planted.case.name));
        let found = self.row(&planted.case, 1).faults;
        let missed = planted.missed(&found);
        match &missed {
            Some(missed) => report::line(&format!("FAILED    {missed}")),
            None if !self.options.quiet => {
                report::line(&format!("ok        {:<24} found out: {}", planted.case.id, planted.case.name));
            }
            None => {}
        }
        missed.is_none()
    }

    /// A case as its row: tried where it is to run, or why it cannot be.
    fn row(&self, case: &'static Case, rounds: u32) -> Row {
        if let Err(why) = (case.needs)() {
            return Row::not_tried(case, &why);
        }
        let began = Instant::now();
        let row = match case.own_process {
            None => self.here(case, rounds),
            Some(command) => self.in_own_process(case, rounds, command),
        };
        row.in_all(began.elapsed())
    }

    /// All rounds of a case, in this process.
    fn here(&self, case: &'static Case, rounds: u32) -> Row {
        let (mut measured, mut notes) = (Measured::default(), Vec::new());
        let (mut done, mut inconclusive) = (0, 0);
        while done < rounds {
            report::running(&format!("{} {}: round {} of {rounds}", case.id, case.name, done + 1));
            let round = self
                .within(case.length.patience() + AROUND, one_round(case, Arc::clone(&self.ground), self.options.long));
            let mut verdict = match round {
                Ok(verdict) => verdict,
                // It blocks a thread, or the ground is not there: no better in the next round.
                Err(why) => {
                    measured.failures.push(why);
                    return Row::tried(case, done + 1, &measured, &notes);
                }
            };
            if verdict.inconclusive && inconclusive < INCONCLUSIVE_AT_MOST {
                inconclusive += 1;
                continue;
            }
            if verdict.inconclusive {
                verdict.measured.failures.push("inconclusive: the machine stalled in each of four rounds".into());
            }
            measured.add(verdict.measured);
            notes.extend(verdict.notes);
            notes.sort_unstable();
            notes.dedup();
            (done, inconclusive) = (done + 1, 0);
        }
        Row::tried(case, rounds, &measured, &notes)
    }

    /// All rounds of a case in a process of its own; its row comes back as a line of JSON.
    fn in_own_process(&self, case: &Case, rounds: u32, command: &[&str]) -> Row {
        let patience = (case.length.patience() + AROUND) * rounds;
        let own = match std::env::current_exe() {
            Ok(own) => own,
            Err(error) => return Row::failed(case, format!("this program does not find itself: {error}")),
        };
        let rounds = rounds.to_string();
        let mut words = command.iter().map(AsRef::as_ref).chain([own.as_os_str()]);
        let mut child = Command::new(words.next().expect("at least the program itself"));
        child.args(words).args(["--in-own-process", "--repeats", &rounds, case.id]);
        child.args(self.options.long.then_some("--long"));
        for variable in GIVEN {
            child.env_remove(variable);
        }
        match child.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() {
            Ok(child) => row_of(Started(child), patience).unwrap_or_else(|why| Row::failed(case, why)),
            Err(error) => Row::failed(case, format!("a process of its own cannot be started ({command:?}): {error}")),
        }
    }

    /// Runs `work` on the runtime and waits for it, from outside: whatever it does, this returns.
    fn within<T: Send + 'static>(
        &self,
        patience: Duration,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let (done, ended) = mpsc::channel();
        let task = self.runtime.spawn(async move {
            let _ = done.send(work.await);
        });
        ended.recv_timeout(patience).map_err(|error| match error {
            RecvTimeoutError::Timeout => {
                task.abort();
                format!("it blocks its thread: nothing after {patience:?}")
            }
            RecvTimeoutError::Disconnected => panics().join("; "),
        })
    }
}

/// One round of a case: ground, body, judgement.
async fn one_round(case: &'static Case, ground: Arc<Ground>, long_form: bool) -> Verdict {
    drop(panics());
    let mut round = match Round::begin(ground, case.id, long_form).await {
        Ok(round) => round,
        Err(why) => panic!("the round cannot begin: {why}"),
    };
    let mut failures = Vec::new();
    let patience = case.length.patience();
    let body = AssertUnwindSafe((case.run)(&mut round)).catch_unwind();
    if timeout(patience, body).await.is_err() {
        failures.push(format!("it hangs: given up after {patience:?}"));
    }
    // Of the body, and of any task: the library's too.
    failures.extend(panics());
    round.judge(failures).await
}

/// Says how it ended, in the words that test programs use; those who wait for its exit code know too.
fn conclude(proofs: &[bool], rows: &[Row], took: Duration, json: bool) -> ExitCode {
    let count = |pass: Option<bool>| rows.iter().filter(|row| row.pass == pass).count();
    let (passed, failed, not_tried) = (count(Some(true)), count(Some(false)), count(None));
    let proven = proofs.iter().filter(|proven| **proven).count();
    let mut words = Vec::new();
    for row in rows.iter().filter(|row| row.pass.is_none()) {
        let why = row.note.strip_prefix("not tried: ").unwrap_or(&row.note);
        words.push(format!("NOT TRIED: {}: {why}", row.id));
    }
    let failed = failed + proofs.len() - proven;
    // Proofs alone are no result.
    let good = failed == 0 && passed > 0;
    let passed = passed + proven;
    words.push(format!(
        "test result: {}. {passed} passed; {failed} failed; {not_tried} ignored; 0 measured; 0 filtered out; finished in {:.2}s",
        if good { "ok" } else { "FAILED" },
        took.as_secs_f64()
    ));
    let words = words.join("\n");
    if json {
        eprintln!("{words}")
    } else {
        println!("{words}")
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Threads that wait for blocking work end soon: they must not look like leaks.
fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(4)
        .thread_keep_alive(Duration::from_millis(10))
        .enable_all()
        .build()
        .expect("a runtime")
}

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The panics of all tasks since the last question.
fn panics() -> Vec<String> {
    std::mem::take(&mut *PANICS.lock().unwrap_or_else(PoisonError::into_inner))
}

fn note_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(|place| format!(" ({}:{})", place.file(), place.line())).unwrap_or_default();
        let sentence = panic.payload_as_str().unwrap_or("a panic without words");
        PANICS.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{sentence}{place}"));
    }));
}

/// A case in its own process ends with the suite, however that ends. (PostgreSQL's keeper ends with its process.)
fn end_with_stdin() {
    let wait = || {
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::abort();
    };
    std::thread::Builder::new().name("ends with stdin".into()).spawn(wait).expect("a thread");
}

/// A child that is stopped whatever happens.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn row_of(mut child: Started, patience: Duration) -> Result<Row, String> {
    let mut stdout = child.0.stdout.take().expect("a pipe");
    let (told, hears) = mpsc::channel();
    std::thread::spawn(move || {
        let mut text = String::new();
        let _ = stdout.read_to_string(&mut text);
        let _ = told.send(text);
    });
    let text = hears.recv_timeout(patience).map_err(|_| format!("its process says nothing after {patience:?}"))?;
    let row = text.lines().find_map(|line| serde_json::from_str(line).ok());
    row.ok_or_else(|| format!("its process ended without a result: {:?} {}", child.0.wait(), text.trim()))
}

fn as_json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).expect("plain data")
}
