//! In front of a real terminal: what its keys do, and what is said to whom sits there.

use tokio::process::Command;

use super::{NOWHERE, PROGRAM, outcome};

/// Runs a command in front of a terminal of its own. For each pair of a word and an action: once the word has appeared,
/// types the action, or sends SIGUSR1. Prints all that appeared and ends as the command did.
const TERMINAL: &str = r#"
import os, pty, signal, sys, termios
command, steps = sys.argv[1:sys.argv.index("THEN")], sys.argv[sys.argv.index("THEN") + 1:]
pid, terminal = pty.fork()
if pid == 0:
    # What is typed does not appear: it would stand in the middle of the lines.
    modes = termios.tcgetattr(0)
    modes[3] &= ~termios.ECHO
    termios.tcsetattr(0, termios.TCSANOW, modes)
    os.execv(command[0], command)
seen = b""
def until(word):
    global seen
    while word.encode() not in seen:
        try:
            more = os.read(terminal, 4096)
        except OSError:
            more = b""
        if not more:
            return
        seen += more
for word, action in zip(steps[::2], steps[1::2]):
    until(word)
    if action == "kill-usr1":
        os.kill(pid, signal.SIGUSR1)
    else:
        os.write(terminal, action.encode())
until("\0")
code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.stdout.write(seen.decode().replace("\r\n", "\n"))
sys.exit(code)
"#;

/// Tells of every signal by its number, also of two that come close together, and ends with SIGUSR1, or after a minute.
const COUNTING: &str = "
import os, signal, sys
reader, writer = os.pipe()
os.set_blocking(writer, False)
signal.set_wakeup_fd(writer)
for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, lambda *_: None)
signal.alarm(60)
print('ready', flush=True)
while True:
    number = os.read(reader, 1)[0]
    print('got', number, flush=True)
    if number == signal.SIGUSR1:
        sys.exit(4)
";

fn terminal(command: &[&str], steps: &[(&str, &str)]) -> Command {
    let mut terminal = Command::new("python3");
    terminal.args(["-c", TERMINAL]).args(command).arg("THEN");
    for (word, action) in steps {
        terminal.args([word, action]);
    }
    terminal.env("DATABASE_URL", NOWHERE);
    terminal
}

#[tokio::test]
async fn a_key_that_the_terminal_has_told_the_command_is_not_told_twice() {
    let command = [PROGRAM, "run", "kis-real", "eod", "--", "python3", "-c", COUNTING];
    let steps = [("ready", "\u{3}"), ("got 2", "\u{1c}"), ("got 3", "kill-usr1")];
    let seen = outcome(&mut terminal(&command, &steps)).await;
    let told: Vec<&str> = seen.stdout.lines().filter_map(|line| line.split_once("got ")).map(|(_, got)| got).collect();
    assert_eq!((told, seen.exit), (vec!["2", "3", "10"], 4), "{} {}", seen.stdout, seen.stderr);
}

#[tokio::test]
async fn a_shell_can_stop_it_and_go_on_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("go on");
    let file = file.to_str().unwrap();
    // The shell says of a stop 128 + SIGTSTP, and then how the command ended.
    let shell = "set -m; \"$@\"; echo \"now $?\"; touch \"$0\"; fg > /dev/null; echo \"then $?\"";
    let waiting = "echo ready; for i in $(seq 2000); do [ -e \"$0\" ] && exit 6; sleep 0.02; done";
    let run = [PROGRAM, "run", "kis-real", "eod", "--", "sh", "-c", waiting, file];
    let command = [["/bin/sh", "-c", shell, file].as_slice(), &run].concat();
    let seen = outcome(&mut terminal(&command, &[("ready", "\u{1a}")])).await;
    assert!(seen.stdout.contains("now 148\n") && seen.stdout.contains("then 6\n"), "{} {}", seen.stdout, seen.stderr);
}

#[tokio::test]
async fn while_the_switch_is_off_somebody_at_a_terminal_is_told_in_one_line() {
    let seen = outcome(&mut terminal(&[PROGRAM, "run", "kis-real", "eod", "--", "echo", "done"], &[])).await;
    let lines: Vec<&str> = seen.stdout.lines().collect();
    assert_eq!((lines.len(), seen.exit), (2, 0), "{}", seen.stdout);
    assert!(lines[0].contains("call_budget_enabled is false"), "{}", lines[0]);
    assert_eq!(lines[1], "done");
}
