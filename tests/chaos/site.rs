//! Where the fleet's budget lives: a primary and its streaming standby, each with a clock that can be stepped and behind a fault
//! proxy, and a name server that says which of them the store's name stands for.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use call_budget::Settings;
use call_budget::cli::demo::plan::{self, BUDGET, LIMIT, LOOKAHEAD};
use call_budget::service::scratch_postgres::{ScratchOptions, ScratchPostgres};
use call_budget::store::access::{self, Access};
use call_budget::store::admin;
use call_budget::store::operation::Operation;
use fastrand::Rng;
use hickory_resolver::proto::rr::RecordType;
use tokio::time::{sleep, timeout};
use tokio_postgres::{Client, NoTls};

use crate::commits::Commits;
use crate::fleet::now_us;
use crate::support;
use crate::tools::faketime::{self, Offset, SteppedClock};
use crate::tools::kept::within;
use crate::tools::proxy::{FaultProxy, RemoteProxy, Toxiproxy};
use crate::tools::psql::{ask, try_ask};
use crate::tools::scripted_dns::{Reply, ScriptedDns};
use crate::tools::standby::{PRIMARY, STANDBY};

/// Everything that the store is made of. It ends with the value.
pub struct Site {
    /// One where this machine has no second loopback address; then there is no standby.
    seats: Vec<Seat>,
    primary: usize,
    pub commits: Commits,
    dns: ScriptedDns,
    // Its proxies are the seats' own.
    _proxy: FaultProxy,
}

/// A place for a server. Promotion moves the primary from one to the other.
struct Seat {
    server: Arc<Mutex<Option<ScratchPostgres>>>,
    address: Ipv4Addr,
    port: u16,
    /// `None`: without libfaketime.
    clock: Option<Arc<SteppedClock>>,
    /// Of the clock over the machine's.
    ahead_us: i64,
    /// Where callers reach the server.
    reached_at: Ipv4Addr,
    proxy: RemoteProxy,
}

const NAME: &str = "store.test";
const TTL_S: u32 = 1;
pub const ROLE: &str = "chaos_client";
const PASSWORD: &str = "not-a-real-password";
const PATIENCE: Duration = Duration::from_secs(30);
/// Wider than the default, and under the send window of 50 ms: where commits wait for a standby, a round trip is two disks
/// for each lane that is ahead at the budget's row.
const RTT_MAX: Duration = Duration::from_millis(45);
/// As in the demo: classes that want more than there is go on waiting.
const MAX_WAIT: Duration = Duration::from_secs(3600);
/// The seats' proxies, on one port.
const REACHED_AT: [Ipv4Addr; 2] = [Ipv4Addr::new(127, 0, 0, 4), Ipv4Addr::new(127, 0, 0, 5)];
/// A standby whose primary comes back finds it at once, not after 5 s: commits that wait for it would. And a new file of the
/// log is not first filled with 16 MB of nothing, for which they would wait too.
const SETTINGS: [(&str, &str); 2] = [("wal_retrieve_retry_interval", "200ms"), ("wal_init_zero", "off")];
const READ_TO_US: i64 = 1000;

/// Whether servers can stand at two addresses of this machine, or why not.
pub fn two_addresses() -> Result<(), String> {
    for address in [PRIMARY, STANDBY].into_iter().chain(REACHED_AT) {
        TcpListener::bind((address, 0)).map_err(|error| format!("no server can listen at {address}: {error}"))?;
    }
    Ok(())
}

impl Site {
    /// Starts servers, proxies and names, and sets the demo's budget and classes.
    pub async fn start(rng: &mut Rng) -> Result<Self, String> {
        let places = match two_addresses() {
            Ok(()) => vec![(PRIMARY, REACHED_AT[0]), (STANDBY, REACHED_AT[1])],
            Err(_) => vec![(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST)],
        };
        let proxy = FaultProxy::start().await;
        let toxiproxy = Toxiproxy::at(&proxy.url());
        let mut seats: Vec<Seat> = Vec::new();
        for (address, reached_at) in places {
            let clock = faketime::available().ok().map(|()| SteppedClock::new().map(Arc::new)).transpose()?;
            let follows = seats.first().map(|seat| Arc::clone(&seat.server));
            let server = start_server(address, None, clock.clone(), follows).await?;
            let port = server.port();
            let listen = format!("{reached_at}:{}", seats.first().map_or(0, |seat| seat.proxy.port()));
            let upstream = format!("{address}:{port}");
            let proxy = toxiproxy.create(&address.to_string(), &listen, &upstream).await;
            let proxy = proxy.map_err(|error| error.to_string())?;
            let server = Arc::new(Mutex::new(Some(server)));
            seats.push(Seat { server, address, port, clock, ahead_us: 0, reached_at, proxy });
        }
        let mut site = Self { seats, primary: 0, commits: Commits::Durable, dns: ScriptedDns::start(), _proxy: proxy };
        // No two machines' clocks are the same.
        for seat in &mut site.seats {
            seat.set_clock(rng.i64(-200_000..200_000));
        }
        site.name_stands_for_the_primary();
        site.set_up().await?;
        site.draw_commits(rng).await?;
        site.commits_wait_for_the_standby().await?;
        Ok(site)
    }

    async fn set_up(&self) -> Result<(), String> {
        let mut client = support::connect_and_migrate(&self.superusers_url()).await;
        let failed = |error: &dyn std::fmt::Display| format!("the budget cannot be set up: {error}");
        let role = format!("CREATE ROLE {ROLE} LOGIN PASSWORD '{PASSWORD}'");
        client.batch_execute(&role).await.map_err(|error| failed(&error))?;
        let operation = Operation::begin(&mut client).await.map_err(|error| failed(&error))?;
        let set_up = async {
            access::give(&operation, ROLE, Access::Client, true).await?;
            admin::set(&operation, BUDGET, &settings()).await?;
            for class in plan::classes() {
                let floor_ppm = (class.floor * 1e6) as i32;
                admin::class_set(&operation, BUDGET, class.name, class.priority, floor_ppm).await?;
            }
            operation.commit().await
        };
        set_up.await.map_err(|error| failed(&error))
    }

    /// The settings of a caller, and the URL that goes with them: by the name, through the proxy.
    pub fn callers(&self) -> (Settings, String) {
        let mut settings = Settings::default();
        settings.enabled = true;
        settings.application_name = "chaos".into();
        settings.max_wait = MAX_WAIT;
        settings.rtt_max = RTT_MAX;
        settings.nameservers = vec![self.dns.address().to_string()];
        let port = self.seats[0].proxy.port();
        (settings, format!("postgres://{ROLE}:{PASSWORD}@{NAME}:{port}/postgres?sslmode=disable"))
    }

    /// The primary's proxy.
    pub fn proxy(&self) -> &RemoteProxy {
        &self.seats[self.primary].proxy
    }

    /// A superuser's session at the primary, past all faults.
    pub async fn session(&self) -> Result<Client, String> {
        session(&self.superusers_url()).await
    }

    /// The same as soon as the primary gives one and takes writes.
    pub async fn serves(&self) -> Result<Client, String> {
        let serves = async {
            loop {
                if let Ok(client) = self.session().await
                    && let Ok(row) = client.query_one("SELECT pg_is_in_recovery()", &[]).await
                    && !row.get::<_, bool>(0)
                {
                    return client;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, serves).await.map_err(|_| format!("the server does not serve within {PATIENCE:?}"))
    }

    fn superusers_url(&self) -> String {
        let server = self.seats[self.primary].server.lock().unwrap_or_else(PoisonError::into_inner);
        server.as_ref().expect("a seat is empty only while its server is replaced").url("postgres")
    }

    /// Does what blocks with the primary where it may.
    pub async fn with_primary<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut ScratchPostgres) -> T + Send + 'static,
    ) -> Result<T, String> {
        on(&self.seats[self.primary].server, order).await
    }

    /// The same with the standby.
    pub async fn with_standby<T: Send + 'static>(
        &self,
        order: impl FnOnce(&mut ScratchPostgres) -> T + Send + 'static,
    ) -> Result<T, String> {
        on(&self.seats[1 - self.primary].server, order).await
    }

    /// Steps the primary's clock, from where it is.
    ///
    /// # Errors
    /// The server's own clock says that it did not step so far.
    pub async fn step_clock(&mut self, by_us: i64) -> Result<(), String> {
        let somebody = self.session().await?;
        let before = clock_ahead_us(&somebody).await?;
        let seat = &mut self.seats[self.primary];
        seat.set_clock(seat.ahead_us + by_us);
        let after = clock_ahead_us(&somebody).await?;
        let (least, most) = (after.start() - before.end(), after.end() - before.start());
        // Both clocks are read to the microsecond, and the machine's own may be led to its time.
        let least_and_most = least - READ_TO_US..=most + READ_TO_US;
        if least_and_most.contains(&by_us) {
            Ok(())
        } else {
            Err(format!("the server's clock was to step by {by_us} us and did by {least} to {most} us"))
        }
    }

    /// Makes the standby take writes and lets the name stand for it. The old primary is dead.
    pub async fn promote(&mut self, rng: &mut Rng) -> Result<(), String> {
        let promote = |standby: &mut ScratchPostgres| {
            // What the old primary waited for is not there any more.
            ask(standby, "ALTER SYSTEM RESET synchronous_standby_names");
            ask(standby, "SELECT pg_promote(wait => true, wait_seconds => 20)");
            within(PATIENCE, "the promoted standby takes writes", || {
                try_ask(standby, "SHOW transaction_read_only").is_ok_and(|answer| answer == "off")
            });
        };
        self.with_standby(promote).await?;
        self.primary = 1 - self.primary;
        self.draw_commits(rng).await?;
        self.name_stands_for_the_primary();
        Ok(())
    }

    /// A new standby in the dead primary's place.
    pub async fn replace_standby(&mut self) -> Result<(), String> {
        let seat = &self.seats[1 - self.primary];
        on_place(&seat.server, |place| drop(place.take())).await?;
        let follows = Some(Arc::clone(&self.seats[self.primary].server));
        let standby = start_server(seat.address, Some(seat.port), seat.clock.clone(), follows).await?;
        on_place(&seat.server, |place| *place = Some(standby)).await?;
        self.commits_wait_for_the_standby().await
    }

    /// For the sessions to come: there are none yet at a new primary.
    async fn draw_commits(&mut self, rng: &mut Rng) -> Result<(), String> {
        self.commits = Commits::draw(rng, self.seats.len() == 2);
        let value = self.commits.synchronous_commit();
        let sql = format!("ALTER ROLE {ROLE} SET synchronous_commit = {value}");
        let client = self.serves().await?;
        client.batch_execute(&sql).await.map_err(|error| format!("{sql}: {error}"))
    }

    /// Where commits are to be replicated.
    async fn commits_wait_for_the_standby(&self) -> Result<(), String> {
        if self.commits != Commits::Replicated {
            return Ok(());
        }
        let wait = |primary: &mut ScratchPostgres| {
            within(PATIENCE, "the standby listens", || standby_is(primary, "state = 'streaming'"));
            ask(primary, "ALTER SYSTEM SET synchronous_standby_names = '*'");
            ask(primary, "SELECT pg_reload_conf()");
        };
        self.with_primary(wait).await?;
        self.commits_can_end().await
    }

    /// Waits, after a start of the primary, until the standby is there that its commits wait for.
    pub async fn commits_can_end(&self) -> Result<(), String> {
        if self.commits != Commits::Replicated {
            return Ok(());
        }
        let wait = |primary: &mut ScratchPostgres| {
            within(PATIENCE, "the standby is synchronous", || {
                standby_is(primary, "state = 'streaming' AND sync_state = 'sync'")
            });
        };
        self.with_primary(wait).await
    }

    fn name_stands_for_the_primary(&self) {
        let address = IpAddr::V4(self.seats[self.primary].reached_at);
        self.dns.set(NAME, RecordType::A, Reply::addresses(&[address], TTL_S));
        self.dns.set(NAME, RecordType::AAAA, Reply::no_data(TTL_S));
    }
}

fn standby_is(primary: &ScratchPostgres, state: &str) -> bool {
    let sql = format!("SELECT count(*) FROM pg_stat_replication WHERE {state}");
    try_ask(primary, &sql).is_ok_and(|answer| answer == "1")
}

impl Seat {
    fn set_clock(&mut self, ahead_us: i64) {
        self.ahead_us = ahead_us;
        let by = Duration::from_micros(ahead_us.unsigned_abs());
        if let Some(clock) = &self.clock {
            clock.step(if ahead_us < 0 { Offset::Behind(by) } else { Offset::Ahead(by) });
        }
    }
}

/// How far the server's wall clock is ahead of this machine's monotonic one: between these.
async fn clock_ahead_us(somebody: &Client) -> Result<RangeInclusive<i64>, String> {
    let sql = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";
    let before = now_us().cast_signed();
    let row = somebody.query_one(sql, &[]).await.map_err(|error| format!("the server's clock: {error}"))?;
    let after = now_us().cast_signed();
    let server: i64 = row.get(0);
    Ok(server - after..=server - before)
}

/// The demo's own.
fn settings() -> admin::Settings {
    let us = |duration: Duration| i64::try_from(duration.as_micros()).expect("well under a year");
    admin::Settings {
        limit: LIMIT.units as i32,
        window_us: us(LIMIT.window),
        send_window_us: us(LIMIT.send_window),
        arrival_jitter_us: us(LIMIT.arrival_jitter),
        max_cost: LIMIT.max_cost as i32,
        interval_us: us(LIMIT.interval().expect("the demo's limit is safe at some interval")),
        lookahead_us: us(LOOKAHEAD),
    }
}

async fn session(url: &str) -> Result<Client, String> {
    let connect = timeout(Duration::from_secs(5), tokio_postgres::connect(url, NoTls)).await;
    let (client, connection) =
        connect.map_err(|_| "no session within 5 s")?.map_err(|error| format!("no session: {error}"))?;
    tokio::spawn(connection);
    Ok(client)
}

type Place = Arc<Mutex<Option<ScratchPostgres>>>;

async fn start_server(
    address: Ipv4Addr,
    port: Option<u16>,
    clock: Option<Arc<SteppedClock>>,
    follows: Option<Place>,
) -> Result<ScratchPostgres, String> {
    let start = move || {
        let environment: Vec<(&str, String)> = clock.iter().flat_map(|clock| clock.environment()).collect();
        let environment: Vec<(&str, &str)> = environment.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let follows = follows.as_ref().map(|place| place.lock().unwrap_or_else(PoisonError::into_inner));
        let options = ScratchOptions {
            settings: &SETTINGS,
            environment: &environment,
            address,
            port,
            standby_of: follows.as_deref().and_then(Option::as_ref),
            within: None,
        };
        ScratchPostgres::start_with(&options).map_err(|error| error.to_string())
    };
    tokio::task::spawn_blocking(start).await.map_err(|error| error.to_string())?
}

async fn on<T: Send + 'static>(
    place: &Place,
    order: impl FnOnce(&mut ScratchPostgres) -> T + Send + 'static,
) -> Result<T, String> {
    on_place(place, |place| order(place.as_mut().expect("a seat is empty only while its server is replaced"))).await
}

async fn on_place<T: Send + 'static>(
    place: &Place,
    order: impl FnOnce(&mut Option<ScratchPostgres>) -> T + Send + 'static,
) -> Result<T, String> {
    let place = Arc::clone(place);
    let work = move || order(&mut place.lock().unwrap_or_else(PoisonError::into_inner));
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
}
