//! What comes after a case's body: the books are read, what the round used must be gone, and each request is judged.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::caller::Caller;
use super::judge::{self, Account, Measured};
use super::leaks::Holdings;
use super::round::Round;

/// What a round came to.
pub struct Verdict {
    pub measured: Measured,
    /// The receiver stood still when it mattered: to be repeated.
    pub inconclusive: bool,
    /// What could not be done or told on this machine.
    pub notes: Vec<String>,
}

impl Round {
    /// Judges the round: `failures` is what the body asserted in vain.
    pub(super) async fn judge(mut self, failures: Vec<String>) -> Verdict {
        let mut measured = Measured { failures, ..Measured::default() };
        self.ledger.fault.store(false, Ordering::SeqCst);
        self.sending_is_allowed();

        let books = self.settled_books().await;
        let mut accounts = std::mem::take(&mut self.accounts);
        accounts.extend(self.callers.drain(..).map(|caller| caller.account()));
        measured.lost = accounts.iter().map(|account| account.lost).sum();

        measured.failures.extend(self.all_arrived().await.err());
        measured.leaks = self.leaks().await;
        // A second reading, now that nobody is left who could still be granted something.
        let afterwards = self.unbalanced(&accounts).await;
        measured.unbalanced = if afterwards.is_empty() { books } else { afterwards };

        let vendor = self.ground.vendor();
        let doubt =
            judge::doubt(&vendor.arrivals(self.number), &self.ledger.leaves(), &self.forbidden, &vendor.stalls());
        measured.sends_in_doubt = doubt.in_doubt;
        measured.ends = self.ledger.ends();
        measured.recoveries = self.recoveries;
        let mut notes = self.notes;
        notes.extend(self.before.untold().map(str::to_owned));
        if let Some(images) = self.database.images() {
            let used = self.used.into_inner().unwrap_or_else(PoisonError::into_inner);
            let of = |part| images.get(part).map(|made_of| format!("{part} of docker-compose.yml: {made_of}"));
            notes.extend(used.into_iter().filter_map(of));
        }
        Verdict { measured, inconclusive: doubt.inconclusive > 0, notes }
    }

    /// Where the books do not balance once nothing of this round is at work at the server; waits for that.
    async fn settled_books(&mut self) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let accounts: Vec<Account> =
                self.callers.iter().map(Caller::account).chain(self.accounts.iter().cloned()).collect();
            let unbalanced = self.unbalanced(&accounts).await;
            let settled = unbalanced.is_empty() && matches!(self.sessions("AND state <> 'idle'").await, Ok(0));
            if settled || Instant::now() > deadline {
                return unbalanced;
            }
            sleep(LOOK).await;
        }
    }

    async fn unbalanced(&mut self, accounts: &[Account]) -> Vec<String> {
        let granted = match self.granted_in_database().await {
            Ok(granted) => granted,
            Err(error) => return vec![format!("they cannot be read: {error}")],
        };
        let granted_to = |class: &str| -> u64 {
            granted.iter().chain(&self.granted).filter(|(name, _)| name == class).map(|(_, slots)| slots).sum()
        };
        let mut classes: Vec<&str> = granted.iter().chain(&self.granted).map(|(class, _)| class.as_str()).collect();
        classes.extend(accounts.iter().map(|account| account.class.as_str()));
        classes.sort_unstable();
        classes.dedup();
        classes.into_iter().filter_map(|class| judge::balance(class, granted_to(class), accounts).err()).collect()
    }

    async fn granted_in_database(&mut self) -> Result<Vec<(String, u64)>, String> {
        const SQL: &str = "SELECT name::text, granted FROM call_budget.call_budget_class WHERE budget = $1";
        let Some(budget) = self.budget.clone() else { return Ok(Vec::new()) };
        let rows = timeout(PATIENCE, self.try_admin().await?.query(SQL, &[&budget])).await;
        let rows = rows.map_err(|_| "the server does not answer")?.map_err(|error| format!("{error:?}"))?;
        Ok(rows.iter().map(|row| (row.get(0), row.get::<_, i64>(1).cast_unsigned())).collect())
    }

    /// This round's sessions at the server.
    async fn sessions(&mut self, which: &str) -> Result<usize, String> {
        let sql = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 {which}");
        let name = self.application_name().to_owned();
        let row = timeout(PATIENCE, self.try_admin().await?.query_one(&sql, &[&name])).await;
        let row = row.map_err(|_| "the server does not answer")?.map_err(|error| format!("{error:?}"))?;
        Ok(usize::try_from(row.get::<_, i64>(0)).unwrap_or_default())
    }

    /// What left must come: else the vendor has not seen everything that it is to judge.
    async fn all_arrived(&self) -> Result<(), String> {
        let sent = usize::try_from(self.ledger.sent.load(Ordering::SeqCst)).unwrap_or(usize::MAX);
        let arrived = || self.ground.vendor().arrivals(self.number).len();
        let wait = async {
            while arrived() < sent {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let late = |_| format!("{sent} requests left and {} arrived: nothing can be said of them", arrived());
        timeout(PATIENCE, wait).await.map_err(late)
    }

    async fn leaks(&mut self) -> Vec<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let sessions = self.sessions("").await;
            let mut leaks = Holdings::now().more_than(&self.before);
            match sessions {
                Ok(0) => {}
                Ok(sessions) => leaks.push(format!("{sessions} sessions at the server")),
                Err(error) => leaks.push(format!("sessions that cannot be counted: {error}")),
            }
            if leaks.is_empty() || Instant::now() > deadline {
                return leaks;
            }
            sleep(LOOK).await;
        }
    }
}

/// How long what a round used may take to be gone.
const PATIENCE: Duration = Duration::from_secs(3);
const LOOK: Duration = Duration::from_millis(10);
