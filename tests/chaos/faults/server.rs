//! The server crashes, stops, starts, and is followed by its standby.

use std::time::Duration;

use call_budget::service::scratch_postgres::{Halt, ScratchPostgres};
use fastrand::Rng;
use tokio::time::{Instant, sleep, timeout};

use super::{Healed, Scene, between};
use crate::site::ROLE;
use crate::tools::kept::signal;
use crate::tools::processes::kill;
use crate::tools::psql::ask;

const PATIENCE: Duration = Duration::from_secs(20);

pub async fn backend_killed(scene: &mut Scene) -> Result<Healed, String> {
    let forgettable = scene.site.commits.forgotten_by_a_crash();
    let somebody = scene.site.session().await?;
    let sql = "SELECT pid FROM pg_stat_activity WHERE usename::text = $1 ORDER BY random() LIMIT 1";
    let row = somebody.query_one(sql, &[&ROLE]).await.map_err(|error| format!("no session of a caller: {error}"))?;
    let pid = row.get::<_, i32>(0).cast_unsigned();
    blocking(move || signal(pid, "KILL")).await?;
    let ended = async {
        while !somebody.is_closed() {
            sleep(Duration::from_millis(1)).await;
        }
    };
    timeout(PATIENCE, ended).await.map_err(|_| "the server goes on with a process that was killed")?;
    scene.site.serves().await?;
    scene.site.commits_can_end().await?;
    Ok(Healed { forgettable, ..Healed::now(format!("commits {:?}", scene.site.commits)) })
}

pub async fn immediate(scene: &mut Scene, rng: &mut Rng) -> Result<Healed, String> {
    let forgettable = scene.site.commits.forgotten_by_a_crash();
    halt(scene, Halt::Immediate).await?;
    let down = between(rng, 0, 2000);
    sleep(down).await;
    resume(scene).await?;
    Ok(Healed { forgettable, ..Healed::now(format!("down for {down:.1?}, commits {:?}", scene.site.commits)) })
}

pub async fn restart(scene: &mut Scene) -> Result<Healed, String> {
    halt(scene, Halt::Fast).await?;
    resume(scene).await?;
    Ok(Healed::now(""))
}

pub async fn promotion(scene: &mut Scene, rng: &mut Rng) -> Result<Healed, String> {
    // Cut off first, so that there is something to forget.
    let began = Instant::now();
    let cut_off = rng.bool() && scene.site.commits.forgotten_by_a_promotion(Duration::ZERO) > 0;
    if cut_off {
        let deaf = |standby: &mut ScratchPostgres| {
            ask(standby, "ALTER SYSTEM SET primary_conninfo = ''");
            ask(standby, "SELECT pg_reload_conf()");
        };
        scene.site.with_standby(deaf).await?;
        sleep(between(rng, 100, 1500)).await;
    }
    scene.site.with_primary(kill).await?;
    let unheard = if cut_off { began.elapsed() } else { Duration::ZERO };
    let forgettable = scene.site.commits.forgotten_by_a_promotion(unheard);
    let before = scene.site.commits;
    sleep(between(rng, 0, 1000)).await;
    scene.site.promote(rng).await?;
    let note = format!("commits {before:?}, cut off for {unheard:.1?} before, then {:?}", scene.site.commits);
    Ok(Healed { forgettable, ..Healed::now(note) })
}

async fn halt(scene: &Scene, how: Halt) -> Result<(), String> {
    scene.site.with_primary(move |server| server.halt(how).map_err(|error| error.to_string())).await?
}

async fn resume(scene: &Scene) -> Result<(), String> {
    scene.site.with_primary(|server| server.resume().map_err(|error| error.to_string())).await??;
    scene.site.commits_can_end().await
}

async fn blocking(work: impl FnOnce() + Send + 'static) -> Result<(), String> {
    tokio::task::spawn_blocking(work).await.map_err(|error| error.to_string())
}
