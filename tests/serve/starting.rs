//! What stops the start, and with which word.

use std::net::TcpListener;

use crate::wire::get;
use crate::{ADMIN, CALLER, How, Serve};

/// Panics unless the start failed with this exit code and said all of these words, and no token.
async fn fails(how: How, exit: i32, words: &[&str]) {
    let (code, said) = how.fails("").await;
    assert_eq!(code, exit, "{said}");
    for word in words {
        assert!(said.contains(word), "{said:?} does not say {word:?}");
    }
    for secret in [ADMIN, CALLER, "not-a-real", "short-token"] {
        assert!(!said.contains(secret), "{said:?} says {secret}");
    }
}

#[tokio::test]
async fn an_address_that_others_can_reach_wants_a_token_for_callers() {
    for listen in ["0.0.0.0:0", "[::]:0", "[::ffff:127.0.0.1]:0"] {
        let how = How::default().argument("--listen", listen);
        fails(how.clone(), 2, &["caller_token_file", "--caller-token-file"]).await;
        fails(how.admin(), 2, &["caller_token_file"]).await;
    }
    let how = How::default().argument("--listen", "0.0.0.0:0").file("caller", CALLER);
    let serve = Serve::start("", how.argument("--caller-token-file", "caller")).await;
    let address = std::net::SocketAddr::from(([127, 0, 0, 1], serve.address.port()));
    let mut wire = crate::wire::Wire::to(address).await;
    wire.ask(&get("/v1/status")).await.refused(401, "CALL_BUDGET_UNAUTHORIZED");
    wire.ask(&get("/v1/status").token(CALLER)).await.done();
}

#[tokio::test]
async fn a_token_file_that_holds_no_token_stops_the_start_and_is_named() {
    for (flag, setting) in [("--admin-token-file", "admin_token_file"), ("--caller-token-file", "caller_token_file")] {
        for text in [
            "",
            "\n",
            "short-token",
            "two words are no token here",
            "\nnot-a-real-token-on-line-2",
            "not-a-real-토큰-토큰-토큰",
        ] {
            let how = How::default().file("token", text).argument(flag, "token");
            fails(how, 2, &[setting, "token", "16"]).await;
        }
        fails(How::default().argument(flag, "missing"), 2, &[setting, "missing", "cannot be read"]).await;
        fails(How::default().argument(flag, "."), 2, &[setting, "cannot be read"]).await;
    }
    let same =
        How::default().file("one", ADMIN).argument("--admin-token-file", "one").argument("--caller-token-file", "one");
    fails(same, 2, &["the same token"]).await;
}

#[tokio::test]
async fn spaces_and_lines_after_a_token_are_none_of_it() {
    let how = How::default().file("admin", &format!("  {ADMIN} \r\nthe rest is a comment\n"));
    let serve = Serve::start("", how.argument("--admin-token-file", "admin")).await;
    let order = crate::wire::post("/v1/admin/fence", &serde_json::json!({"budget": ""})).token(ADMIN);
    serve.ask(order).await.refused(400, "CALL_BUDGET_BAD_REQUEST");
}

#[tokio::test]
async fn a_setting_that_is_not_known_stops_the_start_with_the_nearest_that_is() {
    for (how, words) in [
        (How::default().settings("[serve]\nadmin_token_fil = \"x\"\n"), ["admin_token_fil", "admin_token_file"]),
        (How::default().variable("CALL_BUDGET_SERVE_MAX_CONNECTION", "5"), ["max_connection", "max_connections"]),
        (
            How::default().variable("CALL_BUDGET_SERVE_ADMIN_TOKEN", "not-a-real-token"),
            ["admin_token", "admin_token_file"],
        ),
        (How::default().settings("[serve]\nzzz = 1\n"), ["zzz", "known are listen"]),
    ] {
        fails(how, 2, &words).await;
    }
}

#[tokio::test]
async fn a_setting_that_cannot_be_stops_the_start_and_is_named() {
    for (how, word) in [
        (How::default().settings("[serve]\nlisten = \"not-a-real-address\"\n"), "listen"),
        (How::default().settings("[serve]\nlisten = 8181\n"), "listen"),
        (How::default().variable("CALL_BUDGET_SERVE_LISTEN", "not-a-real-address"), "listen"),
        (How::default().variable("CALL_BUDGET_SERVE_MAX_CONNECTIONS", "many"), "max_connections"),
        (How::default().settings("[serve]\nmax_connections = -1\n"), "max_connections"),
        (How::default().argument("--max-connections", "0"), "max_connections"),
        (How::default().argument("--max-connections", "100001"), "max_connections"),
        (How::default().settings("[serve]\nallowed_hosts = 7\n"), "allowed_hosts"),
        (How::default().argument("--allow-host", "budget.internal:8181"), "budget.internal:8181"),
        (How::default().settings("[serve]\nallowed_hosts = [\"http://budget.internal\"]\n"), "allowed_hosts"),
        (How::default().argument("--listen", "nowhere"), "--listen"),
    ] {
        fails(how, 2, &[word]).await;
    }
    fails(How::on(), 2, &["database_url"]).await;
}

#[tokio::test]
async fn flags_go_over_variables_and_variables_over_the_file() {
    let how = How::default()
        .file("admin", ADMIN)
        .settings("[serve]\nlisten = \"127.0.0.1:1\"\nallowed_hosts = [\"of-the-file\"]\nmax_connections = 7\n")
        .variable("CALL_BUDGET_SERVE_ALLOWED_HOSTS", "One.example, two.example")
        .variable("CALL_BUDGET_SERVE_ADMIN_TOKEN_FILE", "admin")
        .argument("--listen", "127.0.0.1:0");
    let serve = Serve::start("", how).await;
    for host in ["one.example", "two.example"] {
        serve.ask(get("/livez").host(host)).await.done();
    }
    let flagged = Serve::start("", How::default().argument("--allow-host", "Three.example,four.example")).await;
    for host in ["three.example", "four.example:80"] {
        flagged.ask(get("/livez").host(host)).await.done();
    }
    serve.ask(get("/livez").host("of-the-file")).await.refused(421, "CALL_BUDGET_WRONG_HOST");
    assert_eq!(serve.status().await["service"]["admin"], true);
}

#[tokio::test]
async fn an_address_in_use_is_a_failure_and_not_a_slip() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    fails(How::default().argument("--listen", &address), 1, &[&address, "--listen"]).await;
}
