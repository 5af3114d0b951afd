//! Random sequences of calls over several streams, threads and builders, held against a small model of capture: every
//! status, every stream's capture state after every step, every report, and what is left at the end.
//!
//! `CUIRASS_GRAPH_SEQUENCES` says how many sequences, `CUIRASS_GRAPH_SEED` which first one. Without them it is 20,000 on
//! the simulated driver (100,000 with `CUIRASS_SOAK`), and 1,000 on a real one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod graph_support;

use cuirass::graph::{CaptureMode, GraphBuilder};
use cuirass::{Buffer, CaptureStatus, ErrorKind, Event, EventOptions, Stream};
use cuirass_testkit as testkit;
use graph_support::*;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::thread;

const STREAMS: usize = 3;
const EVENTS: usize = 4;
const STEPS: usize = 40;

/// What a call came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    Done,
    /// The driver's status.
    Code(u32),
    /// The driver's, whichever.
    SomeCode,
    /// Refused by cuirass.
    State,
}

impl Answer {
    fn of<T>(result: cuirass::Result<T>) -> Answer {
        match result {
            Ok(_) => Answer::Done,
            Err(error) if error.kind() == ErrorKind::State => Answer::State,
            Err(error) => Answer::Code(error.code().unwrap_or(0)),
        }
    }

    fn fits(self, expected: Answer) -> bool {
        self == expected || matches!((self, expected), (Answer::Code(_), Answer::SomeCode))
    }
}

/// Two threads: the test's own, and another one that lives as long as the sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Here,
    There,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Begin(usize, CaptureMode),
    End(usize),
    /// The builder is replaced by a new one.
    Close(usize),
    Drop(usize),
    Split(usize),
    Join(usize, usize),
    DropFork(usize),
    EndFork(usize),
    /// On a stream of the test's, or of a fork.
    Fill(usize),
    FillFork(usize),
    Record(usize, usize),
    Wait(usize, usize),
    Synchronize(usize),
    SynchronizeContext,
    Allocate,
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }

    fn step(&mut self, forks: usize) -> Step {
        let (a, b) = (self.below(STREAMS), self.below(EVENTS));
        // Any fork, and now and then one that there is not, which does nothing.
        let fork = self.below(forks.max(1));
        match self.below(100) {
            0..20 => Step::Begin(a, MODES[self.below(3)]),
            20..31 => Step::End(a),
            31..34 => Step::Close(a),
            34..36 => Step::Drop(a),
            36..44 => Step::Split(a),
            44..52 => Step::Join(a, fork),
            52..54 => Step::DropFork(fork),
            54..56 => Step::EndFork(fork),
            56..68 => Step::Fill(a),
            68..76 => Step::FillFork(fork),
            76..84 => Step::Record(a, b),
            84..94 => Step::Wait(a, b),
            94..97 => Step::Synchronize(a),
            97..98 => Step::SynchronizeContext,
            _ => Step::Allocate,
        }
    }
}

/// A stream in the model: one of the test's, or a fork's, by its number from `STREAMS` on.
type Place = usize;

struct Capture {
    origin: Place,
    mode: CaptureMode,
    on: On,
    valid: bool,
    /// Its streams, with the nodes that come before the next one of each.
    streams: BTreeMap<Place, BTreeSet<u32>>,
}

#[derive(Clone, Default)]
enum Mark {
    /// The event was never recorded: there is nothing to wait for.
    #[default]
    Nowhere,
    Outside,
    Inside(usize, BTreeSet<u32>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Fresh,
    Building(usize),
    Over,
}

struct Model {
    captures: BTreeMap<usize, Capture>,
    next_capture: usize,
    next_node: u32,
    builders: [Phase; STREAMS],
    events: Vec<Mark>,
    /// The captures of the forks that live, and their places.
    forks: Vec<(usize, Place)>,
    next_place: Place,
    reports: usize,
}

impl Model {
    fn of(&self, place: Place) -> Option<usize> {
        self.captures.iter().find(|(_, capture)| capture.streams.contains_key(&place)).map(|(id, _)| *id)
    }

    fn status(&self, place: Place) -> CaptureStatus {
        match self.of(place).and_then(|id| self.captures.get(&id)) {
            None => CaptureStatus::None,
            Some(capture) if capture.valid => CaptureStatus::Active,
            Some(_) => CaptureStatus::Invalidated,
        }
    }

    fn spoil(&mut self, id: usize) {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.valid = false;
        }
    }

    fn unsafe_call(&mut self, on: On) -> Answer {
        let forbids = |capture: &Capture| {
            capture.mode == CaptureMode::Global || capture.mode == CaptureMode::ThreadLocal && capture.on == on
        };
        let ids: Vec<usize> = self.captures.iter().filter(|(_, capture)| forbids(capture)).map(|(id, _)| *id).collect();
        ids.iter().for_each(|id| self.spoil(*id));
        if ids.is_empty() { Answer::Done } else { Answer::Code(900) }
    }

    fn work(&mut self, place: Place) -> Answer {
        let Some(id) = self.of(place) else { return Answer::Done };
        let capture = self.captures.get_mut(&id).unwrap();
        if !capture.valid {
            return Answer::Code(901);
        }
        self.next_node += 1;
        capture.streams.get_mut(&place).unwrap().insert(self.next_node);
        Answer::Done
    }

    /// What an event recorded on a stream stands for.
    fn mark(&self, place: Place) -> Result<Mark, Answer> {
        let Some(id) = self.of(place) else { return Ok(Mark::Outside) };
        let capture = &self.captures[&id];
        if capture.valid { Ok(Mark::Inside(id, capture.streams[&place].clone())) } else { Err(Answer::Code(901)) }
    }

    fn wait(&mut self, place: Place, mark: &Mark) -> Answer {
        let mine = self.of(place);
        if let Some(mine) = mine
            && !self.captures[&mine].valid
        {
            return Answer::Code(901);
        }
        match (mark, mine) {
            (Mark::Nowhere, _) | (Mark::Outside, None) => Answer::Done,
            (Mark::Outside, Some(mine)) => {
                self.spoil(mine);
                Answer::Code(905)
            }
            // Measured: an event of a capture that has ended or is invalidated is no event to anybody else.
            (Mark::Inside(theirs, _), mine)
                if mine != Some(*theirs) && self.captures.get(theirs).is_none_or(|capture| !capture.valid) =>
            {
                mine.into_iter().for_each(|mine| self.spoil(mine));
                Answer::Code(1)
            }
            (Mark::Inside(theirs, _), Some(mine)) if *theirs != mine => {
                self.spoil(*theirs);
                self.spoil(mine);
                Answer::Code(902)
            }
            (Mark::Inside(theirs, seen), _) => {
                let capture = self.captures.get_mut(theirs).unwrap();
                if !capture.valid {
                    return Answer::Code(901);
                }
                capture.streams.entry(place).or_default().extend(seen);
                Answer::Done
            }
        }
    }

    /// Ends a capture; what the driver answers to its own thread.
    fn end(&mut self, id: usize) -> Answer {
        let Some(capture) = self.captures.remove(&id) else { return Answer::State };
        let origin = &capture.streams[&capture.origin];
        match capture.valid {
            false => Answer::Code(901),
            true if capture.streams.values().all(|seen| seen.is_subset(origin)) => Answer::Done,
            true => Answer::Code(904),
        }
    }

    fn discard(&mut self, at: usize, on: On) -> Answer {
        let Phase::Building(id) = self.builders[at] else { return Answer::Done };
        let Some(capture) = self.captures.get(&id) else { return Answer::Done };
        let (valid, own) = (capture.valid, capture.mode == CaptureMode::Relaxed || capture.on == on);
        self.end(id);
        match (valid, own) {
            (true, _) => Answer::Done,
            (false, true) => Answer::Code(901),
            (false, false) => Answer::SomeCode,
        }
    }

    fn expect(&mut self, step: Step, on: On) -> Answer {
        match step {
            Step::Begin(at, mode) => match self.builders[at] {
                Phase::Fresh if self.of(at).is_some() => Answer::Code(401),
                Phase::Fresh => {
                    let id = self.next_capture;
                    self.next_capture += 1;
                    let streams = BTreeMap::from([(at, BTreeSet::new())]);
                    self.captures.insert(id, Capture { origin: at, mode, on, valid: true, streams });
                    self.builders[at] = Phase::Building(id);
                    Answer::Done
                }
                _ => Answer::State,
            },
            Step::End(at) => {
                let Phase::Building(id) = self.builders[at] else { return Answer::State };
                let capture = &self.captures[&id];
                if capture.mode != CaptureMode::Relaxed && capture.on != on {
                    return Answer::State;
                }
                self.builders[at] = Phase::Over;
                self.end(id)
            }
            Step::Close(at) => {
                let answer = self.discard(at, on);
                self.builders[at] = Phase::Fresh;
                answer
            }
            Step::Drop(at) => {
                self.reports += usize::from(matches!(self.builders[at], Phase::Building(_)));
                self.discard(at, on);
                self.builders[at] = Phase::Fresh;
                Answer::Done
            }
            Step::Split(at) => {
                let Phase::Building(id) = self.builders[at] else { return Answer::State };
                match self.mark(at) {
                    Err(answer) => answer,
                    Ok(mark) => {
                        let place = self.next_place;
                        self.next_place += 1;
                        self.wait(place, &mark);
                        self.forks.push((id, place));
                        Answer::Done
                    }
                }
            }
            Step::Join(at, fork) => {
                let Some((id, place)) = self.forks.get(fork).copied() else { return Answer::Done };
                self.forks.remove(fork);
                let Phase::Building(mine) = self.builders[at] else { return Answer::State };
                if mine != id || !self.captures.contains_key(&id) {
                    return Answer::State;
                }
                match self.mark(place) {
                    Ok(mark) => self.wait(at, &mark),
                    Err(answer) => answer,
                }
            }
            Step::DropFork(fork) => {
                if fork < self.forks.len() {
                    self.forks.remove(fork);
                }
                Answer::Done
            }
            Step::EndFork(fork) if fork < self.forks.len() => Answer::State,
            Step::EndFork(_) => Answer::Done,
            Step::Fill(at) => self.work(at),
            Step::FillFork(fork) => self.forks.get(fork).copied().map_or(Answer::Done, |(_, place)| self.work(place)),
            Step::Record(at, event) => match self.mark(at) {
                Ok(mark) => {
                    self.events[event] = mark;
                    Answer::Done
                }
                Err(answer) => answer,
            },
            Step::Wait(at, event) => {
                let mark = self.events[event].clone();
                self.wait(at, &mark)
            }
            Step::Synchronize(at) => match self.of(at) {
                Some(id) => {
                    self.spoil(id);
                    Answer::Code(900)
                }
                None => self.unsafe_call(on),
            },
            Step::SynchronizeContext if self.captures.is_empty() => Answer::Done,
            Step::SynchronizeContext => {
                self.captures.values_mut().for_each(|capture| capture.valid = false);
                Answer::Code(900)
            }
            Step::Allocate => self.unsafe_call(on),
        }
    }
}

/// More than a sequence splits.
const SPARES: usize = 32;

/// The real objects.
struct World {
    streams: Vec<Stream>,
    buffers: Vec<Buffer>,
    events: Vec<Event>,
    builders: Vec<Option<GraphBuilder>>,
    /// Each with the memory that its work writes to: streams that nothing orders share none.
    forks: Vec<(GraphBuilder, usize)>,
    split: usize,
    spares: Vec<Buffer>,
    memory: cuirass::memory::SynchronousMemoryResource,
}

impl World {
    fn new() -> World {
        let streams: Vec<Stream> = (0..STREAMS).map(|_| stream()).collect();
        let world = World {
            buffers: streams.iter().map(|stream| pool().allocate(64, stream).unwrap()).collect(),
            events: (0..EVENTS).map(|_| device().create_event(&EventOptions::default()).unwrap()).collect(),
            builders: streams.iter().map(|stream| Some(stream.create_graph_builder().unwrap())).collect(),
            forks: Vec::new(),
            split: 0,
            spares: (0..SPARES).map(|_| pool().allocate(64, &streams[0]).unwrap()).collect(),
            memory: cuirass::memory::SynchronousMemoryResource::new(device()).unwrap(),
            streams,
        };
        device().synchronize().unwrap();
        world
    }

    fn run(&mut self, step: Step) -> Answer {
        use cuirass::MemoryResource;
        let fresh = |streams: &[Stream], at: usize| Some(streams[at].create_graph_builder().unwrap());
        match step {
            Step::Begin(at, mode) => Answer::of(self.builders[at].as_ref().unwrap().begin_building(mode)),
            Step::End(at) => Answer::of(self.builders[at].as_ref().unwrap().end_building()),
            Step::Close(at) => {
                let answer = Answer::of(self.builders[at].take().unwrap().close());
                self.builders[at] = fresh(&self.streams, at);
                answer
            }
            Step::Drop(at) => {
                drop(self.builders[at].take());
                self.builders[at] = fresh(&self.streams, at);
                Answer::Done
            }
            Step::Split(at) => match self.builders[at].as_ref().unwrap().split(2) {
                Ok(forks) => {
                    for fork in forks {
                        self.forks.push((fork, self.split % SPARES));
                        self.split += 1;
                    }
                    Answer::Done
                }
                Err(error) => Answer::of(Err::<(), _>(error)),
            },
            Step::Join(at, fork) if fork < self.forks.len() => {
                let (fork, _) = self.forks.remove(fork);
                Answer::of(self.builders[at].as_ref().unwrap().join(vec![fork]))
            }
            Step::DropFork(fork) if fork < self.forks.len() => {
                drop(self.forks.remove(fork));
                Answer::Done
            }
            Step::EndFork(fork) if fork < self.forks.len() => Answer::of(self.forks[fork].0.end_building()),
            Step::Fill(at) => Answer::of(self.buffers[at].fill(1, &self.streams[at])),
            Step::FillFork(fork) if fork < self.forks.len() => {
                let (fork, spare) = &self.forks[fork];
                // SAFETY: [test] nothing waits for what is in it.
                Answer::of(unsafe { self.spares[*spare].fill_unordered(&[1], fork.stream()) })
            }
            Step::Join(..) | Step::DropFork(_) | Step::EndFork(_) | Step::FillFork(_) => Answer::Done,
            Step::Record(at, event) => Answer::of(self.streams[at].record(&self.events[event])),
            Step::Wait(at, event) => Answer::of(self.streams[at].wait(&self.events[event])),
            Step::Synchronize(at) => Answer::of(self.streams[at].synchronize()),
            Step::SynchronizeContext => Answer::of(device().synchronize()),
            Step::Allocate => Answer::of(self.memory.allocate(64, &self.streams[0])),
        }
    }
}

type Job = Box<dyn FnOnce() + Send>;

/// Runs a job on one of the two threads, and waits for it.
fn run_on<T: Send + 'static>(there: &mpsc::Sender<Job>, on: On, job: impl FnOnce() -> T + Send + 'static) -> T {
    match on {
        On::Here => job(),
        On::There => {
            let (done, result) = mpsc::channel();
            there.send(Box::new(move || done.send(job()).unwrap())).unwrap();
            result.recv().expect("the other thread's answer")
        }
    }
}

/// How often each answer came.
type Tally = BTreeMap<String, u64>;

fn sequence(alone: &testkit::Alone, there: &mpsc::Sender<Job>, seed: u64, tally: &mut Tally) {
    let mut random = Random(seed);
    let before = census();
    let world = Arc::new(Mutex::new(World::new()));
    let mut model = Model {
        captures: BTreeMap::new(),
        next_capture: 0,
        next_node: 0,
        builders: [Phase::Fresh; STREAMS],
        events: vec![Mark::Nowhere; EVENTS],
        forks: Vec::new(),
        next_place: STREAMS,
        reports: 0,
    };
    let mut story = Vec::new();
    for _ in 0..STEPS {
        let (step, on) = (random.step(model.forks.len()), if random.below(3) == 0 { On::There } else { On::Here });
        let expected = model.expect(step, on);
        let shared = Arc::clone(&world);
        let answer = run_on(there, on, move || shared.lock().unwrap().run(step));
        *tally.entry(format!("{answer:?}")).or_default() += 1;
        story.push(format!("{on:?} {step:?}: {answer:?}"));
        let told = || format!("seed {seed}\n  {}", story.join("\n  "));
        assert!(answer.fits(expected), "expected {expected:?}: {}", told());
        let world = world.lock().unwrap();
        for (at, stream) in world.streams.iter().enumerate() {
            assert_eq!(stream.capture_status().unwrap(), model.status(at), "stream {at}: {}", told());
        }
        for ((fork, _), (_, place)) in world.forks.iter().zip(&model.forks) {
            assert_eq!(fork.stream().capture_status().unwrap(), model.status(*place), "fork {place}: {}", told());
        }
        let reports = alone.reports();
        assert_eq!(reports.len(), std::mem::take(&mut model.reports), "{reports:?}: {}", told());
    }
    let mut world = Arc::into_inner(world).unwrap().into_inner().unwrap();
    for builder in world.builders.drain(..).flatten() {
        // A capture that is still going on ends here, well or not.
        drop(builder.close());
    }
    world.forks.clear();
    for stream in &world.streams {
        assert_eq!(stream.capture_status().unwrap(), CaptureStatus::None);
        stream.synchronize().unwrap();
    }
    // Work of forks' streams after their captures.
    device().synchronize().unwrap();
    drop(world);
    cuirass::drain();
    assert_eq!(
        (alone.reports(), cuirass::pending_releases()),
        (Vec::new(), 0),
        "seed {seed}\n  {}",
        story.join("\n  ")
    );
    if before.is_some() {
        assert_eq!(census(), before, "seed {seed}\n  {}", story.join("\n  "));
    }
}

#[test]
fn random_sequences_agree_with_the_model() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let default = match (testkit::is_simulator(), std::env::var_os("CUIRASS_SOAK")) {
        (true, Some(_)) => 100_000,
        (true, None) => 20_000,
        (false, _) => 1_000,
    };
    let (count, first) =
        (number("CUIRASS_GRAPH_SEQUENCES").unwrap_or(default), number("CUIRASS_GRAPH_SEED").unwrap_or(0));
    let alone = testkit::alone();
    drop((stream(), pool()));
    let mut tally = Tally::new();
    thread::scope(|scope| {
        let (there, jobs) = mpsc::channel::<Job>();
        scope.spawn(move || jobs.into_iter().for_each(|job| job()));
        for seed in first..first + count {
            sequence(&alone, &there, seed, &mut tally);
        }
    });
    println!("{count} random sequences of {STEPS} steps, no difference from the model: {tally:?}");
}
