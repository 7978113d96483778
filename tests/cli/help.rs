//! What `--help` shows.

use crate::{call_budget, words};

const COMMANDS: &[&str] = &[
    "budget",
    "budget set",
    "budget list",
    "budget show",
    "budget pause",
    "budget resume",
    "budget drain",
    "budget pushback",
    "budget delete",
    "class",
    "class set",
    "class list",
    "class delete",
    "access",
    "fence",
    "explain",
    "run",
    "status",
    "preflight",
    "probe-window",
];

#[tokio::test]
async fn the_help_of_every_command_has_an_example_fits_80_columns_and_hides_the_password() {
    for command in COMMANDS {
        let url = "postgresql://me:top-secret@localhost/db";
        let help = call_budget(url, &[words(command), vec!["--help"]].concat()).await.done();
        assert!(help.contains(&format!("Example: call-budget {command}")), "{command}: {help}");
        assert!(!help.contains("top-secret"), "{command}: {help}");
        // The usage line is clap's own and long where a command needs much.
        for line in help.lines().filter(|line| !line.starts_with("Usage:")) {
            assert!(line.chars().count() <= 80, "{command}: {line}");
        }
    }
}
