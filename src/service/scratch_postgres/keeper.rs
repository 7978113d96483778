//! The small process that owns the server, so that it is stopped whatever happens to us: when we are gone, even by
//! kill -9, the keeper reads the end of its input, stops the server and removes the folder.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use super::ScratchError;
use super::installation::{IMAGE, Installation};

pub(super) struct Keeper {
    child: Child,
    /// `None` once the keeper has been told to end.
    orders: Option<ChildStdin>,
    answers: Mutex<Receiver<String>>,
}

impl Keeper {
    /// Starts the keeper of `folder`, which becomes the keeper's. As root it runs as somebody else: PostgreSQL refuses
    /// root.
    pub(super) fn spawn(
        installation: &Installation,
        folder: &Path,
        address: Ipv4Addr,
        settings: &[(String, String)],
    ) -> Result<Self, ScratchError> {
        let (place, source) = match installation {
            Installation::Local(bin) => ("local", bin.as_os_str()),
            Installation::Docker => ("docker", OsStr::new(IMAGE)),
        };
        let script = folder.join("keeper.sh");
        fs::write(&script, include_str!("keeper.sh")).map_err(|error| unusable(folder, &error))?;
        let mut command = Command::new("sh");
        command.arg(script).arg(place).arg(source).arg(folder).arg(address.to_string());
        for (name, value) in settings {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        for (name, _) in env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"PG")) {
            command.env_remove(name);
        }
        // A group of its own: Ctrl-C in a terminal is for us, the keeper stops the server when we are done.
        command.env("LC_ALL", "C").current_dir(folder).process_group(0);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        if let (Installation::Local(bin), Some((uid, gid))) = (installation, somebody_else(folder)?) {
            hand_over(folder, uid, gid).map_err(|error| unusable(folder, &error))?;
            command.uid(uid).gid(gid);
            check_reach(bin)?;
        }
        let mut child = command.spawn().map_err(|error| ScratchError(format!("sh could not be started: {error}")))?;
        let (sender, answers) = channel();
        let answered = BufReader::new(child.stdout.take().expect("stdout is piped"));
        thread::spawn(move || {
            for line in answered.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Ok(Self { orders: child.stdin.take(), child, answers: Mutex::new(answers) })
    }

    /// Gives an order and waits for the answer: whether it could be done.
    pub(super) fn order(&mut self, order: &str, patience: Duration) -> bool {
        let written = match &mut self.orders {
            Some(orders) => writeln!(orders, "{order}").is_ok(),
            None => false,
        };
        written && self.answer(patience).is_ok_and(|answer| answer == "ok")
    }

    /// Ends the keeper, and with it the server. Says whether it ended in time.
    pub(super) fn end(&mut self, patience: Duration) -> bool {
        self.orders = None;
        // Answers to orders that nobody waited for may still be in the pipe.
        let ended = loop {
            match self.answer(patience) {
                Ok(_) => continue,
                Err(error) => break error == RecvTimeoutError::Disconnected,
            }
        };
        if ended {
            let _ = self.child.wait();
        }
        ended
    }

    fn answer(&mut self, patience: Duration) -> Result<String, RecvTimeoutError> {
        self.answers.get_mut().expect("nobody panics with the answers in hand").recv_timeout(patience)
    }
}

/// Whom the server runs as: nobody special unless we are root, which the owner of a folder that we made tells.
fn somebody_else(folder: &Path) -> Result<Option<(u32, u32)>, ScratchError> {
    let owner = fs::metadata(folder).map_err(|error| unusable(folder, &error))?.uid();
    if owner != 0 {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let ids = ["postgres", "_postgres", "nobody"].iter().find_map(|wanted| {
        let fields: Vec<_> = users.lines().map(|line| line.split(':').collect::<Vec<_>>()).find(|f| f[0] == *wanted)?;
        Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
    });
    ids.map(Some).ok_or_else(|| {
        ScratchError(
            "PostgreSQL refuses to run as root, and there is no user postgres or nobody: run as another user".into(),
        )
    })
}

fn hand_over(folder: &Path, uid: u32, gid: u32) -> std::io::Result<()> {
    for entry in folder.read_dir()? {
        chown(entry?.path(), Some(uid), Some(gid))?;
    }
    chown(folder, Some(uid), Some(gid))
}

pub(super) fn unusable(folder: &Path, error: &std::io::Error) -> ScratchError {
    ScratchError(format!("the temporary folder {} cannot be used: {error}", folder.display()))
}

/// A folder closed to others on the way (such as /root) would end in an error that names something else.
fn check_reach(bin: &Path) -> Result<(), ScratchError> {
    const OTHERS_MAY_PASS: u32 = 0o001;
    let closed = bin.ancestors().find(|place| fs::metadata(place).is_ok_and(|meta| meta.mode() & OTHERS_MAY_PASS == 0));
    match closed {
        None => Ok(()),
        Some(place) => Err(ScratchError(format!(
            "PostgreSQL refuses to run as root, and {} is closed to other users: put this PostgreSQL elsewhere or run as another user",
            place.display()
        ))),
    }
}
