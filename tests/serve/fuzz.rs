//! The document against the service, by chance: `scripts/fuzz-http` names the program that does it (`SCHEMATHESIS`). Without
//! one, nothing is tried here.
//!
//! `/v1/events` is left out, since it never ends: `events` tries it.

use std::process::Stdio;
use std::time::Duration;

use crate::wire::get;
use crate::{ADMIN, CALLER, How, SURFACES, Serve, database, support};

/// 503 says "not now", and is in the document; a cost that this budget does not allow is right by the document and yet a 400.
const CONFIG: &str = r#"
[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", "503"]

[[operations]]
include-path = ["/v1/acquire", "/v1/calls"]
checks.positive_data_acceptance.expected-statuses = ["2xx", "400", "401", "404", "429", "503"]
"#;

#[tokio::test]
async fn no_question_by_chance_is_answered_as_the_document_does_not_say() {
    let Ok(program) = std::env::var("SCHEMATHESIS") else { return };
    let database = database().await;
    // A pushback by chance lasts up to an hour, and a caller by chance is patient for a day.
    let client = support::connect(&database.url).await;
    let clearing = tokio::spawn(async move {
        loop {
            client.batch_execute("UPDATE call_budget.call_budget SET blocked_until_us = 0").await.unwrap();
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    });
    // Nobody here waits long for a slot, and nothing of a fuzzed pause is left to the next run.
    let settings = format!("max_wait = \"100ms\"\n{SURFACES}");
    for (how, token, seconds) in [
        (How::with_tokens(), Some(ADMIN), 25),
        (How::with_tokens(), Some(CALLER), 8),
        (How::with_tokens(), None, 8),
        // Without an admin token the answer is 403, whatever is missing.
        (How::on(), None, 8),
    ] {
        let serve = Serve::start(&database.url, how.settings(&settings)).await;
        std::fs::write(serve.folder.path().join("schemathesis.toml"), CONFIG).unwrap();
        let is_open = serve.ask(get("/v1/status")).await.status == 200;
        let mut command = tokio::process::Command::new(&program);
        let url = format!("http://{}", serve.address);
        command
            .current_dir(serve.folder.path())
            .args(["run", "--url", &url, "--checks", "all", "--exclude-path", "/v1/events", "--continue-on-failure"])
            .args(["--max-time", &seconds.to_string(), "--request-timeout", "20", "--no-color", "--warnings", "off"])
            .args(["--output-truncate", "false", "--generation-database", "none"])
            .args(token.iter().flat_map(|token| ["-H".to_owned(), format!("Authorization: Bearer {token}")]))
            .arg(crate::source("src/service/http/openapi.json"))
            .stdin(Stdio::null())
            .kill_on_drop(true);
        // Without one, each run asks something else.
        if let Ok(seed) = std::env::var("FUZZ_SEED") {
            command.args(["--seed", &seed]);
        }
        if is_open {
            command.args(["--exclude-checks", "missing_required_header"]);
        }
        if serve.ask(get("/metrics").token(ADMIN)).await.status == 404 {
            command.args(["--exclude-path", "/metrics"]);
        }
        let run = tokio::time::timeout(Duration::from_secs(180), command.output());
        let output = run.await.expect("it ends by itself").unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        println!(
            "{}",
            said.lines().rev().take(25).collect::<Vec<_>>().into_iter().rev().collect::<Vec<_>>().join("\n")
        );
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(!serve.said().contains("panicked"), "{}", serve.said());
        serve.ask(get("/livez")).await.done();
    }
    clearing.abort();
}
