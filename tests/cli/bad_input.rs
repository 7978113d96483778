//! Nonsense gets one sentence that names the thing and the way out, and changes nothing.

use crate::{call_budget, database_with_budget, everything};

/// Each of them: the command, and what its one sentence must say. All are the command line's fault: exit code 2.
const NONSENSE: &[(&[&str], &[&str])] = &[
    (&["budget", "show", "kis-rael"], &["there is no budget \"kis-rael\"", "did you mean \"kis-real\"?"]),
    (&["budget", "show", "zzz"], &["there is no budget \"zzz\"", "call-budget budget list"]),
    (&["budget", "pause", "kis-rael"], &["did you mean \"kis-real\"?"]),
    (&["budget", "resume", "kis-rael"], &["did you mean \"kis-real\"?"]),
    (&["budget", "drain", "kis-rael"], &["did you mean \"kis-real\"?"]),
    (&["budget", "pushback", "kis-rael", "--for", "1s"], &["did you mean \"kis-real\"?"]),
    (&["budget", "delete", "kis-rael", "--yes"], &["did you mean \"kis-real\"?"]),
    (&["fence", "kis-rael"], &["did you mean \"kis-real\"?"]),
    (&["explain", "kis-rael"], &["did you mean \"kis-real\"?"]),
    (&["status", "kis-rael"], &["did you mean \"kis-real\"?"]),
    (&["class", "list", "kis-rael"], &["did you mean \"kis-real\"?"]),
    (&["class", "set", "kis-rael", "order", "--priority", "0"], &["did you mean \"kis-real\"?"]),
    (&["class", "delete", "kis-real", "ordre"], &["no class \"ordre\"", "did you mean \"order\"?"]),
    (&["class", "delete", "kis-real", "zzz"], &["no class \"zzz\"", "call-budget class list kis-real"]),
    (&["budget", "delete", "kis-real"], &["with its 2 classes cannot be undone", "repeat with --yes"]),
    (&["budget", "set", "new", "--limit", "18"], &["there is no budget \"new\" yet", "needs --limit and --window"]),
    (&["budget", "set", "kis-rael", "--limit", "9"], &["did you mean \"kis-real\"?"]),
    (&["budget", "set", "kis-real", "--limit", "0"], &["\"kis-real\"", "the limit is between 1 and 1,000,000 units"]),
    (&["budget", "set", "kis-real", "--limit", "-18"], &["the limit is between 1 and 1,000,000 units"]),
    (&["budget", "set", "kis-real", "--limit", "1000001"], &["the limit is between 1 and 1,000,000 units"]),
    (&["budget", "set", "kis-real", "--limit", "1.5"], &["1.5", "--limit"]),
    (&["budget", "set", "kis-real", "--limit", "99999999999"], &["99999999999", "--limit"]),
    (&["budget", "set", "kis-real", "--max-cost", "0"], &["the largest cost is at least 1"]),
    (&["budget", "set", "kis-real", "--max-cost", "-1"], &["the largest cost is at least 1"]),
    (&["budget", "set", "kis-real", "--max-cost", "19"], &["19 is over the limit of 18", "lower --max-cost or raise"]),
    (&["budget", "set", "kis-real", "--window", "-1s"], &["--window", "a duration is not negative"]),
    (&["budget", "set", "kis-real", "--window", "1"], &["--window", "a duration has a unit, such as 50ms"]),
    (&["budget", "set", "kis-real", "--window", "0s"], &["the window is between 1 ms and 1 day"]),
    (&["budget", "set", "kis-real", "--window", "9000h"], &["the window is between 1 ms and 1 day"]),
    (&["budget", "set", "kis-real", "--window", "999999999999999h"], &["--window", "a duration"]),
    (&["budget", "set", "kis-real", "--send-window", "0ms"], &["the send window is between 1 ms and 60 s"]),
    (&["budget", "set", "kis-real", "--arrival-jitter", "61s"], &["the arrival jitter is between 0 and 60 s"]),
    (&["budget", "set", "kis-real", "--lookahead", "6s"], &["the lookahead is between 1 ms and 5 s"]),
    (&["budget", "set", "kis-real", "--interval", "9000h"], &["the interval is between 1 us and 10 days"]),
    (
        &["budget", "set", "kis-real", "--interval", "50ms"],
        &[
            "50ms is unsafe",
            "(limit 18 - largest cost 1 + 1) * interval = 900ms",
            "1s 100ms",
            "61ms 174µs or longer is safe",
        ],
    ),
    (&["budget", "set", "kis-real", "--interval", "0s"], &["0s is unsafe", "61ms 174µs or longer is safe"]),
    (&["budget", "set", "", "--limit", "18", "--window", "1s"], &["a name has 1 to 100 characters"]),
    (&["budget", "set", "a\nb", "--limit", "18", "--window", "1s"], &["\"a\\nb\"", "no control character"]),
    (&["class", "set", "kis-real", "", "--priority", "0"], &["a name has 1 to 100 characters"]),
    (&["class", "set", "kis-real", "a\tb", "--priority", "0"], &["\"a\\tb\"", "no control character"]),
    (&["class", "set", "kis-real", "new"], &["no class \"new\" yet", "needs --priority"]),
    (&["class", "set", "kis-real", "order", "--priority", "-1"], &["\"order\"", "the priority is between 0 and 1000"]),
    (&["class", "set", "kis-real", "order", "--priority", "1001"], &["the priority is between 0 and 1000"]),
    (&["class", "set", "kis-real", "order", "--floor", "-0.1"], &["the floor is 0 or between 0.001 and 1"]),
    (&["class", "set", "kis-real", "order", "--floor", "1.1"], &["the floor is 0 or between 0.001 and 1"]),
    (&["class", "set", "kis-real", "order", "--floor", "0.0001"], &["the floor is 0 or between 0.001 and 1"]),
    (&["class", "set", "kis-real", "order", "--floor", "0.0000001"], &["at most six digits"]),
    (&["class", "set", "kis-real", "order", "--floor", "NaN"], &["--floor"]),
    (
        &["class", "set", "kis-real", "eod", "--floor", "0.8"],
        &["floors of budget \"kis-real\" sum to 1.05", "lower a floor"],
    ),
    (&["budget", "pushback", "kis-real", "--for", "-1s"], &["a duration is not negative"]),
    (&["budget", "drain", "kis-real", "--within", "soon"], &["a duration has a unit"]),
    (&["access", "no such role", "--as", "client"], &["there is no role \"no such role\"", "CREATE ROLE"]),
    (&["access", "postgres", "--as", "boss"], &["boss", "--as"]),
];

#[tokio::test]
async fn nonsense_gets_one_sentence_and_changes_nothing() {
    let database = database_with_budget().await;
    let before = everything(&database.client).await;
    for (command, sentence) in NONSENSE {
        call_budget(&database.url, command).await.refused(2, sentence);
        assert_eq!(everything(&database.client).await, before, "{command:?} changed something");
    }
}

#[tokio::test]
async fn a_name_of_300_characters_is_refused_without_repeating_it() {
    let database = database_with_budget().await;
    let before = everything(&database.client).await;
    let name = "김".repeat(300);
    for command in [
        ["budget", "set", &name, "--limit", "1", "--window", "1s"].as_slice(),
        &["class", "set", "kis-real", &name, "--priority", "0"],
    ] {
        let refused = call_budget(&database.url, command).await;
        refused.refused(2, &["김김", "a name has 1 to 100 characters and no control character"]);
        assert!(refused.stderr.chars().count() < 160, "{}", refused.stderr);
    }
    assert_eq!(everything(&database.client).await, before);
}
