//! One page, and a machine on which its commands are run.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use call_budget::service::mock_vendor::{MockVendor, Settings};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::Command;

use crate::support;

/// Longer than any page takes.
const PATIENCE: Duration = Duration::from_secs(180);
/// Whole suites and demos: `scripts/test` runs them itself, or names what it leaves to others.
const SCRIPTS: &str = "scripts/";

pub struct Page {
    name: String,
    blocks: Vec<String>,
}

/// What came of a page's commands.
#[derive(Debug)]
pub struct Ran {
    pub commands: usize,
    pub output: String,
    /// Budgets that are paused.
    pub paused: i64,
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Every page that tells people what to type: its name and its text.
pub fn all() -> Vec<(String, String)> {
    let mut pages = vec![PathBuf::from("README.md"), PathBuf::from("CHANGELOG.md")];
    for folder in ["docs", "docs/ko"] {
        let files = std::fs::read_dir(root().join(folder)).unwrap().map(|file| file.unwrap().file_name());
        pages.extend(
            files.map(|name| Path::new(folder).join(name)).filter(|path| path.extension().is_some_and(|e| e == "md")),
        );
    }
    assert!(pages.len() > 12, "{pages:?}");
    pages
        .into_iter()
        .map(|page| (page.display().to_string(), std::fs::read_to_string(root().join(page)).unwrap()))
        .collect()
}

impl Page {
    pub fn of(name: &str) -> Self {
        let text = std::fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let blocks = text
            .split("\n```sh\n")
            .skip(1)
            .filter_map(|rest| rest.split_once("\n```").map(|(block, _)| block.to_owned()));
        Self { name: name.to_owned(), blocks: blocks.collect() }
    }

    /// Line by line, without comments.
    pub fn commands(&self) -> Vec<String> {
        let lines = self.blocks.iter().flat_map(|block| block.lines());
        let lines = lines.map(|line| line.split("    # ").next().unwrap_or_default().trim().to_owned());
        lines.filter(|line| !line.is_empty() && !line.starts_with(SCRIPTS)).collect()
    }

    /// Runs its commands in one shell, the first that fails ends it.
    ///
    /// # Panics
    /// One failed, or they took too long.
    pub async fn run(&self) -> Ran {
        let database = support::database().await;
        let vendor = MockVendor::start(Settings::default()).await.unwrap();
        let place = tempfile::tempdir().unwrap();
        let program = Path::new(env!("CARGO_BIN_EXE_call-budget"));
        let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
        let prepared = "call-budget budget set kis-real --limit 18 --window 1s
            call-budget class set kis-real order --priority 0 --floor 0.1
            call-budget class set kis-real minute --priority 1 --floor 0.4
            call-budget class set kis-real index --priority 2 --floor 0.2
            call-budget class set kis-real eod --priority 3 --floor 0.1";
        let commands = self.commands().join("\n");
        let script = place.path().join("commands");
        std::fs::write(&script, format!("set -eu\n{prepared}\necho BEGIN\n{commands}\necho END\n")).unwrap();
        let said = place.path().join("said");
        let file = std::fs::File::create(&said).unwrap();
        let mut shell = Command::new("sh");
        shell
            .arg(&script)
            .env("PATH", path)
            .env("HOME", place.path())
            .env("DATABASE_URL", &database.url)
            .env("CALL_BUDGET_ENABLED", "true")
            .env("VENDOR_URL", format!("http://{}/uapi/domestic-stock/v1/quotations/inquire-price", vendor.addr()))
            .env_remove("XDG_STATE_HOME")
            .current_dir(place.path())
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .kill_on_drop(true);
        let mut shell = shell.spawn().unwrap();
        let group = Pid::from_raw(shell.id().unwrap().try_into().unwrap()).unwrap();
        let ended = tokio::time::timeout(PATIENCE, shell.wait()).await;
        // What a page starts in the background ends with it.
        let _ = kill_process_group(group, Signal::TERM);
        let text = std::fs::read_to_string(&said).unwrap();
        let status = ended.unwrap_or_else(|_| panic!("{}: its commands did not end\n{text}", self.name)).unwrap();
        assert!(status.success() && text.contains("\nEND"), "{}: {status}\n{text}", self.name);
        vendor.stop().await;
        let count = async |sql: &str| database.client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
        let sessions = async || {
            count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'call-budget%'").await
        };
        support::eventually("whoever was connected has gone", async || sessions().await == 0).await;
        Ran {
            commands: self.commands().len(),
            output: text,
            paused: count("SELECT count(*) FROM call_budget.call_budget_status WHERE paused").await,
        }
    }
}
