//! The gauntlet: every public operation, with each driver and compiler call that it makes failing in turn, with each
//! status of a set, in two manners, alone and together with every later call; and the six checks of the failure policy
//! after each run.
//!
//! ```text
//! cargo test -p cuirass --test gauntlet                                  a part of it, in seconds
//! CUIRASS_GAUNTLET=slice:7 cargo test -p cuirass --test gauntlet         another part
//! CUIRASS_GAUNTLET=full cargo test -p cuirass --test gauntlet            all of it (make gauntlet)
//! … -- --family stream                                                   one family, in this process
//! … -- --faulted 'Stream::close'                                         one operation, in a context that is lost
//! … -- --operation 'Stream::close'                                       one operation, whole, in this process
//! CUIRASS_DRIVER=gpu …                                                   over the system's driver
//! ```
//!
//! A new public operation is registered in the file of its family; [`registered`] fails the run otherwise.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod context;
mod device;
mod driver;
mod event;
mod graph;
mod host_function;
mod launch;
mod memory;
mod memory_copy;
mod memory_ipc;
mod memory_managed;
mod memory_pool;
mod memory_virtual;
mod module;
mod objects;
mod program;
mod registered;
mod stream;
mod view_copy;
mod view_layout;

use cuirass_testkit::instrument::Instrument;
use cuirass_testkit::operation::{Caller, Ends, Operation};
use cuirass_testkit::sweep::{Extent, Sweep, Violation, World};
use cuirass_testkit::{choose, runner};
use std::cmp::Reverse;
use std::process::{Command, ExitCode};

type Family = (&'static str, fn() -> Vec<Operation>);

/// The registry.
const FAMILIES: &[Family] = &[
    ("program", program::operations),
    ("device", device::operations),
    ("context", context::operations),
    ("stream", stream::operations),
    ("event", event::operations),
    ("memory", memory::operations),
    ("memory/copy", memory_copy::operations),
    ("memory/ipc", memory_ipc::operations),
    ("memory/managed", memory_managed::operations),
    ("memory/pool", memory_pool::operations),
    ("memory/virtual", memory_virtual::operations),
    ("module", module::operations),
    ("launch", launch::operations),
    ("graph", graph::operations),
    ("host_function", host_function::operations),
    ("view/copy", view_copy::operations),
    ("view/layout", view_layout::operations),
    ("driver", driver::operations),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        // What cargo and its like ask of a test program.
        ["--list", ..] => {
            println!("gauntlet: test");
            ExitCode::SUCCESS
        }
        ["--family", name] if FAMILIES.iter().all(|(family, _)| family != name) => {
            let families: Vec<&str> = FAMILIES.iter().map(|(family, _)| *family).collect();
            unknown(&format!("there is no family {name:?}; there are {}", families.join(", ")))
        }
        ["--family", name] => child(|family, _| family == *name, runner::extent()),
        [option @ ("--faulted" | "--operation"), name] if !is_operation(name, *option == "--faulted") => {
            unknown(&format!(
                "there is no operation {name:?}; {}",
                match near(name).as_slice() {
                    [] => "crates/cuirass/tests/gauntlet has a file of them a family".to_owned(),
                    near => format!("the nearest: {}", near.join(", ")),
                }
            ))
        }
        ["--faulted", title] => faulted(title),
        ["--operation", name] => alone(name),
        [option @ ("--family" | "--faulted" | "--operation"), ..] => unknown(&format!("{option} wants one name")),
        ["--exporter"] => memory_ipc::exporter(),
        // Other tests were asked for.
        other if other.iter().any(|word| *word == "--ignored" || is_filter(word)) => ExitCode::SUCCESS,
        _ => whole(),
    }
}

fn is_filter(word: &str) -> bool {
    !word.starts_with('-') && !"gauntlet".contains(word)
}

/// What was asked for is not there, as a line on stderr.
fn unknown(what: &str) -> ExitCode {
    eprintln!("gauntlet: {what}");
    ExitCode::from(2)
}

fn every() -> impl Iterator<Item = Operation> {
    FAMILIES.iter().flat_map(|(_, operations)| operations())
}

fn is_operation(name: &str, whole_title: bool) -> bool {
    every().any(|operation| operation.title() == name || (operation.name == name && !whole_title))
}

/// The operations whose names begin and end most as one that is none does, at most three.
fn near(name: &str) -> Vec<&'static str> {
    let alike = |other: &str| {
        let same = |(one, other): &(u8, u8)| one.eq_ignore_ascii_case(other);
        let begin = name.bytes().zip(other.bytes()).take_while(same).count();
        let end = name.bytes().rev().zip(other.bytes().rev()).take_while(same).count();
        (begin + end).min(name.len())
    };
    let mut near: Vec<(usize, &str)> = every().map(|operation| (alike(operation.name), operation.name)).collect();
    near.retain(|(alike, _)| alike * 3 > name.len() * 2);
    near.sort_unstable_by_key(|(alike, name)| (Reverse(*alike), name.len(), *name));
    near.dedup();
    near.into_iter().take(3).map(|(_, name)| name).collect()
}

/// What this program says of what is not there, where that is not one line with the names that are.
fn misspelt() -> Vec<String> {
    let asked = [
        (
            &["--family", "nonsense"][..],
            "gauntlet: there is no family \"nonsense\"; there are program, device, context",
        ),
        (
            &["--operation", "Stream::clos"],
            "gauntlet: there is no operation \"Stream::clos\"; the nearest: Stream::close",
        ),
        (
            &["--faulted", "Steam::close"],
            "gauntlet: there is no operation \"Steam::close\"; the nearest: Stream::close",
        ),
        (&["--operation", "qqqq"], "gauntlet: there is no operation \"qqqq\"; crates/cuirass/tests/gauntlet has"),
        (&["--family"], "gauntlet: --family wants one name"),
    ];
    let mut wrong = Vec::new();
    for (arguments, said) in asked {
        let output = Command::new(std::env::current_exe().expect("this program's path")).args(arguments).output();
        let output = output.expect("this program");
        let line = String::from_utf8_lossy(&output.stderr);
        if output.status.code() != Some(2) || !line.starts_with(said) || line.lines().count() != 1 {
            wrong.push(format!("{}: {}, and it says {line}", arguments.join(" "), output.status));
        }
    }
    wrong
}

/// Everything, a process a family.
fn whole() -> ExitCode {
    let mut wrong = registered::check(FAMILIES);
    let misspelt = misspelt();
    if std::env::var("CUIRASS_DRIVER").is_ok_and(|driver| driver == "gpu") {
        println!("gauntlet: over the system's driver");
    }
    let families: Vec<String> = FAMILIES.iter().map(|(name, _)| (*name).to_owned()).collect();
    let (totals, violations) = runner::run_jobs(&families, |family| process("--family", family));
    let titles = faulted_titles();
    let (after, lost) = runner::run_jobs(&titles, |title| process("--faulted", title));
    wrong.sort();
    for wrong in &wrong {
        println!("not registered: {wrong}");
    }
    for wrong in &misspelt {
        println!("not told in one line: {wrong}");
    }
    runner::print("gauntlet, in a context lost to a kernel's fault", &after, &lost);
    runner::print("gauntlet", &totals, &violations);
    end(wrong.is_empty() && misspelt.is_empty() && violations.is_empty() && lost.is_empty())
}

/// This program again, for one job.
fn process(what: &str, job: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this program's path"));
    command.args([what, job]);
    // What the simulated driver would write to stderr is read from it, and is part of the checks.
    if std::env::var_os("CUIRASS_SIM").is_none() {
        command.env("CUIRASS_SIM", "devices=2,quiet=1");
    }
    command
}

/// The operations that make calls, or a part of them.
fn faulted_titles() -> Vec<String> {
    let titles = every().filter(|operation| operation.ends != Ends::MakesNoCall).map(|operation| operation.title());
    match runner::extent() {
        Extent::Full => titles.collect(),
        Extent::Slice(seed, one_in) => {
            let skipped = usize::try_from(seed % one_in).unwrap_or(0);
            titles.skip(skipped).step_by(usize::try_from(one_in).unwrap_or(1)).collect()
        }
    }
}

/// One operation, whole, in this process.
fn alone(name: &str) -> ExitCode {
    let mut sweep = sweep(Extent::Full, Box::new(|_run| {}));
    for operation in chosen(|_family, operation| operation.name == name || operation.title() == name) {
        sweep.operation(&operation);
    }
    runner::print("gauntlet", &sweep.totals, &sweep.violations);
    end(sweep.violations.is_empty() && sweep.totals.operations > 0)
}

/// Some operations. What is imported by one of them is exported first.
fn chosen(wanted: impl Fn(&str, &Operation) -> bool) -> Vec<Operation> {
    let mut chosen = Vec::new();
    for (family, operations) in FAMILIES {
        let before = chosen.len();
        chosen.extend(operations().into_iter().filter(|operation| wanted(family, operation)));
        if *family == "memory/ipc" && chosen.len() > before {
            memory_ipc::export_at_rest();
        }
    }
    chosen
}

/// Some operations, told to the runner.
fn child(wanted: impl Fn(&str, &Operation) -> bool, extent: Extent) -> ExitCode {
    let mut first_use: Vec<Violation> = Vec::new();
    if FAMILIES
        .iter()
        .any(|(family, _)| *family == "device" && device::operations().iter().any(|one| wanted(family, one)))
    {
        first_use = device::first_use();
    }
    let mut sweep = sweep(extent, Box::new(runner::announce));
    sweep.violations = first_use;
    runner::child(sweep, &chosen(wanted), Sweep::operation);
    ExitCode::SUCCESS
}

/// One operation in a context that is lost, told to the runner.
fn faulted(title: &str) -> ExitCode {
    let sweep = sweep(Extent::Full, Box::new(runner::announce));
    runner::child(sweep, &chosen(|_family, operation| operation.title() == title), |sweep, operation| {
        sweep.faulted(operation, || Ok(objects::lose_the_context()?));
    });
    ExitCode::SUCCESS
}

fn sweep(extent: Extent, announce: Box<dyn Fn(&str)>) -> Sweep {
    choose();
    let instrument = Instrument::start();
    let other = objects::other_context().expect("a context of its own");
    let context = move |caller| match caller {
        Caller::Nothing => 0,
        Caller::Other => other.as_raw().addr() as u64,
        Caller::Primary => objects::device().context().map_or(0, |context| context.as_raw().addr() as u64),
    };
    let world = World {
        context: Box::new(context),
        rest: Box::new(|| Ok(objects::rest()?)),
        forget_pool: cuirass::testing::forget_imported_pool,
        reports: None,
    };
    Sweep::new(instrument, world, extent, announce)
}

fn end(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
