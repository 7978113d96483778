//! What sentences say of commands: each that is named in `code` is one that the program has, with the options that it takes.

use std::collections::BTreeMap;
use std::process::Command;

/// A fault for each command or option that the program does not know.
pub fn unknown(pages: &[(String, String)]) -> Vec<String> {
    let mut helps = BTreeMap::new();
    let mut faults = Vec::new();
    for (name, text) in pages {
        for mention in mentions(text) {
            if let Some(why) = fault(mention, &mut helps) {
                faults.push(format!("{name}: `{mention}`: {why}"));
            }
        }
    }
    faults
}

/// A dependency in a manifest, and the name of a line of figures.
const NO_COMMANDS: &[&str] = &["call-budget = ", "call-budget by lanes"];

fn mentions(text: &str) -> impl Iterator<Item = &str> {
    text.split('`')
        .skip(1)
        .step_by(2)
        .filter(|code| code.starts_with("call-budget ") && !code.contains('\n'))
        .filter(|code| !NO_COMMANDS.iter().any(|other| code.starts_with(other)))
}

fn fault(mention: &str, helps: &mut BTreeMap<String, Option<String>>) -> Option<String> {
    let words: Vec<&str> = mention.split_whitespace().skip(1).take_while(|word| *word != "--").collect();
    // `call-budget budget ...` speaks of them all; a version is no command.
    let mut command: Vec<&str> = words
        .iter()
        .copied()
        .take_while(|word| word.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !word.starts_with('-'))
        .collect();
    let mut help = None;
    // Behind the command stand names: the longest that is one.
    while !command.is_empty() && help.is_none() {
        help = helps.entry(command.join(" ")).or_insert_with(|| help_of(&command)).clone();
        if help.is_none() {
            command.pop();
        }
    }
    let Some(help) =
        help.or_else(|| words.first().is_some_and(|word| word.starts_with("--")).then(|| help_of(&[])).flatten())
    else {
        return Some("there is no such command".to_owned());
    };
    let option = |word: &&str| {
        word.starts_with("--")
            .then(|| word.split('=').next().unwrap_or_default().trim_end_matches([',', '.']).to_owned())
    };
    words
        .iter()
        .filter_map(option)
        .find(|option| !help.contains(option))
        .map(|option| format!("it has no option {option}"))
}

fn help_of(command: &[&str]) -> Option<String> {
    let output = Command::new(env!("CARGO_BIN_EXE_call-budget")).args(command).arg("--help").output().unwrap();
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap())
}
