//! The model in Python (`tests/model/appointment_scheduler.py`), run as a child.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::thread;

use serde_json::Value;

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/model/appointment_scheduler.py");

/// What the model answers to these commands of its line mode, one answer a command.
pub fn answers(commands: &[Value]) -> Vec<Value> {
    let mut child = start("lines", Stdio::piped());
    let mut lines = child.stdin.take().unwrap();
    let text: String = commands.iter().map(|command| format!("{command}\n")).collect();
    // From a thread of its own: both pipes are short.
    let writer = thread::spawn(move || lines.write_all(text.as_bytes()));
    let answers = output(child);
    writer.join().unwrap().unwrap();
    answers.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// The shares that the classes of its saturated fleets get, by fleet and class.
pub fn shares() -> Value {
    serde_json::from_str(&output(start("shares", Stdio::null()))).unwrap()
}

fn start(mode: &str, stdin: Stdio) -> Child {
    Command::new("python3")
        .args([SCRIPT, mode])
        .stdin(stdin)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("the model needs python3 in PATH, install it: {error}"))
}

fn output(child: Child) -> String {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{SCRIPT} ended with {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}
