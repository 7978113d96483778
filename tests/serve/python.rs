//! `clients/python` against the service as it runs, judged at the mock vendor: two services side by side, as callers have them.

use std::process::Stdio;
use std::time::Duration;

use call_budget::service::mock_vendor::{MockVendor, Settings};
use tokio::process::Command;

use crate::{How, SURFACES, Serve, database};

const PATIENCE: Duration = Duration::from_secs(120);

#[tokio::test]
async fn the_client_in_python_keeps_the_contract_at_the_vendor() {
    let database = database().await;
    let vendor = MockVendor::start(Settings { limit: 40, ..Settings::default() }).await.unwrap();
    let how = || How::on().admin().settings(SURFACES);
    let (one, other) = (Serve::start(&database.url, how()).await, Serve::start(&database.url, how()).await);
    let mut python = Command::new("python3");
    python
        .args(["-m", "unittest", "-v", "test_against_service"])
        .current_dir(crate::source("clients/python"))
        .env("CALL_BUDGET_URL", format!("http://{},http://{}", one.address, other.address))
        .env("VENDOR_URL", format!("http://{}", vendor.addr()))
        .env("CALL_BUDGET_ADMIN_TOKEN_FILE", one.folder.path().join("admin"))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ran = tokio::time::timeout(PATIENCE, python.output()).await.expect("its tests end").unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{said}");
    assert!(said.contains("\nOK") && !said.contains("skipped"), "all of them are tried: {said}");
    vendor.stop().await;
}
