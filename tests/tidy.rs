//! The house in order: which module may know which, where time and SQL stand, which words are not used; in `pages` and `metrics`
//! that what the documents say is so, in `simulation` that it runs the product's own code. Each check is a function from a text to its
//! faults, and is shown to find one.

#[path = "tidy/metrics.rs"]
mod metrics;
#[path = "tidy/pages.rs"]
mod pages;
#[path = "tidy/simulation.rs"]
mod simulation;
#[path = "tidy/text.rs"]
mod text;

use text::{File, files};

const LONGEST_FILE: usize = 600;

/// What a part of the library may know of the rest (`crate::...`). The first that fits a path is its rule.
const ARROWS: &[(&str, &[&str])] = &[
    ("src/policy/", &["policy"]),
    ("src/clock.rs", &["policy"]),
    ("src/vendor/", &["policy", "vendor"]),
    ("src/config", &["config", "policy", "vendor"]),
    ("src/error.rs", &["policy"]),
    ("src/counters.rs", &["figures"]),
    ("src/figures", &["policy", "counters", "error", "figures"]),
    ("src/store/", &["policy", "clock", "config", "error", "store"]),
    ("src/permit.rs", &["policy", "clock", "counters", "figures"]),
    ("src/pace.rs", &["policy", "clock", "error", "figures"]),
    ("src/lane", &["lane", "policy", "clock", "counters", "error", "figures", "store"]),
    ("src/breaker", &["policy", "clock", "config", "figures"]),
    ("src/publisher", &["policy", "clock", "store"]),
    (
        "src/call/",
        &[
            "policy",
            "vendor",
            "clock",
            "config",
            "counters",
            "error",
            "figures",
            "store",
            "permit",
            "breaker",
            "call",
            "coordinator",
            "publisher",
        ],
    ),
    (
        "src/coordinator.rs",
        &["policy", "call", "clock", "config", "counters", "error", "figures", "lane", "pace", "permit", "store"],
    ),
    // What stands around a call.
    ("src/fallback.rs", &["policy", "clock", "error", "call"]),
    ("src/http.rs", &["call"]),
    ("src/reqwest.rs", &["policy", "clock", "store", "call", "coordinator", "http"]),
    ("src/tower.rs", &["policy", "clock", "store", "call", "coordinator", "http"]),
    ("src/lib.rs", &["policy", "clock", "store"]),
    ("src/main.rs", &[]),
    // Doors use the library as its users do: by what it re-exports, never by its lanes.
    ("src/service/", &["service", "policy", "clock", "config", "error", "store", PAVED]),
    ("src/cli/", &["cli", "service", "policy", "clock", "config", "error", "store", "vendor", PAVED]),
];

/// Stands for every name that src/lib.rs re-exports.
const PAVED: &str = "(re-exports)";

fn broken_arrows(file: &File) -> Vec<String> {
    let Some((_, known)) = ARROWS.iter().find(|(place, _)| file.path.starts_with(place)) else {
        return vec![format!("{} has no rule in ARROWS", file.path)];
    };
    let code = text::code(&file.text);
    let mut faults = Vec::new();
    for (at, _) in code.match_indices("crate::") {
        let rest = &code[at + "crate::".len()..];
        // `crate::name` or `crate::{name, name}`.
        let list = rest.strip_prefix('{').map_or(rest, |list| list.split('}').next().unwrap_or(list));
        let names = if list.len() < rest.len() { list.split(',').collect() } else { vec![rest] };
        for name in names.into_iter().map(text::first_identifier) {
            let paved = known.contains(&PAVED) && name.starts_with(char::is_uppercase);
            if !paved && !known.contains(&name) {
                faults.push(format!("{} may not know crate::{name}: see ARROWS in tests/tidy.rs", file.path));
            }
        }
    }
    faults
}

#[test]
fn modules_know_only_what_is_below_them() {
    none(files(&["src"], "rs").iter().flat_map(broken_arrows));
    let sample = File::new("src/store/x.rs", "use crate::policy::Instant;\nuse crate::lane::Lane; // use crate::cli\n");
    assert_eq!(broken_arrows(&sample).len(), 1);
    assert_eq!(broken_arrows(&File::new("src/lib.rs", "pub use crate::cli::main;")).len(), 1);
    assert_eq!(broken_arrows(&File::new("src/cli/x.rs", "use crate::{CallBudget, lane, pace::Paces};")).len(), 2);
}

fn impure(file: &File) -> Vec<String> {
    forbidden(
        file,
        &[
            "tokio",
            "deadpool",
            "rustix",
            "async",
            "await",
            "thread",
            "SystemTime",
            "std::time::Instant",
            "Instant::now",
            "println",
        ],
    )
}

#[test]
fn the_policy_is_pure() {
    none(files(&["src/policy"], "rs").iter().flat_map(impure));
    assert_eq!(impure(&File::new("x", "use tokio_postgres::Row;\nuse std::time::Duration;")).len(), 1);
    assert_eq!(impure(&File::new("x", "// tokio\nlet now = std::time::Instant::now();")).len(), 2);
}

fn reads_time(file: &File) -> Vec<String> {
    let mut words = vec!["Instant::now", "SystemTime", "clock_gettime", "std::time::Instant", "thread::sleep"];
    // Doors may wait by the runtime's timers, but read the time through the clock.
    if !file.path.starts_with("src/service/") && !file.path.starts_with("src/cli/") {
        words.push("tokio::time");
    }
    forbidden(file, &words)
}

#[test]
fn time_is_read_in_the_clock_alone() {
    let others = files(&["src"], "rs").into_iter().filter(|file| file.path != "src/clock.rs" && !file.is_test());
    none(others.flat_map(|file| reads_time(&file)));
    assert_eq!(reads_time(&File::new("src/lane.rs", "tokio::time::sleep(d).await;")).len(), 1);
    assert_eq!(reads_time(&File::new("src/cli/x.rs", "tokio::time::sleep(d).await; Instant::now()")).len(), 1);
}

fn holds_sql(file: &File) -> Vec<String> {
    const VERBS: &[&str] = &[
        "SELECT ",
        "INSERT INTO ",
        "UPDATE ",
        "DELETE FROM ",
        "CREATE ",
        "ALTER ",
        "DROP ",
        "GRANT ",
        "REVOKE ",
        "SET ",
        "BEGIN",
        "COMMIT",
        "ROLLBACK",
        "WITH ",
        "LOCK ",
    ];
    let statement = |literal: &String| VERBS.iter().any(|verb| literal.trim_start().starts_with(verb));
    let fault = |literal: String| format!("{} holds SQL, which belongs into src/store: {literal:?}", file.path);
    text::literals(&file.text).into_iter().filter(statement).map(fault).collect()
}

#[test]
fn sql_stands_in_the_store_alone() {
    let others =
        files(&["src"], "rs").into_iter().filter(|file| !file.path.starts_with("src/store/") && !file.is_test());
    none(others.flat_map(|file| holds_sql(&file)));
    let sample = File::new(
        "x",
        "// \"SELECT 1\"\nlet a = \"says SELECT 1\"; let b = \"\\\n  SELECT 1\"; let c = r#\"DELETE FROM t\"#;",
    );
    assert_eq!(holds_sql(&sample).len(), 2);
}

fn unwanted_words(file: &File) -> Vec<String> {
    const WORDS: &[&str] = &["manager", "handler", "helper", "util", "utils", "common", "lease", "quota", "bucket"];
    // Names of other people's things.
    let code = text::code(&file.text)
        .replace("managed::Manager", "")
        .replace("test_util", "")
        .replace("futures_util", "")
        .replace("http_body_util", "")
        .replace("hyper_util", "");
    let named = code + " " + &file.path.replace(['/', '.'], " ");
    let parts = text::identifier_parts(&named);
    WORDS.iter().filter(|word| parts.contains(**word)).map(|word| format!("{}: \"{word}\"", file.path)).collect()
}

#[test]
fn words_that_mean_nothing_here_name_nothing() {
    let sources = [files(&["src"], "rs"), files(&["migrations"], "sql")].concat();
    none(sources.iter().flat_map(unwanted_words));
    assert_eq!(unwanted_words(&File::new("x", "struct PoolManager; // a helper\nfn token_bucket() {}")).len(), 2);
    assert_eq!(unwanted_words(&File::new("src/util.rs", "let release = \"lease\";")).len(), 1);
}

fn unfinished(file: &File) -> Vec<String> {
    let marks = [
        concat!("TO", "DO"),
        concat!("FIX", "ME"),
        concat!("unimplemented", "!"),
        concat!("dbg", "!"),
        concat!("todo", "!"),
    ];
    let marked = marks.iter().filter(|mark| file.text.contains(**mark)).map(|mark| format!("{}: {mark}", file.path));
    let silent = file.text.lines().filter(|line| line.contains("[allow(") || line.contains("[expect("));
    let silent = silent.filter(|line| line.trim_start().starts_with('#') && !line.contains("reason ="));
    marked.chain(silent.map(|line| format!("{}: without a reason: {line}", file.path))).collect()
}

#[test]
fn nothing_is_left_unfinished_and_every_exception_has_a_reason() {
    none(files(&["src", "tests"], "rs").iter().flat_map(unfinished));
    let sample = format!("#[allow(dead_code)]\nfn x() {{ {}() }}", concat!("todo", "!"));
    assert_eq!(unfinished(&File::new("x", &sample)).len(), 2);
}

fn too_long(file: &File) -> Option<String> {
    let lines = file.text.lines().count();
    (lines > LONGEST_FILE).then(|| format!("{} has {lines} lines, more than {LONGEST_FILE}", file.path))
}

#[test]
fn no_file_is_longer_than_a_reader_can_keep() {
    none(everything().iter().filter_map(too_long));
    assert!(too_long(&File::new("x", &"\n".repeat(LONGEST_FILE + 1))).is_some());
}

fn machine_paths(file: &File) -> Vec<String> {
    let places = [
        concat!("/ho", "me/"),
        concat!("/ro", "ot/"),
        concat!("/Us", "ers/"),
        concat!("/wo", "rk/"),
        concat!("/tm", "p/wt"),
    ];
    places.iter().filter(|place| file.text.contains(**place)).map(|place| format!("{}: {place}", file.path)).collect()
}

#[test]
fn no_file_knows_a_path_of_one_machine() {
    none(everything().iter().flat_map(machine_paths));
    assert_eq!(machine_paths(&File::new("x", concat!("cd /ho", "me/me"))).len(), 1);
}

/// Every CHECK and key has a name of its own, and the name reads as a sentence.
fn unnamed_constraints(file: &File) -> Vec<String> {
    let sql: String =
        file.text.lines().map(|line| line.split("--").next().unwrap_or_default().to_owned() + "\n").collect();
    let mut faults = Vec::new();
    for what in ["CHECK (", "PRIMARY KEY", "UNIQUE (", "FOREIGN KEY"] {
        for (at, _) in sql.match_indices(what) {
            let before = sql[..at].trim_end();
            let name = before.strip_suffix('"').and_then(|rest| rest.rsplit_once('"')).map(|(_, name)| name);
            if !name.is_some_and(|name| name.starts_with(char::is_lowercase) && name.split(' ').count() >= 3) {
                faults.push(format!("{}: a {what} without a sentence for a name, after {name:?}", file.path));
            }
        }
    }
    faults
}

#[test]
fn constraint_names_are_sentences() {
    none(files(&["migrations"], "sql").iter().flat_map(unnamed_constraints));
    let sample = "CONSTRAINT \"a b c\" CHECK (x > 0), CONSTRAINT x_check CHECK (x > 0), y integer PRIMARY KEY";
    assert_eq!(unnamed_constraints(&File::new("x", sample)).len(), 2);
}

/// A fault for each of `words` that the code of `file` holds, tests at its end aside.
fn forbidden(file: &File, words: &[&str]) -> Vec<String> {
    let code = text::code(&file.text);
    words
        .iter()
        .filter(|word| code.contains(**word))
        .map(|word| format!("{}: {word} may not stand here", file.path))
        .collect()
}

fn everything() -> Vec<File> {
    files(
        &[
            "src",
            "tests",
            "examples",
            "migrations",
            "scripts",
            "docs",
            ".ci",
            "Cargo.toml",
            "README.md",
            "CHANGELOG.md",
            "clippy.toml",
            "comparison/Cargo.toml",
            "comparison/benches",
            "comparison/src",
            "deny.toml",
        ],
        "",
    )
}

#[track_caller]
fn none(faults: impl IntoIterator<Item = String>) {
    let faults: Vec<String> = faults.into_iter().collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}
