//! Three faults at once, which ones and when drawn from a seed. The seed stands in the report; `FAULT_SEED=N` draws the
//! same again.

use std::env;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use call_budget::service::scratch_postgres::{Halt, ScratchPostgres};
use fastrand::Rng;
use futures_util::future::join_all;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_postgres::Client;

use crate::suite::ground::ROLE;
use crate::suite::{Caller, Case, DATABASE_NAME, Database, HEALS, How, Length, Proxied, Round, nothing};
use crate::tools::proxy::{Stream, Toxic};
use crate::tools::scripted_dns::{Reply, ScriptedDns};

pub const CASES: &[Case] = &[Case {
    row: 36,
    id: "36.three_at_random",
    name: "any three faults at random, each from any moment on and for any time",
    how: How::Proxy,
    deadline: MAX_WAIT,
    length: Length::Short,
    heals: HEALS,
    needs: nothing,
    own_process: None,
    run: |round| Box::pin(three_at_random(round)),
}];

const MAX_WAIT: Duration = Duration::from_secs(1);
const CALLERS: usize = 3;

async fn three_at_random(round: &mut Round) {
    let seed = env::var("FAULT_SEED").map_or_else(
        |_| u64::from(fastrand::u32(..)),
        |seed| seed.parse().unwrap_or_else(|_| panic!("FAULT_SEED is {seed:?}, and no number")),
    );
    let plan = Planned::three(&mut Rng::with_seed(seed));
    let told: Vec<String> = plan.iter().map(ToString::to_string).collect();
    round.note(format!("FAULT_SEED={seed}: {}", told.join(", ")));

    let server = round.own_server(&[]).await;
    let proxy = Proxied::start(round).await;
    let dns = ScriptedDns::start();
    let nameserver = dns.address().to_string();
    let place = Place { proxy, dns: Mutex::new(dns), server };
    place.dns_is_well();
    let mut settings = round.settings(round.database().url_by_name(DATABASE_NAME, place.proxy.port()));
    settings.nameservers = vec![nameserver];
    settings.max_wait = MAX_WAIT;
    let mut callers = Vec::new();
    for _ in 0..CALLERS {
        let caller = round.caller(&settings).await;
        caller.send().await;
        callers.push(caller);
    }
    let budget = round.budget().await;

    round.fault();
    let over = AtomicBool::new(false);
    let calling = join_all(callers.iter().map(|caller| calls_until(&over, caller)));
    let began = Instant::now();
    let database = round.database().clone();
    let faults = async {
        let one = |planned: &Planned| {
            let Planned { fault, from, lasts } = *planned;
            let (place, database, caller, budget) = (&place, &database, &callers[0], &budget);
            async move {
                sleep_until(began + from).await;
                place.suffer(fault, lasts, database, caller, budget).await;
            }
        };
        join_all(plan.iter().map(one)).await;
        over.store(true, Ordering::SeqCst);
    };
    tokio::join!(calling, faults);
    place.dns_is_well();
    round.heal();
    round.recover(&callers[0]).await;
    for caller in &callers {
        caller.send().await;
    }
}

/// Whatever becomes of each: that is for the judge.
async fn calls_until(over: &AtomicBool, caller: &Caller) {
    while !over.load(Ordering::SeqCst) {
        let _ = caller.try_send().await;
        sleep(Duration::from_millis(5)).await;
    }
}

/// A fault, from when on, and how long it lasts.
#[derive(Clone, Copy)]
struct Planned {
    fault: Fault,
    from: Duration,
    lasts: Duration,
}

impl Planned {
    /// Three different faults; that they overlap is likely and not certain.
    fn three(random: &mut Rng) -> Vec<Self> {
        let mut faults = FAULTS;
        random.shuffle(&mut faults);
        let planned = |fault: &Fault| Self {
            fault: *fault,
            from: Duration::from_millis(random.u64(..600)),
            lasts: Duration::from_millis(random.u64(200..1000)),
        };
        faults[..3].iter().map(planned).collect()
    }
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { fault, from, lasts } = self;
        write!(f, "{fault:?} at {} ms for {} ms", from.as_millis(), lasts.as_millis())
    }
}

#[derive(Clone, Copy, Debug)]
enum Fault {
    Slow,
    AnswersLost,
    RequestsLost,
    Trickle,
    Slices,
    Reset,
    Refused,
    DnsSilent,
    DnsFails,
    NoSuchName,
    BackendsKilled,
    Restart,
    Crash,
    RowLocked,
    Cancelled,
}

const FAULTS: [Fault; 15] = [
    Fault::Slow,
    Fault::AnswersLost,
    Fault::RequestsLost,
    Fault::Trickle,
    Fault::Slices,
    Fault::Reset,
    Fault::Refused,
    Fault::DnsSilent,
    Fault::DnsFails,
    Fault::NoSuchName,
    Fault::BackendsKilled,
    Fault::Restart,
    Fault::Crash,
    Fault::RowLocked,
    Fault::Cancelled,
];

/// Where faults are made.
struct Place {
    proxy: Proxied,
    dns: Mutex<ScriptedDns>,
    server: Arc<Mutex<ScratchPostgres>>,
}

impl Place {
    /// Makes the fault, waits, and undoes it.
    async fn suffer(&self, fault: Fault, lasts: Duration, database: &Database, caller: &Caller, budget: &str) {
        let (up, down) = (Stream::Upstream, Stream::Downstream);
        match fault {
            Fault::Slow => self.poisoned(down, Toxic::Latency { latency: 300, jitter: 100 }, lasts).await,
            Fault::AnswersLost => self.poisoned(down, Toxic::Timeout { timeout: 0 }, lasts).await,
            Fault::RequestsLost => self.poisoned(up, Toxic::Timeout { timeout: 0 }, lasts).await,
            Fault::Trickle => self.poisoned(down, Toxic::Bandwidth { rate: 1 }, lasts).await,
            Fault::Slices => {
                let slices = Toxic::Slicer { average_size: 8, size_variation: 4, delay: 1000 };
                self.poisoned(down, slices, lasts).await;
            }
            Fault::Reset => self.poisoned(up, Toxic::ResetPeer { timeout: 0 }, lasts).await,
            Fault::Refused => {
                self.proxy.disable().await.unwrap_or_else(|error| panic!("{error}"));
                sleep(lasts).await;
                self.proxy.enable().await.unwrap_or_else(|error| panic!("{error}"));
            }
            Fault::DnsSilent => self.named(Reply::silence(), lasts).await,
            Fault::DnsFails => self.named(Reply::server_failure(), lasts).await,
            Fault::NoSuchName => self.named(Reply::no_such_name(1), lasts).await,
            Fault::BackendsKilled => backends_killed(database, lasts).await,
            Fault::Restart => self.restart(Halt::Fast).await,
            Fault::Crash => self.restart(Halt::Immediate).await,
            Fault::RowLocked => row_locked(database, budget, lasts).await,
            Fault::Cancelled => cancelled(caller, lasts).await,
        }
    }

    async fn poisoned(&self, stream: Stream, toxic: Toxic, lasts: Duration) {
        let name = self.proxy.poison(stream, toxic).await;
        sleep(lasts).await;
        self.proxy.cure(&name).await;
    }

    async fn named(&self, reply: Reply, lasts: Duration) {
        self.answers(&reply);
        sleep(lasts).await;
        self.dns_is_well();
    }

    fn dns_is_well(&self) {
        let address: IpAddr = self.proxy.address().ip();
        self.answers(&Reply::addresses(&[address], 1));
    }

    fn answers(&self, reply: &Reply) {
        self.dns.lock().unwrap_or_else(PoisonError::into_inner).set_both(DATABASE_NAME, reply);
    }

    /// As long as it takes.
    async fn restart(&self, how: Halt) {
        let server = Arc::clone(&self.server);
        let restart = move || {
            let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
            server.restart(how).unwrap_or_else(|error| panic!("{error}"));
        };
        tokio::task::spawn_blocking(restart).await.expect("it starts again");
    }
}

/// A superuser's session, unless another fault keeps it away.
async fn admin(database: &Database) -> Option<Client> {
    database.admin().await.ok()
}

/// Again and again.
async fn backends_killed(database: &Database, lasts: Duration) {
    const SQL: &str = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1";
    let until = Instant::now() + lasts;
    while Instant::now() < until {
        if let Some(admin) = admin(database).await {
            let _ = timeout(MAX_WAIT, admin.query(SQL, &[&ROLE])).await;
        }
        sleep(Duration::from_millis(100)).await;
    }
}

async fn row_locked(database: &Database, budget: &str, lasts: Duration) {
    const SQL: &str = "SELECT FROM call_budget.call_budget WHERE name = $1 FOR UPDATE";
    let Some(mut admin) = admin(database).await else { return };
    if let Ok(transaction) = admin.transaction().await {
        let _ = timeout(MAX_WAIT, transaction.query(SQL, &[&budget])).await;
        sleep(lasts).await;
        let _ = timeout(MAX_WAIT, transaction.rollback()).await;
    }
}

/// Acquires that are dropped after any short time; what one is granted lapses.
async fn cancelled(caller: &Caller, lasts: Duration) {
    let (library, budget, class) = caller.library();
    let until = Instant::now() + lasts;
    while Instant::now() < until {
        let patience = Duration::from_micros(fastrand::u64(..5_000));
        let _ = timeout(patience, library.acquire(budget, class)).await;
        sleep(Duration::from_millis(1)).await;
    }
}
