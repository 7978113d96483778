//! What is measured: who, asked by how many, under how many keys, and whether commits wait for the disk.

use super::redis::Appends;
use super::shapes::Shape;
use crate::options::Options;

/// Threads of pyrate-limiter: each waits for one grant.
const THREADS: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    Ours,
    Shape(Shape),
    Redis(Appends),
    Pyrate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Callers {
    One,
    /// So many times so many tasks. Ours has a process with a lane for each `tasks`, the others have all in one process.
    Lanes {
        lanes: usize,
        tasks: usize,
    },
}

/// The role's `synchronous_commit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Commit {
    On,
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    pub subject: Subject,
    pub callers: Callers,
    pub keys: usize,
    pub commit: Commit,
}

/// In the order in which they take turns.
pub fn all(options: &Options) -> Vec<Case> {
    let mut cases = Vec::new();
    let mut add = |subjects: &[Subject], callers, keys, commit| {
        cases.extend(subjects.iter().map(|&subject| Case { subject, callers, keys, commit }));
    };
    let every: Vec<Subject> = with_ours(&Shape::ALL);
    let crowd: Vec<Subject> = with_ours(&Shape::ALL[1..]);
    let some = with_ours(&[
        Shape::BarePrepared,
        Shape::Upsert,
        Shape::LockAndWrite,
        Shape::LockAndWriteThreeTrips,
        Shape::Counter,
    ]);
    let keys = options.keys();
    add(&every, Callers::One, 1, Commit::On);
    add(&some, Callers::One, keys, Commit::On);
    add(&some, Callers::One, 1, Commit::Off);
    let ([few, many], compared) = (options.tasks(), options.compared_lanes());
    let crowd_of = |tasks| Callers::Lanes { lanes: compared, tasks };
    for tasks in [few, many] {
        add(&crowd, crowd_of(tasks), 1, Commit::On);
        for lanes in options.lanes().into_iter().filter(|&lanes| lanes != compared) {
            add(&[Subject::Ours], Callers::Lanes { lanes, tasks }, 1, Commit::On);
        }
    }
    add(&some, crowd_of(few), keys, Commit::On);
    add(&some, crowd_of(few), 1, Commit::Off);
    add(&[Subject::Ours], crowd_of(many), 1, Commit::Off);
    if options.redis.is_some() {
        let both = [Subject::Redis(Appends::Default), Subject::Redis(Appends::Always)];
        add(&both, Callers::One, 1, Commit::On);
        for tasks in [few, many] {
            add(&both, crowd_of(tasks), 1, Commit::On);
        }
    }
    if options.pyrate.is_some() {
        add(&[Subject::Pyrate], Callers::One, 1, Commit::On);
        add(&[Subject::Pyrate], Callers::Lanes { lanes: THREADS, tasks: 1 }, 1, Commit::On);
    }
    cases
}

fn with_ours(shapes: &[Shape]) -> Vec<Subject> {
    std::iter::once(Subject::Ours).chain(shapes.iter().copied().map(Subject::Shape)).collect()
}

impl Subject {
    pub fn name(self) -> &'static str {
        match self {
            Self::Ours => "call-budget",
            Self::Shape(shape) => shape.name(),
            Self::Redis(appends) => appends.name(),
            Self::Pyrate => "pyrate-limiter (driven from Python)",
        }
    }

    /// Whether its callers share a pool of ours.
    pub fn is_pooled(self) -> bool {
        matches!(self, Self::Shape(_) | Self::Redis(_))
    }

    pub fn is_the_floor(self) -> bool {
        matches!(self, Self::Shape(Shape::Bare | Shape::BarePrepared))
    }
}

impl Callers {
    pub fn tasks(self) -> usize {
        match self {
            Self::One => 1,
            Self::Lanes { lanes, tasks } => lanes * tasks,
        }
    }

    pub fn in_words(self) -> String {
        match self {
            Self::One => "one".into(),
            Self::Lanes { lanes, tasks } => format!("{lanes} x {tasks}"),
        }
    }
}

impl Commit {
    pub fn name(self) -> &'static str {
        match self {
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

impl Case {
    /// Whether what it granted is still known after a crash.
    pub fn is_durable(&self) -> bool {
        let subject = match self.subject {
            Subject::Ours | Subject::Pyrate => true,
            Subject::Shape(shape) => shape.is_logged(),
            Subject::Redis(appends) => appends == Appends::Always,
        };
        subject && self.commit == Commit::On
    }

    /// Whether as many connections ought to suit both.
    pub fn is_on_the_same(&self, other: &Case) -> bool {
        (self.subject, self.keys, self.commit) == (other.subject, other.keys, other.commit)
    }

    pub fn in_words(&self) -> String {
        let (callers, commit) = (self.callers.in_words(), self.commit.name());
        format!("{}, callers {callers}, keys {}, synchronous_commit {commit}", self.subject.name(), self.keys)
    }
}
