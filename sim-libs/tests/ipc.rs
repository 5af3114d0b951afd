//! Pool memory shared between processes: real processes, real shared memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, missing_docs)]

mod common;

use common::pair::{Other, Tool, descriptors, limit_descriptors, mappings, pair, props, shared_files};
use common::{Driver, NULL, alone};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::Command;

const WORDS: usize = 512;
const BYTES: usize = WORDS * 4;

/// A pool with one allocation, given to the other process.
fn lend(tool: &Tool<'_>, other: &mut Other, host: bool) -> (usize, usize) {
    let pool = tool.pool(host);
    let memory = tool.allocate(pool, BYTES);
    tool.fill(memory, WORDS, 5);
    tool.sync();
    other.give(tool.file(pool).as_raw_fd());
    other.say(tool.export(memory));
    (pool, memory)
}

/// What the other process gives: the pool, what to import, and where it is.
fn borrow(tool: &Tool<'_>, other: &mut Other) -> (usize, [u64; 8], usize) {
    let pool = tool.import_pool(&other.take());
    let data = other.hear();
    (pool, data, tool.import(pool, &data))
}

fn reports_say(d: &Driver, text: &str) -> bool {
    d.reports().contains(text)
}

fn attribute<T: Default>(d: &Driver, which: u32, pointer: usize) -> T {
    let mut value = T::default();
    d.ok("cuPointerGetAttribute", (&raw mut value, which, pointer));
    value
}

#[test]
fn a_kernel_of_one_process_changes_what_another_reads() {
    pair(
        "a_kernel_of_one_process_changes_what_another_reads",
        "",
        |d, other| {
            let tool = Tool::new(&d);
            let (pool, memory) = lend(&tool, other, false);
            assert_eq!(other.hear(), [5, 5], "what this process wrote");
            assert!(tool.read(memory, WORDS).iter().all(|word| *word == 12), "what the other's kernel added");
            tool.add(memory, WORDS as u32, 100);
            tool.sync();
            other.say([1]);
            let [] = other.hear();
            assert_eq!(other.hear(), [112]);
            tool.free(memory);
            tool.destroy(pool);
            assert_eq!(d.reports(), "");
        },
        |d, other| {
            let tool = Tool::new(&d);
            let (pool, data, memory) = borrow(&tool, other);
            let before = tool.read(memory, WORDS);
            tool.add(memory, WORDS as u32, 7);
            tool.sync();
            other.say([before[0].into(), before[WORDS - 1].into()]);
            let [_] = other.hear();
            let after = tool.read(memory, WORDS)[WORDS - 1];
            // What imported memory is, and what an imported pool cannot do.
            assert_eq!(attribute::<u32>(&d, 2, memory), 2, "memory of a device");
            assert_eq!(attribute::<i32>(&d, 9, memory), 0);
            assert_eq!(attribute::<u64>(&d, 11, memory + 8) as usize, memory);
            assert_eq!(attribute::<u64>(&d, 12, memory) as usize, BYTES);
            assert_eq!(attribute::<u64>(&d, 17, memory) as usize, pool);
            let mut got = 0_usize;
            assert_eq!(d.call("cuMemAllocFromPoolAsync", (&raw mut got, 64_usize, pool, tool.stream)), "INVALID_VALUE");
            assert_eq!(d.call("cuDeviceSetMemPool", (0_i32, pool)), "INVALID_VALUE");
            let mut file = -1_i32;
            let export = (&raw mut file, pool, 1_u32, 0_u64);
            assert_eq!(d.call("cuMemPoolExportToShareableHandle", export), "INVALID_VALUE");
            let mut again = [0_u64; 8];
            assert_eq!(d.call("cuMemPoolExportPointer", (again.as_mut_ptr(), memory)), "INVALID_VALUE");
            assert_eq!((file, got, again), (-1, 0, [0; 8]));
            // Beyond its end is nothing.
            let mut word = 0_u32;
            assert_ne!(d.call("cuMemcpyDtoH_v2", (&raw mut word, memory + BYTES, 4_usize)), "SUCCESS");
            assert_eq!(d.census()["imported_memory"], 1);
            tool.free(memory);
            let mut value = 0_u32;
            assert_eq!(d.call("cuPointerGetAttribute", (&raw mut value, 2_u32, memory)), "INVALID_VALUE");
            let again = tool.import(pool, &data);
            d.ok("cuMemFree_v2", (again,));
            tool.destroy(pool);
            assert_eq!((&d.census()["imported_memory"], &d.census()["pool"]), (&0.into(), &0.into()));
            assert_eq!((mappings(), d.census()["pooled_memory"].as_u64()), (0, Some(0)));
            other.say([after.into()]);
        },
    );
}

#[test]
fn host_memory_is_shared_at_the_addresses_that_the_host_uses() {
    pair(
        "host_memory_is_shared_at_the_addresses_that_the_host_uses",
        "",
        |d, other| {
            let tool = Tool::new(&d);
            let (pool, memory) = lend(&tool, other, true);
            let [_] = other.hear();
            // SAFETY: [test] host memory of this size, which nobody else changes now.
            let words = unsafe { std::slice::from_raw_parts_mut(memory as *mut u32, WORDS) };
            assert!(words.iter().all(|word| *word == 14));
            words[3] = 99;
            other.say([1]);
            let [_] = other.hear();
            tool.free(memory);
            tool.destroy(pool);
            assert_eq!(mappings(), 0);
        },
        |d, other| {
            let tool = Tool::new(&d);
            let (pool, _, memory) = borrow(&tool, other);
            // SAFETY: [test] host memory of this size, which nobody else changes now.
            let words = unsafe { std::slice::from_raw_parts_mut(memory as *mut u32, WORDS) };
            assert!(words.iter().all(|word| *word == 5));
            words.fill(7);
            tool.add(memory, WORDS as u32, 7);
            tool.sync();
            other.say([1]);
            let [_] = other.hear();
            assert_eq!(words[3], 99);
            assert_eq!(attribute::<u32>(&d, 2, memory), 1, "memory of the host");
            tool.free(memory);
            tool.destroy(pool);
            assert_eq!(mappings(), 0);
            other.say([1]);
        },
    );
}

#[test]
fn a_descriptor_may_be_inherited() {
    const FILE: &str = "CUIRASS_SIM_FILE";
    alone("a_descriptor_may_be_inherited", "devices=2", || {
        let (d, _) = Driver::ready();
        let tool = Tool::new(&d);
        if let Ok(given) = std::env::var(FILE) {
            let mut numbers = given.split(',').map(|word| word.parse::<u64>().unwrap());
            let mut file = || {
                let file = i32::try_from(numbers.next().unwrap()).unwrap();
                // SAFETY: [test] the parent left this descriptor open for its child.
                unsafe { OwnedFd::from_raw_fd(file) }
            };
            let (file, strange) = (file(), file());
            let data: Vec<u64> = numbers.collect();
            // The parent has two devices, this process one.
            let mut got = 0_usize;
            let import = (&raw mut got, strange.as_raw_fd() as usize, 1_u32, 0_u64);
            assert_eq!(d.call("cuMemPoolImportFromShareableHandle", import), "INVALID_VALUE");
            let pool = tool.import_pool(&file);
            drop(file);
            let memory = tool.import(pool, &data.try_into().unwrap());
            tool.add(memory, WORDS as u32, 1);
            tool.free(memory);
            return;
        }
        let pool = tool.pool(false);
        let (memory, file) = (tool.allocate(pool, BYTES), tool.file(pool));
        tool.fill(memory, WORDS, 30);
        tool.sync();
        let mut of_second = props(false);
        of_second[1] |= 1 << 32;
        let strange = tool.file(d.get("cuMemPoolCreate", |out| (out, of_second.as_ptr())));
        // SAFETY: [test] descriptors of this test's; the copies are inherited.
        let copy = |file: &OwnedFd| unsafe { OwnedFd::from_raw_fd(libc::dup(file.as_raw_fd())) };
        let (copy, strange) = (copy(&file), copy(&strange));
        let data = tool.export(memory).map(|word| word.to_string()).join(",");
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["a_descriptor_may_be_inherited", "--exact", "--test-threads=1"]);
        child.env("CUIRASS_SIM", "quiet=1,devices=1");
        child.env(FILE, format!("{},{},{data}", copy.as_raw_fd(), strange.as_raw_fd()));
        assert!(child.status().unwrap().success());
        assert_eq!(tool.read(memory, WORDS), [31; WORDS]);
    });
}

#[test]
fn what_is_no_pool_is_refused_and_nothing_is_left_open() {
    alone("what_is_no_pool_is_refused_and_nothing_is_left_open", "", || {
        let (d, _) = Driver::ready();
        let tool = Tool::new(&d);
        let pool = tool.pool(false);
        let (memory, file) = (tool.allocate(pool, BYTES), tool.file(pool));
        let before = descriptors();
        let closed = tool.file(pool).as_raw_fd();
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let text = OwnedFd::from(std::fs::File::open("/proc/self/status").unwrap());
        let folder = OwnedFd::from(std::fs::File::open("/").unwrap());
        let (pipe, _writer) = std::io::pipe().unwrap();
        let pipe = OwnedFd::from(pipe);
        // SAFETY: [test] a descriptor made just now; a memfd that looks like the driver's but can be cut short.
        let forged = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"cuirass-sim-pool".as_ptr(), 0)) };
        let mut physical = -1_i32;
        let prop = [1_u64 | 1 << 32, 1, 0, 0];
        let handle = d.get("cuMemCreate", |out| (out, 2_usize << 20, prop.as_ptr(), 0_u64));
        d.ok("cuMemExportToShareableHandle", (&raw mut physical, handle, 1_u32, 0_u64));
        // SAFETY: [test] the descriptor is the caller's.
        let physical = unsafe { OwnedFd::from_raw_fd(physical) };
        let mut got = 0_usize;
        let open = [&null, &text, &folder, &pipe, &forged, &physical].map(AsRawFd::as_raw_fd);
        for bad in open.into_iter().chain([-1, closed, 9999, i32::MAX]) {
            let import = (&raw mut got, bad as usize, 1_u32, 0_u64);
            assert_eq!(d.call("cuMemPoolImportFromShareableHandle", import), "INVALID_VALUE", "{bad}");
        }
        for (kind, flags) in [(0_u32, 0_u64), (2, 0), (8, 0), (1, 1)] {
            let import = (&raw mut got, file.as_raw_fd() as usize, kind, flags);
            assert_eq!(d.call("cuMemPoolImportFromShareableHandle", import), "INVALID_VALUE", "{kind} {flags}");
            let mut out = -1_i32;
            let export = (&raw mut out, pool, kind, flags);
            assert_eq!(d.call("cuMemPoolExportToShareableHandle", export), "INVALID_VALUE", "{kind} {flags}");
        }
        // The other way round too: a pool is no physical memory.
        let import = (&raw mut got, file.as_raw_fd() as usize, 1_u32);
        assert_eq!(d.call("cuMemImportFromShareableHandle", import), "INVALID_VALUE");
        d.ok("cuMemRelease", (handle,));
        drop((null, text, folder, pipe, _writer, forged, physical));
        assert_eq!((descriptors(), got), (before, 0));

        let good = tool.export(memory);
        let imported = tool.import_pool(&file);
        let strange = tool.pool(false);
        let strange_memory = tool.allocate(strange, BYTES);
        let plain = d.memory(64);
        let mut out = [0_u64; 8];
        assert_eq!(d.call("cuMemPoolExportPointer", (out.as_mut_ptr(), plain)), "INVALID_VALUE");
        // Before its pool.
        assert_eq!(d.call("cuMemPoolExportPointer", (out.as_mut_ptr(), strange_memory)), "INVALID_VALUE");
        assert!(reports_say(&d, "cuMemPoolExportToShareableHandle never exported"), "{}", d.reports());
        drop(tool.file(strange));
        let other_pool = tool.export(strange_memory);
        let mut bad = vec![[0; 8], [u64::MAX; 8], other_pool];
        bad.extend((0..8).map(|at| std::array::from_fn(|word| good[word] ^ u64::from(word == at) << 20)));
        for data in bad {
            assert_eq!(d.call("cuMemPoolImportPointer", (&raw mut got, imported, data.as_ptr())), "INVALID_VALUE");
        }
        // From the pool itself, which is not an imported one, and from none.
        for from in [pool, NULL, 16] {
            assert_eq!(d.call("cuMemPoolImportPointer", (&raw mut got, from, good.as_ptr())), "INVALID_VALUE");
        }
        assert_eq!(d.call("cuMemPoolImportPointer", (&raw mut got, imported, NULL)), "INVALID_VALUE");
        assert_eq!((got, &d.census()["imported_memory"]), (0, &0.into()));
        let here = tool.import(imported, &good);
        tool.fill(here, WORDS, 3);
        assert_eq!(tool.read(memory, WORDS), [3; WORDS]);
        tool.free(here);
        tool.free(memory);
        tool.free(strange_memory);
        [imported, strange, pool].into_iter().for_each(|pool| tool.destroy(pool));
        drop(file);
        // The one descriptor more at the beginning was the pool's own, and one that it was exported as.
        assert_eq!((descriptors(), mappings()), (before - 2, 0));
    });
}

#[test]
fn a_process_without_descriptors_gets_an_error_and_goes_on() {
    alone("a_process_without_descriptors_gets_an_error_and_goes_on", "", || {
        let (d, _) = Driver::ready();
        let tool = Tool::new(&d);
        let pool = tool.pool(false);
        let memory = tool.allocate(pool, BYTES);
        let (file, data) = (tool.file(pool), tool.export(memory));
        let before = descriptors();
        limit_descriptors(0);
        let mut got = usize::MAX;
        assert_eq!(d.call("cuMemPoolCreate", (&raw mut got, props(false).as_ptr())), "OUT_OF_MEMORY");
        let mut out = -1_i32;
        let export = (&raw mut out, pool, 1_u32, 0_u64);
        assert_eq!(d.call("cuMemPoolExportToShareableHandle", export), "OUT_OF_MEMORY");
        let import = (&raw mut got, file.as_raw_fd() as usize, 1_u32, 0_u64);
        assert_eq!(d.call("cuMemPoolImportFromShareableHandle", import), "OUT_OF_MEMORY");
        assert_eq!(d.call("cuEventCreate", (&raw mut got, 6_u32)), "OUT_OF_MEMORY");
        // What is there works on, and takes more memory.
        let more = tool.allocate(pool, 40 << 20);
        tool.fill(more, WORDS, 3);
        assert_eq!(tool.read(more, WORDS), [3; WORDS]);
        assert_eq!((out, got), (-1, usize::MAX));
        limit_descriptors(1024);
        assert_eq!((descriptors(), &d.census()["pool"], &d.census()["event"]), (before, &1.into(), &0.into()));
        let imported = tool.import_pool(&file);
        let alias = tool.import(imported, &data);
        tool.fill(alias, WORDS, 4);
        assert_eq!(tool.read(memory, WORDS), [4; WORDS]);
        [alias, memory, more].into_iter().for_each(|memory| tool.free(memory));
    });
}

/// As measured: a call must have waited for the free, or for what comes after it; that it is done does not count.
#[test]
fn an_imported_pool_is_lost_where_nobody_waited_for_its_memory() {
    alone("an_imported_pool_is_lost_where_nobody_waited_for_its_memory", "", || {
        let (d, _) = Driver::ready();
        let tool = Tool::new(&d);
        let (other, event, early) = (d.stream(1), d.event(2), d.event(2));
        let query = |call: &'static str, handle: usize| while d.call(call, (handle,)) != "SUCCESS" {};
        type Way<'a> = (&'a str, bool, &'a dyn Fn());
        let ways: [Way<'_>; 13] = [
            ("nothing", true, &|| {}),
            ("a query of the stream", true, &|| query("cuStreamQuery", tool.stream)),
            ("a query of an event", true, &|| {
                d.ok("cuEventRecord", (event, tool.stream));
                query("cuEventQuery", event);
            }),
            ("another stream", true, &|| d.ok("cuStreamSynchronize", (other,))),
            ("an event before it", true, &|| d.ok("cuEventSynchronize", (early,))),
            ("a stream that waits for what was before it", true, &|| {
                d.ok("cuStreamWaitEvent", (other, early, 0_u32));
                d.ok("cuStreamSynchronize", (other,));
            }),
            ("the stream", false, &|| tool.sync()),
            ("the context", false, &|| d.ok("cuCtxSynchronize", ())),
            ("an event", false, &|| {
                d.ok("cuEventRecord", (event, tool.stream));
                d.ok("cuEventSynchronize", (event,));
            }),
            ("an event that was seen to be done", false, &|| {
                d.ok("cuEventRecord", (event, tool.stream));
                query("cuEventQuery", event);
                d.ok("cuEventSynchronize", (event,));
            }),
            ("a stream that waits for it", false, &|| {
                d.ok("cuEventRecord", (event, tool.stream));
                d.ok("cuStreamWaitEvent", (other, event, 0_u32));
                d.ok("cuStreamSynchronize", (other,));
            }),
            ("an event on a stream that waits for it", false, &|| {
                d.ok("cuEventRecord", (event, tool.stream));
                query("cuEventQuery", event);
                d.ok("cuStreamWaitEvent", (other, event, 0_u32));
                d.ok("cuEventRecord", (early, other));
                d.ok("cuEventSynchronize", (early,));
            }),
            ("what comes later on the stream", false, &|| {
                let memory = d.memory(64);
                d.ok("cuMemsetD8Async", (memory, 1_u8, 64_usize, tool.stream));
                tool.sync();
                d.ok("cuMemFree_v2", (memory,));
            }),
        ];
        for (name, lost, wait) in ways {
            for (host, held) in [(false, false), (true, false), (false, true)] {
                let pool = tool.pool(host);
                let memory = tool.allocate(pool, BYTES);
                tool.sync();
                let (before, files) = (d.census(), descriptors());
                let imported = tool.import_pool(&tool.file(pool));
                let alias = tool.import(imported, &tool.export(memory));
                d.ok("cuEventRecord", (early, tool.stream));
                if held {
                    tool.hold();
                }
                d.ok("cuMemFreeAsync", (alias, tool.stream));
                tool.let_go();
                wait();
                let told = d.reports().len();
                d.ok("cuMemPoolDestroy", (imported,));
                let said = d.reports()[told..].contains("no call has waited");
                tool.sync();
                let kept = descriptors() - files;
                assert_eq!((said, kept, d.census() != before), (lost, usize::from(lost), lost), "{name}, {held}");
                tool.free(memory);
                tool.destroy(pool);
                if lost {
                    // It is there still, and so is its handle: unlike a real one's.
                    tool.destroy(imported);
                }
            }
        }
    });
}

#[test]
fn a_device_says_what_it_can_share() {
    alone("a_device_says_what_it_can_share", "", || {
        let (d, _) = Driver::ready();
        let answer = |attribute: u32| {
            let mut value = -1_i32;
            d.ok("cuDeviceGetAttribute", (&raw mut value, attribute, 0_i32));
            value
        };
        // HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, IPC_EVENT_SUPPORTED; and the bit of descriptors among
        // MEMPOOL_SUPPORTED_HANDLE_TYPES.
        assert_eq!((answer(103), answer(125), answer(119) & 1), (1, 1, 1));
    });
}

#[test]
fn a_pointer_imported_twice_is_mapped_once_and_freed_once() {
    pair(
        "a_pointer_imported_twice_is_mapped_once_and_freed_once",
        "",
        |d, other| {
            let tool = Tool::new(&d);
            let (pool, memory) = lend(&tool, other, false);
            other.give(tool.file(pool).as_raw_fd());
            let [_] = other.hear();
            assert_eq!(tool.read(memory, 1), [5 + 100]);
            tool.free(memory);
            assert_eq!(d.reports(), "");
        },
        |d, other| {
            let tool = Tool::new(&d);
            let (pool, data, memory) = borrow(&tool, other);
            // A second import of the pool is the same pool.
            assert_eq!(tool.import_pool(&other.take()), pool);
            assert_eq!(tool.import(pool, &data), memory);
            assert_eq!((&d.census()["imported_memory"], &d.census()["pool"], mappings()), (&1.into(), &1.into(), 1));
            assert_eq!(tool.read(memory, 1), [5]);
            tool.free(memory);
            assert_eq!((&d.census()["imported_memory"], mappings()), (&0.into(), 0));
            assert_eq!(d.reports(), "");
            assert_eq!(d.call("cuMemFreeAsync", (memory, tool.stream)), "INVALID_VALUE");
            let heard = d.reports().lines().count();
            // From many threads at once, all of which give it up together.
            let context = d.get("cuCtxGetCurrent", |out| (out,));
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        let d = Driver::load();
                        d.ok("cuCtxSetCurrent", (context,));
                        let tool = Tool::new(&d);
                        static ALL: std::sync::Barrier = std::sync::Barrier::new(8);
                        for _round in 0..100 {
                            let memory = tool.import(pool, &data);
                            let is_last = ALL.wait().is_leader();
                            if is_last {
                                tool.add(memory, 1, 1);
                                tool.free(memory);
                                assert_eq!(mappings(), 0);
                            }
                            ALL.wait();
                        }
                    });
                }
            });
            assert_eq!((&d.census()["imported_memory"], mappings()), (&0.into(), 0));
            assert_eq!(d.reports().lines().count(), heard);
            // A use after the end is reported: what it was, and where it came and went.
            other.say([1]);
            let names = |reports: &str| {
                let text = "imported from process ";
                assert!(reports.contains(text) && reports.contains("cuMemPoolImportPointer"), "{reports}");
                assert!(reports.contains("which was freed by cuMem"), "{reports}");
            };
            assert_eq!(d.call("cuMemsetD8Async", (memory, 1_u8, 1_usize, tool.stream)), "INVALID_VALUE");
            names(&d.reports().lines().skip(heard).collect::<String>());
            let heard = d.reports().lines().count();
            tool.add(memory, 1, 1);
            assert_eq!(d.call("cuStreamSynchronize", (tool.stream,)), "ILLEGAL_ADDRESS");
            names(&d.reports().lines().skip(heard).collect::<String>());
        },
    );
}

#[test]
fn memory_of_the_host_is_imported_once_at_a_time() {
    alone("memory_of_the_host_is_imported_once_at_a_time", "", || {
        let (d, _) = Driver::ready();
        let tool = Tool::new(&d);
        let pool = tool.pool(true);
        let memory = tool.allocate(pool, BYTES);
        let imported = tool.import_pool(&tool.file(pool));
        let data = tool.export(memory);
        let mut got = 0_usize;
        for _round in 0..2 {
            let alias = tool.import(imported, &data);
            let status = d.call("cuMemPoolImportPointer", (&raw mut got, imported, data.as_ptr()));
            assert_eq!((status.as_str(), got), ("ALREADY_MAPPED", 0));
            assert_eq!(d.census()["imported_memory"], 1);
            tool.free(alias);
        }
        tool.free(memory);
        [imported, pool].into_iter().for_each(|pool| tool.destroy(pool));
        assert_eq!(d.call("cuMemPoolDestroy", (imported,)), "INVALID_VALUE");
        assert_eq!((&d.census()["imported_memory"], &d.census()["pool"], mappings()), (&0.into(), &0.into(), 0));
    });
}

#[test]
fn a_free_by_the_exporter_leaves_the_importer_its_bytes() {
    pair(
        "a_free_by_the_exporter_leaves_the_importer_its_bytes",
        "",
        |d, other| {
            let tool = Tool::new(&d);
            let (pool, memory) = lend(&tool, other, false);
            let [_] = other.hear();
            tool.free(memory);
            let reports = d.reports();
            assert!(reports.contains("which another process has imported and not freed"), "{reports}");
            // All that the pool holds is given back, and taken anew.
            d.ok("cuMemPoolTrimTo", (pool, 0_usize));
            assert_eq!(mappings(), 0);
            let fresh = tool.allocate(pool, BYTES);
            assert_eq!(tool.read(fresh, WORDS), [0; WORDS], "other bytes than those that are still imported");
            tool.fill(fresh, WORDS, 1);
            tool.sync();
            tool.destroy(pool);
            other.say([1]);
            let [_] = other.hear();
            assert_eq!(tool.read(fresh, WORDS), [1; WORDS]);
            tool.free(fresh);
            assert_eq!(mappings(), 0);
        },
        |d, other| {
            let tool = Tool::new(&d);
            let (pool, data, memory) = borrow(&tool, other);
            other.say([1]);
            let [_] = other.hear();
            assert_eq!(tool.read(memory, WORDS), [5; WORDS]);
            tool.add(memory, WORDS as u32, 1);
            assert_eq!(tool.read(memory, WORDS), [6; WORDS]);
            tool.free(memory);
            let mut got = 0_usize;
            assert_eq!(d.call("cuMemPoolImportPointer", (&raw mut got, pool, data.as_ptr())), "INVALID_VALUE");
            assert!(reports_say(&d, "has freed, or never had"), "{}", d.reports());
            assert_eq!((&d.census()["imported_memory"], mappings()), (&0.into(), 0));
            other.say([1]);
        },
    );
}

#[test]
fn frees_in_stream_order_need_no_waiting_between_the_processes() {
    pair(
        "frees_in_stream_order_need_no_waiting_between_the_processes",
        "",
        |d, other| {
            let tool = Tool::new(&d);
            let (_, memory) = lend(&tool, other, false);
            let [_] = other.hear();
            tool.free(memory);
            assert_eq!(d.reports(), "", "the importer has freed it");
        },
        |d, other| {
            let tool = Tool::new(&d);
            let (pool, data, memory) = borrow(&tool, other);
            // The frees wait in the stream, and no address is given out twice meanwhile.
            tool.hold();
            let mut seen = std::collections::BTreeSet::new();
            for round in 0..50_u32 {
                let memory = if round == 0 { memory } else { tool.import(pool, &data) };
                assert!(seen.insert(memory));
                tool.add(memory, WORDS as u32, 1);
                d.ok("cuMemFreeAsync", (memory, tool.stream));
            }
            assert_eq!((&d.census()["imported_memory"], mappings()), (&0.into(), 50));
            tool.let_go();
            tool.sync();
            assert_eq!((&d.census()["imported_memory"], mappings()), (&0.into(), 0));
            let again = tool.import(pool, &data);
            assert_eq!(tool.read(again, WORDS), [55; WORDS]);
            tool.free(again);
            assert_eq!(d.reports(), "");
            other.say([1]);
        },
    );
}

#[test]
fn an_importer_outlives_its_exporter() {
    pair(
        "an_importer_outlives_its_exporter",
        "",
        |d, other| {
            // Here the second process exports, and is killed.
            let tool = Tool::new(&d);
            let (pool, data, memory) = borrow(&tool, other);
            other.kill();
            assert_eq!(tool.read(memory, WORDS), [5; WORDS]);
            tool.add(memory, WORDS as u32, 2);
            assert_eq!(tool.read(memory, WORDS), [7; WORDS]);
            // Even what was not imported yet is there as long as somebody has the pool.
            tool.free(memory);
            let again = tool.import(pool, &data);
            assert_eq!(tool.read(again, WORDS), [7; WORDS]);
            // Measured: not while there is imported memory of it.
            assert_eq!(d.call("cuMemPoolDestroy", (pool,)), "INVALID_VALUE");
            assert_eq!(tool.read(again, 1), [7]);
            let open = descriptors();
            tool.free(again);
            tool.destroy(pool);
            assert_eq!((descriptors(), mappings(), d.reports().as_str()), (open - 1, 0, ""));
            assert_eq!((&d.census()["imported_memory"], &d.census()["pool"]), (&0.into(), &0.into()));
        },
        |d, other| {
            let tool = Tool::new(&d);
            lend(&tool, other, false);
            // Never comes.
            other.hear_bytes(1);
        },
    );
}

#[test]
fn an_exporter_outlives_its_importers() {
    pair(
        "an_exporter_outlives_its_importers",
        "",
        |d, other| {
            let tool = Tool::new(&d);
            let before = shared_files();
            let (pool, memory) = lend(&tool, other, false);
            let [_] = other.hear();
            other.kill();
            assert_eq!(tool.read(memory, WORDS), [6; WORDS]);
            tool.add(memory, WORDS as u32, 1);
            assert_eq!(tool.read(memory, WORDS), [7; WORDS]);
            tool.free(memory);
            tool.destroy(pool);
            assert_eq!((d.reports().as_str(), mappings()), ("", 0));
            assert_eq!(shared_files(), before, "nothing is left behind");
        },
        |d, other| {
            let tool = Tool::new(&d);
            let (_, _, memory) = borrow(&tool, other);
            tool.add(memory, WORDS as u32, 1);
            tool.sync();
            other.say([1]);
            other.hear_bytes(1);
        },
    );
}

#[test]
fn importers_killed_at_any_moment_keep_nothing() {
    const LINE: &str = "CUIRASS_SIM_LINE";
    let name = "importers_killed_at_any_moment_keep_nothing";
    alone(name, "", || {
        let (d, _) = Driver::ready();
        let tool = Tool::new(&d);
        if std::env::var_os(LINE).is_some() {
            let mut other = Other::first();
            let pool = tool.import_pool(&other.take());
            let pieces: Vec<[u64; 8]> = (0..16).map(|_| other.hear()).collect();
            other.say([1]);
            loop {
                for piece in &pieces {
                    let memory = tool.import(pool, piece);
                    tool.add(memory, 4, 1);
                    d.ok("cuMemFreeAsync", (memory, tool.stream));
                }
            }
        }
        let pool = tool.pool(false);
        let keep = u64::MAX;
        d.ok("cuMemPoolSetAttribute", (pool, 4_u32, &raw const keep));
        let file = tool.file(pool);
        // In units of 512 bytes.
        let blocks = || {
            use std::os::unix::fs::MetadataExt;
            std::fs::metadata(format!("/proc/self/fd/{}", file.as_raw_fd())).unwrap().blocks()
        };
        let empty = blocks();
        for round in 0..8_u64 {
            let pieces: Vec<usize> = (0..16).map(|_| tool.allocate(pool, 3 << 20)).collect();
            pieces.iter().for_each(|piece| tool.fill(*piece, 3 << 18, 9));
            tool.sync();
            let mut others: Vec<Other> = (0..2).map(|_| Other::start_as(name, LINE)).collect();
            for other in &mut others {
                other.give(file.as_raw_fd());
                pieces.iter().for_each(|piece| other.say(tool.export(*piece)));
            }
            others.iter_mut().for_each(|other| assert_eq!(other.hear(), [1]));
            std::thread::sleep(std::time::Duration::from_micros(300 * round * round));
            others.iter_mut().for_each(Other::kill);
            assert!(tool.read(pieces[3], 4)[3] >= 9);
            pieces.into_iter().for_each(|piece| tool.free(piece));
            assert!(blocks() > empty + 16 * (3 << 11), "{}", blocks());
            d.ok("cuMemPoolTrimTo", (pool, 0_usize));
            // What may be left is the page of the table of what is exported.
            assert!(blocks() <= empty + 8, "{} of {empty}", blocks());
        }
        assert_eq!((d.reports().as_str(), mappings()), ("", 0));
    });
}

#[test]
fn a_thousand_rounds_leave_nothing() {
    pair(
        "a_thousand_rounds_leave_nothing",
        "",
        |d, other| {
            let tool = Tool::new(&d);
            let round = |other: &mut Other, at: u64| {
                let pool = tool.pool(at % 2 == 1);
                let (memory, small) = (tool.allocate(pool, BYTES), tool.allocate(pool, 100));
                tool.fill(memory, WORDS, at as u32);
                tool.sync();
                // Imported here too.
                let twin = tool.import_pool(&tool.file(pool));
                let alias = tool.import(twin, &tool.export(memory));
                assert_eq!(tool.read(alias, 1), [at as u32]);
                tool.free(alias);
                tool.destroy(twin);
                other.give(tool.file(pool).as_raw_fd());
                other.say(tool.export(memory));
                other.say(tool.export(small));
                let [_] = other.hear();
                assert_eq!(tool.read(memory, WORDS)[WORDS - 1], at as u32 + 1);
                tool.free(small);
                tool.free(memory);
                tool.destroy(pool);
            };
            round(other, 0);
            let open = descriptors();
            (1..1000).for_each(|at| round(other, at));
            assert_eq!((descriptors(), mappings()), (open, 0));
            assert_eq!((&d.census()["pool"], &d.census()["pooled_memory"]), (&0.into(), &0.into()));
            assert_eq!((&d.census()["imported_memory"], d.reports().as_str()), (&0.into(), ""));
        },
        |d, other| {
            let tool = Tool::new(&d);
            let round = |other: &mut Other, at: u64| {
                let (pool, _, memory) = borrow(&tool, other);
                let small = tool.import(pool, &other.hear());
                assert_ne!(small / 4096, memory / 4096, "mappings of their own");
                tool.add(memory, WORDS as u32, 1);
                tool.fill(small, 25, at as u32);
                tool.free(memory);
                if at.is_multiple_of(3) {
                    assert_eq!(d.call("cuMemPoolDestroy", (pool,)), "INVALID_VALUE");
                }
                tool.free(small);
                tool.destroy(pool);
                other.say([at]);
            };
            round(other, 0);
            let open = descriptors();
            (1..1000).for_each(|at| round(other, at));
            assert_eq!((descriptors(), mappings()), (open, 0));
            assert_eq!((&d.census()["imported_memory"], d.reports().as_str()), (&0.into(), ""));
        },
    );
}

#[test]
fn what_a_context_imported_ends_with_it() {
    alone("what_a_context_imported_ends_with_it", "devices=2", || {
        let (d, _) = Driver::ready();
        let tool = Tool::new(&d);
        let pool = tool.pool(false);
        let memory = tool.allocate(pool, BYTES);
        let (file, data) = (tool.file(pool), tool.export(memory));
        let context = d.get("cuCtxCreate_v2", |out| (out, 0_u32, 0_i32));
        let imported = tool.import_pool(&file);
        let alias = tool.import(imported, &data);
        assert_eq!(tool.import(imported, &data), alias);
        assert_eq!((&d.census()["imported_memory"], mappings()), (&1.into(), 2));
        d.ok("cuCtxDestroy_v2", (context,));
        assert_eq!((&d.census()["imported_memory"], mappings()), (&0.into(), 1));
        assert_eq!(d.census()["pooled_memory"], 1);
        // Access of another device to what is imported is the imported pool's to give.
        let prim = d.get("cuDevicePrimaryCtxRetain", |out| (out, 0_i32));
        d.ok("cuCtxSetCurrent", (prim,));
        let alias = tool.import(imported, &data);
        let wish = [1_u32, 1, 3];
        d.ok("cuMemPoolSetAccess", (imported, wish.as_ptr(), 1_usize));
        let second = d.get("cuDevicePrimaryCtxRetain", |out| (out, 1_i32));
        d.ok("cuCtxSetCurrent", (second,));
        let there = Tool::new(&d);
        there.add(alias, WORDS as u32, 0);
        d.ok("cuCtxSynchronize", ());
    });
}
