//! One trial of a case, as its body sees it. (`verdict` is what comes after the body.)

use std::any::Any;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use call_budget::service::scratch_postgres::ScratchPostgres;
use call_budget::store::{admin, operation::Operation};
use call_budget::{CallBudget, Settings};
use futures_util::future::join_all;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_postgres::Client;

use super::caller::{Caller, Ledger, Sent};
use super::ground::{Database, Ground};
use super::judge::{Account, Arrival, Span};
use super::leaks::Holdings;
use super::member::{Member, Orders};
use super::vendor::{Wire, now_us};

/// What a case's body uses.
pub struct Round {
    pub(super) ground: Arc<Ground>,
    /// Tells this round's requests from others' at the vendor.
    pub(super) number: u64,
    long_form: bool,
    application_name: String,
    pub(super) database: Arc<Database>,
    /// What the body used of a database given from outside: names of [`super::ground::Images`].
    pub(super) used: Mutex<BTreeSet<&'static str>>,
    admin: Client,
    pub(super) budget: Option<String>,
    pub(super) callers: Vec<Caller>,
    pub(super) ledger: Arc<Ledger>,
    pub(super) accounts: Vec<Account>,
    pub(super) granted: Vec<(String, u64)>,
    pub(super) forbidden: Vec<Span>,
    forbidden_from_us: Option<u64>,
    healed_us: Option<u64>,
    pub(super) recoveries: Vec<Duration>,
    pub(super) notes: Vec<String>,
    pub(super) before: Holdings,
    kept: Vec<Box<dyn Any + Send + Sync>>,
}

/// Somebody who keeps asking until it is granted something after the healing. Stops when dropped.
pub struct Asking(JoinHandle<u64>);

/// The budget's only class, where a case wants no other.
pub const CLASS: &str = "order";
/// Recovery takes longer than this: it does not recover.
const RECOVERY_PATIENCE: Duration = Duration::from_secs(10);

impl Round {
    pub(super) async fn begin(ground: Arc<Ground>, id: &str, long_form: bool) -> Result<Self, String> {
        let database = ground.database().await;
        let admin = database.admin().await?;
        let number = fastrand::u64(..);
        Ok(Self {
            ground,
            number,
            long_form,
            application_name: format!("fault {id} {:08x}", number as u32),
            database,
            used: Mutex::default(),
            admin,
            budget: None,
            callers: Vec::new(),
            ledger: Arc::default(),
            accounts: Vec::new(),
            granted: Vec::new(),
            forbidden: Vec::new(),
            forbidden_from_us: None,
            healed_us: None,
            recoveries: Vec::new(),
            notes: Vec::new(),
            before: Holdings::settled().await,
            kept: Vec::new(),
        })
    }

    // Ground

    /// Whether the run takes its time: a round that has to last, or that tries every one of many places, does so in full
    /// then, and in part else.
    pub fn long_form(&self) -> bool {
        self.long_form
    }

    /// The database that this round's budget lives in and that its books are read from: the one that all cases share, or
    /// what [`Round::own_server`] or [`Round::judge_at`] put in its place.
    pub fn database(&self) -> &Database {
        self.uses("database");
        &self.database
    }

    /// A superuser's session to it, not through any fault; a new one where the server has ended the last.
    ///
    /// # Panics
    /// Where the server gives none.
    pub async fn admin(&mut self) -> &mut Client {
        self.try_admin().await.unwrap_or_else(|error| panic!("{error}"))
    }

    /// A server of this round's own, to be stopped, restarted or killed. It runs until the round has been judged.
    /// To be called before any caller is made.
    pub async fn own_server(&mut self, settings: &[(&str, &str)]) -> Arc<Mutex<ScratchPostgres>> {
        let settings: Vec<(String, String)> =
            settings.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        let start = move || {
            let settings: Vec<(&str, &str)> = settings.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
            ScratchPostgres::start(&settings).unwrap_or_else(|error| panic!("{error}"))
        };
        let server = tokio::task::spawn_blocking(start).await.expect("a server of this round's own");
        let database = Arc::new(Database::on(&server).await);
        let server = Arc::new(Mutex::new(server));
        self.keep(Arc::clone(&server));
        self.judge_at(database).await;
        self.prepared().await;
        server
    }

    /// What has come to the vendor in this round, on the machine's clock.
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.ground.vendor().arrivals(self.number)
    }

    /// From now on books and sessions are read there (a promoted standby, say).
    pub async fn judge_at(&mut self, database: Arc<Database>) {
        self.admin = database.admin().await.unwrap_or_else(|error| panic!("{error}"));
        self.database = database;
    }

    /// Keeps something alive until the round has been judged: a server that the books are read from.
    pub fn keep(&mut self, thing: impl Any + Send + Sync) {
        self.kept.push(Box::new(thing));
    }

    /// What stands now belongs to the ground: threads, tasks and files count as leaks only beyond it.
    ///
    /// # Panics
    /// Once there are callers, whose own leaks would be hidden by it.
    pub async fn prepared(&mut self) {
        assert!(self.callers.is_empty(), "the ground is prepared before callers are made");
        self.before = Holdings::settled().await;
    }

    /// The name of this round's budget, made on first use: 1000 calls/s, so that pacing does not blur timings, with one
    /// class, [`CLASS`].
    pub async fn budget(&mut self) -> String {
        self.budget_with(&FAST).await
    }

    /// The same with other settings. A round has one budget.
    pub async fn budget_with(&mut self, settings: &admin::Settings) -> String {
        if let Some(name) = &self.budget {
            return name.clone();
        }
        let name = self.application_name.clone();
        let operation = Operation::begin(self.admin().await).await.unwrap();
        admin::set(&operation, &name, settings).await.unwrap();
        admin::class_set(&operation, &name, CLASS, 0, 0).await.unwrap();
        operation.commit().await.unwrap();
        self.budget.insert(name).clone()
    }

    /// Another class of this round's budget.
    pub async fn class(&mut self, class: &str, priority: i32, floor_ppm: i32) {
        let budget = self.budget().await;
        let operation = Operation::begin(self.admin().await).await.unwrap();
        admin::class_set(&operation, &budget, class, priority, floor_ppm).await.unwrap();
        operation.commit().await.unwrap();
    }

    // Callers

    /// The library's defaults, switched on, with `url` as the store. `rtt_max` alone is wider, up to the budget's send
    /// window: a busy machine is not what the cases are about.
    pub fn settings(&self, url: impl Into<String>) -> Settings {
        let mut settings = Settings::default();
        settings.enabled = true;
        settings.database_url = Some(url.into().into());
        settings.application_name = self.application_name.clone();
        settings.rtt_max = Duration::from_millis(190);
        settings
    }

    /// A caller with the settings, of [`CLASS`]. Makes the round's budget where there is none yet.
    pub async fn caller(&mut self, settings: &Settings) -> Caller {
        let budget = self.budget().await;
        self.caller_of(settings, &budget, CLASS)
    }

    /// A caller under any names. With a scripted store the names are its own business; what it granted is told with
    /// [`Round::scripted_store_granted`].
    pub fn caller_of(&mut self, settings: &Settings, budget: &str, class: &str) -> Caller {
        let wire = Wire::open(self.vendor_address(), self.number).expect("the vendor takes callers");
        let caller = Caller {
            budget: CallBudget::new(settings).expect("settings that the library takes"),
            name: budget.into(),
            class: class.into(),
            max_wait: settings.max_wait,
            ledger: Arc::clone(&self.ledger),
            wire: Arc::new(wire),
        };
        self.callers.push(caller.clone());
        caller
    }

    /// A caller in a process of its own, that calls again and again, a pause after each; started through `command`
    /// (empty: directly). To be stopped before the body ends, and its account to be given to [`Round::account`].
    pub async fn member(&mut self, command: &[&str], settings: &Settings, pause: Duration) -> Member {
        let orders = self.orders(settings, pause).await;
        Member::start(command, &orders, Arc::clone(&self.ledger)).await
    }

    /// The same, but it waits for [`Member::go`] between each permit and its use.
    pub async fn held_member(&mut self, settings: &Settings) -> Member {
        let orders = Orders { held: true, ..self.orders(settings, Duration::ZERO).await };
        Member::start(&[], &orders, Arc::clone(&self.ledger)).await
    }

    async fn orders(&mut self, settings: &Settings, pause: Duration) -> Orders {
        Orders {
            settings: settings.clone(),
            url: settings.database_url.as_ref().expect("Round::settings names the store").as_str().to_owned(),
            budget: self.budget().await,
            class: CLASS.into(),
            vendor: self.vendor_address(),
            round: self.number,
            pause,
            held: false,
        }
    }

    /// Where the vendor listens.
    pub fn vendor_address(&self) -> SocketAddr {
        self.ground.vendor().address()
    }

    /// This round's name at the server, in `pg_stat_activity`.
    pub fn application_name(&self) -> &str {
        &self.application_name
    }

    /// What another process did with its slots. Of one that was killed: what it may have taken along, as lost.
    pub fn account(&mut self, account: Account) {
        self.accounts.push(account);
    }

    /// What a scripted store granted: valid answers, each with its ReadyForQuery.
    pub fn scripted_store_granted(&mut self, class: &str, slots: u64) {
        self.granted.push((class.into(), slots));
    }

    // The course of a fault

    /// The fault is on: from now on the time of each [`Caller::try_send`] is held against the deadline.
    pub fn fault(&mut self) {
        self.healed_us = None;
        self.ledger.fault.store(true, Ordering::SeqCst);
    }

    /// No leave may be given from now on until the fault is undone: the store cannot grant anything. What is sent all the
    /// same is in doubt.
    pub fn no_send_is_allowed(&mut self) {
        self.forbidden_from_us.get_or_insert_with(now_us);
    }

    /// Ends that. [`Round::healing`] does it; a body that heals in another way says it before it does, since the first grant
    /// may come before the healing returns.
    pub fn sending_is_allowed(&mut self) {
        if let Some(from_us) = self.forbidden_from_us.take() {
            self.forbidden.push(Span { from_us, to_us: now_us() });
        }
    }

    /// Records a time under the fault of something that is not [`Caller::try_send`].
    pub fn ended(&self, took: Duration) {
        self.ledger.ended(took);
    }

    /// The fault is over. Returns when, on the machine's clock.
    pub fn heal(&mut self) -> u64 {
        let now_us = now_us();
        self.ledger.fault.store(false, Ordering::SeqCst);
        self.healed_us = Some(now_us);
        self.sending_is_allowed();
        now_us
    }

    /// Asks from now on, again and again, until something is granted after the healing.
    pub async fn keep_asking(&self, caller: &Caller) -> Asking {
        const PAUSE: Duration = Duration::from_millis(20);
        let caller = caller.clone();
        let (entered, has_entered) = tokio::sync::oneshot::channel();
        let asking = tokio::spawn(async move {
            let _ = entered.send(());
            loop {
                let ended = caller.attempt(caller.max_wait).await;
                if matches!(ended.result, Ok(Sent::Left)) && !caller.ledger.fault.load(Ordering::SeqCst) {
                    return now_us();
                }
                sleep(PAUSE).await;
            }
        });
        let _ = has_entered.await;
        Asking(asking)
    }

    /// Heals while somebody waits, and records how long it takes from the end of `heal` until he or a newcomer is granted
    /// a slot.
    ///
    /// # Panics
    /// Where nobody is granted anything in 10 s.
    pub async fn healing<T>(&mut self, caller: &Caller, heal: impl Future<Output = T>) -> T {
        let waiting = self.keep_asking(caller).await;
        self.sending_is_allowed();
        let output = heal.await;
        self.heal();
        let newcomer = self.keep_asking(caller).await;
        self.recovered([waiting, newcomer]).await;
        output
    }

    /// Records how long it takes from [`Round::heal`] until a newcomer is granted a slot.
    ///
    /// # Panics
    /// Where he is granted nothing in 10 s.
    pub async fn recover(&mut self, caller: &Caller) {
        let newcomer = self.keep_asking(caller).await;
        self.recovered([newcomer]).await;
    }

    /// Records a recovery that the case has measured itself.
    pub fn recovered_in(&mut self, took: Duration) {
        self.recoveries.push(took);
    }

    /// What this case cannot do on this machine. A sentence; it stands in the report's row.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// The first of them counts. The others are waited for: a call that is given up may still be opening its session, where
    /// no reading of the books sees it.
    async fn recovered<const N: usize>(&mut self, mut asking: [Asking; N]) {
        let healed_us = self.healed_us.expect("heal() comes before recovery");
        let all = async {
            let granted = join_all(asking.iter_mut().map(|one| &mut one.0)).await;
            granted.into_iter().map(|one| one.expect("asking does not panic")).min().expect("somebody asks")
        };
        let granted_us = timeout(RECOVERY_PATIENCE, all)
            .await
            .unwrap_or_else(|_| panic!("{RECOVERY_PATIENCE:?} after the healing still nothing was granted"));
        self.recoveries.push(Duration::from_micros(granted_us.saturating_sub(healed_us)));
    }

    /// Notes that a part of what was given from outside is in use, so that the report's row can say what that is.
    pub(super) fn uses(&self, part: &'static str) {
        self.used.lock().unwrap_or_else(PoisonError::into_inner).insert(part);
    }

    pub(super) async fn try_admin(&mut self) -> Result<&mut Client, String> {
        if self.admin.is_closed() {
            self.admin = self.database.admin().await?;
        }
        Ok(&mut self.admin)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// 1000 calls in any second, spread as the schema demands it.
pub const FAST: admin::Settings = admin::Settings {
    limit: 1000,
    window_us: 1_000_000,
    send_window_us: 200_000,
    arrival_jitter_us: 50_000,
    max_cost: 1,
    interval_us: 1_300,
    lookahead_us: 60_000,
};
