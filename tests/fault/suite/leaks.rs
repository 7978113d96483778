//! What a round must give back: threads, tasks, file descriptors. (Its sessions are counted at the server.)

use std::collections::BTreeMap;
use std::fs;
use std::time::Duration;

use tokio::runtime::Handle;

/// What this process holds now. `None`: this system does not tell.
#[derive(Clone, Debug)]
pub struct Holdings {
    threads: Option<usize>,
    tasks: usize,
    /// What the open file descriptors lead to, and how many lead there.
    files: Option<BTreeMap<String, usize>>,
}

impl Holdings {
    /// Within the runtime whose tasks are counted.
    pub fn now() -> Self {
        Self { threads: threads(), tasks: Handle::current().metrics().num_alive_tasks(), files: files() }
    }

    /// The same once what is ending has ended: else the rest of what came before would hide as much of what comes after.
    pub async fn settled() -> Self {
        const QUIET: Duration = Duration::from_millis(30);
        const AT_MOST: u32 = 100;
        let mut seen = Self::now();
        for _ in 0..AT_MOST {
            tokio::time::sleep(QUIET).await;
            let now = Self::now();
            if seen.more_than(&now).is_empty() {
                return now;
            }
            seen = now;
        }
        seen
    }

    /// What is held now and was not then, a sentence each.
    pub fn more_than(&self, before: &Holdings) -> Vec<String> {
        let mut more = Vec::new();
        if let (Some(now), Some(then)) = (self.threads, before.threads)
            && now > then
        {
            more.push(format!("{} threads", now - then));
        }
        if self.tasks > before.tasks {
            more.push(format!("{} tasks", self.tasks - before.tasks));
        }
        if let (Some(now), Some(then)) = (&self.files, &before.files) {
            let (open, was) = (now.values().sum::<usize>(), then.values().sum::<usize>());
            if open > was {
                // By kind: the numbers of sockets and pipes mean nothing to a reader.
                let kinds: Vec<_> = now
                    .iter()
                    .filter(|(kind, count)| then.get(*kind).is_none_or(|then| then < count))
                    .map(|(kind, _)| kind.as_str())
                    .collect();
                more.push(format!("{} file descriptors ({})", open - was, kinds.join(", ")));
            }
        }
        more
    }

    /// What this system does not tell.
    pub fn untold(&self) -> Option<&'static str> {
        match (self.threads.is_some(), self.files.is_some()) {
            (true, true) => None,
            (false, true) => Some("threads are not counted on this system"),
            (true, false) => Some("file descriptors are not counted on this system"),
            (false, false) => Some("threads and file descriptors are not counted on this system"),
        }
    }
}

fn threads() -> Option<usize> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    status.lines().find_map(|line| line.strip_prefix("Threads:"))?.trim().parse().ok()
}

fn files() -> Option<BTreeMap<String, usize>> {
    let mut files = BTreeMap::new();
    // The listing's own descriptor is in it each time.
    for entry in fs::read_dir("/proc/self/fd").ok()? {
        // One that is closed in between leads nowhere any more.
        let Ok(target) = fs::read_link(entry.ok()?.path()) else { continue };
        let target = target.to_string_lossy();
        let kind = target.split(":[").next().unwrap_or_default().to_owned();
        *files.entry(kind).or_insert(0) += 1;
    }
    Some(files)
}
