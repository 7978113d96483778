//! pyrate-limiter's PostgreSQL bucket, the one peer that runs as published: in Python, whose own cost is in its figures.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::Command;

use super::load::{Meter, Sample};
use crate::Outcome;
use crate::measure::Took;

const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/speed/peers/pyrate.py");

#[derive(Deserialize)]
struct Told {
    seconds: f64,
    waits_us: Vec<u64>,
}

/// `packages` is a directory for PYTHONPATH.
pub async fn measure(packages: &Path, url: &str, meter: Meter<'_>, threads: usize, time: Duration) -> Outcome<Sample> {
    let mut command = Command::new("python3");
    command.args([PROGRAM, url, &threads.to_string(), &time.as_secs_f64().to_string()]);
    command.env("PYTHONPATH", packages).env("PYTHONDONTWRITEBYTECODE", "1");
    let mut python = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut orders = python.stdin.take().ok_or("no way to Python")?;
    let mut lines = BufReader::new(python.stdout.take().ok_or("no way from Python")?).lines();
    if lines.next_line().await?.as_deref() != Some("ready") {
        return Err("pyrate-limiter could not be started: see what Python said".into());
    }
    let before = meter.spent().await?;
    orders.write_all(b"go\n").await?;
    let told = lines.next_line().await?.ok_or("pyrate-limiter failed: see what Python said")?;
    let after = meter.spent().await?;
    if !python.wait().await?.success() {
        return Err("pyrate-limiter failed at its end: see what Python said".into());
    }
    let told: Told = serde_json::from_str(&told)?;
    let mut waits = Took::default();
    for wait in told.waits_us {
        waits.add(Duration::from_micros(wait));
    }
    Ok(Sample::new(waits, told.seconds, 0, before, after))
}
