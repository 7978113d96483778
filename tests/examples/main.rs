//! The examples as their readers run them, and what they then see. Each brings its servers along.

mod another_vendor;
mod black_hole;
mod order_book;

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::sync::OnceCell;

/// What an example prints. None may last longer than two minutes.
async fn run(example: &str, arguments: &[&str]) -> String {
    let run = Command::new(built(example).await)
        .args(arguments)
        // Its own servers, whatever the tests use.
        .env_remove("DATABASE_URL")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(Duration::from_secs(120), run).await.expect("the example ends").unwrap();
    let (shown, complained) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8_lossy(&output.stderr));
    println!("{shown}");
    assert!(output.status.success() && complained.is_empty(), "{}: {complained}", output.status);
    shown
}

/// The program of an example, brought up to date first: a test of its own target alone builds no examples.
async fn built(example: &str) -> PathBuf {
    static BUILT: OnceCell<()> = OnceCell::const_new();
    let tests = std::env::current_exe().unwrap();
    let folder = tests.parent().and_then(|deps| deps.parent()).expect("tests are built in target/PROFILE/deps");
    let profile = match folder.file_name().and_then(|name| name.to_str()) {
        Some("debug") | None => "dev",
        Some(other) => other,
    };
    BUILT
        .get_or_init(|| async {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--quiet", "--locked", "--examples", "--profile", profile]);
            build.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).kill_on_drop(true);
            assert!(build.status().await.unwrap().success(), "the examples cannot be built");
        })
        .await;
    folder.join("examples").join(format!("{example}{}", std::env::consts::EXE_SUFFIX))
}

/// The number after `words`, such as 12 in "도착: 12건".
#[track_caller]
fn number_after(shown: &str, words: &str) -> f64 {
    let (_, rest) = shown.split_once(words).unwrap_or_else(|| panic!("nothing says {words:?} in {shown}"));
    let digits: String =
        rest.trim_start().chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
    digits.parse().unwrap_or_else(|_| panic!("no number after {words:?} in {shown}"))
}
