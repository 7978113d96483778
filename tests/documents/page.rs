//! One page, and a machine on which its commands are run.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use call_budget::service::mock_vendor::{MockVendor, Settings};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::support;

/// Longer than any page takes.
const PATIENCE: Duration = Duration::from_secs(180);
/// What whoever runs this test has started already.
const STARTED_BY_OTHERS: &[&str] = &["scripts/demo", "scripts/test"];

pub struct Page {
    name: String,
    blocks: Vec<String>,
}

/// What came of a page's commands.
#[derive(Debug)]
pub struct Ran {
    pub commands: usize,
    pub output: String,
    /// Sessions of call-budget at the database, once all is over.
    pub sessions_left: i64,
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
        lines
            .filter(|line| !line.is_empty() && !STARTED_BY_OTHERS.iter().any(|other| line.starts_with(other)))
            .collect()
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
        let mut shell = Command::new("sh");
        shell
            .args(["-eu"])
            .env("PATH", path)
            .env("HOME", place.path())
            .env("DATABASE_URL", &database.url)
            .env("CALL_BUDGET_ENABLED", "true")
            .env("VENDOR_URL", format!("http://{}/uapi/domestic-stock/v1/quotations/inquire-price", vendor.addr()))
            .env_remove("XDG_STATE_HOME")
            .current_dir(place.path())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let mut shell = shell.spawn().unwrap();
        let group = shell.id().unwrap();
        // What a page starts in the background ends with it.
        let script =
            format!("trap 'kill $(jobs -p) 2>/dev/null; wait' EXIT\n{prepared}\necho BEGIN\n{commands}\necho END\n");
        shell.stdin.take().unwrap().write_all(script.as_bytes()).await.unwrap();
        let output = tokio::time::timeout(PATIENCE, shell.wait_with_output()).await;
        let output = output
            .unwrap_or_else(|_| panic!("{}: its commands (process group {group}) did not end", self.name))
            .unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success() && text.contains("END"), "{}: {}\n{text}", self.name, output.status);
        vendor.stop().await;
        let count = async |sql: &str| database.client.query_one(sql, &[]).await.unwrap().get::<_, i64>(0);
        Ran {
            commands: self.commands().len(),
            output: text,
            sessions_left: count("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'call-budget%'").await,
            paused: count("SELECT count(*) FROM call_budget.call_budget_status WHERE paused").await,
        }
    }
}
