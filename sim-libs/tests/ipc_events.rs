//! Events of several processes.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use common::pair::{Other, Tool, descriptors, limit_descriptors, mappings, pair, shared_files};
use common::{Driver, alone};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// `CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS`
const SHARED: u32 = 6;

/// The handle of an event, by value as C passes it.
type Event = [u8; 64];

fn handle(d: &Driver, event: usize) -> Event {
    let mut handle = [0; 64];
    d.ok("cuIpcGetEventHandle", (handle.as_mut_ptr(), event));
    handle
}

fn open(d: &Driver, handle: Event) -> Result<usize, String> {
    #[repr(C)]
    struct ByValue(Event);
    let mut event = 0_usize;
    // SAFETY: [test] the signature is `cuda.h`'s.
    let code = unsafe {
        let open: unsafe extern "C" fn(*mut usize, ByValue) -> u32 =
            std::mem::transmute(d.address("cuIpcOpenEventHandle"));
        open(&raw mut event, ByValue(handle))
    };
    if code == 0 { Ok(event) } else { Err(d.status(code)) }
}

/// An event that the other process opens.
fn lend(d: &Driver, other: &mut Other) -> usize {
    let event = d.event(SHARED);
    other.say_bytes(&handle(d, event));
    event
}

fn borrow(d: &Driver, other: &mut Other) -> usize {
    open(d, other.hear_bytes(64).try_into().unwrap()).unwrap()
}

/// Memory of the first process that both have.
fn memory(tool: &Tool<'_>, other: &mut Other) -> usize {
    let pool = tool.pool(false);
    let memory = tool.allocate(pool, 4096);
    tool.fill(memory, 1024, 0);
    tool.sync();
    other.give(tool.file(pool).as_raw_fd());
    other.say(tool.export(memory));
    memory
}

fn their_memory(tool: &Tool<'_>, other: &mut Other) -> usize {
    let pool = tool.import_pool(&other.take());
    let data = other.hear();
    tool.import(pool, &data)
}

fn record(tool: &Tool<'_>, event: usize) {
    tool.d.ok("cuEventRecord", (event, tool.stream));
}

fn wait(tool: &Tool<'_>, event: usize) {
    tool.d.ok("cuStreamWaitEvent", (tool.stream, event, 0_u32));
}

/// Waits for a while until something is so.
fn soon(what: &str, is: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !is() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn who_asks_and_waits_sees_what_the_other_recorded() {
    fn one(d: &Driver, other: &mut Other, event: usize) {
        let tool = Tool::new(d);
        let [_] = other.hear();
        tool.hold();
        record(&tool, event);
        other.say([1]);
        let [_] = other.hear();
        assert_eq!(d.call("cuEventQuery", (event,)), "NOT_READY");
        tool.let_go();
        d.ok("cuEventSynchronize", (event,));
        other.say([2]);
        let [_] = other.hear();
    }
    fn two(d: &Driver, other: &mut Other, event: usize) {
        let tool = Tool::new(d);
        d.ok("cuEventQuery", (event,));
        d.ok("cuEventSynchronize", (event,));
        other.say([0]);
        let [_] = other.hear();
        assert_eq!(d.call("cuEventQuery", (event,)), "NOT_READY");
        wait(&tool, event);
        let (word, mut got) = (7_u32, 0_u32);
        let own = d.memory(4);
        d.ok("cuMemcpyHtoDAsync_v2", (own, &raw const word, 4_usize, tool.stream));
        assert_eq!(d.call("cuStreamQuery", (tool.stream,)), "NOT_READY");
        other.say([1]);
        d.ok("cuEventSynchronize", (event,));
        d.ok("cuEventQuery", (event,));
        tool.sync();
        d.ok("cuMemcpyDtoH_v2", (&raw mut got, own, 4_usize));
        assert_eq!(got, 7);
        let [_] = other.hear();
        d.ok("cuEventQuery", (event,));
        let mut ms = 0_f32;
        assert_eq!(d.call("cuEventElapsedTime", (&raw mut ms, event, event)), "INVALID_HANDLE");
        other.say([2]);
    }
    pair(
        "who_asks_and_waits_sees_what_the_other_recorded",
        "",
        |d, other| {
            let event = lend(&d, other);
            one(&d, other, event);
            // The same with the roles exchanged: an event that was opened may be recorded too.
            two(&d, other, event);
            d.ok("cuEventDestroy_v2", (event,));
            assert_eq!((d.reports().as_str(), mappings()), ("", 0));
        },
        |d, other| {
            let event = borrow(&d, other);
            two(&d, other, event);
            one(&d, other, event);
            d.ok("cuEventDestroy_v2", (event,));
            assert_eq!((d.reports().as_str(), mappings()), ("", 0));
        },
    );
}

/// Both add to a word in turn, ordered by events alone, and neither host waits in between.
fn in_turn(name: &str, config: &str, rounds: u32) {
    pair(
        name,
        config,
        |d, other| {
            let tool = Tool::new(&d);
            let memory = memory(&tool, other);
            let events: Vec<[usize; 2]> = (0..rounds).map(|_| [lend(&d, other), lend(&d, other)]).collect();
            for (round, [mine, theirs]) in events.iter().enumerate() {
                tool.fill(memory, 1024, round as u32);
                record(&tool, *mine);
                // The other records in its own time: only then is there something to wait for.
                other.say([1]);
                let [_] = other.hear();
                wait(&tool, *theirs);
                tool.add(memory + 2048, 512, 1000);
            }
            let words = tool.read(memory, 1024);
            assert!(words[..512].iter().all(|word| *word == rounds - 1 + 1), "{:?}", &words[..4]);
            assert!(words[512..].iter().all(|word| *word == rounds - 1 + 1001), "{:?}", &words[512..516]);
            other.say([1]);
            assert_eq!(d.reports(), "");
        },
        |d, other| {
            let tool = Tool::new(&d);
            let memory = their_memory(&tool, other);
            let events: Vec<[usize; 2]> = (0..rounds).map(|_| [borrow(&d, other), borrow(&d, other)]).collect();
            for [theirs, mine] in events {
                let [_] = other.hear();
                wait(&tool, theirs);
                tool.add(memory, 512, 1);
                tool.add(memory + 2048, 512, 1);
                record(&tool, mine);
                other.say([1]);
            }
            let [_] = other.hear();
            tool.sync();
            assert_eq!(d.reports(), "");
        },
    );
}

#[test]
fn kernels_of_two_processes_run_in_turn() {
    in_turn("kernels_of_two_processes_run_in_turn", "", 200);
}

#[test]
fn a_deterministic_schedule_waits_for_others_too() {
    in_turn("a_deterministic_schedule_waits_for_others_too", "seed=7", 10);
}

#[test]
fn a_recording_whose_process_is_killed_counts_as_having_happened() {
    pair(
        "a_recording_whose_process_is_killed_counts_as_having_happened",
        "",
        |d, other| {
            let before = shared_files();
            let tool = Tool::new(&d);
            let event = lend(&d, other);
            let theirs = borrow(&d, other);
            let their_handle: Event = other.hear_bytes(64).try_into().unwrap();
            let [_] = other.hear();
            for event in [event, theirs] {
                assert_eq!(d.call("cuEventQuery", (event,)), "NOT_READY");
                wait(&tool, event);
            }
            let own = d.memory(4);
            d.ok("cuMemsetD8Async", (own, 9_u8, 4_usize, tool.stream));
            assert_eq!(d.call("cuStreamQuery", (tool.stream,)), "NOT_READY");
            // Who cannot look whether a process is alive does not take it for dead.
            limit_descriptors(0);
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(d.call("cuEventQuery", (theirs,)), "NOT_READY");
            assert_eq!(open(&d, their_handle), Err("OUT_OF_MEMORY".to_owned()));
            limit_descriptors(1024);
            assert_eq!(d.reports(), "");
            let id = other.id();
            // It is not even waited for yet.
            other.kill_only();
            let start = Instant::now();
            tool.sync();
            d.ok("cuEventSynchronize", (theirs,));
            d.ok("cuEventSynchronize", (event,));
            assert!(start.elapsed() < Duration::from_secs(10));
            let reports = d.reports();
            assert!(reports.contains(&format!("process {id} ended before an event")), "{reports}");
            assert_eq!(open(&d, their_handle), Err("INVALID_HANDLE".to_owned()));
            other.kill();
            assert_eq!(open(&d, their_handle), Err("INVALID_HANDLE".to_owned()));
            // Both events go on.
            for event in [event, theirs] {
                tool.hold();
                record(&tool, event);
                assert_eq!(d.call("cuEventQuery", (event,)), "NOT_READY");
                tool.let_go();
                d.ok("cuEventSynchronize", (event,));
                d.ok("cuEventDestroy_v2", (event,));
            }
            assert_eq!((mappings(), shared_files()), (0, before));
        },
        |d, other| {
            let tool = Tool::new(&d);
            let theirs = borrow(&d, other);
            let event = lend(&d, other);
            other.say_bytes(&handle(&d, event));
            tool.hold();
            record(&tool, event);
            record(&tool, theirs);
            other.say([1]);
            other.hear_bytes(1);
        },
    );
}

#[test]
fn a_process_that_exits_leaves_its_recordings_done() {
    pair(
        "a_process_that_exits_leaves_its_recordings_done",
        "",
        |d, other| {
            let tool = Tool::new(&d);
            let [done, pending] = [borrow(&d, other), borrow(&d, other)];
            other.say([1]);
            let [_] = other.hear();
            assert!(other.wait().success());
            d.ok("cuEventSynchronize", (done,));
            assert_eq!(d.reports(), "", "this one had happened");
            wait(&tool, pending);
            tool.sync();
            assert_eq!(d.reports().lines().count(), 1, "{}", d.reports());
        },
        |d, other| {
            let tool = Tool::new(&d);
            let [done, pending] = [lend(&d, other), lend(&d, other)];
            let [_] = other.hear();
            record(&tool, done);
            tool.sync();
            tool.hold();
            record(&tool, pending);
            other.say([1]);
        },
    );
}

#[test]
fn who_waits_for_a_recording_waits_for_no_later_one() {
    pair(
        "who_waits_for_a_recording_waits_for_no_later_one",
        "",
        |d, other| {
            let tool = Tool::new(&d);
            let event = lend(&d, other);
            tool.hold();
            record(&tool, event);
            other.say([1]);
            let [_] = other.hear();
            let quick = d.stream(1);
            d.ok("cuEventRecord", (event, quick));
            d.ok("cuEventSynchronize", (event,));
            other.say([1]);
            let [_] = other.hear();
            tool.let_go();
            tool.sync();
        },
        |d, other| {
            let tool = Tool::new(&d);
            let event = borrow(&d, other);
            let [_] = other.hear();
            wait(&tool, event);
            other.say([1]);
            let [_] = other.hear();
            // The later one has happened, but that is not what the stream waits for.
            d.ok("cuEventQuery", (event,));
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(d.call("cuStreamQuery", (tool.stream,)), "NOT_READY");
            other.say([1]);
            tool.sync();
            assert_eq!(d.reports(), "");
        },
    );
}

#[test]
fn a_recording_of_a_lost_context_keeps_nobody_waiting() {
    pair(
        "a_recording_of_a_lost_context_keeps_nobody_waiting",
        "",
        |d, other| {
            let tool = Tool::new(&d);
            let [event, destroyed] = [lend(&d, other), lend(&d, other)];
            let [_] = other.hear();
            tool.hold();
            tool.add(16, 1, 1);
            record(&tool, event);
            record(&tool, destroyed);
            d.ok("cuEventDestroy_v2", (destroyed,));
            other.say([1]);
            let [_] = other.hear();
            tool.let_go();
            assert_eq!(d.call("cuStreamSynchronize", (tool.stream,)), "ILLEGAL_ADDRESS");
            let [_] = other.hear();
        },
        |d, other| {
            let tool = Tool::new(&d);
            let events = [borrow(&d, other), borrow(&d, other)];
            other.say([1]);
            let [_] = other.hear();
            for event in events {
                assert_eq!(d.call("cuEventQuery", (event,)), "NOT_READY");
                wait(&tool, event);
            }
            other.say([1]);
            tool.sync();
            events.into_iter().for_each(|event| d.ok("cuEventSynchronize", (event,)));
            assert_eq!(d.reports(), "");
            other.say([1]);
        },
    );
}

#[test]
fn the_last_recording_counts_however_many_there_were() {
    const MANY: u32 = 9000;
    pair(
        "the_last_recording_counts_however_many_there_were",
        "",
        |d, other| {
            let tool = Tool::new(&d);
            let memory = memory(&tool, other);
            let event = lend(&d, other);
            for _ in 0..MANY {
                tool.add(memory, 1, 1);
                record(&tool, event);
            }
            other.say([1]);
            let [_] = other.hear();
            // Recordings of both: the one that comes last counts for both.
            tool.hold();
            record(&tool, event);
            other.say([1]);
            let [_] = other.hear();
            d.ok("cuEventQuery", (event,));
            tool.let_go();
            other.say([1]);
            assert_eq!(d.reports(), "");
        },
        |d, other| {
            let tool = Tool::new(&d);
            let memory = their_memory(&tool, other);
            let event = borrow(&d, other);
            let [_] = other.hear();
            wait(&tool, event);
            assert_eq!(tool.read(memory, 1), [MANY]);
            other.say([1]);
            let [_] = other.hear();
            assert_eq!(d.call("cuEventQuery", (event,)), "NOT_READY");
            record(&tool, event);
            tool.sync();
            d.ok("cuEventQuery", (event,));
            other.say([1]);
            let [_] = other.hear();
        },
    );
}

#[test]
fn what_is_no_event_is_refused_and_nothing_is_left() {
    alone("what_is_no_event_is_refused_and_nothing_is_left", "", || {
        let (d, _) = Driver::ready();
        let open_before = descriptors();
        let event = d.event(SHARED);
        let good = handle(&d, event);
        let mut bad: Vec<Event> =
            vec![[0; 64], [0xff; 64], *b"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"];
        bad.extend((0..64).map(|at| std::array::from_fn(|byte| good[byte] ^ u8::from(byte == at))));
        for handle in bad {
            assert_eq!(open(&d, handle), Err("MAP_FAILED".to_owned()));
        }
        assert_eq!(open(&d, good), Err("INVALID_CONTEXT".to_owned()), "its own");
        let mut out = [0_u8; 64];
        let plain = d.event(2);
        assert_eq!(d.call("cuIpcGetEventHandle", (out.as_mut_ptr(), plain)), "INVALID_HANDLE");
        assert_eq!(out, [0; 64]);
        [event, plain].into_iter().for_each(|event| d.ok("cuEventDestroy_v2", (event,)));
        assert_eq!((descriptors(), mappings()), (open_before, 0));
        assert_eq!((&d.census()["event"], d.reports().as_str()), (&0.into(), ""));
    });
}

#[test]
fn an_event_that_was_opened_outlives_its_maker() {
    pair(
        "an_event_that_was_opened_outlives_its_maker",
        "",
        |d, other| {
            let tool = Tool::new(&d);
            let open_before = descriptors();
            let event = lend(&d, other);
            let [_] = other.hear();
            record(&tool, event);
            d.ok("cuEventDestroy_v2", (event,));
            other.say([1]);
            let [_] = other.hear();
            let again = d.event(SHARED);
            other.say([1]);
            let [_] = other.hear();
            d.ok("cuEventDestroy_v2", (again,));
            for _ in 0..200 {
                let event = lend(&d, other);
                let [_] = other.hear();
                record(&tool, event);
                other.say([1]);
                d.ok("cuEventDestroy_v2", (event,));
                let [_] = other.hear();
            }
            tool.sync();
            soon("all of it is gone", || (descriptors(), mappings()) == (open_before, 0));
            assert_eq!((&d.census()["event"], d.reports().as_str()), (&0.into(), ""));
        },
        |d, other| {
            let tool = Tool::new(&d);
            let open_before = descriptors();
            let good: Event = other.hear_bytes(64).try_into().unwrap();
            let twin = open(&d, good).unwrap();
            let mut out = [0_u8; 64];
            assert_eq!(d.call("cuIpcGetEventHandle", (out.as_mut_ptr(), twin)), "INVALID_HANDLE");
            assert_eq!(out, [0; 64]);
            other.say([1]);
            let [_] = other.hear();
            d.ok("cuEventSynchronize", (twin,));
            assert_eq!(open(&d, good), Err("INVALID_HANDLE".to_owned()));
            // It stays good for those who have it.
            record(&tool, twin);
            d.ok("cuEventSynchronize", (twin,));
            d.ok("cuEventDestroy_v2", (twin,));
            other.say([1]);
            let [_] = other.hear();
            assert_eq!(open(&d, good), Err("INVALID_HANDLE".to_owned()), "another event in its place");
            other.say([1]);
            for _ in 0..200 {
                let twin = borrow(&d, other);
                other.say([1]);
                let [_] = other.hear();
                wait(&tool, twin);
                d.ok("cuEventDestroy_v2", (twin,));
                other.say([1]);
            }
            tool.sync();
            soon("all of it is gone", || (descriptors(), mappings()) == (open_before, 0));
            assert_eq!((&d.census()["event"], d.reports().as_str()), (&0.into(), ""));
        },
    );
}

#[test]
fn captures_keep_their_events_to_themselves() {
    pair(
        "captures_keep_their_events_to_themselves",
        "",
        |d, other| {
            let tool = Tool::new(&d);
            let (event, held) = (lend(&d, other), lend(&d, other));
            tool.hold();
            record(&tool, held);
            other.say([1]);
            let [_] = other.hear();
            tool.let_go();
            tool.sync();
            // In a capture the recording is the graph's: the other sees none until the graph has run.
            d.ok("cuStreamBeginCapture_v2", (tool.stream, 2_u32));
            d.ok("cuEventRecordWithFlags", (event, tool.stream, 1_u32));
            let graph = d.get("cuStreamEndCapture", |out| (tool.stream, out));
            let exec = d.get("cuGraphInstantiateWithFlags", |out| (out, graph, 0_u64));
            tool.hold();
            d.ok("cuGraphLaunch", (exec, tool.stream));
            other.say([2]);
            let [_] = other.hear();
            tool.let_go();
            tool.sync();
            other.say([3]);
        },
        |d, other| {
            let tool = Tool::new(&d);
            let (event, held) = (borrow(&d, other), borrow(&d, other));
            let [_] = other.hear();
            // A capture does not wait for another process: what it waits for must be part of it.
            d.ok("cuStreamBeginCapture_v2", (tool.stream, 2_u32));
            assert_eq!(d.call("cuStreamWaitEvent", (tool.stream, held, 0_u32)), "STREAM_CAPTURE_ISOLATION");
            let mut graph = 0_usize;
            assert_eq!(d.call("cuStreamEndCapture", (tool.stream, &raw mut graph)), "STREAM_CAPTURE_INVALIDATED");
            other.say([1]);
            let [_] = other.hear();
            assert_eq!(d.call("cuEventQuery", (event,)), "NOT_READY");
            other.say([2]);
            let [_] = other.hear();
            d.ok("cuEventQuery", (event,));
            // An event recorded in a capture of this process is this capture's.
            d.ok("cuStreamBeginCapture_v2", (tool.stream, 2_u32));
            record(&tool, held);
            let fork = d.stream(1);
            d.ok("cuStreamWaitEvent", (fork, held, 0_u32));
            assert_eq!(d.capturing(fork).1, "ACTIVE");
        },
    );
}
