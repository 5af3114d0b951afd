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
        ["--family", name] => child(|family, _| family == *name, runner::extent()),
        ["--faulted", title] => faulted(title),
        ["--operation", name] => alone(name),
        ["--exporter"] => memory_ipc::exporter(),
        // Other tests were asked for.
        other if other.iter().any(|word| *word == "--ignored" || is_filter(word)) => ExitCode::SUCCESS,
        _ => whole(),
    }
}

fn is_filter(word: &str) -> bool {
    !word.starts_with('-') && !"gauntlet".contains(word)
}

/// Everything, a process a family.
fn whole() -> ExitCode {
    let mut wrong = registered::check(FAMILIES);
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
    runner::print("gauntlet, in a context lost to a kernel's fault", &after, &lost);
    runner::print("gauntlet", &totals, &violations);
    end(wrong.is_empty() && violations.is_empty() && lost.is_empty())
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
    let all = FAMILIES.iter().flat_map(|(_, operations)| operations());
    let titles = all.filter(|operation| operation.ends != Ends::MakesNoCall).map(|operation| operation.title());
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
    let world = World { context: Box::new(context), rest: Box::new(|| Ok(objects::rest()?)), reports: None };
    Sweep::new(instrument, world, extent, announce)
}

fn end(well: bool) -> ExitCode {
    if well { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
